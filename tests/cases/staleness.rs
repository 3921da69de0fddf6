//! The source's oplog no longer contains the entry at which we stopped.

use anyhow::{Context, Result, ensure};
use bson::{Bson, Document, Timestamp, doc};
use tests::node::Node;
use tests::repl_set::{ReplSet, applied};
use tests::servers::Version;
use tests::wait::{PATIENCE, wait_for};

on_each_version!(too_stale_is_said_and_a_new_copy_helps);

fn too_stale_is_said_and_a_new_copy_helps(version: Version) -> Result<()> {
    let mut set = ReplSet::named("too-stale")
        .version(version)
        .mongod_args(&["--oplogSize", "1", "--syncdelay", "1"])
        .ours_hidden(1)
        .start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    insert(set.primary()?, 1)?;
    set.await_caught_up()?;
    let ours = applied(set.ours()?)?;
    ensure!(set.ours_mut()?.stop()?.success());
    let mut n = 1000;
    wait_for("the primary's oplog begins after our last entry", PATIENCE, || {
        insert(set.primary()?, n)?;
        n += 1000;
        let oldest = oldest(set.primary()?)?;
        Ok((oldest.time, oldest.increment) > (ours.time, ours.increment))
    })?;
    set.ours_mut()?.restart()?;
    set.await_state(set.ours()?, "RECOVERING", PATIENCE)?;
    let status = set.ours()?.admin(doc! { "replSetGetStatus": 1 })?;
    ensure!(status.get_bool("tooStale")?, "{status}");
    let members = status.get_array("members")?.iter().filter_map(Bson::as_document);
    let own =
        members.into_iter().find(|member| member.contains_key("self")).context("ourselves")?;
    ensure!(own.get_str("infoMessage")?.contains("empty data directory"), "{own}");
    let refused = set.ours()?.answer("shop", doc! { "find": "c" })?;
    ensure!(refused.get_i32("code")? == NOT_PRIMARY_OR_SECONDARY, "{refused}");
    set.expect_log("too stale");
    // The advice in the message works.
    ensure!(set.ours_mut()?.stop()?.success());
    set.ours_mut()?.wipe()?;
    set.ours_mut()?.restart()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.finish()
}

fn oldest(primary: &Node) -> Result<Timestamp> {
    let oplog = primary.client().database("local").collection::<Document>("oplog.rs");
    let first = oplog.find_one(doc! {}).sort(doc! { "$natural": 1 }).run()?;
    Ok(first.context("an empty oplog")?.get_timestamp("ts")?)
}

fn insert(primary: &Node, from: i32) -> Result<()> {
    let documents: Vec<Document> =
        (from..from + 500).map(|i| doc! { "_id": i, "s": "x".repeat(1000) }).collect();
    primary.run("shop", doc! { "insert": "c", "documents": documents })?;
    Ok(())
}

const NOT_PRIMARY_OR_SECONDARY: i32 = 13436;
