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
    mpsc,
};

use bson::RawBsonRef;
use protocol::{
    Namespace, OpTime, OpTimeAndWall, OplogEntry, RawDoc, Timestamp,
    oplog_entry::{Command, MultiOpType, OpKind, ReplOperation},
};
use storage::{Apply, Collection, ReadAhead, Store};
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
/// Documents that are read ahead for one engine batch.
const READ_AHEAD_MAX: usize = 8_000;

/// Entries that can be applied.
struct Ready<'a> {
    entries: Vec<OplogEntry<'a>>,
    /// What is wrong with the entry after them.
    bad: Option<ApplyError>,
    rows: Option<ReadAhead>,
}

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

    /// Applies `entries`, which follow what is applied, in as few engine batches as the limits allow. While some are
    /// applied, another thread parses the next and reads their documents.
    pub fn apply(&self, entries: &[RawDoc]) -> Result<(), ApplyError> {
        let (first, rest) = entries.split_at(entries.len().min(BATCH_OPS_MAX));
        let first = self.make_ready(first)?;
        if rest.is_empty() {
            return self.apply_ready(first);
        }
        let (ready, next) = mpsc::sync_channel(0);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for some in rest.chunks(BATCH_OPS_MAX) {
                    // Nobody waits for it any more: what was applied has failed.
                    if ready.send(self.make_ready(some)).is_err() {
                        return;
                    }
                }
            });
            self.apply_ready(first)?;
            next.into_iter().try_for_each(|some| self.apply_ready(some?))
        })
    }

    /// What comes before a bad entry takes effect.
    fn apply_ready(&self, ready: Ready<'_>) -> Result<(), ApplyError> {
        self.apply_parsed(&ready.entries, ready.rows)?;
        ready.bad.map_or(Ok(()), Err)
    }

    /// Parses entries and reads the documents that they change.
    fn make_ready<'a>(&self, some: &'a [RawDoc]) -> Result<Ready<'a>, ApplyError> {
        let mut entries = Vec::with_capacity(some.len());
        let bad = some.iter().map(parse).find_map(|entry| match entry {
            Ok(entry) => {
                entries.push(entry);
                None
            }
            Err(error) => Some(error),
        });
        if some.len() < READ_AHEAD_FROM {
            return Ok(Ready { entries, bad, rows: None });
        }
        let mut ahead = self.store.read_ahead();
        let mut ids = Vec::with_capacity(entries.len());
        for entry in &entries {
            note_documents(&ahead, &entry.op, &mut ids);
        }
        ahead.read(&ids)?;
        Ok(Ready { entries, bad, rows: Some(ahead) })
    }

    fn apply_parsed(
        &self,
        entries: &[OplogEntry<'_>],
        rows: Option<ReadAhead>,
    ) -> Result<(), ApplyError> {
        let mut batch = self.store.begin_apply();
        if let Some(rows) = rows {
            batch.take_ahead(rows);
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

/// The documents that an operation changes, or those within an `applyOps`: from 8.0 on one holds many inserts. What is
/// wrong with one shows when it is applied.
fn note_documents<'a>(
    ahead: &ReadAhead,
    op: &ReplOperation<'a>,
    ids: &mut Vec<(Arc<Collection>, RawBsonRef<'a>)>,
) {
    match &op.kind {
        OpKind::Insert | OpKind::Update { .. } | OpKind::Delete => {
            if ids.len() < READ_AHEAD_MAX
                && let Some(coll) = uuid_of(op).and_then(|uuid| ahead.collection(uuid))
                && let Ok(id) = crud::document_id(op, OpTime::NULL)
            {
                ids.push((coll, id));
            }
        }
        OpKind::Command(Command::ApplyOps(ops)) if !ops.partial_txn && !ops.prepare => {
            let room = READ_AHEAD_MAX.saturating_sub(ids.len());
            ops.iter().take(room).flatten().for_each(|op| note_documents(ahead, &op, ids));
        }
        OpKind::Command(_) | OpKind::Noop => {}
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
