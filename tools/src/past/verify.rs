//! `verify`: checks that a node holds the same data as the primary, while both are in use.
//!
//! Each collection is read on both by snapshot reads at the same timestamp, the primary's current operationTime. The
//! sums of the documents' hashes are compared, so the order of documents does not matter. A 4.4 primary has no
//! snapshot reads outside of transactions: there its present is compared with the node's state right before and right
//! after, until the latter two are equal.
//!
//! A primary cannot list its collections at a past timestamp, but an Understudy can. If the node's lists right before
//! and right after the primary's listing are equal, no collection was created, changed or dropped meanwhile, and the
//! primary's list must be the same.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use bson::{Bson, Document, Timestamp, doc};
use mongodb::{
    error::ErrorKind,
    options::{ReadPreference, SelectionCriteria},
    sync::Client,
};
use sha2::{Digest, Sha256};

use super::source::{Node, connect_cluster, long};
use crate::screen::{Screen, count};

/// Number of attempts to compare a collection under writes, on a primary without snapshot reads.
const TRIES_MAX: u32 = 20;

/// Runs the comparison. True if nothing differs.
pub fn run(screen: &mut Screen, from: &str, primary: &str, wanted: &[String]) -> Result<bool> {
    let node = Node::connect(from)?;
    let primary = connect_cluster(primary)?;
    let catalog = catalogs(&node, &primary, wanted)?;
    let found = catalog.differences();
    for (ns, text) in &found {
        screen.row(&doc! { "ns": ns, "differs": *text }, format_args!("DIFFERS {ns}: {text}"))?;
    }
    let mut differing = found.len() as u64;
    let names = catalog.with_data();
    let bar = screen.bar(names.len() as u64, "  {msg} [{bar:30}] {human_pos} of {human_len}");
    for (db, name) in &names {
        let ns = format!("{db}.{name}");
        bar.set_message(ns.clone());
        let (want, got) = both(&node.client, &primary, db, name)?;
        bar.inc(1);
        if want != got {
            differing += 1;
            let (want, got) = (want.documents, got.documents);
            let text = format!("the primary has {want} documents, the node {got}");
            let row = doc! { "ns": &ns, "differs": &text };
            bar.suspend(|| screen.row(&row, format_args!("DIFFERS {ns}: {text}")))?;
        }
    }
    bar.finish_and_clear();
    if differing > 0 {
        screen.note(format_args!(
            "{}: this node must be synced anew (stop it, empty its dbpath, start it)",
            count(differing, "difference")
        ));
        return Ok(false);
    }
    let equal = count(names.len() as u64, "collection");
    let verb = if names.len() == 1 { "is" } else { "are" };
    screen
        .row(&doc! { "equal": long(names.len() as u64) }, format_args!("{equal} {verb} equal"))?;
    Ok(true)
}

/// The catalogs of the primary and the node at the same timestamp.
struct Catalogs {
    primary: Catalog,
    node: Catalog,
}

/// By database and name: what listCollections and listIndexes return.
type Catalog = BTreeMap<(String, String), Listed>;

#[derive(Clone, Debug, PartialEq)]
struct Listed {
    kind: String,
    options: Document,
    uuid: Option<Bson>,
    /// Indexes by name, since members may have built them in a different order.
    indexes: BTreeMap<String, Document>,
}

fn catalogs(node: &Node, primary: &Client, wanted: &[String]) -> Result<Catalogs> {
    for _ in 0..TRIES_MAX {
        let before = operation_time(primary)?;
        let asked = list(primary, wanted);
        let after = operation_time(primary)?;
        // A listed collection may be dropped before its indexes are listed; then try again.
        let Ok(asked) = asked else { continue };
        gossip(primary, &node.client)?;
        let of = |ts: Timestamp| list(&node.awaited(ts)?.client, wanted);
        let (first, last) = (of(before)?, of(after)?);
        if first == last {
            return Ok(Catalogs { primary: asked, node: first });
        }
    }
    bail!("collections are created and dropped all the time; try it at a quieter time")
}

fn list(client: &Client, wanted: &[String]) -> Result<Catalog> {
    let mut found = Catalog::new();
    let primary =
        || SelectionCriteria::ReadPreference(ReadPreference::PrimaryPreferred { options: None });
    let admin = client.database("admin");
    let names = admin.run_command(doc! { "listDatabases": 1, "nameOnly": true });
    let names = names.selection_criteria(primary()).run().context("list the databases")?;
    for db in names.get_array("databases")?.iter().filter_map(Bson::as_document) {
        let name = db.get_str("name")?;
        if matches!(name, "local" | "config" | "admin") {
            continue;
        }
        let db = client.database(name);
        let listed = db.run_cursor_command(doc! { "listCollections": 1 });
        for info in listed.selection_criteria(primary()).run()? {
            let info = info?;
            let coll = info.get_str("name")?.to_owned();
            let ns = format!("{name}.{coll}");
            let asked = wanted.is_empty() || wanted.iter().any(|it| it == name || *it == ns);
            if !asked {
                continue;
            }
            let kind = info.get_str("type").unwrap_or("collection").to_owned();
            let mut indexes = BTreeMap::new();
            if kind == "collection" {
                let listed = db.run_cursor_command(doc! { "listIndexes": &coll });
                for spec in listed.selection_criteria(primary()).run()? {
                    let spec = spec?;
                    // An unfinished index build is not compared: members start and finish it at different times.
                    if !spec.contains_key("buildUUID") {
                        indexes.insert(spec.get_str("name")?.to_owned(), spec);
                    }
                }
            }
            let uuid = info.get_document("info").ok().and_then(|info| info.get("uuid").cloned());
            let options = info.get_document("options").cloned().unwrap_or_default();
            found.insert((name.to_owned(), coll), Listed { kind, options, uuid, indexes });
        }
    }
    Ok(found)
}

impl Catalogs {
    /// Describes the differences, one text per collection.
    fn differences(&self) -> Vec<(String, &'static str)> {
        let names: BTreeSet<_> = self.primary.keys().chain(self.node.keys()).collect();
        let differs = |key: &&(String, String)| {
            let what = match (self.primary.get(key), self.node.get(key)) {
                (Some(_), None) => "the node does not have it",
                (None, Some(_)) => "the primary does not have it",
                (Some(a), Some(b)) if a.uuid != b.uuid => "they are two different collections",
                (Some(a), Some(b)) if a.kind != b.kind || a.options != b.options => {
                    "their options differ"
                }
                (Some(a), Some(b)) if a.indexes != b.indexes => "their indexes differ",
                _ => return None,
            };
            Some((format!("{}.{}", key.0, key.1), what))
        };
        names.iter().filter_map(differs).collect()
    }

    /// Collections that exist on both and hold documents.
    fn with_data(&self) -> Vec<(String, String)> {
        let both = self.primary.iter().filter(|(key, _)| self.node.contains_key(key));
        both.filter(|(_, listed)| listed.kind == "collection").map(|(key, _)| key.clone()).collect()
    }
}

/// The sums of a collection on both servers at the same timestamp.
fn both(node: &Client, primary: &Client, db: &str, name: &str) -> Result<(Sum, Sum)> {
    for _ in 0..TRIES_MAX {
        let before = operation_time(primary)?;
        gossip(primary, node)?;
        match Sum::of(primary, db, name, Some(before)) {
            Ok(want) => return Ok((want, Sum::of(node, db, name, Some(before))?)),
            Err(error) if is_without_snapshots(&error) => {}
            // The collection's catalog entry changed after that timestamp; try a later one.
            Err(error) if is_of_another_catalog(&error) => continue,
            Err(error) => return Err(error),
        }
        let want = Sum::of(primary, db, name, None)?;
        let after = operation_time(primary)?;
        gossip(primary, node)?;
        let then = Sum::of(node, db, name, Some(before))?;
        // Nothing was written to it meanwhile, so both sums belong to the same state.
        if after == before || Sum::of(node, db, name, Some(after))? == then {
            return Ok((want, then));
        }
    }
    bail!(
        "{db}.{name} is written to all the time, and the primary has no snapshot reads; try it at a quieter time"
    )
}

fn operation_time(primary: &Client) -> Result<Timestamp> {
    let admin = primary.database("admin");
    let preference = SelectionCriteria::ReadPreference(ReadPreference::Primary);
    let ping = admin.run_command(doc! { "ping": 1 }).selection_criteria(preference);
    let reply = ping.run().context("ask the primary")?;
    Ok(reply.get_timestamp("operationTime")?)
}

/// Passes the primary's cluster time to the node: the node waits for times it has seen and refuses others.
fn gossip(primary: &Client, node: &Client) -> Result<()> {
    let mut heard = primary.start_session().run().context("ask the primary")?;
    let admin = primary.database("admin");
    let ping = admin.run_command(doc! { "ping": 1 });
    ping.session(&mut heard).run().context("ask the primary")?;
    let mut told = node.start_session().run().context("ask the node")?;
    if let Some(time) = heard.cluster_time() {
        told.advance_cluster_time(time);
    }
    let admin = node.database("admin");
    let ping = admin.run_command(doc! { "ping": 1 });
    ping.session(&mut told).run().context("ask the node")?;
    Ok(())
}

fn is_without_snapshots(error: &anyhow::Error) -> bool {
    let text = format!("{error:#}");
    text.contains("snapshot is only valid in a transaction") || text.contains("not supported")
}

fn is_of_another_catalog(error: &anyhow::Error) -> bool {
    let codes = |error: &mongodb::error::Error| match &*error.kind {
        ErrorKind::Command(failed) => failed.code,
        _ => 0,
    };
    let failed = error.chain().find_map(|cause| cause.downcast_ref::<mongodb::error::Error>());
    failed.is_some_and(|failed| codes(failed) == SNAPSHOT_UNAVAILABLE)
}

const SNAPSHOT_UNAVAILABLE: i32 = 246;

/// The sum of all documents' hashes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    documents: u64,
    halves: [u128; 2],
}

impl Sum {
    fn of(client: &Client, db: &str, name: &str, at: Option<Timestamp>) -> Result<Self> {
        let mut find = doc! { "find": name, "batchSize": 1_000 };
        if let Some(at) = at {
            find.insert("readConcern", doc! { "level": "snapshot", "atClusterTime": at });
        }
        let db = client.database(db);
        let mut cursor =
            db.run_cursor_command(find).run().with_context(|| format!("read {name}"))?;
        let mut sum = Self::default();
        while cursor.advance()? {
            sum.add(cursor.current().as_bytes());
        }
        Ok(sum)
    }

    fn add(&mut self, document: &[u8]) {
        self.documents += 1;
        let hash = Sha256::digest(document);
        for (half, bytes) in self.halves.iter_mut().zip(hash.chunks_exact(16)) {
            let number = bytes.iter().fold(0_u128, |n, byte| (n << 8) | u128::from(*byte));
            *half = half.wrapping_add(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_knows_every_document_and_no_order() {
        let sum = |documents: &[&[u8]]| {
            let mut sum = Sum::default();
            documents.iter().for_each(|document| sum.add(document));
            sum
        };
        assert_eq!(sum(&[b"a", b"b"]), sum(&[b"b", b"a"]));
        assert_ne!(sum(&[b"a", b"b"]), sum(&[b"a", b"a"]));
        assert_ne!(sum(&[b"a"]), sum(&[b"a", b"a"]));
    }
}
