//! Authorization: compares our replies with a real secondary's, for every built-in role and every command that we
//! have.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use bson::{Binary, Bson, Document, doc, spec::BinarySubtype};
use mongodb::sync::Client;
use tests::driver::{self, Security};
use tests::node::Node;
use tests::repl_set::{Member, ReplSet};
use tests::servers::Version;
use tests::wait::PATIENCE;

use crate::bad_input::{self, reaction};

on_each_version!(
    every_role_may_do_with_us_what_it_may_do_with_a_mongod,
    nobody_may_do_nothing,
    the_localhost_exception_is_that_of_a_secondary
);

const KEY: &str = "dGhlIGtleSBvZiB0aGUgcHJpdmlsZWdlcyB0ZXN0";

/// Three namespaces: the roles' own database, another database, and a system collection.
const PLACES: [(&str, &str); 3] =
    [("shop", "carts"), ("other", "things"), ("admin", "system.users")];

/// Commands that would end the server or the login, and sharding commands whose body only a shard understands.
const NOT_TRIED: [&str; 7] = [
    "authenticate",
    "logout",
    "mergeChunks",
    "saslContinue",
    "saslStart",
    "shutdown",
    "splitChunk",
];

/// A set with a primary, a real hidden secondary and our node, and some documents.
fn set(version: Version) -> Result<(ReplSet, usize)> {
    let mut set =
        ReplSet::named("privileges").version(version).key_file(KEY).ours_hidden(1).start()?;
    let mut real = tests::mongod::options("real", version, Some(set.name()))?;
    set.secure(&mut real)?;
    let real = set.add(real, Member { votes: 0 })?;
    for (db, coll) in PLACES.iter().take(2) {
        let docs: Vec<_> = (0..5).map(|i| doc! { "_id": i, "x": i }).collect();
        set.primary()?.run(db, doc! { "insert": *coll, "documents": docs })?;
    }
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_state(set.node(real)?, "SECONDARY", PATIENCE)?;
    Ok((set, real))
}

/// Creates a user for each built-in role, and one without any.
fn create_users(set: &ReplSet) -> Result<Vec<String>> {
    let primary = set.primary()?;
    let reply = primary.admin(doc! { "rolesInfo": 1, "showBuiltinRoles": true })?;
    let here = primary.run("shop", doc! { "rolesInfo": 1, "showBuiltinRoles": true })?;
    let names = |reply: &Document| -> Result<BTreeSet<String>> {
        let roles = reply.get_array("roles")?.iter().filter_map(|role| role.as_document());
        roles.map(|role| Ok(role.get_str("role")?.to_owned())).collect()
    };
    let of_databases = names(&here)?;
    let mut users = vec!["nothing".to_owned()];
    primary.admin(doc! { "createUser": "nothing", "pwd": "pw", "roles": [] })?;
    for role in names(&reply)? {
        let db = if of_databases.contains(&role) { "shop" } else { "admin" };
        let roles = [doc! { "role": &role, "db": db }];
        // The user is not named like the role, since `__system` is reserved.
        let user = format!("user-of-{role}");
        primary.admin(doc! { "createUser": &user, "pwd": "pw", "roles": roles.to_vec() })?;
        users.push(user);
    }
    set.await_caught_up()?;
    Ok(users)
}

/// A valid body of a command that does no harm on a secondary.
fn body(name: &str, db: &str, coll: &str) -> Document {
    let ns = format!("{db}.{coll}");
    match name {
        "aggregate" => doc! { name: coll, "pipeline": [], "cursor": {} },
        "appendOplogNote" => doc! { name: 1, "data": { "x": 1 } },
        "applyOps" => doc! { name: [] },
        "autoCompact" => doc! { name: true },
        "cleanupStructuredEncryptionData" => doc! { name: coll, "cleanupTokens": {} },
        "compactStructuredEncryptionData" => doc! { name: coll, "compactionTokens": {} },
        "compact"
        | "listSearchIndexes"
        | "planCacheClear"
        | "planCacheClearFilters"
        | "planCacheListFilters"
        | "planCacheSetFilter"
        | "reIndex" => doc! { name: coll },
        "configureQueryAnalyzer" => doc! { name: ns, "mode": "off" },
        "createSearchIndexes" => doc! { name: coll, "indexes": [{ "definition": {} }] },
        "dropConnections" => doc! { name: 1, "hostAndPort": [] },
        "dropSearchIndex" => doc! { name: coll, "name": "x" },
        "getClusterParameter" => doc! { name: "*" },
        "getDatabaseVersion" => doc! { name: db },
        "getShardVersion" => doc! { name: ns },
        "mapReduce" | "mapreduce" => {
            doc! { name: coll, "map": "m", "reduce": "r", "out": { "inline": 1 } }
        }
        "releaseMemory" => doc! { name: [5_i64] },
        "removeQuerySettings" => doc! { name: { "find": coll, "filter": {}, "$db": db } },
        "setQuerySettings" => doc! {
            name: { "find": coll, "filter": {}, "$db": db }, "settings": { "queryFramework": "classic" },
        },
        "startTrafficRecording" => doc! { name: 1, "destination": "x" },
        "updateSearchIndex" => doc! { name: coll, "name": "x", "definition": {} },
        "validateDBMetadata" => doc! {
            name: 1, "apiParameters": { "version": "1", "strict": true }, "db": db, "collection": coll,
        },
        "coordinateCommitTransaction" => doc! { name: 1, "participants": [] },
        "bulkWrite" => {
            doc! { name: 1, "ops": [{ "insert": 0, "document": { "x": 1 } }], "nsInfo": [{ "ns": ns }] }
        }
        "cleanupOrphaned" => doc! { name: ns },
        "cloneCollectionAsCapped" => doc! { name: coll, "toCollection": "capped", "size": 1000 },
        "collMod" | "collStats" | "collstats" | "convertToCapped" | "count" | "create" | "drop"
        | "find" | "listIndexes" => match name {
            "convertToCapped" => doc! { name: coll, "size": 1000 },
            _ => doc! { name: coll },
        },
        "createIndexes" => doc! { name: coll, "indexes": [{ "key": { "x": 1 }, "name": "x" }] },
        "createRole" => doc! { name: "r", "roles": [], "privileges": [] },
        "createUser" => doc! { name: "u", "pwd": "p", "roles": [{ "role": "read", "db": db }] },
        "dataSize" | "datasize" => doc! { name: ns },
        "dbCheck" => doc! { name: coll },
        "delete" => doc! { name: coll, "deletes": [{ "q": {}, "limit": 1 }] },
        "distinct" => doc! { name: coll, "key": "x" },
        "dropIndexes" | "deleteIndexes" => doc! { name: coll, "index": "x" },
        "dropRole" | "dropUser" => doc! { name: "u" },
        "endSessions"
        | "killAllSessions"
        | "killAllSessionsByPattern"
        | "killSessions"
        | "refreshSessions" => doc! { name: [] },
        "findAndModify" | "findandmodify" => {
            doc! { name: coll, "query": {}, "update": { "$set": { "x": 1 } } }
        }
        "getLog" => doc! { name: "global" },
        "getMore" => doc! { name: 5_i64, "collection": coll },
        "getParameter" => doc! { name: 1, "quiet": 1 },
        "grantPrivilegesToRole" | "revokePrivilegesFromRole" => {
            let privilege =
                doc! { "resource": { "db": db, "collection": "" }, "actions": ["find"] };
            doc! { name: "r", "privileges": [privilege] }
        }
        "grantRolesToRole" | "revokeRolesFromRole" | "grantRolesToUser" | "revokeRolesFromUser" => {
            doc! { name: "u", "roles": [{ "role": "read", "db": db }] }
        }
        "insert" => doc! { name: coll, "documents": [{ "x": 1 }] },
        "killCursors" => doc! { name: coll, "cursors": [5_i64] },
        "profile" => doc! { name: -1 },
        "renameCollection" => doc! { name: &ns, "to": format!("{ns}2") },
        "replSetFreeze" => doc! { name: 0 },
        "replSetHeartbeat" => doc! { name: "another-set" },
        "replSetInitiate" | "replSetReconfig" => doc! { name: {} },
        "replSetMaintenance" => doc! { name: false },
        "replSetRequestVotes" => doc! { name: 1, "setName": "x", "dryRun": true, "term": 0_i64,
        "candidateIndex": 0_i64, "configVersion": 1_i64, "configTerm": 1_i64,
        "lastAppliedOpTime": { "ts": bson::Timestamp { time: 1, increment: 1 }, "t": 1_i64 },
        "lastWrittenOpTime": { "ts": bson::Timestamp { time: 1, increment: 1 }, "t": 1_i64 } },
        "replSetSyncFrom" => doc! { name: "127.0.0.1:1" },
        "replSetUpdatePosition" => doc! { name: 1, "optimes": [] },
        "setClusterParameter" => doc! { name: { "nothing": {} } },
        "setDefaultRWConcern" => doc! { name: 1, "defaultReadConcern": { "level": "local" } },
        "setFeatureCompatibilityVersion" => doc! { name: "8.2", "confirm": true },
        "setIndexCommitQuorum" => doc! { name: coll, "indexNames": ["x"], "commitQuorum": 1 },
        "setParameter" => doc! { name: 1, "noSuchParameter": 1 },
        "setUserWriteBlockMode" => doc! { name: 1, "global": false },
        "splitVector" => doc! { name: &ns, "keyPattern": { "x": 1 }, "maxChunkSize": 1 },
        "update" => doc! { name: coll, "updates": [{ "q": {}, "u": { "$set": { "x": 1 } } }] },
        "updateRole" => doc! { name: "r", "roles": [] },
        "updateUser" => doc! { name: "u", "customData": {} },
        "voteAbortIndexBuild" | "voteCommitIndexBuild" => {
            let uuid = Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
            doc! { name: uuid, "hostAndPort": "x:1", "reason": "" }
        }
        _ => doc! { name: 1 },
    }
}

/// Commands that both have, except those that would end something.
fn commands(ours: &Node, real: &Node) -> Result<Vec<(String, bool)>> {
    let (ours, real) = (all_commands(ours)?, all_commands(real)?);
    let mut both = Vec::new();
    for (name, about) in &ours {
        if real.contains_key(name) && !NOT_TRIED.contains(&name.as_str()) {
            both.push((name.clone(), about.as_document().context("about")?.get_bool("adminOnly")?));
        }
    }
    ensure!(both.len() > 60, "only {} commands in common", both.len());
    Ok(both)
}

fn all_commands(node: &Node) -> Result<Document> {
    Ok(node.admin(doc! { "listCommands": 1 })?.get_document("commands")?.clone())
}

/// True for error 13 (Unauthorized).
fn is_refused(client: &Client, db: &str, command: Document) -> Result<(bool, Document)> {
    let answer = driver::answer(client, db, command)?;
    Ok((answer.get_i32("code").is_ok_and(|code| code == UNAUTHORIZED), answer))
}

fn compare(
    ours: &Client,
    real: &Client,
    who: &str,
    list: &[(String, bool)],
) -> Result<Vec<String>> {
    let mut differences = Vec::new();
    for (name, admin_only) in list {
        for (db, coll) in PLACES {
            let on = if *admin_only { "admin" } else { db };
            let command = body(name, db, coll);
            let (want, theirs) =
                is_refused(real, on, command.clone()).with_context(|| name.clone())?;
            let (got, answer) = is_refused(ours, on, command)?;
            if want != got {
                let said = |doc: &Document| {
                    doc.get_str("errmsg").unwrap_or("ok").chars().take(90).collect::<String>()
                };
                differences.push(format!(
                    "{who}: {name} on {db}.{coll}: mongod {}, ours {}",
                    said(&theirs),
                    said(&answer)
                ));
            }
        }
    }
    Ok(differences)
}

/// Each role, each command, three namespaces.
fn every_role_may_do_with_us_what_it_may_do_with_a_mongod(version: Version) -> Result<()> {
    let (set, real) = set(version)?;
    let users = create_users(&set)?;
    let (ours, real) = (set.ours()?, set.node(real)?);
    let list = commands(ours, real)?;
    let mut differences = Vec::new();
    for user in &users {
        let security = Security::user(user, "pw", "admin");
        let (ours, real) = (ours.client_as(&security)?, real.client_as(&security)?);
        differences.extend(compare(&ours, &real, user, &list)?);
    }
    if !differences.is_empty() {
        bail!("{} differences:\n{}", differences.len(), differences.join("\n"));
    }
    set.finish()
}

/// An unauthenticated client, before and after a failed login, may run the same commands as on a mongod, and learns
/// nothing.
fn nobody_may_do_nothing(version: Version) -> Result<()> {
    let (set, real) = set(version)?;
    create_users(&set)?;
    let (ours, real) = (set.ours()?, set.node(real)?);
    let list = commands(ours, real)?;
    let (our_client, their_client) =
        (ours.client_as(&Security::nobody())?, real.client_as(&Security::nobody())?);
    let mut differences = compare(&our_client, &their_client, "nobody", &list)?;
    for (name, admin_only) in &list {
        let (db, coll) = ("shop", "carts");
        let on = if *admin_only { "admin" } else { db };
        let (refused, answer) = is_refused(&our_client, on, body(name, db, coll))?;
        ensure!(refused || is_open(name, version), "{name} is open to nobody: {answer}");
    }
    // Commands that would end something, and those that only we have.
    for name in all_commands(ours)?.keys() {
        let (on, coll) = ("admin", "carts");
        if list.iter().any(|(tried, _)| tried == name) || LOGS_IN.contains(&name.as_str()) {
            continue;
        }
        let (refused, answer) = is_refused(&our_client, on, body(name, on, coll))?;
        // Some commands exist only in 4.4 and 5.0.
        let unknown = answer.get_i32("code").is_ok_and(|code| code == COMMAND_NOT_FOUND);
        ensure!(refused || unknown || is_open(name, version), "{name} is open to nobody: {answer}");
    }
    for client in [&our_client, &their_client] {
        let payload = |text: &str| Binary { subtype: BinarySubtype::Generic, bytes: text.into() };
        let start = doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256",
        "payload": payload("n,,n=root,r=abcdefgh") };
        let begun = driver::answer(client, "admin", start)?;
        let last = doc! { "saslContinue": 1, "conversationId": 1, "payload": payload("c=biws,r=x,p=AAAA") };
        let failed = driver::answer(client, "admin", last)?;
        ensure!(failed.get_f64("ok")? == 0.0, "{begun} {failed}");
    }
    differences.extend(compare(&our_client, &their_client, "nobody after a failed login", &list)?);
    for (what, bytes) in greetings() {
        let (want, got) = (reaction(real.port(), &bytes)?, reaction(ours.port(), &bytes)?);
        if want != got {
            differences.push(format!("{what}: mongod {want}, ours {got}"));
        }
    }
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    set.finish()
}

/// While there are no users, a local client may do the same as on a real secondary.
fn the_localhost_exception_is_that_of_a_secondary(version: Version) -> Result<()> {
    let (set, real) = set(version)?;
    let (ours, real) = (set.ours()?, set.node(real)?);
    let mut list = commands(ours, real)?;
    // A mongod never answers these to an unauthenticated client: the second only in 8.2.
    list.retain(|(name, _)| match name.as_str() {
        "killSessions" => false,
        "killAllSessionsByPattern" => version < Version::V8_2,
        _ => true,
    });
    let nobody = Security::nobody();
    let (our_client, their_client) = (ours.client_as(&nobody)?, real.client_as(&nobody)?);
    let differences = compare(&our_client, &their_client, "nobody", &list)?;
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    driver::run(&our_client, "admin", doc! { "replSetGetStatus": 1 })?;
    let (refused, answer) = is_refused(&our_client, "shop", doc! { "find": "carts" })?;
    ensure!(refused, "{answer}");
    set.primary()?.admin(doc! { "createUser": "first", "pwd": "pw", "roles": ["root"] })?;
    set.await_caught_up()?;
    let (refused, answer) = is_refused(&our_client, "admin", doc! { "replSetGetStatus": 1 })?;
    ensure!(refused, "the exception is over with the first user: {answer}");
    set.finish()
}

/// First messages with too much, too little or duplicate client metadata.
fn greetings() -> Vec<(String, Vec<u8>)> {
    let driver = doc! { "name": "d", "version": "1" };
    let client = doc! { "driver": &driver, "os": { "type": "Linux" } };
    let with = |name: &str, value: Bson| {
        let mut client = client.clone();
        client.insert(name, value);
        client
    };
    let empty = bson::serialize_to_vec(&with("x", "".into())).map_or(0, |bytes| bytes.len());
    let of_len = |len: usize| with("x", "x".repeat(len.saturating_sub(empty)).into());
    let app = |len| with("application", doc! { "name": "a".repeat(len) }.into());
    let hello = |client: &Document| doc! { "hello": 1, "client": client, "$db": "admin" };
    let internal = |client: &Document| {
        let versions = doc! { "minWireVersion": 0, "maxWireVersion": 27 };
        doc! { "hello": 1, "client": client, "internalClient": versions, "$db": "admin" }
    };
    let asks = [
        ("512 bytes", hello(&of_len(512))),
        ("513 bytes", hello(&of_len(513))),
        ("1025 bytes", hello(&of_len(1025))),
        ("a member's 1024 bytes", internal(&of_len(1024))),
        ("a member's 1025 bytes", internal(&of_len(1025))),
        ("an application of 128 bytes", hello(&app(128))),
        ("an application of 129 bytes", hello(&app(129))),
        ("no driver", hello(&doc! { "os": { "type": "Linux" } })),
        ("no system", hello(&doc! { "driver": &driver })),
        ("a driver without version", hello(&with("driver", doc! { "name": "d" }.into()))),
        ("a driver that is a text", hello(&with("driver", "d".into()))),
        ("metadata that are a number", doc! { "hello": 1, "client": 1, "$db": "admin" }),
    ];
    let message = |ask: &Document| bad_input::op_msg(0, &bad_input::body(ask));
    let mut all: Vec<_> =
        asks.iter().map(|(what, ask)| ((*what).to_owned(), message(ask))).collect();
    all.push(("told twice".to_owned(), message(&hello(&client)).repeat(2)));
    all
}

/// Commands for logging in and out.
const LOGS_IN: [&str; 4] = ["authenticate", "logout", "saslContinue", "saslStart"];

fn is_open(name: &str, version: Version) -> bool {
    OPEN.contains(&name) || (version < Version::V8_2 && OPEN_ONCE.contains(&name))
}

/// Commands that need no login.
const OPEN: [&str; 6] =
    ["_isSelf", "connectionStatus", "hello", "isMaster", "listCommands", "ping"];

/// Commands that needed no login before 8.0.
const OPEN_ONCE: [&str; 2] = ["buildInfo", "whatsmyuri"];

const UNAUTHORIZED: i32 = 13;
const COMMAND_NOT_FOUND: i32 = 59;
