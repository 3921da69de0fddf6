//! Reading: a consistent view of the catalog and all documents.
//!
//! A view holds an engine snapshot, so it should be short-lived: a command or a getMore opens one, uses it, drops it.
//! A cursor that must continue at the same timestamp opens [`ReadAt::Timestamp`] again.

use std::{ops::Bound, sync::Arc, sync::atomic::Ordering};

use bson::RawBsonRef;
use byteview::ByteView;
use protocol::{OpTimeAndWall, RawDoc, Timestamp};
use query::source::{Direction, IndexEntry, RecordKey};

use crate::{
    StorageError,
    apply::prepared::{self, TxnId},
    catalog::{Catalog, Collection, Index},
    count_log,
    engine::Keyspace,
    index::entry,
    keystring::{self, Marks},
    layout::TableId,
    mvcc::{Reader, scan::Scan},
    store::{Counts, Inner},
};

/// The timestamp to read at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAt {
    /// The last applied batch.
    Newest,
    /// The newest majority-committed state.
    Majority,
    /// A timestamp within the history window.
    Timestamp(Timestamp),
}

/// Number of earlier catalogs that are cached.
const OLD_CATALOGS: usize = 8;

/// A consistent view at one timestamp. Cheap to clone.
#[derive(Clone)]
pub struct View {
    reader: Reader,
    catalog: Catalog,
    at: OpTimeAndWall,
}

impl View {
    pub(crate) fn open(store: &Arc<Inner>, at: ReadAt) -> Result<Self, StorageError> {
        let present = store.present();
        let half_way = store.partial.load(Ordering::SeqCst);
        let ts = match at {
            ReadAt::Newest if !half_way => return Ok(Self::of(store, &present, None)),
            ReadAt::Newest => present.applied.op_time.ts,
            ReadAt::Majority => {
                if let Some(found) = store.majority_present() {
                    return Ok(Self::of(store, &found, None));
                }
                store.marks.stable().op_time.ts
            }
            ReadAt::Timestamp(ts) => ts,
        };
        let (oldest, applied) = (store.marks.oldest(), present.applied.op_time.ts);
        if ts > applied {
            return Err(StorageError::NotYetApplied { ts, applied });
        }
        if ts < oldest || !store.history.keeps() && ts < applied {
            return Err(StorageError::HistoryGone { ts, oldest });
        }
        let mut view = Self::of(store, &present, Some(ts));
        view.catalog = store.catalog_at(&view.reader, &present.catalog, ts)?;
        Ok(view)
    }

    pub(crate) fn reader(&self) -> &Reader {
        &self.reader
    }

    fn of(store: &Arc<Inner>, present: &crate::store::Present, at: Option<Timestamp>) -> Self {
        let reader = Reader {
            snapshot: Arc::clone(&present.snapshot),
            history: Arc::clone(&store.history),
            low: Arc::clone(&store.low),
            number: present.number,
            at,
        };
        let mut position = present.applied;
        if let Some(ts) = at {
            position.op_time.ts = ts;
        }
        Self { reader, catalog: present.catalog.clone(), at: position }
    }

    /// The timestamp that was asked for, or `applied` of the batch that it shows.
    pub fn ts(&self) -> Timestamp {
        self.at.op_time.ts
    }

    /// The position of the batch that it shows. With [`ReadAt::Timestamp`] only its `ts` is meaningful.
    pub fn position(&self) -> OpTimeAndWall {
        self.at
    }

    /// The catalog at this timestamp.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The document with this `_id`.
    pub fn get(
        &self,
        coll: &Collection,
        id: RawBsonRef<'_>,
    ) -> Result<Option<RawDoc>, StorageError> {
        match self.record_key(coll, id)? {
            Some(key) => self.fetch(coll, &key),
            None => Ok(None),
        }
    }

    /// The record key that the document with this `_id` has or would have.
    pub fn record_key(
        &self,
        coll: &Collection,
        id: RawBsonRef<'_>,
    ) -> Result<Option<RecordKey>, StorageError> {
        let key = keystring::encode_raw(id)?;
        let (Some(_), Some(table)) = (coll.capped(), coll.id_table) else {
            return Ok(Some(RecordKey(key.into())));
        };
        let Some(version) = self.reader.get(table, &key)? else { return Ok(None) };
        Ok(Some(RecordKey(entry::split(&key.into(), &version)?.1.into())))
    }

    /// The document with this record key.
    pub fn fetch(
        &self,
        coll: &Collection,
        key: &RecordKey,
    ) -> Result<Option<RawDoc>, StorageError> {
        self.reader.get(coll.table, &key.0)?.map(|version| version.into_doc()).transpose()
    }

    /// All documents in record key order, from `start` on in scan direction.
    pub fn scan(
        &self,
        coll: &Collection,
        start: Bound<&RecordKey>,
        direction: Direction,
    ) -> RecordScan {
        let start = start.map(RecordKey::as_bytes);
        let (from, to) = match direction {
            Direction::Forward => (start, Bound::Unbounded),
            Direction::Backward => (Bound::Unbounded, start),
        };
        RecordScan(self.reader.scan(coll.table, from, to, direction))
    }

    /// The entries of an index between two bounds, which are KeyStrings of a prefix of its fields. An excluded lower
    /// or included upper bound covers every key that begins with it.
    pub fn index_scan(
        &self,
        _coll: &Collection,
        index: &Index,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> IndexScan {
        IndexScan(self.prefix_scan(index.table, range, direction))
    }

    /// Scans the `_id` index in its own order, which the collection's collation may determine. `dbHash` uses it.
    pub fn id_scan(
        &self,
        coll: &Collection,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> IndexScan {
        match coll.id_table {
            Some(table) => IndexScan(self.prefix_scan(table, range, direction)),
            None => IndexScan(IndexWalk::Documents(self.walk(coll.table, range, direction))),
        }
    }

    fn prefix_scan(
        &self,
        table: TableId,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> IndexWalk {
        IndexWalk::Entries(self.walk(table, range, direction))
    }

    fn walk(
        &self,
        table: TableId,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Scan {
        // A bound is a prefix of the row keys, since the record key follows.
        let after = |key: &[u8]| crate::layout::prefix_range(key).1;
        let from = match range.0 {
            Bound::Excluded(key) => match after(key) {
                Bound::Excluded(next) => Bound::Included(next),
                other => other,
            },
            other => other.map(<[u8]>::to_vec),
        };
        let to = match range.1 {
            Bound::Included(key) => after(key),
            other => other.map(<[u8]>::to_vec),
        };
        let bounds = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
        self.reader.scan(table, bounds.0, bounds.1, direction)
    }

    /// Number of documents of the collection.
    pub fn count(&self, coll: &Collection) -> Result<u64, StorageError> {
        Ok(self.counts(coll)?.documents)
    }

    /// Bytes of the collection's documents.
    pub fn data_size(&self, coll: &Collection) -> Result<u64, StorageError> {
        Ok(self.counts(coll)?.bytes)
    }

    fn counts(&self, coll: &Collection) -> Result<Counts, StorageError> {
        let Some(value) = self.reader.snapshot.get(Keyspace::Meta, &Counts::key(coll.table))?
        else {
            return Ok(Counts::default());
        };
        let newest = Counts::parse(&value)
            .ok_or_else(|| StorageError::corrupt("meta", "a row of counts"))?;
        count_log::counts_at(&self.reader, coll.table, newest)
    }

    /// The prepared transaction that has written the document with this `_id`, and its prepare timestamp. A reader at
    /// or after that timestamp must wait for its decision, unless it may ignore prepared writes.
    pub fn prepared_conflict(
        &self,
        coll: &Collection,
        id: RawBsonRef<'_>,
    ) -> Result<Option<(TxnId, Timestamp)>, StorageError> {
        let key = keystring::encode_raw(id)?;
        prepared::holder(&*self.reader.snapshot, coll.table, &key)
    }

    /// True if an undecided transaction prepared at or before `until` has written a document of the collection, or,
    /// without a collection, any document. One lookup if nothing is prepared.
    pub fn holds(&self, coll: Option<&Collection>, until: Timestamp) -> Result<bool, StorageError> {
        prepared::any_held(&*self.reader.snapshot, coll.map(|coll| coll.table), until)
    }

    /// Bytes of an index, estimated from its first entries.
    pub fn index_size(&self, coll: &Collection, index: &Index) -> Result<u64, StorageError> {
        const SAMPLE: usize = 100;
        let mut bytes = 0;
        let mut entries = 0;
        let all = (Bound::Unbounded, Bound::Unbounded);
        for item in self.walk(index.table, all, Direction::Forward).take(SAMPLE) {
            let (row, version) = item?;
            bytes += (row.len() + version.bytes().len()) as u64;
            entries += 1;
        }
        if entries < SAMPLE {
            return Ok(bytes);
        }
        Ok(bytes * self.count(coll)? / SAMPLE as u64)
    }
}

impl Inner {
    /// The catalog at an earlier timestamp: the present one if nothing changed since, else read from history.
    fn catalog_at(
        &self,
        reader: &Reader,
        present: &Catalog,
        ts: Timestamp,
    ) -> Result<Catalog, StorageError> {
        if present.changed() <= ts {
            return Ok(present.clone());
        }
        let changed = present.changed();
        let mut old = self.old_catalogs.lock();
        if let Some((_, _, catalog)) = old.iter().find(|(at, by, _)| *at == ts && *by == changed) {
            return Ok(catalog.clone());
        }
        drop(old);
        let catalog = Catalog::read(reader)?;
        old = self.old_catalogs.lock();
        old.push_back((ts, changed, catalog.clone()));
        if old.len() > OLD_CATALOGS {
            old.pop_front();
        }
        Ok(catalog)
    }
}

/// A scan over documents.
pub struct RecordScan(Scan);

impl Iterator for RecordScan {
    type Item = Result<(RecordKey, RawDoc), StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.0.next()?;
        Some(item.and_then(|(key, version)| Ok((RecordKey(key.into()), version.into_doc()?))))
    }
}

impl RecordScan {
    /// The next document that the test accepts; rejected ones are not copied.
    pub fn next_where(
        &mut self,
        test: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Option<Result<(RecordKey, RawDoc), StorageError>> {
        let found = self.0.next_where(test).transpose()?;
        Some(found.and_then(|(key, version)| Ok((RecordKey(key.into()), version.into_doc()?))))
    }
}

/// A scan over index entries.
pub struct IndexScan(IndexWalk);

enum IndexWalk {
    Entries(Scan),
    /// The documents themselves serve as the `_id` index.
    Documents(Scan),
}

impl Iterator for IndexScan {
    type Item = Result<IndexEntry, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            IndexWalk::Entries(scan) => {
                let item = scan.next()?;
                Some(item.and_then(|(row, version)| {
                    let (key, record, marks) = entry::split(&row, &version)?;
                    let (key, record) = (key.into(), RecordKey(record.into()));
                    Ok(IndexEntry { key, marks: marks.into(), record, doc: None })
                }))
            }
            IndexWalk::Documents(scan) => {
                let item = scan.next()?;
                Some(item.and_then(|(key, version)| {
                    let doc = Some(version.into_doc()?);
                    let (key, marks) = (ByteView::from(key), Marks::NONE.into());
                    Ok(IndexEntry { key: key.clone(), marks, record: RecordKey(key), doc })
                }))
            }
        }
    }
}
