//! Effects: what the decisions of [`core`](crate::core) ask for.

pub mod handle;
