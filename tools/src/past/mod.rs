//! Tools that read the past of a running node, through the official driver.
//!
//! ```text
//!   node --- a connection pinned to a moment by its appName ---> at, diff, log, restore, export
//!        --- its oplog ----------------------------------------> log, find-drop
//!        --- hashes of the same moment as the primary's -------> verify
//! ```

mod archive;
pub mod at;
pub mod diff;
pub mod drops;
pub mod export;
pub mod log;
pub mod restore;
pub mod serve;
mod source;
pub mod verify;

pub use source::{Node, Past};

use bson::Bson;

/// A value as one line of extended JSON.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| error.to_string())
}

/// A value from extended JSON.
fn from_json(text: &str) -> anyhow::Result<Bson> {
    Ok(serde_json::from_str(text)?)
}
