//! Handles a private tail of a delayed member that contradicts the source's history.
//!
//! Nobody has seen the tail, so the diverging part is cut without a rollback.

use protocol::HostAndPort;
use storage::{StorageError, Store};

use crate::{
    core::fetch::FetchError,
    io::{common_point, peer::Peer},
};

/// How many of our entries are read before the source is asked.
const BATCH: usize = 2_000;

/// Cuts the entries that the source does not have. False if our history diverged before the tail: then a rollback is
/// needed.
pub(crate) async fn cut_parted(
    store: &Store,
    peer: &Peer,
    source: &HostAndPort,
) -> Result<bool, FetchError> {
    let applied = store.watermarks().applied().op_time.ts;
    let Some(common) = common_point::find(store, peer, source, BATCH, applied).await? else {
        return Ok(false);
    };
    tracing::warn!(%source, %common,
        "the set has rolled back entries that were not due here yet; discarding them");
    let kept = |error: StorageError| FetchError::Stopped(error.to_string());
    let cutting = store.clone();
    tokio::task::spawn_blocking(move || cutting.oplog().truncate_after(common.ts))
        .await
        .map_err(|error| FetchError::Stopped(error.to_string()))?
        .map_err(kept)?;
    Ok(true)
}
