//! The contract between decisions and effects: events in, actions out.
//!
//! ```text
//!   heartbeat replies, peers' requests, ticks ----> +------+ ----> heartbeats, reports, answers, things to persist
//!                                                   | Node |
//!   data plane: DataEvent ------------------------> +------+ ----> data plane: DataAction
//! ```
//!
//! The *data plane* (initial sync, fetcher, writer, applier) executes each [`DataAction`] and reports the result by a
//! [`DataEvent`]. It does one thing at a time: it syncs initially, follows, rolls back, or is idle. Rules for both
//! sides:
//!
//! 1. Every `StartInitialSync`, `Follow` and `RollBack` has a new [`TaskId`], and is answered exactly once with that
//!    id: by `InitialSyncFinished`/`InitialSyncFailed`, `FollowEnded`, or `RollbackFinished`/`RollbackFailed`. `Stop`
//!    asks for that answer soon; the answer still comes. Nothing new is started before it.
//! 2. `Configure` comes before the first task and again whenever one of its values changes.
//! 3. `Progress` reports only what is already true: `durable` after the sync that made it so. It is the only source
//!    of the positions that the set sees. Positions move back only by `RollbackFinished` and a new initial sync;
//!    progress read before a rollback has the earlier rollback id and is ignored.
//! 4. `SourceMetadata` follows each batch, also empty ones. If the source must be left, the reaction is `Stop`;
//!    otherwise the task continues.
//! 5. What the fetcher must put in its requests (term, last known commit point, version profile) is in
//!    [`Snapshot`](crate::Snapshot), always current.

use std::time::Duration;

use bson::{RawDocumentBuf, oid::ObjectId};
use protocol::{ErrorCode, HostAndPort, OpTime, OpTimeAndWall, Profile, RawDoc};

/// The two clocks, read once per event. Decisions use `mono`; `wall` is only shown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Now {
    /// Time since an arbitrary point before the process started. Never moves back.
    pub mono: Duration,
    /// The wall clock. May jump.
    pub wall: bson::DateTime,
}

/// Identifies a task of the data plane, so that a late answer is not taken for that of a newer task.
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

/// Our positions. `written >= durable` and `written >= applied` always hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Positions {
    /// Last entry in our oplog, synced or not.
    pub written: OpTimeAndWall,
    /// Last entry that is synced.
    pub durable: OpTimeAndWall,
    /// Last entry whose effects are readable.
    pub applied: OpTimeAndWall,
}

/// The settings in our own member entry of the config that concern the data plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberSettings {
    /// Our `_id`.
    pub member_id: i32,
    /// Our address in the config, for `voteCommitIndexBuild.hostAndPort`.
    pub host: HostAndPort,
    /// True if index builds wait for our `voteCommitIndexBuild`.
    pub votes: bool,
    /// False: keep only `_id` indexes.
    pub build_indexes: bool,
    /// `secondaryDelaySecs`: apply (and show) entries this much later.
    pub delay_secs: u32,
    /// `electionTimeoutMillis`: a getMore waits at most half of it; a silent source is left after it.
    pub election_timeout: Duration,
}

/// An instruction of the core to the data plane.
#[derive(Clone, PartialEq, Debug)]
pub enum DataAction {
    /// Our settings; sent before the first task and when they change.
    Configure(MemberSettings),
    /// Drop all data and clone `source`.
    StartInitialSync {
        /// Repeated in the answer.
        task: TaskId,
        /// The member to clone.
        source: SyncSource,
    },
    /// Fetch, write and apply the oplog of `source` after our last written entry.
    Follow {
        /// Repeated in the answer.
        task: TaskId,
        /// The member to follow.
        source: SyncSource,
    },
    /// Roll back to the common point with `source`. Readers are already refused (state ROLLBACK).
    RollBack {
        /// Repeated in the answer.
        task: TaskId,
        /// The member whose history is authoritative.
        source: SyncSource,
        /// Why a rollback is necessary, for the log.
        why: String,
    },
    /// End this task. Entries already buffered may be applied or dropped.
    Stop {
        /// The task to end.
        task: TaskId,
        /// For the log.
        why: String,
    },
    /// The commit point or the stable point advanced: majority reads and history trimming use it.
    CommitPoint {
        /// The majority commit point as far as we know; may be ahead of `applied`.
        committed: OpTimeAndWall,
        /// min(committed, applied).
        stable: OpTime,
    },
}

/// A report of the data plane to the core.
#[derive(Clone, Debug)]
pub enum DataEvent {
    /// Our last entry beyond the visible positions: the private tail of a delayed member.
    Fetched(OpTime),
    /// Written, durable or applied advanced. Not sent during initial sync.
    Progress {
        /// The rollback id of the last finished rollback, read before the positions.
        rbid: i32,
        /// Our positions.
        positions: Positions,
    },
    /// Sent after each batch from the source, also empty ones.
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
        /// The task.
        task: TaskId,
        /// What to do next.
        remedy: Remedy,
        /// For the log, and for the operator if the remedy is [`Remedy::Halt`].
        why: String,
    },
    /// The document for `replSetGetStatus.initialSyncStatus`.
    InitialSyncProgress {
        /// The task.
        task: TaskId,
        /// The document.
        status: RawDoc,
    },
    /// The answer to `StartInitialSync`: everything is durable and readable.
    InitialSyncFinished {
        /// The task.
        task: TaskId,
        /// The position: written = durable = applied.
        applied: OpTimeAndWall,
    },
    /// The answer to `StartInitialSync` if it failed.
    InitialSyncFailed {
        /// The task.
        task: TaskId,
        /// For the log.
        why: String,
        /// When to try again.
        retry_in: Duration,
    },
    /// The answer to `RollBack`.
    RollbackFinished {
        /// The task.
        task: TaskId,
        /// Our positions after the rollback.
        positions: Positions,
        /// The new rollback id: progress with another id was read before the rollback.
        rbid: i32,
    },
    /// The answer to `RollBack` if it failed.
    RollbackFailed {
        /// The task.
        task: TaskId,
        /// `Retry`, `Resync` or `Halt`.
        remedy: Remedy,
        /// For the log.
        why: String,
    },
    /// The rollback id of this node has changed: a rollback is about to change data.
    RollbackId(i32),
    /// A file of the store is damaged: acknowledged entries may be lost.
    Damaged {
        /// The damaged file and what to do about it.
        why: String,
    },
    /// Replication cannot continue, outside of any task (an entry that cannot be applied).
    Halted {
        /// Which entry and what to do.
        why: String,
    },
}

/// What to do about a failure. Callers match on this, never on text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remedy {
    /// The source is fine: choose again, perhaps the same one.
    Retry,
    /// Do not use the source for a while.
    ChangeSource,
    /// Our history has diverged from the source's: roll back to the common point.
    RollBack,
    /// The source's oplog begins after our last entry: only another source or a new initial sync helps.
    Resync,
    /// An operator must act. The node stays in RECOVERING.
    Halt,
}

/// An event for the node.
#[derive(Debug)]
pub enum Event {
    /// Time has passed; see `Node::next_wakeup`.
    Tick,
    /// A heartbeat of ours has ended.
    HeartbeatDone {
        /// The member it was sent to.
        target: HostAndPort,
        /// The sequence number of the action.
        seq: u64,
        /// The round trip time.
        rtt: Duration,
        /// The reply (`ok: 1`), or why there is none.
        result: Result<RawDoc, PeerError>,
        /// `maxWireVersion` of the peer's hello, if one was exchanged.
        max_wire_version: Option<i32>,
    },
    /// The result of searching for ourselves in a config.
    SelfFound {
        /// The sequence number of the action.
        seq: u64,
        /// Every address of the config that answered `_isSelf` with our id.
        hosts: Vec<HostAndPort>,
    },
    /// A position report of ours has ended.
    ReportDone {
        /// The sequence number of the action.
        seq: u64,
        /// The reply, or why there is none.
        result: Result<RawDoc, PeerError>,
    },
    /// An internal client sent hello before we had a config: its wire versions are those of the set.
    InternalClient {
        /// `internalClient.maxWireVersion`.
        max_wire_version: i32,
    },
    /// A command of a peer or client; answered by [`Action::Answer`] with the same id.
    Request {
        /// Repeated in the answer.
        id: u64,
        /// The request.
        request: Request,
    },
    /// From the data plane.
    Data(DataEvent),
    /// An operator changed something that may let a halted node continue.
    TryAgain {
        /// What changed, for the log.
        because: String,
    },
}

/// Why a peer gave no usable reply.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PeerError {
    /// There is no connection, or it broke.
    #[error("{0}")]
    Network(String),
    /// No reply arrived in time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// A reply with `ok: 0`.
    #[error("{message} ({code})")]
    Command {
        /// The error code.
        code: ErrorCode,
        /// The error text.
        message: String,
    },
}

/// A command that the node itself answers, with the body as received.
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

/// A command's error as sent on the wire.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct CommandError {
    /// `code` and `codeName`.
    pub code: ErrorCode,
    /// `errmsg`.
    pub message: String,
}

impl CommandError {
    /// Makes an error from its parts.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// The body of a reply without `ok`, or the error.
pub type Answer = Result<RawDocumentBuf, CommandError>;

/// What the node wants to be done, in order.
#[derive(Debug)]
pub enum Action {
    /// Send a heartbeat; answered by [`Event::HeartbeatDone`].
    Heartbeat {
        /// The member.
        target: HostAndPort,
        /// Repeated in the event.
        seq: u64,
        /// The command.
        body: RawDocumentBuf,
        /// The timeout.
        timeout: Duration,
    },
    /// The current members: close connections to others.
    Members(Vec<HostAndPort>),
    /// Send `_isSelf` to each host; answered by [`Event::SelfFound`].
    FindSelf {
        /// Repeated in the event.
        seq: u64,
        /// The members of a config.
        hosts: Vec<HostAndPort>,
    },
    /// Send a position report; answered by [`Event::ReportDone`].
    Report {
        /// The sync source.
        target: HostAndPort,
        /// Repeated in the event.
        seq: u64,
        /// The command.
        body: RawDocumentBuf,
        /// The timeout.
        timeout: Duration,
    },
    /// Make durable before the following actions are executed.
    Persist(Persist),
    /// Answer a request.
    Answer {
        /// The request's id.
        id: u64,
        /// The reply.
        answer: Answer,
    },
    /// An instruction for the data plane.
    Data(DataAction),
    /// A message for the operator.
    Log(Log),
}

/// What must survive the process.
#[derive(Clone, PartialEq, Debug)]
pub enum Persist {
    /// The config, byte for byte: `local.system.replset`.
    Config(RawDoc),
    /// The vote: `local.replset.election`.
    LastVote(LastVote),
    /// The release that we show.
    Profile(&'static Profile),
}

/// Our last vote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastVote {
    /// The term of the vote.
    pub term: i64,
    /// The candidate's index in the config; -1 if none.
    pub candidate_index: i64,
}

/// A line for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Log {
    /// The severity.
    pub level: LogLevel,
    /// The message.
    pub text: String,
}

/// The severity of a [`Log`] line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogLevel {
    /// Informative.
    Info,
    /// May need attention.
    Warn,
    /// Needs attention.
    Error,
}

/// What the node knows at start.
#[derive(Clone, Debug)]
pub struct Start {
    /// `--replSet`.
    pub set_name: String,
    /// Unique id of this process, for `topologyVersion.processId` and the reply to `_isSelf`.
    pub process_id: ObjectId,
    /// The persisted config.
    pub config: Option<RawDoc>,
    /// The persisted vote.
    pub last_vote: Option<LastVote>,
    /// The persisted or pinned profile.
    pub profile: Option<&'static Profile>,
    /// True if the profile must not follow the set.
    pub profile_pinned: bool,
    /// The store's positions; null if it is empty.
    pub positions: Positions,
    /// True if the store contains a finished initial sync.
    pub initial_sync_done: bool,
    /// Rollback id.
    pub rbid: i32,
    /// The last entry that was acknowledged and then lost by the disk.
    pub lost_tail: Option<OpTime>,
    /// Known damage of the store, and what to do.
    pub damage: Option<String>,
}
