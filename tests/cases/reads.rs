//! Compares our node with a real hidden secondary of the same set: the same commands, the same replies.

use anyhow::{Context, Result, ensure};
use bson::{Bson, Document, doc, oid::ObjectId, spec::BinarySubtype};
use tests::compare::KnownDifferences;
use tests::mongod;
use tests::node::Node;
use tests::repl_set::{Member, ReplSet};
use tests::servers::Version;
use tests::wait::PATIENCE;

/// A primary, our node, and a real hidden secondary with the same few documents.
fn set_with_both(test: &str, version: Version) -> Result<(ReplSet, usize)> {
    let mut set = ReplSet::named(test).version(version).ours_hidden(1).start()?;
    let real = mongod::options("real", version, Some(set.name()))?;
    let real = set.add(real, Member { votes: 0 })?;
    let primary = set.primary()?;
    let documents: Vec<Document> =
        (0..300).map(|n| doc! { "_id": n, "a": n % 7, "s": format!("text {n}") }).collect();
    primary.run("test", doc! { "insert": "c", "documents": documents })?;
    let index = doc! { "key": { "a": 1 }, "name": "a_1" };
    primary.run("test", doc! { "createIndexes": "c", "indexes": [index] })?;
    let places: Vec<Document> = (0..40)
        .map(|n| {
            let at = [f64::from(n * 7 % 40) / 2.0, f64::from(n * 11 % 30) / 3.0];
            doc! { "_id": n, "flat": at.to_vec(), "at": { "type": "Point", "coordinates": at.to_vec() } }
        })
        .collect();
    primary.run("test", doc! { "insert": "places", "documents": places })?;
    let sphere = doc! { "key": { "at": "2dsphere" }, "name": "at_2dsphere" };
    let flat = doc! { "key": { "flat": "2d" }, "name": "flat_2d" };
    primary.run("test", doc! { "createIndexes": "places", "indexes": [sphere, flat] })?;
    primary.run("test", doc! { "create": "view", "viewOn": "c", "pipeline": [] })?;
    primary.run("test", doc! { "create": "capped", "capped": true, "size": 4096 })?;
    set.await_state(set.node(real)?, "SECONDARY", PATIENCE)?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_caught_up()?;
    Ok((set, real))
}

/// Replaces what differs between any two servers: cursor ids, names of temporary collections, remaining times.
fn settled(mut answer: Document) -> Document {
    if let Ok(cursor) = answer.get_document_mut("cursor")
        && cursor.get_i64("id").is_ok_and(|id| id != 0)
    {
        cursor.insert("id", "open");
    }
    if let Ok(text) = answer.get_str("errmsg") {
        const TEMPORARY: &str = "tmp.agg_out.";
        const UUID_LEN: usize = 36;
        let text = match text.split_once(TEMPORARY) {
            Some((head, tail)) => {
                format!("{head}{TEMPORARY}{}", tail.get(UUID_LEN..).unwrap_or_default())
            }
            None => text.to_owned(),
        };
        answer.insert("errmsg", text);
    }
    answer
}

#[test]
fn out_and_merge_write_to_the_primary() -> Result<()> {
    let (set, real) = set_with_both("writing-stages", Version::V8_2)?;
    let (primary, ours, real) = (set.primary()?, set.ours()?, set.node(real)?);
    // Each server writes to its own database.
    for db in ["by_real", "by_ours"] {
        let old = [doc! { "_id": 1, "old": true }, doc! { "_id": 1_000, "old": true }];
        primary.run(db, doc! { "insert": "target", "documents": old.to_vec() })?;
        let unique = doc! { "key": { "k": 1 }, "name": "k_1", "unique": true, "sparse": true };
        primary.run(db, doc! { "createIndexes": "target", "indexes": [unique] })?;
        let validator = doc! { "a": { "$gt": 100 } };
        primary.run(db, doc! { "create": "checked", "validator": validator })?;
        let collation = doc! { "locale": "fr" };
        primary.run(db, doc! { "create": "collated", "collation": collation })?;
        let plain = doc! { "key": { "a": 1 }, "name": "a_1" };
        primary.run(db, doc! { "createIndexes": "collated", "indexes": [plain] })?;
        primary.run(db, doc! { "create": "capped", "capped": true, "size": 4096 })?;
        primary.run(db, doc! { "create": "view", "viewOn": "target", "pipeline": [] })?;
    }
    set.await_caught_up()?;
    let mut complaints = Vec::new();
    for (name, stages) in writing_pipelines() {
        let ask = |node: &Node, db: &str| -> Result<Document> {
            let answer = node.answer("test", aggregate(&stages, db))?;
            Ok(settled(in_words_of_both(answer, db)))
        };
        let (want, got) = (ask(real, "by_real")?, ask(ours, "by_ours")?);
        if let Err(e) = KnownDifferences::load()?.check(&format!("writing {name}"), &want, &got) {
            complaints.push(format!("{e:#}"));
        }
        let (want, got) = (contents(primary, "by_real")?, contents(primary, "by_ours")?);
        if want != got {
            complaints.push(format!("{name}: the primary has {got:?}, not {want:?}"));
        }
        set.await_caught_up()?;
    }
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    set.finish()
}

/// The pipeline with `DB` replaced by the database name.
fn aggregate(stages: &[Document], db: &str) -> Document {
    fn named(value: Bson, db: &str) -> Bson {
        match value {
            Bson::String(text) if text == "DB" => Bson::String(db.to_owned()),
            Bson::Document(inner) => {
                Bson::Document(inner.into_iter().map(|(k, v)| (k, named(v, db))).collect())
            }
            Bson::Array(list) => Bson::Array(list.into_iter().map(|v| named(v, db)).collect()),
            other => other,
        }
    }
    let stages: Vec<Bson> =
        stages.iter().map(|stage| named(Bson::Document(stage.clone()), db)).collect();
    doc! { "aggregate": "c", "pipeline": stages, "cursor": {}, "let": { "seven": 7 } }
}

fn in_words_of_both(mut answer: Document, db: &str) -> Document {
    if let Ok(text) = answer.get_str("errmsg") {
        let text = text.replace(db, "DB");
        answer.insert("errmsg", text);
    }
    answer
}

/// The collections of a database: their options, indexes and documents.
fn contents(primary: &Node, db: &str) -> Result<Vec<Document>> {
    let listed = primary.run(db, doc! { "listCollections": 1 })?;
    let listed = listed.get_document("cursor")?.get_array("firstBatch")?;
    let mut out = Vec::new();
    for entry in listed.iter().filter_map(Bson::as_document) {
        let name = entry.get_str("name")?;
        if entry.get_str("type")? == "view" || name.starts_with("system.") {
            continue;
        }
        let find = doc! { "find": name, "sort": { "_id": 1 }, "batchSize": 1_000 };
        let found = primary.run(db, find)?;
        let indexes = primary.run(db, doc! { "listIndexes": name })?;
        let mut indexes = indexes.get_document("cursor")?.get_array("firstBatch")?.clone();
        indexes.sort_by_key(ToString::to_string);
        // Generated `_id`s differ.
        let documents = found.get_document("cursor")?.get_array("firstBatch")?.iter();
        let documents: Vec<Bson> = documents
            .map(|doc| match doc.as_document().cloned() {
                Some(mut doc) if matches!(doc.get("_id"), Some(Bson::ObjectId(_))) => {
                    doc.insert("_id", Bson::ObjectId(ObjectId::from_bytes([0; 12])));
                    Bson::Document(doc)
                }
                _ => doc.clone(),
            })
            .collect();
        out.push(doc! {
            "name": name, "options": entry.get_document("options")?.clone(), "indexes": indexes,
            "documents": documents,
        });
    }
    out.sort_by_key(|entry| entry.get_str("name").unwrap_or_default().to_owned());
    Ok(out)
}

/// Names, and stages over the documents of `test.c`.
fn writing_pipelines() -> Vec<(String, Vec<Document>)> {
    let into = |coll: &str| doc! { "db": "DB", "coll": coll };
    let few = || doc! { "$match": { "_id": { "$lt": 3 } } };
    let mut all: Vec<(String, Vec<Document>)> = Vec::new();
    for matched in ["replace", "merge", "keepExisting", "fail"] {
        for not_matched in ["insert", "discard", "fail"] {
            let merge = doc! { "$merge": {
                "into": into("target"), "whenMatched": matched, "whenNotMatched": not_matched,
            } };
            all.push((format!("merge {matched} {not_matched}"), vec![few(), merge]));
        }
    }
    for not_matched in ["insert", "discard", "fail"] {
        let merge = doc! { "$merge": {
            "into": into("target"), "let": { "x": { "$add": ["$a", "$$seven"] } },
            "whenMatched": [{ "$set": { "z": "$$new.a", "x": "$$x", "y": "$$seven" } }],
            "whenNotMatched": not_matched,
        } };
        let some = doc! { "$match": { "_id": { "$in": [1, 2, 5] } } };
        all.push((format!("merge by a pipeline {not_matched}"), vec![some, merge]));
    }
    let mut one = |name: &str, stages: Vec<Document>| all.push((name.to_owned(), stages));
    let merge = |spec: Document| doc! { "$merge": spec };
    one("merge of all", vec![merge(doc! { "into": into("target") })]);
    one("merge into nothing", vec![few(), merge(doc! { "into": into("new") })]);
    one(
        "merge without _id",
        vec![few(), doc! { "$project": { "_id": 0, "a": 1 } }, merge(doc! { "into": into("new") })],
    );
    let key = |value: Bson| doc! { "$project": { "_id": 0, "k": value } };
    let on = |field: &str| merge(doc! { "into": into("target"), "on": field });
    one("merge on a field", vec![few(), key(Bson::String("$_id".to_owned())), on("k")]);
    one("merge on null", vec![few(), key(Bson::Null), on("k")]);
    one("merge on an array", vec![few(), key(Bson::Array(vec![Bson::Int32(1)])), on("k")]);
    one("merge on what is not unique", vec![few(), on("a")]);
    one(
        "merge with a duplicate",
        vec![
            few(),
            doc! { "$project": { "k": { "$literal": 1 } } },
            merge(doc! { "into": into("target") }),
        ],
    );
    one("merge that fails validation", vec![few(), merge(doc! { "into": into("checked") })]);
    one("merge into a view", vec![merge(doc! { "into": into("view") })]);
    one("merge into admin", vec![merge(doc! { "into": { "db": "admin", "coll": "x" } })]);
    one("merge into a special collection", vec![merge(doc! { "into": into("system.x") })]);
    one("merge not last", vec![merge(doc! { "into": into("target") }), few()]);
    one(
        "merge with a stage that no update has",
        vec![
            few(),
            merge(doc! { "into": into("target"), "whenMatched": [{ "$group": { "_id": 1 } }] }),
        ],
    );
    let out = |coll: &str| doc! { "$out": into(coll) };
    one("out anew", vec![doc! { "$project": { "a": 1 } }, out("made")]);
    one("out again", vec![few(), out("made")]);
    one("out of nothing", vec![doc! { "$match": { "_id": -1 } }, out("empty")]);
    one("out keeps options and indexes", vec![few(), out("collated")]);
    one("out without _id", vec![few(), doc! { "$project": { "_id": 0, "a": 1 } }, out("made")]);
    one("out with a duplicate", vec![few(), doc! { "$set": { "_id": 1 } }, out("made")]);
    one("out that fails validation", vec![few(), out("checked")]);
    one("out into a capped collection", vec![few(), out("capped")]);
    one("out into a view", vec![few(), out("view")]);
    one("out into config", vec![doc! { "$out": { "db": "config", "coll": "x" } }]);
    one("out into no name", vec![doc! { "$out": "" }]);
    one("out into a bad name", vec![few(), out("a$b")]);
    all
}

#[test]
fn reads_are_answered_like_a_real_secondarys() -> Result<()> {
    let (set, real) = set_with_both("reads-beside", Version::V8_2)?;
    let (ours, real) = (set.ours()?, set.node(real)?);
    let known = KnownDifferences::load()?;
    let mut complaints = Vec::new();
    for (name, db, command) in reads().into_iter().chain(keys_and_places()) {
        let ask = |node: &Node| -> Result<Document> {
            node.answer(db, command.clone()).map(settled).context(name)
        };
        let (want, got) = (ask(real)?, ask(ours)?);
        if let Err(e) = known.check(&format!("beside {name}"), &want, &got) {
            complaints.push(format!("{e:#}"));
        }
    }
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    set.finish()
}

/// Finds that return keys and record ids, covered plans, and stages that show the server.
fn keys_and_places() -> Vec<(&'static str, &'static str, Document)> {
    let find = |mut command: Document| {
        command.insert("limit", 5);
        command
    };
    let over = |target: Bson, stage: Document| {
        let pipeline = vec![stage];
        doc! { "aggregate": target, "pipeline": pipeline, "cursor": {} }
    };
    let on = |coll: &str, stage: Document| over(Bson::String(coll.to_owned()), stage);
    let alone = |stage: Document| over(Bson::Int32(1), stage);
    let point = doc! { "type": "Point", "coordinates": [3.1, 4.2] };
    let keys = doc! { "find": "c", "filter": { "a": 3 }, "returnKey": true };
    let sorted = doc! {
        "find": "c", "filter": { "a": { "$gt": 4 } }, "sort": { "s": 1 },
        "projection": { "k": { "$meta": "sortKey" } },
    };
    vec![
        ("returnKey", "test", find(keys.clone())),
        (
            "returnKey of _id",
            "test",
            find(doc! { "find": "c", "filter": { "_id": 3 }, "returnKey": true }),
        ),
        ("returnKey of a scan", "test", find(doc! { "find": "c", "returnKey": true })),
        ("returnKey of a view", "test", find(doc! { "find": "view", "returnKey": true })),
        ("returnKey of a wrong type", "test", find(doc! { "find": "c", "returnKey": 1 })),
        ("showRecordId", "test", find(doc! { "find": "capped", "showRecordId": true })),
        ("showRecordId of a view", "test", find(doc! { "find": "view", "showRecordId": true })),
        ("sortKey", "test", find(sorted.clone())),
        (
            "sortKey without a sort",
            "test",
            find(doc! { "find": "c", "projection": { "k": { "$meta": "sortKey" } } }),
        ),
        (
            "indexKey",
            "test",
            find(doc! {
                "find": "c", "filter": { "a": 3 },
                "projection": { "_id": 0, "a": 1, "k": { "$meta": "indexKey" } },
            }),
        ),
        (
            "covered",
            "test",
            doc! { "find": "c", "filter": { "a": 3 }, "projection": { "a": 1, "_id": 0 }, "limit": 2 },
        ),
        ("distinct by an index", "test", doc! { "distinct": "c", "key": "a" }),
        ("count by an index", "test", doc! { "count": "c", "query": { "a": { "$gt": 2 } } }),
        (
            "$nearSphere",
            "test",
            find(
                doc! { "find": "places", "filter": { "at": { "$nearSphere": { "$geometry": point.clone(), "$maxDistance": 900_000 } } } },
            ),
        ),
        (
            "$near",
            "test",
            find(doc! { "find": "places", "filter": { "flat": { "$near": [3.1, 4.2] } } }),
        ),
        (
            "$near without an index",
            "test",
            doc! { "find": "c", "filter": { "flat": { "$near": [3.1, 4.2] } } },
        ),
        (
            "$geoNear",
            "test",
            doc! {
                "aggregate": "places", "cursor": {},
                "pipeline": [{ "$geoNear": { "near": point, "key": "at", "distanceField": "d" } }, { "$limit": 5 }],
            },
        ),
        (
            "a hint to an index of places",
            "test",
            doc! { "count": "places", "query": { "_id": { "$gt": 3 } }, "hint": "at_2dsphere" },
        ),
        ("$collStats of a wrong field", "test", on("c", doc! { "$collStats": { "x": 1 } })),
        (
            "$collStats of a scale",
            "test",
            on("c", doc! { "$collStats": { "storageStats": { "scale": 0 } } }),
        ),
        (
            "$collStats count of nothing",
            "test",
            on("nothing", doc! { "$collStats": { "count": {} } }),
        ),
        ("$collStats count of a view", "test", on("view", doc! { "$collStats": { "count": {} } })),
        ("$collStats alone", "test", alone(doc! { "$collStats": {} })),
        ("$indexStats of a field", "test", on("c", doc! { "$indexStats": { "x": 1 } })),
        ("$indexStats alone", "test", alone(doc! { "$indexStats": {} })),
        ("$planCacheStats of a field", "test", on("c", doc! { "$planCacheStats": { "x": 1 } })),
        ("$planCacheStats of nothing", "test", on("nothing", doc! { "$planCacheStats": {} })),
        (
            "$planCacheStats of all hosts",
            "test",
            on("c", doc! { "$planCacheStats": { "allHosts": true } }),
        ),
        ("$currentOp of a collection", "admin", on("c", doc! { "$currentOp": {} })),
        ("$currentOp of a field", "admin", alone(doc! { "$currentOp": { "x": 1 } })),
        ("$listSessions elsewhere", "test", on("c", doc! { "$listSessions": {} })),
        (
            "$listSessions of a field",
            "config",
            on("system.sessions", doc! { "$listSessions": { "x": 1 } }),
        ),
        ("$listLocalSessions of a collection", "test", on("c", doc! { "$listLocalSessions": {} })),
        ("$documents", "test", alone(doc! { "$documents": [{ "x": 1 }] })),
        ("$documents of a collection", "test", on("c", doc! { "$documents": [{ "x": 1 }] })),
        ("$match alone", "test", alone(doc! { "$match": {} })),
        ("$search", "test", on("c", doc! { "$search": {} })),
        ("$vectorSearch", "test", on("c", doc! { "$vectorSearch": {} })),
        ("$listSearchIndexes", "test", on("c", doc! { "$listSearchIndexes": {} })),
        ("$shardedDataDistribution", "admin", alone(doc! { "$shardedDataDistribution": {} })),
        (
            "$changeStreamSplitLargeEvent",
            "test",
            on("c", doc! { "$changeStreamSplitLargeEvent": {} }),
        ),
        ("$where in a pipeline", "test", on("c", doc! { "$match": { "$where": "1" } })),
    ]
}

/// Commands with names for the list of known differences, and their databases.
fn reads() -> Vec<(&'static str, &'static str, Document)> {
    let session = |n: u8| {
        let id = bson::Binary { subtype: BinarySubtype::Uuid, bytes: vec![n; 16] };
        doc! { "id": id }
    };
    let concern = |concern: Document| {
        doc! { "find": "c", "filter": { "_id": 7 }, "readConcern": concern }
    };
    let at = |at: bson::Timestamp| concern(doc! { "level": "snapshot", "atClusterTime": at });
    let transaction = |mut command: Document| {
        command.extend(doc! { "txnNumber": 1_i64, "autocommit": false });
        command
    };
    let deep = |depth: usize| (0..depth).fold(doc! { "a": 1 }, |inner, _| doc! { "$and": [inner] });
    let many: Vec<Document> = (0..3_000).map(|n| doc! { "a": n }).collect();
    let long: Vec<i32> = (0..20_000).collect();
    let filtered = |filter: Document| {
        doc! { "find": "c", "filter": filter, "sort": { "_id": 1 }, "limit": 3 }
    };
    vec![
        // Read concerns.
        ("local", "test", concern(doc! { "level": "local" })),
        ("available", "test", concern(doc! { "level": "available" })),
        ("majority", "test", concern(doc! { "level": "majority" })),
        ("linearizable", "test", concern(doc! { "level": "linearizable" })),
        ("no such level", "test", concern(doc! { "level": "strict" })),
        ("level of a wrong type", "test", concern(doc! { "level": 1 })),
        ("unknown field of a concern", "test", concern(doc! { "level": "local", "x": 1 })),
        ("a moment that is gone", "test", at(bson::Timestamp { time: 2, increment: 0 })),
        ("a moment that is none", "test", at(bson::Timestamp { time: 0, increment: 0 })),
        ("ping with a concern", "test", doc! { "ping": 1, "readConcern": { "level": "majority" } }),
        // Transactions and sessions. The driver adds its own session to each command.
        ("a transaction", "test", transaction(doc! { "find": "c", "startTransaction": true })),
        ("txnNumber of a read", "test", doc! { "find": "c", "txnNumber": 1_i64 }),
        ("autocommit alone", "test", doc! { "find": "c", "autocommit": false }),
        ("commitTransaction", "admin", transaction(doc! { "commitTransaction": 1 })),
        ("abortTransaction", "admin", transaction(doc! { "abortTransaction": 1 })),
        ("refreshSessions", "admin", doc! { "refreshSessions": [session(4)] }),
        ("endSessions", "admin", doc! { "endSessions": [session(4)] }),
        ("killSessions", "admin", doc! { "killSessions": [session(4)] }),
        ("killAllSessions", "admin", doc! { "killAllSessions": [] }),
        ("killAllSessionsByPattern", "admin", doc! { "killAllSessionsByPattern": [] }),
        ("endSessions of no list", "admin", doc! { "endSessions": 1 }),
        // Cursors.
        ("no such cursor", "test", doc! { "getMore": 7_i64, "collection": "c" }),
        ("cursor of a wrong type", "test", doc! { "getMore": "x", "collection": "c" }),
        ("killCursors", "test", doc! { "killCursors": "c", "cursors": [7_i64] }),
        ("killCursors of nothing", "test", doc! { "killCursors": "c", "cursors": [] }),
        ("a batch of nothing", "test", doc! { "find": "c", "batchSize": 0 }),
        ("a negative batch", "test", doc! { "find": "c", "batchSize": -1 }),
        ("awaitData without tailable", "test", doc! { "find": "capped", "awaitData": true }),
        ("negative limit", "test", doc! { "find": "c", "limit": -1 }),
        ("negative skip", "test", doc! { "find": "c", "skip": -1 }),
        ("maxTimeMS too large", "test", doc! { "find": "c", "maxTimeMS": 3_000_000_000_i64 }),
        ("unknown field of find", "test", doc! { "find": "c", "nothing": 1 }),
        ("find of no name", "test", doc! { "find": "" }),
        ("find of a number", "test", doc! { "find": 1 }),
        // Invalid `$text` queries.
        ("$text of a wrong type", "test", filtered(doc! { "$text": 1 })),
        ("$text without $search", "test", filtered(doc! { "$text": {} })),
        // Expensive filters.
        ("thousands of branches", "test", filtered(doc! { "$or": many, "_id": 5 })),
        ("a long list", "test", filtered(doc! { "_id": { "$in": long } })),
        ("nested deep", "test", filtered(deep(80))),
        ("nested too deep", "test", filtered(deep(120))),
        ("a regex that is none", "test", filtered(doc! { "s": { "$regex": "(" } })),
        ("a regex that never ends", "test", filtered(doc! { "s": { "$regex": "(t+e*x*t*)+z" } })),
        // Commands that tools use.
        ("profile", "test", doc! { "profile": -1 }),
        ("getParameter", "admin", doc! { "getParameter": 1, "cursorTimeoutMillis": 1 }),
        ("listIndexes of nothing", "test", doc! { "listIndexes": "nothing" }),
        ("listIndexes of a view", "test", doc! { "listIndexes": "view" }),
        ("dbHash of nothing", "nothing", doc! { "dbHash": 1 }),
        ("an insert", "test", doc! { "insert": "c", "documents": [{}] }),
        ("findAndModify", "test", doc! { "findAndModify": "c", "remove": true }),
    ]
}
