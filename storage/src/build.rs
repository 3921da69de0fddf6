//! Builds indexes concurrently with writes, for `startIndexBuild`.
//!
//! ```text
//!   startIndexBuild        build_indexes                                      commitIndexBuild
//!   row: building    cut --> scan at the cut, sort, ingest --> drain ... drain --> final drain, row: ready
//!                     \___ writes after the cut wait in the side table, in order __/
//! ```
//! B1 Every write before the cut is in the scan, every write after it in the side table, none in both.
//! B2 The index's entries have no meaning before it is ready: no reader uses it and no history of it is kept.
//! B3 A build that is started again (after a restart or a rollback) gets new tables and a new cut.

use std::{
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use protocol::Timestamp;
use uuid::Uuid;

use crate::{
    Apply, Collection, Direction, Index, IndexState, ReadAt, RecordKey, StorageError, Store,
    engine::{Batch, Keyspace, Sync},
    index::{entry, waiting::Waiting},
    layout::{TableId, cut},
    loader::{IndexLoad, write_indexes},
    mvcc::{Version, version::Head},
    store::Inner,
    view::View,
};

/// Memory for the keys of all indexes of one build.
const MEMORY_BYTES: usize = 32 << 20;
/// Documents read under one engine snapshot.
const SCAN_CHUNK: usize = 20_000;
/// Maximum queued writes to move while holding the applier's turn.
const DRAIN_CHUNK: usize = 5_000;

impl Store {
    /// Builds the indexes of `build_uuid` on a collection up to the first drain. Then the node may vote, and
    /// [`Apply::set_index_ready`] may finish them. Blocks; `cancel` ends it early.
    pub fn build_indexes(
        &self,
        uuid: Uuid,
        build_uuid: Uuid,
        cancel: &AtomicBool,
    ) -> Result<(), StorageError> {
        let Some((coll, indexes, view)) = self.cut(uuid, build_uuid)? else { return Ok(()) };
        let share = MEMORY_BYTES / indexes.len().max(1);
        let mut loads: Vec<_> =
            indexes.iter().map(|index| IndexLoad::new(index, &self.0, share)).collect();
        self.scan_into(&coll, view, &mut loads, cancel)?;
        check(cancel)?;
        let (seen, sorters): (Vec<_>, Vec<_>) = loads
            .into_iter()
            .map(|load| ((load.index.name().to_owned(), load.multikey), load.sorter))
            .unzip();
        write_indexes(&self.0, sorters)?;
        check(cancel)?;
        let mut apply = self.begin_apply();
        for (name, multikey) in seen {
            apply.note_multikey(uuid, &name, &multikey)?;
        }
        apply.commit(self.0.marks.applied())?;
        for index in &indexes {
            while self.drain_some(index)? == DRAIN_CHUNK {
                check(cancel)?;
            }
        }
        self.0.built.lock().insert(build_uuid);
        Ok(())
    }

    /// Allocates new tables (B3) and opens the view that the scan reads (B1).
    #[allow(clippy::type_complexity, reason = "three parts of one moment")]
    fn cut(
        &self,
        uuid: Uuid,
        build_uuid: Uuid,
    ) -> Result<Option<(Arc<Collection>, Vec<Arc<Index>>, View)>, StorageError> {
        let mut apply = self.begin_apply();
        let coll = apply.collection(uuid).ok_or(StorageError::NoCollection(uuid))?;
        let wanted = IndexState::Building { build_uuid };
        let names: Vec<String> = coll
            .indexes()
            .iter()
            .filter(|index| index.state() == wanted)
            .map(|index| index.name().to_owned())
            .collect();
        for name in &names {
            apply.renew_tables(uuid, name)?;
        }
        let applied = self.0.marks.applied();
        let store = Arc::clone(&self.0);
        // The applier's turn is still held while the view is opened.
        let view = apply.commit_then(applied, || View::open(&store, ReadAt::Newest))??;
        let Some(coll) = view.catalog().by_uuid(uuid) else { return Ok(None) };
        let indexes: Vec<_> = coll
            .indexes()
            .iter()
            .filter(|index| index.state() == wanted && index.keygen.has_keys())
            .cloned()
            .collect();
        Ok(Some((coll, indexes, view)))
    }

    fn scan_into(
        &self,
        coll: &Collection,
        first: View,
        loads: &mut [IndexLoad],
        cancel: &AtomicBool,
    ) -> Result<(), StorageError> {
        let ts = first.ts();
        // With history the scan can continue at its timestamp without holding an engine snapshot all the time.
        let renewable = self.0.history.keeps() && !self.initial_sync_pending();
        let _pin = renewable.then(|| self.pin(ts)).transpose()?;
        let mut view = first;
        let mut last: Option<RecordKey> = None;
        loop {
            check(cancel)?;
            let start = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let mut seen = 0;
            let mut next = None;
            for item in view.scan(coll, start, Direction::Forward) {
                let (record, doc) = item?;
                for load in &mut *loads {
                    load.add(record.as_bytes(), &doc)?;
                }
                seen += 1;
                next = Some(record);
                if renewable && seen == SCAN_CHUNK {
                    break;
                }
                if seen % SCAN_CHUNK == 0 {
                    check(cancel)?;
                }
            }
            if !renewable || seen < SCAN_CHUNK {
                return Ok(());
            }
            last = next;
            view = self.view(ReadAt::Timestamp(ts))?;
        }
    }

    /// Moves queued writes from the side table into the index; returns their number.
    fn drain_some(&self, index: &Index) -> Result<usize, StorageError> {
        let inner = &self.0;
        inner.turn.take();
        let result = inner.drain(index, DRAIN_CHUNK);
        inner.turn.give_back();
        result
    }
}

fn check(cancel: &AtomicBool) -> Result<(), StorageError> {
    if cancel.load(Ordering::SeqCst) { Err(StorageError::Cancelled) } else { Ok(()) }
}

impl Inner {
    fn drain(&self, index: &Index, limit: usize) -> Result<usize, StorageError> {
        let reader = self.present_reader();
        let mut batch = Batch::default();
        let mut count = 0;
        let all = (Bound::Unbounded, Bound::Unbounded);
        for item in reader.scan(index.side, all.0, all.1, Direction::Forward).take(limit) {
            let (at, version) = item?;
            let Waiting { insert, key_len, row } = Waiting::parse(&version)?;
            let short = cut(row);
            let key = index.table.key(short.as_deref().unwrap_or(row));
            if let Some(marks) = insert {
                let full_key = short.is_some().then_some(row);
                let head = Head { start: Timestamp::NULL, full_key, ..Head::default() };
                let version = Version::new(head, &[&entry::payload(key_len, marks)]);
                batch.put(Keyspace::Current, key, version.bytes().clone());
            } else {
                batch.remove(Keyspace::Current, key);
            }
            batch.remove(Keyspace::Current, index.side.key(&at));
            count += 1;
        }
        self.low.lower(&batch);
        self.engine.commit(batch, Sync::No)?;
        Ok(count)
    }
}

impl Apply {
    /// Finishes an index that [`Store::build_indexes`] has built: moves the last queued writes and makes it ready at
    /// `ts`.
    pub fn set_index_ready(
        &mut self,
        ts: Timestamp,
        uuid: Uuid,
        name: &str,
    ) -> Result<(), StorageError> {
        let coll = self.collection(uuid).ok_or(StorageError::NoCollection(uuid))?;
        let missing = || StorageError::NoIndex { uuid, name: name.to_owned() };
        let index = coll.index(name).cloned().ok_or_else(missing)?;
        let IndexState::Building { build_uuid } = index.state() else { return Ok(()) };
        if index.keygen.has_keys() && !self.is_built(build_uuid) {
            return Err(StorageError::NotBuilt { name: name.to_owned(), build_uuid });
        }
        for (at, version) in self.changes.rows_of(index.side)? {
            let Waiting { insert, key_len, row } = Waiting::parse(&version)?;
            if let Some(marks) = insert {
                let payload = entry::payload(key_len, marks);
                self.changes.put(index.table, row, Timestamp::NULL, &[&payload])?;
            } else {
                self.changes.remove(index.table, row, Timestamp::NULL)?;
            }
            self.changes.remove(index.side, &at, Timestamp::NULL)?;
        }
        self.change_index(ts, uuid, name, |index| {
            Ok(index.changed(IndexState::Ready, index.multikey.clone()))
        })
    }

    fn renew_tables(&mut self, uuid: Uuid, name: &str) -> Result<(), StorageError> {
        let fresh: (TableId, TableId) = (self.new_table(), self.new_table());
        self.change_in_place(uuid, name, |index| {
            Index::new(index.spec.clone(), fresh.0, fresh.1, index.state, Vec::new())
        })
    }
}
