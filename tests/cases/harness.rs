//! Tests of the harness itself, with real mongods in every role: equal data compares as equal, and differences are
//! found.

use std::time::Duration;

use anyhow::{Result, ensure};
use bson::doc;
use tests::hashes;
use tests::mongod;
use tests::node::Node;
use tests::repl_set::{Member, ReplSet};
use tests::scratch::Scratch;
use tests::scripts;
use tests::servers::Version;
use tests::wait::PATIENCE;

on_each_version!(
    a_set_of_one_with_a_hidden_mongod,
    a_killed_member_comes_back,
    a_standalone_starts_and_stops
);

/// A real mongod in our place joins, catches up, and compares as equal.
fn a_set_of_one_with_a_hidden_mongod(version: Version) -> Result<()> {
    let mut set = ReplSet::named("hidden-mongod").version(version).start()?;
    load(set.primary()?)?;
    let hidden = mongod::options("hidden", version, Some(set.name()))?;
    let hidden = set.add(hidden, Member { votes: 0 })?;
    set.await_state(set.node(hidden)?, "SECONDARY", PATIENCE)?;
    let w2 = doc! { "insert": "carts", "documents": [{ "_id": 100 }], "writeConcern": { "w": 2 } };
    set.primary()?.run("shop", w2)?;
    set.finish()
}

/// Differences in data, options and indexes are all reported.
#[test]
fn differences_are_seen() -> Result<()> {
    let mut scratch = Scratch::new("differences")?;
    let mut nodes = Vec::new();
    for name in ["one", "other"] {
        let node = Node::start(mongod::options(name, Version::V8_2, Some(name))?, &mut scratch)?;
        let member = doc! { "_id": 0, "host": node.host() };
        node.admin(doc! { "replSetInitiate": { "_id": name, "members": [member] } })?;
        tests::wait::wait_for("it is primary", PATIENCE, || {
            Ok(node.admin(doc! { "hello": 1 })?.get_bool("isWritablePrimary")?)
        })?;
        load(&node)?;
        nodes.push(node);
    }
    let [one, other] = nodes.as_slice() else { unreachable!("two were started") };
    other.run("shop", doc! { "insert": "carts", "documents": [{ "_id": 7777 }] })?;
    let index = doc! { "key": { "q": 1 }, "name": "only here" };
    other.run("shop", doc! { "createIndexes": "carts", "indexes": [index] })?;
    let text = hashes::differences(one, other)?.join("\n");
    for part in
        ["dbHash collections of shop: carts", "dbHash uuids of shop", "only here is too many"]
    {
        ensure!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    scratch.finish();
    Ok(())
}

/// SIGKILL and a restart on the same port; a set of three keeps its primary meanwhile.
fn a_killed_member_comes_back(version: Version) -> Result<()> {
    let mut set = ReplSet::named("killed-member").version(version).mongods(3).start()?;
    load(set.primary()?)?;
    let victim = (set.primary_index()? + 1) % 3;
    set.node_mut(victim)?.kill()?;
    set.primary()?.run("shop", doc! { "insert": "carts", "documents": [{ "_id": 200 }] })?;
    set.node_mut(victim)?.restart()?;
    set.await_state(set.node(victim)?, "SECONDARY", PATIENCE)?;
    set.finish()
}

fn a_standalone_starts_and_stops(version: Version) -> Result<()> {
    let mut scratch = Scratch::new("standalone")?;
    let mut node = Node::start(mongod::options("mongod", version, None)?, &mut scratch)?;
    let reply = node.admin(doc! { "buildInfo": 1 })?;
    ensure!(reply.get_str("version")?.starts_with(version.label()), "{reply}");
    ensure!(node.stop()?.success());
    scratch.finish();
    Ok(())
}

/// The config contains the proxies: what they hold back does not reach the set.
#[test]
fn members_reach_each_other_through_their_proxies() -> Result<()> {
    let mut set = ReplSet::named("proxied").proxied().start()?;
    let mut hidden = mongod::options("hidden", Version::V8_2, Some(set.name()))?;
    hidden.proxied = true;
    let hidden = set.add(hidden, Member { votes: 0 })?;
    set.await_state(set.node(hidden)?, "SECONDARY", PATIENCE)?;
    set.node(hidden)?.proxy()?.cut()?;
    set.await_state(set.node(hidden)?, "(not reachable/healthy)", PATIENCE)?;
    set.node(hidden)?.proxy()?.heal()?;
    set.await_state(set.node(hidden)?, "SECONDARY", PATIENCE)?;
    set.finish()
}

/// Every client that the cases use is first tried on a real server.
#[test]
fn foreign_clients_run() -> Result<()> {
    let mut scratch = Scratch::new("clients")?;
    let node = Node::start(mongod::options("mongod", Version::V8_2, None)?, &mut scratch)?;
    load(&node)?;
    let printed = scripts::python_json(PYTHON_COUNT, node.port(), &[])?;
    ensure!(printed["n"] == 100, "pymongo: {printed}");
    let printed = scripts::node(NODE_COUNT, node.port())?;
    ensure!(printed.trim() == "100", "node: {printed}");
    let value = scripts::mongosh("db.getSiblingDB('shop').carts.countDocuments()", node.port())?;
    ensure!(value["$numberInt"] == "100", "mongosh: {value}");
    scripts::tool("mongodump", node.port(), &["--db=shop", "--out=dump"], scratch.path())?;
    ensure!(scratch.path().join("dump/shop/carts.bson").exists());
    scratch.finish();
    Ok(())
}

/// The error of a failing script contains its output.
#[test]
fn a_failing_script_is_quoted() {
    let error = scripts::python("import sys; sys.exit('no luck')", 1, &[]).unwrap_err();
    assert!(format!("{error:#}").contains("no luck"), "{error:#}");
}

/// A wait that fails says what it waited for and what it saw instead.
#[test]
fn a_wait_in_vain_says_what_it_saw() -> Result<()> {
    let set = ReplSet::named("in-vain").start()?;
    let primary = set.primary()?;
    let error = set.await_state(primary, "ARBITER", Duration::from_millis(50)).unwrap_err();
    let text = format!("{error:#}");
    ensure!(text.contains("shows mongod-0 as ARBITER") && text.contains("PRIMARY"), "{text}");
    set.finish()
}

fn load(node: &Node) -> Result<()> {
    let carts: Vec<_> = (0..100).map(|i| doc! { "_id": i, "items": [i, i + 1] }).collect();
    node.run("shop", doc! { "insert": "carts", "documents": carts })?;
    let index = doc! { "key": { "items": 1 }, "name": "items" };
    node.run("shop", doc! { "createIndexes": "carts", "indexes": [index] })?;
    Ok(())
}

const PYTHON_COUNT: &str = "
import json, sys, pymongo
client = pymongo.MongoClient('127.0.0.1', int(sys.argv[1]), directConnection=True)
print(json.dumps({'n': client.shop.carts.count_documents({})}))
";

const NODE_COUNT: &str = "
const { MongoClient } = require('mongodb');
const client = new MongoClient(`mongodb://127.0.0.1:${process.argv[1]}/?directConnection=true`);
client.db('shop').collection('carts').countDocuments()
  .then(n => console.log(n)).finally(() => client.close());
";
