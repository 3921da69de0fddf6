//! Sync sources that hang, disconnect, or send an invalid oplog: we log it, leave them, and lose nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use tests::node::Node;
use tests::proxy::{Direction, Edit};
use tests::repl_set::{Member, ReplSet};
use tests::servers::Version;
use tests::wait::{PATIENCE, wait_for};
use tests::{driver, mongod};

on_each_version!(replies_that_cannot_be_an_oplog_are_not_taken);

/// Each edit of a reply occurs once, is reported in the log, and does no harm.
fn replies_that_cannot_be_an_oplog_are_not_taken(version: Version) -> Result<()> {
    let set = ReplSet::named("edited")
        .version(version)
        .mongod_args(&["--networkMessageCompressors", "disabled"])
        .ours_hidden(1)
        .proxied()
        .start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    let edits: [(&str, Change); 6] = [
        ("follows", out_of_order),
        ("follows", twice),
        ("an entry has no timestamp", without_timestamp),
        ("something else than documents", no_documents),
        ("it is in another set of the same name", another_set),
        ("the connection to the sync source failed", broken_off),
    ];
    for (round, (said, edit)) in (0i32..).zip(edits) {
        let met = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&met);
        set.primary()?.proxy()?.edit(move |reply| {
            let entries = reply.get_document_mut("cursor").ok().filter(|cursor| {
                cursor.get_str("ns").is_ok_and(|ns| ns == "local.oplog.rs")
                    && cursor.get_array("nextBatch").is_ok_and(|batch| batch.len() > 1)
            });
            if entries.is_none() || done.load(Ordering::SeqCst) {
                return Edit::Keep;
            }
            let edit = edit(reply);
            done.store(edit != Edit::Keep, Ordering::SeqCst);
            edit
        });
        let lines = lines_with(set.ours()?, said)?;
        // Write until a batch of many entries was edited.
        let mut n = 0;
        wait_for("a batch of the oplog was edited", PATIENCE, || {
            insert(set.primary()?, round * 1_000_000 + n)?;
            n += 100;
            Ok(met.load(Ordering::SeqCst))
        })?;
        wait_for(&format!("our log says {said:?}"), PATIENCE, || {
            Ok(lines_with(set.ours()?, said)? > lines)
        })?;
        set.primary()?.proxy()?.heal()?;
        set.await_caught_up()?;
    }
    set.finish()
}

type Change = fn(&mut Document) -> Edit;

fn batch(reply: &mut Document) -> Option<&mut Vec<Bson>> {
    reply.get_document_mut("cursor").ok()?.get_array_mut("nextBatch").ok()
}

fn out_of_order(reply: &mut Document) -> Edit {
    batch(reply).map_or(Edit::Keep, |batch| {
        batch.reverse();
        Edit::Change
    })
}

fn twice(reply: &mut Document) -> Edit {
    batch(reply).map_or(Edit::Keep, |batch| {
        let last = batch.last().cloned();
        batch.extend(last);
        Edit::Change
    })
}

fn without_timestamp(reply: &mut Document) -> Edit {
    let entry = batch(reply).and_then(|batch| batch.last_mut()?.as_document_mut());
    entry.map_or(Edit::Keep, |entry| {
        entry.remove("ts");
        Edit::Change
    })
}

fn no_documents(reply: &mut Document) -> Edit {
    batch(reply).map_or(Edit::Keep, |batch| {
        batch.push(Bson::Int32(7));
        Edit::Change
    })
}

fn another_set(reply: &mut Document) -> Edit {
    reply.get_document_mut("$replData").map_or(Edit::Keep, |data| {
        data.insert("replicaSetId", ObjectId::from_bytes([7; 12]));
        Edit::Change
    })
}

fn broken_off(_: &mut Document) -> Edit {
    Edit::BreakOff
}

/// Bits are flipped on the way to us: a checksum or a parser must detect it.
#[test]
fn flipped_bits_change_nothing() -> Result<()> {
    let set = ReplSet::named("flipped").ours_hidden(1).proxied().start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    for round in 0..8 {
        let proxy = set.primary()?.proxy()?;
        proxy.corrupt(Direction::ToClient, 3000 + u64::try_from(round)? * 977);
        let mut n = 0;
        wait_for("the bit is flipped", PATIENCE, || {
            insert(set.primary()?, round * 1_000_000 + n)?;
            n += 100;
            Ok(!proxy.corruption_is_pending(Direction::ToClient))
        })?;
        proxy.heal()?;
        set.await_caught_up()?;
    }
    set.finish()
}

/// An entry of an unknown kind stops us: RECOVERING, with the entry's name and what to do; nothing is skipped.
#[test]
fn an_entry_of_an_unknown_kind_stops_us() -> Result<()> {
    let mut set = ReplSet::named("unknown-entry")
        .mongod_args(&["--networkMessageCompressors", "disabled"])
        .ours_hidden(1)
        .proxied()
        .start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.primary()?.proxy()?.edit(|reply| {
        let Some(batch) = batch(reply) else { return Edit::Keep };
        let entry = batch.iter_mut().filter_map(Bson::as_document_mut).find(|entry| {
            entry.get_str("ns").is_ok_and(|ns| ns == "shop.strange")
                && entry.get_str("op").is_ok_and(|op| op == "i")
        });
        entry.map_or(Edit::Keep, |entry| {
            entry.insert("op", "zz");
            Edit::Change
        })
    });
    insert(set.primary()?, 0)?;
    set.primary()?.run("shop", doc! { "create": "strange" })?;
    set.primary()?.run("shop", doc! { "insert": "strange", "documents": [{ "_id": 1 }] })?;
    insert(set.primary()?, 100)?;
    set.await_state(set.ours()?, "RECOVERING", PATIENCE)?;
    let status = set.ours()?.admin(doc! { "replSetGetStatus": 1 })?;
    let members = status.get_array("members")?.iter().filter_map(Bson::as_document);
    let own =
        members.into_iter().find(|member| member.contains_key("self")).context("ourselves")?;
    let told = own.get_str("infoMessage")?;
    ensure!(told.contains("cannot be applied") && told.contains("zz"), "{told}");
    let refused = set.ours()?.answer("shop", doc! { "find": "c" })?;
    ensure!(refused.get_i32("code")? == NOT_PRIMARY_OR_SECONDARY, "{refused}");
    set.expect_log("cannot be applied");
    set.finish_without_comparing()
}

/// If the source hangs with its connections open, we follow another one.
#[test]
fn a_hanging_source_is_left() -> Result<()> {
    let set = ReplSet::named("hanging")
        .mongods(3)
        .ours_hidden(1)
        .election_timeout(Duration::from_secs(4))
        .proxied()
        .start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    let hung = (0..3).find(|&i| Some(i) != set.primary_index().ok()).context("a secondary")?;
    let hung = set.node(hung)?;
    wait_for("we sync from the one that will hang", PATIENCE, || {
        set.ours()?.admin(doc! { "replSetSyncFrom": hung.host() })?;
        let status = set.ours()?.admin(doc! { "replSetGetStatus": 1 })?;
        Ok(status.get_str("syncSourceHost")? == hung.host())
    })?;
    hung.proxy()?.stall();
    insert(set.primary()?, 0)?;
    let goal = tests::repl_set::applied(set.primary()?)?;
    wait_for("we go on from another source", PATIENCE, || {
        Ok(tests::repl_set::applied(set.ours()?)? >= goal)
    })?;
    hung.proxy()?.heal()?;
    set.finish()
}

/// If nobody reaches us but we reach the others, our acknowledgements still count, as a real member's do.
#[test]
fn a_cut_towards_us_does_not_silence_us() -> Result<()> {
    let mut set = ReplSet::named("one-way").ours_hidden(1).proxied().start()?;
    let mut real = mongod::options("real", Version::V8_2, Some(set.name()))?;
    real.proxied = true;
    let real = set.add(real, Member { votes: 0 })?;
    for node in [set.ours()?, set.node(real)?] {
        set.await_state(node, "SECONDARY", PATIENCE)?;
        node.proxy()?.cut()?;
    }
    for i in 0..20 {
        let concern = doc! { "w": 3, "wtimeout": 60_000 };
        let insert = doc! { "insert": "c", "documents": [{ "_id": i }], "writeConcern": concern };
        let reply = set.primary()?.run("shop", insert)?;
        ensure!(!reply.contains_key("writeConcernError"), "{reply}");
    }
    for node in [set.ours()?, set.node(real)?] {
        node.proxy()?.heal()?;
        set.await_state(node, "SECONDARY", PATIENCE)?;
    }
    set.finish()
}

/// If we reach nobody, we keep our state, and continue when the network works again.
#[test]
fn a_cut_towards_the_primary_is_waited_out() -> Result<()> {
    let set = ReplSet::named("cut-off").ours_hidden(1).proxied().start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.primary()?.proxy()?.cut()?;
    insert(set.primary()?, 0)?;
    wait_for("we have no source", PATIENCE, || {
        let status = set.ours()?.admin(doc! { "replSetGetStatus": 1 })?;
        Ok(status.get_str("syncSourceHost")?.is_empty() && status.get_i32("myState")? == 2)
    })?;
    set.primary()?.proxy()?.heal()?;
    set.finish()
}

fn insert(primary: &Node, from: i32) -> Result<()> {
    let documents: Vec<Document> =
        (from..from + 100).map(|i| doc! { "_id": i, "s": "x".repeat(40) }).collect();
    driver::run(primary.client(), "shop", doc! { "insert": "c", "documents": documents })?;
    // Updates give separate entries, also on 8.2, where one insert of many documents is a single entry.
    let updates: Vec<Document> = (from..from + 20)
        .map(|i| doc! { "q": { "_id": i }, "u": { "$set": { "u": i } } })
        .collect();
    driver::run(primary.client(), "shop", doc! { "update": "c", "updates": updates })?;
    Ok(())
}

fn lines_with(node: &Node, text: &str) -> Result<usize> {
    let log = std::fs::read(node.log_path())?;
    Ok(String::from_utf8_lossy(&log).lines().filter(|line| line.contains(text)).count())
}

const NOT_PRIMARY_OR_SECONDARY: i32 = 13436;
