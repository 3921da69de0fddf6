//! Pure decisions: events in, actions out. No runtime, clock, randomness or file access here.

pub mod backoff;
pub mod commit_point;
pub mod config;
pub mod fetch;
mod fields;
pub mod heartbeat;
pub mod initial_sync;
pub mod member;
pub mod member_state;
pub mod node;
pub mod positions;
pub mod rollback;
pub mod snapshot;
pub mod status;
pub mod sync_source;
pub mod votes;
