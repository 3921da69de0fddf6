//! Compares our replies with a real mongod's, command by command, including errors.
//!
//! Both servers are standalone. Accepted differences are in `known_differences.toml`.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use tests::compare::KnownDifferences;
use tests::node::Node;
use tests::scratch::Scratch;
use tests::servers::Version;
use tests::{mongod, understudy};

#[test]
fn a_standalone_answers_like_mongod() -> Result<()> {
    let mut scratch = Scratch::new("replies")?;
    let real = Node::start(mongod::options("mongod", Version::V8_2, None)?, &mut scratch)?;
    let ours = Node::start(understudy::options("ours", None)?, &mut scratch)?;
    let known = KnownDifferences::load()?;
    let mut complaints = Vec::new();
    for (name, db, command) in commands() {
        let (want, got) = (real.answer(db, command.clone())?, ours.answer(db, command)?);
        if let Err(e) = known.check(&format!("standalone {name}"), &want, &got) {
            complaints.push(format!("{e:#}"));
        }
    }
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    scratch.finish();
    Ok(())
}

/// Commands with names for the list of known differences, and their databases.
fn commands() -> Vec<(&'static str, &'static str, Document)> {
    vec![
        ("hello", "admin", doc! { "hello": 1 }),
        ("isMaster", "admin", doc! { "isMaster": 1 }),
        ("ismaster on another database", "test", doc! { "ismaster": 1 }),
        ("ping", "admin", doc! { "ping": 1 }),
        ("connectionStatus", "admin", doc! { "connectionStatus": 1 }),
        ("getParameter one", "admin", doc! { "getParameter": 1, "logLevel": 1 }),
        ("getParameter none", "admin", doc! { "getParameter": 1, "noSuchParameter": 1 }),
        ("getLog names", "admin", doc! { "getLog": "*" }),
        ("getLog of no such name", "admin", doc! { "getLog": "nothing" }),
        ("unknown command", "test", doc! { "noSuchCommand": 1 }),
        ("admin command elsewhere", "test", doc! { "getLog": "global" }),
        ("unknown field", "admin", doc! { "ping": 1, "noSuchField": 1 }),
        ("hello with a wrong type", "admin", doc! { "hello": 1, "compression": "zlib" }),
        ("topologyVersion alone", "admin", doc! { "hello": 1, "maxAwaitTimeMS": 10 }),
        ("replSetGetStatus without a set", "admin", doc! { "replSetGetStatus": 1 }),
        ("replSetGetConfig without a set", "admin", doc! { "replSetGetConfig": 1 }),
        ("endSessions", "admin", doc! { "endSessions": [] }),
        ("refreshSessions", "admin", doc! { "refreshSessions": [] }),
        ("logRotate elsewhere", "test", doc! { "logRotate": 1 }),
        ("getCmdLineOpts elsewhere", "test", doc! { "getCmdLineOpts": 1 }),
        ("database name that is none", "a.b c", doc! { "ping": 1 }),
    ]
}
