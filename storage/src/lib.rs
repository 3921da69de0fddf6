//! Versioned documents on an embedded engine.

mod apply;
mod catalog;
mod engine;
mod error;
mod index;
pub mod keystring;
mod layout;
mod mvcc;
mod node_files;
mod oplog;
mod store;
mod view;
mod watermarks;

pub use apply::Apply;
pub use catalog::{Capped, Catalog, Collection, Index, IndexState};
pub use engine::{EngineKind, faulty::Faults};
pub use error::StorageError;
pub use index::keygen::IndexKind;
pub use mvcc::Direction;
pub use oplog::{Oplog, OplogPin, OplogScan};
pub use store::{Store, StoreOptions};
pub use view::{IndexEntry, IndexScan, ReadAt, RecordKey, RecordScan, View};
pub use watermarks::Watermarks;
