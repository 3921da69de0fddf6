//! Executes the control plane's decisions about data: follow a source, sync initially, stop.
//!
//! One task at a time. The writer lives as long as the process; the applier runs except during an initial sync, which
//! applies entries by other rules.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI32, Ordering},
};

use parking_lot::Mutex;
use protocol::Timestamp;
use storage::{StorageError, Store};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::{
    DataAction, DataEvent, MemberSettings, Positions, Remedy, Repl, SyncSource, TaskId,
    apply::{Applier, ApplyError, BuildReady, IndexBuilds, Mode},
    core::{
        initial_sync::{Patience, Progress},
        rollback::RollbackSettings,
    },
    io::{
        applier::{ApplierThread, apply_all},
        build_votes, clock,
        delay::Delay,
        follow::Follower,
        initial_sync::{InitialSync, Jobs},
        peer::Peer,
        rollback::Rollback,
        writer::{self, Buffer},
    },
};

/// Called with the reason when the process must end because the disk cannot be trusted any more.
pub type Fatal = Arc<dyn Fn(&str) + Send + Sync>;

/// The interface from the data plane to the rest of the process.
pub trait Outside: Send + Sync + 'static {
    /// The current retry settings of initial sync.
    fn patience(&self) -> Patience;

    /// The current settings of rollback.
    fn rollback_settings(&self) -> RollbackSettings;

    /// Called when our state has become ROLLBACK. Ends user operations, cursors and connections before any data
    /// changes.
    fn rollback_begins(&self) -> Interrupted;

    /// Called when all timestamps after `after` become invalid.
    fn past_is_lost(&self, after: Timestamp);
}

/// The number of operations that a state change affected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Interrupted {
    /// Operations that were killed.
    pub killed: i64,
    /// Operations that continued.
    pub running: i64,
}

/// Pause before the next attempt at an initial sync.
const RETRY_INITIAL_SYNC_IN: std::time::Duration = std::time::Duration::from_secs(1);

/// The data plane before it starts: the store is recovered, nothing is fetched yet.
pub struct DataPlane {
    store: Store,
    fatal: Fatal,
    builds: Arc<IndexBuilds>,
    delay: Arc<Delay>,
    ready: mpsc::UnboundedReceiver<BuildReady>,
    /// Why our own oplog could not be applied completely.
    halted: Option<ApplyError>,
}

impl DataPlane {
    /// Applies the store's own oplog from the "applied through" mark to its end. An entry that cannot be applied
    /// halts the node: its data stays readable.
    pub fn recover(store: Store, fatal: Fatal) -> Result<Self, ApplyError> {
        let build_indexes = kept_build_indexes(&store)?;
        let delay = Arc::new(Delay::load(store.clone())?);
        let (sender, ready) = mpsc::unbounded_channel();
        let builds = IndexBuilds::new(sender);
        let mut halted = None;
        if !store.initial_sync_pending() {
            builds.resume(&store)?;
            let (applied, written) = (store.watermarks().applied(), store.watermarks().written());
            if applied.op_time.ts < written.op_time.ts {
                tracing::info!(from = %applied.op_time, to = %written.op_time, "replaying our own oplog");
            }
            let applier = Applier::new(store.clone(), Mode::Steady, build_indexes, builds.clone());
            halted = match apply_all(&store, &applier, delay.state()) {
                Ok(()) => None,
                Err(ApplyError::Storage(error)) if is_fatal(&error) => return Err(error.into()),
                Err(error) => Some(error),
            };
        }
        Ok(Self { store, fatal, builds, delay, ready, halted })
    }

    /// The store's positions as the set may see them.
    pub fn positions(&self) -> Positions {
        positions(&self.store, &self.delay)
    }

    /// The delay of this node.
    pub fn delay(&self) -> Arc<Delay> {
        self.delay.clone()
    }

    /// Starts it; `actions` come from the runner of `repl`.
    pub fn start(
        self,
        repl: Repl,
        peer: Peer,
        actions: mpsc::UnboundedReceiver<DataAction>,
        outside: Arc<dyn Outside>,
    ) -> JoinHandle<()> {
        let fatal = self.fatal.clone();
        let buffer = writer::start(self.store.clone(), move |why| fatal(&why));
        let syncing = Arc::new(AtomicBool::new(false));
        let rbid = Arc::new(AtomicI32::new(repl.snapshot().rbid));
        if let Some(error) = self.halted {
            repl.tell(DataEvent::Halted { why: error.to_string() });
        }
        let settings = watch::Sender::new(None);
        let progress = TellProgress {
            store: self.store.clone(),
            repl: repl.clone(),
            syncing: syncing.clone(),
            rbid: rbid.clone(),
            delay: self.delay.clone(),
        };
        tokio::spawn(progress.run());
        tokio::spawn(build_votes::run(
            self.ready,
            repl.clone(),
            peer.clone(),
            settings.subscribe(),
        ));
        let running = Running {
            store: self.store,
            fatal: self.fatal,
            builds: self.builds,
            delay: self.delay,
            repl,
            peer,
            buffer,
            syncing,
            rbid,
            settings,
            applier: None,
            current: None,
            failed_attempts: 0,
            outside,
            jobs: Jobs::default(),
        };
        tokio::spawn(running.run(actions))
    }
}

struct Running {
    store: Store,
    fatal: Fatal,
    builds: Arc<IndexBuilds>,
    delay: Arc<Delay>,
    repl: Repl,
    peer: Peer,
    buffer: Buffer,
    syncing: Arc<AtomicBool>,
    rbid: Arc<AtomicI32>,
    settings: watch::Sender<Option<MemberSettings>>,
    applier: Option<ApplierThread>,
    current: Option<(TaskId, CancellationToken, JoinHandle<Ended>)>,
    failed_attempts: u32,
    outside: Arc<dyn Outside>,
    jobs: Jobs,
}

/// What is left to do after a task has ended.
enum Ended {
    Followed,
    RolledBack(Result<(), String>),
    InitialSync(TaskId, Result<protocol::OpTimeAndWall, String>),
    /// It was told to leave its source, which is not a failure of the attempt.
    InitialSyncStopped(TaskId),
}

impl Running {
    async fn run(mut self, mut actions: mpsc::UnboundedReceiver<DataAction>) {
        loop {
            tokio::select! {
                action = actions.recv() => match action {
                    Some(action) => self.act(action).await,
                    None => break,
                },
                ended = finished(&mut self.current) => match ended {
                    Ok(ended) => self.note_ended(ended),
                    // The control plane would wait forever for an answer, so the process ends.
                    Err(error) => (self.fatal)(&format!("a replication task panicked: {error}")),
                },
            }
        }
        if let Some((_, stop, task)) = self.current.take() {
            stop.cancel();
            if task.await.is_err() {
                tracing::error!("a replication task panicked during shutdown");
            }
        }
        if let Some(applier) = self.applier.take() {
            applier.stop().await;
        }
    }

    async fn act(&mut self, action: DataAction) {
        match action {
            DataAction::Configure(settings) => {
                let kept = keep_build_indexes(&self.store, settings.build_indexes)
                    .and_then(|()| self.delay.configure(settings.delay_secs));
                if let Err(error) = kept {
                    (self.fatal)(&error.to_string());
                }
                self.settings.send_replace(Some(settings));
            }
            DataAction::StartInitialSync { task, source } => {
                self.sync_initially(task, source).await
            }
            DataAction::Follow { task, source } => self.follow(task, source),
            DataAction::RollBack { task, source, why } => self.roll_back(task, source, why).await,
            DataAction::Stop { task, why } => {
                if let Some((current, stop, _)) = &self.current
                    && *current == task
                {
                    tracing::info!(why, "leaving the sync source");
                    stop.cancel();
                }
            }
            DataAction::CommitPoint { committed, .. } => {
                self.store.watermarks().set_commit_point(committed);
            }
        }
    }

    fn follow(&mut self, task: TaskId, source: SyncSource) {
        let Some(settings) = self.settings.borrow().clone() else { return self.unconfigured(task) };
        self.start_applier(&settings);
        let follower = Follower {
            store: self.store.clone(),
            buffer: self.buffer.clone(),
            repl: self.repl.clone(),
            peer: self.peer.clone(),
            settings,
            delay: self.delay.clone(),
        };
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let running = tokio::spawn(async move {
            follower.run(task, source, stopped).await;
            Ended::Followed
        });
        self.current = Some((task, stop, running));
    }

    async fn roll_back(&mut self, task: TaskId, source: SyncSource, why: String) {
        if let Some(applier) = self.applier.take() {
            applier.stop().await;
        }
        let rollback = Rollback {
            store: self.store.clone(),
            repl: self.repl.clone(),
            peer: self.peer.clone(),
            delay: self.delay.clone(),
            builds: self.builds.clone(),
            outside: self.outside.clone(),
            rbid: self.rbid.clone(),
            source: source.host,
        };
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let running =
            tokio::spawn(async move { Ended::RolledBack(rollback.run(task, &why, stopped).await) });
        self.current = Some((task, stop, running));
    }

    async fn sync_initially(&mut self, task: TaskId, source: SyncSource) {
        let Some(settings) = self.settings.borrow().clone() else { return self.unconfigured(task) };
        if let Some(applier) = self.applier.take() {
            applier.stop().await;
        }
        self.syncing.store(true, Ordering::Release);
        let Patience { attempts, retry_period } = self.outside.patience();
        let progress = Progress::new(self.failed_attempts, attempts, clock::now().wall);
        let sync = InitialSync {
            store: self.store.clone(),
            buffer: self.buffer.clone(),
            repl: self.repl.clone(),
            peer: self.peer.clone(),
            settings,
            builds: self.builds.clone(),
            task,
            source: source.host,
            progress: Arc::new(Mutex::new(progress)),
            retry_period,
            jobs: self.jobs.clone(),
        };
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let running = tokio::spawn(async move {
            tokio::select! {
                result = sync.run() => Ended::InitialSync(task, result.map_err(|e| e.to_string())),
                () = stopped.cancelled() => Ended::InitialSyncStopped(task),
            }
        });
        self.current = Some((task, stop, running));
    }

    fn note_ended(&mut self, ended: Ended) {
        self.current = None;
        match ended {
            Ended::Followed | Ended::RolledBack(Ok(())) => {}
            Ended::RolledBack(Err(why)) => (self.fatal)(&why),
            Ended::InitialSyncStopped(task) => {
                let why = "it was told to stop".to_owned();
                let retry_in = RETRY_INITIAL_SYNC_IN;
                self.repl.tell(DataEvent::InitialSyncFailed { task, why, retry_in });
            }
            Ended::InitialSync(task, Ok(applied)) => {
                self.failed_attempts = 0;
                self.syncing.store(false, Ordering::Release);
                tracing::info!(applied = %applied.op_time, "initial sync is done");
                self.repl.tell(DataEvent::InitialSyncFinished { task, applied });
            }
            Ended::InitialSync(task, Err(why)) => {
                self.failed_attempts += 1;
                let attempts = self.outside.patience().attempts;
                tracing::error!(
                    attempt = self.failed_attempts,
                    of = attempts,
                    why,
                    "initial sync failed"
                );
                // A mongod ends here, too; its supervisor restarts it.
                if self.failed_attempts >= attempts {
                    (self.fatal)(&format!(
                        "the initial sync failed for the last time: {why}; mend the cause and start the node again"
                    ));
                }
                let retry_in = RETRY_INITIAL_SYNC_IN;
                self.repl.tell(DataEvent::InitialSyncFailed { task, why, retry_in });
            }
        }
    }

    fn start_applier(&mut self, settings: &MemberSettings) {
        // An applier that ended has reported why; it is started again, since it may succeed now.
        self.applier.take_if(|applier| applier.has_ended());
        if self.applier.is_some() {
            return;
        }
        let applier = Applier::new(
            self.store.clone(),
            Mode::Steady,
            settings.build_indexes,
            self.builds.clone(),
        );
        let (repl, fatal) = (self.repl.clone(), self.fatal.clone());
        let delay = self.delay.clone();
        self.applier = Some(ApplierThread::start(
            self.store.clone(),
            applier,
            delay,
            move |ended| match ended {
                Err(panicked) => fatal(panicked),
                Ok(ApplyError::Storage(error)) if is_fatal(&error) => fatal(&error.to_string()),
                Ok(error) => {
                    tracing::error!(%error, "replication has stopped");
                    repl.tell(DataEvent::Halted { why: error.to_string() });
                }
            },
        ));
    }

    fn unconfigured(&self, task: TaskId) {
        let why = "the control plane gave no settings before the first task".to_owned();
        self.repl.tell(DataEvent::FollowEnded { task, remedy: Remedy::Halt, why });
    }
}

/// `buildIndexes` of our member entry, stored for the replay at the next start, which happens before the config is
/// read.
const BUILD_INDEXES: &str = "understudy.buildIndexes";

fn kept_build_indexes(store: &Store) -> Result<bool, StorageError> {
    let kept = store.meta(BUILD_INDEXES)?;
    Ok(kept.is_none_or(|doc| doc.get_bool("buildIndexes").unwrap_or(true)))
}

fn keep_build_indexes(store: &Store, builds: bool) -> Result<(), StorageError> {
    if kept_build_indexes(store)? == builds {
        return Ok(());
    }
    store.put_meta(BUILD_INDEXES, &bson::rawdoc! { "buildIndexes": builds })
}

async fn finished(
    current: &mut Option<(TaskId, CancellationToken, JoinHandle<Ended>)>,
) -> Result<Ended, tokio::task::JoinError> {
    match current {
        Some((_, _, running)) => running.await,
        None => std::future::pending().await,
    }
}

fn is_fatal(error: &StorageError) -> bool {
    !matches!(
        error,
        StorageError::BadDocument { .. }
            | StorageError::NoCollection(_)
            | StorageError::NoIndex { .. }
            | StorageError::NameTaken { .. }
            | StorageError::NoPrepared(_)
    )
}

pub(super) fn positions(store: &Store, delay: &Delay) -> Positions {
    // Read in this order, so that `written` is never older than the others.
    let marks = store.watermarks();
    let (applied, durable) = (marks.applied(), marks.durable());
    delay.state().shown(Positions { written: marks.written(), durable, applied })
}

/// Reports every change of our positions to the node, except while the store is being cloned.
struct TellProgress {
    store: Store,
    repl: Repl,
    syncing: Arc<AtomicBool>,
    rbid: Arc<AtomicI32>,
    delay: Arc<Delay>,
}

impl TellProgress {
    async fn run(self) {
        let marks = self.store.watermarks();
        let (mut written, mut durable, mut applied) =
            (marks.watch_written(), marks.watch_durable(), marks.watch_applied());
        let mut state = self.delay.watch();
        loop {
            let changed = tokio::select! {
                changed = written.changed() => changed,
                changed = durable.changed() => changed,
                changed = applied.changed() => changed,
                changed = state.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
            if !self.syncing.load(Ordering::Acquire) {
                self.tell();
            }
        }
    }

    fn tell(&self) {
        // Read before the positions: positions that a rollback undoes must not have the id that the rollback ends
        // with.
        let rbid = self.rbid.load(Ordering::Acquire);
        if self.delay.state().hides_tail() {
            self.repl.tell(DataEvent::Fetched(self.store.watermarks().written().op_time));
        }
        let positions = positions(&self.store, &self.delay);
        self.repl.tell(DataEvent::Progress { rbid, positions });
    }
}
