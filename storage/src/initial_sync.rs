//! Start and end of an initial sync: all data is dropped, a flag is set while it runs, and history begins at its end.

use std::{ops::Bound, sync::atomic::Ordering};

use protocol::{OpTimeAndWall, RawDoc};
use uuid::Uuid;

use crate::{
    Catalog, LoadReport, StorageError, Store,
    engine::{Batch, Engine, Keyspace, Sync},
    layout::{TableId, numbers},
    loader,
    rollback::FLOOR,
    store::{Inner, applied_value, mark_key},
};

/// Removals per engine batch.
const CLEAR_BATCH: usize = 10_000;

impl Store {
    /// Drops all data, the oplog and all history, and sets the flag; node documents and the vote are kept. A store
    /// with the flag must restart its initial sync.
    pub fn begin_initial_sync(&self) -> Result<(), StorageError> {
        let inner = &self.0;
        inner.turn.take();
        let result = inner.clear();
        inner.turn.give_back();
        result
    }

    /// Ends an initial sync that is consistent at `applied`: history begins here, and the flag is removed. Synced
    /// when it returns.
    pub fn finish_initial_sync(&self, applied: OpTimeAndWall) -> Result<(), StorageError> {
        let inner = &self.0;
        inner.turn.take();
        let result = inner.finish_initial_sync(applied);
        inner.turn.give_back();
        result
    }

    /// Bulk-loads an empty collection and its indexes. The documents may come in any order; of two with the same
    /// `_id` the later one wins. Blocks while it waits for them.
    pub fn load(
        &self,
        uuid: Uuid,
        mut docs: impl Iterator<Item = RawDoc>,
    ) -> Result<LoadReport, StorageError> {
        let coll =
            self.0.present().catalog.by_uuid(uuid).ok_or(StorageError::NoCollection(uuid))?;
        loader::load(&self.0, &coll, &mut docs)
    }
}

/// Removes the tables before `first`, which held data from before the last initial sync.
pub(crate) fn forget_tables(engine: &dyn Engine, first: TableId) -> Result<(), StorageError> {
    let from = TableId(TableId::FIRST_FREE).key(&[]);
    if first.0 <= TableId::FIRST_FREE {
        return Ok(());
    }
    engine.forget(Keyspace::Current, &from, &first.key(&[]))
}

impl Inner {
    fn clear(&self) -> Result<(), StorageError> {
        // Set the flag first: from here on the remaining data is meaningless.
        let mut batch = Batch::default();
        batch.put(Keyspace::Meta, mark_key("initialSync"), numbers([1]));
        self.engine.commit(batch, Sync::Yes)?;
        self.initial_sync.store(true, Ordering::SeqCst);
        // Tables and epochs are removed as key ranges, since their numbers are never reused. The engine's own `clear`
        // would be a single step, but its replay from the journal would also remove data ingested later.
        let next_table = TableId(self.next_table.load(Ordering::SeqCst));
        forget_tables(&*self.engine, next_table)?;
        let next_epoch = self.history.reset();
        self.engine.forget(Keyspace::History, &[], &next_epoch.prefix())?;
        // These keys may be used again, so they are removed individually.
        let user_tables = TableId(TableId::FIRST_FREE).key(&[]);
        self.clear_range(Keyspace::Current, Bound::Unbounded, Bound::Excluded(&user_tables))?;
        for ks in [Keyspace::Prepared, Keyspace::Oplog] {
            self.clear_range(ks, Bound::Unbounded, Bound::Unbounded)?;
        }
        // Another set, or a restored one, may have timestamps that were trimmed before.
        for ks in [Keyspace::Prepared, Keyspace::Oplog, Keyspace::Meta] {
            self.engine.recall(ks);
        }
        // Counts, epochs, history, oplog stretches, undo rows, dropped tables, and the marks of the old data.
        for family in *b"cehoux" {
            self.clear_range(
                Keyspace::Meta,
                Bound::Included(&[family]),
                Bound::Excluded(&[family + 1]),
            )?;
        }
        let mut batch = Batch::default();
        for mark in ["applied", "oldest", "oplogFirst", "partial", "rollback"] {
            batch.remove(Keyspace::Meta, mark_key(mark));
        }
        batch.put(Keyspace::Meta, mark_key("firstTable"), numbers([u64::from(next_table.0)]));
        batch.put(Keyspace::Meta, mark_key("nextTable"), numbers([u64::from(next_table.0)]));
        batch.put(Keyspace::Meta, mark_key("nextEpoch"), numbers([u64::from(next_epoch.0)]));
        self.engine.commit(batch, Sync::Yes)?;
        self.counts.lock().clear();
        self.old_catalogs.lock().clear();
        self.built.lock().clear();
        self.low.forget();
        self.partial.store(false, Ordering::SeqCst);
        self.oplog.reset()?;
        self.marks.reset();
        self.show(Catalog::default(), OpTimeAndWall::NULL);
        Ok(())
    }

    /// Removes the keys of a range individually.
    fn clear_range(
        &self,
        ks: Keyspace,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> Result<(), StorageError> {
        let snapshot = self.engine.snapshot();
        let mut batch = Batch::default();
        for item in snapshot.range(ks, from, to) {
            batch.remove(ks, item?.0);
            if batch.writes.len() >= CLEAR_BATCH {
                self.engine.commit(std::mem::take(&mut batch), Sync::No)?;
            }
        }
        self.engine.commit(batch, Sync::No)
    }

    fn finish_initial_sync(&self, applied: OpTimeAndWall) -> Result<(), StorageError> {
        let ts = applied.op_time.ts;
        self.history.roll(ts);
        let mut batch = Batch::default();
        self.history.save(&mut batch);
        batch.remove(Keyspace::Meta, mark_key("initialSync"));
        batch.put(Keyspace::Meta, mark_key("applied"), applied_value(applied, &*self.engine));
        batch.put(Keyspace::Meta, mark_key("oldest"), numbers([ts.as_u64()]));
        batch.put(Keyspace::Meta, mark_key(FLOOR), numbers([ts.as_u64()]));
        self.engine.commit(batch, Sync::Yes)?;
        self.rollback_floor.store(ts.as_u64(), Ordering::SeqCst);
        self.initial_sync.store(false, Ordering::SeqCst);
        self.marks.set_oldest(ts);
        let catalog = self.present().catalog.clone();
        self.publish(catalog, applied);
        Ok(())
    }
}
