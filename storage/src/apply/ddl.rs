//! Collections and indexes: create, drop, rename, change.

use std::sync::Arc;

use bson::RawDocument;
use protocol::{Namespace, Timestamp};
use uuid::Uuid;

use super::{
    Apply,
    documents::{union, widens},
};
use crate::{
    StorageError,
    catalog::{Collection, Index, IndexState, Parts, needs_id_table},
    engine::Keyspace,
    index::waiting::Waiting,
    keystring::Marks,
    layout::{TableId, meta_key, numbers},
};

impl Apply {
    /// Creates a collection. The name must not be in use.
    pub fn create(
        &mut self,
        ts: Timestamp,
        ns: &Namespace,
        uuid: Uuid,
        options: &RawDocument,
        id_index: Option<&RawDocument>,
    ) -> Result<Arc<Collection>, StorageError> {
        self.check_free(ns, uuid)?;
        let id_table = needs_id_table(options).then(|| self.store.new_table());
        let collection = Collection::new(Parts {
            uuid,
            ns: ns.clone(),
            options: options.into(),
            id_index: id_index.map(Into::into),
            table: self.store.new_table(),
            id_table,
            indexes: Vec::new(),
            start: ts,
        });
        self.put_collection(ts, collection)
    }

    /// Drops a collection; false if it does not exist. Its data stays for readers of earlier timestamps.
    pub fn drop_collection(&mut self, ts: Timestamp, uuid: Uuid) -> Result<bool, StorageError> {
        let Some(old) = self.catalog.by_uuid(uuid) else { return Ok(false) };
        self.changes.remove(TableId::CATALOG, uuid.as_bytes(), ts)?;
        self.catalog.remove(uuid);
        self.catalog.note_change(ts);
        self.writes_elsewhere = true;
        self.catalog_changed = true;
        self.abandon(ts, old.table);
        if let Some(table) = old.id_table {
            self.abandon(ts, table);
        }
        for index in &old.indexes {
            self.abandon_index(ts, index);
        }
        Ok(true)
    }

    /// Renames a collection. The new name must not be in use: drop or rename that collection first.
    pub fn rename(
        &mut self,
        ts: Timestamp,
        uuid: Uuid,
        to: &Namespace,
    ) -> Result<(), StorageError> {
        self.check_free(to, uuid)?;
        self.change(ts, uuid, |parts| {
            parts.ns = to.clone();
            Ok(())
        })
    }

    /// Replaces a collection's options (collMod).
    pub fn set_options(
        &mut self,
        ts: Timestamp,
        uuid: Uuid,
        options: &RawDocument,
    ) -> Result<(), StorageError> {
        self.change(ts, uuid, |parts| {
            parts.options = options.into();
            Ok(())
        })
    }

    /// Creates an index. A `Ready` index is filled at once, which is meant for empty and small collections.
    pub fn create_index(
        &mut self,
        ts: Timestamp,
        uuid: Uuid,
        spec: &RawDocument,
        state: IndexState,
    ) -> Result<(), StorageError> {
        let (table, side) = (self.store.new_table(), self.store.new_table());
        let index = Index::new(spec.into(), table, side, state, Vec::new());
        let coll = self.catalog.by_uuid(uuid).ok_or(StorageError::NoCollection(uuid))?;
        let index = match state {
            IndexState::Ready => self.fill(ts, &coll, index)?,
            IndexState::Building { .. } => index,
        };
        let name = index.name().to_owned();
        self.change(ts, uuid, |parts| {
            parts.indexes.retain(|other| other.name() != name);
            parts.indexes.push(Arc::new(index));
            Ok(())
        })
    }

    /// Writes the keys of all existing documents.
    fn fill(
        &mut self,
        ts: Timestamp,
        coll: &Collection,
        index: Index,
    ) -> Result<Index, StorageError> {
        if !index.keygen.has_keys() {
            return Ok(index);
        }
        let mut index = index;
        for (record, version) in self.changes.rows_of(coll.table)? {
            let keys = index.keygen.keys(&version.into_doc()?)?;
            for key in &keys.keys {
                self.put_entry(ts.into(), &index, key, &record);
            }
            if widens(&index, &keys.multikey) {
                let multikey = union(&index, &keys.multikey);
                index = index.changed(index.state, multikey);
            }
        }
        Ok(index)
    }

    /// Drops an index; false if there is none with this name.
    pub fn drop_index(
        &mut self,
        ts: Timestamp,
        uuid: Uuid,
        name: &str,
    ) -> Result<bool, StorageError> {
        let coll = self.catalog.by_uuid(uuid).ok_or(StorageError::NoCollection(uuid))?;
        let Some(index) = coll.index(name).cloned() else { return Ok(false) };
        self.abandon_index(ts, &index);
        self.change(ts, uuid, |parts| {
            parts.indexes.retain(|other| other.name() != name);
            Ok(())
        })?;
        Ok(true)
    }

    /// Replaces an index's spec without changing its keys (collMod: hidden, expireAfterSeconds, unique).
    pub fn replace_index_spec(
        &mut self,
        ts: Timestamp,
        uuid: Uuid,
        name: &str,
        spec: &RawDocument,
    ) -> Result<(), StorageError> {
        self.change_index(ts, uuid, name, |index| {
            let multikey = index.multikey.clone();
            Ok(index.revised(spec.into(), index.state, multikey))
        })
    }

    /// Changes fields of an index's catalog row that are local to this node, keeping the row's timestamp.
    pub(crate) fn change_in_place(
        &mut self,
        uuid: Uuid,
        name: &str,
        change: impl FnOnce(&Index) -> Index,
    ) -> Result<(), StorageError> {
        let coll = self.catalog.by_uuid(uuid).ok_or(StorageError::NoCollection(uuid))?;
        if let Some(index) = coll.index(name) {
            self.abandon_index(coll.start, &Arc::clone(index));
        }
        self.change_index(coll.start, uuid, name, |index| Ok(change(index)))
    }

    /// Records the multikey paths found while an index was loaded.
    pub(crate) fn note_multikey(
        &mut self,
        uuid: Uuid,
        name: &str,
        seen: &[Vec<u32>],
    ) -> Result<(), StorageError> {
        let coll = self.catalog.by_uuid(uuid).ok_or(StorageError::NoCollection(uuid))?;
        match coll.index(name) {
            Some(index) if widens(index, seen) => {
                self.change_index(coll.start, uuid, name, |index| {
                    Ok(index.changed(index.state, union(index, seen)))
                })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn new_table(&self) -> TableId {
        self.store.new_table()
    }

    pub(crate) fn is_built(&self, build_uuid: Uuid) -> bool {
        self.store.built.lock().contains(&build_uuid)
    }

    pub(crate) fn change_index(
        &mut self,
        ts: Timestamp,
        uuid: Uuid,
        name: &str,
        change: impl FnOnce(&Index) -> Result<Index, StorageError>,
    ) -> Result<(), StorageError> {
        self.change(ts, uuid, |parts| {
            let missing = || StorageError::NoIndex { uuid, name: name.to_owned() };
            let slot = parts.indexes.iter_mut().find(|i| i.name() == name).ok_or_else(missing)?;
            *slot = Arc::new(change(slot)?);
            Ok(())
        })
    }

    pub(super) fn change(
        &mut self,
        ts: Timestamp,
        uuid: Uuid,
        change: impl FnOnce(&mut Parts) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let old = self.catalog.by_uuid(uuid).ok_or(StorageError::NoCollection(uuid))?;
        let mut parts = old.parts();
        change(&mut parts)?;
        parts.start = ts;
        self.put_collection(ts, Collection::new(parts)).map(drop)
    }

    fn put_collection(
        &mut self,
        ts: Timestamp,
        collection: Collection,
    ) -> Result<Arc<Collection>, StorageError> {
        let row = collection.to_row();
        let uuid = collection.uuid();
        self.changes.put(TableId::CATALOG, uuid.as_bytes(), ts, &[row.as_bytes()])?;
        self.writes_elsewhere = true;
        let collection = Arc::new(collection);
        self.catalog.insert(Arc::clone(&collection));
        self.catalog_changed = true;
        Ok(collection)
    }

    fn check_free(&self, ns: &Namespace, uuid: Uuid) -> Result<(), StorageError> {
        match self.catalog.collection(ns) {
            Some(other) if other.uuid() != uuid => {
                Err(StorageError::NameTaken { ns: ns.to_string(), uuid: other.uuid() })
            }
            _ => Ok(()),
        }
    }

    fn abandon_index(&mut self, ts: Timestamp, index: &Index) {
        self.abandon(ts, index.table);
        self.abandon(ts, index.side);
    }

    /// Marks a table as dropped. Its rows are reclaimed when `oldest` has passed `ts`.
    fn abandon(&mut self, ts: Timestamp, table: TableId) {
        let key = meta_key(b'x', &[&table.0.to_be_bytes()]);
        self.meta.put(Keyspace::Meta, key, numbers([ts.as_u64()]));
    }

    /// Queues a write to an index that is being built in its side table, in order. A removal has no marks.
    pub(super) fn put_side(
        &mut self,
        index: &Index,
        insert: Option<Marks>,
        key_len: usize,
        row: &[u8],
    ) {
        let counts = self.counts(index.side);
        counts.next_record += 1;
        let at = counts.next_record.to_be_bytes();
        let payload = Waiting { insert, key_len, row }.payload();
        self.changes.put_new(index.side, &at, Timestamp::NULL, &[&payload]);
    }
}
