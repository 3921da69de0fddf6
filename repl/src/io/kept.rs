//! The node's documents in the store: what `local.*` shows of replication.

use bson::{RawBsonRef, rawdoc};
use protocol::{Profile, RawDoc};
use storage::{StorageError, Store};

use crate::{
    event::{LastVote, Persist},
    io::durable::{Durable, DurableError, Kept},
};

/// `local.system.replset`.
pub const CONFIG: &str = "local.system.replset";
/// `local.system.rollback.id`.
pub const ROLLBACK_ID: &str = "local.system.rollback.id";
/// `local.replset.initialSyncId`: names this copy of the data.
pub const INITIAL_SYNC_ID: &str = "local.replset.initialSyncId";
/// The MongoDB version that we show.
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
            rbid: rollback_id(self).map_err(failed)?,
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

/// The rollback id; a store that has none yet gets 1.
fn rollback_id(store: &Store) -> Result<i32, StorageError> {
    if let Some(doc) = store.meta(ROLLBACK_ID)?
        && let Ok(id) = doc.get_i32("rollbackId")
    {
        return Ok(id);
    }
    store.put_meta(ROLLBACK_ID, &rawdoc! { "_id": "rollbackId", "rollbackId": 1 })?;
    Ok(1)
}
