//! Membership: real primaries add us, remove us, and add us again.

use anyhow::{Result, ensure};
use bson::{Bson, doc};
use tests::driver;
use tests::node::Node;
use tests::repl_set::{Member, ReplSet};
use tests::scratch::Scratch;
use tests::servers::Version;
use tests::wait::{PATIENCE, wait_for};
use tests::{scripts, understudy};

on_each_version!(
    a_real_primary_takes_us_in_and_puts_us_out,
    a_forced_reconfig_is_taken,
    a_real_member_finds_what_it_needs,
    with_a_vote_we_count
);

/// rs.add, rs.remove, rs.add again.
fn a_real_primary_takes_us_in_and_puts_us_out(version: Version) -> Result<()> {
    let set = ReplSet::named("in-and-out").version(version).ours_hidden(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    let status = set.primary()?.admin(doc! { "replSetGetStatus": 1 })?;
    let host = set.ours()?.host();
    let members = status.get_array("members")?;
    let ours = members
        .iter()
        .filter_map(Bson::as_document)
        .find(|member| member.get_str("name").is_ok_and(|name| name == host));
    let ours = ours.ok_or_else(|| anyhow::anyhow!("we are not in {status}"))?;
    ensure!(ours.get_f64("health")? == 1.0, "{ours}");
    ensure!(ours.get_str("lastHeartbeatMessage")?.is_empty(), "{ours}");

    let hidden = set.ours()?.admin(doc! { "hello": 1 })?;
    ensure!(hidden.get_bool("hidden")? && hidden.get_bool("passive")?, "{hidden}");
    ensure!(hidden.get_str("me")? == host, "{hidden}");
    let config = set.ours()?.admin(doc! { "replSetGetConfig": 1 })?;
    let theirs = set.primary()?.admin(doc! { "replSetGetConfig": 1 })?;
    ensure!(config.get_document("config")? == theirs.get_document("config")?, "{config}");

    set.reconfig(|config| {
        config.get_array_mut("members")?.retain(|member| !names(member, &host));
        Ok(())
    })?;
    wait_for("we know that we were removed", PATIENCE, || {
        let refused = set.ours()?.answer("admin", doc! { "replSetGetStatus": 1 })?;
        Ok(refused.get_i32("code").is_ok_and(|code| code == INVALID_REPLICA_SET_CONFIG)
            || refused.get_i32("myState").is_ok_and(|state| state == REMOVED))
    })?;
    set.primary()?.run("shop", doc! { "insert": "while_away", "documents": [{ "_id": 1 }] })?;
    set.reconfig(|config| {
        let member = doc! { "_id": 7, "host": &host, "hidden": true, "priority": 0, "votes": 0 };
        config.get_array_mut("members")?.push(member.into());
        Ok(())
    })?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.finish()
}

/// In a set of two voters a majority needs us.
fn with_a_vote_we_count(version: Version) -> Result<()> {
    let set = ReplSet::named("voter").version(version).ours_voting(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_votes()?;
    let majority = doc! { "w": "majority", "wtimeout": 60_000 };
    for i in 0..20 {
        let insert = doc! { "insert": "c", "documents": [{ "_id": i }], "writeConcern": &majority };
        let reply = set.primary()?.run("shop", insert)?;
        ensure!(!reply.contains_key("writeConcernError"), "{reply}");
    }
    let index = doc! { "key": { "x": 1 }, "name": "x" };
    set.primary()?.run("shop", doc! { "createIndexes": "c", "indexes": [index] })?;
    set.finish()
}

/// A build that continues after our restart is ready before we know our config: our vote must still be sent.
#[test]
fn a_restart_does_not_lose_our_vote_for_an_index_build() -> Result<()> {
    let mut set = ReplSet::named("build-vote").ours_voting(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_votes()?;
    set.primary()?.run("shop", doc! { "insert": "c", "documents": [{ "_id": 1, "x": 1 }] })?;
    let port = set.primary()?.port();
    let client = driver::connect(port)?;
    let refuse_votes = |mode: &str| -> Result<()> {
        let data = doc! {
            "failCommands": ["voteCommitIndexBuild"], "failInternalCommands": true, "errorCode": 9001,
        };
        let fail = doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data };
        driver::run(&client, "admin", fail).map(drop)
    };
    refuse_votes("alwaysOn")?;
    std::thread::scope(|scope| -> Result<()> {
        let building = scope.spawn(move || -> Result<bson::Document> {
            let index = doc! { "key": { "x": 1 }, "name": "x" };
            let create = doc! { "createIndexes": "c", "indexes": [index], "maxTimeMS": 60_000 };
            driver::run(&driver::connect(port)?, "shop", create)
        });
        let refused = set.ours()?.await_log("the vote for an index build was not taken", PATIENCE);
        let restarted = refused.and_then(|()| {
            set.ours_mut()?.stop()?;
            refuse_votes("off")?;
            set.ours_mut()?.restart()
        });
        let built = building.join().map_err(|_| anyhow::anyhow!("the builder panicked"))?;
        restarted?;
        built.map(drop)
    })?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.finish()
}

/// A forced reconfig, for when no primary is available, is accepted by us as by any member.
fn a_forced_reconfig_is_taken(version: Version) -> Result<()> {
    let set = ReplSet::named("forced").version(version).ours_hidden(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    let ours = set.ours()?;
    let mut config = config_of(ours)?;
    let before = config.get_i32("version")?;
    for member in config.get_array_mut("members")?.iter_mut().filter_map(Bson::as_document_mut) {
        member.insert("tags", doc! { "forced": "yes" });
    }
    ours.admin(doc! { "replSetReconfig": &config, "force": true })?;
    let taken = config_of(ours)?;
    ensure!(taken.get_i32("version")? >= before + 10_000, "{taken}");
    wait_for("the primary has our config", PATIENCE, || {
        Ok(config_of(set.primary()?)? == config_of(ours)?)
    })?;
    for (code, change) in [(NODE_NOT_FOUND, "members"), (INVALID_REPLICA_SET_CONFIG, "_id")] {
        let mut bad = taken.clone();
        if change == "members" {
            bad.get_array_mut("members")?.truncate(1);
        } else {
            bad.insert("_id", "another");
        }
        let refused = ours.answer("admin", doc! { "replSetReconfig": bad, "force": true })?;
        ensure!(refused.get_i32("code")? == code, "{refused}");
    }
    set.await_state(ours, "SECONDARY", PATIENCE)?;
    set.finish()
}

/// If another node uses our member id, we log it and continue.
#[test]
fn another_node_with_our_id_is_refused() -> Result<()> {
    let set = ReplSet::named("same-id").ours_hidden(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    let config = config_of(set.ours()?)?;
    let heartbeat = doc! {
        "replSetHeartbeat": set.name(), "configVersion": config.get_i32("version")?, "configTerm": 1i64,
        "hbv": 1i64, "from": "127.0.0.1:1", "fromId": 1i64, "term": 1i64,
    };
    let refused = set.ours()?.answer("admin", heartbeat)?;
    ensure!(refused.get_str("errmsg")?.contains("same member ID as ourself"), "{refused}");
    set.ours()?.await_log("same member ID as ourself", PATIENCE)?;
    set.finish()
}

fn config_of(node: &Node) -> Result<bson::Document> {
    Ok(node.admin(doc! { "replSetGetConfig": 1 })?.get_document("config")?.clone())
}

/// We refuse a set with another name, and its primary reports so.
#[test]
fn a_set_of_another_name_does_not_get_us() -> Result<()> {
    let mut set = ReplSet::named("other-name").start()?;
    let mut scratch = Scratch::new("other-name-ours")?;
    let ours = understudy::options("ours", Some("not-that-set"))?;
    let ours = Node::start(ours, &mut scratch)?;
    let reply = set.primary()?.admin(doc! { "replSetGetConfig": 1 })?;
    let mut config = reply.get_document("config")?.clone();
    config.insert("version", config.get_i32("version")? + 1);
    let member = doc! { "_id": 1, "host": ours.host(), "hidden": true, "priority": 0, "votes": 0 };
    config.get_array_mut("members")?.push(member.into());
    let error = set.primary()?.admin(doc! { "replSetReconfig": config }).unwrap_err();
    ensure!(driver::code_of(&error) == Some(NEW_CONFIG_INCOMPATIBLE), "{error:#}");
    scratch.finish();
    set.show_tail(0);
    set.finish()
}

/// Two of our nodes in one set, one of them voting.
#[test]
fn two_of_ours_in_one_set() -> Result<()> {
    let mut set = ReplSet::named("two").ours_hidden(1).start()?;
    let second = understudy::options("ours-second", Some(set.name()))?;
    let second = set.add(second, Member { votes: 1 })?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_state(set.node(second)?, "SECONDARY", PATIENCE)?;
    let three = doc! { "w": 3, "wtimeout": 60_000 };
    let insert = doc! { "insert": "c", "documents": [{ "_id": 1 }], "writeConcern": three };
    set.primary()?.run("shop", insert)?;
    set.finish()
}

/// A driver's monitor with an interval of ten minutes learns of a change at once, because its hello streams.
#[test]
fn the_drivers_monitor_sees_a_state_change_at_once() -> Result<()> {
    let mut set = ReplSet::named("monitor").start()?;
    let mut scratch = Scratch::new("monitor-client")?;
    // It watches from before we join until it sees us as a secondary. A real mongod 8.2 shows no more: its
    // topologyVersion does not change from STARTUP2 to SECONDARY.
    let options = understudy::options("ours", Some(set.name()))?;
    let ours = Node::start(options, &mut scratch)?;
    let port = ours.port();
    let watching = scratch.path().join("watching").display().to_string();
    let file = watching.clone();
    let watcher = std::thread::spawn(move || scripts::python_json(PYTHON_WATCH, port, &[&file]));
    wait_for("the monitor watches", PATIENCE, || Ok(std::fs::exists(&watching)?))?;
    set.adopt(ours, Member { votes: 0 })?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    let seen = watcher.join().map_err(|_| anyhow::anyhow!("the watcher panicked"))??;
    ensure!(seen["ok"] == true, "{seen}");
    ensure!(seen["awaited"].as_i64() > Some(0), "no streamed heartbeat: {seen}");
    scratch.finish();
    set.finish()
}

/// Compares hello of our secondary with that of a real hidden member, field by field.
fn a_real_member_finds_what_it_needs(version: Version) -> Result<()> {
    let mut set = ReplSet::named("beside").version(version).ours_hidden(1).start()?;
    let real = tests::mongod::options("real", version, Some(set.name()))?;
    let real = set.add(real, Member { votes: 0 })?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_state(set.node(real)?, "SECONDARY", PATIENCE)?;
    let known = tests::compare::KnownDifferences::load()?;
    for command in ["hello", "isMaster", "ping"] {
        let (want, got) =
            (set.node(real)?.admin(doc! { command: 1 })?, set.ours()?.admin(doc! { command: 1 })?);
        known.check(&format!("{command} on {}", version.label()), &want, &got)?;
    }
    set.finish()
}

fn names(member: &Bson, host: &str) -> bool {
    member.as_document().is_some_and(|m| m.get_str("host").is_ok_and(|h| h == host))
}

const REMOVED: i32 = 10;
const NODE_NOT_FOUND: i32 = 74;
const INVALID_REPLICA_SET_CONFIG: i32 = 93;
const NEW_CONFIG_INCOMPATIBLE: i32 = 103;

const PYTHON_WATCH: &str = "
import json, sys, threading, pymongo
from pymongo import monitoring
types, awaited, failed, done = [], [0], [], threading.Event()
class Servers(monitoring.ServerListener):
    def opened(self, event): pass
    def closed(self, event): pass
    def description_changed(self, event):
        types.append(event.new_description.server_type_name)
        if types[-1] in ('RSOther', 'RSSecondary'): done.set()
class Beats(monitoring.ServerHeartbeatListener):
    def started(self, event): pass
    def failed(self, event): failed.append(str(event.reply))
    def succeeded(self, event): awaited[0] += event.awaited
client = pymongo.MongoClient('127.0.0.1', int(sys.argv[1]), directConnection=True,
    heartbeatFrequencyMS=600000, serverMonitoringMode='stream', event_listeners=[Servers(), Beats()])
client.admin.command('ping')
open(sys.argv[2], 'w').close()
ok = done.wait(30)
print(json.dumps({'types': types, 'awaited': awaited[0], 'failed': failed, 'ok': ok}))
";
