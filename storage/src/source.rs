//! Implements [`query::source::Source`] for collections of the store.

mod bounded;
mod oplog;
mod text;

pub use oplog::OplogSource;

use std::{collections::BTreeSet, ops::Bound, sync::Arc};

use bson::{Binary, RawBson, RawDocumentBuf, raw::CString, spec::BinarySubtype};
use protocol::{ErrorCode, RawDoc};
use query::{
    QueryError,
    collation::Collator,
    matcher::{Matcher, ParseContext},
    planner::Interval,
    source::{
        AtHand, BoundedEntries, Direction, Edge, IndexEntries, IndexEntry, IndexField, IndexInfo,
        IndexKind, KeyRange, Record, RecordKey, RecordWalk, Records, Scores, Source,
    },
    value::{OwnedValue, Shown, Value, path::Path},
};

use crate::{
    Collection, Index, IndexState, StorageError, View,
    keystring::{self, Component, Components},
    view::{IndexScan, RecordScan},
};

/// A collection in a view.
pub struct CollectionSource {
    view: View,
    collection: Arc<Collection>,
    /// The `_id` index, if there is one, and the indexes of the catalog.
    infos: Vec<IndexInfo>,
    kept: Vec<Kept>,
}

/// Where the entries of an index are stored.
enum Kept {
    Id,
    Own(Arc<Index>),
}

impl CollectionSource {
    /// A source for a collection in a view.
    pub fn new(view: View, collection: Arc<Collection>) -> Result<Self, QueryError> {
        let (mut infos, mut kept) = (Vec::new(), Vec::new());
        if let Some(spec) = collection.id_index() {
            infos.push(IndexInfo {
                name: "_id_".to_owned(),
                spec: RawDoc::from(spec),
                fields: vec![field(b"_id", true, &[])],
                kind: IndexKind::Ordered,
                unique: true,
                sparse: false,
                hidden: false,
                partial: None,
                collation: collection.collator().map(|collator| collator.spec().clone()),
            });
            kept.push(Kept::Id);
        }
        // Indexes without keys are included: they determine how geo queries are interpreted, and a hint may name
        // them.
        for index in collection.indexes().iter().filter(|index| index.state() == IndexState::Ready)
        {
            infos.push(info(index)?);
            kept.push(Kept::Own(index.clone()));
        }
        Ok(Self { view, collection, infos, kept })
    }

    /// The collection.
    pub fn collection(&self) -> &Collection {
        &self.collection
    }

    /// The collation of one component of an index's keys: the path in front of a wildcard index's values has none.
    fn collator_at(&self, index: usize, at: usize) -> Option<&Collator> {
        let is_path =
            at == 0 && self.infos.get(index).is_some_and(|info| info.kind == IndexKind::Wildcard);
        self.collator(index).filter(|_| !is_path)
    }

    fn collator(&self, index: usize) -> Option<&Collator> {
        match self.kept.get(index) {
            Some(Kept::Id) => self.collection.collator(),
            Some(Kept::Own(index)) => index.collator(),
            None => None,
        }
    }
}

fn info(index: &Index) -> Result<IndexInfo, QueryError> {
    let mut fields = Vec::new();
    let paths = index.multikey_paths();
    let pattern = index.key_pattern().into_iter().flat_map(|pattern| pattern.iter().flatten());
    for (at, ((name, _), descending)) in pattern.zip(index.descending()).enumerate() {
        let multikey = paths.get(at).map_or(&[][..], Vec::as_slice);
        fields.push(field(name.as_str().as_bytes(), !descending, multikey));
    }
    let partial = index.partial_filter();
    let partial = partial.map(|filter| Matcher::parse(filter, &ParseContext::default()));
    Ok(IndexInfo {
        name: index.name().to_owned(),
        spec: RawDoc::from(index.spec()),
        fields,
        kind: index.kind(),
        unique: index.unique(),
        sparse: index.sparse(),
        hidden: matches!(index.spec().get_bool("hidden"), Ok(true)),
        partial: partial.transpose()?,
        collation: index.collator().map(|collator| collator.spec().clone()),
    })
}

fn field(path: &[u8], ascending: bool, multikey: &[u32]) -> IndexField {
    let multikey: BTreeSet<usize> =
        multikey.iter().filter_map(|part| usize::try_from(*part).ok()).collect();
    IndexField { path: Path::new(path), ascending, multikey }
}

impl Source for CollectionSource {
    fn namespace(&self) -> String {
        self.collection.ns().to_string()
    }

    fn indexes(&self) -> &[IndexInfo] {
        &self.infos
    }

    fn count(&self) -> Result<u64, QueryError> {
        self.view.count(&self.collection).map_err(query_error)
    }

    fn scan<'s>(&'s self, after: Option<&RecordKey>, direction: Direction) -> Records<'s> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let walk = Walk(self.view.scan(&self.collection, start, direction));
        match after.filter(|_| self.collection.capped().is_some()) {
            None => Box::new(walk),
            Some(place) => resumed(walk, self.fetch(place), || self.record_id(place)),
        }
    }

    fn index_scan<'s>(
        &'s self,
        index: usize,
        range: &KeyRange,
        after: Option<&IndexEntry>,
        direction: Direction,
    ) -> IndexEntries<'s> {
        let fields = self.infos.get(index).map_or(&[][..], |info| &info.fields);
        let bounds = match bounds(range, fields, |at| self.collator_at(index, at)) {
            Ok(bounds) => bounds,
            Err(error) => return Box::new(std::iter::once(Err(error))),
        };
        let (low, high) = resume(bounds, after.map(|entry| self.row(index, entry)), direction);
        let ends = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
        match self.entries(index, ends, direction) {
            Some(scan) => Box::new(scan.map(|entry| entry.map_err(query_error))),
            None => Box::new(std::iter::empty()),
        }
    }

    fn bounded_scan<'s>(
        &'s self,
        index: usize,
        bounds: &[Vec<Interval>],
        after: Option<&IndexEntry>,
        direction: Direction,
    ) -> Option<BoundedEntries<'s>> {
        Some(match bounded::Bounded::new(self, index, bounds, after, direction) {
            Ok(walk) => Box::new(walk),
            Err(error) => Box::new(bounded::Refused(Some(error))),
        })
    }

    fn key_values(&self, index: usize, entry: &IndexEntry) -> Option<Vec<OwnedValue>> {
        let info = self.infos.get(index)?;
        if info.kind != IndexKind::Ordered || info.collation.is_some() {
            return None;
        }
        let mut components = Components::new(&entry.key, entry.marks.into());
        let mut next = |field: &IndexField| match components.next(!field.ascending)? {
            Component::Value(value) => Some(value),
            Component::Unknown => None,
        };
        info.fields.iter().map(&mut next).collect()
    }

    fn scores<'s>(&'s self, index: usize, range: &KeyRange) -> Result<Scores<'s>, QueryError> {
        let fields = self.infos.get(index).map_or(&[][..], |info| &info.fields);
        let descending = |at: usize| fields.get(at).is_some_and(|field| !field.ascending);
        let before = whole_key(&range.prefix, descending, self.collator(index))?.len();
        let entries = self.index_scan(index, range, None, Direction::Forward);
        Ok(Box::new(entries.map(move |entry| text::score(entry?, before))))
    }

    fn fetch(&self, record: &RecordKey) -> Result<Option<RawDoc>, QueryError> {
        self.view.fetch(&self.collection, record).map_err(query_error)
    }

    fn key_of(
        &self,
        index: usize,
        entry: &IndexEntry,
        doc: &RawDoc,
    ) -> Result<RawDocumentBuf, QueryError> {
        let Some(info) = self.infos.get(index) else { return Ok(RawDocumentBuf::new()) };
        if info.kind == IndexKind::Text {
            return text::key_of(info, entry, doc);
        }
        let hashed = info.hashed_field();
        let paths: Vec<&Path> = info.fields.iter().map(|field| &field.path).collect();
        let mut keys = query::sort::keys_at(&paths, doc.as_bytes())?;
        if let Some(at) = hashed {
            for key in &mut keys {
                if let Some(value) = key.get_mut(at) {
                    *value = Value::Int64(query::value::hash64(value.get())).into();
                }
            }
        }
        // A document may have several keys because of arrays; the entry tells which one led to it.
        let descending = |at: usize| info.fields.get(at).is_some_and(|field| !field.ascending);
        let collator = self.collator(index);
        let found = keys.iter().position(|key| {
            keys.len() == 1
                || whole_key(key, descending, collator).is_ok_and(|bytes| *bytes == *entry.key)
        });
        let mut shown = RawDocumentBuf::new();
        let values = found.and_then(|at| keys.get(at)).into_iter().flatten();
        for (field, value) in info.fields.iter().zip(values) {
            with_name(&mut shown, field.path.dotted(), value.get());
        }
        Ok(shown)
    }

    fn record_id(&self, record: &RecordKey) -> OwnedValue {
        match record_id(&self.collection, &record.0) {
            RawBson::Int64(number) => Value::Int64(number).into(),
            _ => Value::Binary { subtype: 0, bytes: &record.0 }.into(),
        }
    }

    fn by_id(&self, id: Value<'_>) -> Result<Option<Record>, QueryError> {
        let holder = id.alone();
        let Ok(Some(id)) = holder.get("") else { return Ok(None) };
        let Some(key) = self.view.record_key(&self.collection, id).map_err(query_error)? else {
            return Ok(None);
        };
        let doc = self.view.fetch(&self.collection, &key).map_err(query_error)?;
        Ok(doc.map(|doc| Record { key, doc }))
    }
}

/// A scan over the documents of a collection.
struct Walk(RecordScan);

impl Iterator for Walk {
    type Item = Result<Record, QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map(record).map_err(query_error))
    }
}

impl RecordWalk for Walk {
    fn next_where(
        &mut self,
        test: &mut dyn FnMut(&[u8]) -> Result<bool, QueryError>,
    ) -> Option<Result<Record, QueryError>> {
        let mut failed = None;
        let found = self.0.next_where(&mut |doc| {
            test(doc).unwrap_or_else(|error| {
                failed = Some(error);
                true
            })
        });
        match failed {
            Some(error) => Some(Err(error)),
            None => found.map(|found| found.map(record).map_err(query_error)),
        }
    }
}

fn record((key, doc): (RecordKey, RawDoc)) -> Record {
    Record { key, doc }
}

/// A scan that continues after a record. In capped collections the record may have been removed, with an unknown
/// number of its successors: then the scan ends with mongod's error.
fn resumed<'s>(
    walk: impl RecordWalk + 's,
    place: Result<Option<RawDoc>, QueryError>,
    record_id: impl FnOnce() -> OwnedValue,
) -> Records<'s> {
    let failed = match place {
        Ok(Some(_)) => return Box::new(walk),
        Ok(None) => place_lost(record_id().get()),
        Err(error) => error,
    };
    Box::new(AtHand(std::iter::once(Err(failed))))
}

fn place_lost(record_id: Value<'_>) -> QueryError {
    let text = format!(
        "CollectionScan died due to position in capped collection being deleted. Last seen record \
         id: RecordId({})",
        Shown(record_id)
    );
    QueryError::new(ErrorCode::CappedPositionLost, text)
}

impl CollectionSource {
    /// The entries of an index between two bounds.
    fn entries(
        &self,
        index: usize,
        ends: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Option<IndexScan> {
        Some(match self.kept.get(index)? {
            Kept::Id => self.view.id_scan(&self.collection, ends, direction),
            Kept::Own(own) => self.view.index_scan(&self.collection, own, ends, direction),
        })
    }

    /// The row key of an entry: key and record. For the `_id` index it is the key alone, unless the collection has a
    /// collation.
    fn row(&self, index: usize, entry: &IndexEntry) -> Vec<u8> {
        let id = matches!(self.kept.get(index), Some(Kept::Id));
        let mut row = entry.key.to_vec();
        if !id || self.collection.collator().is_some() && self.collection.capped().is_none() {
            row.extend_from_slice(&entry.record.0);
        }
        row
    }
}

type Ends = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Converts a range to row bounds. Ranges are in value order; a descending field reverses them.
fn bounds<'s>(
    range: &KeyRange,
    fields: &[IndexField],
    collator: impl Fn(usize) -> Option<&'s Collator>,
) -> Result<Ends, QueryError> {
    let descending = |at: usize| fields.get(at).is_some_and(|field| !field.ascending);
    let mut prefix = Vec::new();
    for (at, value) in range.prefix.iter().enumerate() {
        keystring::append(&mut prefix, value.get(), descending(at), collator(at))
            .map_err(query_error)?;
    }
    let Some((low, high)) = &range.edges else {
        let whole = |ends: &Option<Vec<OwnedValue>>| match ends {
            Some(values) => whole_key(values, descending, collator(usize::MAX)).map(Some),
            None => Ok(None),
        };
        return Ok(match (whole(&range.whole.from)?, whole(&range.whole.to)?) {
            (None, None) => (Bound::Included(prefix.clone()), Bound::Included(prefix)),
            (from, to) => (
                from.map_or(Bound::Unbounded, Bound::Included),
                to.map_or(Bound::Unbounded, Bound::Excluded),
            ),
        });
    };
    let turned = descending(range.prefix.len());
    let end = |edge: &Edge| -> Result<Bound<Vec<u8>>, QueryError> {
        let mut key = prefix.clone();
        keystring::append(&mut key, edge.value.get(), turned, collator(range.prefix.len()))
            .map_err(query_error)?;
        Ok(if edge.inclusive { Bound::Included(key) } else { Bound::Excluded(key) })
    };
    let (low, high) = (end(low)?, end(high)?);
    Ok(if turned { (high, low) } else { (low, high) })
}

fn whole_key(
    values: &[OwnedValue],
    descending: impl Fn(usize) -> bool,
    collator: Option<&Collator>,
) -> Result<Vec<u8>, QueryError> {
    let mut key = Vec::new();
    for (at, value) in values.iter().enumerate() {
        keystring::append(&mut key, value.get(), descending(at), collator).map_err(query_error)?;
    }
    Ok(key)
}

/// Continues after a row.
fn resume((low, high): Ends, after: Option<Vec<u8>>, direction: Direction) -> Ends {
    match (after, direction) {
        (None, _) => (low, high),
        (Some(row), Direction::Forward) => (Bound::Excluded(row), high),
        (Some(row), Direction::Backward) => (low, Bound::Excluded(row)),
    }
}

/// A record id as clients see it: a number in capped collections, otherwise the bytes of its key, as mongod shows
/// them for clustered collections.
pub fn record_id(collection: &Collection, record: &[u8]) -> RawBson {
    match <[u8; 8]>::try_from(record) {
        Ok(number) if collection.capped().is_some() => RawBson::Int64(i64::from_be_bytes(number)),
        _ => Binary { subtype: BinarySubtype::Generic, bytes: record.to_vec() }.into(),
    }
}

/// Appends a value under a field name.
fn with_name(doc: &mut RawDocumentBuf, name: &[u8], value: Value<'_>) {
    let holder = value.alone();
    let name = String::from_utf8_lossy(name).into_owned();
    if let (Ok(Some(value)), Ok(name)) = (holder.get(""), CString::try_from(name)) {
        doc.append(name, value);
    }
}

/// Converts a storage error to a query error.
fn query_error(error: StorageError) -> QueryError {
    QueryError::new(error.code(), error.text_for_clients())
}
