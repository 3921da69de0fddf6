//! Moments that readers hold: `oldest` waits for them, within a bound.
//!
//! A pin costs nothing but the history that it keeps. Whoever reads one moment for long (a snapshot cursor, an index
//! build, a restore of the past) holds one; when the bound passes it, the next read there says that its history is
//! gone.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use protocol::Timestamp;

use crate::{StorageError, Store};

/// All moments that are held, and by how many.
#[derive(Default)]
pub(crate) struct Pins(Mutex<BTreeMap<Timestamp, usize>>);

impl Pins {
    /// Calls `decide` with the earliest moment that is held, while no other can be taken.
    pub(crate) fn with_first<T>(&self, decide: impl FnOnce(Option<Timestamp>) -> T) -> T {
        let held = self.0.lock();
        decide(held.keys().next().copied())
    }
}

/// A moment that stays readable while this is held: up to twice the history window back.
pub struct Pin {
    ts: Timestamp,
    pins: Arc<Pins>,
}

impl Pin {
    /// The moment.
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
    /// Keeps a moment readable while the pin is held, within the bound.
    pub fn pin(&self, ts: Timestamp) -> Result<Pin, StorageError> {
        let inner = &self.0;
        let applied = inner.marks.applied().op_time.ts;
        if ts > applied {
            return Err(StorageError::NotYetApplied { ts, applied });
        }
        // Held first, so that the check below cannot go stale.
        *inner.pins.0.lock().entry(ts).or_default() += 1;
        let pin = Pin { ts, pins: Arc::clone(&inner.pins) };
        let oldest = inner.marks.oldest();
        if ts < oldest || !inner.history.keeps() && ts < applied {
            return Err(StorageError::HistoryGone { ts, oldest });
        }
        Ok(pin)
    }
}
