//! Looks like mongod to clients and to the other members of its set.
//!
//! ```text
//!  listener --accepts--> connection --Incoming--> dispatch --Call--> commands/* --> Outcome
//!                            ^                        |
//!                            +------- Answer ---------+
//! ```
//! [`context`] holds what handlers may touch, `protocol::release` whom we look like, [`error`] how failures look on the wire.

pub mod auth;
pub mod batch;
pub mod blocking;
pub mod cluster_time;
pub mod commands;
pub mod config;
pub mod connection;
pub mod context;
pub mod cursors;
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
pub mod natural_reading;
pub mod operations;
pub mod oplog_reading;
pub mod parameters;
pub mod pins;
pub mod query_reading;
pub mod read_time;
mod replication;
pub mod reply_buffers;
pub mod sessions;
pub mod shutdown;
pub mod socket;
pub mod source;
pub mod spill;
mod start;
pub mod system;
pub mod tls;
pub mod views;
mod writing;

pub use start::run;
