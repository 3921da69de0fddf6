//! Why an entry could not be applied. Such an entry is never skipped: replication stops and reports it.

use protocol::OpTime;
use storage::StorageError;

/// The error that stopped the applier.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// An entry of a newer MongoDB, or an invalid one.
    #[error(
        "the oplog entry {entry} cannot be applied: {why}; upgrade this node, or check the sync source and resync"
    )]
    Entry {
        /// What is wrong.
        why: String,
        /// The entry's position.
        entry: OpTime,
    },
    /// An update that does not fit the document.
    #[error("the update {entry} does not fit our copy of its document: {why}; resync this node")]
    Update {
        /// What is wrong.
        why: String,
        /// The entry's position.
        entry: OpTime,
    },
    /// A required collection does not exist.
    #[error(
        "the oplog entry {entry} is about collection {uuid}, which is not here; resync this node"
    )]
    CollectionMissing {
        /// Its UUID, or its name if the entry has none.
        uuid: String,
        /// The entry's position.
        entry: OpTime,
    },
    /// The earlier entries of a transaction are no longer in our oplog.
    #[error(
        "the transaction that ends at {entry} begins before our oplog; resync this node with a larger --oplogSize"
    )]
    ChainBroken {
        /// The position of its last entry.
        entry: OpTime,
    },
    /// An index could not be built.
    #[error("the index build {build} failed: {why}")]
    IndexBuild {
        /// Its UUID.
        build: uuid::Uuid,
        /// What is wrong.
        why: String,
    },
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl ApplyError {
    pub(crate) fn entry(entry: OpTime, why: impl std::fmt::Display) -> Self {
        Self::Entry { why: why.to_string(), entry }
    }
}
