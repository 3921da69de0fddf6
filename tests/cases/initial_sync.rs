//! The first copy: of all kinds of data, while the primary goes on writing.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, anyhow, ensure};
use bson::{Document, doc};
use tests::repl_set::{Member, ReplSet};
use tests::servers::Version;
use tests::understudy;
use tests::wait::PATIENCE;
use tests::workload::{Workload, seeds};

on_each_version!(
    everything_is_copied_while_the_primary_writes,
    many_small_collections_are_copied,
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

/// An `_id` and an indexed string of 300,000 characters, 16 MiB documents, a primary-strength collation.
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
