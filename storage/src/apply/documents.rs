//! Documents: insert, replace, delete by `_id`, and their index entries.

use bson::{RawBsonRef, RawDocument};
use protocol::{RawDoc, Timestamp};
use query::value::{Elements, Value};

use super::Apply;
use crate::{
    StorageError,
    catalog::{Collection, Index, IndexState},
    index::{
        entry,
        keygen::{Key, Keys},
    },
    keystring::{self, Marks},
    mvcc::{Version, write::When},
};

impl Apply {
    /// The document with this `_id`, including this batch's writes.
    pub fn get(
        &mut self,
        coll: &Collection,
        id: RawBsonRef<'_>,
    ) -> Result<Option<RawDoc>, StorageError> {
        let id = keystring::encode_raw(id)?;
        let Some(record) = self.record_of(coll, &id)? else { return Ok(None) };
        self.changes.get(coll.table, &record)?.map(Version::into_doc).transpose()
    }

    /// Inserts a document or replaces the one with its `_id`; returns the replaced one.
    pub fn put(
        &mut self,
        ts: Timestamp,
        coll: &Collection,
        doc: impl Into<RawDoc>,
    ) -> Result<Option<RawDoc>, StorageError> {
        self.put_when(ts.into(), coll, &doc.into())
    }

    /// Deletes the document with this `_id` and returns it.
    pub fn delete(
        &mut self,
        ts: Timestamp,
        coll: &Collection,
        id: RawBsonRef<'_>,
    ) -> Result<Option<RawDoc>, StorageError> {
        let id = keystring::encode_raw(id)?;
        self.delete_when(ts.into(), coll, &id)
    }

    pub(super) fn put_when(
        &mut self,
        when: When,
        coll: &Collection,
        doc: &RawDoc,
    ) -> Result<Option<RawDoc>, StorageError> {
        let fresh = self.current(coll)?;
        let coll = fresh.as_deref().unwrap_or(coll);
        let id = id_of(doc)?;
        let id_key = keystring::encode(id)?;
        let known = self.record_of(coll, &id_key)?;
        let record = match known {
            Some(record) => record,
            None => self.new_record(coll),
        };
        let old = self.changes.put(coll.table, &record, when, &[doc.as_bytes()])?;
        let born = old.as_ref().and_then(Version::birth);
        let old = old.map(Version::into_doc).transpose()?;
        if old.is_none() {
            self.put_id_entry(when, coll, id, &id_key, &record)?;
        }
        self.reindex(when, coll, &record, (old.as_ref(), born), Some(doc))?;
        let (old_len, new_len) = (old.as_ref().map(len_of), len_of(doc));
        self.count(when, coll.table, old_len.is_none().into(), new_len - old_len.unwrap_or(0));
        self.spill_if_large(when)?;
        Ok(old)
    }

    pub(super) fn delete_when(
        &mut self,
        when: When,
        coll: &Collection,
        id_key: &[u8],
    ) -> Result<Option<RawDoc>, StorageError> {
        let fresh = self.current(coll)?;
        let coll = fresh.as_deref().unwrap_or(coll);
        let Some(record) = self.record_of(coll, id_key)? else { return Ok(None) };
        self.delete_record(when, coll, &record)
    }

    pub(super) fn delete_record(
        &mut self,
        when: When,
        coll: &Collection,
        record: &[u8],
    ) -> Result<Option<RawDoc>, StorageError> {
        let old = self.changes.remove(coll.table, record, when)?;
        let born = old.as_ref().and_then(Version::birth);
        let Some(old) = old.map(Version::into_doc).transpose()? else { return Ok(None) };
        if let Some(table) = coll.id_table {
            let (key, _) = id_entry(coll, id_of(&old)?, record)?;
            self.changes.remove(table, &key, when)?;
        }
        self.reindex(when, coll, record, (Some(&old), born), None)?;
        self.count(when, coll.table, -1, -len_of(&old));
        self.spill_if_large(when)?;
        Ok(Some(old))
    }

    /// Removes all documents of a collection; returns their number.
    pub fn truncate(&mut self, ts: Timestamp, coll: &Collection) -> Result<u64, StorageError> {
        let fresh = self.current(coll)?;
        let coll = fresh.as_deref().unwrap_or(coll);
        let rows = self.changes.rows_of(coll.table)?;
        let mut gone = 0;
        for record in rows.keys() {
            gone += u64::from(self.delete_record(ts.into(), coll, record)?.is_some());
        }
        Ok(gone)
    }

    /// Number and bytes of a collection's documents, including this batch's writes.
    pub fn size_of(&mut self, coll: &Collection) -> (u64, u64) {
        let counts = self.counts(coll.table);
        (counts.documents, counts.bytes)
    }

    /// The oldest document of a capped collection, including this batch's writes.
    pub fn oldest_record(&mut self, coll: &Collection) -> Result<Option<RawDoc>, StorageError> {
        self.changes.first_of(coll.table)?.map(Version::into_doc).transpose()
    }

    /// The record key of the document with this `_id`. Only capped collections need a lookup.
    fn record_of(
        &mut self,
        coll: &Collection,
        id_key: &[u8],
    ) -> Result<Option<Vec<u8>>, StorageError> {
        let (Some(_), Some(table)) = (coll.capped(), coll.id_table) else {
            return Ok(Some(id_key.to_vec()));
        };
        let Some(version) = self.changes.get(table, id_key)? else { return Ok(None) };
        Ok(Some(entry::split(&id_key.into(), &version)?.1.to_vec()))
    }

    fn new_record(&mut self, coll: &Collection) -> Vec<u8> {
        let counts = self.counts(coll.table);
        counts.next_record += 1;
        counts.next_record.to_be_bytes().to_vec()
    }

    fn put_id_entry(
        &mut self,
        when: When,
        coll: &Collection,
        id: Value<'_>,
        id_key: &[u8],
        record: &[u8],
    ) -> Result<(), StorageError> {
        let Some(table) = coll.id_table else { return Ok(()) };
        let (key, payload) = id_entry(coll, id, record)?;
        debug_assert!(coll.capped().is_none() || key == id_key);
        self.changes.put_new(table, &key, when, &[&payload]);
        Ok(())
    }

    /// Maintains A2: removes the index entries that only the old document has and adds those that only the new one
    /// has. `born` is the old document's start, if it is the first version of the document.
    fn reindex(
        &mut self,
        when: When,
        coll: &Collection,
        record: &[u8],
        (old, born): (Option<&RawDoc>, Option<Timestamp>),
        new: Option<&RawDoc>,
    ) -> Result<(), StorageError> {
        for index in &coll.indexes {
            if !index.keygen.has_keys() {
                continue;
            }
            let keys = |doc: Option<&RawDoc>| match doc {
                Some(doc) => index.keygen.keys(doc),
                None => Ok(Keys::default()),
            };
            let (old, new) = (keys(old)?, keys(new)?);
            for key in old.keys.iter().filter(|key| new.find(&key.bytes).is_none()) {
                self.remove_entry(when, index, key, record, born)?;
            }
            for key in &new.keys {
                match old.find(&key.bytes) {
                    None => self.put_entry(when, index, key, record),
                    Some(was) if was.marks != key.marks => {
                        self.put_over(when, index, key, record)?;
                    }
                    Some(_) => {}
                }
            }
            if widens(index, &new.multikey) {
                self.widen_multikey(when.ts, coll, index.name(), &new.multikey)?;
            }
        }
        Ok(())
    }

    pub(super) fn put_entry(&mut self, when: When, index: &Index, key: &Key, record: &[u8]) {
        let row = [&key.bytes, record].concat();
        if let IndexState::Building { .. } = index.state {
            return self.put_side(index, Some(key.marks), key.bytes.len(), &row);
        }
        let payload = entry::payload(key.bytes.len(), key.marks);
        self.changes.put_new(index.table, &row, when, &[&payload]);
    }

    /// Updates an entry whose key bytes are the same but whose type changed, for instance from 1 to 1.0.
    fn put_over(
        &mut self,
        when: When,
        index: &Index,
        key: &Key,
        record: &[u8],
    ) -> Result<(), StorageError> {
        if let IndexState::Building { .. } = index.state {
            self.put_entry(when, index, key, record);
            return Ok(());
        }
        let payload = entry::payload(key.bytes.len(), key.marks);
        self.changes.put(index.table, &[&key.bytes, record].concat(), when, &[&payload])?;
        Ok(())
    }

    fn remove_entry(
        &mut self,
        when: When,
        index: &Index,
        key: &Key,
        record: &[u8],
        born: Option<Timestamp>,
    ) -> Result<(), StorageError> {
        let row = [&key.bytes, record].concat();
        if let IndexState::Building { .. } = index.state {
            self.put_side(index, None, key.bytes.len(), &row);
        } else if self.changes.keeps_history() {
            // The entries of a document's first version are as old as the document, or older if the index was built
            // later; readers cannot tell the difference. So they need not be read.
            if let Some(born) = born {
                let payload = entry::payload(key.bytes.len(), key.marks);
                self.changes.assume(index.table, &row, born, &[&payload]);
            }
            self.changes.remove(index.table, &row, when)?;
        } else {
            self.changes.remove_unseen(index.table, &row);
        }
        Ok(())
    }

    /// Adds the multikey paths to the index's catalog row.
    fn widen_multikey(
        &mut self,
        ts: Timestamp,
        coll: &Collection,
        name: &str,
        seen: &[Vec<u32>],
    ) -> Result<(), StorageError> {
        // A prepared commit may have an earlier timestamp than the row; then the existing row is changed.
        let row = self.catalog.by_uuid(coll.uuid()).map_or(ts, |row| row.start);
        self.change_index(ts.max(row), coll.uuid(), name, |index| {
            Ok(index.changed(index.state, union(index, seen)))
        })
    }
}

/// True if arrays were seen at paths that the index does not list as multikey yet.
pub(crate) fn widens(index: &Index, seen: &[Vec<u32>]) -> bool {
    seen.iter().enumerate().any(|(i, paths)| {
        paths.iter().any(|at| !index.multikey.get(i).is_some_and(|known| known.contains(at)))
    })
}

pub(crate) fn union(index: &Index, seen: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let empty = Vec::new();
    (0..seen.len().max(index.multikey.len()))
        .map(|i| {
            let known = index.multikey.get(i).unwrap_or(&empty);
            let mut paths = known.clone();
            paths.extend(seen.get(i).unwrap_or(&empty));
            paths.sort_unstable();
            paths.dedup();
            paths
        })
        .collect()
}

/// Row and payload of a document's entry in its collection's `_id` table.
pub(crate) fn id_entry(
    coll: &Collection,
    id: Value<'_>,
    record: &[u8],
) -> Result<(Vec<u8>, Vec<u8>), StorageError> {
    let mut key = Vec::with_capacity(32);
    if coll.capped().is_some() {
        keystring::append(&mut key, id, false, None)?;
        let payload = entry::payload_with_record(key.len(), record);
        return Ok((key, payload));
    }
    keystring::append(&mut key, id, false, coll.collator())?;
    // Readers must fetch the document: text under a collation cannot be decoded from the key.
    let payload = entry::payload(key.len(), Marks::NONE).to_vec();
    key.extend_from_slice(record);
    Ok((key, payload))
}

/// The `_id` of a document.
pub(crate) fn id_of(doc: &RawDocument) -> Result<Value<'_>, StorageError> {
    Elements::new(doc)
        .find(b"_id")
        .map(|element| element.value())
        .ok_or_else(|| StorageError::bad_document("it has no _id"))
}

fn len_of(doc: &RawDoc) -> i64 {
    i64::try_from(doc.len()).unwrap_or(i64::MAX)
}
