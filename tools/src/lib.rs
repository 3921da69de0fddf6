//! Command line tools for working with a store or a running node.

pub mod backup;
pub mod complaint;
pub mod inspect;
pub mod past;
pub mod screen;
pub mod status;
