//! Steady state: copies the source's oplog into ours until something ends it.

use std::sync::Arc;

use protocol::OpTime;
use storage::Store;
use tokio_util::sync::CancellationToken;

use crate::{
    DataEvent, MemberSettings, Repl, SyncSource, TaskId,
    core::fetch::{FetchError, OplogBatch},
    io::{
        delay::Delay,
        fetcher::{FetchFrom, Sink, fetch_oplog},
        peer::Peer,
        tail,
        writer::Buffer,
    },
};

/// Everything that a follower needs.
#[derive(Clone)]
pub(crate) struct Follower {
    pub(crate) store: Store,
    pub(crate) buffer: Buffer,
    pub(crate) repl: Repl,
    pub(crate) peer: Peer,
    pub(crate) settings: MemberSettings,
    pub(crate) delay: Arc<Delay>,
}

impl Follower {
    /// Follows `source` and answers the task at the end. Everything fetched is durable by then.
    pub(crate) async fn run(self, task: TaskId, source: SyncSource, stop: CancellationToken) {
        tracing::info!(source = %source.host, after = %self.store.watermarks().written().op_time, "following the oplog of a sync source");
        let ended = self.follow_unless_cut(task, &source, &stop).await;
        self.repl.tell(DataEvent::FollowEnded {
            task,
            remedy: ended.remedy(),
            why: ended.to_string(),
        });
    }

    /// Follows, except while the private tail of a delayed member is cut.
    async fn follow_unless_cut(
        &self,
        task: TaskId,
        source: &SyncSource,
        stop: &CancellationToken,
    ) -> FetchError {
        loop {
            let fetching = tokio::select! {
                fetching = self.delay.may_fetch() => fetching,
                () = stop.cancelled() => return stopped(),
            };
            let ended = tokio::select! {
                ended = self.follow(task, source) => Some(ended),
                () = self.delay.is_cut() => None,
                () = stop.cancelled() => Some(stopped()),
            };
            // Never cancelled: the next follower begins where our oplog ends.
            if self.buffer.flush().await.is_err() {
                tracing::warn!(
                    "the oplog writer stopped before the entries of {} were written",
                    source.host
                );
            }
            drop(fetching);
            match ended {
                Some(parted @ FetchError::Diverged { .. }) if self.has_private_tail() => {
                    let cut = tokio::select! {
                        cut = tail::cut_parted(&self.store, &self.peer, &source.host) => cut,
                        () = stop.cancelled() => return stopped(),
                    };
                    match cut {
                        Ok(true) => {}
                        Ok(false) => return parted,
                        Err(error) => return error,
                    }
                }
                Some(ended) => return ended,
                None => {}
            }
        }
    }

    fn has_private_tail(&self) -> bool {
        let marks = self.store.watermarks();
        self.delay.state().hides_tail() && marks.written().op_time > marks.applied().op_time
    }

    async fn follow(&self, task: TaskId, source: &SyncSource) -> FetchError {
        let now = self.repl.snapshot();
        let from = FetchFrom {
            start: self.store.watermarks().written().op_time,
            keep_first: false,
            term: now.term,
            last_known_committed: now.committed.op_time,
            election_timeout: self.settings.election_timeout,
        };
        let mut sink = ToWriter { follower: self, task };
        match fetch_oplog(&self.peer, &source.host, from, &mut sink).await {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }
}

fn stopped() -> FetchError {
    FetchError::Stopped("replication was told to leave the source".into())
}

/// Passes entries to the writer and metadata to the node.
struct ToWriter<'a> {
    follower: &'a Follower,
    task: TaskId,
}

impl Sink for ToWriter<'_> {
    async fn take(&mut self, batch: OplogBatch, last: OpTime) -> Result<(), FetchError> {
        if !batch.entries.is_empty() {
            let pushed = self.follower.buffer.push(batch.entries).await;
            pushed.map_err(|e| FetchError::Stopped(e.to_string()))?;
        }
        self.follower.repl.tell(DataEvent::SourceMetadata {
            task: self.task,
            repl_data: batch.repl_data,
            oplog_query_data: batch.oplog_query_data,
            last_fetched: last,
        });
        Ok(())
    }
}
