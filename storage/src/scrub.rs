//! Whether every file of a store is what was written, by reading all of them.

use std::path::Path;

use crate::{
    StorageError, Store,
    engine::scrub::{self, Scrubbed},
    node_files,
};

/// Reads every file of a store that no process has open. `pace` is told how many bytes were read, and says whether to go
/// on. Nothing is changed.
pub fn scrub(dbpath: &Path, pace: &mut dyn FnMut(u64) -> bool) -> Result<Scrubbed, StorageError> {
    let _lock = node_files::Lock::take(dbpath)?;
    let mut found = scrub::scrub(&dbpath.join("engine"), false, pace)?;
    if let Err(error) = node_files::look(dbpath) {
        found.damaged.push(error.to_string());
    }
    Ok(found)
}

impl Store {
    /// Reads every file of this store, while it is used.
    pub fn scrub(&self, pace: &mut dyn FnMut(u64) -> bool) -> Result<Scrubbed, StorageError> {
        if self.0._lock.is_none() {
            // Nothing of it is on disk.
            return Ok(Scrubbed { complete: true, ..Scrubbed::default() });
        }
        let mut found = scrub::scrub(&self.0.dbpath.join("engine"), true, pace)?;
        if let Err(error) = node_files::look(&self.0.dbpath) {
            found.damaged.push(error.to_string());
        }
        Ok(found)
    }
}
