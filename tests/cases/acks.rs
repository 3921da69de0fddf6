//! Acknowledgements while our applier is busy.

use anyhow::{Context, Result, ensure};
use bson::{Bson, Document, Timestamp, doc};
use tests::node::Node;
use tests::repl_set::{AppliedOpTime, ReplSet};
use tests::servers::Version;
use tests::wait::{PATIENCE, wait_until};

on_each_version!(a_majority_is_acknowledged_as_by_a_real_voter);

/// A set of two needs our acknowledgement. Behind a large transaction the next write is acknowledged when it is
/// durable here (8.x), or when it is also applied (before 8.0).
fn a_majority_is_acknowledged_as_by_a_real_voter(version: Version) -> Result<()> {
    let set = ReplSet::named("acks")
        .version(version)
        .mongod_args(&["--wiredTigerCacheSizeGB", "1"])
        .ours_voting(1)
        .start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_votes()?;
    set.primary()?.run("shop", doc! { "create": "bulk" })?;
    for round in 0..3 {
        wait_until("the transaction goes through", PATIENCE, || {
            large_transaction(set.primary()?, round).map(Some)
        })?;
        let majority = doc! { "w": "majority", "wtimeout": 60_000 };
        let insert =
            doc! { "insert": "small", "documents": [{ "_id": round }], "writeConcern": majority };
        let reply = set.primary()?.run("shop", insert)?;
        ensure!(!reply.contains_key("writeConcernError"), "{reply}");
        let written = reply.get_timestamp("operationTime")?;
        let reached = if version >= Version::V8_2 { "durableOpTime" } else { "appliedOpTime" };
        let ours = position(set.ours()?, reached)?;
        ensure!(
            (ours.time, ours.increment) >= (written.time, written.increment),
            "acknowledged {written:?}, but our {reached} is {ours}"
        );
    }
    set.finish()
}

fn large_transaction(primary: &Node, round: i32) -> Result<()> {
    let collection = primary.client().database("shop").collection::<Document>("bulk");
    let mut session = primary.client().start_session().run()?;
    session.start_transaction().run()?;
    for i in 0..40 {
        let filling = "x".repeat(1024 * 1024);
        let document = doc! { "_id": round * 1000 + i, "filling": filling };
        collection.insert_one(document).session(&mut session).run()?;
    }
    session.commit_transaction().run()?;
    Ok(())
}

fn position(node: &Node, name: &str) -> Result<AppliedOpTime> {
    let status = node.admin(doc! { "replSetGetStatus": 1 })?;
    let at = status.get_document("optimes")?.get(name).and_then(Bson::as_document);
    let at = at.with_context(|| format!("no {name} in {status}"))?;
    let Timestamp { time, increment } = at.get_timestamp("ts")?;
    Ok(AppliedOpTime { term: at.get_i64("t")?, time, increment })
}
