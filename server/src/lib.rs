//! Looks like mongod to clients and to the other members of its set.

pub mod config;
pub mod logging;
pub mod profile;
