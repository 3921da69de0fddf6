//! Pure decisions: events in, actions out. No runtime, clock, randomness or file in here.

pub mod config;
mod fields;
pub mod member_state;
pub mod profile;
pub mod snapshot;
pub mod status;
