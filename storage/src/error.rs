//! What can go wrong in the store, each with the way out.

use std::{io, path::PathBuf};

use protocol::{ErrorCode, Timestamp};
use uuid::Uuid;

/// A failure of the store. The text is written for the operator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// A read asked for a moment that the history window has let go.
    #[error("the history before {oldest} is gone; a read at {ts} is no longer possible")]
    HistoryGone {
        /// The moment asked for.
        ts: Timestamp,
        /// The oldest moment that can be read.
        oldest: Timestamp,
    },
    /// A read asked for a moment that is not there yet.
    #[error("{ts} is not applied yet; the newest readable moment is {applied}")]
    NotYetApplied {
        /// The moment asked for.
        ts: Timestamp,
        /// The newest readable moment.
        applied: Timestamp,
    },
    /// Oplog entries must ascend.
    #[error("oplog entry {next} does not come after {last}")]
    OutOfOrder {
        /// The last entry there is.
        last: Timestamp,
        /// The entry refused.
        next: Timestamp,
    },
    /// A document that cannot be stored: no `_id`, broken BSON, nested too deeply.
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
        /// The name asked for.
        name: String,
    },
    /// The name is taken by another collection.
    #[error("{ns} exists already, with UUID {uuid}")]
    NameTaken {
        /// The name.
        ns: String,
        /// Who has it.
        uuid: Uuid,
    },
    /// The prepared transaction is not known here.
    #[error("no prepared transaction {0} is held")]
    NoPrepared(String),
    /// `commitIndexBuild` came before the build was done here.
    #[error("index {name} is not built yet; build_indexes must have returned for {build_uuid}")]
    NotBuilt {
        /// The index.
        name: String,
        /// Its build.
        build_uuid: Uuid,
    },
    /// An index build was asked to stop.
    #[error("the index build was cancelled")]
    Cancelled,
    /// The directory belongs to another process.
    #[error("{path} is locked by another process; one process at a time may use a dbpath")]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// The directory was made by another engine.
    #[error(
        "{path} says this dbpath was made by storage engine {found}, not {wanted}; \
         start with --storageEngine {found}, or with an empty dbpath to sync anew"
    )]
    OtherEngine {
        /// The file that says so.
        path: PathBuf,
        /// The engine that made it.
        found: String,
        /// The engine asked for.
        wanted: String,
    },
    /// The directory was made by another version of this program.
    #[error(
        "{path} says this dbpath has format {found}, this program reads format {known}; \
         use the program that wrote it, or an empty dbpath to sync anew"
    )]
    OtherFormat {
        /// The file that says so.
        path: PathBuf,
        /// The format found.
        found: u32,
        /// The format known.
        known: u32,
    },
    /// The directory holds something that is not ours.
    #[error("{path} is not a dbpath of this program ({why}); choose an empty directory")]
    NotOurs {
        /// The directory.
        path: PathBuf,
        /// Why we think so.
        why: String,
    },
    /// A node was told to start from a backup that is not whole.
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
    /// What is on disk cannot be right.
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
    /// A file of the store is missing or damaged, which was seen before anything was opened.
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
    /// A journal is not whole.
    #[error(
        "the journal {path} is damaged ({why}); nothing was changed: restore a backup, \
         or move the dbpath away and start with an empty one, it will sync from the set"
    )]
    JournalDamaged {
        /// The journal's file, or their directory where there are several.
        path: PathBuf,
        /// The engine's word.
        why: String,
    },
    /// The disk said no.
    #[error("{what}: {source}{}", way_out(source))]
    Io {
        /// The file or the act.
        what: String,
        /// The system's word.
        source: io::Error,
    },
    /// An earlier write or sync failed; only a restart brings the store back to what is durable.
    #[error(
        "the store stopped after a failed write ({0}); restart the process; if it stops again, \
         `understudy-tools inspect <dbpath> validate` names what is damaged"
    )]
    Poisoned(String),
    /// A failure put there by a test.
    #[error("injected failure: {0}")]
    Injected(&'static str),
}

impl StorageError {
    /// For `map_err` on file operations: names the file.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// Something on disk has a shape that we never write.
    pub(crate) fn corrupt(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into(), why: why.into() }
    }

    /// A document that we refuse.
    pub(crate) fn bad_document(why: impl ToString) -> Self {
        Self::BadDocument { why: why.to_string() }
    }

    /// The code by which clients know it.
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

    /// What clients are told: mongod's words where it has some for this.
    pub fn text_for_clients(&self) -> String {
        match self {
            Self::HistoryGone { ts, .. } => {
                format!("Read timestamp {ts} is older than the oldest available timestamp.")
            }
            other => other.to_string(),
        }
    }

    /// True where the process must end: what was written is not known any more.
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

/// What an operator can do about a failure of the file system, where there is something.
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
