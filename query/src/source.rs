//! What a query reads from: one collection at one timestamp. Storage implements it.
//!
//! ```text
//!   scan ------> (record key, document) in natural order        resumable after any record key
//!   index_scan -> (index key, record key) in key order          resumable after any (index key, record)
//!   fetch, by_id -> one document
//! ```
//! Keys are opaque bytes of storage. A cursor keeps only these between batches, so no snapshot lives longer than a
//! batch.

mod listed;
#[cfg(test)]
pub(crate) mod memory;

pub use listed::Listed;

use std::collections::BTreeSet;

use bson::RawDocumentBuf;
use byteview::ByteView;
use protocol::RawDoc;

use crate::{
    collation::CollationSpec,
    error::QueryError,
    expression::DocBuilder,
    matcher::Matcher,
    planner::Interval,
    value::{
        Elements, OwnedValue, Value,
        path::{LeafArrays, Path},
    },
};

/// The direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// Natural or ascending key order.
    #[default]
    Forward,
    /// The reverse order.
    Backward,
}

impl Direction {}

/// Identifies a record; opaque bytes of storage.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey(pub ByteView);

impl RecordKey {
    /// The bytes, for a cursor to keep.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Restores a key from [`Self::as_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

/// A record.
#[derive(Debug, Clone)]
pub struct Record {
    /// Its key.
    pub key: RecordKey,
    /// Its document.
    pub doc: RawDoc,
}

/// An entry of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexEntry {
    /// The key's bytes, opaque to queries.
    pub key: ByteView,
    /// Type information about the key, opaque to queries.
    pub marks: u64,
    /// The record that it refers to.
    pub record: RecordKey,
    /// The document, if the scan has read it anyway.
    pub doc: Option<RawDoc>,
}

/// The kind of an index's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexKind {
    /// Sorted values.
    Ordered,
    /// Like `Ordered`, but one field is stored as its hash.
    Hashed,
    /// Paths with their values.
    Wildcard,
    /// Terms with their scores.
    Text,
    /// Geo and other kinds, which are not used for ranges.
    Other,
}

/// A field of an index.
#[derive(Debug, Clone)]
pub struct IndexField {
    /// The path.
    pub path: Path,
    /// False for -1.
    pub ascending: bool,
    /// Indexes of the path components that lead through arrays in some document.
    pub multikey: BTreeSet<usize>,
}

/// What the planner needs to know about an index.
#[derive(Debug, Clone)]
pub struct IndexInfo {
    /// Its name.
    pub name: String,
    /// Its specification as `listIndexes` shows it.
    pub spec: RawDoc,
    /// Its fields.
    pub fields: Vec<IndexField>,
    /// The kind of its keys.
    pub kind: IndexKind,
    /// No two documents share a key.
    pub unique: bool,
    /// Documents without the fields are not in it.
    pub sparse: bool,
    /// Not used by plans and not accepted as a hint.
    pub hidden: bool,
    /// Only documents that match this filter are in it.
    pub partial: Option<Matcher>,
    /// The collation of its keys.
    pub collation: Option<CollationSpec>,
}

impl IndexInfo {
    /// True if some document has more than one key.
    pub fn is_multikey(&self) -> bool {
        self.kind == IndexKind::Wildcard
            || self.fields.iter().any(|field| !field.multikey.is_empty())
    }

    /// Number of multikey path components; it never decreases.
    pub(crate) fn arrays(&self) -> usize {
        self.fields.iter().map(|field| field.multikey.len()).sum()
    }

    /// The position of the hashed field.
    pub fn hashed_field(&self) -> Option<usize> {
        let pattern =
            self.spec.get_document("key").ok().filter(|_| self.kind == IndexKind::Hashed)?;
        Elements::new(pattern).position(|field| matches!(field.value(), Value::String(b"hashed")))
    }
}

/// One end of a range of values.
#[derive(Debug, Clone)]
pub struct Edge {
    /// The value.
    pub value: OwnedValue,
    /// Whether the value itself is included.
    pub inclusive: bool,
}

/// A contiguous range of an index: the leading fields have fixed values, the next one lies between two edges.
///
/// Edges are in value order; storage reverses them for a descending field. Without edges: all keys with the prefix.
#[derive(Debug, Clone, Default)]
pub struct KeyRange {
    /// Values of the leading fields.
    pub prefix: Vec<OwnedValue>,
    /// The lower and upper edge of the field after the prefix.
    pub edges: Option<(Edge, Edge)>,
    /// Bounds with a value for every field, as in `min` and `max`, in the order of the index's keys.
    pub whole: WholeKeys,
}

/// The first key (inclusive) and the last key (exclusive).
#[derive(Debug, Clone, Default)]
pub struct WholeKeys {
    /// `min`.
    pub from: Option<Vec<OwnedValue>>,
    /// `max`.
    pub to: Option<Vec<OwnedValue>>,
}

/// An iterator over records.
pub type Records<'s> = Box<dyn RecordWalk + 's>;

/// A scan over records.
pub trait RecordWalk: Iterator<Item = Result<Record, QueryError>> {
    /// The next record whose document the test accepts. Rejected documents need not be copied.
    fn next_where(
        &mut self,
        test: &mut dyn FnMut(&[u8]) -> Result<bool, QueryError>,
    ) -> Option<Result<Record, QueryError>>;
}

/// Records from an iterator.
#[derive(Debug)]
pub struct AtHand<I>(pub I);

impl<I: Iterator<Item = Result<Record, QueryError>>> Iterator for AtHand<I> {
    type Item = Result<Record, QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl<I: Iterator<Item = Result<Record, QueryError>>> RecordWalk for AtHand<I> {
    fn next_where(
        &mut self,
        test: &mut dyn FnMut(&[u8]) -> Result<bool, QueryError>,
    ) -> Option<Result<Record, QueryError>> {
        self.0.find_map(|item| match item {
            Err(error) => Some(Err(error)),
            Ok(record) => match test(record.doc.as_bytes()) {
                Ok(true) => Some(Ok(record)),
                Ok(false) => None,
                Err(error) => Some(Err(error)),
            },
        })
    }
}
/// Index entries, one by one.
pub type IndexEntries<'s> = Box<dyn Iterator<Item = Result<IndexEntry, QueryError>> + 's>;

/// An entry within bounds, and the number of keys outside of them that were examined before it. At the end, or after
/// many such keys, there may be no entry.
#[derive(Debug)]
pub struct BoundedEntry {
    /// The entry.
    pub entry: Option<IndexEntry>,
    /// Number of keys examined before it.
    pub passed: u64,
    /// The scan is not at its end.
    pub more: bool,
}

impl BoundedEntry {
    /// An entry found after `passed` keys.
    pub fn found(entry: IndexEntry, passed: u64) -> Self {
        Self { entry: Some(entry), passed, more: true }
    }

    /// No entry yet.
    pub fn none_yet(passed: u64) -> Self {
        Self { entry: None, passed, more: true }
    }

    /// The end of the scan.
    pub fn last(passed: u64) -> Self {
        Self { entry: None, passed, more: false }
    }
}

/// An iterator over entries within bounds.
pub type BoundedEntries<'s> = Box<dyn BoundedWalk + 's>;

/// A scan over entries within bounds.
pub trait BoundedWalk: Iterator<Item = Result<BoundedEntry, QueryError>> {
    /// Skips all keys that have the same first `fields` values as this entry.
    fn pass(&mut self, entry: &IndexEntry, fields: usize);
}

/// An iterator over records with their scores.
pub type Scores<'s> = Box<dyn Iterator<Item = Result<(RecordKey, f64), QueryError>> + 's>;

/// One collection at one timestamp.
pub trait Source {
    /// `db.collection`, for error texts and explain.
    fn namespace(&self) -> String;

    /// The usable indexes, including `_id`.
    fn indexes(&self) -> &[IndexInfo];

    /// Approximate number of records.
    fn count(&self) -> Result<u64, QueryError>;

    /// Records in natural order, starting after `after` if given.
    fn scan<'s>(&'s self, after: Option<&RecordKey>, direction: Direction) -> Records<'s>;

    /// Entries of the index at this position in [`Source::indexes`], starting after `after` if given.
    fn index_scan<'s>(
        &'s self,
        index: usize,
        range: &KeyRange,
        after: Option<&IndexEntry>,
        direction: Direction,
    ) -> IndexEntries<'s>;

    /// The entries of an index within intervals for each of its fields, starting after `after` if given. `None` if
    /// the source supports only plain ranges.
    fn bounded_scan<'s>(
        &'s self,
        _index: usize,
        _bounds: &[Vec<Interval>],
        _after: Option<&IndexEntry>,
        _direction: Direction,
    ) -> Option<BoundedEntries<'s>> {
        None
    }

    /// The records of a range of a text index, each with the score that follows the range's prefix in the key.
    fn scores<'s>(&'s self, index: usize, _range: &KeyRange) -> Result<Scores<'s>, QueryError> {
        let name = self.indexes().get(index).map_or("", |index| &index.name);
        let text = format!("the index {name:?} has no scores");
        Err(QueryError::new(protocol::ErrorCode::InternalError, text))
    }

    /// The document of a record, if it exists.
    fn fetch(&self, record: &RecordKey) -> Result<Option<RawDoc>, QueryError>;

    /// The decoded values of an entry's key, one per field; `None` if the key does not determine all of them.
    fn key_values(&self, _index: usize, _entry: &IndexEntry) -> Option<Vec<OwnedValue>> {
        None
    }

    /// The key of an entry, as values from its document.
    fn key_of(
        &self,
        index: usize,
        _entry: &IndexEntry,
        doc: &RawDoc,
    ) -> Result<RawDocumentBuf, QueryError> {
        let fields = self.indexes().get(index).map_or(&[][..], |index| &index.fields);
        let mut key = DocBuilder::new();
        for field in fields {
            let mut value = Value::Null;
            field.path.any(doc.as_bytes(), LeafArrays::Open, |found| {
                value = if matches!(found, Value::Missing) { Value::Null } else { found };
                true
            });
            key.push(field.path.dotted(), value);
        }
        Ok(RawDocumentBuf::from_bytes(key.finish()).unwrap_or_default())
    }

    /// A record id as clients see it.
    fn record_id(&self, record: &RecordKey) -> OwnedValue {
        Value::Binary { subtype: 0, bytes: &record.0 }.into()
    }

    /// The document with this `_id` under the simple collation, if it exists.
    fn by_id(&self, id: Value<'_>) -> Result<Option<Record>, QueryError>;
}
