//! The log lines of a rollback. They equal mongod's, because alerts and tools search for them.

use std::{fmt::Write, path::Path};

use protocol::{HostAndPort, OpTime, Profile, Timestamp};
use uuid::Uuid;

use super::RollbackError;
use crate::{
    core::rollback::{Branch, Tally},
    io::data_plane::Interrupted,
};

pub(super) fn begin(why: &str, committed: OpTime, source: &HostAndPort) {
    tracing::info!(target: "REPL", id = 21098, ctx = CTX, error = why, lastCommittedOpTime = op_time(committed),
        "Starting rollback due to fetcher error");
    tracing::info!(target: "REPL", id = 21102, ctx = CTX, "Rollback using 'recoverToStableTimestamp' method");
    tracing::info!(target: "REPL", id = 21104, ctx = CTX, syncSource = %source, "Scheduling rollback");
    tracing::info!(target: "ROLLBACK", id = 21593, ctx = CTX, "Transition to ROLLBACK");
}

pub(super) fn interrupted(profile: &Profile, Interrupted { killed, running }: Interrupted) {
    let names = if profile.has_written {
        ("totalOpsKilled", "totalOpsRunning")
    } else {
        ("userOpsKilled", "userOpsRunning")
    };
    let metrics = format!(
        "{{\"lastStateTransition\":\"rollback\",\"{}\":{killed},\"{}\":{running}}}",
        names.0, names.1
    );
    tracing::info!(target: "REPL", id = 21340, ctx = CTX, metrics, "State transition ops metrics");
    tracing::info!(target: "REPL", id = 21358, ctx = CTX, newState = "ROLLBACK", oldState = "SECONDARY",
        "Replica set state transition");
}

pub(super) fn finding() {
    tracing::info!(target: "ROLLBACK", id = 21606, ctx = CTX, "Finding common point");
}

pub(super) fn common_point(common: OpTime) {
    tracing::info!(target: "ROLLBACK", id = 21607, ctx = CTX, commonPointOpTime = op_time(common),
        "Rollback common point");
}

pub(super) fn failed(error: &RollbackError) {
    tracing::warn!(target: "REPL", id = 21125, ctx = CTX, %error, "Rollback did not succeed");
}

pub(super) fn rollback_id(rbid: i32) {
    tracing::info!(target: "REPL", id = 21532, ctx = CTX, rbid, "Incremented the rollback ID");
}

pub(super) fn stopping_builds() {
    tracing::info!(target: "STORAGE", id = 20658, ctx = CTX, "Stopping index builds before rollback");
}

pub(super) fn writing_files() {
    tracing::info!(target: "ROLLBACK", id = 21604, ctx = CTX, "Finding record store counts");
}

pub(super) fn file(ns: &str, uuid: &str, path: &Path) {
    tracing::info!(target: "ROLLBACK", id = 21609, ctx = CTX, namespace = ns, uuid, file = %path.display(),
        "Preparing to write deleted documents to a rollback file");
}

pub(super) fn reverted(profile: &Profile, tally: &Tally, common: Timestamp) {
    let [insert, update, delete] = ["insert", "update", "delete"].map(|what| tally.count_of(what));
    if profile.has_written {
        tracing::info!(target: "ROLLBACK", id = 6984700, ctx = CTX, insert, update, delete,
            "Operations reverted by rollback");
    } else {
        tracing::info!(target: "ROLLBACK", id = 21599, ctx = CTX, insert, update, delete,
            "Rollback reverted command counts");
    }
    tracing::info!(target: "ROLLBACK", id = 21600, ctx = CTX, commonPoint = timestamp(common),
        "Marking to truncate all oplog entries with timestamps greater than common point");
}

/// The content of mongod's rollback summary.
pub(super) struct Summary<'a> {
    pub(super) begun: bson::DateTime,
    pub(super) ended: bson::DateTime,
    pub(super) source: &'a HostAndPort,
    pub(super) directory: &'a Path,
    pub(super) rbid: i32,
    pub(super) branch: Branch,
    pub(super) stable: Timestamp,
    pub(super) tally: &'a Tally,
    /// If true, the summary also lists the collections' UUIDs, as in 8.x.
    pub(super) uuids: bool,
}

impl Summary<'_> {
    pub(super) fn write(&self) {
        let Branch { common, first, last } = self.branch;
        tracing::info!(target: "ROLLBACK", id = 21592, ctx = CTX, "Rollback complete");
        tracing::info!(target: "ROLLBACK", id = 21612, ctx = CTX,
            startTime = date(self.begun),
            endTime = date(self.ended),
            syncSource = %self.source,
            rollbackDataFileDirectory = format!("{}/", self.directory.display()),
            rbid = self.rbid,
            lastOptimeRolledBack = op_time(last.op_time),
            commonPoint = op_time(common.op_time),
            lastWallClockTimeRolledBack = date(last.wall),
            firstOpWallClockTimeAfterCommonPoint = date(first.wall),
            wallClockTimeDiff = self.branch.seconds(),
            truncateTimestamp = timestamp(common.op_time.ts),
            stableTimestamp = timestamp(self.stable),
            shardIdentityRolledBack = false,
            configServerConfigVersionRolledBack = false,
            affectedSessions = list(self.tally.sessions.iter().map(uuid)),
            affectedNamespaces = list(self.tally.namespaces.iter().map(|ns| quoted(ns))),
            affectedUUIDs = self.uuids.then(|| list(self.tally.uuids.iter().map(uuid))),
            rollbackCommandCounts = counts(self.tally),
            totalEntriesRolledBackIncludingNoops = self.tally.entries,
            "Rollback summary");
        tracing::info!(target: "ROLLBACK", id = 21611, ctx = CTX, "Transition to SECONDARY");
        tracing::info!(target: "REPL", id = 21358, ctx = CTX, newState = "SECONDARY", oldState = "ROLLBACK",
            "Replica set state transition");
        tracing::info!(target: "REPL", id = 21105, ctx = CTX, "Rollback successful");
    }
}

/// The name of the mongod thread that logs these lines.
const CTX: &str = "BackgroundSync";

pub(super) fn op_time(at: OpTime) -> String {
    format!("{{\"ts\":{},\"t\":{}}}", timestamp(at.ts), at.t)
}

fn timestamp(ts: Timestamp) -> String {
    format!("{{\"$timestamp\":{{\"t\":{},\"i\":{}}}}}", ts.secs(), ts.inc())
}

fn date(at: bson::DateTime) -> String {
    format!("{{\"$date\":{}}}", quoted(&at.try_to_rfc3339_string().unwrap_or_default()))
}

fn uuid(uuid: &Uuid) -> String {
    format!("{{\"uuid\":{{\"$uuid\":\"{uuid}\"}}}}")
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

fn counts(tally: &Tally) -> String {
    let pairs: Vec<_> = tally.counts.iter().map(|(what, n)| format!("\"{what}\":{n}")).collect();
    format!("{{{}}}", pairs.join(","))
}

/// Formats a JSON string.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if u32::from(c) < 0x20 => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
