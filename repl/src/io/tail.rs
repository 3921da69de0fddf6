//! Handles a private tail of a delayed member that contradicts the source's history.
//!
//! Nobody has seen the tail, so the diverging part is cut without a rollback.

use std::ops::Bound;

use bson::rawdoc;
use protocol::{HostAndPort, OpTime, Timestamp, client::Connection};
use storage::{Direction, StorageError, Store};

use crate::{
    core::fetch::{FetchError, INITIAL_FIND_MAX, OplogBatch},
    io::{
        fetcher::{failed, oldest_entry},
        peer::Peer,
    },
};

/// Cuts the entries that the source does not have. False if our history diverged before the tail: then a rollback is
/// needed.
pub(crate) async fn cut_parted(
    store: &Store,
    peer: &Peer,
    source: &HostAndPort,
) -> Result<bool, FetchError> {
    let kept = |error: StorageError| FetchError::Stopped(error.to_string());
    let reading = store.clone();
    let tail = tokio::task::spawn_blocking(move || read(&reading))
        .await
        .map_err(|error| FetchError::Stopped(error.to_string()))?
        .map_err(kept)?;
    let mut connection = peer.connect(source).await.map_err(failed)?;
    let oldest = oldest_entry(&mut connection).await?.unwrap_or(Timestamp::MAX);
    // Binary search: entries up to some point are shared, none after it.
    let (mut shared, mut end) = (0, tail.len());
    while shared < end {
        let middle = shared + (end - shared) / 2;
        let Some(entry) = tail.get(middle) else { break };
        if entry.ts < oldest || has(&mut connection, *entry).await? {
            shared = middle + 1;
        } else {
            end = middle;
        }
    }
    let Some(common) = shared.checked_sub(1).and_then(|last| tail.get(last)).copied() else {
        return Ok(false);
    };
    tracing::warn!(%source, %common, entries = tail.len() - shared,
        "the set has rolled back entries that were not due here yet; discarding them");
    let cutting = store.clone();
    tokio::task::spawn_blocking(move || cutting.oplog().truncate_after(common.ts))
        .await
        .map_err(|error| FetchError::Stopped(error.to_string()))?
        .map_err(kept)?;
    Ok(true)
}

/// The last applied entry, and everything after it.
fn read(store: &Store) -> Result<Vec<OpTime>, StorageError> {
    let applied = store.watermarks().applied().op_time;
    let mut tail = vec![applied];
    for item in store.oplog().scan_written(Bound::Excluded(applied.ts), Direction::Forward) {
        let (ts, entry) = item?;
        tail.push(OpTime::from_raw(&entry).unwrap_or(OpTime::new(ts, -1)));
    }
    Ok(tail)
}

async fn has(connection: &mut Connection, entry: OpTime) -> Result<bool, FetchError> {
    let find = rawdoc! {
        "find": "oplog.rs",
        "filter": { "ts": bson::Timestamp::from(entry.ts) },
        "limit": 1_i64,
        "singleBatch": true,
        "$readPreference": { "mode": "secondaryPreferred" },
    };
    let reply = connection.run("local", find, INITIAL_FIND_MAX).await.map_err(failed)?;
    let found = OplogBatch::parse(&reply)?;
    Ok(found.entries.first().and_then(|found| OpTime::from_raw(found)) == Some(entry))
}
