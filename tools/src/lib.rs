//! Command line tools for working with a store or a running node.

pub mod backup;
pub mod inspect;
pub mod past;
