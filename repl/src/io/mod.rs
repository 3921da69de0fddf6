//! Effects: what the decisions of [`core`](crate::core) ask for.

pub mod clock;
pub mod durable;
pub mod handle;
mod heartbeats;
pub mod peer;
mod reporter;
pub mod runner;
