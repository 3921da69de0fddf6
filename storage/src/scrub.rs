//! Checks all files of a store for damage by reading them, and remembers the damage that was found.

use std::path::Path;

use crate::{
    StorageError, Store,
    engine::{
        Batch, Keyspace, Sync,
        scrub::{self, Scrubbed},
    },
    layout::numbers,
    node_files,
    store::{mark_key, read_mark},
};

/// What an operator can do about damage.
const WAY_OUT: &str = "the data of this node cannot be trusted: restore a backup, or move its dbpath away and start \
    with an empty one, it will sync from the set";

/// Reads every file of a store that no process has open. `pace` is called with the number of bytes read and returns
/// whether to go on. Nothing is changed, except that the record of earlier damage is removed if the whole store is
/// undamaged.
pub fn scrub(dbpath: &Path, pace: &mut dyn FnMut(u64) -> bool) -> Result<Scrubbed, StorageError> {
    let _lock = node_files::Lock::take(dbpath)?;
    let mut found = scrub::scrub(&dbpath.join("engine"), false, pace)?;
    if let Err(error) = node_files::look(dbpath) {
        found.damaged.push(error.to_string());
    }
    if found.is_whole() {
        // The damage was repaired, or the damaged file does not belong to the store any more.
        node_files::clear_damage(dbpath)?;
    }
    Ok(found)
}

impl Store {
    /// Reads every file of this store while the store is in use.
    pub fn scrub(&self, pace: &mut dyn FnMut(u64) -> bool) -> Result<Scrubbed, StorageError> {
        if self.0._lock.is_none() {
            // A store in memory has no files.
            return Ok(Scrubbed { complete: true, ..Scrubbed::default() });
        }
        let mut found = scrub::scrub(&self.0.dbpath.join("engine"), true, pace)?;
        if let Err(error) = node_files::look(&self.0.dbpath) {
            found.damaged.push(error.to_string());
        }
        if let Some(first) = found.damaged.first() {
            self.keep_damage(format!("{first}; {WAY_OUT}"))?;
        }
        if found.is_whole() {
            let now = bson::DateTime::now().timestamp_millis().cast_unsigned();
            let mut batch = Batch::default();
            batch.put(Keyspace::Meta, mark_key("scrubbed"), numbers([now]));
            self.0.engine.commit(batch, Sync::No)?;
        }
        Ok(found)
    }

    /// The time of the last scrub that found no damage.
    pub fn last_scrub(&self) -> Result<Option<bson::DateTime>, StorageError> {
        let millis = read_mark(&*self.0.engine.snapshot(), "scrubbed")?;
        Ok(millis.map(|millis| bson::DateTime::from_millis(millis.cast_signed())))
    }

    /// A description of known damage and what to do about it, if a read, a write or a scrub has found any. It
    /// survives a restart. A damaged node must neither serve reads nor vote nor acknowledge anything.
    pub fn damage(&self) -> Option<String> {
        self.0.damage.lock().clone().or_else(|| self.0.engine.damage())
    }

    /// Saves the damage that the engine's reads and writes have found.
    pub(crate) fn note_damage(&self) -> Result<(), StorageError> {
        match self.0.engine.damage() {
            Some(why) => self.keep_damage(why),
            None => Ok(()),
        }
    }

    fn keep_damage(&self, why: String) -> Result<(), StorageError> {
        let mut known = self.0.damage.lock();
        if known.is_none() {
            tracing::error!(why, "the store is damaged");
            if self.0._lock.is_some() {
                node_files::write_damage(&self.0.dbpath, &why)?;
            }
            *known = Some(why);
        }
        Ok(())
    }
}
