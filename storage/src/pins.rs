//! Timestamps that readers pin: `oldest` waits for them, within a limit.
//!
//! A pin costs nothing except the history that it keeps. A reader that uses one timestamp for long (a snapshot
//! cursor, an index build, a restore) holds one; when the limit has passed it, the next read there fails with an
//! error that its history is gone.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use protocol::Timestamp;

use crate::{StorageError, Store};

/// The pinned timestamps with the number of pins on each.
#[derive(Default)]
pub(crate) struct Pins(Mutex<BTreeMap<Timestamp, usize>>);

impl Pins {
    /// Calls `decide` with the earliest pinned timestamp; no pin can be taken meanwhile.
    pub(crate) fn with_first<T>(&self, decide: impl FnOnce(Option<Timestamp>) -> T) -> T {
        let held = self.0.lock();
        decide(held.keys().next().copied())
    }
}

/// Keeps a timestamp readable while it is held: up to twice the history window back.
pub struct Pin {
    ts: Timestamp,
    pins: Arc<Pins>,
}

impl Pin {
    /// The pinned timestamp.
    pub fn ts(&self) -> Timestamp {
        self.ts
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut held = self.pins.0.lock();
        if let Some(count) = held.get_mut(&self.ts) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.ts);
            }
        }
    }
}

impl Store {
    /// Pins a timestamp.
    pub fn pin(&self, ts: Timestamp) -> Result<Pin, StorageError> {
        let inner = &self.0;
        let applied = inner.marks.applied().op_time.ts;
        if ts > applied {
            return Err(StorageError::NotYetApplied { ts, applied });
        }
        // Pinned before the check, so that the check cannot become outdated.
        *inner.pins.0.lock().entry(ts).or_default() += 1;
        let pin = Pin { ts, pins: Arc::clone(&inner.pins) };
        let oldest = inner.marks.oldest();
        if ts < oldest || !inner.history.keeps() && ts < applied {
            return Err(StorageError::HistoryGone { ts, oldest });
        }
        Ok(pin)
    }
}
