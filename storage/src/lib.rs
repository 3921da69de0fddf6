//! Versioned documents on an embedded engine.

mod apply;
mod build;
mod catalog;
mod checkpoint;
mod engine;
mod error;
mod index;
mod initial_sync;
pub mod keystring;
mod layout;
mod loader;
mod mvcc;
mod node_files;
mod oplog;
mod rollback;
mod sort;
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
pub use engine::{EngineKind, faulty::Faults};
pub use error::StorageError;
pub use index::keygen::IndexKind;
pub use loader::{LoadReport, Loader};
pub use mvcc::Direction;
pub use oplog::{Oplog, OplogPin, OplogScan};
pub use rollback::Undone;
pub use stats::{DocumentVersion, StoreStats};
pub use store::{Store, StoreOptions};
pub use validate::ValidateReport;
pub use view::{IndexEntry, IndexScan, ReadAt, RecordKey, RecordScan, View};
pub use watermarks::Watermarks;

#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod model_tests;
