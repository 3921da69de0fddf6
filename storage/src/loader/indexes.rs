//! The keys of all indexes of a collection, sorted while its documents pass.

use std::sync::Arc;

use bson::RawDocument;
use protocol::Timestamp;

use super::{document, row, write_run};
use crate::{
    StorageError,
    apply::documents::{id_entry, id_of},
    catalog::{Collection, Index},
    engine::{Item, Slice},
    index::{entry, keygen::Key},
    layout::{ROW_KEY_MAX, TableId},
    mvcc::{Version, version::Head},
    sort::Sorter,
    store::{Counts, Inner},
};

/// Number of sorters that are written concurrently.
const WRITERS: usize = 2;

/// An index name with the multikey paths of each of its fields.
pub(super) type Multikey = (String, Vec<Vec<u32>>);

/// Every index of a collection that keeps keys.
pub(super) struct Indexes {
    coll: Arc<Collection>,
    id_entries: Option<(TableId, Sorter)>,
    loads: Vec<IndexLoad>,
    tally: Counts,
}

impl Indexes {
    pub(super) fn new(store: &Inner, coll: &Arc<Collection>, memory: usize) -> Self {
        let filled: Vec<_> = coll.indexes.iter().filter(|i| i.keygen.has_keys()).collect();
        let share = memory / (filled.len() + usize::from(coll.id_table.is_some())).max(1);
        Self {
            coll: Arc::clone(coll),
            id_entries: coll.id_table.map(|table| (table, Sorter::new(&store.sort_dir(), share))),
            loads: filled.into_iter().map(|index| IndexLoad::new(index, store, share)).collect(),
            tally: Counts::default(),
        }
    }

    /// Counts a document, generates its keys and returns it.
    pub(super) fn pass(&mut self, (key, value): (Slice, Slice)) -> Item {
        self.take(&key, value.clone())?;
        Ok((key, value))
    }

    /// Counts a document and generates its keys.
    pub(super) fn take(&mut self, key: &[u8], value: Slice) -> Result<(), StorageError> {
        let (full_key, doc) = document(value)?;
        self.tally.documents += 1;
        self.tally.bytes += doc.len() as u64;
        let record = full_key.as_deref().unwrap_or_else(|| key.get(4..).unwrap_or_default());
        if let Some((table, sorter)) = &mut self.id_entries {
            let (entry, payload) = id_entry(&self.coll, id_of(&doc)?, record)?;
            let (row, value) = row(*table, &entry, &[&payload]);
            sorter.push(&row, &value)?;
        }
        self.loads.iter_mut().try_for_each(|load| load.add(record, &doc))
    }

    /// Writes all entries.
    pub(super) fn finish(self, store: &Inner) -> Result<(Counts, Vec<Multikey>), StorageError> {
        let mut sorters: Vec<Sorter> = self.id_entries.into_iter().map(|(_, s)| s).collect();
        let mut multikey = Vec::new();
        for load in self.loads {
            multikey.push((load.index.name().to_owned(), load.multikey));
            sorters.push(load.sorter);
        }
        write_indexes(store, sorters)?;
        Ok((self.tally, multikey))
    }
}

/// An index that is being filled.
pub(crate) struct IndexLoad {
    pub(crate) index: Arc<Index>,
    pub(crate) sorter: Sorter,
    pub(crate) multikey: Vec<Vec<u32>>,
    /// Buffer for building an entry.
    key: Vec<u8>,
}

impl IndexLoad {
    pub(crate) fn new(index: &Arc<Index>, store: &Inner, memory: usize) -> Self {
        Self {
            index: Arc::clone(index),
            sorter: Sorter::new(&store.sort_dir(), memory),
            multikey: index.multikey.clone(),
            key: Vec::new(),
        }
    }

    /// Adds the keys of one document.
    pub(crate) fn add(&mut self, record: &[u8], doc: &RawDocument) -> Result<(), StorageError> {
        let keys = self.index.keygen.keys(doc)?;
        for Key { bytes: key, marks } in &keys.keys {
            let payload = entry::payload(key.len(), *marks);
            if key.len() + record.len() > ROW_KEY_MAX {
                let (row, value) = row(self.index.table, &[key, record].concat(), &[&payload]);
                self.sorter.push(&row, &value)?;
                continue;
            }
            self.key.clear();
            self.key.extend_from_slice(&self.index.table.0.to_be_bytes());
            self.key.extend_from_slice(key);
            self.key.extend_from_slice(record);
            let head = Head { start: Timestamp::NULL, ..Head::default() };
            self.sorter.push(&self.key, Version::new(head, &[&payload]).bytes())?;
        }
        widen(&mut self.multikey, &keys.multikey);
        Ok(())
    }
}

/// Adds the multikey paths.
fn widen(known: &mut Vec<Vec<u32>>, seen: &[Vec<u32>]) {
    if known.len() < seen.len() {
        known.resize(seen.len(), Vec::new());
    }
    for (known, seen) in known.iter_mut().zip(seen) {
        for path in seen {
            if let Err(at) = known.binary_search(path) {
                known.insert(at, *path);
            }
        }
    }
}

/// Writes the entries of several indexes.
pub(crate) fn write_indexes(store: &Inner, sorters: Vec<Sorter>) -> Result<(), StorageError> {
    let queue = parking_lot::Mutex::new(sorters.into_iter());
    let work = || {
        loop {
            let next = queue.lock().next();
            let Some(sorter) = next else { return Ok(()) };
            let in_memory = sorter.in_memory();
            write_run(store, &mut sorter.finish()?, in_memory)?;
        }
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> =
            (1..WRITERS.min(queue.lock().len())).map(|_| scope.spawn(work)).collect();
        let mut result = work();
        for writer in writers {
            let ended = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = result.and(ended);
        }
        result
    })
}
