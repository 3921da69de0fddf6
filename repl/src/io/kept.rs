//! The node's documents in the store, some of which `local.*` shows.

use bson::{RawBsonRef, rawdoc};
use protocol::{Profile, RawDoc};
use storage::{StorageError, Store};

use crate::{
    event::{LastVote, Persist},
    io::durable::{Durable, DurableError, Kept},
};

/// `local.system.replset`.
pub(crate) const CONFIG: &str = "local.system.replset";
/// `local.system.rollback.id`.
pub(crate) const ROLLBACK_ID: &str = "local.system.rollback.id";
/// `local.replset.initialSyncId`: identifies this copy of the data.
pub const INITIAL_SYNC_ID: &str = "local.replset.initialSyncId";
/// Present while the process runs: if it exists at start, the last shutdown was unclean.
const RUNNING: &str = "understudy.running";
/// The release that we show.
const PROFILE: &str = "understudy.profile";

impl Durable for Store {
    fn load(&self) -> Result<Kept, DurableError> {
        let vote = self.vote().map_err(failed)?.map(|doc| last_vote(&doc)).transpose()?;
        let profile = self.meta(PROFILE).map_err(failed)?;
        let profile = profile.and_then(|doc| Profile::named(doc.get_str("version").ok()?));
        Ok(Kept {
            config: self.meta(CONFIG).map_err(failed)?,
            last_vote: vote,
            profile,
            rbid: begin(self).map_err(failed)?,
        })
    }

    fn save(&self, what: &Persist) -> Result<(), DurableError> {
        match what {
            Persist::Config(config) => self.put_meta(CONFIG, config),
            Persist::LastVote(vote) => self.put_vote(&rawdoc! {
                "_id": bson::oid::ObjectId::new(),
                "term": vote.term,
                "candidateIndex": vote.candidate_index,
            }),
            Persist::Profile(profile) => {
                self.put_meta(PROFILE, &rawdoc! { "version": profile.version })
            }
        }
        .map_err(failed)
    }
}

fn failed(error: StorageError) -> DurableError {
    DurableError(error.to_string())
}

fn last_vote(doc: &RawDoc) -> Result<LastVote, DurableError> {
    let number = |name: &str| match doc.get(name) {
        Ok(Some(RawBsonRef::Int64(n))) => Ok(n),
        Ok(Some(RawBsonRef::Int32(n))) => Ok(i64::from(n)),
        _ => Err(DurableError(format!("the kept vote has no '{name}'"))),
    };
    Ok(LastVote { term: number("term")?, candidate_index: number("candidateIndex")? })
}

/// The rollback id of a starting node. A member that copies from us compares it before and after, and must start over
/// if we may have lost something in between.
fn begin(store: &Store) -> Result<i32, StorageError> {
    let known = rollback_id(store)?;
    let unclean = store.meta(RUNNING)?.is_some();
    let id = match known {
        Some(id) if !unclean => id,
        Some(id) => {
            let next = id.saturating_add(1);
            tracing::info!(target: "REPL", id = 501401, rbid = next,
                "Incrementing the rollback ID after unclean shutdown");
            next
        }
        None => 1,
    };
    if known != Some(id) {
        set_rollback_id(store, id)?;
    }
    if !unclean {
        store.put_meta(RUNNING, &rawdoc! { "since": bson::DateTime::now() })?;
    }
    Ok(id)
}

/// Marks a clean shutdown; the last action of a process on its store.
pub fn end_cleanly(store: &Store) -> Result<(), StorageError> {
    store.remove_meta(RUNNING)
}

fn rollback_id(store: &Store) -> Result<Option<i32>, StorageError> {
    Ok(store.meta(ROLLBACK_ID)?.and_then(|doc| doc.get_i32("rollbackId").ok()))
}

/// Synced when it returns.
pub(crate) fn set_rollback_id(store: &Store, id: i32) -> Result<(), StorageError> {
    store.put_meta(ROLLBACK_ID, &rawdoc! { "_id": "rollbackId", "rollbackId": id })
}

#[cfg(test)]
mod tests {
    use storage::{EngineKind, StoreOptions};

    use super::*;

    #[test]
    fn the_rollback_id_rises_after_an_end_that_was_not_clean() {
        let options = StoreOptions { engine: EngineKind::Memory, ..StoreOptions::default() };
        let store = Store::open(std::path::Path::new("nowhere"), options).unwrap();
        let rbid = || Durable::load(&store).unwrap().rbid;
        assert_eq!(rbid(), 1, "a new store");
        end_cleanly(&store).unwrap();
        assert_eq!(rbid(), 1, "the last end was clean");
        assert_eq!(rbid(), 2);
        assert_eq!(rollback_id(&store).unwrap(), Some(2), "local.system.rollback.id shows it");
        assert_eq!(rbid(), 3, "and the one after it was not clean either");
        end_cleanly(&store).unwrap();
        assert_eq!(rbid(), 3);
    }
}
