//! The delayed member: `secondaryDelaySecs`, and its clock, which an operator can stop.
//!
//! ```text
//!   our oplog   ... applied | private tail ............ written        fetched and durable at once
//!   the set sees        ^ written = durable = applied
//! ```
//! D1 Everything after `applied` is private while there is a delay: it is not in any position, vote or oplog read.
//! D2 An entry is due when its second is at least the delay behind the clock, as in mongod.
//! D3 While the clock is stopped nothing becomes due. After the tail was cut nothing is fetched either, so that the
//!    cut entries do not come back. Both states survive the process.

use std::{fmt, str::FromStr, time::Duration};

use bson::{DateTime, rawdoc};
use protocol::Timestamp;
use storage::{StorageError, Store};
use tokio::sync::{Mutex, MutexGuard, watch};

use crate::Positions;

/// The operator's setting for the delayed clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// It follows the present at its distance.
    Run,
    /// It is stopped; the tail grows.
    Stop,
    /// It is stopped; the tail is dropped and does not grow again.
    Cut,
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Run => "run",
            Self::Stop => "stop",
            Self::Cut => "cut",
        })
    }
}

impl FromStr for Clock {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "run" => Ok(Self::Run),
            "stop" => Ok(Self::Stop),
            "cut" => Ok(Self::Cut),
            _ => Err("it must be 'run', 'stop' or 'cut'"),
        }
    }
}

/// Maximum wait before the clock is read again, since it may have been changed meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The current delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayState {
    /// `secondaryDelaySecs`.
    pub secs: u32,
    /// The operator's setting.
    pub clock: Clock,
}

impl DelayState {
    /// True if the tail is private (D1).
    pub fn hides_tail(self) -> bool {
        self.secs > 0 || self.clock != Clock::Run
    }

    /// Entries up to this timestamp are due.
    pub(crate) fn due_until(self, now: DateTime) -> Timestamp {
        if self.clock != Clock::Run {
            return Timestamp::NULL;
        }
        if self.secs == 0 {
            return Timestamp::MAX;
        }
        let secs = now.timestamp_millis() / 1000 - i64::from(self.secs);
        Timestamp::new(u32::try_from(secs).unwrap_or(0), u32::MAX)
    }

    /// How long to wait before checking again whether an entry is due; `None` if only a change of the state can make
    /// it due.
    pub(crate) fn due_in(self, ts: Timestamp, now: DateTime) -> Option<Duration> {
        let due = (i64::from(ts.secs()) + i64::from(self.secs)) * 1000;
        let left = u64::try_from(due - now.timestamp_millis()).unwrap_or(0);
        (self.clock == Clock::Run).then(|| Duration::from_millis(left).min(LOOK_EVERY))
    }

    /// Our positions as the set may see them.
    pub(crate) fn shown(self, mut positions: Positions) -> Positions {
        if self.hides_tail() {
            let applied = positions.applied;
            for position in [&mut positions.written, &mut positions.durable] {
                if position.op_time > applied.op_time {
                    *position = applied;
                }
            }
        }
        positions
    }
}

/// The delay of this node, shared by all that depend on it.
pub struct Delay {
    store: Store,
    state: watch::Sender<DelayState>,
    /// Held while entries are fetched: its holder knows that the end of our oplog does not change.
    fetching: Mutex<()>,
}

/// The stored delay: recovery at the next start happens before the config is read.
const KEPT: &str = "understudy.delay";

impl Delay {
    /// Loads the delay of the last run.
    pub(crate) fn load(store: Store) -> Result<Self, StorageError> {
        let kept = store.meta(KEPT)?;
        let secs = kept.as_ref().and_then(|doc| doc.get_i64("secs").ok());
        let clock = kept.as_ref().and_then(|doc| doc.get_str("clock").ok()?.parse().ok());
        let state = DelayState {
            secs: secs.and_then(|secs| u32::try_from(secs).ok()).unwrap_or(0),
            clock: clock.unwrap_or(Clock::Run),
        };
        Ok(Self { store, state: watch::Sender::new(state), fetching: Mutex::default() })
    }

    /// The delay now.
    pub fn state(&self) -> DelayState {
        *self.state.borrow()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<DelayState> {
        self.state.subscribe()
    }

    /// Sets the delay from the config.
    pub(crate) fn configure(&self, secs: u32) -> Result<(), StorageError> {
        let was = self.state();
        if was.secs != secs {
            tracing::info!(from = was.secs, to = secs, "the delay of this member changes");
            // Without a delay there is no hidden tail and no clock to stop.
            let clock = if secs == 0 { Clock::Run } else { was.clock };
            self.change(DelayState { secs, clock })?;
        }
        Ok(())
    }

    /// Stops the clock, resumes it, or cuts the tail; done when this returns.
    pub async fn set_clock(&self, clock: Clock) -> Result<(), DelayError> {
        let was = self.state();
        if clock == was.clock {
            return Ok(());
        }
        if was.secs == 0 {
            return Err(DelayError::NotDelayed);
        }
        self.change(DelayState { clock, ..was })?;
        tracing::warn!(clock = %clock, "an operator has set the clock of this delayed member");
        if clock == Clock::Cut {
            let _still = self.fetching.lock().await;
            let store = self.store.clone();
            let cut = tokio::task::spawn_blocking(move || cut_tail(&store)).await;
            cut.map_err(|_| DelayError::Interrupted)??;
        }
        Ok(())
    }

    fn change(&self, to: DelayState) -> Result<(), StorageError> {
        let doc = rawdoc! { "secs": i64::from(to.secs), "clock": to.clock.to_string() };
        self.store.put_meta(KEPT, &doc)?;
        self.state.send_replace(to);
        Ok(())
    }

    /// Waits while the tail is cut, then allows the caller to fetch as long as it holds the guard.
    pub(crate) async fn may_fetch(&self) -> MutexGuard<'_, ()> {
        let mut state = self.watch();
        loop {
            // The sender belongs to us, so it cannot be dropped.
            let _ = state.wait_for(|state| state.clock != Clock::Cut).await;
            let fetching = self.fetching.lock().await;
            if self.state().clock != Clock::Cut {
                return fetching;
            }
        }
    }

    /// Prevents fetching and cutting of the tail while the guard is held.
    pub(crate) async fn hold_still(&self) -> MutexGuard<'_, ()> {
        self.fetching.lock().await
    }

    /// Returns when the tail is to be cut: fetching must end.
    pub(crate) async fn is_cut(&self) {
        let _ = self.watch().wait_for(|state| state.clock == Clock::Cut).await;
    }
}

fn cut_tail(store: &Store) -> Result<(), StorageError> {
    let marks = store.watermarks();
    let (applied, written) = (marks.applied().op_time, marks.written().op_time);
    tracing::warn!(from = %applied, to = %written, "discarding the fetched entries that were not due yet");
    store.oplog().truncate_after(applied.ts).map(|_| ())
}

/// Why the clock was not changed.
#[derive(Debug, thiserror::Error)]
pub enum DelayError {
    /// There is no delay.
    #[error(
        "this node is not a delayed member: set secondaryDelaySecs in its entry of the config first"
    )]
    NotDelayed,
    /// The process is ending.
    #[error("interrupted at shutdown")]
    Interrupted,
    /// The setting could not be stored.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{OpTime, OpTimeAndWall};

    const RUNNING: DelayState = DelayState { secs: 30, clock: Clock::Run };

    fn now(millis: i64) -> DateTime {
        DateTime::from_millis(millis)
    }

    #[test]
    fn an_entry_is_due_when_its_second_is_as_far_back_as_the_delay() {
        assert_eq!(RUNNING.due_until(now(100_999)), Timestamp::new(70, u32::MAX));
        assert_eq!(
            RUNNING.due_in(Timestamp::new(71, 5), now(100_999)),
            Some(Duration::from_millis(1))
        );
        assert_eq!(RUNNING.due_in(Timestamp::new(7, 5), now(100_999)), Some(Duration::ZERO));
        // The clock was wrong by a day; the wait is still short.
        assert_eq!(RUNNING.due_in(Timestamp::new(90_000, 1), now(100_999)), Some(LOOK_EVERY));
        let stopped = DelayState { clock: Clock::Stop, ..RUNNING };
        assert_eq!(stopped.due_until(now(100_999)), Timestamp::NULL);
        assert_eq!(stopped.due_in(Timestamp::new(7, 5), now(100_999)), None);
        let at_once = DelayState { secs: 0, clock: Clock::Run };
        assert_eq!(at_once.due_until(now(100_999)), Timestamp::MAX);
    }

    #[test]
    fn the_tail_is_in_no_position() {
        let at = |secs| OpTimeAndWall {
            op_time: OpTime::new(Timestamp::new(secs, 1), 1),
            wall: now(i64::from(secs) * 1000),
        };
        let positions = Positions { written: at(9), durable: at(4), applied: at(5) };
        let shown = RUNNING.shown(positions);
        assert_eq!(shown, Positions { written: at(5), durable: at(4), applied: at(5) });
        assert_eq!(DelayState { secs: 0, clock: Clock::Run }.shown(positions), positions);
    }
}
