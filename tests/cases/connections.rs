//! Many connections: the memory of ten thousand idle ones, and the limit on their number.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bson::doc;
use rustix::process::{Resource, getrlimit, setrlimit};
use tests::node::Node;
use tests::scratch::Scratch;
use tests::servers::Version;
use tests::wait::{PATIENCE, wait_for};
use tests::{mongod, understudy};

/// Opens as many as the limit on open files allows, at most 10,000, each with a handshake.
#[test]
fn ten_thousand_idle_connections_cost_little() -> Result<()> {
    let wanted = CONNECTIONS.min(raise_open_files()?.saturating_sub(300));
    let mut scratch = Scratch::new("idle")?;
    let ours = Node::start(understudy::options("ours", None)?, &mut scratch)?;
    let before = ours.process()?.resident_bytes()?;
    let mut idle = Vec::new();
    for _ in 0..wanted {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, ours.port()))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        say_hello(&mut stream).with_context(|| format!("connection {}", idle.len()))?;
        idle.push(stream);
    }
    let cost = ours.process()?.resident_bytes()?.saturating_sub(before);
    println!("{wanted} idle connections cost {} KiB", cost / 1024);
    ensure!(cost < wanted * 20 * 1024, "{wanted} connections cost {cost} bytes");
    ours.admin(doc! { "ping": 1 })?;
    drop(idle);
    wait_for("the server sees them go", PATIENCE, || {
        let status = ours.admin(doc! { "serverStatus": 1 })?;
        Ok(status.get_document("connections")?.get_i32("current")? < 20)
    })?;
    scratch.finish();
    Ok(())
}

/// Above --maxConns a connection is closed before its first message is read, by mongod and by us.
#[test]
fn one_connection_too_many_is_refused() -> Result<()> {
    let mut scratch = Scratch::new("too-many")?;
    let mut theirs = mongod::options("mongod", Version::V8_2, None)?;
    let mut ours = understudy::options("ours", None)?;
    for options in [&mut theirs, &mut ours] {
        options.args.extend(["--maxConns".to_owned(), MAX_CONNS.to_string()]);
    }
    for options in [theirs, ours] {
        let node = Node::start(options, &mut scratch)?;
        let mut open = Vec::new();
        let refused = loop {
            ensure!(open.len() <= MAX_CONNS, "{} took {} connections", node.name(), open.len());
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, node.port()))?;
            stream.set_read_timeout(Some(Duration::from_secs(30)))?;
            match say_hello(&mut stream) {
                Ok(()) => open.push(stream),
                Err(e) => break e,
            }
        };
        let text = format!("{refused:#}");
        ensure!(!text.contains("timed out"), "{}: {text}", node.name());
        // The driver's own connections count, too.
        ensure!(open.len() > MAX_CONNS / 2, "{} refused after {}", node.name(), open.len());
    }
    scratch.finish();
    Ok(())
}

/// Sends hello in an OP_MSG and reads the reply.
fn say_hello(stream: &mut TcpStream) -> Result<()> {
    let body = bson::serialize_to_vec(&doc! { "hello": 1, "$db": "admin" })?;
    let len = i32::try_from(16 + 5 + body.len())?;
    let head: Vec<u8> = [len, 1, 0, 2013, 0].iter().flat_map(|n| n.to_le_bytes()).collect();
    stream.write_all(&[&head[..], &[0], &body].concat())?;
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let mut rest = vec![0; usize::try_from(i32::from_le_bytes(len))?.saturating_sub(4)];
    stream.read_exact(&mut rest)?;
    Ok(())
}

/// Raises the limit to the hard limit; servers started later inherit it.
fn raise_open_files() -> Result<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("raise the limit on open files")?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

const CONNECTIONS: u64 = 10_000;
const MAX_CONNS: usize = 50;
