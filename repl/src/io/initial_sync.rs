//! One attempt at an initial sync, from an empty store to a consistent copy.

use std::{ops::Bound, sync::Arc, time::Duration};

use bson::rawdoc;
use parking_lot::Mutex;
use protocol::{
    HostAndPort, OpTime, OpTimeAndWall, RawDoc,
    client::{ClientError, Connection},
};
use storage::{Direction, StorageError, Store};
use tokio::sync::{RwLock, watch};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    DataEvent, MemberSettings, Repl, TaskId,
    apply::{Applier, ApplyError, IndexBuilds, Mode},
    core::{
        backoff::Backoff,
        fetch::{FetchError, OplogBatch},
        initial_sync::{
            Progress, fcv_command, fcv_refusal, oldest_transaction_command, top_of_oplog_command,
        },
    },
    io::{
        clock,
        cloner::Cloner,
        fetcher::{FetchFrom, Sink, fetch_oplog},
        kept::INITIAL_SYNC_ID,
        peer::Peer,
        writer::Buffer,
    },
};

/// Timeout of requests outside of the clone.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// `oplogFetcherInitialSyncMaxFetcherRestarts`: maximum restarts without progress.
const FETCH_RESTARTS_MAX: u32 = 10;
/// Interval of progress reports.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);
/// Maximum entries applied at once after the clone.
const APPLY_ENTRIES_MAX: usize = 5_000;
/// Maximum bytes of entries applied at once.
const APPLY_BYTES_MAX: usize = 16 << 20;

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    #[error("the sync source failed: {0}")]
    Source(#[from] ClientError),
    #[error("the oplog of the sync source could not be fetched: {0}")]
    Fetch(#[from] FetchError),
    #[error("the sync source sent a reply that cannot be read: {0}")]
    Reply(String),
    #[error("{0}")]
    Fcv(String),
    #[error("the sync source rolled back while it was cloned (rollback id {before}, then {after})")]
    SourceRolledBack { before: i32, after: i32 },
    #[error("{ns} has no UUID; upgrade the set to a supported version")]
    NoUuid { ns: String },
    #[error(
        "{ns} has no index on _id, which this node needs; create one with createIndexes({{_id: 1}}) on the primary"
    )]
    NoIdIndex { ns: String },
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error("a part of the initial sync ended unexpectedly: {0}")]
    Bug(String),
}

impl SyncError {
    pub(crate) fn reply(error: impl std::fmt::Display) -> Self {
        Self::Reply(error.to_string())
    }
}

/// What an attempt needs.
#[derive(Clone)]
pub(crate) struct InitialSync {
    pub(crate) store: Store,
    pub(crate) buffer: Buffer,
    pub(crate) repl: Repl,
    pub(crate) peer: Peer,
    pub(crate) settings: MemberSettings,
    pub(crate) builds: Arc<IndexBuilds>,
    pub(crate) task: TaskId,
    pub(crate) source: HostAndPort,
    pub(crate) progress: Arc<Mutex<Progress>>,
    pub(crate) retry_period: Duration,
    pub(crate) jobs: Jobs,
}

/// Blocking work of an attempt holds a read lock: a cancelled attempt leaves such work running, and the next attempt
/// must not begin before it has ended.
pub(crate) type Jobs = Arc<RwLock<()>>;

/// Where fetching and applying begin.
struct BeginPoints {
    fetching: OpTime,
    applying: OpTimeAndWall,
}

impl InitialSync {
    /// Runs the whole attempt. The store is durable and readable when it returns.
    pub(crate) async fn run(&self) -> Result<OpTimeAndWall, SyncError> {
        let _reporter = AbortOnDropHandle::new(tokio::spawn(self.clone().show_progress()));
        let stop = CancellationToken::new();
        let _stopped = stop.clone().drop_guard();
        self.attempt(stop).await
    }

    async fn attempt(&self, stop: CancellationToken) -> Result<OpTimeAndWall, SyncError> {
        // Wait until no work of an earlier attempt can change the store any more.
        drop(self.jobs.write().await);
        self.buffer.flush().await.map_err(|e| SyncError::Bug(e.to_string()))?;
        let mut connection = self.peer.connect(&self.source).await?;
        let rbid = rollback_id(&mut connection).await?;
        self.blocking({
            let (store, builds) = (self.store.clone(), self.builds.clone());
            move || {
                builds.cancel_all();
                store.begin_initial_sync()?;
                // The data becomes a different copy: scans of the old one must not be resumed.
                store.remove_meta(INITIAL_SYNC_ID)
            }
        })
        .await?;
        let begin = begin_points(&mut connection).await?;
        self.progress.lock().oplog_start = begin.applying.op_time;
        let (fetched, mut position) = watch::channel(OpTime::NULL);
        let stop = tokio::select! {
            ended = self.clone().fetch(begin.fetching, fetched) => {
                ended?;
                return Err(SyncError::Bug("the oplog fetcher ended".into()));
            }
            result = self.clone_and_catch_up(&mut connection, &begin, &mut position, rbid, stop) => result?,
        };
        // The fetcher has ended, but its last entries may still be in the buffer. The next follower begins where our
        // oplog ends and would fetch them again.
        self.buffer.flush().await.map_err(|e| SyncError::Bug(e.to_string()))?;
        Ok(stop)
    }

    async fn clone_and_catch_up(
        &self,
        connection: &mut Connection,
        begin: &BeginPoints,
        position: &mut watch::Receiver<OpTime>,
        rbid: i32,
        cut_off: CancellationToken,
    ) -> Result<OpTimeAndWall, SyncError> {
        let cloner = Cloner {
            store: self.store.clone(),
            peer: self.peer.clone(),
            source: self.source.clone(),
            begin: begin.applying,
            build_indexes: self.settings.build_indexes,
            progress: self.progress.clone(),
            retry_period: self.retry_period,
            jobs: self.jobs.clone(),
        };
        cloner.run().await?;
        let stop = top_of_oplog(connection).await?;
        tracing::info!(stop = %stop.op_time, "everything is cloned; applying the entries written during the clone");
        self.progress.lock().oplog_end = Some(stop.op_time);
        position
            .wait_for(|fetched| fetched.ts >= stop.op_time.ts)
            .await
            .map_err(|_| SyncError::Bug("the oplog fetcher ended".into()))?;
        self.buffer.flush().await.map_err(|e| SyncError::Bug(e.to_string()))?;
        let sync = self.clone();
        self.blocking(move || sync.apply_until(stop, &cut_off)).await?;
        let after = rollback_id(connection).await?;
        if after != rbid {
            return Err(SyncError::SourceRolledBack { before: rbid, after });
        }
        let sync = self.clone();
        self.blocking(move || sync.finish(stop)).await?;
        Ok(stop)
    }

    /// Fetches the source's oplog into ours until the attempt ends. A broken cursor is reopened where it broke.
    async fn fetch(self, start: OpTime, fetched: watch::Sender<OpTime>) -> Result<(), SyncError> {
        let mut sink = Fetched { buffer: self.buffer.clone(), fetched };
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        let mut restarts = 0;
        loop {
            let reached = *sink.fetched.borrow();
            let begun = reached != OpTime::NULL;
            let from = FetchFrom {
                start: if begun { reached } else { start },
                keep_first: !begun,
                term: self.repl.snapshot().term,
                last_known_committed: OpTime::NULL,
                election_timeout: self.settings.election_timeout,
            };
            let error = match fetch_oplog(&self.peer, &self.source, from, &mut sink).await {
                Ok(never) => match never {},
                Err(FetchError::Stopped(_)) => return Ok(()),
                Err(error) => error,
            };
            if *sink.fetched.borrow() != reached {
                restarts = 0;
                backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
            }
            if restarts == FETCH_RESTARTS_MAX || !error.is_transient() {
                return Err(error.into());
            }
            restarts += 1;
            tracing::info!(%error, restarts, of = FETCH_RESTARTS_MAX, "opening the oplog cursor of the initial sync again");
            tokio::time::sleep(backoff.next_wait()).await;
        }
    }

    fn apply_until(
        &self,
        stop: OpTimeAndWall,
        cut_off: &CancellationToken,
    ) -> Result<(), SyncError> {
        let applier = self.applier();
        loop {
            if cut_off.is_cancelled() {
                return Err(SyncError::Bug("the attempt was cut off".into()));
            }
            let applied = self.store.watermarks().applied().op_time;
            if applied.ts >= stop.op_time.ts {
                return Ok(());
            }
            let entries = self.entries(applied, stop)?;
            if entries.is_empty() {
                return Err(SyncError::Bug(format!("no entries between {applied} and {stop:?}")));
            }
            applier.apply(&entries)?;
            self.progress.lock().applied_ops += entries.len() as u64;
        }
    }

    fn entries(&self, after: OpTime, stop: OpTimeAndWall) -> Result<Vec<RawDoc>, StorageError> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        for entry in self.store.oplog().scan_written(Bound::Excluded(after.ts), Direction::Forward)
        {
            let (ts, entry) = entry?;
            if ts > stop.op_time.ts {
                break;
            }
            bytes += entry.len();
            entries.push(entry);
            if entries.len() >= APPLY_ENTRIES_MAX || bytes >= APPLY_BYTES_MAX {
                break;
            }
        }
        Ok(entries)
    }

    async fn blocking<T: Send + 'static, E: Into<SyncError> + Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, SyncError> {
        let job = self.jobs.clone().read_owned().await;
        let done = tokio::task::spawn_blocking(move || {
            let result = work();
            drop(job);
            result
        });
        match done.await {
            Ok(result) => result.map_err(Into::into),
            Err(e) => Err(SyncError::Bug(e.to_string())),
        }
    }

    fn applier(&self) -> Applier {
        let build = self.settings.build_indexes;
        Applier::new(self.store.clone(), Mode::InitialSync, build, self.builds.clone())
    }

    fn finish(&self, stop: OpTimeAndWall) -> Result<(), SyncError> {
        self.applier().hold_prepared_transactions(stop)?;
        self.store.finish_initial_sync(stop)?;
        self.builds.resume(&self.store)?;
        Ok(())
    }

    /// Reports progress to the node and the log until aborted.
    async fn show_progress(self) {
        let mut every = tokio::time::interval(PROGRESS_EVERY);
        loop {
            every.tick().await;
            let progress = self.progress.lock().clone();
            let now = clock::now().wall;
            match progress.status(now) {
                Ok(status) => {
                    self.repl.tell(DataEvent::InitialSyncProgress { task: self.task, status });
                }
                Err(error) => tracing::error!(%error, "initial sync progress cannot be shown"),
            }
            let millis = now.timestamp_millis() - progress.started.timestamp_millis();
            let elapsed = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
            tracing::info!(
                documents = progress.documents_copied(),
                mib = progress.bytes_copied() >> 20,
                of_mib = progress.total_bytes >> 20,
                applied = progress.applied_ops,
                secs_left = progress.time_left(elapsed).map(|left| left.as_secs()),
                "initial sync"
            );
        }
    }
}

/// Passes entries to the writer and tells the attempt how far they reach.
struct Fetched {
    buffer: Buffer,
    fetched: watch::Sender<OpTime>,
}

impl Sink for Fetched {
    async fn take(&mut self, batch: OplogBatch, last: OpTime) -> Result<(), FetchError> {
        if self.fetched.is_closed() {
            return Err(FetchError::Stopped("the attempt has ended".into()));
        }
        if !batch.entries.is_empty() {
            let pushed = self.buffer.push(batch.entries).await;
            pushed.map_err(|e| FetchError::Stopped(e.to_string()))?;
        }
        self.fetched.send_replace(last);
        Ok(())
    }
}

async fn begin_points(connection: &mut Connection) -> Result<BeginPoints, SyncError> {
    let default = top_of_oplog(connection).await?;
    let command = oldest_transaction_command(default.op_time);
    let reply = connection.run("config", command, REPLY_TIMEOUT).await?;
    let oldest = first_document(&reply)?
        .and_then(|row| OpTime::from_raw(row.get_document("startOpTime").ok()?));
    let applying = top_of_oplog(connection).await?;
    let reply = connection.run("admin", fcv_command(applying.op_time), REPLY_TIMEOUT).await?;
    let fcv = first_document(&reply)?
        .ok_or_else(|| SyncError::Fcv("the source has no featureCompatibilityVersion".into()))?;
    if let Some(refusal) = fcv_refusal(&fcv) {
        return Err(SyncError::Fcv(refusal));
    }
    Ok(BeginPoints { fetching: oldest.unwrap_or(default.op_time), applying })
}

async fn top_of_oplog(connection: &mut Connection) -> Result<OpTimeAndWall, SyncError> {
    let reply = connection.run("local", top_of_oplog_command(), REPLY_TIMEOUT).await?;
    let entry = first_document(&reply)?
        .ok_or_else(|| SyncError::Reply("the source's oplog is empty".into()))?;
    let op_time =
        OpTime::from_raw(&entry).ok_or_else(|| SyncError::reply("an entry without ts"))?;
    let wall = entry.get_datetime("wall").map_err(SyncError::reply)?;
    Ok(OpTimeAndWall { op_time, wall })
}

async fn rollback_id(connection: &mut Connection) -> Result<i32, SyncError> {
    let reply = connection.run("admin", rawdoc! { "replSetGetRBID": 1 }, REPLY_TIMEOUT).await?;
    reply.get_i32("rbid").map_err(SyncError::reply)
}

fn first_document(reply: &RawDoc) -> Result<Option<RawDoc>, SyncError> {
    let batch = OplogBatch::parse(reply)?;
    Ok(batch.entries.into_iter().next())
}
