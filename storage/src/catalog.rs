//! Collections and their indexes, versioned like data.
//!
//! Each collection is one row of the catalog's table: UUID -> name, options, tables, indexes. The present catalog is
//! kept in memory as an immutable snapshot with shared structure, so that a reader takes it with one clone and a
//! change copies only the path to the changed node. The catalog at an earlier T is read from history.
//!
//! C1 Options and index specs are kept byte for byte as the primary sent them.
//! C2 A table id is never used twice.
//! C3 At any timestamp each collection name is used once.

mod row;

use std::sync::Arc;

use bson::RawDocument;
use protocol::{Namespace, RawDoc, Timestamp};
use query::{
    collation::{CollationSpec, Collator},
    value::{Elements, Value},
};
use rpds::RedBlackTreeMapSync;
use uuid::Uuid;

use crate::{
    StorageError,
    index::keygen::KeyGen,
    layout::TableId,
    mvcc::{Direction, Reader},
};

/// A collection at one timestamp.
#[derive(Debug)]
pub struct Collection {
    pub(crate) uuid: Uuid,
    pub(crate) ns: Namespace,
    pub(crate) options: RawDoc,
    pub(crate) id_index: Option<RawDoc>,
    pub(crate) table: TableId,
    /// The table of the `_id` index. Capped: `_id` -> record. With a collation: `_id` in collated order. Otherwise
    /// there is none, since the documents themselves are stored in `_id` order.
    pub(crate) id_table: Option<TableId>,
    pub(crate) indexes: Vec<Arc<Index>>,
    pub(crate) start: Timestamp,
    capped: Option<Capped>,
    collator: Option<Arc<Collator>>,
}

/// The limits of a capped collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capped {
    /// Maximum size in bytes.
    pub size: u64,
    /// Maximum number of documents, if limited.
    pub max: Option<u64>,
}

impl Collection {
    /// The UUID.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// The name.
    pub fn ns(&self) -> &Namespace {
        &self.ns
    }

    /// The options as the primary sent them.
    pub fn options(&self) -> &RawDocument {
        &self.options
    }

    /// The spec of the `_id` index as the primary sent it; `None` for clustered collections.
    pub fn id_index(&self) -> Option<&RawDocument> {
        self.id_index.as_deref()
    }

    /// The indexes besides the one on `_id`, in creation order, including unfinished ones.
    pub fn indexes(&self) -> &[Arc<Index>] {
        &self.indexes
    }

    /// The index with this name.
    pub fn index(&self, name: &str) -> Option<&Arc<Index>> {
        self.indexes.iter().find(|index| index.name() == name)
    }

    /// Its limits, if it is capped.
    pub fn capped(&self) -> Option<Capped> {
        self.capped
    }

    /// True if the user asked for clustering by `_id` (`clusteredIndex`).
    pub fn is_clustered(&self) -> bool {
        self.options.get("clusteredIndex").is_ok_and(|found| found.is_some())
    }

    /// Its default collation.
    pub fn collator(&self) -> Option<&Collator> {
        self.collator.as_deref()
    }

    pub(crate) fn new(parts: Parts) -> Self {
        let (capped, collator) = (capped(&parts.options), collator(&parts.options));
        let Parts { uuid, ns, options, id_index, table, id_table, indexes, start } = parts;
        Self { uuid, ns, options, id_index, table, id_table, indexes, start, capped, collator }
    }

    pub(crate) fn parts(&self) -> Parts {
        Parts {
            uuid: self.uuid,
            ns: self.ns.clone(),
            options: self.options.clone(),
            id_index: self.id_index.clone(),
            table: self.table,
            id_table: self.id_table,
            indexes: self.indexes.clone(),
            start: self.start,
        }
    }
}

/// The parts that a [`Collection`] is made from.
pub(crate) struct Parts {
    pub(crate) uuid: Uuid,
    pub(crate) ns: Namespace,
    pub(crate) options: RawDoc,
    pub(crate) id_index: Option<RawDoc>,
    pub(crate) table: TableId,
    pub(crate) id_table: Option<TableId>,
    pub(crate) indexes: Vec<Arc<Index>>,
    pub(crate) start: Timestamp,
}

/// True if the `_id` index needs a table of its own: capped collections are stored in insertion order, and a
/// collation changes the order.
pub(crate) fn needs_id_table(options: &RawDocument) -> bool {
    capped(options).is_some() || collator(options).is_some()
}

fn capped(options: &RawDocument) -> Option<Capped> {
    let number = |name: &[u8]| -> Option<u64> {
        match Elements::new(options).find(name)?.value() {
            Value::Int32(n) => u64::try_from(n).ok(),
            Value::Int64(n) => u64::try_from(n).ok(),
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
            Value::Double(n) => Some(n as u64),
            _ => None,
        }
    };
    let on = match Elements::new(options).find(b"capped")?.value() {
        Value::Bool(on) => on,
        Value::Int32(n) => n != 0,
        Value::Double(n) => n != 0.0,
        _ => false,
    };
    on.then(|| Capped {
        size: number(b"size").unwrap_or(0),
        max: number(b"max").filter(|max| *max > 0),
    })
}

/// The collation in a document's `collation` field. An invalid one cannot occur, since the primary refuses it.
pub(crate) fn collator(options: &RawDocument) -> Option<Arc<Collator>> {
    let spec = options.get_document("collation").ok()?;
    let spec = CollationSpec::parse(spec).ok()??;
    Collator::new(spec).ok().map(Arc::new)
}

/// The state of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexState {
    /// Complete; queries may use it.
    Ready,
    /// It is being built by the build that `startIndexBuild` named.
    Building {
        /// `indexBuildUUID`.
        build_uuid: Uuid,
    },
}

/// An index at one timestamp.
#[derive(Debug)]
pub struct Index {
    pub(crate) spec: RawDoc,
    pub(crate) name: String,
    pub(crate) table: TableId,
    /// The side table: while building, concurrent writes are queued here.
    pub(crate) side: TableId,
    pub(crate) state: IndexState,
    /// The multikey paths: for each field of the key, the path components at which an array was seen.
    pub(crate) multikey: Vec<Vec<u32>>,
    pub(crate) keygen: KeyGen,
}

impl Index {
    pub(crate) fn new(
        spec: RawDoc,
        table: TableId,
        side: TableId,
        state: IndexState,
        multikey: Vec<Vec<u32>>,
    ) -> Self {
        let name = spec.get_str("name").unwrap_or_default().to_owned();
        let keygen = KeyGen::new(&spec, collator(&spec));
        Self { spec, name, table, side, state, multikey, keygen }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The spec as the primary sent it.
    pub fn spec(&self) -> &RawDocument {
        &self.spec
    }

    /// The `key` of the spec.
    pub fn key_pattern(&self) -> Option<&RawDocument> {
        self.spec.get_document("key").ok()
    }

    /// The kind of index.
    pub fn kind(&self) -> crate::IndexKind {
        self.keygen.kind()
    }

    /// The state: ready or building.
    pub fn state(&self) -> IndexState {
        self.state
    }

    /// True if it is ready and keeps keys, so that queries may use it.
    pub fn usable(&self) -> bool {
        self.state == IndexState::Ready && self.keygen.has_keys()
    }

    /// True if some document has several keys.
    pub fn is_multikey(&self) -> bool {
        self.multikey.iter().any(|paths| !paths.is_empty())
    }

    /// The multikey paths: for each field of the key pattern, the path components (0 is the first) at which an array
    /// was seen.
    pub fn multikey_paths(&self) -> &[Vec<u32>] {
        &self.multikey
    }

    /// The spec's `unique`.
    pub fn unique(&self) -> bool {
        self.spec.get_bool("unique").unwrap_or(false)
    }

    /// The spec's `sparse`.
    pub fn sparse(&self) -> bool {
        self.keygen.sparse()
    }

    /// The spec's `partialFilterExpression`.
    pub fn partial_filter(&self) -> Option<&RawDocument> {
        self.spec.get_document("partialFilterExpression").ok()
    }

    /// The collation of its keys.
    pub fn collator(&self) -> Option<&Collator> {
        self.keygen.collator()
    }

    /// For each field of the key pattern, whether it is descending.
    pub fn descending(&self) -> Vec<bool> {
        self.keygen.descending()
    }

    pub(crate) fn changed(&self, state: IndexState, multikey: Vec<Vec<u32>>) -> Self {
        self.revised(self.spec.clone(), state, multikey)
    }

    /// The same index and tables with a changed spec.
    pub(crate) fn revised(&self, spec: RawDoc, state: IndexState, multikey: Vec<Vec<u32>>) -> Self {
        let revised = Self::new(spec, self.table, self.side, state, multikey);
        if self.keygen.has_keys() { revised } else { revised.without_keys() }
    }

    /// Marks an index whose table was never filled.
    pub(crate) fn without_keys(mut self) -> Self {
        self.keygen.forget();
        self
    }
}

/// All collections at one timestamp. Cheap to clone.
#[derive(Clone, Default)]
pub struct Catalog {
    by_uuid: RedBlackTreeMapSync<Uuid, Arc<Collection>>,
    by_name: RedBlackTreeMapSync<Namespace, Arc<Collection>>,
    /// Timestamp of the newest change.
    changed: Timestamp,
}

impl Catalog {
    /// The collection with this name.
    pub fn collection(&self, ns: &Namespace) -> Option<Arc<Collection>> {
        self.by_name.get(ns).cloned()
    }

    /// The collection with this UUID.
    pub fn by_uuid(&self, uuid: Uuid) -> Option<Arc<Collection>> {
        self.by_uuid.get(&uuid).cloned()
    }

    /// The collections of a database by name.
    pub fn list<'a>(&'a self, db: &'a str) -> impl Iterator<Item = Arc<Collection>> + 'a {
        // "db." sorts right before the database's first collection.
        let first = Namespace::new(db, "");
        self.by_name
            .range(first..)
            .take_while(move |(ns, _)| ns.db() == db)
            .map(|(_, collection)| Arc::clone(collection))
    }

    /// All collections, by name.
    pub fn all(&self) -> impl Iterator<Item = Arc<Collection>> + '_ {
        self.by_name.values().cloned()
    }

    /// The databases that have a collection, in order.
    pub fn databases(&self) -> Vec<String> {
        let mut out = Vec::new();
        let mut next = self.by_name.keys().next();
        while let Some(ns) = next {
            out.push(ns.db().to_owned());
            // Find the first collection of the next database.
            let db = ns.db().to_owned();
            next = self
                .by_name
                .range(Namespace::new(&db, "")..)
                .map(|(ns, _)| ns)
                .find(|ns| ns.db() != db);
        }
        out.sort();
        out.dedup();
        out
    }

    /// Number of collections.
    pub fn len(&self) -> usize {
        self.by_uuid.size()
    }

    /// True if there are no collections.
    pub fn is_empty(&self) -> bool {
        self.by_uuid.is_empty()
    }

    pub(crate) fn changed(&self) -> Timestamp {
        self.changed
    }

    pub(crate) fn insert(&mut self, collection: Arc<Collection>) {
        self.remove(collection.uuid);
        self.changed = self.changed.max(collection.start);
        self.by_name.insert_mut(collection.ns.clone(), Arc::clone(&collection));
        self.by_uuid.insert_mut(collection.uuid, collection);
    }

    pub(crate) fn remove(&mut self, uuid: Uuid) -> Option<Arc<Collection>> {
        let old = self.by_uuid.get(&uuid).cloned()?;
        self.by_uuid.remove_mut(&uuid);
        if self.by_name.get(&old.ns).is_some_and(|there| there.uuid == uuid) {
            self.by_name.remove_mut(&old.ns);
        }
        Some(old)
    }

    pub(crate) fn note_change(&mut self, ts: Timestamp) {
        self.changed = self.changed.max(ts);
    }

    /// Reads the catalog at the reader's timestamp.
    pub(crate) fn read(reader: &Reader) -> Result<Self, StorageError> {
        use std::ops::Bound::Unbounded;
        let mut catalog = Self::default();
        for item in reader.scan(TableId::CATALOG, Unbounded, Unbounded, Direction::Forward) {
            let (key, version) = item?;
            catalog.insert(Arc::new(Collection::from_row(&key, &version)?));
        }
        Ok(catalog)
    }
}
