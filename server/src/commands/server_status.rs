//! serverStatus: the counters and gauges that mongostat and exporters read.

use bson::{DateTime, RawBsonRef, RawDocumentBuf, raw::CString, raw::cstr, rawdoc};
use repl::Interrupted;

use super::{Auth, Command, OpClass, Run, history_window};
use crate::{
    auth::action::action,
    context::{Call, Node, Outcome},
    metrics::Counter,
    system::ProcessInfo,
};

pub(super) const COMMAND: Command = Command {
    name: "serverStatus",
    help: "Returns counters and gauges; sections are left out by `section: 0`.",
    auth: Auth::Cluster(action("serverStatus")),
    run: Run::Now(run),
    ..Command::DEFAULT
};

type Section = (&'static str, fn(&Node) -> RawDocumentBuf);

/// The sections in mongod's order.
const SECTIONS: &[Section] = &[
    ("asserts", asserts),
    ("backups", backups),
    ("connections", connections),
    ("delayedMember", delayed_member),
    ("extra_info", extra_info),
    ("globalLock", global_lock),
    ("historyWindow", history_window::section),
    ("logicalSessionRecordCache", session_cache),
    ("network", network),
    ("opLatencies", op_latencies),
    ("opcounters", opcounters),
    ("opcountersRepl", opcounters_repl),
    ("scrub", |node| node.scrubs.section(node)),
    ("storageEngine", storage_engine),
    ("mem", mem),
    ("metrics", metrics),
];

fn run(call: &Call) -> Outcome {
    let node = call.node();
    let uptime = node.started.elapsed();
    let millis = i64::try_from(uptime.as_millis()).unwrap_or(i64::MAX);
    let mut body = rawdoc! {
        "host": node.host.as_str(),
        "version": node.profile().version,
        "process": "mongod",
        "pid": i64::from(std::process::id()),
        "uptime": uptime.as_secs_f64().round(),
        "uptimeMillis": millis,
        "uptimeEstimate": millis / 1000,
        "localTime": DateTime::now(),
    };
    for (name, section) in SECTIONS {
        if *name == "storageEngine" && wanted(call, "repl") {
            append_repl(call, &mut body);
        }
        let absent =
            *name == "delayedMember" && node.delay().is_none_or(|it| !it.state().hides_tail());
        if wanted(call, name)
            && !absent
            && let Ok(name) = CString::try_from(*name)
        {
            body.append(name, section(node));
        }
    }
    Ok(body.into())
}

/// The section `repl`, only for members: hello's replica set part, and the rollback id.
fn append_repl(call: &Call, body: &mut RawDocumentBuf) {
    let Some(repl) = call.node().repl() else { return };
    let snapshot = repl.snapshot();
    let mut section = snapshot.hello(true);
    section.append(cstr!("rbid"), snapshot.rbid);
    body.append(cstr!("repl"), section);
}

fn wanted(call: &Call, section: &str) -> bool {
    let off = |value: RawBsonRef<'_>| {
        matches!(value, RawBsonRef::Int32(0) | RawBsonRef::Int64(0) | RawBsonRef::Boolean(false))
            || matches!(value, RawBsonRef::Double(n) if n == 0.0)
    };
    let named = call.body.get(section).ok().flatten();
    named.map_or_else(|| !matches!(call.body.get("none"), Ok(Some(_))), |value| !off(value))
}

fn int(n: i64) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

fn asserts(node: &Node) -> RawDocumentBuf {
    rawdoc! {
        "regular": 0,
        "warning": 0,
        "msg": 0,
        "user": int(node.metrics.user_asserts.get()),
        "tripwire": 0,
        "rollovers": 0,
    }
}

/// The directory for backups, and the last backup since the start.
fn backups(node: &Node) -> RawDocumentBuf {
    let mut section = RawDocumentBuf::new();
    if let Some(root) = &node.settings.backup_root {
        section.append(cstr!("root"), root.display().to_string());
    }
    if let Some((at, report)) = &*node.last_backup.lock() {
        section.append(cstr!("lastAt"), *at);
        section.append(cstr!("last"), report.clone());
    }
    section
}

fn connections(node: &Node) -> RawDocumentBuf {
    let metrics = &node.metrics;
    let current = metrics.connections.get();
    let most = i64::try_from(node.max_connections()).unwrap_or(i64::MAX);
    rawdoc! {
        "current": int(current),
        "available": int((most - current).max(0)),
        "totalCreated": int(metrics.connections_created.get()),
        "rejected": int(metrics.connections_rejected.get()),
        "active": int(metrics.active.get()),
        "threaded": int(current),
        "exhaustIsMaster": metrics.exhaust_is_master.get(),
        "exhaustHello": metrics.exhaust_hello.get(),
        "awaitingTopologyChanges": metrics.awaiting_topology_changes.get(),
        "loadBalanced": 0_i64,
    }
}

/// The private tail of a delayed member.
fn delayed_member(node: &Node) -> RawDocumentBuf {
    let (Some(delay), Ok(store)) = (node.delay(), node.store()) else { return rawdoc! {} };
    let (state, marks) = (delay.state(), store.watermarks());
    let (shown, last) = (marks.applied().op_time.ts, marks.written().op_time.ts);
    let tail_secs = if last > shown { last.secs().saturating_sub(shown.secs()) } else { 0 };
    rawdoc! {
        "secondaryDelaySecs": i64::from(state.secs),
        "clock": state.clock.to_string(),
        "shownThrough": bson::Timestamp::from(shown),
        "tailThrough": bson::Timestamp::from(last),
        "tailSecs": i64::from(tail_secs),
    }
}

fn extra_info(_: &Node) -> RawDocumentBuf {
    let process = ProcessInfo::read();
    rawdoc! {
        "note": "fields vary by platform",
        "user_time_us": process.user_micros,
        "system_time_us": process.system_micros,
        "page_reclaims": process.minor_faults,
        "page_faults": process.major_faults,
        "threads": process.threads,
    }
}

fn global_lock(node: &Node) -> RawDocumentBuf {
    let micros = i64::try_from(node.started.elapsed().as_micros()).unwrap_or(i64::MAX);
    let active = int(node.metrics.active.get());
    rawdoc! {
        "totalTime": micros,
        "currentQueue": { "total": 0, "readers": 0, "writers": 0 },
        "activeClients": { "total": active, "readers": active, "writers": 0 },
    }
}

fn session_cache(node: &Node) -> RawDocumentBuf {
    let count = i32::try_from(node.sessions.count()).unwrap_or(i32::MAX);
    rawdoc! { "activeSessionsCount": count }
}

fn network(node: &Node) -> RawDocumentBuf {
    let metrics = &node.metrics;
    rawdoc! {
        "bytesIn": metrics.bytes_in.get(),
        "bytesOut": metrics.bytes_out.get(),
        "physicalBytesIn": metrics.physical_bytes_in.get(),
        "physicalBytesOut": metrics.physical_bytes_out.get(),
        "numRequests": metrics.requests.get(),
    }
}

fn op_latencies(node: &Node) -> RawDocumentBuf {
    let mut doc = RawDocumentBuf::new();
    let classes = node.metrics.latency_micros.iter().zip(&node.metrics.latency_ops);
    for (name, (micros, ops)) in
        [cstr!("reads"), cstr!("writes"), cstr!("commands")].into_iter().zip(classes)
    {
        doc.append(name, rawdoc! { "latency": micros.get(), "ops": ops.get() });
    }
    doc.append(cstr!("transactions"), rawdoc! { "latency": 0_i64, "ops": 0_i64 });
    doc
}

fn opcounters(node: &Node) -> RawDocumentBuf {
    let ops = |class| node.metrics.ops(class);
    rawdoc! {
        "insert": ops(OpClass::Insert),
        "query": ops(OpClass::Query),
        "update": ops(OpClass::Update),
        "delete": ops(OpClass::Delete),
        "getmore": ops(OpClass::GetMore),
        "command": ops(OpClass::Command),
    }
}

fn opcounters_repl(_: &Node) -> RawDocumentBuf {
    rawdoc! {
        "insert": 0_i64,
        "query": 0_i64,
        "update": 0_i64,
        "delete": 0_i64,
        "getmore": 0_i64,
        "command": 0_i64,
    }
}

fn storage_engine(node: &Node) -> RawDocumentBuf {
    rawdoc! {
        "name": node.settings.storage_engine.as_str(),
        "supportsCommittedReads": true,
        "supportsSnapshotReadConcern": true,
        "readOnly": false,
        "persistent": node.settings.storage_engine != "memory",
        "backupCursorOpen": false,
    }
}

fn mem(_: &Node) -> RawDocumentBuf {
    let process = ProcessInfo::read();
    rawdoc! {
        "bits": 64,
        "resident": int(process.resident_mb),
        "virtual": int(process.virtual_mb),
        "supported": true,
    }
}

fn metrics(node: &Node) -> RawDocumentBuf {
    let mut commands = RawDocumentBuf::new();
    for (command, counters) in super::all().iter().zip(&node.metrics.commands) {
        let called = |counter: &Counter| counter.get();
        if let Ok(name) = CString::try_from(command.name) {
            let counts =
                rawdoc! { "failed": called(&counters.failed), "total": called(&counters.total) };
            commands.append(name, counts);
        }
    }
    let (open, immortal, pinned) = node.cursors.counts();
    let long = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    rawdoc! {
        "commands": commands,
        "cursor": {
            "timedOut": node.cursors.timed_out.get(),
            "open": { "noTimeout": long(immortal), "pinned": long(pinned), "total": long(open) },
        },
        "repl": { "stateTransition": state_transition(node) },
    }
}

/// The operations affected by the last state change. On this server only a rollback ends operations.
fn state_transition(node: &Node) -> RawDocumentBuf {
    let last = *node.metrics.rollback.lock();
    let Interrupted { killed, running } = last.unwrap_or_default();
    let name = if last.is_some() { "rollback" } else { "" };
    if node.profile().has_written {
        return rawdoc! {
            "lastStateTransition": name,
            "totalOperationsKilled": killed,
            "totalOperationsKilledByIntentRegistry": 0i64,
            "totalOperationsRunning": running,
        };
    }
    rawdoc! {
        "lastStateTransition": name,
        "userOperationsKilled": killed,
        "userOperationsRunning": running,
    }
}
