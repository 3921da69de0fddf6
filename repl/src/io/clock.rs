//! The only place that reads the clock.

#![expect(clippy::disallowed_methods, reason = "this is where time comes from")]

use std::{
    sync::LazyLock,
    time::{Instant, SystemTime},
};

use crate::event::Now;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Reads both clocks.
pub fn now() -> Now {
    Now { mono: START.elapsed(), wall: bson::DateTime::from_system_time(SystemTime::now()) }
}
