//! Loading a whole collection during initial sync: documents first, then each index from its sorted keys.
//!
//! Natural order is not key order, and bulk ingestion takes ascending keys only, so everything goes through
//! a [`Sorter`] with bounded memory. What stayed in memory is written by ordinary batches (an ingestion costs
//! 30 ms however small it is); what did not is ingested. No history is made: the versions start at zero.
//! A crash in between leaves a half-loaded collection and the initial sync's flag, which starts it anew.

use std::sync::Arc;

use bson::RawDocument;
use protocol::{RawDoc, Timestamp};
use uuid::Uuid;

use crate::{
    StorageError,
    apply::documents::{id_entry, id_of, union, widens},
    catalog::{Collection, Index},
    engine::{Batch, Item, Keyspace, Slice, Sync},
    index::entry,
    keystring,
    layout::{TableId, cut},
    mvcc::{Version, version::Head},
    sort::{Sorted, Sorter},
    store::{Counts, Inner},
};

/// Memory of a loader: half for documents, half for the keys of all indexes together.
const MEMORY_BYTES: usize = 32 << 20;
/// Size of the batches by which small loads are written.
const BATCH_BYTES: u64 = 4 << 20;

/// Takes the documents of one collection, in any order.
pub struct Loader {
    store: Arc<Inner>,
    coll: Arc<Collection>,
    documents: Sorter,
    next_record: u64,
}

/// What was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Documents, each `_id` once.
    pub documents: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Loader {
    pub(crate) fn new(store: Arc<Inner>, coll: Arc<Collection>) -> Self {
        let documents = Sorter::new(&store.sort_dir(), MEMORY_BYTES / 2);
        let next_record = store.counts_of(coll.table).next_record;
        Self { store, coll, documents, next_record }
    }

    /// Takes a document. Of two with one `_id` the later counts.
    pub fn push(&mut self, doc: &RawDocument) -> Result<(), StorageError> {
        let id = keystring::encode(id_of(doc)?)?;
        let record = if self.coll.capped().is_some() {
            self.next_record += 1;
            self.next_record.to_be_bytes().to_vec()
        } else {
            id
        };
        let (row, version) = row(self.coll.table, &record, &[doc.as_bytes()]);
        self.documents.push(row, version.bytes().clone())
    }

    /// Writes the documents, then builds every index that keeps keys.
    pub fn finish(self) -> Result<LoadReport, StorageError> {
        let Self { store, coll, documents, next_record } = self;
        let in_memory = documents.in_memory();
        let mut indexer = Indexer::new(&store, &coll, MEMORY_BYTES / 2);
        let mut tally = Counts { next_record, ..Counts::default() };
        let mut run = documents.finish()?.map(|item| {
            let (row, value) = item?;
            indexer.add(&row, &value, &mut tally)?;
            Ok((row, value))
        });
        write_run(&store, &mut run, in_memory)?;
        drop(run);
        let multikey = indexer.finish(&store)?;
        let mut batch = Batch::default();
        batch.put(Keyspace::Meta, Counts::key(coll.table), tally.to_value());
        store.engine.commit(batch, Sync::No)?;
        store.counts.lock().insert(coll.table, tally);
        store.note_multikey(coll.uuid(), multikey)?;
        Ok(LoadReport { documents: tally.documents, bytes: tally.bytes })
    }
}

/// Sorts the keys of all indexes of a collection while its documents go by.
struct Indexer {
    coll: Arc<Collection>,
    id_entries: Option<(TableId, Sorter)>,
    indexes: Vec<IndexLoad>,
}

/// An index by name, and where arrays were seen for each of its fields.
type Multikey = (String, Vec<Vec<u32>>);

/// An index being filled.
pub(crate) struct IndexLoad {
    pub(crate) index: Arc<Index>,
    pub(crate) sorter: Sorter,
    pub(crate) multikey: Vec<Vec<u32>>,
}

impl IndexLoad {
    pub(crate) fn new(index: &Arc<Index>, store: &Inner, memory: usize) -> Self {
        Self {
            index: Arc::clone(index),
            sorter: Sorter::new(&store.sort_dir(), memory),
            multikey: index.multikey.clone(),
        }
    }

    /// The keys of one document.
    pub(crate) fn add(&mut self, record: &[u8], doc: &RawDocument) -> Result<(), StorageError> {
        let keys = self.index.keygen.keys(doc)?;
        for key in &keys.keys {
            let whole = [key, record].concat();
            let (row, version) = row(self.index.table, &whole, &[&entry::payload(key.len())]);
            self.sorter.push(row, version.bytes().clone())?;
        }
        if widens(&self.index, &keys.multikey) {
            let known = self.index.changed(self.index.state, std::mem::take(&mut self.multikey));
            self.multikey = union(&known, &keys.multikey);
        }
        Ok(())
    }
}

impl Indexer {
    fn new(store: &Inner, coll: &Arc<Collection>, memory: usize) -> Self {
        let filled: Vec<_> = coll.indexes.iter().filter(|i| i.keygen.has_keys()).collect();
        let share = memory / (filled.len() + usize::from(coll.id_table.is_some())).max(1);
        Self {
            coll: Arc::clone(coll),
            id_entries: coll.id_table.map(|table| (table, Sorter::new(&store.sort_dir(), share))),
            indexes: filled.into_iter().map(|index| IndexLoad::new(index, store, share)).collect(),
        }
    }

    fn add(
        &mut self,
        row_key: &Slice,
        value: &Slice,
        tally: &mut Counts,
    ) -> Result<(), StorageError> {
        let version = Version::parse(value.clone())?;
        let key = row_key.get(4..).unwrap_or_default();
        let record = version.full_key().unwrap_or(key).to_vec();
        let doc = RawDoc::new(version.into_payload()).map_err(StorageError::bad_document)?;
        tally.documents += 1;
        tally.bytes += doc.bytes().len() as u64;
        if let Some((table, sorter)) = &mut self.id_entries {
            let (key, payload) = id_entry(&self.coll, id_of(&doc)?, &record)?;
            let (row, version) = row(*table, &key, &[&payload]);
            sorter.push(row, version.bytes().clone())?;
        }
        self.indexes.iter_mut().try_for_each(|index| index.add(&record, &doc))
    }

    fn finish(self, store: &Inner) -> Result<Vec<Multikey>, StorageError> {
        if let Some((_, sorter)) = self.id_entries {
            write_sorter(store, sorter)?;
        }
        let mut multikey = Vec::new();
        for load in self.indexes {
            write_sorter(store, load.sorter)?;
            multikey.push((load.index.name().to_owned(), load.multikey));
        }
        Ok(multikey)
    }
}

/// Row and version of a loaded key.
fn row(table: TableId, key: &[u8], payload: &[&[u8]]) -> (Slice, Version) {
    let short = cut(key);
    let full_key = short.is_some().then_some(key);
    let head = Head { start: Timestamp::NULL, full_key, ..Head::default() };
    (table.key(short.as_deref().unwrap_or(key)).into(), Version::new(head, payload))
}

pub(crate) fn write_sorter(store: &Inner, sorter: Sorter) -> Result<(), StorageError> {
    let in_memory = sorter.in_memory();
    let mut sorted: Sorted = sorter.finish()?;
    write_run(store, &mut sorted, in_memory)
}

fn write_run(
    store: &Inner,
    run: &mut dyn Iterator<Item = Item>,
    in_memory: bool,
) -> Result<(), StorageError> {
    if !in_memory {
        // One at a time: each stalls writers for a moment.
        let _turn = store.ingesting.lock();
        let result = store.engine.ingest(Keyspace::Current, run);
        store.low.forget();
        return result;
    }
    let mut batch = Batch::default();
    for item in run {
        let (key, value) = item?;
        batch.put(Keyspace::Current, key, value);
        if batch.bytes >= BATCH_BYTES {
            store.engine.commit(std::mem::take(&mut batch), Sync::No)?;
        }
    }
    let result = store.engine.commit(batch, Sync::No);
    store.low.forget();
    result
}

impl Inner {
    pub(crate) fn sort_dir(&self) -> std::path::PathBuf {
        if self.dbpath.as_os_str().is_empty() {
            return std::env::temp_dir();
        }
        self.dbpath.join("sort")
    }

    /// Records where arrays were seen, in the catalog row as it stands, and shows what was loaded.
    fn note_multikey(
        self: &Arc<Self>,
        uuid: Uuid,
        seen: Vec<Multikey>,
    ) -> Result<(), StorageError> {
        let mut apply = crate::Apply::begin(Arc::clone(self));
        for (name, multikey) in seen {
            apply.note_multikey(uuid, &name, &multikey)?;
        }
        let applied = self.marks.applied();
        apply.commit(applied)
    }
}
