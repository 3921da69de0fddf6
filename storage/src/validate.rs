//! Checks a collection: documents, counts, indexes, history.
//!
//! Documents and index entries are each scanned once, and sums of hashes are compared. Only if these differ are the
//! wrong entries searched for one by one.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    ops::Bound::{self, Unbounded},
};

use protocol::{RawDoc, Timestamp};

use crate::{
    Collection, Direction, Index, ReadAt, RecordKey, StorageError, Store, View,
    apply::documents::{id_entry, id_of},
    engine::Keyspace,
    index::entry,
    keystring::{self, Marks},
    layout::{Epoch, TableId, split_history_key},
    mvcc::Version,
};

/// Maximum number of detailed findings.
const ERRORS_MAX: usize = 20;

/// The result of `validate`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidateReport {
    /// Number of documents.
    pub nrecords: u64,
    /// Documents that are not valid BSON, or whose key does not match their `_id`.
    pub n_invalid_documents: u64,
    /// Number of entries of each index that keeps keys, including the one on `_id`.
    pub keys_per_index: BTreeMap<String, u64>,
    /// Names of the inconsistent indexes.
    pub invalid_indexes: Vec<String>,
    /// Descriptions of the findings.
    pub errors: Vec<String>,
}

impl ValidateReport {
    /// True if nothing was found.
    pub fn valid(&self) -> bool {
        self.errors.is_empty() && self.n_invalid_documents == 0 && self.invalid_indexes.is_empty()
    }

    fn error(&mut self, what: impl Into<String>) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(what.into());
        }
    }
}

/// An order-independent hash of a multiset.
#[derive(Default, PartialEq, Eq, Clone, Copy)]
struct Sum {
    count: u64,
    hash: u64,
}

impl Sum {
    fn add(&mut self, key: &[u8], record: &[u8]) {
        self.add_hash((key, record));
    }

    fn add_hash(&mut self, what: impl Hash) {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        self.count += 1;
        self.hash = self.hash.wrapping_add(hasher.finish());
    }
}

/// Sums over the entries of an index.
#[derive(Default, Clone, Copy)]
struct Entries {
    keys: Sum,
    /// The sum over the keys together with their type marks.
    marked: Sum,
}

impl Entries {
    fn add(&mut self, key: &[u8], record: &[u8], marks: Marks) {
        self.keys.add(key, record);
        self.marked.add_hash((key, record, u64::from(marks)));
    }
}

impl Store {
    /// Checks a collection at the newest timestamp; with `full` also the history of its documents.
    pub fn validate(&self, coll: &Collection, full: bool) -> Result<ValidateReport, StorageError> {
        let view = self.view(ReadAt::Newest)?;
        let uuid = coll.uuid();
        let coll = view.catalog().by_uuid(uuid).ok_or(StorageError::NoCollection(uuid))?;
        let mut report = ValidateReport::default();
        let indexes: Vec<_> = coll.indexes().iter().filter(|index| index.usable()).collect();
        let mut wanted = vec![Entries::default(); indexes.len()];
        let mut ids = Sum::default();
        let mut bytes = 0;
        for item in view.scan(&coll, Unbounded, Direction::Forward) {
            let (record, doc) = item?;
            report.nrecords += 1;
            bytes += doc.len() as u64;
            if let Err(why) = check_document(&coll, &record, &doc, &mut ids) {
                report.n_invalid_documents += 1;
                report.error(format!("document at {:02x?}: {why}", record.as_bytes()));
                continue;
            }
            for (index, sum) in indexes.iter().zip(&mut wanted) {
                let keys = index.keygen.keys(&doc)?;
                let record = record.as_bytes();
                keys.keys.iter().for_each(|key| sum.add(&key.bytes, record, key.marks));
            }
        }
        check_counts(&view, &coll, bytes, &mut report)?;
        check_ids(&view, &coll, ids, &mut report)?;
        for (index, sum) in indexes.iter().zip(&wanted) {
            check_index(&view, &coll, index, *sum, &mut report)?;
        }
        if full {
            let mut tables = vec![coll.table];
            tables.extend(indexes.iter().map(|index| index.table));
            for table in tables {
                self.check_history(&view, table, &mut report)?;
            }
        }
        Ok(report)
    }

    /// Checks that the validity periods of a row's versions do not overlap and that the present version comes last.
    fn check_history(
        &self,
        view: &View,
        table: TableId,
        report: &mut ValidateReport,
    ) -> Result<(), StorageError> {
        let reader = view.reader();
        for epoch in self.0.history.epochs_from(Timestamp::NULL, table) {
            let from = [&epoch.prefix()[..], &table.key(&[])].concat();
            let to = [&epoch.prefix()[..], &table.end()].concat();
            let range = reader.snapshot.range(
                Keyspace::History,
                Bound::Included(&from),
                Bound::Excluded(&to),
            );
            let mut before: Option<(Vec<u8>, Timestamp)> = None;
            for item in range {
                let (key, value) = item?;
                let Some((row, stop)) = split_history_key(&key) else {
                    report.error(format!("history of table {}: a key is cut short", table.0));
                    continue;
                };
                let start = Version::parse(value)?.start();
                let last = before.as_ref().filter(|(r, _)| r == row).map(|(_, stop)| *stop);
                if start >= stop || last.is_some_and(|last| start < last) {
                    report.error(overlap(table, epoch, row, start, stop));
                }
                if reader.present(row)?.is_some_and(|now| now.start() < stop) {
                    report.error(overlap(table, epoch, row, start, stop));
                }
                before = Some((row.to_vec(), stop));
            }
        }
        Ok(())
    }
}

fn overlap(table: TableId, epoch: Epoch, row: &[u8], start: Timestamp, stop: Timestamp) -> String {
    let (table, epoch) = (table.0, epoch.0);
    format!("history of table {table}, epoch {epoch}: row {row:02x?} lives from {start} to {stop}")
}

fn check_document(
    coll: &Collection,
    record: &RecordKey,
    doc: &RawDoc,
    ids: &mut Sum,
) -> Result<(), String> {
    query::value::validate(doc.as_bytes()).map_err(|e| e.to_string())?;
    let id = id_of(doc).map_err(|e| e.to_string())?;
    if coll.id_table.is_some() {
        let (row, payload) = id_entry(coll, id, record.as_bytes()).map_err(|e| e.to_string())?;
        ids.add(&row, &payload);
    }
    let place = keystring::encode(id).map_err(|e| e.to_string())?;
    if coll.capped().is_none() && place != record.as_bytes() {
        return Err("it does not stand at the place of its _id".to_owned());
    }
    Ok(())
}

fn check_counts(
    view: &View,
    coll: &Collection,
    bytes: u64,
    report: &mut ValidateReport,
) -> Result<(), StorageError> {
    let counted = (view.count(coll)?, view.data_size(coll)?);
    let found = (report.nrecords, bytes);
    if counted != found {
        report.error(format!("counted {counted:?} documents and bytes, found {found:?}"));
    }
    Ok(())
}

fn check_ids(
    view: &View,
    coll: &Collection,
    wanted: Sum,
    report: &mut ValidateReport,
) -> Result<(), StorageError> {
    let Some(table) = coll.id_table else {
        report.keys_per_index.insert("_id_".to_owned(), report.nrecords);
        return Ok(());
    };
    let mut found = Sum::default();
    for item in view.reader().scan(table, Unbounded, Unbounded, Direction::Forward) {
        let (row, version) = item?;
        found.add(&row, version.payload());
    }
    report.keys_per_index.insert("_id_".to_owned(), found.count);
    if found != wanted {
        report.invalid_indexes.push("_id_".to_owned());
        report
            .error(format!("_id_ has {} entries, not the {} it should", found.count, wanted.count));
    }
    Ok(())
}

/// Checks the marks of index entries. Entries of older programs have none; existing ones must fit their documents.
fn check_marks(
    view: &View,
    coll: &Collection,
    index: &Index,
    report: &mut ValidateReport,
) -> Result<(), StorageError> {
    let mut wrong = false;
    for item in view.index_scan(coll, index, (Unbounded, Unbounded), Direction::Forward) {
        let item = item?;
        let Some(doc) =
            view.fetch(coll, &item.record)?.filter(|_| Marks::from(item.marks) != Marks::NONE)
        else {
            continue;
        };
        let keys = index.keygen.keys(&doc)?.keys;
        if !keys.iter().any(|key| *item.key == *key.bytes && item.marks == u64::from(key.marks)) {
            wrong = true;
            let (name, record) = (index.name(), item.record.as_bytes());
            report.error(format!("{name}: the entry for {record:02x?} tells other types"));
        }
    }
    if wrong {
        report.invalid_indexes.push(index.name().to_owned());
    }
    Ok(())
}

fn check_index(
    view: &View,
    coll: &Collection,
    index: &Index,
    wanted: Entries,
    report: &mut ValidateReport,
) -> Result<(), StorageError> {
    let mut found = Entries::default();
    let all = (Unbounded, Unbounded);
    for item in view.index_scan(coll, index, all, Direction::Forward) {
        let item = item?;
        found.add(&item.key, item.record.as_bytes(), item.marks.into());
    }
    report.keys_per_index.insert(index.name().to_owned(), found.keys.count);
    if found.keys == wanted.keys {
        return match found.marked == wanted.marked {
            true => Ok(()),
            false => check_marks(view, coll, index, report),
        };
    }
    report.invalid_indexes.push(index.name().to_owned());
    for item in view.index_scan(coll, index, all, Direction::Forward) {
        let item = item?;
        let keys = match view.fetch(coll, &item.record)? {
            Some(doc) => index.keygen.keys(&doc)?.keys,
            None => Vec::new(),
        };
        if !keys.iter().any(|key| *item.key == *key.bytes) {
            let record = item.record.as_bytes();
            report.error(format!(
                "{}: an entry for {record:02x?} that it has no key for",
                index.name()
            ));
        }
    }
    for item in view.scan(coll, Unbounded, Direction::Forward) {
        let (record, doc) = item?;
        for key in index.keygen.keys(&doc)?.keys {
            let row = [&key.bytes, record.as_bytes()].concat();
            let there = view.reader().get(index.table, &row)?;
            let found = there.map(|version| entry::split(&row.into(), &version)).transpose()?;
            if found.is_none_or(|(found, ..)| *found != *key.bytes) {
                let record = record.as_bytes();
                report.error(format!("{}: no entry for {record:02x?}", index.name()));
            }
        }
    }
    Ok(())
}
