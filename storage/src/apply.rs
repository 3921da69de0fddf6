//! One batch of changes: documents, index entries, catalog, counts and the "applied through" mark, written
//! atomically.
//!
//! A batch sees its own writes. Readers see none of them before [`Apply::commit`], and all of them after it. The
//! batch is not synced: after a crash it is replayed from the oplog, starting at the mark. Mark and effects are in
//! one engine batch, so they are lost or kept together.
//!
//! A1 Writes come in timestamp order, all after `applied`. Of several writes to a row at one timestamp only the last
//!    remains.
//! A2 Every document of a collection has its keys in each index that keeps keys, and no index has other keys.
//! A3 The counts equal the number and size of the documents.

mod ddl;
pub(crate) mod documents;
pub(crate) mod prepared;

use std::{collections::HashMap, sync::Arc, sync::atomic::Ordering};

use self::prepared::{Prepared, TxnId};
use bson::RawDocument;
use protocol::{Namespace, OpTimeAndWall, Timestamp};
use uuid::Uuid;

use crate::{
    StorageError,
    catalog::{Catalog, Collection},
    count_log::CountLog,
    engine::{Batch, Keyspace, Sync},
    layout::{TableId, meta_key, numbers},
    mvcc::{
        Changes,
        write::{Undo, When},
    },
    read_ahead::Changed,
    store::{Counts, Inner, applied_value, mark_key},
};

/// After a batch larger than this the engine flushes its memory before the next batch: with documents of 16 MiB,
/// resident memory then stays at 263 MiB (measured).
const SETTLE_BYTES: u64 = 8 << 20;
/// Maximum bytes of undo rows in one value.
const UNDO_VALUE_BYTES: usize = 32 << 10;

/// A batch. If it is dropped without [`Self::commit`], none of it is visible.
pub struct Apply {
    store: Arc<Inner>,
    pub(crate) changes: Changes,
    catalog: Catalog,
    catalog_changed: bool,
    counts: HashMap<TableId, Counts>,
    count_log: HashMap<TableId, CountLog>,
    /// Prepared transactions that this batch prepared (`Some`), committed or aborted (`None`).
    prepared: HashMap<TxnId, Option<Prepared>>,
    /// Rows of `meta` that are written with the batch.
    meta: Batch,
    /// The timestamp of the first write; `several` is set if writes have different timestamps.
    only: Option<Timestamp>,
    several: bool,
    /// The catalog was changed: such a batch is not written in parts.
    writes_elsewhere: bool,
    /// A part was written to the engine beyond `applied` and must be replayed if the batch is not committed.
    spilled: bool,
    /// A part was written to the engine, here or during an initial sync.
    in_parts: bool,
    undo_values: u32,
}

impl Apply {
    pub(crate) fn begin(store: Arc<Inner>) -> Self {
        store.turn.take();
        let initial = store.initial_sync.load(Ordering::SeqCst);
        let keep_history = !initial && store.history.keeps();
        let applied = store.marks.applied().op_time.ts;
        if keep_history {
            store.history.roll(protocol::Timestamp::from_u64(applied.as_u64() + 1));
        }
        Self {
            changes: Changes::new(store.present_reader(), keep_history),
            catalog: store.present().catalog.clone(),
            catalog_changed: false,
            counts: HashMap::new(),
            count_log: HashMap::new(),
            prepared: HashMap::new(),
            meta: Batch::default(),
            only: None,
            several: false,
            writes_elsewhere: false,
            spilled: false,
            in_parts: false,
            undo_values: 0,
            store,
        }
    }

    /// The collection with this UUID, including this batch's changes.
    pub fn collection(&self, uuid: Uuid) -> Option<Arc<Collection>> {
        self.catalog.by_uuid(uuid)
    }

    /// The collection with this name, including this batch's changes.
    pub fn collection_by_name(&self, ns: &Namespace) -> Option<Arc<Collection>> {
        self.catalog.collection(ns)
    }

    /// The collections of a database, including this batch's changes.
    pub fn collections(&self, db: &str) -> Vec<Arc<Collection>> {
        self.catalog.list(db).collect()
    }

    /// The catalog, including this batch's changes.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Writes a node document with this batch.
    pub fn put_meta(&mut self, name: &str, doc: &RawDocument) {
        self.meta.put(Keyspace::Meta, meta_key(b'd', &[name.as_bytes()]), doc.as_bytes());
    }

    /// Approximate size of the batch in bytes.
    pub fn bytes(&self) -> u64 {
        self.changes.bytes() + self.meta.bytes
    }

    /// Makes everything visible at once, with the mark that says how far the oplog is applied. Advances `applied`.
    pub fn commit(self, through: OpTimeAndWall) -> Result<(), StorageError> {
        self.commit_then(through, || ())
    }

    /// Commits, and runs `then` before the next batch may begin.
    pub(crate) fn commit_then<T>(
        mut self,
        through: OpTimeAndWall,
        then: impl FnOnce() -> T,
    ) -> Result<T, StorageError> {
        let mut batch = std::mem::take(&mut self.meta);
        let keep_history = self.changes.keeps_history();
        let changed = match self.in_parts {
            false => self.store.watchers.changed_by(&self.changes),
            true => Changed::anything(),
        };
        let undo = self.take_changes().into_batch(&mut batch);
        if keep_history {
            self.store.history.save(&mut batch);
            let end = through.op_time.ts;
            put_undo(undo, end, self.undo_values, &mut batch);
            for (table, log) in self.count_log.drain() {
                log.save(table, end, &self.store.history, &mut batch);
            }
        }
        for (table, counts) in &self.counts {
            batch.put(Keyspace::Meta, Counts::key(*table), counts.to_value());
        }
        let next_table = self.store.next_table.load(Ordering::SeqCst);
        batch.put(Keyspace::Meta, mark_key("nextTable"), numbers([u64::from(next_table)]));
        batch.put(Keyspace::Meta, mark_key("applied"), applied_value(through, &*self.store.engine));
        if self.spilled || self.store.partial.load(Ordering::SeqCst) {
            batch.remove(Keyspace::Meta, mark_key("partial"));
        }
        let large = batch.bytes > SETTLE_BYTES;
        self.store.batch_bytes.fetch_add(batch.bytes, Ordering::Relaxed);
        self.store.low.lower(&batch);
        self.store.engine.commit(batch, Sync::No)?;
        if large {
            self.store.engine.settle();
        }
        self.spilled = false;
        self.store.partial.store(false, Ordering::SeqCst);
        self.store.counts.lock().extend(self.counts.drain());
        self.store.publish(self.catalog.clone(), through);
        self.store.watchers.tell(&changed);
        Ok(then())
    }

    /// Writes the changes so far to the engine if the effects of an entry are too large for one engine batch.
    ///
    /// Readers do not see them: they hold the snapshot of the previous batch. After a crash the mark `partial` says
    /// that rows may exist beyond `applied`. Then all readers read at `applied`, including the replay of this batch,
    /// which writes the same rows again. Counts are written with the last part only. This requires history and a
    /// single timestamp, or an initial sync.
    fn spill_if_large(&mut self, when: When) -> Result<(), StorageError> {
        let alone = *self.only.get_or_insert(when.ts) == when.ts;
        self.several |= !alone;
        let large = self.changes.bytes() > self.store.batch_max_bytes;
        if !large || self.writes_elsewhere {
            return Ok(());
        }
        // Nobody reads an unfinished initial sync, and a crash discards it, so a part needs no mark.
        if self.store.initial_sync.load(Ordering::SeqCst) {
            let mut batch = Batch::default();
            self.take_changes().into_batch(&mut batch);
            return self.write_part(batch);
        }
        if self.several || !self.changes.keeps_history() {
            return Ok(());
        }
        let mut batch = Batch::default();
        let through = when.durable.unwrap_or(when.ts);
        batch.put(Keyspace::Meta, mark_key("partial"), numbers([through.as_u64()]));
        let undo = self.take_changes().into_batch(&mut batch);
        // In a replay, rows of the first attempt remain. Only those that were written again belong to this batch.
        if self.changes.reader.at.is_some() {
            self.changes.note_own(&batch);
        }
        self.store.history.save(&mut batch);
        self.undo_values = put_undo(undo, through, self.undo_values, &mut batch);
        self.spilled = true;
        self.write_part(batch)
    }

    /// Writes a part; this batch's reads see it from then on.
    fn write_part(&mut self, batch: Batch) -> Result<(), StorageError> {
        self.in_parts = true;
        self.store.low.lower(&batch);
        self.store.engine.commit(batch, Sync::No)?;
        self.store.engine.settle();
        self.changes.reader.snapshot = self.store.engine.snapshot();
        self.changes.reader.number = self.store.low.latest();
        Ok(())
    }

    fn take_changes(&mut self) -> Changes {
        let fresh = self.changes.successor();
        std::mem::replace(&mut self.changes, fresh)
    }

    /// The current handle of a collection, if a catalog change of this batch made the caller's handle outdated.
    fn current(&self, coll: &Collection) -> Result<Option<Arc<Collection>>, StorageError> {
        if !self.catalog_changed {
            return Ok(None);
        }
        let uuid = coll.uuid();
        self.catalog.by_uuid(uuid).map(Some).ok_or(StorageError::NoCollection(uuid))
    }

    /// Maintains A3.
    fn count(&mut self, when: When, table: TableId, documents: i64, bytes: i64) {
        let before = *self.counts(table);
        if self.changes.keeps_history() {
            let log = self.count_log.entry(table).or_insert_with(|| CountLog::new(before));
            log.push(when, documents, bytes);
        }
        let counts = self.counts(table);
        counts.documents = counts.documents.saturating_add_signed(documents);
        counts.bytes = counts.bytes.saturating_add_signed(bytes);
    }

    fn counts(&mut self, table: TableId) -> &mut Counts {
        self.counts.entry(table).or_insert_with(|| self.store.counts_of(table))
    }
}

impl Drop for Apply {
    fn drop(&mut self) {
        if self.spilled {
            // Part of the batch is in the engine and cannot be removed here: readers read at `applied` until the
            // batch is applied again.
            self.store.partial.store(true, Ordering::SeqCst);
        }
        self.store.turn.give_back();
    }
}

/// Writes the rows that a rollback must examine, in values of bounded size: `flags(1) [ts(8)] length(4) row`,
/// repeated. Returns the number of the next value.
pub(crate) fn put_undo(undo: Vec<Undo>, through: Timestamp, first: u32, batch: &mut Batch) -> u32 {
    let mut value = Vec::new();
    let mut n = first;
    let mut flush = |value: &mut Vec<u8>, batch: &mut Batch| {
        let at = through.as_u64().to_be_bytes();
        batch.put(Keyspace::Meta, meta_key(b'u', &[&at, &n.to_be_bytes()]), std::mem::take(value));
        n += 1;
    };
    for Undo { row, at } in undo {
        match at {
            None => value.push(0),
            Some(at) => {
                value.push(1);
                value.extend_from_slice(&at.as_u64().to_be_bytes());
            }
        }
        value.extend_from_slice(&u32::try_from(row.len()).unwrap_or(u32::MAX).to_be_bytes());
        value.extend_from_slice(&row);
        if value.len() >= UNDO_VALUE_BYTES {
            flush(&mut value, batch);
        }
    }
    if !value.is_empty() {
        flush(&mut value, batch);
    }
    n
}
