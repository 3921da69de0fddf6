//! Applies oplog entries to the store.
//!
//! ```text
//!  entries (in order) -----------+--> crud.rs          one document
//!                              +--> ddl.rs           the catalog
//!                              +--> transactions.rs  applyOps: one timestamp for many operations
//!                              |        |
//!                              |        v
//!                              +--> derived.rs       rows that the oplog does not contain
//! ```
//!
//! A1 Entries take effect in oplog order, each at its own timestamp, never twice: a commit contains the "applied
//!    through" mark in the same batch.
//! A2 Nothing is skipped. An entry that cannot be applied stops the applier, which reports the entry's position.
//! A3 During initial sync the clone may already contain the effect of an entry, so every operation is idempotent
//!    there.

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

/// The rules by which entries are applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Our data equals the primary's as of the previous entry: every entry must fit.
    Steady,
    /// Our data is a clone that may be ahead of the entry: misfits are tolerated.
    InitialSync,
}

/// How often an entry did not fit our data. Any value but zero is suspicious.
#[derive(Debug, Default)]
pub struct Misfits {
    missing_documents: AtomicU64,
}

impl Misfits {
    /// Number of updates whose document was missing.
    pub fn missing_documents(&self) -> u64 {
        self.missing_documents.load(Ordering::Relaxed)
    }
}

/// A batch is committed when its effects reach this size, so that memory stays bounded and readers see progress.
const BATCH_BYTES_MAX: u64 = 8 << 20;
/// Maximum operations in one engine batch.
const BATCH_OPS_MAX: usize = 2_000;
/// With this many entries at once the node is behind, so documents are read ahead.
const READ_AHEAD_FROM: usize = 200;
/// Maximum documents read ahead for one engine batch.
const READ_AHEAD_MAX: usize = 8_000;

/// Parsed entries, ready to be applied.
struct Ready<'a> {
    entries: Vec<OplogEntry<'a>>,
    /// The error of the entry after them, if it is bad.
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
    /// When pre-images are checked next, in milliseconds by the clock of the entries.
    next_expiry: AtomicI64,
}

/// The collections of derived rows.
struct Names {
    transactions: Namespace,
    images: Namespace,
    pre_images: Namespace,
}

impl Applier {
    /// An applier for `store`. With `build_indexes: false` only `_id` indexes are kept.
    pub fn new(store: Store, mode: Mode, build_indexes: bool, builds: Arc<IndexBuilds>) -> Self {
        let names = Names {
            transactions: Namespace::new("config", "transactions"),
            images: Namespace::new("config", "image_collection"),
            pre_images: Namespace::new("config", "system.preimages"),
        };
        let (misfits, next_expiry) = (Arc::default(), AtomicI64::new(0));
        Self { store, mode, build_indexes, builds, misfits, names, next_expiry }
    }

    /// The misfits so far.
    pub fn misfits(&self) -> Arc<Misfits> {
        self.misfits.clone()
    }

    /// Applies `entries`, which must follow what is already applied, in as few engine batches as the limits allow.
    /// While one part is applied, another thread parses the next one and reads its documents.
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
                    // The receiver is gone because applying has failed.
                    if ready.send(self.make_ready(some)).is_err() {
                        return;
                    }
                }
            });
            self.apply_ready(first)?;
            next.into_iter().try_for_each(|some| self.apply_ready(some?))
        })
    }

    /// Entries before a bad one take effect.
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

    /// Applies an entry in its own batch, with what must happen before and after it.
    fn apply_alone(&self, entry: &OplogEntry<'_>) -> Result<(), ApplyError> {
        self.before(entry)?;
        let mut batch = self.store.begin_apply();
        self.entry(&mut batch, entry)?;
        batch.commit(position(entry))?;
        self.after(entry);
        Ok(())
    }

    /// At the end of an initial sync: restores the undecided prepared transactions.
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

/// Collects the documents that an operation changes, including those inside an `applyOps`: since 8.0 one may contain
/// many inserts. Errors are ignored here; they are reported when the entry is applied.
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

/// True for entries that need a batch of their own: index builds read the store concurrently, and a transaction of
/// many entries may exceed memory, so it must be written in parts, which requires a single timestamp.
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

/// True for a retryable write that came with a migrated chunk: it changes no data here, but a retry must find it.
/// Images of find-and-modify are also no-ops with a session, but do not count.
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

/// The collection UUID of an operation, in the store's UUID type.
fn uuid_of(op: &ReplOperation<'_>) -> Option<Uuid> {
    op.ui.map(|uuid| Uuid::from_bytes(uuid.bytes()))
}

/// When an operation takes effect, and its position.
#[derive(Clone, Copy, Debug)]
struct Moment {
    ts: Timestamp,
    place: Place,
}

/// The position of an operation in the oplog: in a transaction of many entries each operation has the position of its
/// own entry.
#[derive(Clone, Copy, Debug)]
struct Place {
    ts: Timestamp,
    wall: bson::DateTime,
    /// Index within the `applyOps`; 0 for a plain entry.
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
