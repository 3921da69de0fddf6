//! What a query reads from: one collection at one moment. Storage implements it.
//!
//! ```text
//!   scan ------> (record key, document) in natural order        resumable after any record key
//!   index_scan -> (index key, record key) in key order          resumable after any (index key, record)
//!   fetch, by_id -> one document
//! ```
//! Keys are opaque bytes of storage; a cursor keeps them between batches and holds nothing else, so that
//! no snapshot lives longer than a batch.

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

/// Which way a scan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// Natural or ascending key order.
    #[default]
    Forward,
    /// The other way.
    Backward,
}

impl Direction {
    /// The other way.
    pub fn reversed(self) -> Self {
        match self {
            Self::Forward => Self::Backward,
            Self::Backward => Self::Forward,
        }
    }
}

/// Where a record is: storage's bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey(pub ByteView);

impl RecordKey {
    /// The bytes, for a cursor to keep.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// From [`Self::as_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

/// A record.
#[derive(Debug, Clone)]
pub struct Record {
    /// Where it is.
    pub key: RecordKey,
    /// What it is.
    pub doc: RawDoc,
}

/// An entry of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexEntry {
    /// Storage's bytes of the key.
    pub key: ByteView,
    /// What storage knows of the key beside its bytes.
    pub marks: u64,
    /// The record it points to.
    pub record: RecordKey,
    /// The document, where the walk comes by it anyway.
    pub doc: Option<RawDoc>,
}

/// What kind of keys an index has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexKind {
    /// Values in order.
    Ordered,
    /// As ordered, but one field is there as its hash.
    Hashed,
    /// Paths, and the values at them.
    Wildcard,
    /// Terms of texts, and their scores.
    Text,
    /// Geo and whatever else: not used for ranges.
    Other,
}

/// A field of an index.
#[derive(Debug, Clone)]
pub struct IndexField {
    /// The path.
    pub path: Path,
    /// False for -1.
    pub ascending: bool,
    /// Which parts of the path lead through arrays in some document.
    pub multikey: BTreeSet<usize>,
}

/// What the planner must know of an index.
#[derive(Debug, Clone)]
pub struct IndexInfo {
    /// Its name.
    pub name: String,
    /// Its specification as `listIndexes` shows it.
    pub spec: RawDoc,
    /// Its fields in order.
    pub fields: Vec<IndexField>,
    /// What its keys are.
    pub kind: IndexKind,
    /// No two documents share a key.
    pub unique: bool,
    /// Documents without the fields are left out.
    pub sparse: bool,
    /// Not to be used unless hinted... which mongod refuses too.
    pub hidden: bool,
    /// Only documents that match are in it.
    pub partial: Option<Matcher>,
    /// The order of its text.
    pub collation: Option<CollationSpec>,
}

impl IndexInfo {
    /// True if some document has more than one key.
    pub fn is_multikey(&self) -> bool {
        self.kind == IndexKind::Wildcard
            || self.fields.iter().any(|field| !field.multikey.is_empty())
    }

    /// At how many places of its paths arrays were met: it never becomes less.
    pub(crate) fn arrays(&self) -> usize {
        self.fields.iter().map(|field| field.multikey.len()).sum()
    }

    /// The place of the field that is there as its hash.
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
    /// Whether the value itself is within.
    pub inclusive: bool,
}

/// A contiguous range of an index: leading fields fixed, the next one within two edges.
///
/// Edges are in the order of values; storage turns them round for a descending field. No edges: all keys
/// with the prefix.
#[derive(Debug, Clone, Default)]
pub struct KeyRange {
    /// Values of the leading fields.
    pub prefix: Vec<OwnedValue>,
    /// The lower and upper edge of the field after the prefix.
    pub edges: Option<(Edge, Edge)>,
    /// Ends that name a value for every field, as `min` and `max` do: in the order of the index's keys.
    pub whole: WholeKeys,
}

/// A first key that is within, and a last one that is not.
#[derive(Debug, Clone, Default)]
pub struct WholeKeys {
    /// `min`.
    pub from: Option<Vec<OwnedValue>>,
    /// `max`.
    pub to: Option<Vec<OwnedValue>>,
}

/// Records, one by one.
pub type Records<'s> = Box<dyn RecordWalk + 's>;

/// A walk over records.
pub trait RecordWalk: Iterator<Item = Result<Record, QueryError>> {
    /// The next record whose document passes the test. The others need not be more than looked at.
    fn next_where(
        &mut self,
        test: &mut dyn FnMut(&[u8]) -> Result<bool, QueryError>,
    ) -> Option<Result<Record, QueryError>>;
}

/// Records that are at hand.
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

/// An entry within bounds, and how many keys outside of them were passed on the way to it. At the end, and on a long way,
/// there may be such keys and no entry.
#[derive(Debug)]
pub struct BoundedEntry {
    /// The entry.
    pub entry: Option<IndexEntry>,
    /// Keys that were looked at before it.
    pub passed: u64,
    /// The walk is not at its end.
    pub more: bool,
}

impl BoundedEntry {
    /// An entry behind so many keys.
    pub fn found(entry: IndexEntry, passed: u64) -> Self {
        Self { entry: Some(entry), passed, more: true }
    }

    /// Nothing so far.
    pub fn none_yet(passed: u64) -> Self {
        Self { entry: None, passed, more: true }
    }

    /// Nothing more.
    pub fn last(passed: u64) -> Self {
        Self { entry: None, passed, more: false }
    }
}

/// Entries within bounds, one by one.
pub type BoundedEntries<'s> = Box<dyn BoundedWalk + 's>;

/// A walk over entries within bounds.
pub trait BoundedWalk: Iterator<Item = Result<BoundedEntry, QueryError>> {
    /// Goes on behind all keys that have the same first `fields` values as this one.
    fn pass(&mut self, entry: &IndexEntry, fields: usize);
}

/// Records and their scores, one by one.
pub type Scores<'s> = Box<dyn Iterator<Item = Result<(RecordKey, f64), QueryError>> + 's>;

/// One collection at one moment.
pub trait Source {
    /// `db.collection`, for messages and explain.
    fn namespace(&self) -> String;

    /// The indexes that can be read at this moment, `_id` among them.
    fn indexes(&self) -> &[IndexInfo];

    /// About how many records there are.
    fn count(&self) -> Result<u64, QueryError>;

    /// Records in natural order, those after `after` if it is given.
    fn scan<'s>(&'s self, after: Option<&RecordKey>, direction: Direction) -> Records<'s>;

    /// Entries of the index at this place in [`Source::indexes`], those after `after` if it is given.
    fn index_scan<'s>(
        &'s self,
        index: usize,
        range: &KeyRange,
        after: Option<&IndexEntry>,
        direction: Direction,
    ) -> IndexEntries<'s>;

    /// The entries of an index within intervals for each of its fields, those after `after` if it is given. `None`: the
    /// source walks plain ranges alone.
    fn bounded_scan<'s>(
        &'s self,
        _index: usize,
        _bounds: &[Vec<Interval>],
        _after: Option<&IndexEntry>,
        _direction: Direction,
    ) -> Option<BoundedEntries<'s>> {
        None
    }

    /// The records of a range of a text index, each with the score that stands behind the range's prefix.
    fn scores<'s>(&'s self, index: usize, _range: &KeyRange) -> Result<Scores<'s>, QueryError> {
        let name = self.indexes().get(index).map_or("", |index| &index.name);
        let text = format!("the index {name:?} has no scores");
        Err(QueryError::new(protocol::ErrorCode::InternalError, text))
    }

    /// The document of a record, if it is there.
    fn fetch(&self, record: &RecordKey) -> Result<Option<RawDoc>, QueryError>;

    /// The values of an entry's key, one for each field; `None` if the key does not tell all of them.
    fn key_values(&self, _index: usize, _entry: &IndexEntry) -> Option<Vec<OwnedValue>> {
        None
    }

    /// The key of an entry, as the values that its document has there.
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

    /// A record as clients see its place.
    fn record_id(&self, record: &RecordKey) -> OwnedValue {
        Value::Binary { subtype: 0, bytes: &record.0 }.into()
    }

    /// The document with this `_id` under the simple collation, if it is there.
    fn by_id(&self, id: Value<'_>) -> Result<Option<Record>, QueryError>;
}
