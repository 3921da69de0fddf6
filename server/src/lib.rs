//! Looks like mongod to clients and to the other members of its set.
//!
//! ```text
//!  listener --accepts--> connection --Incoming--> dispatch --Call--> commands/* --> Outcome
//!                            ^                        |
//!                            +------- Answer ---------+
//! ```
//! [`context`] holds what handlers may touch, [`profile`] whom we look like, [`error`] how failures look on the wire.

pub mod commands;
pub mod config;
pub mod connection;
pub mod context;
pub mod dispatch;
pub mod error;
pub mod listener;
pub mod logging;
pub mod metrics;
pub mod parameters;
pub mod profile;
pub mod sessions;
pub mod shutdown;
mod start;
pub mod system;

pub use start::run;
