//! The engine: an ordered key-value store with a few keyspaces, atomic batches and snapshots.
//!
//! The layers above use only the traits of this module. [`fjall`] is the engine on disk, [`memory`] is the model for
//! tests, and [`faulty`] makes any engine fail on purpose.
//!
//! Every engine guarantees:
//! E1 A batch is atomic over all keyspaces, also after a crash.
//! E2 A snapshot never changes and spans all keyspaces.
//! E3 After `sync` returns, every batch that was committed before the call survives a power loss.
//! E4 Batches survive a crash in commit order: what remains is a prefix of them.
//! E5 Keys may have up to [`KEY_LEN_MAX`] bytes; the layers above never send longer ones.

mod damage;
pub(crate) mod faulty;
pub(crate) mod fjall;
pub(crate) mod memory;
pub(crate) mod scrub;

use std::{
    any::Any,
    fmt,
    ops::{Bound, RangeBounds},
    path::PathBuf,
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use byteview::ByteView;

use crate::StorageError;

/// The bytes of a key or a value. Cloning is cheap; short ones are stored inline.
pub(crate) use ::fjall::Slice;

/// The part of `bytes` in `range`, which is cut at the end of `bytes`. A long part shares the memory of `bytes`.
pub(crate) fn part(bytes: Slice, range: impl RangeBounds<usize>) -> Slice {
    let len = bytes.len();
    let end = range.end_bound().map(|end| *end.min(&len));
    let start = range.start_bound().map(|start| *start.min(&len));
    ByteView::from(bytes).slice((start, end)).into()
}

/// The longest key that an engine must accept. fjall panics at more than 65,535 bytes and then refuses all further
/// work.
pub(crate) const KEY_LEN_MAX: usize = 32 * 1024;

/// The fixed set of keyspaces. Real deployments have tens of thousands of tables, so a table is a key prefix in a
/// keyspace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub(crate) enum Keyspace {
    /// The newest version of every key.
    Current,
    /// Versions that were replaced or deleted.
    History,
    /// The rows of prepared transactions.
    Prepared,
    /// The oplog.
    Oplog,
    /// Documents of the node itself, counts and marks.
    Meta,
}

impl Keyspace {
    /// All keyspaces, in the order of their numbers.
    pub(crate) const ALL: [Self; 5] =
        [Self::Current, Self::History, Self::Prepared, Self::Oplog, Self::Meta];

    /// The name of the keyspace on disk.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::History => "history",
            Self::Prepared => "prepared",
            Self::Oplog => "oplog",
            Self::Meta => "meta",
        }
    }
}

/// Whether a commit waits for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sync {
    /// The data was handed to the operating system: it survives a crash of the process, but not a power loss.
    No,
    /// The data is on disk when the call returns.
    Yes,
}

/// Writes that are applied atomically. If a key is written more than once, the last write counts.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) writes: Vec<(Keyspace, Slice, Option<Slice>)>,
    pub(crate) bytes: u64,
}

impl Batch {
    pub(crate) fn put(&mut self, ks: Keyspace, key: impl Into<Slice>, value: impl Into<Slice>) {
        let (key, value) = (key.into(), value.into());
        debug_assert!(key.len() <= KEY_LEN_MAX, "E5: key of {} bytes", key.len());
        self.bytes += (key.len() + value.len()) as u64;
        self.writes.push((ks, key, Some(value)));
    }

    /// Removes a key. The key need not exist.
    pub(crate) fn remove(&mut self, ks: Keyspace, key: impl Into<Slice>) {
        let key = key.into();
        self.bytes += key.len() as u64;
        self.writes.push((ks, key, None));
    }
}

/// A key with its value, or the error that reading it caused.
pub(crate) type Item = Result<(Slice, Slice), StorageError>;
/// An iterator over rows in key order.
pub(crate) type Iter = Box<dyn Walk>;
/// A test that gets the length of a key and the value, without copying them.
pub(crate) type Look<'t> = &'t mut dyn FnMut(usize, &[u8]) -> bool;

/// Rows in key order.
pub(crate) trait Walk: Iterator<Item = Item> + Send {
    /// The next row that passes the test, or the error that reading it caused. An engine need not copy the rows that
    /// fail the test.
    fn next_where(&mut self, test: Look<'_>) -> Option<Item>;
}

/// An iterator that copies every row, whether it passes the test or not.
pub(crate) struct Made<I>(pub(crate) I);

impl<I: Iterator<Item = Item> + Send> Iterator for Made<I> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        self.0.next()
    }
}

impl<I: Iterator<Item = Item> + Send> Walk for Made<I> {
    fn next_where(&mut self, test: Look<'_>) -> Option<Item> {
        self.0.find(|item| item.as_ref().map_or(true, |(key, value)| test(key.len(), value)))
    }
}

/// An ordered key-value store.
pub(crate) trait Engine: Send + std::marker::Sync {
    /// A snapshot of the current state.
    fn snapshot(&self) -> Arc<dyn Snapshot>;
    /// Writes a batch atomically (E1).
    fn commit(&self, batch: Batch, sync: Sync) -> Result<(), StorageError>;
    /// Makes everything committed so far durable (E3).
    fn sync(&self) -> Result<(), StorageError>;
    /// The engine's sequence number of the last write that is known to be on disk.
    fn synced(&self) -> u64;
    /// Regular maintenance, called about once a second. Fails if the engine has stopped or if one of its files is
    /// known to be damaged.
    fn tend(&self) -> Result<(), StorageError>;
    /// The first damage that a read or a write has found, if any.
    fn damage(&self) -> Option<String>;
    /// Adds a long run of new keys in strictly ascending order, without writing them to the journal. The whole run
    /// becomes visible and durable at once.
    fn ingest(&self, ks: Keyspace, run: &mut dyn Iterator<Item = Item>)
    -> Result<(), StorageError>;
    /// Declares that the caller will never again read or write keys in `from..to`, so the engine may remove them at
    /// any time. The declaration is lost at a restart.
    fn forget(&self, ks: Keyspace, from: &[u8], to: &[u8]) -> Result<(), StorageError>;
    /// Withdraws all `forget` declarations of a keyspace: its keys were removed and may be written again.
    fn recall(&self, ks: Keyspace);
    /// Flushes the memory that large values occupy.
    fn settle(&self);
    /// Returns the files that hold the committed state. The files do not change until the result is dropped.
    fn freeze(&self) -> Result<Frozen, StorageError>;
    /// The approximate size on disk in bytes.
    fn disk_bytes(&self, ks: Keyspace) -> u64;
}

/// An engine's files as of one snapshot. Their names are relative to the engine's directory.
pub(crate) struct Frozen {
    /// A snapshot of the same state.
    pub(crate) snapshot: Arc<dyn Snapshot>,
    pub(crate) files: Vec<FrozenFile>,
    /// How long writers were blocked.
    pub(crate) paused: Duration,
    /// Keeps the engine from removing the files.
    pub(crate) _held: Box<dyn Any + Send>,
}

/// A file of [`Frozen`].
pub(crate) struct FrozenFile {
    pub(crate) name: String,
    pub(crate) content: Content,
}

/// The content that a copy of the file gets.
pub(crate) enum Content {
    /// The content of a small file that the engine may replace at any time, so it was already read.
    Bytes(Vec<u8>),
    /// A file that is written once and never changed. `sum` is the engine's checksum of the whole file, known without
    /// reading it.
    File { path: PathBuf, sum: Option<u128> },
}

/// An unchanging view of an engine's state.
pub(crate) trait Snapshot: Send + std::marker::Sync {
    /// The value of a key.
    fn get(&self, ks: Keyspace, key: &[u8]) -> Result<Option<Slice>, StorageError>;
    /// The rows between two bounds in ascending key order.
    fn range(&self, ks: Keyspace, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Iter;
    /// The rows between two bounds in descending key order.
    fn range_back(&self, ks: Keyspace, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Iter;
}

/// Which engine holds the data (`--storageEngine`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EngineKind {
    /// The log-structured engine on disk.
    #[default]
    Fjall,
    /// Everything is kept in memory and lost when the process ends. For tests.
    Memory,
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fjall => "fjall",
            Self::Memory => "memory",
        })
    }
}

impl FromStr for EngineKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "fjall" => Ok(Self::Fjall),
            "memory" => Ok(Self::Memory),
            other => Err(format!("unknown storage engine {other}; there are fjall and memory")),
        }
    }
}

#[cfg(test)]
mod tests;
