//! Consistency: what a single command reads belongs to one timestamp, and the positions that a node reports never
//! move back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use bson::{Bson, Document, Timestamp, doc};
use mongodb::options::{Acknowledgment, WriteConcern};
use tests::node::Node;
use tests::repl_set::ReplSet;
use tests::servers::Version;
use tests::wait::{PATIENCE, wait_until};

on_each_version!(moments_are_whole_and_in_order);

const PAIRS: i32 = 20;
const TRANSFERS: i32 = 150;
/// Minimum number of checks of each pair of accounts.
const LOOKS: u32 = 100;

/// Transactions move amounts between two collections while the primary steps down.
fn moments_are_whole_and_in_order(version: Version) -> Result<()> {
    let set = ReplSet::named("moments")
        .version(version)
        .mongods(2)
        .ours_voting(1)
        .election_timeout(Duration::from_secs(4))
        .start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_votes()?;
    for name in ["left", "right"] {
        let documents: Vec<Document> =
            (0..PAIRS).map(|id| doc! { "_id": id, "amount": 0, "moved": 0 }).collect();
        let concern = doc! { "w": 3, "wtimeout": 60_000 };
        let insert = doc! { "insert": name, "documents": documents, "writeConcern": concern };
        set.primary()?.run("bank", insert)?;
    }
    // A member may hold majority-committed data before it knows that it is committed.
    wait_until("a majority read sees the accounts", PATIENCE, || {
        Ok(majority_sum(set.ours()?)?.map(|_| ()))
    })?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        let writer = scope.spawn(|| {
            let written = write(&set);
            done.store(true, Ordering::SeqCst);
            written
        });
        let (mut watched, mut looks) = (Watched::default(), 0);
        let mut look = || -> Result<()> {
            while looks < LOOKS || !done.load(Ordering::SeqCst) {
                balances_are_zero(set.ours()?)?;
                watched.look(set.ours()?)?;
                looks += 1;
            }
            Ok(())
        };
        let looked = look();
        writer.join().map_err(|_| anyhow!("the writer panicked"))??;
        looked
    })?;
    set.finish()
}

fn write(set: &ReplSet) -> Result<()> {
    for i in 0..TRANSFERS {
        if i == TRANSFERS / 2 {
            // It may answer with an error, since it closes connections while it steps down.
            let _ = set.primary()?.admin(doc! { "replSetStepDown": 20 });
        }
        wait_until("a transfer goes through", PATIENCE, || {
            transfer(set.await_primary()?, i % PAIRS).map(Some)
        })?;
    }
    Ok(())
}

fn transfer(primary: &Node, id: i32) -> Result<()> {
    let db = primary.client().database("bank");
    let mut session = primary.client().start_session().run()?;
    let concern = WriteConcern::builder().w(Acknowledgment::Majority).build();
    session.start_transaction().write_concern(concern).run()?;
    for (name, amount) in [("left", 1), ("right", -1)] {
        let change = doc! { "$inc": { "amount": amount, "moved": 1 } };
        let collection = db.collection::<Document>(name);
        collection.update_one(doc! { "_id": id }, change).session(&mut session).run()?;
    }
    Ok(session.commit_transaction().run()?)
}

/// Reads both collections in one command: joined, in a sub-pipeline, and one after the other.
fn balances_are_zero(ours: &Node) -> Result<()> {
    let sum = doc! { "$sum": "$amount" };
    let joined = doc! { "from": "right", "localField": "_id", "foreignField": "_id", "as": "r" };
    let pipelines = [
        vec![
            doc! { "$lookup": joined },
            doc! { "$unwind": "$r" },
            doc! { "$project": { "sum": { "$add": ["$amount", "$r.amount"] } } },
        ],
        vec![
            doc! { "$unionWith": { "coll": "right" } },
            doc! { "$group": { "_id": "$_id", "sum": sum } },
        ],
    ];
    for pipeline in pipelines {
        let rows = ours.client().database("bank").collection::<Document>("left");
        let rows = rows.aggregate(pipeline.clone()).run()?.collect::<Result<Vec<_>, _>>()?;
        ensure!(i32::try_from(rows.len())? == PAIRS, "{} rows of {pipeline:?}", rows.len());
        for row in rows {
            ensure!(row.get_i32("sum")? == 0, "{row} by {pipeline:?}");
        }
    }
    Ok(())
}

/// Values that must never decrease.
#[derive(Default)]
struct Watched {
    optimes: BTreeMap<String, Timestamp>,
    moved: i32,
}

impl Watched {
    fn look(&mut self, ours: &Node) -> Result<()> {
        let status = ours.admin(doc! { "replSetGetStatus": 1 })?;
        let optimes = status.get_document("optimes")?;
        let ts = |name: &str| -> Result<Option<Timestamp>> {
            let Some(value) = optimes.get(name) else { return Ok(None) };
            let ts = value.as_document().and_then(|time| time.get_timestamp("ts").ok());
            ts.map(Some).with_context(|| format!("{name} of {optimes}"))
        };
        let applied = ts("appliedOpTime")?.context("appliedOpTime")?;
        let written = ts("writtenOpTime")?.unwrap_or(applied);
        let durable = ts("durableOpTime")?.context("durableOpTime")?;
        let majority = ts("readConcernMajorityOpTime")?.context("readConcernMajorityOpTime")?;
        ensure!(applied <= written && durable <= written, "ahead of what is written: {optimes}");
        ensure!(majority <= applied, "readable before it is applied: {optimes}");
        for name in optimes.keys().filter(|name| name.ends_with("OpTime")) {
            let Some(now) = ts(name)? else { continue };
            let before = self.optimes.insert(name.clone(), now);
            ensure!(before.is_none_or(|before| before <= now), "{name} went back: {optimes}");
        }
        let moved = majority_sum(ours)?.context("no sum")?;
        ensure!(moved >= self.moved, "a majority read went back from {} to {moved}", self.moved);
        self.moved = moved;
        Ok(())
    }
}

/// The total number of transfers in a majority read; `None` if it sees no accounts.
fn majority_sum(ours: &Node) -> Result<Option<i32>> {
    let sum = doc! { "$group": { "_id": null, "moved": { "$sum": "$moved" } } };
    let command = doc! {
        "aggregate": "left", "pipeline": [sum], "cursor": {}, "readConcern": { "level": "majority" },
    };
    let reply = ours.run("bank", command)?;
    let rows = reply.get_document("cursor")?.get_array("firstBatch")?;
    Ok(rows.first().and_then(Bson::as_document).map(|row| row.get_i32("moved")).transpose()?)
}
