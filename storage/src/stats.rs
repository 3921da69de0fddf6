//! Statistics of the store.

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

/// Sizes by part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Bytes on disk of each keyspace.
    pub disk: Vec<(&'static str, u64)>,
    /// Oplog entries.
    pub oplog_entries: u64,
    /// Bytes of the oplog entries.
    pub oplog_bytes: u64,
    /// By epoch: number of old versions, and their bytes.
    pub history: Vec<(u32, u64, u64)>,
}

/// A version of a document with its validity.
#[derive(Clone, Debug)]
pub struct DocumentVersion {
    /// First timestamp at which it is valid.
    pub start: Timestamp,
    /// End of its validity (exclusive); `None` for the present version.
    pub stop: Option<Timestamp>,
    /// The document.
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

    /// Bytes of all present documents.
    pub fn data_bytes(&self) -> u64 {
        let all: u64 = self.0.counts.lock().values().map(|counts| counts.bytes).sum();
        all.saturating_sub(self.dropped_bytes())
    }

    /// Bytes kept for readers of the past: old versions and dropped collections.
    pub fn history_bytes(&self) -> u64 {
        self.0.history.bytes()
    }

    /// The part of [`Self::history_bytes`] that is dropped collections and indexes.
    pub fn dropped_bytes(&self) -> u64 {
        self.0.history.dropped().values().map(|dropped| dropped.bytes).sum()
    }

    /// Size of history by collection, in versions and bytes, largest first. The last documents of a dropped
    /// collection count as versions. The name is `None` for the catalog and for tables that the catalog no longer
    /// knows.
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

    /// Number and bytes of old versions of a collection's documents and index entries.
    pub fn history_of(&self, coll: &Collection) -> (u64, u64) {
        let mut tables: Vec<TableId> = vec![coll.table];
        tables.extend(coll.id_table);
        tables.extend(coll.indexes.iter().map(|index| index.table));
        let held = self.0.history.held();
        let ours = held.iter().filter(|(_, table, _)| tables.contains(table));
        ours.fold((0, 0), |sum, (_, _, held)| (sum.0 + held.versions, sum.1 + held.bytes))
    }

    /// Every available version of a document, oldest first. Not for capped collections.
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
