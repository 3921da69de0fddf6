//! `verify`: whether a node holds what the primary holds, while both are at work.
//!
//! Each collection is read on both at one moment T, the primary's own last one, by snapshot reads. What is compared is
//! the sum of the hashes of its documents, whatever their order. A primary of 4.4 has no snapshot reads outside of
//! transactions: there the present of both is compared, again and again until nothing was written meanwhile.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use bson::{Timestamp, doc};
use indicatif::ProgressBar;
use mongodb::{
    options::{ReadPreference, SelectionCriteria},
    sync::Client,
};
use sha2::{Digest, Sha256};

use super::source::{Node, connect_cluster};

/// Tries before a collection that is written to is given up on a primary without snapshot reads.
const TRIES_MAX: u32 = 20;

/// Compares, and fails if anything differs.
pub fn run(from: &str, primary: &str, wanted: &[String]) -> Result<()> {
    let node = Node::connect(from)?;
    let primary = connect_cluster(primary)?;
    let mut differing = 0;
    let names = namespaces(&primary, wanted)?;
    let bar = ProgressBar::new(names.len() as u64);
    for (db, name) in &names {
        bar.set_message(format!("{db}.{name}"));
        let (want, got) = both(&node.client, &primary, db, name)?;
        bar.inc(1);
        if want != got {
            differing += 1;
            bar.println(format!(
                "DIFFERS {db}.{name}: the primary has {} documents, the node {}",
                want.documents, got.documents
            ));
        }
    }
    bar.finish_and_clear();
    if differing > 0 {
        bail!("{differing} of {} collections differ: this node must be synced anew", names.len());
    }
    println!("{} collections are equal", names.len());
    Ok(())
}

fn namespaces(primary: &Client, wanted: &[String]) -> Result<BTreeSet<(String, String)>> {
    let mut names = BTreeSet::new();
    for db in primary.list_database_names().run().context("ask the primary")? {
        if matches!(db.as_str(), "local" | "config" | "admin") {
            continue;
        }
        for info in primary.database(&db).list_collections().run()? {
            let info = info?;
            let kind = info.collection_type;
            let ns = format!("{db}.{}", info.name);
            let asked = wanted.is_empty() || wanted.iter().any(|it| *it == db || *it == ns);
            if asked && kind == mongodb::results::CollectionType::Collection {
                names.insert((db.clone(), info.name));
            }
        }
    }
    Ok(names)
}

/// The same moment of both.
fn both(node: &Client, primary: &Client, db: &str, name: &str) -> Result<(Sum, Sum)> {
    for _ in 0..TRIES_MAX {
        let before = operation_time(primary)?;
        match Sum::of(primary, db, name, Some(before)) {
            Ok(want) => return Ok((want, Sum::of(node, db, name, Some(before))?)),
            Err(error) if is_without_snapshots(&error) => {}
            Err(error) => return Err(error),
        }
        let want = Sum::of(primary, db, name, None)?;
        if operation_time(primary)? == before {
            return Ok((want, Sum::of(node, db, name, Some(before))?));
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

fn is_without_snapshots(error: &anyhow::Error) -> bool {
    let text = format!("{error:#}");
    text.contains("snapshot is only valid in a transaction") || text.contains("not supported")
}

/// The hashes of all documents, added up.
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
