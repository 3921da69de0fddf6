//! Finds, reads, dumps, exports and restores dropped collections.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use bson::{Document, doc};
use serde_json::json;
use tests::driver::{self, Security};
use tests::hashes::Picture;
use tests::mongod;
use tests::node::Node;
use tests::process::Process;
use tests::repl_set::{ReplSet, applied};
use tests::scripts::{mongosh_as, tool, tool_at, understudy_tools};
use tests::servers::Version;
use tests::understudy;
use tests::wait::{PATIENCE, wait_until};

on_each_version!(what_was_dropped_is_read_dumped_and_restored);

fn what_was_dropped_is_read_dumped_and_restored(version: Version) -> Result<()> {
    let set = ReplSet::named("undo").version(version).ours_hidden(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    let primary = set.primary()?;
    fill(primary)?;
    let picture = Picture::take(primary, None)?;
    let before = applied(primary)?;
    primary.run("shop", doc! { "drop": "orders" })?;
    primary.run("depot", doc! { "dropDatabase": 1 })?;
    primary.run("shop", doc! { "insert": "other", "documents": [{ "_id": 1 }] })?;
    set.await_caught_up()?;

    let at = format!("Timestamp({},{})", before.time, before.increment);
    let dir = tempfile::tempdir().context("a directory")?;
    let case = Case { set: &set, picture: &picture, at: &at, dir: dir.path() };
    case.it_is_found()?;
    case.pinned_connections_see_it()?;
    case.mongodump_dumps_it()?;
    case.export_writes_what_mongorestore_reads()?;
    case.restore_brings_it_back()?;
    case.wrong_moments_are_refused()?;
    set.finish()
}

/// The target dies in the middle of a restore; the same command resumes when it is back.
#[test]
fn a_restore_goes_on_after_its_target_died() -> Result<()> {
    let mut set = ReplSet::named("resume").ours_hidden(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    fill(set.primary()?)?;
    set.await_caught_up()?;
    let picture = Picture::take(set.primary()?, None)?;
    let mut target = mongod::options("target", Version::V8_2, None)?;
    target.args = vec!["--setParameter".to_owned(), "enableTestCommands=1".to_owned()];
    let mut target = Node::start(target, set.scratch())?;
    target.admin(doc! {
        "configureFailPoint": "failCommand", "mode": { "skip": 2 },
        "data": { "failCommands": ["insert"], "closeConnection": true },
    })?;
    let dir = tempfile::tempdir().context("a directory")?;
    let from = format!("mongodb://127.0.0.1:{}", set.ours()?.port());
    let to = format!("mongodb://127.0.0.1:{}/?directConnection=true", target.port());
    let restore = ["restore", "--from", &from, "--at", "now", "--to", &to];
    let cut = understudy_tools(&restore, dir.path()).err();
    let cut = cut.map(|e| format!("{e:#}")).unwrap_or_default();
    ensure!(cut.contains("is not whole; run the same command again"), "{cut}");
    target.kill()?;
    let gone = understudy_tools(&restore, dir.path()).err();
    ensure!(gone.is_some_and(|e| !format!("{e:#}").contains("panicked")));
    target.restart()?;
    let done = understudy_tools(&restore, dir.path())?;
    ensure!(done.contains("(done already)") && done.contains("restored 6 collections"), "{done}");
    let restored = Picture::take(&target, None)?;
    for (db, name) in dropped(Version::V8_2) {
        let (want, got) = (picture.hash(db, name), restored.hash(db, name));
        ensure!(want.is_some() && want == got, "{db}.{name}: {want:?} and {got:?}");
        let (want, got) = (picture.indexes(db, name), restored.indexes(db, name));
        ensure!(want.is_some() && want == got, "{db}.{name}: {want:?} and {got:?}");
    }
    drop(target);
    set.finish()
}

fn fill(primary: &Node) -> Result<()> {
    let orders: Vec<Document> = (0..2500)
        .map(|i| doc! { "_id": i, "n": i % 50, "text": format!("{i} ").repeat(20) })
        .collect();
    let collation = doc! { "locale": "de", "strength": 2 };
    primary.run("shop", doc! { "create": "orders", "validator": { "n": { "$gte": 0 } } })?;
    primary.run("shop", doc! { "insert": "orders", "documents": orders })?;
    primary.run("shop", doc! { "createIndexes": "orders", "indexes": [
        { "key": { "n": 1, "_id": -1 }, "name": "by_n", "unique": true },
        { "key": { "text": 1 }, "name": "short", "partialFilterExpression": { "n": { "$lt": 9 } } },
    ] })?;
    primary.run("depot", doc! { "create": "ring", "capped": true, "size": 100_000 })?;
    let rows: Vec<Document> = (0..40).map(|i| doc! { "_id": 100 - i }).collect();
    primary.run("depot", doc! { "insert": "ring", "documents": rows })?;
    primary.run("depot", doc! { "create": "names", "collation": collation })?;
    let names = [doc! { "_id": "ä" }, doc! { "_id": "Z" }, doc! { "_id": 1.5 }];
    primary.run("depot", doc! { "insert": "names", "documents": names.to_vec() })?;
    primary.run(
        "depot",
        doc! { "create": "small", "viewOn": "ring", "pipeline": [{ "$limit": 3 }] },
    )?;
    let version = primary.version();
    if version >= Some(Version::V5_0) {
        let series = doc! { "timeField": "at", "metaField": "who" };
        primary.run("depot", doc! { "create": "series", "timeseries": series })?;
        let measured =
            |i: i64| doc! { "at": bson::DateTime::from_millis(i * 1000), "who": i % 3, "n": i };
        let measured: Vec<Document> = (0..60).map(measured).collect();
        primary.run("depot", doc! { "insert": "series", "documents": measured })?;
        let index = doc! { "key": { "who": 1, "at": -1 }, "name": "latest" };
        primary.run("depot", doc! { "createIndexes": "series", "indexes": [index] })?;
    }
    if version >= Some(Version::V8_2) {
        let by_id = doc! { "key": { "_id": 1 }, "unique": true, "name": "clustered" };
        primary.run("depot", doc! { "create": "near", "clusteredIndex": by_id })?;
        let rows: Vec<Document> = (0..9).map(|i| doc! { "_id": i, "n": 9_i64 - i }).collect();
        primary.run("depot", doc! { "insert": "near", "documents": rows })?;
        let index = doc! { "key": { "n": 1_i64 }, "name": "long" };
        primary.run("depot", doc! { "createIndexes": "near", "indexes": [index] })?;
    }
    let set = doc! { "q": { "_id": 7 }, "u": { "$set": { "n": 57 } } };
    primary.run("shop", doc! { "update": "orders", "updates": [set] })?;
    Ok(())
}

struct Case<'a> {
    set: &'a ReplSet,
    picture: &'a Picture,
    at: &'a str,
    dir: &'a Path,
}

/// The compared collections, with their original databases.
fn dropped(version: Version) -> Vec<(&'static str, &'static str)> {
    let mut names = vec![("shop", "orders"), ("depot", "ring"), ("depot", "names")];
    if version >= Version::V5_0 {
        names.push(("depot", "system.buckets.series"));
    }
    if version >= Version::V8_2 {
        names.push(("depot", "near"));
    }
    names
}

impl Case<'_> {
    fn tools(&self, args: &[&str]) -> Result<String> {
        let from = format!("mongodb://127.0.0.1:{}", self.set.ours()?.port());
        let (command, rest) = args.split_first().context("a command")?;
        let args: Vec<&str> =
            [*command, "--from", &from].into_iter().chain(rest.iter().copied()).collect();
        understudy_tools(&args, self.dir)
    }

    /// The output of `diff`, which exits with 1 because there are differences.
    fn differences(&self, args: &[&str]) -> Result<String> {
        let failed = self.tools(args).err().context("there are no differences")?;
        Ok(format!("{failed:#}"))
    }

    /// Checks that the collections are back in the primary, in these databases.
    fn is_back(&self, shop: &str, depot: &str) -> Result<()> {
        let now = Picture::take(self.set.primary()?, None)?;
        let version = self.set.primary()?.version().context("a mongod")?;
        for (db, name) in dropped(version) {
            let to = if db == "shop" { shop } else { depot };
            let (want, got) = (self.picture.hash(db, name), now.hash(to, name));
            ensure!(want.is_some() && want == got, "{db}.{name}: {want:?} and {got:?} in {to}");
            let (want, got) = (self.picture.indexes(db, name), now.indexes(to, name));
            ensure!(want.is_some() && want == got, "{db}.{name}: {want:?} and {got:?} in {to}");
            let (want, got) = (self.picture.options(db, name), now.options(to, name));
            ensure!(want.is_some() && want == got, "{db}.{name}: {want:?} and {got:?} in {to}");
        }
        let (want, got) = (self.picture.options("depot", "small"), now.options(depot, "small"));
        ensure!(want.is_some() && want == got, "the view: {want:?} and {got:?} in {depot}");
        Ok(())
    }

    fn it_is_found(&self) -> Result<()> {
        let drops = self.tools(&["find-drop"])?;
        for part in ["collection dropped  shop.orders", "database dropped  depot", "readable --at"]
        {
            ensure!(drops.contains(part), "{drops}");
        }
        // A database is dropped collection by collection: one must read before the first of these drops.
        let way_back = drops.split("database dropped  depot").nth(1).context("the database")?;
        let way_back = way_back.split('\'').nth(1).context("a moment")?;
        for at in [self.at, way_back] {
            let at = self.tools(&["at", at])?;
            ensure!(at.contains("depot.ring") && at.contains("depot.names"), "{at}");
        }
        let at = self.tools(&["at", self.at])?;
        ensure!(at.contains("2500") && at.contains("depot.small (view)"), "{at}");
        let diff = self.differences(&["diff", self.at, "now"])?;
        ensure!(diff.contains("shop.orders: 0 added, 2500 removed"), "{diff}");
        ensure!(diff.contains("shop.other: 1 added"), "{diff}");
        let misspelt = self.tools(&["diff", self.at, "now", "shop.odrers"]).err();
        ensure!(misspelt.is_some_and(|e| format!("{e:#}").contains("there was no shop.odrers")));
        let log = self.tools(&["log", "shop.orders", "7"])?;
        ensure!(log.contains("insert") && log.contains("update") && log.contains("57"), "{log}");
        Ok(())
    }

    fn pinned_connections_see_it(&self) -> Result<()> {
        let port = self.set.ours()?.port();
        let name = format!("@{}", self.at);
        let counted = "({n: db.getSiblingDB('shop').orders.countDocuments({}), \
                       dbs: db.getMongo().getDBNames(), idx: db.getSiblingDB('shop').orders.getIndexes().length})";
        let seen = mongosh_as(counted, port, &name)?;
        ensure!(seen.pointer("/n/$numberInt") == Some(&json!("2500")), "{seen}");
        ensure!(seen.pointer("/idx/$numberInt") == Some(&json!("3")), "{seen}");
        ensure!(seen.to_string().contains("depot"), "{seen}");
        let client = driver::connect_as(port, &Security::named(&name))?;
        let hello = driver::run(&client, "admin", doc! { "hello": 1 })?;
        let shown = hello.get_document("lastWrite")?.get_document("opTime")?.get_timestamp("ts")?;
        ensure!(format!("Timestamp({},{})", shown.time, shown.increment) == self.at, "{hello}");
        ensure!(hello.get_timestamp("operationTime")? == shown);
        Ok(())
    }

    /// The database tools cannot set an appName: they pass the moment as their region, or use a port that sets the
    /// appName.
    fn mongodump_dumps_it(&self) -> Result<()> {
        let primary = self.set.primary()?.port();
        let ours = self.set.ours()?.port();
        let from = format!("mongodb://127.0.0.1:{ours}");
        let mut command = Command::new(understudy::tools()?);
        command.args(["serve", "--from", &from, "--at", self.at]);
        let log = self.dir.join("serve");
        let _serving = Process::spawn("serve", &command, &log)?;
        let port = wait_until("the port of the past is open", PATIENCE, || {
            let said = std::fs::read_to_string(&log)?;
            let port = said.split("127.0.0.1:").nth(1).and_then(|rest| rest.split('/').next());
            Ok(port.and_then(|port| port.parse::<u16>().ok()))
        })?;
        tool_at("mongodump", self.at, ours, &["--archive=dumped"], self.dir)?;
        let refused = tool_at("mongodump", "-9999d", ours, &["--archive=refused"], self.dir).err();
        let refused = refused.map(|e| format!("{e:#}")).unwrap_or_default();
        ensure!(refused.contains("Readable are Timestamp("), "{refused}");
        let args = [
            "--archive=dumped",
            "--nsInclude=shop.*",
            "--nsInclude=depot.*",
            "--nsFrom=$db$.$c$",
            "--nsTo=dumped_$db$.$c$",
        ];
        tool("mongorestore", primary, &args, self.dir)?;
        let lines = tool("mongoexport", port, &["-d", "depot", "-c", "ring"], self.dir)?;
        ensure!(lines.lines().filter(|line| line.starts_with("{\"_id\"")).count() == 40, "{lines}");
        self.is_back("dumped_shop", "dumped_depot")
    }

    fn export_writes_what_mongorestore_reads(&self) -> Result<()> {
        let primary = self.set.primary()?.port();
        self.tools(&["export", "--at", self.at, "--ns", "shop", "--ns", "depot", "exported"])?;
        let args = ["--archive=exported", "--nsFrom=$db$.$c$", "--nsTo=exported_$db$.$c$"];
        tool("mongorestore", primary, &args, self.dir)?;
        self.is_back("exported_shop", "exported_depot")
    }

    fn restore_brings_it_back(&self) -> Result<()> {
        let to =
            format!("mongodb://127.0.0.1:{}/?directConnection=true", self.set.primary()?.port());
        let restore =
            ["restore", "--at", self.at, "--ns", "shop.orders", "--ns", "depot", "--to", &to];
        let dry = self.tools(&[&restore[..], &["--dry-run"]].concat())?;
        ensure!(dry.contains("shop.orders -> shop.orders, 2,500 documents"), "{dry}");
        self.tools(&restore)?;
        self.is_back("shop", "depot")?;
        let again = self.tools(&restore).err().map(|e| format!("{e:#}")).unwrap_or_default();
        ensure!(again.contains("target has") && again.contains("--drop"), "{again}");
        self.tools(&[&restore[..], &["--drop", "--yes"]].concat())?;
        self.is_back("shop", "depot")?;
        let renamed = ["--rename", "shop.orders=beside.orders", "--rename", "depot=beside"];
        self.tools(&[&restore[..], &renamed].concat())?;
        self.is_back("beside", "beside")?;
        self.a_state_of_another_restore_is_not_taken_up(&to)?;
        self.renamed_time_series_have_their_data(&to)?;
        self.set.await_caught_up()?;
        let equal = self.tools(&["verify", "--primary", &to])?;
        ensure!(equal.contains("are equal"), "{equal}");
        Ok(())
    }

    fn a_state_of_another_restore_is_not_taken_up(&self, to: &str) -> Result<()> {
        let other = json!({ "command": "--at -1h", "ts": null, "collections": {} });
        let path = self.dir.join("other.json");
        std::fs::write(&path, other.to_string())?;
        let restore = ["restore", "--at", self.at, "--to", to, "--state", "other.json"];
        let refused = self.tools(&restore).err().map(|e| format!("{e:#}")).unwrap_or_default();
        ensure!(refused.contains("the state of another restore"), "{refused}");
        Ok(())
    }

    fn renamed_time_series_have_their_data(&self, to: &str) -> Result<()> {
        if self.set.primary()?.version() < Some(Version::V5_0) {
            return Ok(());
        }
        let rename = "depot.series=depot.again";
        let restore =
            ["restore", "--at", self.at, "--ns", "depot.series", "--to", to, "--rename", rename];
        self.tools(&restore)?;
        let counted =
            self.set.primary()?.client().database("depot").collection::<Document>("again");
        ensure!(counted.count_documents(doc! {}).run()? == 60);
        Ok(())
    }

    fn wrong_moments_are_refused(&self) -> Result<()> {
        let port = self.set.ours()?.port();
        for (name, says) in [
            ("@2001-01-01T00:00:00Z", "before the history window"),
            ("@2101-01-01T00:00:00Z", "in the future"),
            ("@2026-11-16T12:00:00 Mars/Base", "there is no zone Mars/Base"),
            ("@yesterday", "is not a moment"),
        ] {
            let client = driver::connect_as(port, &Security::named(name))?;
            let refused = driver::run(&client, "admin", doc! { "ping": 1 }).err();
            let refused = refused.map(|e| format!("{e:#}")).unwrap_or_default();
            ensure!(refused.contains(says), "{name}: {refused}");
            ensure!(refused.contains("Readable are Timestamp("), "{name}: {refused}");
            let moment = name.trim_start_matches('@');
            let refused = self.tools(&["at", moment]).err().map(|e| format!("{e:#}"));
            ensure!(refused.is_some_and(|text| !text.contains("panicked")), "{moment}");
        }
        Ok(())
    }
}
