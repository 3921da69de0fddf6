//! Following the oplog: whatever the primary does, our data stays equal.

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use bson::{Document, RawDocumentBuf, doc};
use tests::node::Node;
use tests::repl_set::{Member, ReplSet};
use tests::servers::Version;
use tests::wait::{PATIENCE, wait_until};
use tests::workload::{Workload, seeds};

on_each_version!(
    a_random_workload_leaves_equal_data,
    a_transaction_beyond_16_mib_is_followed,
    capped_collections_are_trimmed_alike
);

/// `SEEDS=100 OPS=5000` for the long run.
fn a_random_workload_leaves_equal_data(version: Version) -> Result<()> {
    for seed in seeds(from_env("SEEDS", 1)) {
        println!("SEED={seed}");
        let ops = u32::try_from(from_env("OPS", 1500))?;
        let limit = Duration::from_secs(300) + Duration::from_millis(200) * ops;
        let set =
            ReplSet::named("workload").version(version).ours_hidden(1).limit(limit).start()?;
        set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
        let counts = Workload::new(seed, set.primary()?)?.run(ops)?;
        ensure!(counts.done > counts.refused, "the server refused most of it: {counts:?}");
        set.finish().map_err(|e| e.context(format!("SEED={seed}")))?;
    }
    Ok(())
}

fn a_transaction_beyond_16_mib_is_followed(version: Version) -> Result<()> {
    let set = ReplSet::named("large-transaction")
        .version(version)
        .mongod_args(&["--wiredTigerCacheSizeGB", "1"])
        .ours_hidden(1)
        .start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.primary()?.run("shop", doc! { "create": "bulk" })?;
    for commit in [true, false] {
        // Under load the server may ask to retry the whole transaction.
        wait_until("the transaction goes through", PATIENCE, || {
            large_transaction(set.primary()?, commit).map(Some)
        })?;
    }
    set.finish()
}

fn large_transaction(primary: &Node, commit: bool) -> Result<()> {
    let collection = primary.client().database("shop").collection::<Document>("bulk");
    let mut session = primary.client().start_session().run()?;
    session.start_transaction().run()?;
    for i in 0..24 {
        let filling = "x".repeat(1024 * 1024);
        let document = doc! { "_id": format!("{commit} {i}"), "filling": filling };
        collection.insert_one(document).session(&mut session).run()?;
    }
    if commit {
        session.commit_transaction().run()?;
    } else {
        session.abort_transaction().run()?;
    }
    Ok(())
}

/// Rows that the oplog does not contain: images of find-and-modify and of change streams, also with prepared
/// transactions.
#[test]
fn derived_rows_are_those_of_a_real_secondary() -> Result<()> {
    let mut set = ReplSet::named("derived").ours_hidden(1).start()?;
    let real = tests::mongod::options("real", Version::V8_2, Some(set.name()))?;
    let real = set.add(real, Member { votes: 0 })?;
    for node in [set.ours()?, set.node(real)?] {
        set.await_state(node, "SECONDARY", PATIENCE)?;
    }
    for db in ["w0", "w1"] {
        for name in ["a", "b", "imaged"] {
            let images = doc! { "enabled": true };
            let create = doc! { "create": name, "changeStreamPreAndPostImages": images };
            set.primary()?.run(db, create)?;
        }
    }
    let counts = Workload::new(5, set.primary()?)?.run(1500)?;
    ensure!(counts.done > counts.refused, "the server refused most of it: {counts:?}");
    set.await_caught_up()?;
    for name in ["image_collection", "system.preimages", "transactions"] {
        // Compared as bytes, since NaN does not equal NaN.
        let rows = |node: &Node| -> Result<Vec<RawDocumentBuf>> {
            let rows = node.client().database("config").collection::<RawDocumentBuf>(name);
            Ok(rows.find(doc! {}).sort(doc! { "_id": 1 }).run()?.collect::<Result<_, _>>()?)
        };
        let (want, got) = (rows(set.node(real)?)?, rows(set.ours()?)?);
        ensure!(!want.is_empty(), "config.{name} is empty: nothing was compared");
        ensure!(want.len() == got.len(), "config.{name}: {} rows, not {}", got.len(), want.len());
        for (want, got) in want.iter().zip(&got) {
            ensure!(want == got, "config.{name}: expected {want:?}, got {got:?}");
        }
    }
    set.finish()
}

/// Below 5.0 each member trims by itself; since 5.0 the primary's deletes are applied. A secondary's order is the
/// oplog's, even if the primary's own differs.
fn capped_collections_are_trimmed_alike(version: Version) -> Result<()> {
    let set = ReplSet::named("capped").version(version).ours_hidden(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    let primary = set.primary()?;
    primary.run("shop", doc! { "create": "by_size", "capped": true, "size": 20_000 })?;
    primary.run("shop", doc! { "create": "by_max", "capped": true, "size": 1 << 20, "max": 37 })?;
    std::thread::scope(|scope| -> Result<()> {
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                scope.spawn(move || -> Result<()> {
                    for i in 0..150 {
                        for name in ["by_size", "by_max"] {
                            let id = format!("{writer} {i}");
                            let document = doc! { "_id": id, "s": "x".repeat(i * 7 % 300) };
                            primary
                                .run("shop", doc! { "insert": name, "documents": [document] })?;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        writers
            .into_iter()
            .try_for_each(|writer| writer.join().map_err(|_| anyhow!("a writer panicked"))?)
    })?;
    set.await_caught_up()?;
    // collMod supports these limits since 6.0.
    if version == Version::V8_2 {
        let limits = doc! { "collMod": "by_max", "cappedSize": 900_000, "cappedMax": 31 };
        primary.run("shop", limits)?;
    }
    for name in ["by_size", "by_max"] {
        let ours = ids(set.ours()?, "shop", name, doc! {}, "_id")?;
        let inserts = doc! { "op": "i", "ns": format!("shop.{name}") };
        let written = ids(primary, "local", "oplog.rs", inserts, "o._id")?;
        ensure!(!ours.is_empty(), "nothing is left of {name}");
        ensure!(written.ends_with(&ours), "{name}: {ours:?} does not end {written:?}");
    }
    set.finish()
}

/// The value at `path` of each document, in natural order.
fn ids(node: &Node, db: &str, name: &str, filter: Document, path: &str) -> Result<Vec<String>> {
    let collection = node.client().database(db).collection::<Document>(name);
    let found = collection.aggregate([
        doc! { "$match": filter },
        doc! { "$project": { "_id": 0, "text": format!("${path}") } },
    ]);
    found.run()?.map(|row| Ok(row?.get_str("text")?.to_owned())).collect()
}

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
