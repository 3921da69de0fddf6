//! hello and isMaster: the handshake, and how drivers watch a server.
//!
//! With `topologyVersion` and `maxAwaitTimeMS` the answer waits until the topology changes; with the exhaust
//! flag it repeats itself, each time with the topology version just sent.

use std::{future::Future, time::Duration};

use bson::{
    DateTime, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, oid::ObjectId, raw::cstr,
    rawdoc,
};
use protocol::{ErrorCode, RawDoc};

use super::{Api, Auth, Command, Run, Waiting};
use crate::{
    context::{Call, Outcome, Reply, Then},
    error::Failure,
    sessions::TIMEOUT_MINUTES,
};

pub(super) const HELLO: Command = Command {
    name: "hello",
    help: "Tells who this server is and what it can do.",
    auth: Auth::None,
    api: Api::V1,
    by_op_query: true,
    waits_on_purpose: true,
    class: Some(super::OpClass::Command),
    run: Run::Waiting(|call| boxed(hello(call, Words::Hello))),
    ..Command::DEFAULT
};

pub(super) const IS_MASTER: Command = Command {
    name: "isMaster",
    aliases: &["ismaster"],
    help: "Tells who this server is and what it can do, in the words of old.",
    run: Run::Waiting(|call| boxed(hello(call, Words::IsMaster))),
    api: Api::None,
    ..HELLO
};

fn boxed(future: impl Future<Output = Outcome> + Send + 'static) -> Waiting {
    Box::pin(future)
}

/// `isWritablePrimary` or `ismaster`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Words {
    Hello,
    IsMaster,
}

async fn hello(call: Call, words: Words) -> Outcome {
    let asked = Asked::parse(&call)?;
    settle(&call, &asked);
    if let Some(wait) = &asked.wait {
        wait_for_change(&call, wait, words).await?;
    }
    let body = compose(&call, &asked, words);
    let then = match &asked.wait {
        Some(_) if call.exhaust_allowed => next_request(&call.body, &body),
        _ => Then::Wait,
    };
    Ok(Reply { body, then })
}

/// What the request says.
struct Asked {
    hello_ok: bool,
    internal: Option<Internal>,
    /// `compression`, if it was sent: the part of it that we have too.
    compressors: Option<protocol::Compressors>,
    metadata: Option<RawDoc>,
    wait: Option<Wait>,
}

/// `internalClient`.
struct Internal;

/// `topologyVersion` and `maxAwaitTimeMS`.
struct Wait {
    process_id: ObjectId,
    counter: i64,
    max: Duration,
}

impl Asked {
    fn parse(call: &Call) -> Result<Self, Failure> {
        let body = call.body.as_raw();
        Ok(Self {
            hello_ok: flag(call, "helloOk")?,
            internal: internal(call, body)?,
            compressors: compression(call, body),
            metadata: metadata(call, body)?,
            wait: wait(call, body)?,
        })
    }
}

fn field<'a>(body: &'a RawDocument, name: &str) -> Option<RawBsonRef<'a>> {
    body.get(name).ok().flatten()
}

fn flag(call: &Call, name: &str) -> Result<bool, Failure> {
    match field(&call.body, name) {
        None => Ok(false),
        Some(RawBsonRef::Boolean(value)) => Ok(value),
        Some(RawBsonRef::Int32(n)) => Ok(n != 0),
        Some(RawBsonRef::Int64(n)) => Ok(n != 0),
        Some(RawBsonRef::Double(n)) => Ok(n != 0.0),
        Some(RawBsonRef::Decimal128(_)) => Ok(true),
        Some(other) => {
            let expected = "types '[decimal, long, double, int, bool]'";
            Err(Failure::wrong_type(format!("{}.{name}", call.name), other, expected))
        }
    }
}

fn internal(call: &Call, body: &RawDocument) -> Result<Option<Internal>, Failure> {
    let Some(value) = field(body, "internalClient") else { return Ok(None) };
    let path = |name: &str| format!("{}.internalClient{name}", call.name);
    let RawBsonRef::Document(client) = value else {
        return Err(Failure::wrong_type(path(""), value, "type 'object'"));
    };
    for element in client.iter().flatten() {
        let name = element.0.as_str();
        if name != "minWireVersion" && name != "maxWireVersion" {
            return Err(Failure::UnknownField(path(&format!(".{name}"))));
        }
    }
    for name in ["minWireVersion", "maxWireVersion"] {
        if field(client, name).is_none() {
            return Err(Failure::MissingField(path(&format!(".{name}"))));
        }
    }
    Ok(Some(Internal))
}

fn compression(call: &Call, body: &RawDocument) -> Option<protocol::Compressors> {
    let RawBsonRef::Array(names) = field(body, "compression")? else { return None };
    let offered = names.into_iter().flatten().filter_map(|name| name.as_str());
    Some(call.node().compressors().negotiate(offered))
}

/// mongod's limit for drivers; members and routers may send more.
const METADATA_LEN_MAX: usize = 512;

fn metadata(call: &Call, body: &RawDocument) -> Result<Option<RawDoc>, Failure> {
    match field(body, "client") {
        None => Ok(None),
        Some(RawBsonRef::Document(client)) => {
            if client.as_bytes().len() > METADATA_LEN_MAX && field(body, "internalClient").is_none()
            {
                let text = "The client metadata document must be less then or equal to 512 bytes";
                return Err(Failure::said(ErrorCode::from_code(187), text));
            }
            Ok(Some(RawDoc::from(client)))
        }
        Some(_) => {
            let text = "The client metadata document must be a document";
            let _ = call;
            Err(Failure::said(ErrorCode::TypeMismatch, text))
        }
    }
}

fn wait(call: &Call, body: &RawDocument) -> Result<Option<Wait>, Failure> {
    let (version, max) = match (field(body, "topologyVersion"), field(body, "maxAwaitTimeMS")) {
        (None, None) => return Ok(None),
        (Some(version), Some(max)) => (version, max),
        (Some(_), None) => {
            let text = "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'";
            return Err(Failure::said(ErrorCode::from_code(31368), text));
        }
        (None, Some(_)) => {
            let text = "A request with 'maxAwaitTimeMS' must include a 'topologyVersion'";
            return Err(Failure::said(ErrorCode::from_code(31368), text));
        }
    };
    let path = |name: &str| format!("{}.topologyVersion{name}", call.name);
    let RawBsonRef::Document(version) = version else {
        return Err(Failure::wrong_type(path(""), version, "type 'object'"));
    };
    let process_id = match field(version, "processId") {
        Some(RawBsonRef::ObjectId(id)) => id,
        Some(other) => {
            return Err(Failure::wrong_type(path(".processId"), other, "type 'objectId'"));
        }
        None => return Err(Failure::MissingField(path(".processId"))),
    };
    let counter = match field(version, "counter") {
        Some(RawBsonRef::Int64(counter)) => counter,
        Some(other) => return Err(Failure::wrong_type(path(".counter"), other, "type 'long'")),
        None => return Err(Failure::MissingField(path(".counter"))),
    };
    let millis = await_millis(call, max)?;
    if counter < 0 {
        let text = "topologyVersion must have a non-negative counter";
        return Err(Failure::said(ErrorCode::from_code(31372), text));
    }
    Ok(Some(Wait { process_id, counter, max: Duration::from_millis(millis) }))
}

fn await_millis(call: &Call, max: RawBsonRef<'_>) -> Result<u64, Failure> {
    let millis = match max {
        RawBsonRef::Int32(n) => i64::from(n),
        RawBsonRef::Int64(n) => n,
        #[allow(clippy::cast_possible_truncation, reason = "saturates")]
        RawBsonRef::Double(n) => n as i64,
        other => {
            let expected = "types '[long, int, decimal, double]'";
            let path = format!("{}.maxAwaitTimeMS", call.name);
            return Err(Failure::wrong_type(path, other, expected));
        }
    };
    u64::try_from(millis).map_err(|_| {
        let text =
            format!("BSON field 'maxAwaitTimeMS' value must be >= 0, actual value '{millis}'");
        Failure::said(ErrorCode::BadValue, text)
    })
}

fn settle(call: &Call, asked: &Asked) {
    call.client.settle(|handshake| {
        handshake.hello_ok |= asked.hello_ok;
        handshake.internal |= asked.internal.is_some();
        if let Some(compressors) = asked.compressors {
            handshake.compressors = compressors;
        }
        if handshake.metadata.is_none() {
            handshake.metadata.clone_from(&asked.metadata);
        }
    });
    if let Some(metadata) = &asked.metadata
        && !call.node().log.quiet()
    {
        tracing::info!(target: "NETWORK", id = 51800, ctx = call.client.name(),
                remote = %call.client.remote, doc = crate::logging::shown(metadata), "client metadata");
    }
}

/// Returns when the topology is not the one that the client knows, or when the time is over.
async fn wait_for_change(call: &Call, wait: &Wait, words: Words) -> Result<(), Failure> {
    let node = call.node();
    if wait.process_id != node.process_id {
        return Ok(());
    }
    let counter = node.topology_counter();
    if wait.counter > counter {
        let text = format!(
            "Received a topology version with counter: {} which is greater than the server topology \
             version counter: {counter}",
            wait.counter
        );
        return Err(Failure::said(ErrorCode::from_code(31382), text));
    }
    if wait.counter < counter {
        return Ok(());
    }
    let _awaiting = node.metrics.awaiting_topology_changes.hold();
    let gauge = match words {
        Words::Hello => &node.metrics.exhaust_hello,
        Words::IsMaster => &node.metrics.exhaust_is_master,
    };
    let _exhaust = call.exhaust_allowed.then(|| gauge.hold());
    // The time being over is an answer like any other.
    let _ = tokio::time::timeout(wait.max, node.topology_change(wait.counter)).await;
    Ok(())
}

fn compose(call: &Call, asked: &Asked, words: Words) -> RawDocumentBuf {
    let profile = call.profile();
    let compression = asked
        .compressors
        .map(|list| list.iter().map(protocol::Compressor::name).collect::<RawArrayBuf>());
    let compression = compression.filter(|names| names.into_iter().next().is_some());
    let mut body = RawDocumentBuf::new();
    if asked.hello_ok {
        body.append(cstr!("helloOk"), true);
    }
    if let Some(names) = compression.as_ref().filter(|_| profile.hello_compression_first) {
        body.append(cstr!("compression"), names.clone());
    }
    append_role(call, words, &mut body);
    body.append(cstr!("maxBsonObjectSize"), 16 * 1024 * 1024);
    body.append(cstr!("maxMessageSizeBytes"), 48_000_000);
    body.append(cstr!("maxWriteBatchSize"), 100_000);
    body.append(cstr!("localTime"), DateTime::now());
    body.append(cstr!("logicalSessionTimeoutMinutes"), TIMEOUT_MINUTES);
    body.append(cstr!("connectionId"), call.client.id);
    let min = if asked.internal.is_some() { profile.wire_version } else { 0 };
    body.append(cstr!("minWireVersion"), min);
    body.append(cstr!("maxWireVersion"), profile.wire_version);
    body.append(cstr!("readOnly"), call.node().is_read_only());
    if let Some(names) = compression.filter(|_| !profile.hello_compression_first) {
        body.append(cstr!("compression"), names);
    }
    body
}

fn append_role(call: &Call, words: Words, body: &mut RawDocumentBuf) {
    let node = call.node();
    match words {
        Words::Hello => body.append(cstr!("isWritablePrimary"), true),
        Words::IsMaster => body.append(cstr!("ismaster"), true),
    }
    let version = rawdoc! { "processId": node.process_id, "counter": node.topology_counter() };
    body.append(cstr!("topologyVersion"), version);
}

/// The same request, knowing the topology that was just told.
fn next_request(request: &RawDoc, reply: &RawDocumentBuf) -> Then {
    let Ok(version) = reply.get_document("topologyVersion") else { return Then::Wait };
    let mut next = RawDocumentBuf::new();
    for element in request.as_raw().iter().flatten() {
        let (name, value) = element;
        if name.as_str() == "topologyVersion" {
            next.append(name, version.to_owned());
        } else {
            next.append(name, bson::RawBson::from(value));
        }
    }
    Then::Again(next.into())
}
