//! Reads the documents that a batch will change while the previous batch is applied.
//!
//! ```text
//!   applying thread   batch 1: applied ... committed | batch 2: uses the rows, except those that batch 1 changed
//!   other threads     rows of batch 2 are read       | rows of batch 3 are read
//! ```
//! This is only an optimisation: reading the replaced documents is almost half of the work of a batch, more if they
//! are not cached.
//!
//! R1 A row that was read ahead is used only if no batch committed since the reading began has changed it.
//! R2 Other writers of rows (an initial sync's loader, a rollback) never run concurrently with reading ahead.

use std::{
    num::NonZero,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use bson::RawBsonRef;
use parking_lot::Mutex;
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    Collection, StorageError,
    apply::Apply,
    engine::Slice,
    keystring,
    layout::{TableId, cut},
    mvcc::{Changes, Version},
    store::Inner,
};

/// Limit on reading threads; a disk serves only some reads in parallel.
const THREADS_MAX: usize = 8;
/// Maximum bytes of documents read ahead.
const BYTES_MAX: usize = 8 << 20;
/// Size of the filter of changed rows: with some thousand changed rows, one in a hundred others is taken for changed
/// and read again.
const TOUCHED_BITS: usize = 1 << 20;

/// Rows that were read ahead, and a watcher of the changes meanwhile.
pub struct ReadAhead {
    store: Arc<Inner>,
    touched: Arc<Touched>,
    rows: Vec<(Slice, Option<Version>)>,
}

impl ReadAhead {
    /// Starts watching, so that rows read afterwards can be checked against later changes.
    pub(crate) fn begin(store: Arc<Inner>) -> Self {
        let touched = store.watchers.add();
        Self { store, touched, rows: Vec::new() }
    }

    /// The present collection with this UUID.
    pub fn collection(&self, uuid: Uuid) -> Option<Arc<Collection>> {
        self.store.present().catalog.by_uuid(uuid)
    }

    /// Reads the present versions of documents; only some of them if all would take too much memory.
    pub fn read(&mut self, ids: &[(Arc<Collection>, RawBsonRef<'_>)]) -> Result<(), StorageError> {
        let reader = self.store.present_reader();
        // After a half-written batch, the present rows are not valid.
        if reader.at.is_some() {
            return Ok(());
        }
        let mut rows = Vec::with_capacity(ids.len());
        for (coll, id) in ids.iter().filter(|(coll, _)| coll.capped().is_none()) {
            let key = keystring::encode_raw(*id)?;
            rows.push((coll.table.row(cut(&key).as_deref().unwrap_or(&key)), coll.table));
        }
        // Sorted, because adjacent keys share index blocks.
        rows.sort_unstable();
        rows.dedup();
        let bytes = AtomicUsize::new(0);
        let read = |rows: &[(Slice, TableId)]| -> Result<Vec<Option<Version>>, StorageError> {
            let mut found = Vec::with_capacity(rows.len());
            for (row, table) in rows {
                if bytes.load(Ordering::Relaxed) > BYTES_MAX {
                    break;
                }
                let now = reader.get_row(row, *table)?.map(Version::detached);
                let len = now.as_ref().map_or(0, |now| now.bytes().len());
                bytes.fetch_add(len, Ordering::Relaxed);
                found.push(now);
            }
            Ok(found)
        };
        // One core is left to the applier.
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let share = rows.len().div_ceil(cores.saturating_sub(1).clamp(1, THREADS_MAX)).max(1);
        let found: Result<Vec<_>, StorageError> = std::thread::scope(|scope| {
            let others: Vec<_> =
                rows.chunks(share).skip(1).map(|rows| scope.spawn(|| read(rows))).collect();
            let first = read(rows.chunks(share).next().unwrap_or_default());
            let others = others
                .into_iter()
                .map(|other| other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            std::iter::once(first).chain(others).collect()
        });
        for (rows, found) in rows.chunks(share).zip(found?) {
            self.rows.extend(rows.iter().map(|(row, _)| row.clone()).zip(found));
        }
        Ok(())
    }
}

impl Apply {
    /// Uses the rows that were read ahead for this batch (R1).
    pub fn take_ahead(&mut self, ahead: ReadAhead) {
        if ahead.touched.all.load(Ordering::SeqCst) {
            return;
        }
        self.changes.expect_documents(ahead.rows.len());
        for (row, now) in ahead.rows {
            if !ahead.touched.has(&row) {
                self.changes.preload(row, now);
            }
        }
    }
}

/// All active watchers.
#[derive(Default)]
pub(crate) struct Watchers(Mutex<Vec<Weak<Touched>>>);

/// Hashes of the rows that one batch changes.
pub(crate) struct Changed(Option<Vec<u64>>);

impl Watchers {
    fn add(&self) -> Arc<Touched> {
        let touched = Arc::new(Touched::default());
        let mut all = self.0.lock();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&touched));
        touched
    }

    /// Called before a batch is committed. Costs nothing if nobody is watching.
    pub(crate) fn changed_by(&self, changes: &Changes) -> Changed {
        let watched = self.0.lock().iter().any(|watcher| watcher.strong_count() > 0);
        Changed(watched.then(|| changes.changed_rows().map(|row| xxh3_64(row)).collect()))
    }

    /// Called after the commit: readers that start later see the batch. A watcher added during the commit may not
    /// have seen it and discards everything it read.
    pub(crate) fn tell(&self, changed: &Changed) {
        for watcher in self.0.lock().iter().filter_map(Weak::upgrade) {
            match &changed.0 {
                Some(rows) => rows.iter().for_each(|row| watcher.mark(*row)),
                None => watcher.all.store(true, Ordering::SeqCst),
            }
        }
    }
}

impl Changed {
    /// For a batch written in parts, whose earlier rows are no longer known: everything counts as changed.
    pub(crate) fn anything() -> Self {
        Self(None)
    }
}

/// The changed rows, as a bit set of key hashes.
struct Touched {
    all: AtomicBool,
    bits: Vec<AtomicU64>,
}

impl Default for Touched {
    fn default() -> Self {
        let words = TOUCHED_BITS / 64;
        Self { all: AtomicBool::new(false), bits: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Touched {
    fn word(&self, hash: u64) -> Option<&AtomicU64> {
        let at = usize::try_from(hash >> 6).unwrap_or(usize::MAX) % self.bits.len();
        self.bits.get(at)
    }

    fn mark(&self, hash: u64) {
        if let Some(word) = self.word(hash) {
            word.fetch_or(1 << (hash & 63), Ordering::SeqCst);
        }
    }

    fn has(&self, row: &[u8]) -> bool {
        let hash = xxh3_64(row);
        self.word(hash).is_some_and(|word| word.load(Ordering::SeqCst) & (1 << (hash & 63)) != 0)
    }
}
