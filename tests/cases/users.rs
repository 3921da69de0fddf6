//! Users of the set on our port: every driver logs in, and changes on the primary affect open connections.

use anyhow::{Context, Result, ensure};
use bson::{
    Binary, Document, RawArrayBuf, RawBson, RawDocumentBuf, doc, raw::cstr, rawdoc,
    spec::BinarySubtype,
};
use mongodb::options::AuthMechanism;
use serde_json::json;
use tests::driver::{self, Security};
use tests::node::Node;
use tests::repl_set::{Member, ReplSet};
use tests::scripts;
use tests::servers::Version;
use tests::wait::PATIENCE;

on_each_version!(
    users_of_the_set_log_in,
    changes_act_on_open_connections,
    users_and_roles_are_listed_as_by_a_mongod
);

const KEY: &str = "dGhlIGtleSBvZiB0aGUgdXNlcnMgdGVzdHM=";

/// A set with users, a real hidden secondary and our node.
fn set(test: &str, version: Version) -> Result<(ReplSet, usize)> {
    let mut set = ReplSet::named(test).version(version).key_file(KEY).ours_hidden(1).start()?;
    let mut real = tests::mongod::options("real", version, Some(set.name()))?;
    set.secure(&mut real)?;
    let real = set.add(real, Member { votes: 0 })?;
    let primary = set.primary()?;
    let docs: Vec<_> = (0..500).map(|i| doc! { "_id": i }).collect();
    primary.run("shop", doc! { "insert": "carts", "documents": docs })?;
    primary.run("shop", doc! { "insert": "secrets", "documents": [{ "_id": 1 }] })?;
    primary.run(
        "shop",
        doc! { "createRole": "clerk", "roles": [], "privileges": [
            { "resource": { "db": "shop", "collection": "carts" }, "actions": ["find"] },
        ] },
    )?;
    for (name, role) in [("reader", "read"), ("clerk", "clerk"), ("second", "clerk")] {
        primary.run("shop", doc! { "createUser": name, "pwd": "pässwörd", "roles": [role] })?;
    }
    primary.admin(doc! { "createUser": "backup", "pwd": "pw", "roles": ["backup"] })?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_state(set.node(real)?, "SECONDARY", PATIENCE)?;
    set.await_caught_up()?;
    Ok((set, real))
}

fn user(name: &str) -> Security {
    Security::user(name, "pässwörd", "shop")
}

/// The Rust driver with both mechanisms, pymongo, mongosh, the Node driver and mongodump.
fn users_of_the_set_log_in(version: Version) -> Result<()> {
    let (set, _) = set("log-in", version)?;
    let ours = set.ours()?;
    for mechanism in [AuthMechanism::ScramSha1, AuthMechanism::ScramSha256] {
        let client = ours.client_as(&user("clerk").by(mechanism))?;
        let found = driver::run(&client, "shop", doc! { "find": "carts", "limit": 1 })?;
        ensure!(found.get_document("cursor")?.get_array("firstBatch")?.len() == 1, "{found}");
        let refused = driver::answer(&client, "shop", doc! { "find": "secrets" })?;
        ensure!(refused.get_i32("code")? == UNAUTHORIZED, "{refused}");
        let text = refused.get_str("errmsg")?;
        ensure!(
            text.starts_with("not authorized on shop to execute command { find: \"secrets\""),
            "{text}"
        );
    }
    let wrong = ours.client_as(&Security::user("clerk", "wrong", "shop"))?;
    let error = driver::answer(&wrong, "shop", doc! { "ping": 1 }).err();
    ensure!(error.as_ref().is_some_and(driver::is_login_refused), "{error:?}");

    let port = ours.port();
    let uri = format!(
        "mongodb://clerk:p%C3%A4ssw%C3%B6rd@127.0.0.1:{port}/shop?directConnection=true&authSource=shop"
    );
    let seen = scripts::python_json(PYTHON, port, &[&uri])?;
    let expected = json!({ "SCRAM-SHA-1": 500, "SCRAM-SHA-256": 500, "refused": UNAUTHORIZED });
    ensure!(seen == expected, "pymongo: {seen}");
    let printed = scripts::node(&NODE.replace("URI", &uri), port)?;
    ensure!(printed.trim() == "500 500", "the Node driver: {printed}");
    let seen = scripts::mongosh(SHELL, port)?;
    let number = json!({ "$numberInt": "500" });
    ensure!(seen == json!([number, number]), "mongosh: {seen}");
    let log = std::fs::read_to_string(ours.log_path())?;
    ensure!(!log.contains("pässwörd") && !log.contains("biws"), "a secret is in our log");
    let dir = tempfile::tempdir()?;
    for mechanism in ["SCRAM-SHA-1", "SCRAM-SHA-256"] {
        let (by, out) =
            (format!("--authenticationMechanism={mechanism}"), format!("--out={mechanism}"));
        let who = ["--username=backup", "--password=pw", "--authenticationDatabase=admin"];
        let args = [&who[..], &[&by, &out, "--db=shop"]].concat();
        scripts::tool("mongodump", port, &args, dir.path())?;
        ensure!(dir.path().join(mechanism).join("shop/carts.bson").exists(), "no dump");
    }
    set.finish()
}

/// A dropped user, a changed password, a changed role, a dropped role: on an open connection, with our node and with
/// a real secondary.
fn changes_act_on_open_connections(version: Version) -> Result<()> {
    let (set, real) = set("changes", version)?;
    let primary = set.primary()?;
    let find = doc! { "find": "carts", "batchSize": 2 };
    let logged_in = |name: &str| -> Result<Vec<mongodb::sync::Client>> {
        [set.ours()?, set.node(real)?].iter().map(|node| node.client_as(&user(name))).collect()
    };
    let (reader, clerk, second) = (logged_in("reader")?, logged_in("clerk")?, logged_in("second")?);
    let codes = |clients: &[mongodb::sync::Client], command: &Document| -> Result<Vec<i32>> {
        let code = |client| -> Result<i32> {
            let answer = driver::answer(client, "shop", command.clone())?;
            Ok(answer.get_i32("code").unwrap_or(0))
        };
        clients.iter().map(code).collect()
    };
    for clients in [&reader, &clerk, &second] {
        ensure!(codes(clients, &find)? == [0, 0], "before any change");
    }
    let secrets = doc! { "find": "secrets" };
    ensure!(codes(&clerk, &secrets)? == [UNAUTHORIZED; 2], "the clerk may not read the secrets");

    primary.run(
        "shop",
        doc! { "grantPrivilegesToRole": "clerk", "privileges": [
            { "resource": { "db": "shop", "collection": "secrets" }, "actions": ["find"] },
        ] },
    )?;
    set.await_caught_up()?;
    ensure!(codes(&clerk, &secrets)? == [0, 0], "a role that got more");

    primary.run("shop", doc! { "updateUser": "second", "pwd": "another" })?;
    set.await_caught_up()?;
    let after = codes(&second, &find)?;
    ensure!(after.first() == after.last(), "a password that changed: {after:?}");

    primary.run("shop", doc! { "revokeRolesFromUser": "reader", "roles": ["read"] })?;
    set.await_caught_up()?;
    ensure!(codes(&reader, &find)? == [UNAUTHORIZED; 2], "a role that was taken away");

    primary.run("shop", doc! { "dropRole": "clerk" })?;
    set.await_caught_up()?;
    ensure!(codes(&clerk, &find)? == [UNAUTHORIZED; 2], "a role that was dropped");

    primary.run("shop", doc! { "grantRolesToUser": "clerk", "roles": ["read"] })?;
    set.await_caught_up()?;
    ensure!(codes(&clerk, &find)? == [0, 0], "a role that was given");
    primary.run("shop", doc! { "dropUser": "clerk" })?;
    set.await_caught_up()?;
    ensure!(codes(&clerk, &find)? == [UNAUTHORIZED; 2], "a user that was dropped");
    primary.run("shop", doc! { "createUser": "clerk", "pwd": "pässwörd", "roles": ["read"] })?;
    set.await_caught_up()?;
    ensure!(codes(&clerk, &find)? == [UNAUTHORIZED; 2], "a user of the same name is another");
    set.finish()
}

/// A cursor can only be used by the user who opened it.
#[test]
fn a_cursor_is_for_its_owner() -> Result<()> {
    let (set, real) = set("owner", Version::V8_2)?;
    for node in [set.ours()?, set.node(real)?] {
        let (one, other) = (node.client_as(&user("clerk"))?, node.client_as(&user("reader"))?);
        let opened = driver::run(&one, "shop", doc! { "find": "carts", "batchSize": 2 })?;
        let id = opened.get_document("cursor")?.get_i64("id")?;
        let more = doc! { "getMore": id, "collection": "carts", "batchSize": 2 };
        let refused = driver::answer(&other, "shop", more.clone())?;
        ensure!(refused.get_i32("code")? != 0, "{}: {refused}", node.name());
        let killed =
            driver::answer(&other, "shop", doc! { "killCursors": "carts", "cursors": [id] })?;
        ensure!(
            killed.get_i32("code").is_ok_and(|code| code == UNAUTHORIZED),
            "{}: {killed}",
            node.name()
        );
    }
    set.finish()
}

/// Restrictions of users and roles, logout, visibility of other users, reads of the past, signed times, and the form
/// of errors: as with a real secondary.
#[test]
fn what_one_may_is_what_one_may_on_a_mongod() -> Result<()> {
    let (set, real) = set("may", Version::V8_2)?;
    let (ours, real) = (set.ours()?, set.node(real)?);
    restrictions(&set, ours, real)?;
    others_are_not_seen(ours, real)?;
    crooked_pipelines_are_refused(ours, real)?;
    a_cursor_needs_the_rights_of_today(&set, ours, real)?;
    for node in [ours, real] {
        let client = node.client_as(&user("second"))?;
        let connection = doc! { "find": "carts", "limit": 1 };
        driver::run(&client, "shop", connection.clone())?;
        driver::run(&client, "shop", doc! { "logout": 1 })?;
        let refused = driver::answer(&client, "shop", connection)?;
        ensure!(refused.get_i32("code")? == UNAUTHORIZED, "{}: {refused}", node.name());
    }
    let uri = |node: &tests::node::Node| {
        let port = node.port();
        format!("mongodb://clerk:p%C3%A4ssw%C3%B6rd@127.0.0.1:{port}/shop?directConnection=true")
    };
    let seen = scripts::python_json(TIMES, 0, &[&uri(ours), &uri(real)])?;
    ensure!(seen.get("ours") == seen.get("mongod"), "{seen}");
    ensure!(seen.get("signed").is_some_and(|signed| *signed == json!(true)), "{seen}");
    the_past_needs_the_rights_of_today(&set, ours, real)?;
    set.finish()
}

/// Restrictions on client and server addresses, in the user's document and in a role's.
fn restrictions(set: &ReplSet, ours: &Node, real: &Node) -> Result<()> {
    let primary = set.primary()?;
    let elsewhere = doc! { "clientSource": ["10.1.0.0/16"] };
    primary.admin(doc! { "createRole": "far", "roles": [], "privileges": [],
    "authenticationRestrictions": [elsewhere.clone()] })?;
    for (name, roles, restriction) in [
        ("here", doc! { "role": "read", "db": "shop" }, doc! { "clientSource": ["127.0.0.0/8"] }),
        ("there", doc! { "role": "read", "db": "shop" }, elsewhere.clone()),
        (
            "other-address",
            doc! { "role": "read", "db": "shop" },
            doc! { "serverAddress": ["10.2.3.4"] },
        ),
        ("by-role", doc! { "role": "far", "db": "admin" }, doc! { "clientSource": ["127.0.0.1"] }),
    ] {
        primary.admin(doc! { "createUser": name, "pwd": "pw", "roles": [roles],
        "authenticationRestrictions": [restriction] })?;
    }
    set.await_caught_up()?;
    let find = doc! { "find": "carts", "limit": 1 };
    let mut open = Vec::new();
    for name in ["here", "there", "other-address", "by-role"] {
        for node in [ours, real] {
            let client = node.client_as(&Security::user(name, "pw", "admin"))?;
            match driver::answer(&client, "shop", find.clone()) {
                Ok(answer) => {
                    ensure!(name == "here" && answer.get_f64("ok")? == 1.0, "{name}: {answer}");
                    open.push(client);
                }
                Err(error) => ensure!(
                    name != "here" && driver::is_login_refused(&error),
                    "{name} on {}: {error:?}",
                    node.name()
                ),
            }
        }
    }
    ensure!(open.len() == 2, "both let in whom they should");
    primary.admin(doc! { "updateUser": "here", "authenticationRestrictions": [elsewhere] })?;
    set.await_caught_up()?;
    for client in &open {
        let refused = driver::answer(client, "shop", find.clone())?;
        ensure!(refused.get_i32("code")? == UNAUTHORIZED, "restricted meanwhile: {refused}");
    }
    Ok(())
}

/// Operations and sessions of other users are only visible with the right privilege.
fn others_are_not_seen(ours: &Node, real: &Node) -> Result<()> {
    let all = |stage: &str, spec: Document| {
        let coll =
            if stage == "$listSessions" { "system.sessions".into() } else { bson::Bson::from(1) };
        doc! { "aggregate": coll, "pipeline": [{ stage: spec }], "cursor": {} }
    };
    let session = Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
    let digest = Binary { subtype: BinarySubtype::Generic, bytes: vec![7; 32] };
    let reader = doc! { "user": "reader", "db": "shop" };
    let clerk = doc! { "user": "clerk", "db": "shop" };
    let questions = [
        ("admin", doc! { "currentOp": 1 }),
        ("admin", doc! { "currentOp": 1, "$ownOps": true }),
        ("admin", all("$currentOp", doc! {})),
        ("admin", all("$currentOp", doc! { "allUsers": true })),
        ("admin", all("$listLocalSessions", doc! {})),
        ("admin", all("$listLocalSessions", doc! { "allUsers": true })),
        ("admin", all("$listLocalSessions", doc! { "users": [clerk.clone()] })),
        ("admin", all("$listLocalSessions", doc! { "users": [clerk, reader.clone()] })),
        ("config", all("$listSessions", doc! {})),
        ("config", all("$listSessions", doc! { "allUsers": true })),
        // Other users' sessions by their digest, and fields that only members may send.
        ("admin", doc! { "endSessions": [{ "id": &session, "uid": &digest }] }),
        ("shop", doc! { "find": "carts", "limit": 1, "lsid": { "id": &session, "uid": &digest } }),
        ("admin", doc! { "killAllSessionsByPattern": [{ "users": [&reader] }] }),
        ("shop", doc! { "find": "carts", "limit": 1, "term": 1_i64 }),
        ("shop", doc! { "getMore": 5_i64, "collection": "carts", "term": 1_i64 }),
    ];
    for node in [ours, real] {
        // Another user has a session and a running command.
        node.client_as(&user("reader"))?.start_session().run()?;
    }
    let (our, their) = (ours.client_as(&user("clerk"))?, real.client_as(&user("clerk"))?);
    for (db, question) in questions {
        let code = |client| -> Result<(i32, String)> {
            let answer = driver::answer(client, db, question.clone())?;
            Ok((answer.get_i32("code").unwrap_or(0), answer.to_string()))
        };
        let ((want, theirs), (got, answer)) = (code(&their)?, code(&our)?);
        ensure!(want == got, "{question}: mongod {theirs}, ours {answer}");
        ensure!(
            !answer.contains("__system") && !answer.contains("replSet"),
            "{question}: {answer}"
        );
    }
    Ok(())
}

/// Pipelines that name a collection twice, or with a name that is not UTF-8: the privilege check and the execution
/// must see the same.
fn crooked_pipelines_are_refused(ours: &Node, real: &Node) -> Result<()> {
    let twice = |mut doc: RawDocumentBuf, field: &bson::raw::CStr, value: RawBson| {
        doc.append(field, value);
        doc
    };
    let join = rawdoc! { "from": "carts", "localField": "_id", "foreignField": "_id", "as": "x" };
    let graph = rawdoc! { "from": "carts", "startWith": "$_id", "connectFromField": "_id",
    "connectToField": "_id", "as": "x" };
    let secrets = || RawBson::from("secrets");
    let union: RawArrayBuf = [rawdoc! { "$unionWith": "secrets" }].into_iter().collect();
    let piped = twice(
        rawdoc! { "from": "carts", "as": "x", "pipeline": [] },
        cstr!("pipeline"),
        union.into(),
    );
    let stages = [
        rawdoc! { "$lookup": join.clone() },
        rawdoc! { "$lookup": twice(join.clone(), cstr!("from"), secrets()) },
        rawdoc! { "$lookup": piped },
        rawdoc! { "$graphLookup": twice(graph, cstr!("from"), secrets()) },
        rawdoc! { "$unionWith": twice(rawdoc! { "coll": "carts" }, cstr!("coll"), secrets()) },
        rawdoc! { "$unionWith": { "XXXX": 1, "coll": "secrets" } },
        rawdoc! { "$facet": { "XXXX": [{ "$unionWith": "secrets" }] } },
        rawdoc! { "$unionWith": { "coll": "carts", "pipeline": [{ "$facet": { "XXXX": [{ "$unionWith": "secrets" }] } }] } },
        rawdoc! { "$out": twice(rawdoc! { "db": "shop", "coll": "mine" }, cstr!("coll"), secrets()) },
        rawdoc! { "$merge": twice(rawdoc! { "into": "mine" }, cstr!("into"), secrets()) },
    ];
    for (at, stage) in stages.into_iter().enumerate() {
        let pipeline: RawArrayBuf = [rawdoc! { "$limit": 1 }, stage].into_iter().collect();
        let command = rawdoc! { "aggregate": "carts", "pipeline": pipeline, "cursor": {} };
        let mut bytes = command.into_bytes();
        let crooked = bytes.windows(4).position(|four| four == b"XXXX");
        if let Some(byte) = crooked.and_then(|at| bytes.get_mut(at)) {
            *byte = 0xff;
        }
        let command = RawDocumentBuf::from_bytes(bytes)?;
        // mongod repeats such a name in its error, which the driver cannot parse.
        let nodes = if crooked.is_some() { &[ours][..] } else { &[ours, real] };
        for node in nodes {
            let client = node.client_as(&user("clerk"))?;
            let answer = driver::answer_raw(&client, "shop", command.clone())?;
            let allowed = answer.get_f64("ok")? == 1.0;
            // The first one is allowed: it joins what the clerk may read.
            ensure!(allowed == (at == 0), "{}: {command:?}: {answer}", node.name());
        }
    }
    Ok(())
}

/// A cursor that was opened with more privileges than the user has now returns nothing more.
fn a_cursor_needs_the_rights_of_today(set: &ReplSet, ours: &Node, real: &Node) -> Result<()> {
    let primary = set.primary()?;
    let on =
        |coll: &str| doc! { "resource": { "db": "shop", "collection": coll }, "actions": ["find"] };
    let both = [on("carts"), on("secrets")].to_vec();
    primary.run("shop", doc! { "createRole": "joins", "roles": [], "privileges": both })?;
    primary.run("shop", doc! { "createUser": "joiner", "pwd": "pässwörd", "roles": ["joins"] })?;
    set.await_caught_up()?;
    let lookup = doc! { "from": "secrets", "localField": "_id", "foreignField": "_id", "as": "x" };
    let join = doc! { "aggregate": "carts", "pipeline": [{ "$lookup": lookup }], "cursor": { "batchSize": 1 } };
    let mut open = Vec::new();
    for node in [ours, real] {
        let client = node.client_as(&user("joiner"))?;
        let opened = driver::run(&client, "shop", join.clone())?;
        open.push((client, opened.get_document("cursor")?.get_i64("id")?));
    }
    primary.run("shop", doc! { "updateRole": "joins", "privileges": [on("carts")] })?;
    set.await_caught_up()?;
    for (client, id) in open {
        let more = doc! { "getMore": id, "collection": "carts", "batchSize": 1 };
        let refused = driver::answer(&client, "shop", more)?;
        let text = format!("not authorized for getMore with cursor id {id}");
        ensure!(refused.get_i32("code")? == UNAUTHORIZED, "{refused}");
        ensure!(refused.get_str("errmsg")? == text, "{refused}");
    }
    Ok(())
}

/// Reading the past requires the present privileges, whatever the user could read then.
fn the_past_needs_the_rights_of_today(set: &ReplSet, ours: &Node, real: &Node) -> Result<()> {
    let primary = set.primary()?;
    let then = primary.admin(doc! { "hello": 1 })?.get_timestamp("operationTime")?;
    let pinned = Security {
        app_name: Some(format!("@Timestamp({},{})", then.time, then.increment)),
        ..user("clerk")
    };
    let concern = doc! { "level": "snapshot", "atClusterTime": then };
    let find = doc! { "find": "carts", "limit": 1 };
    let mut at_a_time = find.clone();
    at_a_time.insert("readConcern", concern);
    let clients = [
        (ours.client_as(&pinned)?, &find),
        (ours.client_as(&user("clerk"))?, &at_a_time),
        (real.client_as(&user("clerk"))?, &at_a_time),
    ];
    let codes = || -> Result<Vec<i32>> {
        let code = |(client, find): &(mongodb::sync::Client, &Document)| -> Result<i32> {
            let answer = driver::answer(client, "shop", (*find).clone())?;
            Ok(answer.get_i32("code").unwrap_or(0))
        };
        clients.iter().map(code).collect()
    };
    ensure!(codes()? == [0; 3], "while it may: {:?}", codes()?);
    primary.run("shop", doc! { "revokeRolesFromUser": "clerk", "roles": ["clerk"] })?;
    set.await_caught_up()?;
    ensure!(codes()? == [UNAUTHORIZED; 3], "when it may no longer: {:?}", codes()?);
    Ok(())
}

/// Malformed, interleaved and replayed logins: the same code as from a mongod, and nobody is authenticated
/// afterwards.
#[test]
fn a_login_that_is_none_gets_mongods_answer() -> Result<()> {
    let (set, real) = set("malformed", Version::V8_2)?;
    let binary = |text: &str| Binary { subtype: BinarySubtype::Generic, bytes: text.into() };
    let start = |mechanism: &str, text: &str| {
        doc! { "saslStart": 1, "mechanism": mechanism, "payload": binary(text) }
    };
    let go_on = |id: i32, text: &str| {
        doc! { "saslContinue": 1, "conversationId": id, "payload": binary(text) }
    };
    let sha = "SCRAM-SHA-256";
    let good = "n,,n=clerk,r=abcdefgh";
    let mut steps = vec![go_on(1, "x"), start("FOO", good), start("PLAIN", good), start("", good)];
    steps.extend(
        [
            "",
            "x",
            "n,,",
            "n,,n=clerk",
            "n,,n=clerk,r=",
            "n,,n=clerk,r=abc",
            "n,,r=abcdefgh,n=clerk",
            "p=tls-unique,,n=clerk,r=abcdefgh",
            "n,a=reader,n=clerk,r=abcdefgh",
            "n,,m=x,n=clerk,r=abcdefgh",
            "n,,n=nobody,r=abcdefgh",
            "n,,n=cl=erk,r=abcdefgh",
            "y,,n=clerk,r=abcdefgh",
            "n,,n=clerk,r=abcdefgh,x=y",
        ]
        .map(|text| start(sha, text)),
    );
    for last in [
        "",
        "x",
        "c=biws",
        "c=biws,r=abcdefgh,p=AAAA",
        "c=xxxx,r=abcdefgh,p=AAAA",
        "v=AAAA",
        "e=other-error",
    ] {
        steps.extend([start(sha, good), go_on(1, last), go_on(1, last)]);
    }
    // A restarted one, one with another conversation id, one with another database.
    steps.extend([start(sha, good), start("SCRAM-SHA-1", good), go_on(7, "x"), go_on(1, "x")]);
    steps.push(doc! { "saslStart": 1, "mechanism": sha });
    steps.push(doc! { "saslStart": 1, "mechanism": sha, "payload": 5 });
    steps.push(doc! { "saslContinue": 1, "payload": binary("x") });
    let clients = [
        set.ours()?.client_as(&Security::nobody())?,
        set.node(real)?.client_as(&Security::nobody())?,
    ];
    for step in &steps {
        let mut codes = Vec::new();
        for client in &clients {
            codes.push(driver::answer(client, "shop", step.clone())?.get_i32("code").unwrap_or(0));
        }
        ensure!(codes.first() == codes.last(), "{step}: ours and mongod's: {codes:?}");
    }
    for client in &clients {
        let refused = driver::answer(client, "shop", doc! { "find": "carts" })?;
        ensure!(refused.get_i32("code")? == UNAUTHORIZED, "{refused}");
    }
    set.finish()
}

/// usersInfo, rolesInfo, connectionStatus, listDatabases, listCollections: equal for equal users.
fn users_and_roles_are_listed_as_by_a_mongod(version: Version) -> Result<()> {
    let (set, real) = set("listed", version)?;
    let (ours, real) = (set.ours()?, set.node(real)?);
    let known = tests::compare::KnownDifferences::load()?;
    let mut compared = 0;
    for security in [Security::member(KEY), user("clerk")] {
        let (our, their) = (ours.client_as(&security)?, real.client_as(&security)?);
        for (db, command) in [
            ("shop", doc! { "usersInfo": 1 }),
            ("shop", doc! { "usersInfo": "clerk" }),
            ("shop", doc! { "usersInfo": ["clerk", "reader", "nobody"] }),
            (
                "shop",
                doc! { "usersInfo": { "user": "clerk", "db": "shop" }, "showCredentials": true },
            ),
            ("shop", doc! { "rolesInfo": "clerk" }),
            ("shop", doc! { "rolesInfo": { "role": "read", "db": "shop" } }),
            ("admin", doc! { "listDatabases": 1, "nameOnly": true }),
            (
                "shop",
                doc! { "listCollections": 1, "nameOnly": true, "authorizedCollections": true },
            ),
        ] {
            let (want, got) = (
                sorted(driver::answer(&their, db, command.clone())?),
                sorted(driver::answer(&our, db, command.clone())?),
            );
            if want.get_i32("code").is_ok_and(|code| code == UNAUTHORIZED) {
                ensure!(
                    got.get_i32("code").is_ok_and(|code| code == UNAUTHORIZED),
                    "{command}: {got}"
                );
                continue;
            }
            let case =
                format!("{} on {}", command.keys().next().context("a name")?, version.label());
            known.check(&case, &want, &got).with_context(|| command.to_string())?;
            compared += 1;
        }
        let status = doc! { "connectionStatus": 1 };
        let (want, got) =
            (driver::run(&their, "admin", status.clone())?, driver::run(&our, "admin", status)?);
        ensure!(want.get("authInfo") == got.get("authInfo"), "{want}\n{got}");
    }
    ensure!(compared > 8, "only {compared} answers were compared");
    set.finish()
}

/// Sorts lists, whose order is not specified.
fn sorted(mut reply: Document) -> Document {
    for (_, value) in reply.iter_mut() {
        if let bson::Bson::Array(list) = value {
            list.sort_by_key(|item| item.to_string());
        }
    }
    if let Ok(cursor) = reply.get_document_mut("cursor")
        && let Ok(batch) = cursor.get_array_mut("firstBatch")
    {
        batch.sort_by_key(|item| item.to_string());
    }
    reply
}

const UNAUTHORIZED: i32 = 13;

const PYTHON: &str = "
import json, sys, pymongo
seen = {}
for mechanism in ['SCRAM-SHA-1', 'SCRAM-SHA-256']:
    client = pymongo.MongoClient(sys.argv[2], authMechanism=mechanism)
    seen[mechanism] = client.shop.carts.count_documents({})
    try: client.shop.secrets.find_one()
    except pymongo.errors.OperationFailure as error: seen['refused'] = error.code
    client.close()
print(json.dumps(seen))
";

/// Signed times, forged ones, and the fields of an error, from our node and from a mongod.
const TIMES: &str = "
import json, sys, time, pymongo
from bson import Timestamp
def code(run):
    try: run()
    except pymongo.errors.OperationFailure as error: return [error.code, sorted(error.details)]
    return 0
def signed(client): return client.shop.command('ping')['$clusterTime']
def look(client):
    seen = [code(lambda: client.shop.secrets.find_one()), code(lambda: client.shop.command('nonsense'))]
    real = signed(client)
    key, hash = real['signature']['keyId'], real['signature']['hash']
    for signature in [
        {'hash': hash, 'keyId': key}, {'hash': hash, 'keyId': key + 1}, {'hash': bytes(20), 'keyId': 0},
        {'hash': bytes(19), 'keyId': key}, None,
    ]:
        forged = {'clusterTime': Timestamp(real['clusterTime'].time + 1000, 1)}
        if signature is not None: forged['signature'] = signature
        with pymongo.MongoClient(client.uri) as other:
            # Sent with the next command, as if another node had said so.
            other._topology.receive_cluster_time(forged)
            seen.append(code(lambda: other.shop.command('count', 'carts')))
    return seen
clients = []
for uri in sys.argv[2:]:
    clients.append(pymongo.MongoClient(uri)); clients[-1].uri = uri
for _ in range(600):
    ours, real = (signed(client) for client in clients)
    if ours['clusterTime'].time == real['clusterTime'].time: break
    time.sleep(0.1)
else: sys.exit('the two nodes never had the same cluster time')
same = ours['signature'] == real['signature'] and ours['signature']['hash'] != bytes(20)
print(json.dumps({'ours': look(clients[0]), 'mongod': look(clients[1]), 'signed': same}))
";

const NODE: &str = "
const { MongoClient } = require('mongodb');
const count = async (authMechanism) => {
    const client = new MongoClient('URI', { authMechanism });
    try { return await client.db('shop').collection('carts').countDocuments({}); } finally { await client.close(); }
};
(async () => console.log(await count('SCRAM-SHA-1'), await count('SCRAM-SHA-256')))();
";

const SHELL: &str = "
['SCRAM-SHA-1', 'SCRAM-SHA-256'].map(mechanism => {
    const shop = new Mongo(db.getMongo()._uri).getDB('shop');
    shop.auth({ user: 'clerk', pwd: 'pässwörd', mechanism });
    return shop.carts.countDocuments({});
})";
