//! Cursors that are open while the collection changes: the same documents or the same error as from a mongod.

use anyhow::{Context, Result, ensure};
use bson::{Bson, Document, doc};
use mongodb::sync::ClientSession;
use tests::driver;
use tests::node::Node;
use tests::repl_set::ReplSet;
use tests::wait::PATIENCE;

#[test]
fn indexes_that_go_away_under_a_cursor() -> Result<()> {
    let set = ReplSet::named("cursors").ours_hidden(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    let index = |field: &str| doc! { "key": { field: 1 }, "name": format!("{field}_1") };
    set.primary()?.run(
        "shop",
        doc! { "createIndexes": "c", "indexes": [index("a"), index("b"), index("c")] },
    )?;
    let documents: Vec<Document> = (0..500)
        .map(|i| doc! { "_id": i, "a": i % 7, "b": 1000 - i, "c": (i * 31) % 500 })
        .collect();
    set.primary()?.run("shop", doc! { "insert": "c", "documents": documents })?;
    set.await_caught_up()?;
    // While cursors are open, first another index is dropped, then their own.
    for dropped in ["a_1", "b_1"] {
        let nodes = [set.primary()?, set.ours()?];
        let mut cursors = Vec::new();
        for node in nodes {
            for (sort, filter) in [("b", doc! {}), ("c", doc! { "c": { "$gt": 100 } })] {
                cursors.push((node, open(node, sort, filter)?));
            }
        }
        set.primary()?.run("shop", doc! { "dropIndexes": "c", "index": dropped })?;
        set.await_caught_up()?;
        let ends = cursors.into_iter().map(|(node, cursor)| rest(node, cursor));
        let ends = ends.collect::<Result<Vec<Result<Vec<Bson>, i32>>>>()?;
        let (theirs, ours) = ends.split_at(ends.len() / 2);
        ensure!(theirs == ours, "after {dropped} was dropped: {ours:?} instead of {theirs:?}");
        let killed = theirs.iter().filter(|end| **end == Err(QUERY_PLAN_KILLED)).count();
        ensure!(killed == usize::from(dropped == "b_1"), "{killed} cursors of the primary ended");
    }
    set.finish()
}

const QUERY_PLAN_KILLED: i32 = 175;

struct Cursor {
    id: i64,
    first: Vec<Bson>,
    /// A cursor belongs to the session that opened it; the driver might use another one each time.
    session: ClientSession,
}

fn open(node: &Node, sort: &str, filter: Document) -> Result<Cursor> {
    let mut session = node.client().start_session().run()?;
    let find = doc! { "find": "c", "filter": filter, "sort": { sort: 1 }, "batchSize": 5 };
    let reply = node.client().database("shop").run_command(find).session(&mut session).run()?;
    let cursor = reply.get_document("cursor")?;
    let first = cursor.get_array("firstBatch")?.clone();
    Ok(Cursor { id: cursor.get_i64("id")?, first, session })
}

/// All remaining documents of a cursor, or the error code that ends it.
fn rest(node: &Node, cursor: Cursor) -> Result<Result<Vec<Bson>, i32>> {
    let Cursor { mut id, first: mut all, mut session } = cursor;
    while id != 0 {
        let more = doc! { "getMore": id, "collection": "c" };
        let more = node.client().database("shop").run_command(more).session(&mut session).run();
        let reply = match more {
            Ok(reply) => reply,
            Err(error) => return driver::code_of(&error.into()).map(Err).context("no code"),
        };
        let batch = reply.get_document("cursor")?;
        id = batch.get_i64("id")?;
        all.extend(batch.get_array("nextBatch")?.iter().cloned());
    }
    Ok(Ok(all))
}

/// A find that turns out to be long is restarted on another thread; this must not be visible.
#[test]
fn short_and_long_finds_use_an_index_once_each() -> Result<()> {
    let set = ReplSet::named("uses").ours_hidden(1).start()?;
    let index = doc! { "key": { "k": 1 }, "name": "k_1" };
    set.primary()?.run("test", doc! { "createIndexes": "c", "indexes": [index] })?;
    for first in (0..20_000).step_by(5_000) {
        let documents: Vec<_> = (first..first + 5_000).map(|n| doc! { "_id": n, "k": n }).collect();
        set.primary()?.run("test", doc! { "insert": "c", "documents": documents })?;
    }
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_caught_up()?;
    for node in [set.primary()?, set.ours()?] {
        for (least, want) in [(19_999, 1), (0, 20_000)] {
            let find =
                doc! { "find": "c", "filter": { "k": { "$gte": least } }, "batchSize": 20_000 };
            let found = node.run("test", find)?;
            let got = found.get_document("cursor")?.get_array("firstBatch")?.len();
            ensure!(got == want, "{} found {got} from {least} on", node.name());
        }
        let pipeline = [doc! { "$indexStats": {} }, doc! { "$match": { "name": "k_1" } }];
        let aggregate = doc! { "aggregate": "c", "pipeline": pipeline.to_vec(), "cursor": {} };
        let stats = node.run("test", aggregate)?;
        let first = stats.get_document("cursor")?.get_array("firstBatch")?.first().cloned();
        let uses = first.as_ref().and_then(|stats| stats.as_document());
        let uses = uses.context("no statistics")?.get_document("accesses")?.get_i64("ops")?;
        ensure!(uses == 2, "{} has used the index {uses} times", node.name());
    }
    set.finish()
}
