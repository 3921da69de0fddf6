//! A collection in memory for tests: slow, but simple enough to be obviously right.

use std::{cmp::Ordering, collections::BTreeSet};

use bson::{RawDocumentBuf, rawdoc};
use protocol::RawDoc;

use super::{
    AtHand, BoundedEntries, BoundedEntry, BoundedWalk, Direction, Edge, IndexEntries, IndexEntry,
    IndexField, IndexInfo, IndexKind, KeyRange, Record, RecordKey, Records, Source,
};
use crate::{
    error::QueryError,
    planner::Interval,
    sort,
    value::{Elements, OwnedValue, Value, compare_values, path::Path},
};

pub(crate) struct MemorySource {
    docs: Vec<RawDoc>,
    indexes: Vec<IndexInfo>,
    /// For each index its sorted keys, with the position of the document.
    keys: Vec<Vec<(Vec<OwnedValue>, usize)>>,
}

impl MemorySource {
    pub(crate) fn new(docs: Vec<RawDocumentBuf>, patterns: &[RawDocumentBuf]) -> Self {
        let mut source = Self {
            docs: docs.into_iter().map(RawDoc::from).collect(),
            indexes: Vec::new(),
            keys: Vec::new(),
        };
        source.add_index(&rawdoc! { "_id": 1 });
        for pattern in patterns {
            source.add_index(pattern);
        }
        source
    }

    fn add_index(&mut self, pattern: &RawDocumentBuf) {
        // Special indexes such as "2dsphere".
        let named = Elements::new(pattern).any(|e| matches!(e.value(), Value::String(_)));
        let mut fields: Vec<IndexField> = Elements::new(pattern)
            .map(|e| IndexField {
                path: Path::new(e.key),
                ascending: matches!(e.value(), Value::Int32(n) if n > 0),
                multikey: BTreeSet::new(),
            })
            .collect();
        let mut keys = Vec::new();
        for (at, doc) in self.docs.iter().enumerate() {
            let start = Value::Document(doc.as_bytes());
            let pending: Vec<_> =
                fields.iter().enumerate().map(|(i, f)| (i, start, f.path.parts())).collect();
            let mut fixed = vec![Value::Null; fields.len()];
            let mut of_doc: Vec<Vec<OwnedValue>> = Vec::new();
            let done = sort::expand(&pending, &mut fixed, &mut |key| {
                of_doc.push(key.iter().map(|v| OwnedValue::from(*v)).collect());
            });
            done.expect("no parallel arrays in test data");
            if of_doc.len() != 1 || has_array(doc.as_bytes()) {
                for field in &mut fields {
                    field.multikey.insert(0);
                }
            }
            keys.extend(of_doc.into_iter().map(|key| (key, at)));
        }
        let directions: Vec<bool> = fields.iter().map(|f| f.ascending).collect();
        keys.sort_by(|a, b| compare_keys(&a.0, &b.0, &directions).then(a.1.cmp(&b.1)));
        keys.dedup_by(|a, b| {
            a.1 == b.1 && compare_keys(&a.0, &b.0, &directions) == Ordering::Equal
        });
        self.keys.push(keys);
        self.indexes.push(IndexInfo {
            name: crate::value::Shown(Value::from(&**pattern)).to_string(),
            spec: RawDoc::from(rawdoc! { "v": 2, "key": pattern.clone() }),
            fields,
            kind: if named { IndexKind::Other } else { IndexKind::Ordered },
            unique: false,
            sparse: false,
            hidden: false,
            partial: None,
            collation: None,
        });
    }
}

pub(crate) fn has_array(doc: &[u8]) -> bool {
    Elements::of_bytes(doc).any(|e| match e.value() {
        Value::Array(_) => true,
        Value::Document(inner) => has_array(inner),
        _ => false,
    })
}

fn compare_keys(a: &[OwnedValue], b: &[OwnedValue], ascending: &[bool]) -> Ordering {
    for ((a, b), ascending) in a.iter().zip(b).zip(ascending) {
        let order = compare_values(a.get(), b.get(), None);
        if order != Ordering::Equal {
            return if *ascending { order } else { order.reverse() };
        }
    }
    Ordering::Equal
}

fn within(key: &[OwnedValue], range: &KeyRange) -> bool {
    let equal =
        |a: &OwnedValue, b: &OwnedValue| compare_values(a.get(), b.get(), None) == Ordering::Equal;
    let inside = |edge: &Edge, value: &OwnedValue, outside: Ordering| {
        let order = compare_values(value.get(), edge.value.get(), None);
        order != outside && (order != Ordering::Equal || edge.inclusive)
    };
    range.prefix.iter().zip(key).all(|(a, b)| equal(a, b))
        && range.edges.as_ref().is_none_or(|(low, high)| {
            let value = &key[range.prefix.len()];
            inside(low, value, Ordering::Less) && inside(high, value, Ordering::Greater)
        })
}

fn record_key(at: usize) -> RecordKey {
    RecordKey(at.to_be_bytes().into())
}

fn place(key: &RecordKey) -> usize {
    usize::from_be_bytes((*key.0).try_into().expect("a key of ours"))
}

fn key_place(entry: &IndexEntry) -> usize {
    usize::from_be_bytes(entry.key.as_ref().try_into().expect("a place"))
}

/// A scan over the keys within bounds.
struct Within<'s> {
    entries: IndexEntries<'s>,
    keys: &'s [(Vec<OwnedValue>, usize)],
    within: Vec<bool>,
    passed: Option<Vec<OwnedValue>>,
}

impl Iterator for Within<'_> {
    type Item = Result<BoundedEntry, QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (within, keys, passed) = (&self.within, self.keys, &self.passed);
        let found = self.entries.find_map(|entry| {
            let entry = entry.expect("memory does not fail");
            let at = key_place(&entry);
            let same = |passed: &Vec<OwnedValue>| {
                compare_keys(passed, &keys[at].0, &vec![true; passed.len()]) == Ordering::Equal
            };
            (within[at] && !passed.as_ref().is_some_and(same)).then_some(entry)
        });
        found.map(|entry| Ok(BoundedEntry::found(entry, 0)))
    }
}

impl BoundedWalk for Within<'_> {
    fn pass(&mut self, entry: &IndexEntry, fields: usize) {
        self.passed = Some(self.keys[key_place(entry)].0[..fields].to_vec());
    }
}

impl Source for &MemorySource {
    fn namespace(&self) -> String {
        (**self).namespace()
    }

    fn indexes(&self) -> &[IndexInfo] {
        (**self).indexes()
    }

    fn count(&self) -> Result<u64, QueryError> {
        (**self).count()
    }

    fn scan<'s>(&'s self, after: Option<&RecordKey>, direction: Direction) -> Records<'s> {
        (**self).scan(after, direction)
    }

    fn index_scan<'s>(
        &'s self,
        index: usize,
        range: &KeyRange,
        after: Option<&IndexEntry>,
        direction: Direction,
    ) -> IndexEntries<'s> {
        (**self).index_scan(index, range, after, direction)
    }

    fn bounded_scan<'s>(
        &'s self,
        index: usize,
        bounds: &[Vec<Interval>],
        after: Option<&IndexEntry>,
        direction: Direction,
    ) -> Option<BoundedEntries<'s>> {
        (**self).bounded_scan(index, bounds, after, direction)
    }

    fn key_values(&self, index: usize, entry: &IndexEntry) -> Option<Vec<OwnedValue>> {
        (**self).key_values(index, entry)
    }

    fn fetch(&self, record: &RecordKey) -> Result<Option<RawDoc>, QueryError> {
        (**self).fetch(record)
    }

    fn by_id(&self, id: Value<'_>) -> Result<Option<Record>, QueryError> {
        (**self).by_id(id)
    }
}

impl Source for MemorySource {
    fn namespace(&self) -> String {
        "test.memory".into()
    }

    fn indexes(&self) -> &[IndexInfo] {
        &self.indexes
    }

    fn count(&self) -> Result<u64, QueryError> {
        Ok(self.docs.len() as u64)
    }

    fn scan<'s>(&'s self, after: Option<&RecordKey>, direction: Direction) -> Records<'s> {
        let record = |at: usize| Ok(Record { key: record_key(at), doc: self.docs[at].clone() });
        match direction {
            Direction::Forward => {
                let start = after.map_or(0, |key| place(key) + 1);
                Box::new(AtHand((start..self.docs.len()).map(record)))
            }
            Direction::Backward => {
                let end = after.map_or(self.docs.len(), place);
                Box::new(AtHand((0..end).rev().map(record)))
            }
        }
    }

    fn index_scan<'s>(
        &'s self,
        index: usize,
        range: &KeyRange,
        after: Option<&IndexEntry>,
        direction: Direction,
    ) -> IndexEntries<'s> {
        let found: Vec<_> = self.keys[index]
            .iter()
            .enumerate()
            .filter(|(_, (key, _))| within(key, range))
            .map(|(at, (_, doc))| IndexEntry {
                key: at.to_be_bytes().into(),
                marks: 0,
                record: record_key(*doc),
                doc: None,
            })
            .collect();
        let entries: Box<dyn Iterator<Item = IndexEntry>> = match direction {
            Direction::Forward => Box::new(found.into_iter()),
            Direction::Backward => Box::new(found.into_iter().rev()),
        };
        match after.cloned() {
            None => Box::new(entries.map(Ok)),
            Some(after) => Box::new(entries.skip_while(move |e| *e != after).skip(1).map(Ok)),
        }
    }

    fn bounded_scan<'s>(
        &'s self,
        index: usize,
        bounds: &[Vec<Interval>],
        after: Option<&IndexEntry>,
        direction: Direction,
    ) -> Option<BoundedEntries<'s>> {
        let holds = |key: &[OwnedValue]| {
            key.iter().zip(bounds).all(|(value, intervals)| {
                let point = Interval::point(value.get());
                intervals.iter().any(|interval| interval.intersect(&point).is_some())
            })
        };
        let keys = &self.keys[index];
        let within = keys.iter().map(|(key, _)| holds(key)).collect();
        let entries = self.index_scan(index, &KeyRange::default(), after, direction);
        Some(Box::new(Within { entries, keys, within, passed: None }))
    }

    fn key_values(&self, index: usize, entry: &IndexEntry) -> Option<Vec<OwnedValue>> {
        self.keys[index].get(key_place(entry)).map(|(key, _)| key.clone())
    }

    fn fetch(&self, record: &RecordKey) -> Result<Option<RawDoc>, QueryError> {
        Ok(self.docs.get(place(record)).cloned())
    }

    fn by_id(&self, id: Value<'_>) -> Result<Option<Record>, QueryError> {
        let found = self.docs.iter().position(|doc| {
            let own = Elements::new(doc).find(b"_id").expect("every document has one").value();
            compare_values(own, id, None) == Ordering::Equal
        });
        Ok(found.map(|at| Record { key: record_key(at), doc: self.docs[at].clone() }))
    }
}
