//! Known faults of ours, each shown to be there: one that is gone fails here until it is struck off
//! `hashes::FAULTS`.

use anyhow::{Result, ensure};
use bson::doc;
use tests::hashes::{self, FAULTS};
use tests::repl_set::ReplSet;
use tests::servers::Version;
use tests::wait::PATIENCE;

on_each_version!(every_listed_fault_is_still_there);

fn every_listed_fault_is_still_there(version: Version) -> Result<()> {
    let set = ReplSet::named("faults").version(version).ours_hidden(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    let primary = set.primary()?;
    primary.run("shop", doc! { "create": "capped", "capped": true, "size": 100_000 })?;
    let documents = [doc! { "_id": 3 }, doc! { "_id": 1 }, doc! { "_id": 2 }];
    primary.run("shop", doc! { "insert": "capped", "documents": documents.to_vec() })?;
    primary.run("shop", doc! { "create": "checked" })?;
    let validator = doc! { "n": { "$exists": true } };
    primary.run("shop", doc! { "collMod": "checked", "validator": validator })?;
    set.await_caught_up()?;
    let found = hashes::differences(primary, set.ours()?)?;
    for fault in FAULTS.iter().filter(|fault| fault.on.contains(&version)) {
        let shows = found.iter().any(|difference| fault.covers(Some(version), difference));
        ensure!(shows, "strike it off hashes::FAULTS, it is mended: {}", fault.what);
    }
    set.finish()
}
