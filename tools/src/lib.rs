//! Command line tools around a store.

pub mod backup;
pub mod inspect;
pub mod past;
