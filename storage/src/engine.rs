//! The engine: an ordered key-value store with a few keyspaces, atomic batches and snapshots.
//!
//! Everything above knows only this screen. [`fjall`] is the real one, [`memory`] the model for tests,
//! [`faulty`] any of them with failures on order.
//!
//! What every engine promises:
//! E1 A batch is there whole or not at all, over all keyspaces, also after a crash.
//! E2 A snapshot never changes and spans all keyspaces.
//! E3 After `sync` returns, every batch committed before it began survives a power loss.
//! E4 Batches survive in the order of their commits: after a crash there is a prefix of them.
//! E5 Keys up to [`KEY_LEN_MAX`] bytes are taken; the layers above never send longer ones.

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

/// Bytes of a key or a value; cheap to clone, short ones are kept inline.
pub(crate) use ::fjall::Slice;

/// A part of such bytes, nothing of what lies beyond their end. A long one shares their memory.
pub(crate) fn part(bytes: Slice, range: impl RangeBounds<usize>) -> Slice {
    let len = bytes.len();
    let end = range.end_bound().map(|end| *end.min(&len));
    let start = range.start_bound().map(|start| *start.min(&len));
    ByteView::from(bytes).slice((start, end)).into()
}

/// The longest key an engine must take. fjall ends at 65,535 bytes, and then panics and poisons itself.
pub(crate) const KEY_LEN_MAX: usize = 32 * 1024;

/// The fixed set of keyspaces: real deployments have tens of thousands of tables, so tables are prefixes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub(crate) enum Keyspace {
    /// The newest version of every key.
    Current,
    /// Versions that were replaced or deleted.
    History,
    /// What prepared transactions hold.
    Prepared,
    /// The oplog.
    Oplog,
    /// Node documents, counts, marks.
    Meta,
}

impl Keyspace {
    /// All of them, in order.
    pub(crate) const ALL: [Self; 5] =
        [Self::Current, Self::History, Self::Prepared, Self::Oplog, Self::Meta];

    /// Its name on disk.
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
    /// Handed to the operating system: survives the process, not the power.
    No,
    /// On disk when the call returns.
    Yes,
}

/// Writes that happen together. Within a batch the last write of a key counts.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) writes: Vec<(Keyspace, Slice, Option<Slice>)>,
    pub(crate) bytes: u64,
}

impl Batch {
    /// Sets a key.
    pub(crate) fn put(&mut self, ks: Keyspace, key: impl Into<Slice>, value: impl Into<Slice>) {
        let (key, value) = (key.into(), value.into());
        debug_assert!(key.len() <= KEY_LEN_MAX, "E5: key of {} bytes", key.len());
        self.bytes += (key.len() + value.len()) as u64;
        self.writes.push((ks, key, Some(value)));
    }

    /// Removes a key, there or not.
    pub(crate) fn remove(&mut self, ks: Keyspace, key: impl Into<Slice>) {
        let key = key.into();
        self.bytes += key.len() as u64;
        self.writes.push((ks, key, None));
    }
}

/// One key with its value, or the reason why it cannot be read.
pub(crate) type Item = Result<(Slice, Slice), StorageError>;
/// An ordered walk.
pub(crate) type Iter = Box<dyn Walk>;
/// Looks at the length of a key and at its value, where they lie.
pub(crate) type Look<'t> = &'t mut dyn FnMut(usize, &[u8]) -> bool;

/// Rows in order.
pub(crate) trait Walk: Iterator<Item = Item> + Send {
    /// The next row that passes the test, or the reason why it cannot be read. The others need not be made.
    fn next_where(&mut self, test: Look<'_>) -> Option<Item>;
}

/// Rows that are made anyway.
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

/// An ordered store.
pub(crate) trait Engine: Send + std::marker::Sync {
    /// The present, held still.
    fn snapshot(&self) -> Arc<dyn Snapshot>;
    /// Writes a batch, E1.
    fn commit(&self, batch: Batch, sync: Sync) -> Result<(), StorageError>;
    /// Makes durable what was committed so far, E3.
    fn sync(&self) -> Result<(), StorageError>;
    /// The engine's number of the last write of which it knows that it is on disk.
    fn synced(&self) -> u64;
    /// Upkeep, about once a second. Fails where the engine has stopped, or one of its files is known to be damaged.
    fn tend(&self) -> Result<(), StorageError>;
    /// The first damage that a read or a write came upon, if any did.
    fn damage(&self) -> Option<String>;
    /// Takes a long run of new, strictly ascending keys, past the journal: durable and visible at once, as a whole.
    fn ingest(&self, ks: Keyspace, run: &mut dyn Iterator<Item = Item>)
    -> Result<(), StorageError>;
    /// The caller will never again read or write keys in `from..to`: they may vanish at any time.
    /// The promise is not remembered over a restart.
    fn forget(&self, ks: Keyspace, from: &[u8], to: &[u8]) -> Result<(), StorageError>;
    /// Takes back all promises about a keyspace: its keys were removed and may be written again.
    fn recall(&self, ks: Keyspace);
    /// Writes out the memory behind large values.
    fn settle(&self);
    /// The files that hold what is committed. They stay as they are until the answer is dropped.
    fn freeze(&self) -> Result<Frozen, StorageError>;
    /// Bytes on disk, about.
    fn disk_bytes(&self, ks: Keyspace) -> u64;
}

/// An engine's files at one moment, named below its directory.
pub(crate) struct Frozen {
    /// The same moment to read.
    pub(crate) snapshot: Arc<dyn Snapshot>,
    pub(crate) files: Vec<FrozenFile>,
    /// How long writers had to wait.
    pub(crate) paused: Duration,
    /// What keeps the files in place.
    pub(crate) _held: Box<dyn Any + Send>,
}

/// One of them.
pub(crate) struct FrozenFile {
    pub(crate) name: String,
    pub(crate) content: Content,
}

/// What a copy gets.
pub(crate) enum Content {
    /// Small, and replaced by the engine at any time: read already.
    Bytes(Vec<u8>),
    /// Written once. `sum` is the engine's own checksum of all of it, known without reading it.
    File { path: PathBuf, sum: Option<u128> },
}

/// One moment of an engine.
pub(crate) trait Snapshot: Send + std::marker::Sync {
    /// The value of a key.
    fn get(&self, ks: Keyspace, key: &[u8]) -> Result<Option<Slice>, StorageError>;
    /// The keys between two bounds, upward.
    fn range(&self, ks: Keyspace, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Iter;
    /// The same, downward.
    fn range_back(&self, ks: Keyspace, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Iter;
}

/// Which engine holds the data (`--storageEngine`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EngineKind {
    /// The log-structured engine on disk.
    #[default]
    Fjall,
    /// Everything in memory, gone with the process. For tests.
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
