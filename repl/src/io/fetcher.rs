//! Reads the oplog of a sync source through an exhaust cursor.

use std::{convert::Infallible, future::Future, time::Duration};

use protocol::{
    HostAndPort, OpTime, RawDoc, Timestamp,
    client::{ClientError, Connection},
};

use crate::{
    core::fetch::{
        FetchError, INITIAL_FIND_MAX, NETWORK_BUFFER, OplogBatch, accept_entries,
        accept_first_batch, await_time, find_command, get_more_command, oldest_entry_command,
    },
    io::peer::Peer,
};

/// The parameters of a fetch.
#[derive(Clone, Debug)]
pub(crate) struct FetchFrom {
    /// Our last entry; with `keep_first` the first one to fetch.
    pub(crate) start: OpTime,
    /// True at the beginning of an initial sync, when the entry at `start` is needed, too.
    pub(crate) keep_first: bool,
    /// The newest term that we know.
    pub(crate) term: i64,
    /// Our commit point: the source replies at once when its own is newer.
    pub(crate) last_known_committed: OpTime,
    /// Limits how long a getMore waits.
    pub(crate) election_timeout: Duration,
}

/// Receives the fetched entries. An error ends the fetch.
pub(crate) trait Sink: Send {
    /// `batch` may be empty: then only the commit point advanced, or time passed. `last` is the last position fetched
    /// so far.
    fn take(
        &mut self,
        batch: OplogBatch,
        last: OpTime,
    ) -> impl Future<Output = Result<(), FetchError>> + Send;
}

/// Finds our position in the source's oplog and follows it until an error occurs.
pub(crate) async fn fetch_oplog(
    peer: &Peer,
    source: &HostAndPort,
    from: FetchFrom,
    sink: &mut impl Sink,
) -> Result<Infallible, FetchError> {
    let mut connection = peer.connect(source).await.map_err(unusable)?;
    let oldest = oldest_entry(&mut connection).await?;
    let find = find_command(from.start.ts, from.term);
    let within = INITIAL_FIND_MAX + NETWORK_BUFFER;
    let reply = connection.fetch("local", find, within).await.map_err(unusable)?;
    let mut batch = OplogBatch::parse(&reply)?;
    let first = batch.entries.first().cloned();
    accept_first_batch(from.start, &mut batch, oldest)?;
    let mut last = accept_entries(from.start, &batch.entries)?;
    if from.keep_first {
        batch.entries.splice(0..0, first);
    }
    let cursor = batch.cursor;
    sink.take(batch, last).await?;
    let wait = await_time(from.election_timeout);
    loop {
        let get_more = get_more_command(cursor, from.term, from.last_known_committed, wait);
        let mut replies =
            connection.exhaust("local", get_more, NETWORK_BUFFER).await.map_err(failed)?;
        while let Some(reply) = replies.next(wait + NETWORK_BUFFER).await.map_err(failed)? {
            let batch = OplogBatch::parse(&reply)?;
            let closed = batch.cursor == 0;
            last = accept_entries(last, &batch.entries)?;
            sink.take(batch, last).await?;
            if closed {
                return Err(FetchError::CursorClosed);
            }
        }
    }
}

pub(crate) async fn oldest_entry(
    connection: &mut Connection,
) -> Result<Option<Timestamp>, FetchError> {
    let reply = connection
        .run("local", oldest_entry_command(), INITIAL_FIND_MAX)
        .await
        .map_err(unusable)?;
    let batch = OplogBatch::parse(&reply)?;
    Ok(batch.entries.first().and_then(|entry: &RawDoc| OpTime::from_raw(entry)).map(|at| at.ts))
}

/// The error of a request that failed before following began.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn unusable(error: ClientError) -> FetchError {
    FetchError::Unusable(error.to_string())
}

/// The error of a failed request, as a reason to leave a source.
pub(crate) fn failed(error: ClientError) -> FetchError {
    match error {
        ClientError::Command(refused) => {
            FetchError::Refused { code: refused.code, message: refused.message.clone() }
        }
        other => FetchError::Network(other.to_string()),
    }
}
