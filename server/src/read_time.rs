//! From a read concern to the moment that is read.
//!
//! ```text
//!   local, available, none    the newest batch
//!   majority                  the newest batch that a majority holds
//!   snapshot                  a timestamp: atClusterTime, or the newest that a majority holds
//!   linearizable              refused: only a primary can
//!   afterClusterTime T        as the level says, once T is applied (or, for majority, committed)
//!   a pinned connection       its moment, whatever the read concern says, unless that names another moment
//! ```

use std::time::Duration;

use protocol::{ErrorCode, Fields, OpTimeAndWall, Timestamp};
use storage::{ReadAt, Store};
use tokio::sync::watch;

use crate::{context::Call, error::Failure};

/// The moment of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadTime {
    /// What the store is asked for.
    pub at: ReadAt,
    /// The timestamp, for a snapshot read.
    pub snapshot: Option<Timestamp>,
}

/// A read concern as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Concern {
    level: Level,
    after: Option<Timestamp>,
    at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Local,
    Majority,
    Snapshot,
    Linearizable,
}

/// Waits until the moment can be read, and names it.
pub async fn resolve(call: &Call, store: &Store) -> Result<ReadTime, Failure> {
    let concern = Concern::parse(call)?;
    if concern.level == Level::Linearizable {
        return Err(Failure::Linearizable);
    }
    let marks = store.watermarks();
    if let Some(ts) = call.client.pinned().filter(|_| concern.at.is_none()) {
        wait_for(marks.watch_applied(), ts, call.max_time).await?;
        let snapshot = (concern.level == Level::Snapshot).then_some(ts);
        return Ok(ReadTime { at: ReadAt::Timestamp(ts), snapshot });
    }
    if let Some(ts) = concern.after.or(concern.at) {
        check_not_ahead(call, ts, concern.after.is_some(), marks.applied())?;
        let watched = match concern.level {
            Level::Majority => marks.watch_stable(),
            Level::Local | Level::Snapshot | Level::Linearizable => marks.watch_applied(),
        };
        wait_for(watched, ts, call.max_time).await?;
    }
    Ok(match (concern.level, concern.at) {
        (Level::Local | Level::Linearizable, _) => ReadTime { at: ReadAt::Newest, snapshot: None },
        (Level::Majority, _) => ReadTime { at: ReadAt::Majority, snapshot: None },
        (Level::Snapshot, at) => {
            let ts = at.unwrap_or_else(|| marks.stable().op_time.ts);
            ReadTime { at: ReadAt::Timestamp(ts), snapshot: Some(ts) }
        }
    })
}

/// Nobody can have been told of a time that this node has not heard of.
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

async fn wait_for(
    mut position: watch::Receiver<OpTimeAndWall>,
    ts: Timestamp,
    max: Option<Duration>,
) -> Result<(), Failure> {
    let reached = position.wait_for(|at| at.op_time.ts >= ts);
    let waited = match max {
        None => reached.await.map(|_| ()),
        Some(max) => match tokio::time::timeout(max, reached).await {
            Ok(waited) => waited.map(|_| ()),
            Err(_) => {
                let text = "operation exceeded time limit";
                return Err(Failure::said(ErrorCode::MaxTimeMSExpired, text));
            }
        },
    };
    waited.map_err(|_| Failure::said(ErrorCode::InterruptedAtShutdown, "interrupted at shutdown"))
}

impl Concern {
    fn parse(call: &Call) -> Result<Self, Failure> {
        let mut concern = Self { level: Level::Local, after: None, at: None };
        let fields = Fields::idl(&call.name, &call.body);
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
        if let Some(level) = given.optional("level")? {
            concern.level = match level.str()? {
                "local" | "available" => Level::Local,
                "majority" => Level::Majority,
                "snapshot" => Level::Snapshot,
                "linearizable" => Level::Linearizable,
                _ => return Err(level.not_in_enumeration().into()),
            };
        }
        concern.after = given.optional("afterClusterTime")?.map(|ts| ts.timestamp()).transpose()?;
        concern.at = given.optional("atClusterTime")?.map(|ts| ts.timestamp()).transpose()?;
        if let Some(op_time) = given.optional("afterOpTime")? {
            concern.after = Some(op_time.op_time()?.ts);
        }
        if concern.at.is_some() && concern.level != Level::Snapshot {
            let text =
                "readConcern.atClusterTime can only be specified with readConcern level 'snapshot'";
            return Err(Failure::said(ErrorCode::InvalidOptions, text));
        }
        if concern.at.is_some_and(|at| at.is_null()) {
            let text = "atClusterTime cannot be a null timestamp";
            return Err(Failure::said(ErrorCode::InvalidOptions, text));
        }
        if concern.at.is_some() && concern.after.is_some() {
            let text = "Specify either 'atClusterTime' or 'afterClusterTime' in readConcern, but not both.";
            return Err(Failure::said(ErrorCode::InvalidOptions, text));
        }
        Ok(concern)
    }
}
