//! `$listCatalog` and `$listClusterCatalog`: the content of the catalog.

use bson::{
    Binary, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf,
    raw::{CString, cstr},
    rawdoc,
    spec::BinarySubtype,
};
use protocol::{Namespace, RawDoc};
use storage::{Collection, Index, IndexState, View};

use super::list_collections;
use crate::{
    context::Call,
    error::Failure,
    read::{target::Target, views},
};

/// The entries of one collection, or of all.
pub(super) fn entries(view: &View, target: &Target) -> Result<Vec<RawDoc>, Failure> {
    if let Some(collection) = target.collection(view)? {
        return Ok(vec![of_collection(&collection).into()]);
    }
    if !is_collectionless(target)? {
        return Ok(Vec::new());
    }
    let mut all: Vec<RawDoc> =
        view.catalog().all().map(|collection| of_collection(&collection).into()).collect();
    for db in view.catalog().databases() {
        all.extend(views::all(view, &db)?.iter().map(|entry| RawDoc::from(of_view(entry, &db))));
    }
    Ok(all)
}

fn is_collectionless(target: &Target) -> Result<bool, Failure> {
    Ok(target.name()?.coll() == "$cmd.aggregate")
}

fn head(ns: &Namespace, kind: &str) -> RawDocumentBuf {
    rawdoc! { "db": ns.db(), "name": ns.coll(), "type": kind }
}

fn of_view(entry: &views::ViewEntry, db: &str) -> RawDocumentBuf {
    let ns = Namespace::new(db, &entry.name);
    let kind = if entry.buckets(db).is_some() { "timeseries" } else { "view" };
    let mut doc = head(&ns, kind);
    for (name, value) in entry.definition.iter().flatten() {
        doc.append(name, value);
    }
    doc.append(cstr!("ns"), ns.as_str());
    doc
}

/// mongod's idents name files of its engine; ours name the collection or index.
fn of_collection(collection: &Collection) -> RawDocumentBuf {
    let ns = collection.ns();
    let uuid = collection.uuid();
    let bytes = uuid.as_bytes().to_vec();
    let mut options = rawdoc! { "uuid": Binary { subtype: BinarySubtype::Uuid, bytes } };
    for (name, value) in collection.options().iter().flatten() {
        options.append(name, value);
    }
    let (mut indexes, mut idents) = (RawArrayBuf::new(), RawDocumentBuf::new());
    if let Some(spec) = collection.id_index().filter(|_| !collection.is_clustered()) {
        indexes.push(entry(spec, true, Some(vec![("_id".to_owned(), vec![0])])));
        idents.append(cstr!("_id_"), format!("index-{uuid}-0"));
    }
    for (at, index) in collection.indexes().iter().enumerate() {
        let ready = index.state() == IndexState::Ready;
        indexes.push(entry(index.spec(), ready, multikey_paths(index)));
        if let Ok(name) = CString::try_from(index.name()) {
            idents.append(name, format!("index-{uuid}-{}", at + 1));
        }
    }
    let mut doc = head(ns, "collection");
    doc.append(cstr!("md"), rawdoc! { "ns": ns.as_str(), "options": options, "indexes": indexes });
    doc.append(cstr!("idxIdent"), idents);
    doc.append(cstr!("ident"), format!("collection-{uuid}"));
    doc.append(cstr!("ns"), ns.as_str());
    doc
}

type Paths = Vec<(String, Vec<u8>)>;

fn entry(spec: &RawDocument, ready: bool, paths: Option<Paths>) -> RawDocumentBuf {
    let multikey = paths.iter().flatten().any(|(_, seen)| seen.contains(&1));
    let mut doc = rawdoc! { "spec": spec.to_owned(), "ready": ready, "multikey": multikey };
    if let Some(paths) = paths {
        let mut shown = RawDocumentBuf::new();
        for (path, bytes) in paths {
            if let Ok(path) = CString::try_from(path) {
                shown.append(path, Binary { subtype: BinarySubtype::Generic, bytes });
            }
        }
        doc.append(cstr!("multikeyPaths"), shown);
    }
    doc
}

/// The multikey paths: for each path of the key one byte per path component, 1 if an array was seen there. Only btree
/// and 2dsphere indexes have them.
fn multikey_paths(index: &Index) -> Option<Paths> {
    let key = index.key_pattern()?;
    let keeps = key.iter().flatten().all(|(name, kind)| {
        !name.as_str().contains("$**") && kind.as_str().is_none_or(|kind| kind == "2dsphere")
    });
    let paths = index.multikey_paths();
    keeps.then(|| {
        key.iter()
            .flatten()
            .enumerate()
            .map(|(at, (name, _))| {
                let seen = |part: usize| {
                    let part = u32::try_from(part).ok();
                    paths.get(at).is_some_and(|seen| part.is_some_and(|part| seen.contains(&part)))
                };
                let parts = name.as_str().split('.').count();
                (name.as_str().to_owned(), (0..parts).map(|part| u8::from(seen(part))).collect())
            })
            .collect()
    })
}

/// The entries of listCollections, with database names.
pub(super) fn cluster_entries(
    call: &Call,
    view: &View,
    target: &Target,
    spec: &RawDocument,
) -> Result<Vec<RawDoc>, Failure> {
    let db = target.name()?.db();
    let dbs = if db == "admin" { view.catalog().databases() } else { vec![db.to_owned()] };
    let dbs = dbs.iter().filter(|name| db != "admin" || !OWN.contains(&name.as_str()));
    let asks = |name: &str| matches!(spec.get_bool(name), Ok(true));
    let mut all = Vec::new();
    for db in dbs {
        for listed in list_collections::listed(call, view, db)? {
            let name = listed.get_str("name").unwrap_or_default();
            let mut doc = rawdoc! { "ns": format!("{db}.{name}"), "db": db.as_str() };
            for (name, value) in listed.iter().flatten().filter(|(name, _)| name.as_str() != "name")
            {
                doc.append(name, RawBson::from(value as RawBsonRef<'_>));
            }
            doc.append(cstr!("sharded"), false);
            if asks("tracked") {
                doc.append(cstr!("tracked"), false);
            }
            if asks("shards") {
                doc.append(cstr!("shards"), RawArrayBuf::new());
            }
            all.push(doc.into());
        }
    }
    Ok(all)
}

/// Databases of the server itself.
const OWN: [&str; 3] = ["admin", "config", "local"];
