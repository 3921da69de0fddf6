//! Nodes that must not serve: one whose disk lost acknowledged entries, one that cannot store its vote.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use bson::{Document, Timestamp, doc};
use tests::mongod;
use tests::node::Node;
use tests::repl_set::{AppliedOpTime, ReplSet, applied};
use tests::scratch::Scratch;
use tests::scripts::understudy_tools;
use tests::servers::Version;
use tests::understudy;
use tests::wait::{PATIENCE, wait_until};
use tests::workload::noise;

on_each_version!(a_lost_tail_is_made_good_before_the_node_serves_again);

/// The durable mark is moved ahead of the oplog, as if the disk had lost the oplog's end.
fn a_lost_tail_is_made_good_before_the_node_serves_again(version: Version) -> Result<()> {
    let mut set = ReplSet::named("lost-tail").version(version).ours_voting(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_votes()?;
    insert(&set, 2)?;
    set.await_caught_up()?;
    let was = applied(set.ours()?)?;
    ensure!(would_vote(set.ours()?, was)?.get_bool("voteGranted")?, "a healthy node votes");
    set.ours_mut()?.kill()?;
    let lost = AppliedOpTime { time: was.time + LOST_SECS, increment: 1, ..was };
    move_mark(&set.ours()?.data_path(), lost)?;
    set.ours_mut()?.restart()?;
    for how in ["after the start", "after one more start"] {
        set.await_state(set.ours()?, "RECOVERING", PATIENCE)?;
        let ours = set.ours()?;
        let refused = ours.answer("shop", doc! { "find": "c" })?;
        ensure!(refused.get_i32("code")? == 13436, "{how}: {refused}");
        let vote = would_vote(ours, was)?;
        ensure!(!vote.get_bool("voteGranted")?, "{how}: {vote}");
        let reply = insert(&set, 2)?;
        ensure!(reply.contains_key("writeConcernError"), "{how}: it acknowledged: {reply}");
        ensure!(set.ours_mut()?.stop()?.success(), "{how}: it does not end cleanly");
        set.ours_mut()?.restart()?;
    }
    wait_until("ours has applied what it had lost", PATIENCE, || {
        insert(&set, 1)?;
        if applied(set.primary()?)? < lost {
            let state = set.shown_state(set.ours()?)?;
            ensure!(state != "SECONDARY", "too early");
            bail!("the primary is not there yet");
        }
        Ok((set.shown_state(set.ours()?)? == "SECONDARY").then_some(()))
    })?;
    ensure!(applied(set.ours()?)? >= lost, "it serves too early");
    ensure!(would_vote(set.ours()?, lost)?.get_bool("voteGranted")?, "it has its vote again");
    let reply = insert(&set, 2)?;
    ensure!(!reply.contains_key("writeConcernError"), "it acknowledges again: {reply}");
    set.expect_log("the disk lost entries whose sync was reported");
    set.finish()
}

#[test]
fn damage_that_a_read_comes_upon_takes_the_node_out_of_service() -> Result<()> {
    let root = std::env::temp_dir();
    let root = root.to_str().context("a path of plain letters")?;
    let set = ReplSet::named("damage").ours_voting(1).our_args(&["--backupRoot", root]);
    let mut set = set.start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_votes()?;
    let documents = (0..1000).map(|n| doc! { "_id": n, "noise": noise(1000) });
    let documents: Vec<Document> = documents.collect();
    set.primary()?.run("shop", doc! { "insert": "bulk", "documents": documents })?;
    set.await_caught_up()?;
    let was = applied(set.ours()?)?;
    // A backup flushes everything to tables.
    let backup = set.scratch().path().join("backup");
    set.ours()?.admin(doc! { "checkpoint": backup.to_str().context("a path")? })?;
    rot(&set.ours()?.data_path().join("engine/keyspaces/1/tables"))?;
    // For a moment the rows may still be in memory.
    let said = wait_until("a read comes upon it", PATIENCE, || {
        let reply = set.ours()?.answer("shop", doc! { "find": "bulk", "batchSize": 2000 })?;
        Ok(reply.get_str("errmsg").ok().map(str::to_owned))
    })?;
    ensure!(said.contains("is damaged") && said.contains("tables/"), "{said}");
    for how in ["after the read", "after a restart"] {
        set.await_state(set.ours()?, "RECOVERING", PATIENCE)?;
        let refused = set.ours()?.answer("shop", doc! { "find": "bulk" })?;
        ensure!(refused.get_i32("code")? == 13436, "{how}: {refused}");
        let vote = would_vote(set.ours()?, was)?;
        ensure!(!vote.get_bool("voteGranted")?, "{how}: {vote}");
        let reply = insert(&set, 2)?;
        ensure!(reply.contains_key("writeConcernError"), "{how}: it acknowledged: {reply}");
        let status = set.ours()?.admin(doc! { "replSetGetStatus": 1 })?;
        ensure!(status.to_string().contains("is damaged"), "{how}: {status}");
        ensure!(set.ours_mut()?.stop()?.success(), "{how}: it does not end cleanly");
        set.ours_mut()?.restart()?;
    }
    for line in ["the store is damaged", "this node is out of service", "Checksum mismatch"] {
        set.expect_log(line);
    }
    set.finish_without_comparing()
}

/// Only the scrub reads the damaged data.
#[test]
fn damage_that_a_scrub_finds_takes_the_node_out_of_service() -> Result<()> {
    let root = std::env::temp_dir();
    let root = root.to_str().context("a path of plain letters")?;
    let set = ReplSet::named("scrub").ours_voting(1);
    let args = ["--backupRoot", root, "--scrubIntervalHours", "0.0005"];
    let mut set = set.our_args(&args).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_votes()?;
    let documents: Vec<Document> =
        (0..500).map(|n| doc! { "_id": n, "noise": noise(1000) }).collect();
    set.primary()?.run("shop", doc! { "insert": "bulk", "documents": documents })?;
    set.await_caught_up()?;
    let backup = set.scratch().path().join("backup");
    set.ours()?.admin(doc! { "checkpoint": backup.to_str().context("a path")? })?;
    let scrub = |set: &ReplSet| -> Result<Document> {
        let status = set.ours()?.admin(doc! { "serverStatus": 1 })?;
        Ok(status.get_document("scrub")?.clone())
    };
    wait_until("a scrub finds everything whole", PATIENCE, || {
        let said = scrub(&set)?;
        let whole = said
            .get_document("last")
            .is_ok_and(|last| last.get_str("result").is_ok_and(|it| it == "whole"));
        Ok((whole && said.contains_key("lastWhole")).then_some(()))
    })?;
    let said = understudy_tools(&["scrub", backup.to_str().context("a path")?], Path::new("/"));
    let said = said.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(said.contains("verify-backup"), "{said}");
    rot(&set.ours()?.data_path().join("engine/keyspaces/1/tables"))?;
    set.await_state(set.ours()?, "RECOVERING", PATIENCE)?;
    let said = scrub(&set)?;
    ensure!(said.to_string().contains("keyspaces/1/tables/"), "{said}");
    ensure!(set.ours_mut()?.stop()?.success(), "it does not end cleanly");
    let data = set.ours()?.data_path();
    let said = understudy_tools(&["scrub", data.to_str().context("a path")?], Path::new("/"));
    let said = said.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(said.contains("is damaged") && said.contains("keyspaces/1/tables/"), "{said}");
    for line in ["the store is damaged", "this node is out of service", "Scrub found damage"] {
        set.expect_log(line);
    }
    set.finish_without_comparing()
}

/// A missing data directory is refused: an unmounted disk must not look like an empty one.
#[test]
fn a_data_directory_that_is_not_there_is_refused_as_a_mongod_refuses_it() -> Result<()> {
    let mut scratch = Scratch::new("no-dbpath")?;
    for options in [
        understudy::options("ours", Some("set"))?,
        mongod::options("mongod", Version::V8_2, Some("set"))?,
    ] {
        let mut node = Node::prepare(options, &mut scratch)?;
        std::fs::remove_dir(node.data_path())?;
        node.launch()?;
        let status = node.await_exit(PATIENCE)?;
        ensure!(status.code() == Some(100), "{} ended with {status}", node.name());
        let says =
            format!("NonExistentPath: Data directory {} not found", node.data_path().display());
        ensure!(node.log_has(&says)?, "{} does not say so", node.name());
        ensure!(!node.data_path().exists(), "{} made it", node.name());
    }
    scratch.finish();
    Ok(())
}

/// Flips a bit in the middle of every table.
fn rot(tables: &Path) -> Result<()> {
    for table in std::fs::read_dir(tables)? {
        let path = table?.path();
        let mut bytes = std::fs::read(&path)?;
        let middle = bytes.len() / 2;
        *bytes.get_mut(middle).context("a byte")? ^= 1;
        let mut file = std::fs::OpenOptions::new().write(true).open(&path)?;
        file.write_all(&bytes)?;
    }
    Ok(())
}

/// How far ahead the mark is moved: enough time for two starts.
const LOST_SECS: u32 = 30;

/// A dry-run vote request for the primary.
fn would_vote(node: &Node, at: AppliedOpTime) -> Result<Document> {
    let config = node.admin(doc! { "replSetGetConfig": 1 })?;
    let config = config.get_document("config")?;
    let ahead = Timestamp { time: at.time + 10 * LOST_SECS, increment: 1 };
    let op_time = doc! { "ts": ahead, "t": at.term };
    node.admin(doc! {
        "replSetRequestVotes": 1, "setName": config.get_str("_id")?, "dryRun": true, "term": at.term,
        "candidateIndex": 0, "configVersion": config.get_i32("version")?,
        "configTerm": config.get_i64("term").or_else(|_| config.get_i32("term").map(i64::from))?,
        "lastWrittenOpTime": op_time.clone(), "lastAppliedOpTime": op_time,
    })
}

fn insert(set: &ReplSet, w: i32) -> Result<Document> {
    let concern = doc! { "w": w, "wtimeout": 3000 };
    let documents = [doc! { "n": 1 }];
    let insert = doc! { "insert": "c", "documents": documents, "writeConcern": concern };
    set.primary()?.run("shop", insert)
}

/// The mark has three slots of 48 bytes, of which the highest number is valid: magic, number, timestamp, term, wall
/// clock time, checksum.
fn move_mark(data: &Path, to: AppliedOpTime) -> Result<()> {
    let path = data.join("durable.mark");
    let old = std::fs::read(&path).context("read the durable mark")?;
    let number = |slot: usize| -> Option<u64> {
        Some(u64::from_be_bytes(old.get(slot + 4..slot + 12)?.try_into().ok()?))
    };
    let next = SLOTS.into_iter().filter_map(number).max().unwrap_or(0) + 1;
    let mut slot = 0x554E_4453_u32.to_be_bytes().to_vec();
    slot.extend(next.to_be_bytes());
    slot.extend(((u64::from(to.time) << 32) | u64::from(to.increment)).to_be_bytes());
    slot.extend(to.term.to_be_bytes());
    slot.extend((i64::from(to.time) * 1000).to_be_bytes());
    slot.extend(crc32fast::hash(&slot).to_be_bytes());
    let mut file = std::fs::OpenOptions::new().write(true).open(&path)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file.write_all(&slot)?)
}

/// The offsets of the slots.
const SLOTS: [usize; 3] = [0, 48, 512];

/// A directory blocks the path of the new vote, so the vote cannot be stored and must not be given. The node must not
/// stay a secondary that follows nobody.
#[test]
fn a_node_that_cannot_keep_its_vote_ends() -> Result<()> {
    let mut set = ReplSet::named("zombie").mongods(2).ours_voting(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_votes()?;
    let in_the_way = set.ours()?.data_path().join("vote.new");
    std::fs::create_dir(&in_the_way)?;
    let next = 1 - set.primary_index()?;
    set.await_caught_up()?;
    // It need not be elected, but it asks for our vote.
    let _ = set.node(next)?.answer("admin", doc! { "replSetStepUp": 1 });
    let status = set.ours_mut()?.await_exit(PATIENCE)?;
    ensure!(status.code() == Some(14), "it ended with {status}");
    ensure!(set.ours()?.log_has("Fatal assertion")?, "its log does not say why");
    std::fs::remove_dir(&in_the_way)?;
    set.ours_mut()?.restart()?;
    set.await_primary()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.expect_log("Fatal assertion");
    set.expect_log("replication must end");
    set.finish()
}

on_each_version!(the_rollback_id_rises_when_the_end_was_not_clean);

/// Our node and a real mongod, killed and stopped in the same way.
fn the_rollback_id_rises_when_the_end_was_not_clean(version: Version) -> Result<()> {
    let mut set = ReplSet::named("rbid").version(version).mongods(2).ours_hidden(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    let (theirs, ours) = (1 - set.primary_index()?, set.our_index()?);
    let mut seen = Vec::new();
    for index in [theirs, ours] {
        let mut ids = vec![rbid(set.node(index)?)?];
        for clean in [false, true, false] {
            let node = set.node_mut(index)?;
            if clean {
                node.stop()?;
            } else {
                node.kill()?;
            }
            node.restart()?;
            ids.push(rbid(set.node(index)?)?);
        }
        seen.push(ids);
    }
    ensure!(seen.first() == seen.last(), "a mongod's and ours: {seen:?}");
    set.await_primary()?;
    set.finish()
}

fn rbid(node: &Node) -> Result<i32> {
    Ok(node.admin(doc! { "replSetGetRBID": 1 })?.get_i32("rbid")?)
}
