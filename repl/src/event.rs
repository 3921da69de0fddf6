//! Event in, action out: the whole contract between decisions and effects.
//!
//! ```text
//!   heartbeat replies, peers' requests, ticks ----> +------+ ----> heartbeats, reports, answers, things to persist
//!                                                   | Node |
//!   data plane: DataEvent ------------------------> +------+ ----> data plane: DataAction
//! ```
//!
//! The *data plane* (initial sync, fetcher, writer, applier) does as [`DataAction`] says and tells
//! what came of it by [`DataEvent`]. It does one thing at a time: it syncs initially, follows, rolls
//! back, or is idle. Rules it may count on and must keep:
//!
//! 1. Every `StartInitialSync`, `Follow` and `RollBack` carries a new [`TaskId`], and is answered exactly once with
//!    that id: by `InitialSyncFinished`/`InitialSyncFailed`, `FollowEnded`, or `RollbackFinished`/`RollbackFailed`.
//!    `Stop` asks for that answer soon; the answer still comes. Nothing new is started before it has come.
//! 2. `Configure` comes before the first task and again whenever one of its values changes.
//! 3. `Progress` tells only what is true already: `durable` after the sync that made it so. It is the only
//!    source of the positions the set hears. Positions go back only by `RollbackFinished` and a new initial sync;
//!    what was read before a rollback carries the rollback id of then, and does not count any more.
//! 4. `SourceMetadata` follows each batch, empty ones too. If the source is to be left the answer is `Stop`;
//!    silence means go on.
//! 5. What the fetcher must say in its requests (term, last known commit point, version profile)
//!    is in [`Snapshot`](crate::Snapshot), always current.

use std::time::Duration;

use bson::{RawDocumentBuf, oid::ObjectId};
use protocol::{ErrorCode, HostAndPort, OpTime, OpTimeAndWall, Profile, RawDoc};

/// The two clocks, read once for each event. Decisions go by `mono`; `wall` is only shown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Now {
    /// Time since an arbitrary moment before the process started. Never goes back.
    pub mono: Duration,
    /// The clock on the wall. May jump.
    pub wall: bson::DateTime,
}

/// Names one task given to the data plane, so that a late answer is not taken for a new one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TaskId(pub u64);

/// The member that we sync from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyncSource {
    /// Its address in the config.
    pub host: HostAndPort,
    /// Its `_id` in the config.
    pub member_id: i32,
}

/// How far we are. `written >= durable` and `written >= applied` always.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Positions {
    /// Last entry in our oplog, synced or not.
    pub written: OpTimeAndWall,
    /// Last entry that a sync has made durable.
    pub durable: OpTimeAndWall,
    /// Last entry whose effects are readable.
    pub applied: OpTimeAndWall,
}

/// What our own member entry in the config means for the data plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberSettings {
    /// Our `_id`.
    pub member_id: i32,
    /// Our address as the set knows it: `voteCommitIndexBuild.hostAndPort`.
    pub host: HostAndPort,
    /// True if index builds wait for our `voteCommitIndexBuild`.
    pub votes: bool,
    /// False: keep `_id` indexes alone.
    pub build_indexes: bool,
    /// `secondaryDelaySecs`: apply (and show) entries this late.
    pub delay_secs: u32,
    /// `electionTimeoutMillis`: a getMore waits at most half of it, a source is given up after it.
    pub election_timeout: Duration,
}

/// What the core tells the data plane to do.
#[derive(Clone, PartialEq, Debug)]
pub enum DataAction {
    /// Our place in the set, before the first task and when it changes.
    Configure(MemberSettings),
    /// Drop what is there and clone `source`.
    StartInitialSync {
        /// To be repeated in the answer.
        task: TaskId,
        /// Whom to clone.
        source: SyncSource,
    },
    /// Fetch, write and apply the oplog of `source` after our last written entry.
    Follow {
        /// To be repeated in the answer.
        task: TaskId,
        /// Whom to follow.
        source: SyncSource,
    },
    /// Go back to the common point with `source`. Readers are already refused (state ROLLBACK).
    RollBack {
        /// To be repeated in the answer.
        task: TaskId,
        /// Whose history is right.
        source: SyncSource,
    },
    /// End this task. Entries already buffered may be written and applied or dropped.
    Stop {
        /// The task to end.
        task: TaskId,
        /// For the log.
        why: String,
    },
    /// The commit point or the stable point moved: majority reads and history trimming follow it.
    CommitPoint {
        /// Majority committed, as far as we know; may be ahead of what we applied.
        committed: OpTimeAndWall,
        /// min(committed, applied).
        stable: OpTime,
    },
}

/// What the data plane tells the core.
#[derive(Clone, Debug)]
pub enum DataEvent {
    /// How far our oplog reaches beyond the positions: the private tail of a delayed member.
    Fetched(OpTime),
    /// Written, durable or applied moved. During initial sync nothing is told.
    Progress {
        /// The rollback id of the last finished rollback, read before the positions.
        rbid: i32,
        /// Where we are.
        positions: Positions,
    },
    /// After each batch from the source, empty ones too.
    SourceMetadata {
        /// The task that fetched it.
        task: TaskId,
        /// `$replData` of the reply.
        repl_data: Option<RawDoc>,
        /// `$oplogQueryData` of the reply.
        oplog_query_data: Option<RawDoc>,
        /// The last entry fetched so far.
        last_fetched: OpTime,
    },
    /// The answer to `Follow`.
    FollowEnded {
        /// Which one.
        task: TaskId,
        /// What is to be done next.
        remedy: Remedy,
        /// For the log, and for the operator if the remedy is [`Remedy::Halt`].
        why: String,
    },
    /// `replSetGetStatus.initialSyncStatus`, as it shall be shown.
    InitialSyncProgress {
        /// Which one.
        task: TaskId,
        /// The document.
        status: RawDoc,
    },
    /// The answer to `StartInitialSync`: everything is durable and readable.
    InitialSyncFinished {
        /// Which one.
        task: TaskId,
        /// written = durable = applied.
        applied: OpTimeAndWall,
    },
    /// The answer to `StartInitialSync` if it did not succeed.
    InitialSyncFailed {
        /// Which one.
        task: TaskId,
        /// For the log.
        why: String,
        /// When to try again.
        retry_in: Duration,
    },
    /// The answer to `RollBack`.
    RollbackFinished {
        /// Which one.
        task: TaskId,
        /// Where we are now.
        positions: Positions,
        /// The rollback id from now on: progress that carries another was read before the rollback.
        rbid: i32,
    },
    /// The answer to `RollBack` if it did not succeed.
    RollbackFailed {
        /// Which one.
        task: TaskId,
        /// `Retry`, `Resync` or `Halt`.
        remedy: Remedy,
        /// For the log.
        why: String,
    },
    /// The rollback id of this node has changed: a rollback is about to change data.
    RollbackId(i32),
    /// A file of the store is damaged: what was acknowledged may be gone.
    Damaged {
        /// Which file and what to do.
        why: String,
    },
    /// Replication cannot go on, outside of any task (an entry that cannot be applied).
    Halted {
        /// Which entry and what to do.
        why: String,
    },
}

/// What to do about a failure. Callers match on this, never on text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remedy {
    /// Nothing is wrong with the source: choose again, it may be the same.
    Retry,
    /// Leave the source alone for a while.
    ChangeSource,
    /// Our history and the source's part: go back to the common point.
    RollBack,
    /// The source's oplog begins after our last entry: only another source or a new initial sync helps.
    Resync,
    /// An operator must act. The node stays in RECOVERING.
    Halt,
}

/// What happens to a node.
#[derive(Debug)]
pub enum Event {
    /// Time has passed; see `Node::next_wakeup`.
    Tick,
    /// A heartbeat of ours was answered, or not.
    HeartbeatDone {
        /// Whom we asked.
        target: HostAndPort,
        /// As in the action.
        seq: u64,
        /// How long it took.
        rtt: Duration,
        /// The reply (`ok: 1`), or why there is none.
        result: Result<RawDoc, PeerError>,
        /// `maxWireVersion` of the peer's hello, if one was exchanged.
        max_wire_version: Option<i32>,
    },
    /// Who we are in a config.
    SelfFound {
        /// As in the action.
        seq: u64,
        /// Every address of the config that answered `_isSelf` with our id.
        hosts: Vec<HostAndPort>,
    },
    /// A position report of ours was answered, or not.
    ReportDone {
        /// As in the action.
        seq: u64,
        /// The reply, or why there is none.
        result: Result<RawDoc, PeerError>,
    },
    /// A peer that is no driver said hello before we had a config: its wire versions are those of the set.
    InternalClient {
        /// `internalClient.maxWireVersion`.
        max_wire_version: i32,
    },
    /// A command of a peer or client; answered by [`Action::Answer`] with the same id.
    Request {
        /// To be repeated in the answer.
        id: u64,
        /// What is asked.
        request: Request,
    },
    /// From the data plane.
    Data(DataEvent),
    /// An operator changed something that may let a node that halted go on.
    TryAgain {
        /// What changed, for the log.
        because: String,
    },
}

/// Why a peer gave no usable answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PeerError {
    /// No connection, or it broke.
    #[error("{0}")]
    Network(String),
    /// Nothing came in time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// `ok: 0`.
    #[error("{message} ({code})")]
    Command {
        /// Its code.
        code: ErrorCode,
        /// Its `errmsg`.
        message: String,
    },
}

/// A command that the node itself answers. Bodies are as they came.
#[derive(Clone, Debug)]
pub enum Request {
    /// `replSetHeartbeat`.
    Heartbeat(RawDoc),
    /// `replSetRequestVotes`.
    RequestVotes(RawDoc),
    /// `replSetUpdatePosition`.
    UpdatePosition(RawDoc),
    /// `replSetGetStatus`.
    Status(RawDoc),
    /// `replSetGetConfig`.
    Config(RawDoc),
    /// `replSetSyncFrom`.
    SyncFrom(RawDoc),
    /// `replSetMaintenance`.
    Maintenance(RawDoc),
    /// `replSetFreeze`.
    Freeze(RawDoc),
    /// `replSetStepUp`.
    StepUp(RawDoc),
    /// `replSetStepDown`.
    StepDown(RawDoc),
    /// `replSetReconfig`.
    Reconfig(RawDoc),
    /// `replSetInitiate`.
    Initiate(RawDoc),
    /// `replSetAbortPrimaryCatchUp`.
    AbortPrimaryCatchUp(RawDoc),
}

/// A command's failure as the wire shows it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct CommandError {
    /// `code` and `codeName`.
    pub code: ErrorCode,
    /// `errmsg`.
    pub message: String,
}

impl CommandError {
    /// From its parts.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// The body of a reply without `ok`, or the failure.
pub type Answer = Result<RawDocumentBuf, CommandError>;

/// What the node wants done, in order.
#[derive(Debug)]
pub enum Action {
    /// Ask a member how it is; answered by [`Event::HeartbeatDone`].
    Heartbeat {
        /// Whom to ask.
        target: HostAndPort,
        /// To be repeated.
        seq: u64,
        /// The command.
        body: RawDocumentBuf,
        /// How long to wait.
        timeout: Duration,
    },
    /// These are the members from now on: close connections to others.
    Members(Vec<HostAndPort>),
    /// Ask each host `_isSelf`; answered by [`Event::SelfFound`].
    FindSelf {
        /// To be repeated.
        seq: u64,
        /// The members of a config.
        hosts: Vec<HostAndPort>,
    },
    /// Send a position report; answered by [`Event::ReportDone`].
    Report {
        /// The sync source.
        target: HostAndPort,
        /// To be repeated.
        seq: u64,
        /// The command.
        body: RawDocumentBuf,
        /// How long to wait.
        timeout: Duration,
    },
    /// Make durable, before the actions that follow.
    Persist(Persist),
    /// Answer a request.
    Answer {
        /// Which one.
        id: u64,
        /// The reply.
        answer: Answer,
    },
    /// For the data plane.
    Data(DataAction),
    /// Something an operator should read.
    Log(Log),
}

/// What outlives the process.
#[derive(Clone, PartialEq, Debug)]
pub enum Persist {
    /// The config, byte for byte: `local.system.replset`.
    Config(RawDoc),
    /// The vote: `local.replset.election`.
    LastVote(LastVote),
    /// The version that we show.
    Profile(&'static Profile),
}

/// For whom we voted last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastVote {
    /// In which term.
    pub term: i64,
    /// The candidate's place in the config; -1 if none.
    pub candidate_index: i64,
}

/// A line for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Log {
    /// How grave.
    pub level: LogLevel,
    /// The sentence.
    pub text: String,
}

/// How grave a [`Log`] line is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogLevel {
    /// Worth knowing.
    Info,
    /// May need care.
    Warn,
    /// Needs care.
    Error,
}

/// What the node knows when it starts.
#[derive(Clone, Debug)]
pub struct Start {
    /// `--replSet`.
    pub set_name: String,
    /// Identifies this process: `topologyVersion.processId` and the answer to `_isSelf`.
    pub process_id: ObjectId,
    /// The persisted config.
    pub config: Option<RawDoc>,
    /// The persisted vote.
    pub last_vote: Option<LastVote>,
    /// The persisted or pinned profile.
    pub profile: Option<&'static Profile>,
    /// True if the profile must not follow the set.
    pub profile_pinned: bool,
    /// What the store holds; null positions if it holds nothing.
    pub positions: Positions,
    /// True if a finished initial sync is in the store.
    pub initial_sync_done: bool,
    /// Rollback id.
    pub rbid: i32,
    /// Entries up to here were acknowledged once, and the disk lost them.
    pub lost_tail: Option<OpTime>,
    /// What is known to be damaged in the store, and what to do.
    pub damage: Option<String>,
}
