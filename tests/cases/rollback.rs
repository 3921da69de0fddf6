//! Rollback: our node gives up the entries that the set gives up, as a real member in the same situation does.

mod fork;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bson::{Binary, Document, Timestamp, doc, spec::BinarySubtype};
use tests::driver::{self, Security};
use tests::node::Node;
use tests::repl_set::{AppliedOpTime, applied};
use tests::servers::Version;
use tests::wait::{PATIENCE, wait_until};

use self::fork::{Fork, SECONDARY, rbid, rollback_files, state};

on_each_version!(
    a_lost_branch_is_rolled_back_as_a_real_member_does,
    sessions_and_transactions_go_back_with_their_documents,
    too_long_a_branch_waits_for_an_operator_and_can_be_read,
);

/// On the lost branch, documents, collections and indexes of all kinds are created, changed and dropped.
fn a_lost_branch_is_rolled_back_as_a_real_member_does(version: Version) -> Result<()> {
    let mut fork = Fork::new("rollback", version, true)?;
    let documents: Vec<Document> = (0..100).map(|i| doc! { "_id": i, "n": 0 }).collect();
    for name in ["c", "todrop", "torename", "tomod"] {
        fork.write_shared("shop", doc! { "insert": name, "documents": &documents })?;
    }
    fork.part()?;
    lose_of_all_kinds(&fork)?;
    fork.await_lost()?;
    let before = rbid(fork.ours()?)?;
    let kept = kept_connection(fork.ours()?)?;
    let mut user = raw_connection(fork.ours()?)?;
    run(&mut user, doc! { "ping": 1, "$db": "admin" })?;
    fork.elect()?;
    fork.win("shop", doc! { "insert": "c", "documents": [{ "_id": "won" }] })?;
    fork.win("shop", doc! { "insert": "new", "documents": [{ "_id": 2 }] })?;
    fork.heal()?;
    for index in fork.subjects() {
        fork.await_healed(index)?;
    }
    fork.assert_equal()?;
    fork.assert_same_files()?;
    ensure!(rbid(fork.ours()?)? == before + 1, "the rollback id has not risen");
    ended_by_rollback(&fork, kept, user)?;
    fork.finish()
}

fn lose_of_all_kinds(fork: &Fork) -> Result<()> {
    let new: Vec<Document> = (1000..1050).map(|i| doc! { "_id": i, "lost": true }).collect();
    fork.lose("shop", doc! { "insert": "c", "documents": new })?;
    let update =
        doc! { "q": { "_id": { "$lt": 20 } }, "u": { "$set": { "lost": true } }, "multi": true };
    fork.lose("shop", doc! { "update": "c", "updates": [update] })?;
    let delete = doc! { "q": { "_id": { "$gte": 20, "$lt": 40 } }, "limit": 0 };
    fork.lose("shop", doc! { "delete": "c", "deletes": [delete] })?;
    fork.lose("shop", doc! { "insert": "c", "documents": [{ "_id": "short" }] })?;
    let delete = doc! { "q": { "_id": "short" }, "limit": 1 };
    fork.lose("shop", doc! { "delete": "c", "deletes": [delete] })?;
    fork.lose("shop", doc! { "create": "new" })?;
    fork.lose("shop", doc! { "insert": "new", "documents": [{ "_id": 1 }] })?;
    fork.lose("shop", doc! { "drop": "todrop" })?;
    fork.lose("admin", doc! { "renameCollection": "shop.torename", "to": "shop.renamed" })?;
    fork.lose("shop", doc! { "insert": "renamed", "documents": [{ "_id": "after" }] })?;
    fork.lose("shop", doc! { "collMod": "tomod", "validator": { "n": { "$exists": true } } })?;
    let index = doc! { "key": { "a": 1 }, "name": "a_1" };
    fork.lose("shop", doc! { "create": "empty" })?;
    fork.lose("shop", doc! { "createIndexes": "empty", "indexes": [index] })?;
    fork.lose("shop", doc! { "insert": "empty", "documents": [{ "a": 1 }] })?;
    Ok(())
}

/// A connection of a driver is closed, one that asked to stay is kept and its cursor is over; the log and serverStatus
/// say what happened, and the files are named.
fn ended_by_rollback(fork: &Fork, kept: (TcpStream, i64), mut user: TcpStream) -> Result<()> {
    let (mut kept, cursor) = kept;
    ensure!(
        ask(&mut user, doc! { "ping": 1, "$db": "admin" }).is_err(),
        "a user's connection is open"
    );
    let more = doc! { "getMore": cursor, "collection": "c", "$db": "shop" };
    let reply = ask(&mut kept, more)?;
    ensure!(reply.get_i32("code")? == 175, "{reply}");
    let ours = fork.ours()?;
    for line in
        ["Transition to ROLLBACK", "\"id\":21607", "\"id\":21612", "affectedNamespaces\":[\"shop"]
    {
        ensure!(ours.log_has(line)?, "the log does not say {line}");
    }
    let status = ours.admin(doc! { "serverStatus": 1 })?;
    let repl = status.get_document("metrics")?.get_document("repl")?;
    let last = repl.get_document("stateTransition")?;
    ensure!(last.get_str("lastStateTransition")? == "rollback", "{last}");
    let names = std::fs::read_dir(ours.data_path().join("rollback"))?
        .flatten()
        .flat_map(|place| std::fs::read_dir(place.path()).into_iter().flatten().flatten())
        .filter(|file| file.path().extension().is_some_and(|extension| extension == "json"))
        .filter_map(|file| std::fs::read_to_string(file.path()).ok())
        .filter(|text| text.contains("\"namespace\":\"shop.renamed\""))
        .count();
    ensure!(names == 1, "{names} files name shop.renamed");
    Ok(())
}

/// Retryable writes, a large transaction, and a prepared one whose commit is lost: it is prepared again, and the new
/// primary decides.
fn sessions_and_transactions_go_back_with_their_documents(version: Version) -> Result<()> {
    let mut fork = Fork::new("rollback-txn", version, true)?;
    let documents: Vec<Document> = (0..20).map(|i| doc! { "_id": i, "n": 0 }).collect();
    for name in ["c", "big"] {
        fork.write_shared("shop", doc! { "insert": name, "documents": &documents })?;
    }
    let session = doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] } };
    let mut primary = raw_connection(fork.set.primary()?)?;
    let within = |mut command: Document, number: i64, begin: bool| {
        command.insert("lsid", session.clone());
        command.insert("txnNumber", number);
        if begin {
            command.insert("startTransaction", true);
        }
        command.insert("autocommit", false);
        command
    };
    let change = doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "n": 1 } } }], "$db": "shop" };
    run(&mut primary, within(change, 1, true))?;
    let prepared =
        run(&mut primary, within(doc! { "prepareTransaction": 1, "$db": "admin" }, 1, false))?;
    let at = prepared.get_timestamp("prepareTimestamp")?;
    fork.part()?;
    let commit = doc! { "commitTransaction": 1, "commitTimestamp": at, "writeConcern": { "w": 1 }, "$db": "admin" };
    run(&mut primary, within(commit.clone(), 1, false))?;
    let other = doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![8; 16] } };
    run(
        &mut primary,
        doc! {
            "findAndModify": "c", "query": { "_id": 2 }, "update": { "$set": { "n": 2 } }, "lsid": &other, "txnNumber": 1_i64,
            "writeConcern": { "w": 1 }, "$db": "shop",
        },
    )?;
    let third = doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![9; 16] } };
    let pad = "p".repeat(1 << 20);
    for i in 0..20 {
        let mut insert = doc! { "insert": "big", "documents": [{ "_id": 100 + i, "pad": &pad }], "$db": "shop", "lsid": &third, "txnNumber": 5_i64, "autocommit": false };
        if i == 0 {
            insert.insert("startTransaction", true);
        }
        run(&mut primary, insert)?;
    }
    run(
        &mut primary,
        doc! { "commitTransaction": 1, "lsid": &third, "txnNumber": 5_i64, "autocommit": false, "writeConcern": { "w": 1 }, "$db": "admin" },
    )?;
    fork.await_lost()?;
    fork.elect()?;
    fork.win("shop", doc! { "insert": "c", "documents": [{ "_id": "won" }] })?;
    fork.heal()?;
    for index in fork.subjects() {
        fork.await_healed(index)?;
    }
    let mut winner = raw_connection(fork.set.node(fork.winner)?)?;
    let n = |node: &Node| -> Result<i32> {
        let found = node.client().database("shop").collection::<Document>("c");
        let found = found.find_one(doc! { "_id": 1 }).run()?.context("it is not there")?;
        Ok(found.get_i32("n")?)
    };
    ensure!(n(fork.ours()?)? == 0, "a commit that was rolled back is seen");
    run(&mut winner, within(commit, 1, false))?;
    fork.assert_equal()?;
    ensure!(n(fork.ours()?)? == 1, "what the new primary committed is not seen");
    fork.assert_same_files()?;
    fork.finish()
}

/// R7: no crash loop; the past can be read; the parameter lets it go on.
fn too_long_a_branch_waits_for_an_operator_and_can_be_read(version: Version) -> Result<()> {
    let mut fork = Fork::new("rollback-limit", version, false)?;
    fork.write_shared("shop", doc! { "insert": "c", "documents": [{ "_id": 0 }] })?;
    fork.part()?;
    let limit =
        doc! { "setParameter": 1, "rollbackTimeLimitSecs": 1, "createRollbackDataFiles": false };
    fork.ours()?.admin(limit)?;
    fork.lose("shop", doc! { "insert": "c", "documents": [{ "_id": 1 }] })?;
    let first = applied(fork.set.node(fork.loser)?)?;
    wait_until("the lost branch is some seconds long", PATIENCE, || {
        fork.lose("shop", doc! { "insert": "d", "documents": [{ "n": 1 }] })?;
        Ok((applied(fork.set.node(fork.loser)?)?.time > first.time + 3).then_some(()))
    })?;
    fork.await_lost()?;
    fork.elect()?;
    fork.win("shop", doc! { "insert": "c", "documents": [{ "_id": 2 }] })?;
    fork.heal()?;
    for how in ["first", "after a restart"] {
        let ours = fork.ours()?;
        wait_until("ours does not go back", PATIENCE, || {
            Ok((state(ours)? == RECOVERING).then_some(()))
        })?;
        let refused = ours.answer("shop", doc! { "find": "c" })?;
        ensure!(refused.get_i32("code")? == 13436, "{how}: {refused}");
        let status = ours.admin(doc! { "replSetGetStatus": 1 })?;
        ensure!(status.to_string().contains("rollbackTimeLimitSecs"), "{how}: {status}");
        // The past that it has, by the connection's name and by the read concern.
        let moment = format!("@Timestamp({},{})", first.time, first.increment);
        let past = ours.client_as(&Security::named(&moment))?;
        let found = driver::run(&past, "shop", doc! { "find": "c" })?;
        ensure!(found.to_string().contains("\"_id\": 1"), "{how}: {found}");
        if version > Version::V4_4 {
            let at = Timestamp { time: first.time, increment: first.increment };
            let concern = doc! { "level": "snapshot", "atClusterTime": at };
            ours.run("shop", doc! { "find": "c", "readConcern": concern })?;
        }
        if how == "first" {
            let node = fork.set.node_mut(fork.ours)?;
            node.args_mut()
                .extend(["--setParameter", "rollbackTimeLimitSecs=1"].map(str::to_owned));
            node.stop()?;
            node.restart()?;
        }
    }
    let set = doc! { "setParameter": 1, "rollbackTimeLimitSecs": 86400, "createRollbackDataFiles": false };
    fork.ours()?.admin(set)?;
    fork.assert_equal()?;
    let files = rollback_files(&fork.ours()?.data_path())?;
    ensure!(files.is_empty(), "files were written: {:?}", files.keys());
    fork.set.expect_log("Rollback did not succeed");
    fork.set.expect_log("replication has stopped");
    fork.finish()
}

const RECOVERING: i32 = 3;

/// R2: the lost branch lies a quarter of an hour ahead by the clock, so that the source has nothing from our end on.
#[test]
fn nothing_from_the_source_is_a_rollback_too() -> Result<()> {
    let mut fork = Fork::new("rollback-empty", Version::V8_2, false)?;
    fork.part()?;
    let loser = fork.set.node(fork.loser)?;
    let now = applied(loser)?;
    let mut raw = raw_connection(loser)?;
    let signature = doc! { "hash": Binary { subtype: BinarySubtype::Generic, bytes: vec![0; 20] }, "keyId": 0_i64 };
    let time = Timestamp { time: now.time + 1000, increment: 1 };
    run(
        &mut raw,
        doc! { "ping": 1, "$db": "admin", "$clusterTime": { "clusterTime": time, "signature": signature } },
    )?;
    fork.lose("shop", doc! { "insert": "c", "documents": [{ "_id": "lost" }] })?;
    fork.await_lost()?;
    fork.elect()?;
    fork.heal()?;
    let ours = fork.ours()?;
    wait_until("ours gives the lost document up", PATIENCE, || {
        let left = ours.client().database("shop").collection::<Document>("c");
        Ok((left.count_documents(doc! {}).run()? == 0).then_some(()))
    })?;
    fork.assert_equal()?;
    fork.finish()
}

/// R8: killed when its log tells of each phase, as long as the rollback is not done. In the end it is where the set is,
/// and what it lost is in files.
#[test]
fn killed_in_any_phase_it_ends_in_the_same_state() -> Result<()> {
    let mut fork = Fork::new("rollback-kill", Version::V8_2, true)?;
    let documents: Vec<Document> = (0..20_000).map(|i| doc! { "_id": i, "n": 0 }).collect();
    fork.write_shared("shop", doc! { "insert": "c", "documents": &documents })?;
    let phases = [
        "\"id\":21593",
        "\"id\":21607",
        "\"id\":21532",
        "\"id\":21604",
        "\"id\":21609",
        "\"id\":21600",
    ];
    fork.part()?;
    for i in 0..10 {
        let set = doc! { "$set": { "n": 1, "pad": "p".repeat(200) } };
        let range = doc! { "_id": { "$gte": i * 2000, "$lt": (i + 1) * 2000 } };
        fork.lose(
            "shop",
            doc! { "update": "c", "updates": [{ "q": range, "u": set, "multi": true }] },
        )?;
    }
    fork.await_lost()?;
    fork.elect()?;
    fork.win("shop", doc! { "insert": "c", "documents": [{ "_id": "won" }] })?;
    // Whoever is killed before the end begins again: one branch serves all phases.
    let goal = applied(fork.set.node(fork.winner)?)?;
    fork.heal()?;
    let mut killed = 0;
    let node = fork.set.node_mut(fork.ours)?;
    let mut from = 0;
    for phase in phases {
        if !await_phase(node, from, phase, goal)? {
            break;
        }
        node.kill()?;
        killed += 1;
        from = log_len(node)?;
        // Not waited for: it goes back as soon as it has started.
        node.launch()?;
    }
    node.kill()?;
    node.restart()?;
    eprintln!("killed in {killed} of {} phases", phases.len());
    ensure!(killed >= 3, "it was killed in {killed} phases only");
    if let Some(theirs) = fork.theirs {
        fork.await_healed(theirs)?;
    }
    fork.assert_equal()?;
    fork.assert_same_files()?;
    fork.finish()
}

/// True as soon as the log tells of a phase, false if the rollback is done. Looks all the time: phases are short.
fn await_phase(node: &Node, from: usize, phase: &str, goal: AppliedOpTime) -> Result<bool> {
    let begun = Instant::now();
    for turn in 0.. {
        let log = log_from(node, from)?;
        if log.contains(phase) {
            return Ok(true);
        }
        let done = turn % 100 == 99 && applied(node).is_ok_and(|at| at >= goal);
        if done || log.contains("Rollback successful") {
            return Ok(false);
        }
        ensure!(begun.elapsed() < PATIENCE, "neither {phase} nor the end of the rollback came");
        std::thread::yield_now();
    }
    Ok(false)
}

fn log_len(node: &Node) -> Result<usize> {
    Ok(std::fs::read(node.log_path())?.len())
}

fn log_from(node: &Node, from: usize) -> Result<String> {
    let log = std::fs::read(node.log_path())?;
    Ok(String::from_utf8_lossy(log.get(from..).unwrap_or_default()).into_owned())
}

/// R9: the winner loses next.
#[test]
fn two_rollbacks_in_a_row() -> Result<()> {
    let mut fork = Fork::new("rollback-twice", Version::V8_2, false)?;
    for round in 0..2 {
        fork.part()?;
        for i in 0..50 {
            fork.lose("shop", doc! { "insert": "c", "documents": [{ "_id": i, "round": round }] })?;
        }
        fork.await_lost()?;
        fork.elect()?;
        fork.win("shop", doc! { "insert": "c", "documents": [{ "_id": 7, "won": round }] })?;
        fork.heal()?;
        fork.assert_equal()?;
        let clear = doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }] };
        let loser = fork.loser;
        fork.set.node_mut(loser)?.restart()?;
        fork.await_healed(loser)?;
        fork.write_shared("shop", clear)?;
        // The winner is the next to lose.
        std::mem::swap(&mut fork.loser, &mut fork.winner);
    }
    ensure!(rbid(fork.ours()?)? == 3, "{}", rbid(fork.ours()?)?);
    ensure!(state(fork.ours()?)? == SECONDARY);
    fork.set.expect_log("our history and that of");
    fork.set.finish()
}

/// A plain connection; what is sent on it is as it is written here.
fn raw_connection(node: &Node) -> Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, node.port()))?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    Ok(stream)
}

/// One that asks to stay when the state changes, and a cursor on it that has more to give.
fn kept_connection(node: &Node) -> Result<(TcpStream, i64)> {
    let mut stream = raw_connection(node)?;
    run(&mut stream, doc! { "hello": 1, "hangUpOnStepDown": false, "$db": "admin" })?;
    let read = doc! { "mode": "secondaryPreferred" };
    let find = doc! { "find": "c", "batchSize": 2, "$readPreference": read, "$db": "shop" };
    let cursor = run(&mut stream, find)?;
    Ok((stream, cursor.get_document("cursor")?.get_i64("id")?))
}

fn run(stream: &mut TcpStream, command: Document) -> Result<Document> {
    let reply = ask(stream, command)?;
    if reply.get_f64("ok")? != 1.0 {
        bail!("{reply}");
    }
    Ok(reply)
}

/// OP_MSG with one document.
fn ask(stream: &mut TcpStream, command: Document) -> Result<Document> {
    let body = bson::serialize_to_vec(&command)?;
    let len = i32::try_from(16 + 4 + 1 + body.len())?;
    let mut message = Vec::new();
    for number in [len, 1, 0, 2013, 0] {
        message.extend(number.to_le_bytes());
    }
    message.push(0);
    message.extend(body);
    stream.write_all(&message)?;
    let mut head = [0; 21];
    stream.read_exact(&mut head)?;
    let len = i32::from_le_bytes(*head.first_chunk().context("a length")?);
    let mut body = vec![0; usize::try_from(len)? - head.len()];
    stream.read_exact(&mut body)?;
    Ok(bson::deserialize_from_slice(&body)?)
}
