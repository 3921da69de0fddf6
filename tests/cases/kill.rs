//! SIGKILL at any time: nothing that we acknowledged is lost, and we continue where we were.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use bson::{Bson, Document, doc};
use mongodb::sync::Client;
use tests::driver;
use tests::node::Node;
use tests::repl_set::{ReplSet, applied};
use tests::servers::Version;
use tests::wait::{PATIENCE, wait_until};

on_each_version!(
    what_we_acknowledged_survives_kill_9,
    we_and_the_primary_die_in_turns,
    a_clean_restart_goes_on_without_a_new_copy
);

/// Each round: writers with w: 2, the primary is suspended (so that it cannot resend anything), our node is killed
/// and started alone: everything acknowledged must be there. `ROUNDS=30` for the long run.
fn what_we_acknowledged_survives_kill_9(version: Version) -> Result<()> {
    let mut set = ReplSet::named("kill").version(version).ours_hidden(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    let rounds = rounds(2);
    let acknowledged = Mutex::new(Vec::new());
    for round in 0..rounds {
        let stop = AtomicBool::new(false);
        let port = set.primary()?.port();
        let before = count(&acknowledged);
        std::thread::scope(|scope| -> Result<()> {
            for writer in 0..3 {
                let (stop, acknowledged) = (&stop, &acknowledged);
                scope.spawn(move || write_until(stop, port, writer, round, acknowledged));
            }
            wait_until("some hundred writes are acknowledged", PATIENCE, || {
                Ok((count(&acknowledged) > before + 150).then_some(()))
            })?;
            set.primary()?.freeze()?;
            set.ours_mut()?.kill()?;
            stop.store(true, Ordering::SeqCst);
            let survived = restart_alone_and_read(&mut set, &acknowledged);
            set.node(0)?.thaw()?;
            survived
        })?;
        set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    }
    set.finish()
}

/// While the primary is suspended, our node only has what it stored itself.
fn restart_alone_and_read(set: &mut ReplSet, acknowledged: &Mutex<Vec<String>>) -> Result<()> {
    set.ours_mut()?.restart()?;
    let ours = set.ours()?;
    let missing = wait_until("ours answers reads after its restart", PATIENCE, || {
        let kept = ids(ours)?;
        let wanted = acknowledged.lock().map_err(|_| anyhow!("a writer panicked"))?;
        Ok(Some(wanted.iter().filter(|id| !kept.contains(*id)).cloned().collect::<Vec<_>>()))
    })?;
    ensure!(missing.is_empty(), "{} acknowledged writes are lost: {missing:?}", missing.len());
    Ok(())
}

fn ids(node: &Node) -> Result<std::collections::HashSet<String>> {
    let collection = node.client().database("shop").collection::<Document>("kept");
    let mut found = std::collections::HashSet::new();
    for document in collection.find(doc! {}).batch_size(5000).run()? {
        if let Bson::String(id) = document?.get("_id").context("a document without _id")? {
            found.insert(id.clone());
        }
    }
    Ok(found)
}

/// Writes until told to stop; an error means that the write was not acknowledged.
fn write_until(
    stop: &AtomicBool,
    port: u16,
    writer: i32,
    round: i32,
    acknowledged: &Mutex<Vec<String>>,
) {
    let Ok(client) = driver::connect(port) else { return };
    for i in 0.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let id = format!("{round} {writer} {i}");
        if insert_w2(&client, &id).is_ok()
            && let Ok(mut acknowledged) = acknowledged.lock()
        {
            acknowledged.push(id);
        }
    }
}

fn insert_w2(client: &Client, id: &str) -> Result<()> {
    let concern = doc! { "w": 2, "wtimeout": 5000 };
    let insert = doc! { "insert": "kept", "documents": [{ "_id": id }], "writeConcern": concern };
    let reply = driver::run(client, "shop", insert)?;
    ensure!(!reply.contains_key("writeConcernError"), "{reply}");
    Ok(())
}

fn count(acknowledged: &Mutex<Vec<String>>) -> usize {
    acknowledged.lock().map_or(0, |acknowledged| acknowledged.len())
}

/// With a vote, in sets of two and three: our node and the primary are killed alternately while writers wait for a
/// majority. Acknowledged writes must not be missing on any node. `ROUNDS=30` for the long run.
fn we_and_the_primary_die_in_turns(version: Version) -> Result<()> {
    for mongods in [1, 2] {
        die_in_turns(version, mongods)?;
    }
    Ok(())
}

fn die_in_turns(version: Version, mongods: usize) -> Result<()> {
    let rounds = rounds(2);
    let mut set = ReplSet::named("in-turns")
        .version(version)
        .mongods(mongods)
        .ours_voting(1)
        .election_timeout(Duration::from_secs(3))
        .limit(Duration::from_secs(300 + 60 * u64::try_from(rounds)?))
        .start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_votes()?;
    let hosts: Vec<String> =
        set.nodes().iter().filter(|node| !node.is_ours()).map(Node::host).collect();
    let client = driver::connect_to_set(set.name(), &hosts)?;
    let acknowledged = Mutex::new(Vec::new());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        for writer in 0..3 {
            let (stop, acknowledged, client) = (&stop, &acknowledged, client.clone());
            scope.spawn(move || write_to_majority(stop, &client, writer, acknowledged));
        }
        let died = (0..rounds).try_for_each(|round| kill_one(&mut set, round, &acknowledged));
        stop.store(true, Ordering::SeqCst);
        died
    })?;
    set.await_caught_up()?;
    let wanted = acknowledged.into_inner().map_err(|_| anyhow!("a writer panicked"))?;
    for node in set.nodes() {
        let kept = ids(node)?;
        let missing: Vec<&String> = wanted.iter().filter(|id| !kept.contains(*id)).collect();
        ensure!(missing.is_empty(), "{} misses acknowledged writes: {missing:?}", node.name());
    }
    println!("{mongods} mongods and us, {rounds} rounds: {} acknowledged writes", wanted.len());
    set.finish()
}

/// Kills one of the two, alternately, in the middle of writes, and restarts it before the next turn.
fn kill_one(set: &mut ReplSet, round: i32, acknowledged: &Mutex<Vec<String>>) -> Result<()> {
    let before = count(acknowledged);
    wait_until("writes are acknowledged", PATIENCE, || {
        Ok((count(acknowledged) > before + 60).then_some(()))
    })?;
    let victim = if round % 2 == 0 { set.our_index()? } else { set.primary_index()? };
    set.node_mut(victim)?.kill()?;
    set.node_mut(victim)?.restart()?;
    set.await_primary()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)
}

fn write_to_majority(
    stop: &AtomicBool,
    client: &Client,
    writer: i32,
    acknowledged: &Mutex<Vec<String>>,
) {
    let concern = doc! { "w": "majority", "wtimeout": 10_000 };
    for i in 0.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let id = format!("{writer} {i}");
        let insert =
            doc! { "insert": "kept", "documents": [{ "_id": &id }], "writeConcern": &concern };
        let taken = driver::run(client, "shop", insert)
            .is_ok_and(|reply| !reply.contains_key("writeConcernError"));
        if taken && let Ok(mut acknowledged) = acknowledged.lock() {
            acknowledged.push(id);
        }
    }
}

fn rounds(default: i32) -> i32 {
    std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// SIGTERM, writes meanwhile, restart: we catch up from our own oplog; the rollback id and the initial sync id stay
/// the same.
fn a_clean_restart_goes_on_without_a_new_copy(version: Version) -> Result<()> {
    let mut set = ReplSet::named("restart").version(version).ours_hidden(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    insert(set.primary()?, 0)?;
    set.await_caught_up()?;
    let (position, sync_id) = (applied(set.ours()?)?, initial_sync_id(set.ours()?)?);
    ensure!(set.ours_mut()?.stop()?.success());
    insert(set.primary()?, 1000)?;
    set.ours_mut()?.restart()?;
    set.await_state(set.ours()?, "SECONDARY", Duration::from_secs(30))?;
    ensure!(applied(set.ours()?)? >= position);
    ensure!(initial_sync_id(set.ours()?)? == sync_id, "it copied everything again");
    set.finish()
}

fn initial_sync_id(node: &Node) -> Result<Document> {
    let ids = node.client().database("local").collection::<Document>("replset.initialSyncId");
    ids.find_one(doc! {}).run()?.context("no initial sync id")
}

fn insert(primary: &Node, from: i32) -> Result<()> {
    let documents: Vec<Document> = (from..from + 1000).map(|i| doc! { "_id": i }).collect();
    primary.run("shop", doc! { "insert": "c", "documents": documents })?;
    Ok(())
}
