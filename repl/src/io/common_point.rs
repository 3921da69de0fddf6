//! Finds the common point: the last entry that our oplog shares with a source's.
//!
//! Our entries are read in batches, newest first, and the source is asked for single entries. So a branch of a
//! million entries takes a few hundred requests instead of a copy of both oplogs.

use std::ops::Bound;

use bson::rawdoc;
use protocol::{HostAndPort, OpTime, Timestamp, client::Connection};
use storage::{Direction, StorageError, Store};

use crate::{
    core::{
        fetch::{FetchError, INITIAL_FIND_MAX, OplogBatch},
        rollback::Search,
    },
    io::{
        fetcher::{failed, oldest_entry},
        peer::Peer,
    },
};

/// Finds the common point among our entries from `down_to` on; `None` if the source has none of them. Entries before
/// the source's oldest one are not examined, because nothing shows whether they are shared.
pub(crate) async fn find(
    store: &Store,
    peer: &Peer,
    source: &HostAndPort,
    batch: usize,
    down_to: Timestamp,
) -> Result<Option<OpTime>, FetchError> {
    let mut connection = peer.connect(source).await.map_err(failed)?;
    let before = rollback_id(&mut connection).await?;
    let oldest = oldest_entry(&mut connection).await?.unwrap_or(Timestamp::MAX);
    let mut end = Bound::Unbounded;
    let found = loop {
        let ours = read(store, end, down_to.max(oldest), batch).await?;
        let Some(first) = ours.first() else { break None };
        if has(&mut connection, *first).await? {
            break search(&mut connection, &ours).await?;
        }
        end = Bound::Excluded(first.ts);
    };
    let after = rollback_id(&mut connection).await?;
    if before != after {
        let why = format!("the source rolled back itself (rollback id {before}, then {after})");
        return Err(FetchError::Network(why));
    }
    Ok(found)
}

/// Finds the last shared entry. The first of `ours` is shared.
async fn search(
    connection: &mut Connection,
    ours: &[OpTime],
) -> Result<Option<OpTime>, FetchError> {
    let mut search = Search::among(ours.len());
    while let Some(index) = search.next() {
        let Some(entry) = ours.get(index) else { break };
        search.answer(index, has(connection, *entry).await?);
    }
    Ok(search.last_shared().and_then(|last| ours.get(last)).copied())
}

/// Our last entries before `end`, in ascending order.
async fn read(
    store: &Store,
    end: Bound<Timestamp>,
    down_to: Timestamp,
    batch: usize,
) -> Result<Vec<OpTime>, FetchError> {
    let store = store.clone();
    let read = move || {
        let mut ours = Vec::new();
        for item in store.oplog().scan_written(end, Direction::Backward).take(batch.max(1)) {
            let (ts, entry) = item?;
            if ts < down_to {
                break;
            }
            ours.push(OpTime::from_raw(&entry).unwrap_or(OpTime::new(ts, -1)));
        }
        ours.reverse();
        Ok::<_, StorageError>(ours)
    };
    tokio::task::spawn_blocking(read)
        .await
        .map_err(|error| FetchError::Stopped(error.to_string()))?
        .map_err(|error| FetchError::Stopped(error.to_string()))
}

async fn has(connection: &mut Connection, entry: OpTime) -> Result<bool, FetchError> {
    let find = rawdoc! {
        "find": "oplog.rs",
        "filter": { "ts": bson::Timestamp::from(entry.ts) },
        "limit": 1_i64,
        "singleBatch": true,
        "readConcern": { "level": "local" },
        "$readPreference": { "mode": "secondaryPreferred" },
    };
    let reply = connection.run("local", find, INITIAL_FIND_MAX).await.map_err(failed)?;
    let found = OplogBatch::parse(&reply)?;
    Ok(found.entries.first().and_then(|found| OpTime::from_raw(found)) == Some(entry))
}

async fn rollback_id(connection: &mut Connection) -> Result<i32, FetchError> {
    let command = rawdoc! { "replSetGetRBID": 1 };
    let reply = connection.run("admin", command, INITIAL_FIND_MAX).await.map_err(failed)?;
    reply.get_i32("rbid").map_err(|error| FetchError::BadBatch(error.to_string()))
}
