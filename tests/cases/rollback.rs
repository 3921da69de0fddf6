//! Rollback: our node gives up the entries that the set gives up, as a real member in the same situation does.

mod fork;

use anyhow::{Result, ensure};
use bson::{Document, doc};
use tests::servers::Version;

use self::fork::{Fork, rbid};

on_each_version!(a_lost_branch_is_rolled_back_as_a_real_member_does);

/// On the lost branch, documents, collections and indexes of all kinds are created, changed and dropped.
fn a_lost_branch_is_rolled_back_as_a_real_member_does(version: Version) -> Result<()> {
    let mut fork = Fork::new("rollback", version, true)?;
    let documents: Vec<Document> = (0..100).map(|i| doc! { "_id": i, "n": 0 }).collect();
    for name in ["c", "todrop", "torename", "tomod"] {
        fork.write_shared("shop", doc! { "insert": name, "documents": &documents })?;
    }
    fork.part()?;
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
    fork.await_lost()?;
    let before = rbid(fork.ours()?)?;
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
    fork.finish()
}
