//! Effects: executes what the decisions of [`core`](crate::core) ask for.

mod applier;
mod build_votes;
pub mod clock;
mod cloner;
mod common_point;
pub mod data_plane;
pub mod delay;
pub mod durable;
mod fetcher;
mod follow;
pub mod handle;
mod heartbeats;
mod initial_sync;
pub mod kept;
pub mod peer;
mod reporter;
mod rollback;
pub mod runner;
mod tail;
mod writer;
