//! The semantics of the query language, without side effects.
//!
//! ```text
//!   value        BSON values: order, paths                         collation   text by language
//!   matcher      filters                                           context     time, randomness, interruption
//!   geo          places: within, intersecting, near
//!   sort         the order of documents                            source      a collection at a timestamp
//!   expression   values computed from documents
//!   stage        aggregation pipelines
//!   projection   fields that are included or computed
//!   planner      selects indexes                                   exec        runs a plan, document by document
//!   timeseries   measurements from buckets
//!   update       the effect of an oplog update entry
//! ```
//! No I/O, no clock, no randomness: the caller provides them.

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
