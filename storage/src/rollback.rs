//! Rolls the store back to the common point.
//!
//! Every row that changed after the common point gets the version that it had then, from history. New rows have no
//! version in history, so the batches that inserted them listed them (`u` rows of `meta`). So did commits of prepared
//! transactions, whose versions have an earlier timestamp than their commit entry.
//!
//! R1 Each row is restored independently, and restoring is idempotent: after a crash it is completed at open.
//! R2 The mark `rollback` is set before the first change and removed after the oplog is truncated. A store that is
//!    opened with the mark completes the rollback, so it never shows the lost branch again.
//! R3 Counts change with the documents, in the same batch.
//! R4 A rollback to before the mark `rollbackFloor` is impossible, because the lists of new rows have been removed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use protocol::{Namespace, OpTimeAndWall, RawDoc, Timestamp};
use uuid::Uuid;

use crate::{
    Catalog, StorageError, Store,
    apply::{prepared, put_undo},
    count_log,
    engine::{Batch, Engine, Keyspace, Slice, Snapshot, Sync},
    layout::{Reader as Bytewise, TableId, meta_key, numbers, split_history_key},
    mvcc::{Reader, Version, write::Undo},
    store::{Counts, Inner, applied_value, mark_key, position_value, read_mark},
};

/// Rows restored in one engine batch.
const ROWS_PER_BATCH: usize = 2_000;

/// A document that a rollback would change.
#[derive(Clone, Debug)]
pub struct LostDocument {
    /// The current name of its collection.
    pub ns: Namespace,
    /// The collection.
    pub uuid: Uuid,
    /// The current version of the document.
    pub doc: RawDoc,
}

impl Store {
    /// The earliest timestamp to which [`Self::rollback_to`] can roll back.
    pub fn rollback_floor(&self) -> Timestamp {
        let inner = &self.0;
        let stable = inner.marks.stable().op_time.ts;
        inner.marks.oldest().max(inner.floor()).max(stable)
    }

    /// Calls `found` with every document that was inserted or changed after `common` and still exists, collection by
    /// collection. Changes nothing. There must be no concurrent writes.
    pub fn lost_documents(
        &self,
        common: Timestamp,
        found: &mut dyn FnMut(LostDocument) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        if self.0.marks.applied().op_time.ts <= common {
            return Ok(());
        }
        let work = Work::new(&self.0, common)?;
        for (row, prepared_at) in work.rows()? {
            let table = TableId(Bytewise(&row).u32().unwrap_or(0));
            let Some((uuid, ns)) = work.documents.get(&table) else { continue };
            let (now, then) = work.versions(&row, prepared_at, &mut Batch::default())?;
            // As in mongod, the documents of a collection that was dropped meanwhile are not reported.
            if let Some(now) = now.filter(|now| work.tables.contains(&table) && !same(now, &then)) {
                found(LostDocument { ns: ns.clone(), uuid: *uuid, doc: now.into_doc()? })?;
            }
        }
        Ok(())
    }

    /// Restores every document, index entry and catalog row to its version at `common`, which must not be before
    /// [`Self::rollback_floor`], and truncates the oplog after it. The result is on disk when this returns. If nothing
    /// after `common` was applied yet, only the oplog is truncated.
    pub fn rollback_to(&self, common: OpTimeAndWall) -> Result<(), StorageError> {
        let inner = &self.0;
        let (ts, oldest) = (common.op_time.ts, self.rollback_floor());
        if ts < oldest || !inner.history.keeps() {
            return Err(StorageError::HistoryGone { ts, oldest });
        }
        inner.turn.take();
        let result = inner.roll_back(common);
        inner.turn.give_back();
        result
    }
}

impl Inner {
    /// Completes a rollback that a crash interrupted.
    pub(crate) fn finish_rollback(&self) -> Result<(), StorageError> {
        match crate::store::read_position(&*self.engine.snapshot(), "rollback")? {
            common if common.op_time.is_null() => Ok(()),
            common => {
                tracing::warn!(common = %common.op_time, "finishing an interrupted rollback");
                self.roll_back(common)
            }
        }
    }

    pub(crate) fn floor(&self) -> Timestamp {
        Timestamp::from_u64(self.rollback_floor.load(Ordering::SeqCst))
    }

    /// Raises the mark `rollbackFloor` (R4). It is on disk when this returns.
    pub(crate) fn raise_floor(&self, to: Timestamp) -> Result<(), StorageError> {
        if to > self.floor() {
            let mut batch = Batch::default();
            batch.put(Keyspace::Meta, mark_key(FLOOR), numbers([to.as_u64()]));
            self.engine.commit(batch, Sync::Yes)?;
            self.rollback_floor.fetch_max(to.as_u64(), Ordering::SeqCst);
        }
        Ok(())
    }

    fn roll_back(&self, common: OpTimeAndWall) -> Result<(), StorageError> {
        // R2
        let mut batch = Batch::default();
        batch.put(Keyspace::Meta, mark_key("rollback"), position_value(common));
        self.engine.commit(batch, Sync::Yes)?;
        if self.marks.applied().op_time.ts > common.op_time.ts {
            self.put_back_all(common)?;
        }
        self.oplog.truncate_after(common.op_time.ts)?;
        let mut batch = Batch::default();
        batch.remove(Keyspace::Meta, mark_key("rollback"));
        self.engine.commit(batch, Sync::Yes)
    }

    fn put_back_all(&self, common: OpTimeAndWall) -> Result<(), StorageError> {
        let work = Work::new(self, common.op_time.ts)?;
        let rows = work.rows()?;
        for chunk in rows.chunks(ROWS_PER_BATCH) {
            work.put_back(self, chunk)?;
        }
        let mut batch = Batch::default();
        count_log::roll_back(&*work.snapshot, &self.history, work.common, &mut batch)?;
        self.engine.commit(batch, Sync::No)?;
        self.end_rollback(&work, common)
    }

    fn end_rollback(&self, work: &Work, common: OpTimeAndWall) -> Result<(), StorageError> {
        let reader = self.present_reader();
        let mut catalog = Catalog::read(&reader)?;
        catalog.note_change(common.op_time.ts);
        let snapshot = self.engine.snapshot();
        let mut batch = Batch::default();
        prepared::roll_back(
            &*snapshot,
            work.common,
            &|uuid| catalog.by_uuid(uuid).map(|coll| coll.table),
            &mut batch,
        )?;
        work.tables_after(&*snapshot, &catalog, &mut batch)?;
        relist(&*snapshot, common, &mut batch)?;
        self.history.recount_after(work.common, &*snapshot, &mut batch)?;
        batch.remove(Keyspace::Meta, mark_key("partial"));
        batch.put(Keyspace::Meta, mark_key("applied"), applied_value(common, &*self.engine));
        self.engine.commit(batch, Sync::Yes)?;
        self.partial.store(false, Ordering::SeqCst);
        self.old_catalogs.lock().clear();
        // B3: an unfinished index build needs a new cut.
        self.built.lock().clear();
        self.forget_newer_presents();
        self.low.forget();
        self.publish(catalog, common);
        Ok(())
    }
}

struct Work {
    common: Timestamp,
    snapshot: Arc<dyn Snapshot>,
    reader: Reader,
    /// Tables of documents, with the collection's name before the rollback.
    documents: HashMap<TableId, (Uuid, Namespace)>,
    /// All tables that the catalog named before the rollback.
    tables: BTreeSet<TableId>,
}

impl Work {
    fn new(store: &Inner, common: Timestamp) -> Result<Self, StorageError> {
        let reader = store.present_reader();
        let now = Catalog::read(&reader)?;
        let mut then = reader.clone();
        then.at = Some(common);
        let mut documents = HashMap::new();
        let mut tables = BTreeSet::new();
        for coll in Catalog::read(&then)?.all() {
            documents.insert(coll.table, (coll.uuid(), coll.ns().clone()));
        }
        for coll in now.all() {
            documents.insert(coll.table, (coll.uuid(), coll.ns().clone()));
            tables.extend(tables_of(&coll));
        }
        Ok(Self { common, snapshot: Arc::clone(&reader.snapshot), reader, documents, tables })
    }

    /// Every row that may have changed after the common point, and the versions of prepared commits to undo.
    fn rows(&self) -> Result<Vec<(Slice, Option<Timestamp>)>, StorageError> {
        let mut rows: BTreeMap<Slice, Option<Timestamp>> = BTreeMap::new();
        let first = self.reader.history.epoch_of(self.common);
        for item in self.snapshot.range(
            Keyspace::History,
            Bound::Included(&first.prefix()),
            Bound::Unbounded,
        ) {
            let (key, _) = item?;
            let (row, stop) = split_history_key(&key)
                .ok_or_else(|| StorageError::corrupt("history", "a key is cut short"))?;
            let table = TableId(Bytewise(row).u32().unwrap_or(0));
            if stop > self.common && !count_log::is_ours(table) {
                rows.entry(row.into()).or_insert(None);
            }
        }
        for item in family_after(&*self.snapshot, b'u', self.common) {
            let (_, value) = item?;
            let mut reader = Bytewise(&value);
            while !reader.0.is_empty() {
                let (row, at) = read_undo(&mut reader)
                    .ok_or_else(|| StorageError::corrupt("meta", "an undo row"))?;
                let slot = rows.entry(row.into()).or_insert(None);
                *slot = match (*slot, at) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
        }
        Ok(rows.into_iter().collect())
    }

    fn put_back(
        &self,
        store: &Inner,
        rows: &[(Slice, Option<Timestamp>)],
    ) -> Result<(), StorageError> {
        let mut batch = Batch::default();
        let mut counts: HashMap<TableId, Counts> = HashMap::new();
        for (row, prepared_at) in rows {
            let table = TableId(Bytewise(row).u32().unwrap_or(0));
            let (now, then) = self.versions(row, *prepared_at, &mut batch)?;
            let unchanged = now.as_ref().map_or(then.is_none(), |now| same(now, &then));
            if unchanged {
                continue;
            }
            match &then {
                Some(version) => batch.put(Keyspace::Current, row.clone(), version.bytes().clone()),
                None => batch.remove(Keyspace::Current, row.clone()),
            }
            if self.documents.contains_key(&table) {
                let counts = counts.entry(table).or_insert_with(|| store.counts_of(table));
                let (lost, restored) = (
                    now.map(Version::into_doc).transpose()?,
                    then.map(Version::into_doc).transpose()?,
                );
                recount(counts, lost.as_ref(), restored.as_ref());
            }
        }
        for (table, counts) in &counts {
            batch.put(Keyspace::Meta, Counts::key(*table), counts.to_value());
        }
        store.engine.commit(batch, Sync::No)?;
        store.low.forget();
        store.counts.lock().extend(counts);
        Ok(())
    }

    /// The current version of a row and the one at the common point. `batch` gets the removal of the versions in
    /// between.
    fn versions(
        &self,
        row: &Slice,
        prepared_at: Option<Timestamp>,
        batch: &mut Batch,
    ) -> Result<(Option<Version>, Option<Version>), StorageError> {
        let now = self.reader.present(row)?;
        let then = self.version_then(row, now.clone(), prepared_at, batch)?;
        Ok((now, then))
    }

    /// The version of a row at the common point; all versions that ended later are removed from history.
    fn version_then(
        &self,
        row: &Slice,
        now: Option<Version>,
        prepared_at: Option<Timestamp>,
        batch: &mut Batch,
    ) -> Result<Option<Version>, StorageError> {
        // A prepared commit is undone by its commit entry's timestamp, but its versions have the earlier commit
        // timestamp.
        let limit = prepared_at
            .map_or(self.common, |at| self.common.min(Timestamp::from_u64(at.as_u64() - 1)));
        let mut then = now.filter(|version| version.effective() <= self.common);
        let mut found = then.is_some();
        let table = TableId(Bytewise(row).u32().unwrap_or(0));
        for epoch in self.reader.history.epochs_from(limit, table) {
            let from = crate::layout::history_key(epoch, row, limit);
            let to = crate::layout::history_key(epoch, row, Timestamp::MAX);
            let range = self.snapshot.range(
                Keyspace::History,
                Bound::Excluded(&from),
                Bound::Included(&to),
            );
            for item in range {
                let (key, value) = item?;
                let version = Version::parse(value)?;
                if !found && version.effective() <= self.common {
                    then = Some(version);
                    found = true;
                }
                batch.remove(Keyspace::History, key);
            }
        }
        Ok(then)
    }

    /// Tables that are no longer in the catalog will be reclaimed; those that are in it again will not.
    fn tables_after(
        &self,
        snapshot: &dyn Snapshot,
        catalog: &Catalog,
        batch: &mut Batch,
    ) -> Result<(), StorageError> {
        let named: BTreeSet<TableId> = catalog.all().flat_map(|coll| tables_of(&coll)).collect();
        for table in self.tables.difference(&named) {
            let key = meta_key(b'x', &[&table.0.to_be_bytes()]);
            batch.put(Keyspace::Meta, key, numbers([self.common.as_u64()]));
        }
        for item in snapshot.range(Keyspace::Meta, Bound::Included(b"x"), Bound::Excluded(b"y")) {
            let (key, _) = item?;
            let table = key.get(1..).and_then(|id| Bytewise(id).u32()).map(TableId);
            if table.is_some_and(|table| named.contains(&table)) {
                batch.remove(Keyspace::Meta, key);
            }
        }
        Ok(())
    }
}

/// The name of the mark in R4.
pub(crate) const FLOOR: &str = "rollbackFloor";

/// Reads the mark `rollbackFloor`. An older store has none and may have removed any list so far, so its mark becomes
/// `applied`.
pub(crate) fn read_floor(
    engine: &dyn Engine,
    snapshot: &dyn Snapshot,
    applied: Timestamp,
) -> Result<AtomicU64, StorageError> {
    if let Some(floor) = read_mark(snapshot, FLOOR)? {
        return Ok(floor.into());
    }
    let mut batch = Batch::default();
    batch.put(Keyspace::Meta, mark_key(FLOOR), numbers([applied.as_u64()]));
    engine.commit(batch, Sync::Yes)?;
    Ok(applied.as_u64().into())
}

fn same(now: &Version, then: &Option<Version>) -> bool {
    then.as_ref().is_some_and(|then| then.start() == now.start())
}

fn tables_of(coll: &crate::Collection) -> Vec<TableId> {
    let mut tables = vec![coll.table];
    tables.extend(coll.id_table);
    tables.extend(coll.indexes.iter().flat_map(|index| [index.table, index.side]));
    tables
}

fn recount(counts: &mut Counts, lost: Option<&RawDoc>, restored: Option<&RawDoc>) {
    let len = |doc: Option<&RawDoc>| doc.map_or(0, |doc| doc.len() as u64);
    counts.documents += u64::from(restored.is_some());
    counts.documents = counts.documents.saturating_sub(u64::from(lost.is_some()));
    counts.bytes = (counts.bytes + len(restored)).saturating_sub(len(lost));
}

pub(crate) fn read_undo<'a>(reader: &mut Bytewise<'a>) -> Option<(&'a [u8], Option<Timestamp>)> {
    let at = match reader.u8()? {
        0 => None,
        _ => Some(reader.ts()?),
    };
    let len = usize::try_from(reader.u32()?).ok()?;
    Some((reader.bytes(len)?, at))
}

/// Removes the undo rows of batches after the common point. Rows of a batch that spans it and are still needed are
/// listed again under the common point, for the next rollback.
fn relist(
    snapshot: &dyn Snapshot,
    common: OpTimeAndWall,
    batch: &mut Batch,
) -> Result<(), StorageError> {
    let mut kept = Vec::new();
    for item in family_after(snapshot, b'u', common.op_time.ts) {
        let (key, value) = item?;
        batch.remove(Keyspace::Meta, key);
        let mut reader = Bytewise(&value);
        while !reader.0.is_empty() {
            let (row, at) = read_undo(&mut reader)
                .ok_or_else(|| StorageError::corrupt("meta", "an undo row"))?;
            if at.is_none() && snapshot.get(Keyspace::Current, row)?.is_some() {
                kept.push(Undo { row: row.into(), at });
            }
        }
    }
    let from = meta_key(b'u', &[&common.op_time.ts.as_u64().to_be_bytes()]);
    let to = meta_key(b'u', &[&(common.op_time.ts.as_u64() + 1).to_be_bytes()]);
    let listed =
        snapshot.range(Keyspace::Meta, Bound::Included(&from), Bound::Excluded(&to)).count();
    put_undo(kept, common.op_time.ts, u32::try_from(listed).unwrap_or(u32::MAX), batch);
    Ok(())
}

/// Rows of a `meta` family with a timestamp after `ts`.
fn family_after(snapshot: &dyn Snapshot, family: u8, ts: Timestamp) -> crate::engine::Iter {
    let from = meta_key(family, &[&(ts.as_u64().saturating_add(1)).to_be_bytes()]);
    snapshot.range(Keyspace::Meta, Bound::Included(&from), Bound::Excluded(&[family + 1]))
}
