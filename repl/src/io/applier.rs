//! The second stage: reads our own oplog after the applied mark and applies its entries.
//!
//! It runs in its own thread and never blocks the writer: entries that are written but not applied wait in the oplog,
//! not in memory.

use std::{
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use protocol::{RawDoc, Timestamp};
use storage::{Direction, StorageError, Store};
use tokio::{runtime::Handle, sync::Notify};

use crate::{
    apply::{Applier, ApplyError},
    io::{
        clock,
        delay::{Delay, DelayState},
    },
};

/// Maximum bytes of entries read at once.
const READ_BYTES_MAX: usize = 8 << 20;
/// Maximum number of entries read at once.
const READ_ENTRIES_MAX: usize = 16_000;

/// A running applier thread.
pub(crate) struct ApplierThread {
    stop: Arc<AtomicBool>,
    wake: Arc<Notify>,
    thread: JoinHandle<()>,
}

impl ApplierThread {
    /// Starts applying what is written; `failed` gets the error that stops it, or an `Err` for a panic.
    pub(crate) fn start(
        store: Store,
        applier: Applier,
        delay: Arc<Delay>,
        failed: impl FnOnce(Result<ApplyError, &'static str>) + Send + 'static,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let wake = Arc::new(Notify::new());
        let runtime = Handle::current();
        let (stopped, waker) = (stop.clone(), wake.clone());
        let thread = std::thread::Builder::new()
            .name("oplog-applier".into())
            .spawn(move || {
                let ended = catch_unwind(AssertUnwindSafe(|| {
                    run(&store, &applier, &delay, &stopped, &waker, &runtime)
                }));
                match ended {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => failed(Ok(error)),
                    Err(_) => failed(Err("the oplog applier panicked; see the log above")),
                }
            })
            .expect("a thread at startup");
        Self { stop, wake, thread }
    }

    /// True if an error stopped it.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Stops it after the current batch.
    pub(crate) async fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.wake.notify_one();
        let joined = tokio::task::spawn_blocking(move || self.thread.join()).await;
        if !matches!(joined, Ok(Ok(()))) {
            tracing::error!("the oplog applier panicked; see the log above");
        }
    }
}

fn run(
    store: &Store,
    applier: &Applier,
    delay: &Delay,
    stop: &AtomicBool,
    wake: &Notify,
    runtime: &Handle,
) -> Result<(), ApplyError> {
    let mut written = store.watermarks().watch_written();
    let mut delays = delay.watch();
    while !stop.load(Ordering::Acquire) {
        // Marked as seen before reading, so that entries written after the read wake us.
        written.borrow_and_update();
        let state = *delays.borrow_and_update();
        let due_in = match apply_some(store, applier, state)? {
            Outcome::Applied => continue,
            Outcome::Nothing => None,
            Outcome::Undue(first) => state.due_in(first, clock::now().wall),
        };
        runtime.block_on(async {
            tokio::select! {
                // While the next entry is not due, further entries change nothing.
                _ = written.changed(), if due_in.is_none() => {}
                () = tokio::time::sleep(due_in.unwrap_or_default()), if due_in.is_some() => {}
                _ = delays.changed() => {}
                () = wake.notified() => {}
            }
        });
    }
    Ok(())
}

/// Applies everything that is written and due, then returns; used for recovery at start.
pub(crate) fn apply_all(
    store: &Store,
    applier: &Applier,
    delay: DelayState,
) -> Result<(), ApplyError> {
    while let Outcome::Applied = apply_some(store, applier, delay)? {}
    Ok(())
}

enum Outcome {
    Applied,
    Nothing,
    /// The next entry is not due yet.
    Undue(Timestamp),
}

fn apply_some(store: &Store, applier: &Applier, delay: DelayState) -> Result<Outcome, ApplyError> {
    let (entries, undue) = read_some(store, delay.due_until(clock::now().wall))?;
    if entries.is_empty() {
        return Ok(undue.map_or(Outcome::Nothing, Outcome::Undue));
    }
    applier.apply(&entries)?;
    Ok(Outcome::Applied)
}

/// The next entries up to `until`, and the timestamp of the first one after it if they end there.
fn read_some(
    store: &Store,
    until: Timestamp,
) -> Result<(Vec<RawDoc>, Option<Timestamp>), StorageError> {
    let after = Bound::Excluded(store.watermarks().applied().op_time.ts);
    let mut entries = Vec::new();
    let mut bytes = 0;
    for entry in store.oplog().scan_written(after, Direction::Forward) {
        let (ts, entry) = entry?;
        if ts > until {
            return Ok((entries, Some(ts)));
        }
        bytes += entry.len();
        entries.push(entry);
        if bytes >= READ_BYTES_MAX || entries.len() >= READ_ENTRIES_MAX {
            break;
        }
    }
    Ok((entries, None))
}
