//! Cursors on collections whose oldest documents are removed: the same replies as from a mongod, for each release.

use anyhow::{Context, Result, ensure};
use bson::{Bson, Document, Timestamp, doc};
use mongodb::sync::ClientSession;
use tests::node::Node;
use tests::repl_set::ReplSet;
use tests::servers::Version;
use tests::wait::PATIENCE;

on_each_version!(
    tailing_is_answered_as_by_a_mongod,
    a_cursor_that_lost_its_place_ends,
    oplog_cursors_tell_where_to_resume,
    commands_agree_on_the_collections_of_local,
);

/// The reply to a command: the documents and whether the cursor is open, or the code and text of the error.
type Said = Result<(Vec<Bson>, bool), (i32, String)>;

fn tailing_is_answered_as_by_a_mongod(version: Version) -> Result<()> {
    let set = start("tailing", version)?;
    let mut wrong = Vec::new();
    for (coll, options) in tailed() {
        let [theirs, ours] = both(&set)?.map(|node| -> Result<Vec<Said>> {
            let mut cursor = Cursor::open(node, coll, &options)?;
            let mut said = vec![cursor.said.clone()];
            for _ in 0..2 {
                if cursor.is_open() {
                    said.push(cursor.more()?);
                }
            }
            Ok(said)
        });
        let (theirs, ours) = (theirs?, ours?);
        if theirs != ours {
            wrong.push(format!("{coll} {options}: {ours:?} instead of {theirs:?}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    set.finish()
}

fn tailed() -> Vec<(&'static str, Document)> {
    let capped = [
        doc! {},
        doc! { "sort": { "a": 1 } },
        doc! { "sort": { "$natural": -1 } },
        doc! { "sort": { "$natural": 1 } },
        doc! { "hint": { "$natural": -1 } },
        doc! { "sort": { "a": 1 }, "singleBatch": true },
        doc! { "singleBatch": true },
        doc! { "singleBatch": true, "limit": 1 },
        doc! { "limit": 3 },
        doc! { "limit": 3, "batchSize": 2 },
        doc! { "limit": 20 },
        doc! { "limit": 3, "awaitData": true },
        doc! { "skip": 6 },
        doc! { "skip": 10 },
        doc! { "batchSize": 0 },
        doc! { "filter": { "_id": 3 } },
        doc! { "filter": { "_id": 99 } },
    ];
    let empty = [
        doc! {},
        doc! { "awaitData": true },
        doc! { "batchSize": 0 },
        doc! { "limit": 2 },
        doc! { "sort": { "a": 1 } },
    ];
    let others = [
        ("none", doc! {}),
        ("none", doc! { "singleBatch": true }),
        ("view", doc! {}),
        ("plain", doc! {}),
        ("plain", doc! { "filter": { "a": { "$gt": 3 }, "b": 1 }, "projection": { "a": 1 } }),
    ];
    let capped = capped.into_iter().map(|options| ("cap", options));
    let empty = empty.into_iter().map(|options| ("empty", options));
    let all = capped.chain(empty).chain(others);
    all.map(|(coll, mut options)| {
        options.insert("tailable", true);
        (coll, options)
    })
    .collect()
}

fn a_cursor_that_lost_its_place_ends(version: Version) -> Result<()> {
    let set = start("overtaken", version)?;
    let tailable = |size: i32| doc! { "tailable": true, "batchSize": size };
    let natural = |way: i32| doc! { "sort": { "$natural": way }, "batchSize": 2 };
    let mut nothing = tailable(9);
    nothing.insert("filter", doc! { "_id": -1 });
    let mut waiting = tailable(9);
    waiting.insert("awaitData", true);
    let mut token = doc! { "hint": { "$natural": 1 }, "batchSize": 2 };
    token.insert("$_requestResumeToken", true);
    let all = [
        (tailable(9), 4),
        (tailable(9), 5),
        (tailable(2), 2),
        (tailable(2), 3),
        (waiting, 6),
        (nothing, 9),
        (tailable(0), 9),
        (doc! { "batchSize": 2 }, 6),
        (natural(1), 6),
        (natural(-1), 6),
        (doc! { "hint": { "_id": 1 }, "batchSize": 2 }, 6),
        (token, 6),
    ];
    let mut next = 100;
    for (options, inserted) in all {
        let [theirs, ours] = both(&set)?.map(|node| Cursor::open(node, "ring", &options));
        let (mut theirs, mut ours) = (theirs?, ours?);
        let documents: Vec<_> = (next..next + inserted).map(|n| doc! { "_id": n }).collect();
        next += inserted;
        set.primary()?.run("test", doc! { "insert": "ring", "documents": documents })?;
        set.await_caught_up()?;
        for _ in 0..2 {
            let (theirs, ours) = (theirs.more()?, ours.more()?);
            ensure!(theirs == ours, "{options} {inserted}: {ours:?} instead of {theirs:?}");
            if matches!(theirs, Ok((_, false))) {
                break;
            }
        }
    }
    set.finish()
}

fn oplog_cursors_tell_where_to_resume(version: Version) -> Result<()> {
    let set = start("tokens", version)?;
    let oplog = set.primary()?.run("local", doc! { "find": "oplog.rs", "limit": 500 })?;
    let entries = oplog.get_document("cursor")?.get_array("firstBatch")?.clone();
    let times: Vec<Timestamp> =
        entries.iter().filter_map(|entry| entry.as_document()?.get_timestamp("ts").ok()).collect();
    // Both have the last entries; our oplog begins where the initial sync did.
    let [from, .., to] = times.get(times.len() - 4..).context("a short oplog")? else {
        anyhow::bail!("no four entries")
    };
    let within = doc! { "ts": { "$gte": *from, "$lte": *to } };
    let mut wrong = Vec::new();
    for options in [
        doc! { "filter": within.clone() },
        doc! { "filter": within.clone(), "batchSize": 2 },
        doc! { "filter": within.clone(), "batchSize": 2, "limit": 1 },
        doc! { "filter": within.clone(), "batchSize": 0 },
        doc! { "filter": within.clone(), "batchSize": 2, "tailable": true },
        doc! { "filter": within, "$_resumeAfter": { "ts": *from } },
        doc! { "$_resumeAfter": { "$recordId": 5 } },
        doc! { "$_resumeAfter": { "$recordId": 5_i64 } },
    ] {
        let mut find = doc! { "find": "oplog.rs", "hint": { "$natural": 1 } };
        find.insert("$_requestResumeToken", true);
        find.extend(options.clone());
        let [theirs, ours] = both(&set)?.map(|node| match node.run("local", find.clone()) {
            Ok(reply) => {
                let mut cursor = reply.get_document("cursor").cloned().unwrap_or_default();
                let open = cursor.get_i64("id").is_ok_and(|id| id != 0);
                cursor.insert("id", open);
                cursor.to_string()
            }
            Err(error) => format!("{:?}", refusal(&error)),
        });
        if theirs != ours {
            wrong.push(format!("{options}: {ours} instead of {theirs}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    set.finish()
}

/// Every reading command finds the collections of `local`.
fn commands_agree_on_the_collections_of_local(version: Version) -> Result<()> {
    let set = start("local", version)?;
    let names = [
        "oplog.rs",
        "system.replset",
        "startup_log",
        "replset.election",
        "replset.minvalid",
        "replset.oplogTruncateAfterPoint",
    ];
    for node in both(&set)? {
        // The oplog grows all the time, so a fixed entry is compared.
        let newest = doc! { "find": "oplog.rs", "sort": { "$natural": -1 }, "limit": 1 };
        let newest = node.run("local", newest)?;
        let newest = newest.get_document("cursor")?.get_array("firstBatch")?.first().cloned();
        let newest = newest.as_ref().and_then(Bson::as_document).context("no entry")?;
        let ts = newest.get_timestamp("ts")?;
        for name in names {
            let query = if name == "oplog.rs" {
                doc! { "ts": { "$lte": ts } }
            } else {
                doc! {}
            };
            let find = doc! { "find": name, "filter": query.clone(), "batchSize": 10_000 };
            let found = node.run("local", find)?;
            let found = found.get_document("cursor")?.get_array("firstBatch")?.len();
            let counted = node.run("local", doc! { "count": name, "query": query.clone() })?;
            let counted = usize::try_from(counted.get_i32("n")?)?;
            let key = if name == "oplog.rs" { "ts" } else { "_id" };
            let values = doc! { "distinct": name, "key": key, "query": query.clone() };
            let values = node.run("local", values)?.get_array("values")?.len();
            let stages = [doc! { "$match": query }, doc! { "$project": { "_id": 1 } }];
            let pipeline = doc! { "aggregate": name, "pipeline": stages.to_vec(), "cursor": { "batchSize": 10_000 } };
            let piped = node.run("local", pipeline)?;
            let piped = piped.get_document("cursor")?.get_array("firstBatch")?.len();
            ensure!(
                found > 0 && [counted, values, piped] == [found; 3],
                "{} of {}: found {found}, counted {counted}, {values} values, \
                 {piped} out of a pipeline",
                name,
                node.name()
            );
        }
    }
    set.finish()
}

fn start(name: &str, version: Version) -> Result<ReplSet> {
    let set = ReplSet::named(name).version(version).ours_hidden(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    let primary = set.primary()?;
    for (coll, more) in [("cap", doc! {}), ("empty", doc! {}), ("ring", doc! { "max": 5 })] {
        let mut create = doc! { "create": coll, "capped": true, "size": 4096 };
        create.extend(more);
        primary.run("test", create)?;
    }
    let documents = |n: i32| (0..n).map(|i| doc! { "_id": i, "a": 10 - i }).collect::<Vec<_>>();
    primary.run("test", doc! { "insert": "cap", "documents": documents(8) })?;
    primary.run("test", doc! { "insert": "ring", "documents": documents(5) })?;
    primary.run("test", doc! { "create": "plain" })?;
    primary.run("test", doc! { "create": "view", "viewOn": "cap", "pipeline": [] })?;
    set.await_caught_up()?;
    Ok(set)
}

/// The code and text of a refused command.
fn refusal(error: &anyhow::Error) -> Result<(i32, String)> {
    let error = error.downcast_ref::<mongodb::error::Error>().context("not from the server")?;
    match &*error.kind {
        mongodb::error::ErrorKind::Command(refused) => Ok((refused.code, refused.message.clone())),
        other => anyhow::bail!("{other}"),
    }
}

fn both(set: &ReplSet) -> Result<[&Node; 2]> {
    Ok([set.primary()?, set.ours()?])
}

/// A cursor and its last reply.
struct Cursor<'a> {
    node: &'a Node,
    coll: &'a str,
    id: i64,
    awaits: bool,
    said: Said,
    session: ClientSession,
}

impl<'a> Cursor<'a> {
    fn open(node: &'a Node, coll: &'a str, options: &Document) -> Result<Self> {
        let session = node.client().start_session().run()?;
        let awaits = options.get_bool("awaitData").unwrap_or(false);
        let mut cursor = Self { node, coll, id: 0, awaits, said: Ok((Vec::new(), false)), session };
        let mut find = doc! { "find": coll };
        find.extend(options.clone());
        cursor.run(find)?;
        Ok(cursor)
    }

    fn is_open(&self) -> bool {
        matches!(self.said, Ok((_, true)))
    }

    fn more(&mut self) -> Result<Said> {
        let mut more = doc! { "getMore": self.id, "collection": self.coll };
        if self.awaits {
            more.insert("maxTimeMS", 50);
        }
        self.run(more)?;
        Ok(self.said.clone())
    }

    fn run(&mut self, command: Document) -> Result<()> {
        let database = self.node.client().database("test");
        self.said = match database.run_command(command).session(&mut self.session).run() {
            Ok(reply) => {
                let cursor = reply.get_document("cursor")?;
                self.id = cursor.get_i64("id")?;
                let batch =
                    cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch"));
                Ok((batch?.clone(), self.id != 0))
            }
            Err(error) => {
                let (code, text) = refusal(&error.into())?;
                // Positions and cursor ids differ between members.
                Err((code, text.replace(|c: char| c.is_ascii_digit(), "")))
            }
        };
        Ok(())
    }
}
