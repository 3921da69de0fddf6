//! Turns oplog entries into effects on the store.
//!
//! ```text
//!  entries (in order) -----------+--> crud.rs          one document
//!                              +--> ddl.rs           the catalog
//!                              +--> transactions.rs  applyOps: one moment for many operations
//!                              |        |
//!                              |        v
//!                              +--> derived.rs       rows that the oplog does not carry
//! ```
//!
//! A1 Entries take effect in the order of the oplog, each at its own timestamp, never twice: what is
//!    committed carries the "applied through" mark in the same batch.
//! A2 Nothing is skipped. What cannot be applied stops the applier with the entry's position.
//! A3 During initial sync the clone may already hold the effect of an entry, so every operation there is idempotent.

mod capped;
mod crud;
mod ddl;
mod derived;
mod error;
mod expiry;
mod index_builds;
mod options;
mod sessions;
mod transactions;

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

use protocol::{
    Namespace, OpTime, OpTimeAndWall, OplogEntry, RawDoc, Timestamp,
    oplog_entry::{Command, MultiOpType, OpKind, ReplOperation},
};
use storage::{Apply, Store};
use uuid::Uuid;

pub use self::error::ApplyError;
pub use self::index_builds::{BuildReady, IndexBuilds};

/// Under which rules entries are applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Our data is the primary's as of the entry before: every entry must fit.
    Steady,
    /// Our data is a clone that may be ahead of the entry: entries are made to fit.
    InitialSync,
}

/// How often an entry did not fit our data. Anything but zero makes the node suspect.
#[derive(Debug, Default)]
pub struct Misfits {
    missing_documents: AtomicU64,
}

impl Misfits {
    /// Updates whose document was not there.
    pub fn missing_documents(&self) -> u64 {
        self.missing_documents.load(Ordering::Relaxed)
    }
}

/// An engine batch is committed when its effects reach this size, so that memory stays bounded and
/// readers see progress.
const BATCH_BYTES_MAX: u64 = 8 << 20;
/// Operations in one engine batch.
const BATCH_OPS_MAX: usize = 2_000;
/// With so many entries at once we are behind: documents are read ahead.
const READ_AHEAD_FROM: usize = 200;

/// Applies entries to a store.
pub struct Applier {
    store: Store,
    mode: Mode,
    build_indexes: bool,
    builds: Arc<IndexBuilds>,
    misfits: Arc<Misfits>,
    names: Names,
    /// When pre-images are looked at next, in milliseconds by the clock of the entries.
    next_expiry: AtomicI64,
}

/// The collections with derived rows.
struct Names {
    transactions: Namespace,
    images: Namespace,
    pre_images: Namespace,
}

impl Applier {
    /// An applier of `store`. `build_indexes: false` keeps `_id` indexes alone.
    pub fn new(store: Store, mode: Mode, build_indexes: bool, builds: Arc<IndexBuilds>) -> Self {
        let names = Names {
            transactions: Namespace::new("config", "transactions"),
            images: Namespace::new("config", "image_collection"),
            pre_images: Namespace::new("config", "system.preimages"),
        };
        let (misfits, next_expiry) = (Arc::default(), AtomicI64::new(0));
        Self { store, mode, build_indexes, builds, misfits, names, next_expiry }
    }

    /// How well the entries fitted so far.
    pub fn misfits(&self) -> Arc<Misfits> {
        self.misfits.clone()
    }

    /// Applies `entries`, which follow what is applied, in as few engine batches as the limits allow.
    pub fn apply(&self, entries: &[RawDoc]) -> Result<(), ApplyError> {
        for some in entries.chunks(BATCH_OPS_MAX) {
            let mut parsed = Vec::with_capacity(some.len());
            let bad = some.iter().map(parse).find_map(|entry| match entry {
                Ok(entry) => {
                    parsed.push(entry);
                    None
                }
                Err(error) => Some(error),
            });
            // What comes before a bad entry takes effect.
            self.apply_parsed(&parsed)?;
            bad.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    fn apply_parsed(&self, entries: &[OplogEntry<'_>]) -> Result<(), ApplyError> {
        let mut batch = self.store.begin_apply();
        if entries.len() >= READ_AHEAD_FROM {
            self.read_ahead(&mut batch, entries)?;
        }
        let mut through: Option<OpTimeAndWall> = None;
        for entry in entries {
            let alone = stands_alone(entry);
            if let Some(done) = through
                && (alone || batch.bytes() >= BATCH_BYTES_MAX)
            {
                batch.commit(done)?;
                batch = self.store.begin_apply();
                through = None;
            }
            if alone {
                drop(batch);
                self.apply_alone(entry)?;
                batch = self.store.begin_apply();
            } else {
                self.entry(&mut batch, entry)?;
                through = Some(position(entry));
            }
        }
        match through {
            Some(done) => {
                self.expire_pre_images(&mut batch, done)?;
                Ok(batch.commit(done)?)
            }
            None => Ok(()),
        }
    }

    /// Reads the documents that are updated and deleted, on several threads: entries take effect one after the other, and
    /// would wait for the disk one after the other.
    fn read_ahead(&self, batch: &mut Apply, entries: &[OplogEntry<'_>]) -> Result<(), ApplyError> {
        let mut ids = Vec::with_capacity(entries.len());
        for entry in entries {
            if let OpKind::Update { .. } | OpKind::Delete = entry.op.kind
                && let Some(coll) = uuid_of(&entry.op).and_then(|uuid| batch.collection(uuid))
                && let Ok(id) = crud::document_id(&entry.op, entry.op_time)
            {
                ids.push((coll, id));
            }
        }
        Ok(batch.prefetch(&ids)?)
    }

    /// An entry with a batch of its own, and what must come before and after it.
    fn apply_alone(&self, entry: &OplogEntry<'_>) -> Result<(), ApplyError> {
        self.before(entry)?;
        let mut batch = self.store.begin_apply();
        self.entry(&mut batch, entry)?;
        batch.commit(position(entry))?;
        self.after(entry);
        Ok(())
    }

    /// At the end of an initial sync: takes hold of the transactions that are prepared and undecided.
    pub fn hold_prepared_transactions(&self, through: OpTimeAndWall) -> Result<(), ApplyError> {
        let prepared = self.prepared_rows()?;
        let mut batch = self.store.begin_apply();
        for at in prepared {
            self.hold_prepared(&mut batch, at)?;
        }
        Ok(batch.commit(through)?)
    }

    fn entry(&self, batch: &mut Apply, entry: &OplogEntry<'_>) -> Result<(), ApplyError> {
        let ts = entry.op_time.ts;
        match &entry.op.kind {
            OpKind::Noop if tells_of_migrated_write(entry) => {
                self.note_session(batch, entry, None, None)
            }
            OpKind::Noop => Ok(()),
            OpKind::Insert | OpKind::Update { .. } | OpKind::Delete => {
                self.crud(batch, entry, &entry.op, Moment { ts, place: Place::of(entry) })?;
                self.note_retryable_write(batch, entry)
            }
            OpKind::Command(Command::ApplyOps(ops)) => self.apply_ops(batch, entry, ops),
            OpKind::Command(Command::CommitTransaction { commit_timestamp }) => {
                self.commit_transaction(batch, entry, *commit_timestamp)
            }
            OpKind::Command(Command::AbortTransaction) => self.abort_transaction(batch, entry),
            OpKind::Command(command) => self.ddl(batch, entry, &entry.op, command, ts),
        }
    }
}

/// Index builds read the store beside us, and a transaction in many entries may be larger than memory, which only
/// a batch at one timestamp can put into the store in parts: these share a batch with nobody.
fn stands_alone(entry: &OplogEntry<'_>) -> bool {
    match &entry.op.kind {
        OpKind::Command(
            Command::StartIndexBuild(_)
            | Command::CommitIndexBuild(_)
            | Command::AbortIndexBuild { .. }
            | Command::CommitTransaction { .. },
        ) => true,
        OpKind::Command(Command::ApplyOps(ops)) => {
            !ops.partial_txn
                && entry.multi_op_type != Some(MultiOpType::AppliedSeparately)
                && entry.prev_op_time.is_some_and(|prev| !prev.is_null())
        }
        _ => false,
    }
}

/// A retryable write that came with a chunk from another shard changes no data here, but a retry must find it. Images of
/// find-and-modify are no-ops of a session too, and tell nothing about it.
fn tells_of_migrated_write(entry: &OplogEntry<'_>) -> bool {
    let sentinel = || entry.op.o.get("$wouldChangeOwningShard").is_ok_and(|it| it.is_some());
    entry.op.from_migrate && entry.op.o2.is_some_and(|o2| o2.iter().next().is_some() || sentinel())
}

fn parse(raw: &RawDoc) -> Result<OplogEntry<'_>, ApplyError> {
    OplogEntry::parse(raw)
        .map_err(|e| ApplyError::entry(OpTime::from_raw(raw).unwrap_or(OpTime::NULL), e))
}

fn position(entry: &OplogEntry<'_>) -> OpTimeAndWall {
    OpTimeAndWall { op_time: entry.op_time, wall: entry.wall }
}

/// The collection of an operation, in the store's type of UUID.
fn uuid_of(op: &ReplOperation<'_>) -> Option<Uuid> {
    op.ui.map(|uuid| Uuid::from_bytes(uuid.bytes()))
}

/// When an operation takes effect, and where it stands.
#[derive(Clone, Copy, Debug)]
struct Moment {
    ts: Timestamp,
    place: Place,
}

/// Where an operation stands in the oplog: of a transaction in many entries each operation has its own entry's place.
#[derive(Clone, Copy, Debug)]
struct Place {
    ts: Timestamp,
    wall: bson::DateTime,
    /// Place within the `applyOps`; 0 for an entry of its own.
    index: i64,
}

impl Place {
    /// The first operation of an entry.
    fn of(entry: &OplogEntry<'_>) -> Self {
        Self { ts: entry.op_time.ts, wall: entry.wall, index: 0 }
    }
}

#[cfg(test)]
mod tests;
