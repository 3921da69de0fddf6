//! Determines the timestamp to read at from a read concern.
//!
//! ```text
//!   local, available, none    the newest batch
//!   majority                  the newest majority-committed batch
//!   snapshot                  a timestamp: atClusterTime, or the newest majority-committed one
//!   linearizable              refused: only a primary can
//!   afterClusterTime T        as the level says, once T is applied (or, for majority, committed)
//!   a pinned connection       its timestamp, whatever the read concern says, unless that names another one
//! ```
//! The effect of a prepared transaction is unknown until it is decided. Plain reads see the documents as they were
//! before it. A read at a timestamp, after one, or of a pinned connection waits for the decision ([`decided`]),
//! because the commit timestamp may be before the one that is read.

use std::future::Future;

use protocol::{ErrorCode, Fields, OpTimeAndWall, Timestamp};
use storage::{ReadAt, Store, View};
use tokio::sync::watch;

use crate::{context::Call, error::Failure};

/// The timestamp of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadTime {
    /// The view to open.
    pub at: ReadAt,
    /// The timestamp, for a snapshot read.
    pub snapshot: Option<Timestamp>,
    /// Transactions prepared up to this timestamp must be decided before the read.
    pub decided: Option<Timestamp>,
}

/// A read concern as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Concern {
    level: Level,
    after: Option<Timestamp>,
    at: Option<Timestamp>,
    /// The read must not ignore prepared transactions.
    waits_for_decisions: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Local,
    Majority,
    Snapshot,
    Linearizable,
}

/// Waits until the timestamp can be read, and returns it.
pub async fn resolve(call: &Call, store: &Store) -> Result<ReadTime, Failure> {
    let concern = Concern::parse(call)?;
    if concern.level == Level::Linearizable {
        return Err(Failure::Linearizable);
    }
    let marks = store.watermarks();
    if let Some(ts) = call.client.pinned().filter(|_| concern.at.is_none()) {
        reached(call, marks.watch_applied(), ts).await?;
        let snapshot = (concern.level == Level::Snapshot).then_some(ts);
        return Ok(ReadTime { at: ReadAt::Timestamp(ts), snapshot, decided: Some(ts) });
    }
    if let Some(ts) = concern.after.or(concern.at) {
        check_not_ahead(call, ts, concern.after.is_some(), marks.applied())?;
        let watched = match concern.level {
            Level::Majority => marks.watch_stable(),
            Level::Local | Level::Snapshot | Level::Linearizable => marks.watch_applied(),
        };
        reached(call, watched, ts).await?;
    }
    let at = match (concern.level, concern.at) {
        (Level::Local | Level::Linearizable, _) => ReadAt::Newest,
        // On a standalone everything is committed.
        (Level::Majority, _) if call.node().repl().is_none() => ReadAt::Newest,
        (Level::Majority, _) => {
            // After a start the commit point is unknown until another member reports it.
            reached(call, marks.watch_stable(), FIRST).await?;
            ReadAt::Majority
        }
        (Level::Snapshot, Some(ts)) => ReadAt::Timestamp(ts),
        (Level::Snapshot, None) => ReadAt::Timestamp(newest_committed(call, store)?),
    };
    let (snapshot, until) = match at {
        ReadAt::Newest => (None, marks.applied().op_time.ts),
        ReadAt::Majority => (None, marks.stable().op_time.ts),
        ReadAt::Timestamp(ts) => (Some(ts), ts),
    };
    Ok(ReadTime { at, snapshot, decided: concern.waits_for_decisions.then_some(until) })
}

/// Waits until no undecided prepared transaction affects the read. `held` tells whether a transaction prepared up to
/// the given timestamp has written any of what is read.
///
/// Later transactions do not matter, because they cannot commit before their prepare. The check may be coarse: it may
/// test a whole collection where mongod tests the documents that it reads.
pub async fn decided(
    call: &Call,
    store: &Store,
    time: ReadTime,
    held: impl Fn(&View, Timestamp) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let Some(until) = time.decided else { return Ok(()) };
    let marks = store.watermarks();
    let (mut applied, mut stable) = (marks.watch_applied(), marks.watch_stable());
    let decision = async {
        loop {
            applied.mark_unchanged();
            stable.mark_unchanged();
            if !held(&store.view(time.at)?, until)? {
                return Ok::<(), Failure>(());
            }
            // A majority view shows the decision only after it is committed, too.
            tokio::select! {
                moved = applied.changed() => moved.map_err(|_| ending())?,
                moved = stable.changed() => moved.map_err(|_| ending())?,
            }
        }
    };
    in_time(call, decision).await
}

/// The first possible timestamp.
const FIRST: Timestamp = Timestamp::new(0, 1);

fn newest_committed(call: &Call, store: &Store) -> Result<Timestamp, Failure> {
    let ts = store.watermarks().stable().op_time.ts;
    if !ts.is_null() {
        return Ok(ts);
    }
    Err(if call.node().repl().is_none() {
        let text = "node needs to be a replica set member to use readConcern: snapshot";
        Failure::said(ErrorCode::from_code(123), text)
    } else {
        let text = "No committed OpTime for snapshot read";
        Failure::said(ErrorCode::SnapshotUnavailable, text)
    })
}

/// Refuses a timestamp that this node has never seen: no client can know one.
fn check_not_ahead(
    call: &Call,
    ts: Timestamp,
    after: bool,
    applied: OpTimeAndWall,
) -> Result<(), Failure> {
    let now = call.node().cluster_time().max(applied.op_time.ts);
    if ts <= now {
        return Ok(());
    }
    let name = if after { "afterClusterTime" } else { "atClusterTime" };
    let text = format!(
        "readConcern {name} value must not be greater than the current clusterTime. Requested \
         clusterTime: {{ ts: {ts} }}; current clusterTime: {{ ts: {now} }}"
    );
    Err(Failure::said(ErrorCode::InvalidOptions, text))
}

/// Waits until a position has reached a timestamp.
async fn reached(
    call: &Call,
    mut position: watch::Receiver<OpTimeAndWall>,
    ts: Timestamp,
) -> Result<(), Failure> {
    let reached = async {
        position.wait_for(|at| at.op_time.ts >= ts).await.map(|_| ()).map_err(|_| ending())
    };
    in_time(call, reached).await
}

/// Limits a wait by the command's time limit.
async fn in_time(
    call: &Call,
    wait: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let Some(max) = call.max_time else { return wait.await };
    tokio::time::timeout_at((call.started + max).into(), wait).await.unwrap_or_else(|_| {
        Err(Failure::said(ErrorCode::MaxTimeMSExpired, "operation exceeded time limit"))
    })
}

fn ending() -> Failure {
    Failure::said(ErrorCode::InterruptedAtShutdown, "interrupted at shutdown")
}

impl Concern {
    fn parse(call: &Call) -> Result<Self, Failure> {
        let mut concern =
            Self { level: Level::Local, after: None, at: None, waits_for_decisions: false };
        let name = if call.name == "find" { "FindCommandRequest" } else { &*call.name };
        let fields = Fields::idl(name, &call.body);
        let Some(given) = fields.optional("readConcern")? else { return Ok(concern) };
        let doc = given.document()?;
        let given = Fields::idl("readConcern", doc);
        given.only(&[
            "level",
            "afterClusterTime",
            "atClusterTime",
            "afterOpTime",
            "provenance",
            "$allowTransactionTableSnapshot",
            "$waitLastStableRecoveryTimestamp",
        ])?;
        let mut level = "local";
        if let Some(value) = given.optional("level")? {
            level = value.str()?;
            concern.level = match level {
                "local" | "available" => Level::Local,
                "majority" => Level::Majority,
                "snapshot" => Level::Snapshot,
                "linearizable" => Level::Linearizable,
                _ => return Err(value.not_in_enumeration().into()),
            };
        }
        concern.after = given.optional("afterClusterTime")?.map(|ts| ts.timestamp()).transpose()?;
        concern.at = given.optional("atClusterTime")?.map(|ts| ts.timestamp()).transpose()?;
        concern.waits_for_decisions =
            concern.level == Level::Snapshot || concern.after.is_some() || concern.at.is_some();
        let newest = ["available", "linearizable"].contains(&level);
        let both = concern.at.is_some() && concern.after.is_some();
        let refused = match (concern.after, concern.at) {
            _ if both && call.profile().snapshot_reads => {
                "Specifying a timestamp for readConcern snapshot in a causally consistent session is \
                 not allowed. See https://docs.mongodb.com/manual/core/read-isolation-consistency-recency/#causal-consistency"
            }
            _ if both => "Can not specify both afterClusterTime and atClusterTime",
            (Some(_), _) if newest => {
                "afterClusterTime field can be set only if level is equal to majority, local, or \
                 snapshot"
            }
            (Some(after), _) if after.is_null() => "afterClusterTime cannot be a null timestamp",
            (_, Some(_)) if concern.level != Level::Snapshot => {
                "atClusterTime field can be set only if level is equal to snapshot"
            }
            (_, Some(at)) if at.is_null() => "atClusterTime cannot be a null timestamp",
            _ => "",
        };
        if !refused.is_empty() {
            return Err(Failure::said(ErrorCode::InvalidOptions, refused));
        }
        if let Some(op_time) = given.optional("afterOpTime")? {
            concern.after = Some(op_time.op_time()?.ts);
        }
        Ok(concern)
    }
}
