//! Index filters: the indexes that queries of a shape may use. As in mongod, they are not persistent.

use std::collections::HashMap;

use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, raw::cstr};
use parking_lot::Mutex;
use protocol::RawDoc;
use query::{
    collation::Collator,
    planner::{self, Request},
    source::IndexInfo,
    value::Value,
};
use uuid::Uuid;

/// The filters of each collection.
#[derive(Debug, Default)]
pub struct IndexFilters(Mutex<HashMap<Uuid, Vec<IndexFilter>>>);

/// An index filter.
#[derive(Debug, Clone)]
pub struct IndexFilter {
    /// The query shape.
    pub shape: Vec<u8>,
    /// An example query of the shape.
    pub query: RawDoc,
    /// Its sort.
    pub sort: RawDoc,
    /// Its projection.
    pub projection: RawDoc,
    /// Its collation, with all options.
    pub collation: Option<RawDoc>,
    /// The indexes, by name or by key pattern.
    pub indexes: RawArrayBuf,
}

impl IndexFilter {
    /// The document for planCacheListFilters: key patterns before names.
    pub fn shown(&self) -> RawDocumentBuf {
        let mut doc = RawDocumentBuf::new();
        doc.append(cstr!("query"), self.query.as_raw().to_owned());
        doc.append(cstr!("sort"), self.sort.as_raw().to_owned());
        doc.append(cstr!("projection"), self.projection.as_raw().to_owned());
        if let Some(collation) = &self.collation {
            doc.append(cstr!("collation"), collation.as_raw().to_owned());
        }
        let is_pattern = |index: &RawBsonRef<'_>| matches!(index, RawBsonRef::Document(_));
        let (patterns, names): (Vec<_>, Vec<_>) =
            self.indexes.into_iter().flatten().partition(is_pattern);
        let ordered = patterns.into_iter().chain(names).map(bson::RawBson::from);
        doc.append(cstr!("indexes"), ordered.collect::<RawArrayBuf>());
        doc
    }

    fn places(&self, indexes: &[IndexInfo]) -> Vec<usize> {
        let named = self.indexes.into_iter().flatten().filter_map(Value::from_raw);
        named.filter_map(|name| planner::resolve_hint(name, indexes)).collect()
    }
}

impl IndexFilters {
    /// Sets a filter, replacing the one with the same shape.
    pub fn set(&self, collection: Uuid, filter: IndexFilter) {
        let mut all = self.0.lock();
        let own = all.entry(collection).or_default();
        own.retain(|known| known.shape != filter.shape);
        own.push(filter);
    }

    /// Removes the filter of a shape, or all of a collection.
    pub fn clear(&self, collection: Uuid, shape: Option<&[u8]>) {
        let mut all = self.0.lock();
        if let Some(own) = all.get_mut(&collection) {
            own.retain(|known| shape.is_some_and(|shape| known.shape != shape));
            if own.is_empty() {
                all.remove(&collection);
            }
        }
    }

    /// The filters of a collection, newest first.
    pub fn of(&self, collection: Uuid) -> Vec<IndexFilter> {
        let own = self.0.lock().get(&collection).cloned().unwrap_or_default();
        own.into_iter().rev().collect()
    }

    /// Restricts a query to the indexes of its shape's filter, if there is one: then a hint is ignored.
    pub fn restrict(
        &self,
        collection: Uuid,
        request: &mut Request,
        projection: Option<&RawDocument>,
        collator: Option<&Collator>,
        indexes: &[IndexInfo],
    ) -> bool {
        let all = self.0.lock();
        let Some(own) = all.get(&collection) else { return false };
        let shape = planner::shape(request, projection, collator.map(Collator::spec));
        let Some(filter) = own.iter().find(|filter| filter.shape == shape) else { return false };
        request.allowed = Some(filter.places(indexes));
        request.hint = None;
        true
    }
}
