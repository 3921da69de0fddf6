//! Initial sync of all kinds of data while the primary continues to write.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, anyhow, ensure};
use bson::{Document, doc};
use tests::node::Node;
use tests::proxy::Direction;
use tests::repl_set::{Member, ReplSet};
use tests::servers::Version;
use tests::understudy;
use tests::wait::{PATIENCE, wait_for, wait_until};
use tests::workload::{Workload, noise, seeds};

on_each_version!(
    everything_is_copied_while_the_primary_writes,
    many_small_collections_are_copied,
    capped_collections_that_roll_over_are_copied,
    extremes_are_copied
);

fn everything_is_copied_while_the_primary_writes(version: Version) -> Result<()> {
    for seed in seeds(1) {
        println!("SEED={seed}");
        let mut set = ReplSet::named("sync-under-load").version(version).start()?;
        let counts = Workload::new(seed, set.primary()?)?.run(1200)?;
        ensure!(counts.done > counts.refused, "the server refused most of it: {counts:?}");
        let mut during = Workload::new(seed + 1_000_000, set.primary()?)?;
        let joined = AtomicBool::new(false);
        let options = understudy::options("ours", Some(set.name()))?;
        std::thread::scope(|scope| -> Result<()> {
            let writer = scope.spawn(|| -> Result<()> {
                while !joined.load(Ordering::SeqCst) {
                    during.run(20)?;
                }
                Ok(())
            });
            let added = set
                .add(options, Member { votes: 0 })
                .map(drop)
                .and_then(|()| set.await_state(set.ours()?, "SECONDARY", PATIENCE));
            joined.store(true, Ordering::SeqCst);
            writer.join().map_err(|_| anyhow!("the writer panicked"))??;
            added
        })?;
        set.finish()?;
    }
    Ok(())
}

/// `replSetSyncFrom` during an initial sync restarts it from the new source, and nothing of the first attempt is
/// left.
#[test]
fn another_source_is_chosen_during_the_copy() -> Result<()> {
    let mut set = ReplSet::named("other-source").mongods(2).proxied().start()?;
    for i in 0..20 {
        let documents: Vec<Document> =
            (0..500).map(|n| doc! { "_id": i * 1000 + n, "b": noise(1000) }).collect();
        set.primary()?.run("shop", doc! { "insert": "c", "documents": documents })?;
    }
    set.await_caught_up()?;
    for node in set.nodes() {
        node.proxy()?.throttle(600_000);
    }
    let options = understudy::options("ours", Some(set.name()))?;
    set.add(options, Member { votes: 0 })?;
    let ours = set.ours()?;
    let source = || -> Result<String> {
        let status = ours.admin(doc! { "replSetGetStatus": 1 })?;
        Ok(status.get_str("syncSourceHost")?.to_owned())
    };
    let first = wait_until("documents are being copied", PATIENCE, || {
        let status = ours.admin(doc! { "replSetGetStatus": 1 })?;
        let copied = status.get_document("initialSyncStatus")?.get_i64("approxTotalBytesCopied")?;
        Ok((copied > 0).then_some(source()?))
    })?;
    let other = set.nodes().iter().take(2).map(Node::host).find(|host| *host != first);
    let other = other.ok_or_else(|| anyhow!("there is no other source than {first}"))?;
    ours.admin(doc! { "replSetSyncFrom": &other })?;
    wait_for("we sync from the one asked for", PATIENCE, || Ok(source()? == other))?;
    for node in set.nodes().iter().take(2) {
        node.proxy()?.heal()?;
    }
    set.await_state(ours, "SECONDARY", PATIENCE)?;
    set.expect_log("it was told to stop");
    set.finish()
}

/// Documents of capped collections are overwritten before we have read them.
fn capped_collections_that_roll_over_are_copied(version: Version) -> Result<()> {
    let mut set = ReplSet::named("rolling").version(version).proxied().start()?;
    let names = ["by_size", "by_max"];
    let filling = noise(100_000);
    let write = |primary: &Node, i: i32| -> Result<()> {
        for name in names {
            let documents: Vec<Document> =
                (0..30).map(|n| doc! { "_id": i * 1000 + n, "b": &filling }).collect();
            primary.run("shop", doc! { "insert": name, "documents": documents })?;
        }
        Ok(())
    };
    let primary = set.primary()?;
    primary.run("shop", doc! { "create": "by_size", "capped": true, "size": 30_000_000 })?;
    let by_max = doc! { "create": "by_max", "capped": true, "size": 1 << 28, "max": 300 };
    primary.run("shop", by_max)?;
    (0..10).try_for_each(|i| write(primary, i))?;
    primary.proxy()?.throttle(5_000_000);
    let options = understudy::options("ours", Some(set.name()))?;
    set.add(options, Member { votes: 0 })?;
    let (primary, ours) = (set.primary()?, set.ours()?);
    wait_for("documents are being copied", PATIENCE, || {
        let status = ours.admin(doc! { "replSetGetStatus": 1 })?;
        Ok(status.get_document("initialSyncStatus")?.get_i64("approxTotalBytesCopied")? > 0)
    })?;
    (10..22).try_for_each(|i| write(primary, i))?;
    ensure!(set.shown_state(ours)? != "SECONDARY", "the copy ended before it was overtaken");
    primary.proxy()?.heal()?;
    set.await_state(ours, "SECONDARY", PATIENCE)?;
    ensure!(ours.log_has("CappedPositionLost")?, "the copy was not overtaken");
    set.await_caught_up()?;
    for name in names {
        let ids = |node: &Node| -> Result<Vec<Document>> {
            let collection = node.client().database("shop").collection(name);
            let found =
                collection.find(doc! {}).projection(doc! { "_id": 1 }).sort(doc! { "$natural": 1 });
            Ok(found.run()?.collect::<Result<_, _>>()?)
        };
        let (want, got) = (ids(primary)?, ids(ours)?);
        ensure!(want == got, "{name}: {:?} and {:?}", want.first(), got.first());
    }
    set.finish()
}

/// If the source always fails, the process ends after the allowed number of attempts and says why.
#[test]
fn attempts_end() -> Result<()> {
    let args = ["--setParameter", "numInitialSyncAttempts=2"];
    let mut set = ReplSet::named("attempts").start()?;
    let data = doc! {
        "failCommands": ["listDatabases"], "failInternalCommands": true, "errorCode": 8,
    };
    let fail = doc! { "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data };
    set.primary()?.admin(fail)?;
    let mut options = understudy::options("ours", Some(set.name()))?;
    options.args.extend(args.map(str::to_owned));
    set.add(options, Member { votes: 0 })?;
    wait_for("our node has ended", PATIENCE, || Ok(!set.ours_mut()?.is_running()))?;
    let log = std::fs::read_to_string(set.ours()?.log_path())?;
    let failed = log.matches("\"initial sync failed\"").count();
    ensure!(failed == 2, "{failed} attempts failed");
    ensure!(log.contains("the initial sync failed for the last time"), "it does not say why");
    set.expect_log("initial sync failed");
    set.expect_log("Fatal assertion");
    set.finish_without_comparing()
}

/// If somebody kills the cursor that we copy from, the copy must not end early.
#[test]
fn a_killed_cursor_loses_no_document() -> Result<()> {
    let mut set = ReplSet::named("killed-cursor").start()?;
    for i in 0..40 {
        let documents: Vec<Document> =
            (0..500).map(|n| doc! { "_id": i * 1000 + n, "b": noise(1000) }).collect();
        set.primary()?.run("shop", doc! { "insert": "c", "documents": documents })?;
    }
    // A fail point holds a getMore until it is interrupted, so that there is always a cursor to kill.
    let hold = |mode: &str| {
        let data = doc! { "nss": "shop.c", "shouldCheckForInterrupt": true };
        let point = "waitAfterPinningCursorBeforeGetMoreBatch";
        doc! { "configureFailPoint": point, "mode": mode, "data": data }
    };
    set.primary()?.admin(hold("alwaysOn"))?;
    let options = understudy::options("ours", Some(set.name()))?;
    set.add(options, Member { votes: 0 })?;
    let (primary, ours) = (set.primary()?, set.ours()?);
    let current = doc! { "$currentOp": { "allUsers": true } };
    let copying = doc! { "$match": { "ns": "shop.c", "command.getMore": { "$gt": 0_i64 } } };
    let ask = doc! { "aggregate": 1, "pipeline": [current, copying], "cursor": {} };
    wait_for("a cursor was killed and its documents are asked for again", PATIENCE, || {
        let found = primary.admin(ask.clone())?;
        for op in found.get_document("cursor")?.get_array("firstBatch")? {
            let command = op.as_document().and_then(|op| op.get_document("command").ok());
            if let Some(id) = command.and_then(|command| command.get_i64("getMore").ok()) {
                primary.run("shop", doc! { "killCursors": "c", "cursors": [id] })?;
            }
        }
        ours.log_has("broke off and is taken up again")
    })?;
    primary.admin(hold("off"))?;
    set.await_state(ours, "SECONDARY", PATIENCE)?;
    set.finish()
}

/// The connection breaks repeatedly during the copy: the result must still be right.
#[test]
fn a_copy_over_a_bad_line_comes_out_right() -> Result<()> {
    let mut set = ReplSet::named("bad-line").proxied().start()?;
    let counts = Workload::new(3, set.primary()?)?.run(1500)?;
    ensure!(counts.done > counts.refused, "{counts:?}");
    let mut during = Workload::new(4, set.primary()?)?;
    let joined = AtomicBool::new(false);
    let options = understudy::options("ours", Some(set.name()))?;
    set.add(options, Member { votes: 0 })?;
    set.expect_log("initial sync failed");
    std::thread::scope(|scope| -> Result<()> {
        let writer = scope.spawn(|| -> Result<()> {
            while !joined.load(Ordering::SeqCst) {
                during.run(20)?;
            }
            Ok(())
        });
        let proxy = set.primary()?.proxy()?;
        let broken = (0..6u64).try_for_each(|i| {
            proxy.corrupt(Direction::ToClient, 20_000 + i * 50_021);
            wait_for("the line has failed, or we are there", PATIENCE, || {
                let there = set.shown_state(set.ours()?)? == "SECONDARY";
                Ok(there || !proxy.corruption_is_pending(Direction::ToClient))
            })
        });
        let healed = broken.and_then(|()| proxy.heal());
        let there = healed.and_then(|()| set.await_state(set.ours()?, "SECONDARY", PATIENCE));
        joined.store(true, Ordering::SeqCst);
        writer.join().map_err(|_| anyhow!("the writer panicked"))??;
        there
    })?;
    set.finish()
}

fn many_small_collections_are_copied(version: Version) -> Result<()> {
    let mut set = ReplSet::named("many-collections").version(version).start()?;
    for i in 0..200 {
        let (db, name) = (format!("db{}", i % 5), format!("c{i}"));
        let documents: Vec<Document> = (0..i % 7).map(|id| doc! { "_id": id, "i": i }).collect();
        if documents.is_empty() {
            set.primary()?.run(&db, doc! { "create": &name })?;
        } else {
            set.primary()?.run(&db, doc! { "insert": &name, "documents": documents })?;
        }
    }
    let options = understudy::options("ours", Some(set.name()))?;
    set.add(options, Member { votes: 0 })?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.finish()
}

/// An `_id` and an indexed string of 300,000 characters, 16 MiB documents, a collation of strength 1.
fn extremes_are_copied(version: Version) -> Result<()> {
    let mut set = ReplSet::named("extremes").version(version).start()?;
    let primary = set.primary()?;
    let long = "k".repeat(300_000);
    let index = doc! { "key": { "s": 1 }, "name": "s" };
    primary.run("shop", doc! { "createIndexes": "long", "indexes": [&index] })?;
    let long_id = doc! { "_id": format!("{long}1"), "s": format!("{long}a") };
    let sibling = doc! { "_id": format!("{long}2"), "s": format!("{long}b") };
    primary.run("shop", doc! { "insert": "long", "documents": [long_id, sibling] })?;
    let large = doc! { "_id": 1, "b": "x".repeat(16 * 1024 * 1024 - 100) };
    primary.run("shop", doc! { "insert": "large", "documents": [large] })?;
    let collation = doc! { "locale": "de", "strength": 1 };
    primary.run("shop", doc! { "create": "collated", "collation": collation })?;
    let words = ["Straße", "Strasse2", "apfel", "Äpfel2", "zebra", "Öl"];
    let documents: Vec<Document> = words.iter().map(|&word| doc! { "_id": word }).collect();
    primary.run("shop", doc! { "insert": "collated", "documents": documents })?;
    let options = understudy::options("ours", Some(set.name()))?;
    set.add(options, Member { votes: 0 })?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    for i in 0..3 {
        let update =
            doc! { "q": { "_id": 1 }, "u": { "$set": { "b": format!("{i}").repeat(16_000_000) } } };
        set.primary()?.run("shop", doc! { "update": "large", "updates": [update] })?;
    }
    set.finish()
}
