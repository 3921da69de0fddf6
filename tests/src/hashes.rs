//! Checks that two nodes hold the same data.
//!
//! Compares `dbHash`, listCollections and listIndexes of every database at the same optime. If the primary writes
//! meanwhile (a periodic noop, a session refresh), the comparison starts again.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bson::{Bson, Document, RawDocumentBuf, Timestamp, doc};

use crate::compare;
use crate::node::Node;
use crate::repl_set::applied;
use crate::servers::Version;
use crate::wait::wait_until;

/// Fails with the differences unless both nodes hold the same data.
pub fn assert_same_data(primary: &Node, other: &Node) -> Result<()> {
    let what = format!("{} and {} stand at the same optime", primary.name(), other.name());
    let mut differences = wait_until(&what, SETTLE_LIMIT, || {
        let before = applied(primary)?;
        if applied(other)? != before {
            return Ok(None);
        }
        let differences = differences(primary, other);
        Ok((applied(primary)? == before).then_some(differences))
    })??;
    if primary.version() < Some(Version::V8_2) {
        compare_capped(primary, other, &mut differences)?;
    }
    if differences.is_empty() {
        return Ok(());
    }
    bail!("{} differs from {}:\n  {}", other.name(), primary.name(), differences.join("\n  "))
}

/// Compares capped collections as sets of documents. Concurrent writers on a 4.4 or 5.0 primary may store documents
/// in an order different from the oplog, which is the order on all secondaries.
fn compare_capped(primary: &Node, other: &Node, differences: &mut Vec<String>) -> Result<()> {
    for db in databases(primary)? {
        for name in capped(&db_hash(primary, &db)?) {
            let read = |node: &Node| -> Result<Vec<RawDocumentBuf>> {
                let collection = node.client().database(&db).collection::<RawDocumentBuf>(&name);
                let found = collection.find(doc! {}).sort(doc! { "$natural": 1 }).run()?;
                let mut found = found.collect::<Result<Vec<RawDocumentBuf>, _>>()?;
                found.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
                Ok(found)
            };
            let (want, got) = (read(primary)?, read(other)?);
            if want != got {
                let (want, got) = (want.len(), got.len());
                differences.push(format!("{db}.{name}, capped: {want} and {got} documents differ"));
            }
        }
    }
    Ok(())
}

fn capped(hashes: &Document) -> Vec<String> {
    let names = hashes.get_array("capped").map(Vec::as_slice).unwrap_or_default();
    names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

/// All current differences, as text.
pub fn differences(primary: &Node, other: &Node) -> Result<Vec<String>> {
    Ok(Picture::take(primary, None)?.differences(&Picture::take(other, None)?))
}

/// The state of a node: hashes, collections and indexes of every database.
#[derive(Clone, Debug)]
pub struct Picture {
    databases: BTreeMap<String, Database>,
}

#[derive(Clone, Debug)]
struct Database {
    hashes: Document,
    collections: BTreeMap<String, Bson>,
    indexes: BTreeMap<String, BTreeMap<String, Bson>>,
}

impl Picture {
    /// Reads the state of a node now, or at a timestamp.
    pub fn take(node: &Node, at: Option<Timestamp>) -> Result<Self> {
        let reader = Reader { node, at };
        let mut databases = BTreeMap::new();
        for db in reader.databases()? {
            let collections = reader.collections(&db)?;
            let mut indexes = BTreeMap::new();
            for (name, info) in &collections {
                let kind = info.as_document().and_then(|info| info.get_str("type").ok());
                if kind != Some("view") {
                    indexes.insert(name.clone(), reader.indexes(&db, name)?);
                }
            }
            let hashes = reader.run(&db, doc! { "dbHash": 1 })?;
            databases.insert(db, Database { hashes, collections, indexes });
        }
        Ok(Self { databases })
    }

    /// The hash of a collection.
    pub fn hash(&self, db: &str, collection: &str) -> Option<&str> {
        let hashes = self.databases.get(db)?.hashes.get_document("collections").ok()?;
        hashes.get_str(collection).ok()
    }

    /// The options of a collection.
    pub fn options(&self, db: &str, collection: &str) -> Option<&Bson> {
        self.databases.get(db)?.collections.get(collection)?.as_document()?.get("options")
    }

    /// The indexes of a collection, by name.
    pub fn indexes(&self, db: &str, collection: &str) -> Option<&BTreeMap<String, Bson>> {
        self.databases.get(db)?.indexes.get(collection)
    }

    /// The differences to `other`, as text.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        let names = |picture: &Self| picture.databases.keys().cloned().collect::<Vec<_>>();
        let (want, got) = (names(self), names(other));
        if want != got {
            differences.push(format!("databases: {want:?} and {got:?}"));
        }
        for (db, want) in &self.databases {
            let Some(got) = other.databases.get(db) else { continue };
            compare_hashes(db, &want.hashes, &got.hashes, &mut differences);
            let of = format!("listCollections of {db}");
            compare_maps(&of, &want.collections, &got.collections, &mut differences);
            for (name, want) in &want.indexes {
                if let Some(got) = got.indexes.get(name) {
                    let of = format!("listIndexes of {db}.{name}");
                    compare_maps(&of, want, got, &mut differences);
                }
            }
        }
        differences
    }
}

fn compare_hashes(db: &str, want: &Document, got: &Document, differences: &mut Vec<String>) {
    for part in ["collections", "uuids"] {
        let want = compared(want.get_document(part).unwrap_or(&Document::new()), db);
        let got = compared(got.get_document(part).unwrap_or(&Document::new()), db);
        compare_maps(&format!("dbHash {part} of {db}"), &want, &got, differences);
    }
}

/// The collections' hashes are compared instead of the total `md5`, to learn which collection differs.
fn db_hash(node: &Node, db: &str) -> Result<Document> {
    node.run(db, doc! { "dbHash": 1 })
}

fn compared(document: &Document, db: &str) -> BTreeMap<String, Bson> {
    let entries = document.iter().filter(|(name, _)| !differs_among_mongods(db, name));
    entries.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// True for collections that each member fills or trims by its own clock.
fn differs_among_mongods(db: &str, collection: &str) -> bool {
    db == "config" && matches!(collection, "image_collection" | "system.preimages")
}

/// All databases except `local`, which differs on every node.
pub fn databases(node: &Node) -> Result<Vec<String>> {
    Reader { node, at: None }.databases()
}

/// Reads a node now or at a timestamp.
struct Reader<'a> {
    node: &'a Node,
    at: Option<Timestamp>,
}

impl Reader<'_> {
    fn run(&self, db: &str, mut command: Document) -> Result<Document> {
        if let Some(at) = self.at {
            command.insert("readConcern", doc! { "level": "snapshot", "atClusterTime": at });
        }
        self.node.run(db, command)
    }

    fn databases(&self) -> Result<Vec<String>> {
        let reply = self.run("admin", doc! { "listDatabases": 1, "nameOnly": true })?;
        let mut names: Vec<String> = reply
            .get_array("databases")?
            .iter()
            .filter_map(|db| Some(db.as_document()?.get_str("name").ok()?.to_owned()))
            .filter(|name| name != "local")
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    fn collections(&self, db: &str) -> Result<BTreeMap<String, Bson>> {
        by_name(self.run(db, doc! { "listCollections": 1, "cursor": { "batchSize": ALL } })?)
    }

    fn indexes(&self, db: &str, collection: &str) -> Result<BTreeMap<String, Bson>> {
        by_name(self.run(db, doc! { "listIndexes": collection, "cursor": { "batchSize": ALL } })?)
    }
}

/// The documents of a single-batch reply by `name`.
fn by_name(reply: Document) -> Result<BTreeMap<String, Bson>> {
    let cursor = reply.get_document("cursor")?;
    if cursor.get_i64("id")? != 0 {
        bail!("more than one batch");
    }
    cursor
        .get_array("firstBatch")?
        .iter()
        .map(|entry| {
            let entry = entry.as_document().context("an entry is no document")?;
            Ok((entry.get_str("name")?.to_owned(), entry.clone().into()))
        })
        .collect()
}

fn compare_maps(
    what: &str,
    want: &BTreeMap<String, Bson>,
    got: &BTreeMap<String, Bson>,
    differences: &mut Vec<String>,
) {
    for (name, want) in want {
        match got.get(name) {
            None => differences.push(format!("{what}: {name} is missing")),
            Some(got) => {
                let found = compare::exact_differences(want, got);
                differences.extend(found.iter().map(|found| format!("{what}: {name} {found}")));
            }
        }
    }
    for name in got.keys().filter(|name| !want.contains_key(*name)) {
        differences.push(format!("{what}: {name} is too many"));
    }
}

const ALL: i32 = 100_000;
const SETTLE_LIMIT: Duration = Duration::from_secs(60);
