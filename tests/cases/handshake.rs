//! Drivers and shells connect directly to our port.

use anyhow::{Context, Result, ensure};
use bson::doc;
use serde_json::Value;
use tests::node::Node;
use tests::scratch::Scratch;
use tests::{scripts, understudy};

/// Our server alone: without a set name, or with one but without a config, which drivers call RSGhost.
fn alone(test: &str, repl_set: Option<&str>) -> Result<(Node, Scratch)> {
    let mut scratch = Scratch::new(test)?;
    let node = Node::start(understudy::options("ours", repl_set)?, &mut scratch)?;
    Ok((node, scratch))
}

fn end((node, mut scratch): (Node, Scratch)) -> Result<()> {
    tests::logs::assert_no_unexpected_line(&node.log_path(), &[])?;
    scratch.finish();
    Ok(())
}

#[test]
fn every_driver_connects_to_a_standalone() -> Result<()> {
    let ours = alone("standalone", None)?;
    every_driver_connects(&ours.0)?;
    end(ours)
}

#[test]
fn every_driver_connects_to_a_member_without_a_set() -> Result<()> {
    let ours = alone("ghost", Some("lonely"))?;
    let hello = ours.0.admin(doc! { "hello": 1 })?;
    ensure!(!hello.get_bool("isWritablePrimary")? && !hello.get_bool("secondary")?, "{hello}");
    ensure!(hello.get_bool("isreplicaset")? && !hello.contains_key("setName"), "{hello}");
    every_driver_connects(&ours.0)?;
    end(ours)
}

/// The driver's pool and monitor stay connected: the server must close them and end.
#[test]
fn sigterm_ends_it_though_clients_are_connected() -> Result<()> {
    let (mut node, mut scratch) = alone("sigterm", None)?;
    node.admin(doc! { "ping": 1 })?;
    let status = node.stop()?;
    ensure!(status.success(), "SIGTERM ended it with {status}");
    tests::logs::assert_no_unexpected_line(&node.log_path(), &[])?;
    scratch.finish();
    Ok(())
}

fn every_driver_connects(ours: &Node) -> Result<()> {
    rust_driver(ours).context("the Rust driver")?;
    pymongo(ours).context("pymongo")?;
    mongosh(ours).context("mongosh")?;
    let printed = scripts::node(NODE_HELLO, ours.port())?;
    ensure!(printed.trim() == "1 1 1", "the Node driver: {printed}");
    Ok(())
}

fn rust_driver(ours: &Node) -> Result<()> {
    let hello = ours.admin(doc! { "hello": 1 })?;
    ensure!(hello.get_i32("maxBsonObjectSize")? == 16 * 1024 * 1024, "{hello}");
    ensure!(hello.get_i32("maxMessageSizeBytes")? == 48_000_000, "{hello}");
    let ping = ours.admin(doc! { "ping": 1 })?;
    ensure!(ping.get_f64("ok")? == 1.0, "{ping}");
    let build = ours.admin(doc! { "buildInfo": 1 })?;
    ensure!(build.get_array("versionArray")?.len() == 4, "{build}");
    let commands = ours.admin(doc! { "listCommands": 1 })?;
    for name in ["hello", "ping", "buildInfo", "listCommands", "serverStatus"] {
        ensure!(commands.get_document("commands")?.contains_key(name), "{name} is not listed");
    }
    Ok(())
}

fn pymongo(ours: &Node) -> Result<()> {
    let seen = scripts::python_json(PYTHON_HELLO, ours.port(), &[])?;
    for compressor in ["none", "snappy", "zlib", "zstd"] {
        let seen = seen.get(compressor).with_context(|| format!("no {compressor} in {seen}"))?;
        ensure!(seen["ping"] == 1.0 && seen["setName"] == Value::Null, "{compressor}: {seen}");
        ensure!(seen["commands"].as_i64() > Some(20), "{compressor}: {seen}");
        let agreed = if compressor == "none" { Value::Null } else { vec![compressor].into() };
        ensure!(seen["compression"] == agreed, "{compressor}: {seen}");
    }
    Ok(())
}

fn mongosh(ours: &Node) -> Result<()> {
    let script = "({ hello: db.hello().ok, ping: db.adminCommand('ping').ok, version: db.version(), \
                  commands: Object.keys(db.adminCommand('listCommands').commands).length })";
    let seen = scripts::mongosh(script, ours.port())?;
    let version = seen.get("version").and_then(Value::as_str).context("no version")?;
    ensure!(version.contains('.') && seen.get("ping").is_some(), "{seen}");
    Ok(())
}

const PYTHON_HELLO: &str = "
import json, sys, pymongo
seen = {}
for name in ['none', 'snappy', 'zlib', 'zstd']:
    more = {} if name == 'none' else {'compressors': name}
    client = pymongo.MongoClient('127.0.0.1', int(sys.argv[1]), directConnection=True, **more)
    hello = client.admin.command('hello', compression=[] if name == 'none' else [name])
    seen[name] = {
        'setName': hello.get('setName'),
        'compression': hello.get('compression'),
        'ping': client.admin.command('ping')['ok'],
        'version': client.admin.command('buildInfo')['version'],
        'commands': len(client.admin.command('listCommands')['commands']),
    }
    client.close()
print(json.dumps(seen))
";

const NODE_HELLO: &str = "
const { MongoClient } = require('mongodb');
const client = new MongoClient(`mongodb://127.0.0.1:${process.argv[1]}/?directConnection=true`);
const admin = client.db('admin');
(async () => {
  const hello = await admin.command({ hello: 1 });
  const ping = await admin.command({ ping: 1 });
  const build = await admin.command({ buildInfo: 1 });
  console.log(hello.ok, ping.ok, build.ok);
})().finally(() => client.close());
";
