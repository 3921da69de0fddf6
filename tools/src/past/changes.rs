//! Mass changes: runs of deletes or updates that affected a large part of a collection.
//!
//! The node counts the deletes and updates in its oplog by collection and second. Consecutive seconds form one run,
//! because a command writes one entry per document. A run is reported if it affected many documents and a large part
//! of the collection.

use std::collections::BTreeMap;

use anyhow::Result;
use bson::{Bson, Document, doc};
use protocol::Timestamp;

use super::{
    drops::{Loss, What},
    source::{Node, number},
};

/// A longer pause ends a run.
const PAUSE_SECS: u64 = 2;
/// A run is reported if it affected at least one tenth of the collection.
const PART: u64 = 10;

/// The runs that concern `wanted` and affected at least `least` documents each.
pub(super) fn find(node: &Node, wanted: Option<&str>, least: u64) -> Result<Vec<Loss>> {
    let mut seconds: BTreeMap<(String, String), Vec<Second>> = BTreeMap::new();
    let oplog = node.client.database("local").collection::<Document>("oplog.rs");
    for row in oplog.aggregate(by_second(wanted)).allow_disk_use(true).run()? {
        let row = row?;
        let key = row.get_document("_id")?;
        let second = Second {
            secs: number(key.get("s"))?,
            operations: number(row.get("n"))?,
            first: row.get_timestamp("first")?.into(),
            last: row.get_timestamp("last")?.into(),
        };
        let key = (key.get_str("ns")?.to_owned(), key.get_str("op")?.to_owned());
        seconds.entry(key).or_default().push(second);
    }
    let mut found = Vec::new();
    for ((ns, op), seconds) in seconds {
        for run in runs(seconds).into_iter().filter(|run| run.operations >= least) {
            found.extend(judged(node, &ns, &op, &run, least)?);
        }
    }
    Ok(found)
}

/// The deletes or updates of one second, or of a run of seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Second {
    secs: u64,
    operations: u64,
    first: Timestamp,
    last: Timestamp,
}

/// Pipeline stages that yield every operation of the oplog separately, including those of transactions.
fn operations(range: Option<(Timestamp, Timestamp)>) -> Vec<Document> {
    let mut filter = doc! { "$or": [
        { "op": { "$in": ["d", "u"] } },
        { "op": "c", "o.applyOps": { "$exists": true } },
    ] };
    if let Some((first, last)) = range {
        let (first, last) = (bson::Timestamp::from(first), bson::Timestamp::from(last));
        filter.insert("ts", doc! { "$gte": first, "$lte": last });
    }
    let alone =
        doc! { "op": "$op", "ns": "$ns", "o": { "_id": "$o._id" }, "o2": { "_id": "$o2._id" } };
    vec![
        doc! { "$match": filter },
        doc! { "$project": { "ts": 1, "wall": 1, "ops": { "$ifNull": ["$o.applyOps", [alone]] } } },
        doc! { "$unwind": "$ops" },
    ]
}

fn by_second(wanted: Option<&str>) -> Vec<Document> {
    // A namespace matches exactly. A database name matches all of its collections: '/' is the character after '.'.
    let names = match wanted {
        None => doc! { "$not": { "$regex": "^(admin|config|local)\\." } },
        Some(ns) if ns.contains('.') => doc! { "$eq": ns },
        Some(db) => doc! { "$gte": format!("{db}."), "$lt": format!("{db}/") },
    };
    let second = doc! { "$floor": { "$divide": [{ "$toLong": "$wall" }, 1000] } };
    let mut pipeline = operations(None);
    pipeline.extend([
        doc! { "$match": { "ops.op": { "$in": ["d", "u"] }, "ops.ns": names } },
        doc! { "$group": {
            "_id": { "ns": "$ops.ns", "op": "$ops.op", "s": second },
            "n": { "$sum": 1 }, "first": { "$min": "$ts" }, "last": { "$max": "$ts" },
        } },
        doc! { "$sort": { "_id.s": 1 } },
    ]);
    pipeline
}

/// Joins consecutive seconds to runs.
fn runs(seconds: Vec<Second>) -> Vec<Second> {
    let mut runs: Vec<Second> = Vec::new();
    for second in seconds {
        match runs.last_mut() {
            Some(run) if second.secs - run.secs <= PAUSE_SECS => {
                run.secs = second.secs;
                run.operations += second.operations;
                run.first = run.first.min(second.first);
                run.last = run.last.max(second.last);
            }
            _ => runs.push(second),
        }
    }
    runs
}

/// The run as a loss, if it affected a large part of the collection.
fn judged(node: &Node, ns: &str, op: &str, run: &Second, least: u64) -> Result<Option<Loss>> {
    let before = Timestamp::from_u64(run.first.as_u64() - 1);
    let documents = distinct(node, ns, op, run)?;
    let there = match node.check(before) {
        Ok(()) => Some(count_at(node, ns, before)?),
        Err(_) => None,
    };
    let large = there.is_none_or(|there| documents.saturating_mul(PART) >= there);
    if documents < least || !large {
        return Ok(None);
    }
    let what = if op == "d" { What::Deletes } else { What::Updates };
    Ok(Some(Loss {
        what,
        ns: ns.to_owned(),
        ts: run.first,
        until: run.last,
        before,
        documents: Some(documents),
        of: there,
    }))
}

/// The number of distinct documents that a run affected.
fn distinct(node: &Node, ns: &str, op: &str, run: &Second) -> Result<u64> {
    let mut pipeline = operations(Some((run.first, run.last)));
    let id = if op == "d" { "$ops.o._id" } else { "$ops.o2._id" };
    pipeline.extend([
        doc! { "$match": { "ops.op": op, "ops.ns": ns } },
        doc! { "$group": { "_id": id } },
        doc! { "$count": "n" },
    ]);
    let oplog = node.client.database("local").collection::<Document>("oplog.rs");
    let row = oplog.aggregate(pipeline).allow_disk_use(true).run()?.next().transpose()?;
    row.map_or(Ok(0), |row| number(row.get("n")))
}

fn count_at(node: &Node, ns: &str, ts: Timestamp) -> Result<u64> {
    let (db, name) = ns.split_once('.').unwrap_or((ns, ""));
    let concern = doc! { "level": "snapshot", "atClusterTime": bson::Timestamp::from(ts) };
    let reply = node
        .client
        .database(db)
        .run_command(doc! { "count": name, "readConcern": concern })
        .run()?;
    number(reply.get("n").or(Some(&Bson::Int32(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_that_follow_each_other_are_one_run() {
        let second = |secs: u32, operations| Second {
            secs: u64::from(secs),
            operations,
            first: Timestamp::new(secs, 1),
            last: Timestamp::new(secs, 9),
        };
        let found = runs(vec![second(10, 5), second(11, 6), second(13, 1), second(16, 2)]);
        let joined = Second {
            secs: 13,
            operations: 12,
            first: Timestamp::new(10, 1),
            last: Timestamp::new(13, 9),
        };
        assert_eq!(found, [joined, second(16, 2)]);
    }
}
