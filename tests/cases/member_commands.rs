//! Commands that members and operators send to a secondary: our replies compared with those of a real hidden
//! secondary of the same set.

use anyhow::{Context, Result, ensure};
use bson::{Bson, Document, doc};
use tests::compare::KnownDifferences;
use tests::mongod;
use tests::node::Node;
use tests::repl_set::{Member, ReplSet};
use tests::servers::Version;
use tests::wait::{PATIENCE, wait_for};

on_each_version!(members_and_operators_are_answered_like_by_a_real_secondary);

fn members_and_operators_are_answered_like_by_a_real_secondary(version: Version) -> Result<()> {
    let mut set = ReplSet::named("member-commands").version(version).ours_hidden(1).start()?;
    let real = mongod::options("real", version, Some(set.name()))?;
    let real = set.add(real, Member { votes: 0 })?;
    set.primary()?.run("test", doc! { "insert": "c", "documents": [{ "_id": 1 }] })?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_state(set.node(real)?, "SECONDARY", PATIENCE)?;
    set.await_caught_up()?;
    let (ours, real) = (set.ours()?, set.node(real)?);
    let host = set.primary()?.host();
    wait_for("both know whom they follow", PATIENCE, || {
        let follows = |node: &Node| -> Result<bool> {
            let status = node.admin(doc! { "replSetGetStatus": 1 })?;
            Ok(!status.get_str("syncSourceHost")?.is_empty())
        };
        Ok(follows(ours)? && follows(real)?)
    })?;
    let known = KnownDifferences::load()?;
    let mut complaints = Vec::new();
    let mut check = |name: &str, want: &Document, got: &Document| {
        let case = format!("{name} on {}", version.label());
        if let Err(e) = known.check(&case, want, got) {
            complaints.push(format!("{e:#}"));
        }
    };
    for (name, db, command) in exact(set.name(), &host) {
        let ask = |node: &Node| node.answer(db, about(&command, node)?);
        let both = (ask(real), ask(ours));
        let (want, got) = (both.0.with_context(|| name)?, both.1.with_context(|| name)?);
        check(name, &in_words_of_both(want, real), &in_words_of_both(got, ours));
    }
    for (name, db, command) in shapes() {
        let ask = |node: &Node| node.run(db, command.clone());
        let (want, got) = (ask(real)?, ask(ours)?);
        check(name, &shape(&want), &shape(&got));
    }
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    set.finish()
}

/// Replaces `SELF` by the node's own address, which differs.
fn about(command: &Document, node: &Node) -> Result<Document> {
    let host = node.host();
    let put = |(key, value): (&String, &Bson)| match value.as_str() {
        Some("SELF") => (key.clone(), Bson::String(host.clone())),
        _ => (key.clone(), value.clone()),
    };
    Ok(command.iter().map(put).collect())
}

fn in_words_of_both(mut answer: Document, node: &Node) -> Document {
    // What is known about another member is as old as its heartbeat, so the warning may or may not occur.
    if answer.get_str("warning").is_ok_and(|text| text.contains("behind us")) {
        answer.remove("warning");
    }
    // Each may follow the primary or the other one.
    if answer.contains_key("prevSyncTarget") {
        answer.insert("prevSyncTarget", "somebody");
    }
    for name in ["errmsg", "reason"] {
        if let Ok(text) = answer.get_str(name) {
            let text = text.replace(&node.host(), "SELF");
            answer.insert(name, text);
        }
    }
    answer
}

/// Commands whose replies must be equal: a name, the database, the command.
fn exact(set: &str, primary: &str) -> Vec<(&'static str, &'static str, Document)> {
    let old = bson::Timestamp { time: 1, increment: 1 };
    let op_time = |ts: bson::Timestamp| doc! { "ts": ts, "t": 1_i64 };
    let vote = |change: Document| {
        let mut request = doc! {
            "replSetRequestVotes": 1, "setName": set, "dryRun": true, "term": 1_i64,
            "candidateIndex": 0_i64, "configVersion": 100_i64, "configTerm": 1_i64,
            "lastAppliedOpTime": op_time(old), "lastWrittenOpTime": op_time(old),
        };
        request.extend(change);
        request
    };
    let beat = |change: Document| {
        let mut request = doc! {
            "replSetHeartbeat": set, "configVersion": 1_i64, "configTerm": 1_i64, "hbv": 1_i64,
            "from": primary, "fromId": 0_i64, "term": 1_i64, "primaryId": 0_i64,
        };
        request.extend(change);
        request
    };
    let id = bson::Uuid::from_bytes([7; 16]);
    vec![
        ("replSetGetRBID", "admin", doc! { "replSetGetRBID": 1 }),
        ("replSetSyncFrom myself", "admin", doc! { "replSetSyncFrom": "SELF" }),
        ("replSetSyncFrom a stranger", "admin", doc! { "replSetSyncFrom": "127.0.0.1:1" }),
        ("replSetSyncFrom nobody", "admin", doc! { "replSetSyncFrom": "" }),
        ("replSetSyncFrom a number", "admin", doc! { "replSetSyncFrom": 1 }),
        ("replSetSyncFrom the primary", "admin", doc! { "replSetSyncFrom": primary }),
        ("replSetFreeze 0", "admin", doc! { "replSetFreeze": 0 }),
        ("replSetFreeze -1", "admin", doc! { "replSetFreeze": -1 }),
        ("replSetFreeze 1", "admin", doc! { "replSetFreeze": 1 }),
        ("replSetMaintenance out of it", "admin", doc! { "replSetMaintenance": false }),
        ("replSetMaintenance on", "admin", doc! { "replSetMaintenance": true }),
        ("find in maintenance", "test", doc! { "find": "c" }),
        ("ping in maintenance", "test", doc! { "ping": 1 }),
        ("count in maintenance", "test", doc! { "count": "c" }),
        ("listCollections in maintenance", "test", doc! { "listCollections": 1 }),
        ("insert in maintenance", "test", doc! { "insert": "c", "documents": [{}] }),
        ("replSetMaintenance off", "admin", doc! { "replSetMaintenance": false }),
        ("replSetStepUp", "admin", doc! { "replSetStepUp": 1 }),
        ("replSetStepDown too short", "admin", doc! { "replSetStepDown": 5 }),
        ("replSetStepDown negative", "admin", doc! { "replSetStepDown": -5 }),
        (
            "replSetStepDown with a long catch-up",
            "admin",
            doc! { "replSetStepDown": 5, "secondaryCatchUpPeriodSecs": 10 },
        ),
        ("replSetReconfig", "admin", doc! { "replSetReconfig": { "_id": set, "version": 99 } }),
        ("replSetInitiate", "admin", doc! { "replSetInitiate": { "_id": set } }),
        ("replSetAbortPrimaryCatchUp", "admin", doc! { "replSetAbortPrimaryCatchUp": 1 }),
        ("replSetHeartbeat of another set", "admin", beat(doc! { "replSetHeartbeat": "x" })),
        ("replSetHeartbeat of version 2", "admin", beat(doc! { "hbv": 2_i64 })),
        ("replSetHeartbeat without version", "admin", doc! { "replSetHeartbeat": set }),
        ("replSetRequestVotes, stale", "admin", vote(doc! { "lastAppliedOpTime": op_time(old) })),
        ("replSetRequestVotes, old term", "admin", vote(doc! { "term": 0_i64 })),
        ("replSetRequestVotes, other set", "admin", vote(doc! { "setName": "x" })),
        ("replSetRequestVotes, old config", "admin", vote(doc! { "configVersion": 1_i64 })),
        ("replSetRequestVotes, no member", "admin", vote(doc! { "candidateIndex": 9_i64 })),
        ("replSetRequestVotes, negative", "admin", vote(doc! { "candidateIndex": -1_i64 })),
        ("replSetRequestVotes of nothing", "admin", doc! { "replSetRequestVotes": 1 }),
        ("replSetUpdatePosition of nothing", "admin", doc! { "replSetUpdatePosition": 1 }),
        (
            "replSetUpdatePosition of nobody",
            "admin",
            doc! { "replSetUpdatePosition": 1, "optimes": [] },
        ),
        (
            "replSetUpdatePosition with a number",
            "admin",
            doc! { "replSetUpdatePosition": 1, "optimes": [1] },
        ),
        ("replSetResizeOplog too small", "admin", doc! { "replSetResizeOplog": 1, "size": 1.0 }),
        ("replSetGetStatus elsewhere", "test", doc! { "replSetGetStatus": 1 }),
        ("appendOplogNote", "admin", doc! { "appendOplogNote": 1, "data": { "a": 1 } }),
        (
            "voteCommitIndexBuild",
            "admin",
            doc! { "voteCommitIndexBuild": id, "hostAndPort": primary, "writeConcern": { "w": "majority" } },
        ),
        (
            "setIndexCommitQuorum",
            "test",
            doc! { "setIndexCommitQuorum": "c", "indexNames": ["a_1"], "commitQuorum": 1 },
        ),
        (
            "a linearizable read",
            "test",
            doc! { "find": "c", "readConcern": { "level": "linearizable" } },
        ),
        (
            "a read after a moment that is to come",
            "test",
            doc! { "find": "c", "readConcern": {
                "level": "local", "afterClusterTime": bson::Timestamp { time: u32::MAX - 1, increment: 1 },
            } },
        ),
        ("create", "test", doc! { "create": "d" }),
        (
            "createIndexes",
            "test",
            doc! {
                "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a" }],
            },
        ),
        ("applyOps", "admin", doc! { "applyOps": [] }),
        ("oplogTruncateAfterPoint", "local", doc! { "find": "replset.oplogTruncateAfterPoint" }),
    ]
}

/// Commands whose replies must have equal fields and types.
fn shapes() -> Vec<(&'static str, &'static str, Document)> {
    vec![
        ("replSetGetStatus", "admin", doc! { "replSetGetStatus": 1 }),
        ("replSetGetConfig", "admin", doc! { "replSetGetConfig": 1 }),
        ("hello with $replData", "admin", doc! { "hello": 1, "$replData": 1 }),
        (
            "the oplog with metadata",
            "local",
            doc! {
                "find": "oplog.rs", "limit": 1, "singleBatch": true, "sort": { "$natural": -1 },
                "$replData": 1, "$oplogQueryData": 1,
            },
        ),
        ("local.replset.election", "local", doc! { "find": "replset.election" }),
        ("local.replset.minvalid", "local", doc! { "find": "replset.minvalid" }),
        ("local.replset.initialSyncId", "local", doc! { "find": "replset.initialSyncId" }),
        ("local.system.rollback.id", "local", doc! { "find": "system.rollback.id" }),
        ("collections of local", "local", doc! { "listCollections": 1 }),
        ("dbStats", "test", doc! { "dbStats": 1 }),
    ]
}

/// Fields and types without values, except names that are not addresses. Array elements with a name are sorted by it.
fn shape(document: &Document) -> Document {
    let of = |(name, value): (&String, &Bson)| match value {
        Bson::String(text) if name == "name" && !text.contains(':') => {
            (name.clone(), value.clone())
        }
        _ => (name.clone(), value_shape(value)),
    };
    document.iter().map(of).collect()
}

fn value_shape(value: &Bson) -> Bson {
    match value {
        Bson::Document(document) => Bson::Document(shape(document)),
        Bson::Array(list) => {
            let mut list: Vec<&Bson> = list.iter().collect();
            list.sort_by_key(|element| {
                element.as_document().and_then(|element| {
                    // The node's own entry comes first, since the names differ.
                    let own = element.contains_key("self");
                    Some((!own, element.get_str("name").ok()?.to_owned()))
                })
            });
            Bson::Array(list.into_iter().map(value_shape).collect())
        }
        other => Bson::String(format!("{:?}", other.element_type())),
    }
}
