//! Versioned documents on an embedded engine.
//!
//! ```text
//!   Oplog::append, sync --> oplog            Apply --> documents + index entries + catalog + counts + mark, one batch
//!        written, durable                                |                              applied
//!                                                        v
//!   View at the newest, the majority's, or any timestamp T <-- current + history (epochs) ... oldest
//! ```
//! [`Store`] is the entry point. Replication appends entries to the [`Oplog`] and syncs it, then applies them through
//! [`Apply`]; commands read through a [`View`]. Everything is stored in versioned tables (`mvcc`): a write moves the
//! version it replaces to history, so that every timestamp within the window can be read or rolled back to.
//!
//! Invariants, wherever the process ends:
//! 1. Entries whose [`Oplog::sync`] returned are present; if the disk lost them, [`Store::lost_tail`] reports it.
//! 2. The data is exactly that of the oplog up to the mark `applied`: no batch is applied partly.
//! 3. Index entries and counts agree with the documents, at every readable timestamp.
//! 4. A reader sees one consistent timestamp, and never waits for a writer.
//! 5. Nothing that can still be read, rolled back to or replayed is removed.
//!
//! Deliberately not here: the meaning of an oplog entry (`repl`), the meaning of a query (`query`), and any clock:
//! the caller passes the time to upkeep ([`Store::maintain`]).

mod apply;
mod build;
mod catalog;
mod checkpoint;
mod count_log;
mod engine;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod index;
mod initial_sync;
pub mod keystring;
mod layout;
mod loader;
mod mvcc;
mod node_files;
mod oplog;
mod pins;
mod read_ahead;
mod rollback;
mod scrub;
mod sort;
pub mod source;
mod stats;
mod store;
mod validate;
mod view;
mod watermarks;

pub use apply::{
    Apply,
    prepared::{PreparedWrite, TxnId},
};
pub use catalog::{Capped, Catalog, Collection, Index, IndexState};
pub use checkpoint::{
    BackupError, Checkpoint, CheckpointReport,
    manifest::{FileEntry, Manifest},
    verify::{Verified, verify_backup},
};
pub use engine::{EngineKind, faulty::Faults, scrub::Scrubbed};
pub use error::StorageError;
pub use loader::LoadReport;
pub use oplog::{Oplog, OplogPin, OplogScan};
pub use pins::Pin;
pub use query::source::{Direction, IndexEntry, IndexKind, RecordKey};
pub use read_ahead::ReadAhead;
pub use rollback::LostDocument;
pub use scrub::scrub;
pub use stats::{DocumentVersion, StoreStats};
pub use store::{Store, StoreOptions};
pub use validate::ValidateReport;
pub use view::{IndexScan, ReadAt, RecordScan, View};
pub use watermarks::Watermarks;

#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod model_tests;
