//! Behaves like mongod towards clients and the other members of its set.
//!
//! ```text
//!  listener --accepts--> connection --Incoming--> dispatch --Call--> commands/* --> Outcome
//!                            ^                        |
//!                            +------- Answer ---------+
//! ```
//! [`context`] holds what handlers may access, `protocol::release` the release that we show, [`error`] how errors
//! look on the wire.

pub mod auth;
pub mod cluster_time;
pub mod commands;
pub mod config;
pub mod connection;
pub mod context;
pub mod dispatch;
pub mod error;
pub mod history_window;
pub mod index_filters;
pub mod index_use;
mod lanes;
pub mod listener;
pub mod local;
pub mod logging;
pub mod metrics;
pub mod operations;
pub mod parameters;
pub mod pins;
pub mod read;
mod replication;
mod rollback;
pub mod scrub;
pub mod sessions;
pub mod shutdown;
pub mod socket;
mod start;
pub mod system;
pub mod tls;
mod writing;

pub use start::run;
