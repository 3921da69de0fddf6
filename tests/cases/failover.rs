//! The primary fails, and we follow the next one.

use std::time::Duration;

use anyhow::{Result, ensure};
use bson::{Document, doc};
use tests::repl_set::ReplSet;
use tests::servers::Version;
use tests::wait::PATIENCE;

on_each_version!(we_follow_the_next_primary);

/// The primary is killed, later steps down: each time we follow the new one, and later the returned one.
fn we_follow_the_next_primary(version: Version) -> Result<()> {
    let mut set = ReplSet::named("failover")
        .version(version)
        .mongods(3)
        .ours_hidden(1)
        .election_timeout(Duration::from_secs(4))
        .start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    write(&set, 0)?;
    let old = set.primary_index()?;
    set.node_mut(old)?.kill()?;
    set.await_primary()?;
    write(&set, 1)?;
    set.await_caught_up()?;
    set.node_mut(old)?.restart()?;
    set.await_state(set.node(old)?, "SECONDARY", PATIENCE)?;
    // It may answer with an error, since it closes connections while it steps down.
    let _ = set.primary()?.admin(doc! { "replSetStepDown": 20, "force": true });
    set.await_primary()?;
    write(&set, 2)?;
    set.await_caught_up()?;
    let seen = set.ours()?.admin(doc! { "hello": 1 })?;
    ensure!(seen.get_str("primary")? == set.primary()?.host(), "{seen}");
    set.finish()
}

fn write(set: &ReplSet, round: i32) -> Result<()> {
    let documents: Vec<Document> = (0..500).map(|i| doc! { "_id": round * 1000 + i }).collect();
    let concern = doc! { "w": "majority", "wtimeout": 30_000 };
    let primary = set.await_primary()?;
    primary.run("shop", doc! { "insert": "c", "documents": documents, "writeConcern": concern })?;
    Ok(())
}
