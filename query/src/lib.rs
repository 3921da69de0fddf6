//! The meaning of the query language; pure.
//!
//! ```text
//!   value        what a BSON value is worth: order, paths          collation   text by language
//!   matcher      which documents a filter means                    context     time, chance, interruption
//!   geo          places, within and near
//!   sort         the order of documents                            source      a collection at a moment
//!   expression   values computed from documents
//!   stage        aggregation pipelines
//!   projection   which fields are shown or computed
//!   planner      how to reach the documents                        exec        reaches them, one by one
//!   timeseries   measurements out of buckets
//!   update       what an oplog update entry does to a document
//! ```
//! No I/O, no clock, no randomness: what a query needs of them it is given.

pub mod collation;
pub mod context;
pub mod error;
pub mod exec;
pub mod expression;
mod field_path;
pub mod geo;
pub mod matcher;
pub mod planner;
pub mod projection;
pub mod sort;
pub mod source;
pub mod stage;
pub mod text;
pub mod timeseries;
pub mod update;
pub mod value;

pub use error::QueryError;
pub use protocol::Release;

#[cfg(test)]
mod testdata;
