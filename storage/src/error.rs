//! Errors of the store, each with a remedy.

use std::{io, path::PathBuf};

use protocol::{ErrorCode, Timestamp};
use uuid::Uuid;

/// An error of the store. The text is written for the operator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// A read asked for a timestamp that is older than the history window.
    #[error("the history before {oldest} is gone; a read at {ts} is no longer possible")]
    HistoryGone {
        /// The requested timestamp.
        ts: Timestamp,
        /// The oldest timestamp that can be read.
        oldest: Timestamp,
    },
    /// A read asked for a timestamp that is not applied yet.
    #[error("{ts} is not applied yet; the newest readable moment is {applied}")]
    NotYetApplied {
        /// The requested timestamp.
        ts: Timestamp,
        /// The newest timestamp that can be read.
        applied: Timestamp,
    },
    /// Oplog entries must ascend.
    #[error("oplog entry {next} does not come after {last}")]
    OutOfOrder {
        /// The last entry of the oplog.
        last: Timestamp,
        /// The refused entry.
        next: Timestamp,
    },
    /// A document that cannot be stored: no `_id`, malformed BSON, nested too deeply.
    #[error("a document cannot be stored: {why}")]
    BadDocument {
        /// What is wrong with it.
        why: String,
    },
    /// No collection has this UUID.
    #[error("there is no collection with UUID {0}")]
    NoCollection(Uuid),
    /// No index has this name.
    #[error("there is no index {name} on collection {uuid}")]
    NoIndex {
        /// The collection.
        uuid: Uuid,
        /// The requested name.
        name: String,
    },
    /// Another collection already has the name.
    #[error("{ns} exists already, with UUID {uuid}")]
    NameTaken {
        /// The name.
        ns: String,
        /// The collection that has it.
        uuid: Uuid,
    },
    /// The prepared transaction is unknown.
    #[error("no prepared transaction {0} is held")]
    NoPrepared(String),
    /// `commitIndexBuild` was applied before this node finished the build.
    #[error("index {name} is not built yet; build_indexes must have returned for {build_uuid}")]
    NotBuilt {
        /// The index.
        name: String,
        /// Its build.
        build_uuid: Uuid,
    },
    /// An index build was cancelled.
    #[error("the index build was cancelled")]
    Cancelled,
    /// Another process uses the directory.
    #[error("{path} is locked by another process; one process at a time may use a dbpath")]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// The directory was created by another storage engine.
    #[error(
        "{path} says this dbpath was made by storage engine {found}, not {wanted}; \
         start with --storageEngine {found}, or with an empty dbpath to sync anew"
    )]
    OtherEngine {
        /// The file that names the engine.
        path: PathBuf,
        /// The engine that created it.
        found: String,
        /// The configured engine.
        wanted: String,
    },
    /// The directory was created by another version of this program.
    #[error(
        "{path} says this dbpath has format {found}, this program reads format {known}; \
         use the program that wrote it, or an empty dbpath to sync anew"
    )]
    OtherFormat {
        /// The file that names the format.
        path: PathBuf,
        /// The format of the directory.
        found: u32,
        /// The format that this program reads.
        known: u32,
    },
    /// The directory holds files that are not a store of ours.
    #[error("{path} is not a dbpath of this program ({why}); choose an empty directory")]
    NotOurs {
        /// The directory.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The node was started from an incomplete backup.
    #[error(
        "{path} is a damaged backup: {why}; nothing was changed: \
         start from another backup, or with an empty dbpath to sync anew"
    )]
    DamagedBackup {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Data on disk is invalid.
    #[error(
        "{what} is damaged: {why}; the data of this node cannot be trusted: \
         move its dbpath away and start with an empty one, it will sync from the set"
    )]
    Corrupt {
        /// The file, keyspace or row.
        what: String,
        /// What was found.
        why: String,
    },
    /// A file of the store is missing or damaged; detected before anything was opened.
    #[error(
        "{path} {why}; nothing was changed: restore a backup, \
         or move the dbpath away and start with an empty one, it will sync from the set"
    )]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, beginning with a verb.
        why: String,
    },
    /// A journal is damaged.
    #[error(
        "the journal {path} is damaged ({why}); nothing was changed: restore a backup, \
         or move the dbpath away and start with an empty one, it will sync from the set"
    )]
    JournalDamaged {
        /// The journal's file, or the directory if several are concerned.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A file system operation failed.
    #[error("{what}: {source}{}", way_out(source))]
    Io {
        /// The file or the operation.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// An earlier write or sync failed; only a restart returns the store to its durable state.
    #[error(
        "the store stopped after a failed write ({0}); restart the process; if it stops again, \
         `understudy-tools inspect <dbpath> validate` names what is damaged"
    )]
    Poisoned(String),
    /// A failure that a test injected.
    #[error("injected failure: {0}")]
    Injected(&'static str),
}

impl StorageError {
    /// For `map_err` on file operations: adds the name of the file.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// Data on disk has a form that we never write.
    pub(crate) fn corrupt(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into(), why: why.into() }
    }

    /// A document that cannot be stored.
    pub(crate) fn bad_document(why: impl ToString) -> Self {
        Self::BadDocument { why: why.to_string() }
    }

    /// The error code for clients.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::HistoryGone { .. } => ErrorCode::SnapshotTooOld,
            Self::NotYetApplied { .. } => ErrorCode::SnapshotUnavailable,
            Self::NoCollection(_) | Self::NameTaken { .. } => ErrorCode::NamespaceNotFound,
            Self::NoIndex { .. } => ErrorCode::IndexNotFound,
            Self::BadDocument { .. } => ErrorCode::BadValue,
            Self::Cancelled => ErrorCode::Interrupted,
            Self::OutOfOrder { .. }
            | Self::NoPrepared(_)
            | Self::NotBuilt { .. }
            | Self::Locked { .. }
            | Self::OtherEngine { .. }
            | Self::OtherFormat { .. }
            | Self::NotOurs { .. }
            | Self::DamagedBackup { .. }
            | Self::Incomplete { .. }
            | Self::Corrupt { .. }
            | Self::JournalDamaged { .. }
            | Self::Io { .. }
            | Self::Poisoned(_)
            | Self::Injected(_) => ErrorCode::InternalError,
        }
    }

    /// The error text for clients: mongod's own text where it has one.
    pub fn text_for_clients(&self) -> String {
        match self {
            Self::HistoryGone { ts, .. } => {
                format!("Read timestamp {ts} is older than the oldest available timestamp.")
            }
            other => other.to_string(),
        }
    }

    /// True if the process must end, because it is unknown what was written.
    pub fn is_fatal(&self) -> bool {
        matches!(
            self,
            Self::Corrupt { .. }
                | Self::Incomplete { .. }
                | Self::JournalDamaged { .. }
                | Self::Io { .. }
                | Self::Poisoned(_)
                | Self::Injected(_)
        )
    }
}

/// Advice to the operator for a file system error, if there is any.
fn way_out(error: &io::Error) -> &'static str {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    match error.kind() {
        StorageFull | QuotaExceeded => {
            "; make room and start again: nothing that was durable is lost"
        }
        PermissionDenied | ReadOnlyFilesystem => {
            "; this process must be able to write there: change that, or choose another --dbpath"
        }
        _ => "",
    }
}
