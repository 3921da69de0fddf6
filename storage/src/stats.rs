//! What the store can tell about itself.

use std::{collections::HashMap, ops::Bound};

use bson::RawBsonRef;
use protocol::{Namespace, RawDoc, Timestamp};

use crate::{
    Collection, StorageError, Store,
    engine::Keyspace,
    keystring,
    layout::{Epoch, TableId, cut, history_key, split_history_key},
    mvcc::Version,
};

/// Sizes, by part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Bytes on disk of each keyspace.
    pub disk: Vec<(&'static str, u64)>,
    /// Oplog entries.
    pub oplog_entries: u64,
    /// Their bytes.
    pub oplog_bytes: u64,
    /// Old versions, with their bytes, by epoch.
    pub history: Vec<(u32, u64, u64)>,
}

/// A version of a document and its life.
#[derive(Clone, Debug)]
pub struct DocumentVersion {
    /// Readable from here on.
    pub start: Timestamp,
    /// Until before here; `None` for the present one.
    pub stop: Option<Timestamp>,
    /// What it was.
    pub doc: RawDoc,
}

impl Store {
    /// Sizes, by part.
    pub fn stats(&self) -> StoreStats {
        let inner = &self.0;
        let mut history: Vec<(u32, u64, u64)> = Vec::new();
        for (Epoch(epoch), _, held) in inner.history.held() {
            match history.last_mut() {
                Some(last) if last.0 == epoch => {
                    last.1 += held.versions;
                    last.2 += held.bytes;
                }
                _ => history.push((epoch, held.versions, held.bytes)),
            }
        }
        let disk = Keyspace::ALL.iter().map(|ks| (ks.name(), inner.engine.disk_bytes(*ks)));
        StoreStats {
            disk: disk.collect(),
            oplog_entries: inner.oplog.count(),
            oplog_bytes: inner.oplog.bytes(),
            history,
        }
    }

    /// Bytes of all documents, as they stand now.
    pub fn data_bytes(&self) -> u64 {
        let all: u64 = self.0.counts.lock().values().map(|counts| counts.bytes).sum();
        all.saturating_sub(self.dropped_bytes())
    }

    /// Bytes of all that is kept for readers of earlier moments: old versions, and collections that were dropped.
    pub fn history_bytes(&self) -> u64 {
        self.0.history.bytes()
    }

    /// How much of that are collections and indexes that were dropped.
    pub fn dropped_bytes(&self) -> u64 {
        self.0.history.dropped().values().map(|dropped| dropped.bytes).sum()
    }

    /// What the past costs by collection, in versions and bytes, the largest first; of one that was dropped its last
    /// documents are versions, too. The catalog, and what is older than it tells, has no name here.
    pub fn history_by_collection(&self) -> Vec<(Option<Namespace>, u64, u64)> {
        let mut names: HashMap<TableId, Namespace> = HashMap::new();
        for coll in self.0.present().catalog.all() {
            let indexes = coll.indexes.iter().map(|index| index.table);
            for table in [coll.table].into_iter().chain(coll.id_table).chain(indexes) {
                names.insert(table, coll.ns().clone());
            }
        }
        let mut sums: HashMap<Option<Namespace>, (u64, u64)> = HashMap::new();
        for (table, dropped) in self.0.history.dropped() {
            let sum = sums.entry(dropped.ns.clone()).or_default();
            sum.0 += dropped.documents;
            sum.1 += dropped.bytes;
            names.extend(dropped.ns.map(|ns| (table, ns)));
        }
        for (_, table, held) in self.0.history.held() {
            let sum = sums.entry(names.get(&table).cloned()).or_default();
            sum.0 += held.versions;
            sum.1 += held.bytes;
        }
        let mut list: Vec<_> = sums.into_iter().map(|(ns, (n, bytes))| (ns, n, bytes)).collect();
        list.sort_by_key(|(_, _, bytes)| std::cmp::Reverse(*bytes));
        list
    }

    /// Old versions of a collection's documents and index entries, and their bytes.
    pub fn history_of(&self, coll: &Collection) -> (u64, u64) {
        let mut tables: Vec<TableId> = vec![coll.table];
        tables.extend(coll.id_table);
        tables.extend(coll.indexes.iter().map(|index| index.table));
        let held = self.0.history.held();
        let ours = held.iter().filter(|(_, table, _)| tables.contains(table));
        ours.fold((0, 0), |sum, (_, _, held)| (sum.0 + held.versions, sum.1 + held.bytes))
    }

    /// Every version of a document that is still held, oldest first. Not for capped collections.
    pub fn versions(
        &self,
        coll: &Collection,
        id: RawBsonRef<'_>,
    ) -> Result<Vec<DocumentVersion>, StorageError> {
        let key = keystring::encode_raw(id)?;
        let row = coll.table.key(cut(&key).as_deref().unwrap_or(&key));
        let snapshot = self.0.engine.snapshot();
        let mut out = Vec::new();
        for epoch in self.0.history.epochs_from(Timestamp::NULL, coll.table) {
            let from = history_key(epoch, &row, Timestamp::NULL);
            let to = history_key(epoch, &row, Timestamp::MAX);
            let range =
                snapshot.range(Keyspace::History, Bound::Included(&from), Bound::Included(&to));
            for item in range {
                let (key, value) = item?;
                let version = Version::parse(value)?;
                let stop = split_history_key(&key).map(|(_, stop)| stop);
                out.push(DocumentVersion {
                    start: version.start(),
                    stop,
                    doc: version.into_doc()?,
                });
            }
        }
        if let Some(value) = snapshot.get(Keyspace::Current, &row)? {
            let version = Version::parse(value)?;
            out.push(DocumentVersion {
                start: version.start(),
                stop: None,
                doc: version.into_doc()?,
            });
        }
        Ok(out)
    }
}
