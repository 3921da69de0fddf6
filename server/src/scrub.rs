//! Reads the whole store periodically in the background, so that damage is found before the damaged data is needed.
//!
//! Damage takes the node out of service, see [`storage::Store::damage`].

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bson::{DateTime, RawArrayBuf, RawDocumentBuf, raw::cstr, rawdoc};
use parking_lot::Mutex;
use storage::{Scrubbed, StorageError, Store};
use tokio::runtime::Handle;

use crate::{context::Node, shutdown::Phase};

/// Read rate: below a hundredth of a core, and a terabyte in a day and a half.
const BYTES_PER_SEC: u64 = 8 << 20;
/// A node that has just started has more urgent work.
const FIRST_AFTER: Duration = Duration::from_secs(300);
/// Interval of the check whether a scrub is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of damaged files that are named.
const NAMED_MAX: usize = 20;

/// The state of scrubs in this process.
#[derive(Default)]
pub struct Scrubs(Mutex<State>);

#[derive(Default)]
struct State {
    running: Option<Running>,
    last: Option<Last>,
}

struct Running {
    since: DateTime,
    bytes: u64,
}

struct Last {
    began: DateTime,
    ended: DateTime,
    found: Result<Scrubbed, String>,
}

/// Runs a scrub whenever one is due, until shutdown. It reads on its own thread.
pub(crate) async fn run(node: Arc<Node>, members: Handle) {
    let Some(every) = node.settings.scrub_interval else { return };
    let Ok(store) = node.store().cloned() else { return };
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if node.started.elapsed() < FIRST_AFTER.min(every) || !is_due(&store, every) {
            continue;
        }
        let (node, store) = (node.clone(), store.clone());
        let done = members.spawn_blocking(move || scrub(&node, &store)).await;
        if let Err(error) = done {
            tracing::error!(target: "STORAGE", %error, "A scrub ended abruptly");
        }
    }
}

/// True if a scrub is due; also if the clock was set back.
fn is_due(store: &Store, every: Duration) -> bool {
    let Ok(Some(last)) = store.last_scrub() else { return true };
    let since = DateTime::now().timestamp_millis() - last.timestamp_millis();
    u64::try_from(since).map_or(true, |since| Duration::from_millis(since) >= every)
}

fn scrub(node: &Node, store: &Store) {
    let began = DateTime::now();
    node.scrubs.0.lock().running = Some(Running { since: began, bytes: 0 });
    tracing::info!(target: "STORAGE", "Scrub begins: all files are read and compared with their checksums");
    let start = Instant::now();
    let mut bytes = 0;
    let found = store.scrub(&mut |read| {
        bytes += read;
        if let Some(running) = &mut node.scrubs.0.lock().running {
            running.bytes = bytes;
        }
        let due = Duration::from_secs_f64(bytes as f64 / BYTES_PER_SEC as f64);
        std::thread::sleep(due.saturating_sub(start.elapsed()));
        node.shutdown.phase() == Phase::Running
    });
    tell(&found);
    let found = found.map_err(|error| error.to_string());
    let last = Some(Last { began, ended: DateTime::now(), found });
    *node.scrubs.0.lock() = State { running: None, last };
}

fn tell(found: &Result<Scrubbed, StorageError>) {
    match found {
        Ok(found) if !found.damaged.is_empty() => {
            tracing::error!(target: "STORAGE", damaged = found.damaged.join("; "),
                "Scrub found damage: this node is out of service");
        }
        Ok(found) if found.complete => {
            tracing::info!(target: "STORAGE", files = found.files, bytes = found.bytes,
                "Scrub found every file as it was written");
        }
        Ok(_) => {}
        Err(error) => tracing::error!(target: "STORAGE", %error, "Scrub could not read all files"),
    }
}

impl Scrubs {
    /// The section of serverStatus.
    pub(crate) fn section(&self, node: &Node) -> RawDocumentBuf {
        let state = self.0.lock();
        let hours = node.settings.scrub_interval.map_or(0.0, |every| every.as_secs_f64() / 3600.0);
        let mut section = rawdoc! { "intervalHours": hours, "running": state.running.is_some() };
        if let Some(running) = &state.running {
            section.append(cstr!("since"), running.since);
            section.append(cstr!("bytesRead"), long(running.bytes));
        }
        if let Some(whole) = node.store().ok().and_then(|store| store.last_scrub().ok()?) {
            section.append(cstr!("lastWhole"), whole);
        }
        if let Some(last) = &state.last {
            section.append(cstr!("last"), shown(last));
        }
        if let Some(why) = node.store().ok().and_then(Store::damage) {
            section.append(cstr!("damage"), why.to_string());
        }
        section
    }
}

fn shown(last: &Last) -> RawDocumentBuf {
    let mut doc = rawdoc! { "began": last.began, "ended": last.ended };
    match &last.found {
        Ok(found) => {
            let result = match (found.complete, found.damaged.is_empty()) {
                (_, false) => "damaged",
                (true, true) => "whole",
                (false, true) => "interrupted",
            };
            doc.append(cstr!("result"), result);
            doc.append(cstr!("files"), long(found.files));
            doc.append(cstr!("bytes"), long(found.bytes));
            let mut damaged = RawArrayBuf::new();
            found.damaged.iter().take(NAMED_MAX).for_each(|text| damaged.push(text.as_str()));
            doc.append(cstr!("damaged"), damaged);
        }
        Err(error) => {
            doc.append(cstr!("result"), "failed");
            doc.append(cstr!("error"), error.as_str());
        }
    }
    doc
}

fn long(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
