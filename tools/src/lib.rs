//! Command line tools around a store.

pub mod bench;
