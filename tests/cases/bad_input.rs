//! Sends bytes that no driver sends to a real mongod and to our server, which must react alike.
//!
//! The bytes go over a plain socket, since the driver cannot send them. The reactions are described as documents and
//! compared: whether the server replies, with which code, whether it closes the connection. Another client's
//! connection must still work after each of them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::Duration;

use anyhow::{Result, ensure};
use bson::raw::RawDocument;
use bson::{Bson, Document, doc};
use tests::compare::KnownDifferences;
use tests::node::Node;
use tests::scratch::Scratch;
use tests::servers::Version;
use tests::{mongod, understudy};

#[test]
fn bad_messages_are_met_as_mongod_meets_them() -> Result<()> {
    let mut scratch = Scratch::new("bad-input")?;
    let real = Node::start(mongod::options("mongod", Version::V8_2, None)?, &mut scratch)?;
    let ours = Node::start(understudy::options("ours", None)?, &mut scratch)?;
    let known = KnownDifferences::load()?;
    let mut complaints = Vec::new();
    for (name, bytes) in messages() {
        let (want, got) = (reaction(real.port(), &bytes)?, reaction(ours.port(), &bytes)?);
        if let Err(e) = known.check(&format!("bad input {name}"), &want, &got) {
            complaints.push(format!("{e:#}"));
        }
        ours.admin(doc! { "ping": 1 })?;
    }
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    tests::logs::assert_no_unexpected_line(&ours.log_path(), &[])?;
    scratch.finish();
    Ok(())
}

/// A client that sends requests and never reads must not affect others.
#[test]
fn a_client_that_stops_reading_holds_up_nobody() -> Result<()> {
    let mut scratch = Scratch::new("stops-reading")?;
    let ours = Node::start(understudy::options("ours", None)?, &mut scratch)?;
    let mut deaf = TcpStream::connect((Ipv4Addr::LOCALHOST, ours.port()))?;
    deaf.set_write_timeout(Some(Duration::from_secs(2)))?;
    let padding = "x".repeat(10_000);
    let ask = doc! { "listCommands": 1, "comment": padding, "$db": "admin" };
    let ask = op_msg(0, &body(&ask));
    // Some megabytes fit into the socket buffers; then the server must stop reading from us.
    let stopped = (0..10_000).try_for_each(|_| deaf.write_all(&ask));
    ensure!(stopped.is_err(), "the server took 100 MB of requests whose answers nobody reads");
    let before = ours.process()?.resident_bytes()?;
    for _ in 0..100 {
        ours.admin(doc! { "ping": 1 })?;
    }
    ensure!(before < 200 << 20, "{before} bytes are held for a client that does not read");
    drop(deaf);
    scratch.finish();
    Ok(())
}

/// Messages with names for the list of known differences.
fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let ping = body(&doc! { "ping": 1, "$db": "admin" });
    let mut list = vec![
        ("a length below the header's", header(10, OP_MSG)),
        ("a negative length", header(-5, OP_MSG)),
        ("a length beyond the limit", header(48_000_001, OP_MSG)),
        ("an opcode that is none", message(9999, &ping)),
        ("an opcode of the past", message(2002, &ping)),
        ("no section", op_msg(0, &[])),
        ("a section of no kind", op_msg(0, &[7, 5, 0, 0, 0, 0])),
        ("two body sections", op_msg(0, &[ping.clone(), ping.clone()].concat())),
        ("a required flag that is none", op_msg(1 << 5, &ping)),
        ("an optional flag that is none", op_msg(1 << 20, &ping)),
        ("a wrong checksum", op_msg(1, &[ping.as_slice(), &[1, 2, 3, 4]].concat())),
        ("a document that overruns its section", op_msg(0, &overrun(&ping))),
        ("a document without an end", op_msg(0, &without_end(&ping))),
        ("a key that is no UTF-8", op_msg(0, &replace(&ping, b"ping", b"p\xffng"))),
        ("a value of no type", op_msg(0, &replace(&ping, b"\x10ping", b"\x55ping"))),
        ("nesting within the limit", op_msg(0, &body(&nested(150)))),
        ("nesting beyond the limit", op_msg(0, &body(&nested(250)))),
        ("a body without $db", op_msg(0, &body(&doc! { "ping": 1 }))),
        ("an empty body", op_msg(0, &body(&doc! {}))),
        ("a sequence and no body", op_msg(0, &sequence())),
        ("a request of a browser", b"GET / HTTP/1.1\r\nHost: here\r\n\r\n".to_vec()),
        ("a legacy query that is no hello", op_query("test.c", &doc! { "a": 1 })),
        ("a legacy hello", op_query("admin.$cmd", &doc! { "isMaster": 1 })),
    ];
    list.extend(compressed());
    list
}

/// Compression envelopes that were not negotiated, claim wrong lengths, or contain another envelope.
fn compressed() -> Vec<(&'static str, Vec<u8>)> {
    let inner = [0u32.to_le_bytes().to_vec(), body(&doc! { "ping": 1, "$db": "admin" })].concat();
    let envelope = |compressor: u8, opcode: i32, claimed: i32, bytes: &[u8]| {
        let (opcode, claimed) = (opcode.to_le_bytes(), claimed.to_le_bytes());
        message(OP_COMPRESSED, &[&opcode[..], &claimed[..], &[compressor], bytes].concat())
    };
    let len = i32::try_from(inner.len()).unwrap_or_default();
    vec![
        ("an envelope without compression", envelope(0, OP_MSG, len, &inner)),
        ("a compressor that was not agreed on", envelope(2, OP_MSG, len, &inner)),
        ("a compressor that is none", envelope(99, OP_MSG, len, &inner)),
        ("an envelope that claims too much", envelope(0, OP_MSG, 47_000_000, &inner)),
        ("an envelope that claims a negative length", envelope(0, OP_MSG, -1, &inner)),
        ("an envelope in an envelope", envelope(0, OP_COMPRESSED, len, &inner)),
        ("an envelope with snappy and rubbish", envelope(1, OP_MSG, len, &[0xff; 40])),
    ]
}

/// The server's reaction as a document.
pub(crate) fn reaction(port: u16, bytes: &[u8]) -> Result<Document> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(SILENCE))?;
    // A server that closes early may not read everything.
    let _ = stream.write_all(bytes);
    let first = read_reply(&mut stream);
    let mut seen = doc! { "first": first.clone() };
    if first.get_str("says").ok() != Some("closes") {
        let ping = op_msg(0, &body(&doc! { "ping": 1, "$db": "admin" }));
        let _ = stream.write_all(&ping);
        seen.insert("then", read_reply(&mut stream));
    }
    let _ = stream.shutdown(Shutdown::Both);
    Ok(seen)
}

fn read_reply(stream: &mut TcpStream) -> Document {
    let mut head = [0; 16];
    if let Err(e) = stream.read_exact(&mut head) {
        return match e.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => doc! { "says": "nothing" },
            _ => doc! { "says": "closes" },
        };
    }
    let int = |at: usize| {
        let bytes = head.get(at..at + 4).and_then(|b| b.try_into().ok()).unwrap_or_default();
        i32::from_le_bytes(bytes)
    };
    if head.starts_with(b"HTTP") {
        return doc! { "says": "something to a browser" };
    }
    let mut rest = vec![0; usize::try_from(int(0)).unwrap_or(16).saturating_sub(16)];
    if stream.read_exact(&mut rest).is_err() {
        return doc! { "says": "half a message" };
    }
    let skip = if int(12) == OP_MSG { 5 } else { 20 };
    let mut seen = doc! { "opcode": int(12) };
    let Some(Ok(body)) = rest.get(skip..).map(RawDocument::from_bytes) else { return seen };
    // A text may quote bytes that are not UTF-8.
    for element in body.iter_elements().flatten() {
        let told = ["ok", "code", "codeName", "errmsg", "$err"].contains(&element.key().as_str());
        if told && let Ok(value) = element.value_utf8_lossy() {
            seen.insert(element.key().as_str(), Bson::try_from(value).unwrap_or(Bson::Null));
        }
    }
    seen
}

fn header(len: i32, opcode: i32) -> Vec<u8> {
    [len, 77, 0, opcode].iter().flat_map(|field| field.to_le_bytes()).collect()
}

fn message(opcode: i32, rest: &[u8]) -> Vec<u8> {
    let len = i32::try_from(16 + rest.len()).unwrap_or(i32::MAX);
    [header(len, opcode), rest.to_vec()].concat()
}

pub(crate) fn op_msg(flags: u32, sections: &[u8]) -> Vec<u8> {
    message(OP_MSG, &[&flags.to_le_bytes()[..], sections].concat())
}

fn op_query(ns: &str, query: &Document) -> Vec<u8> {
    let numbers = [0i32.to_le_bytes(), (-1i32).to_le_bytes()].concat();
    let parts = [&0i32.to_le_bytes()[..], ns.as_bytes(), &[0], &numbers, &bytes_of(query)];
    message(2004, &parts.concat())
}

/// A section of kind 0.
pub(crate) fn body(document: &Document) -> Vec<u8> {
    [vec![0], bytes_of(document)].concat()
}

/// A section of kind 1.
fn sequence() -> Vec<u8> {
    let inner = [&b"documents\0"[..], &bytes_of(&doc! { "_id": 1 })].concat();
    let len = u32::try_from(inner.len() + 4).unwrap_or_default();
    [&[1u8][..], &len.to_le_bytes(), &inner].concat()
}

fn bytes_of(document: &Document) -> Vec<u8> {
    bson::serialize_to_vec(document).unwrap_or_default()
}

fn nested(depth: u32) -> Document {
    let inner = (0..depth).fold(doc! {}, |inner, _| doc! { "a": inner });
    doc! { "ping": 1, "$db": "admin", "comment": inner }
}

/// Makes the length field larger than the content.
fn overrun(section: &[u8]) -> Vec<u8> {
    let mut bytes = section.to_vec();
    if let Some(len) = bytes.get_mut(1) {
        *len = len.wrapping_add(9);
    }
    bytes
}

fn without_end(section: &[u8]) -> Vec<u8> {
    let mut bytes = section.to_vec();
    if let Some(last) = bytes.last_mut() {
        *last = 1;
    }
    bytes
}

fn replace(section: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let at = section.windows(from.len()).position(|window| window == from).unwrap_or_default();
    let (before, rest) = section.split_at(at);
    let (_, after) = rest.split_at(from.len());
    [before, to, after].concat()
}

const OP_MSG: i32 = 2013;
const OP_COMPRESSED: i32 = 2012;
/// A server that has not replied after this time is waiting for more.
const SILENCE: Duration = Duration::from_secs(2);
