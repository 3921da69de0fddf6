//! hello and isMaster: the handshake, and how drivers monitor a server.
//!
//! With `topologyVersion` and `maxAwaitTimeMS` the reply waits until the topology changes; with the exhaust flag it
//! is repeated, each time with the topology version just sent.

use std::{future::Future, sync::Arc, time::Duration};

use bson::{
    DateTime, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, oid::ObjectId, raw::cstr,
};
use protocol::{ErrorCode, Fields, RawDoc};

use super::{Api, Auth, Command, Run, Waiting, sasl};
use crate::{
    context::{Call, Outcome, Reply, Then},
    error::Failure,
    pins::Pin,
    sessions::TIMEOUT_MINUTES,
    shutdown::Phase,
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

/// Whether the reply has `isWritablePrimary` or `ismaster`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Words {
    Hello,
    IsMaster,
}

async fn hello(call: Call, words: Words) -> Outcome {
    let asked = Asked::parse(&call)?;
    settle(&call, &asked)?;
    refuse_when_quiescing(&call)?;
    if let Some(wait) = &asked.wait {
        wait_for_change(&call, wait, words).await?;
        refuse_when_quiescing(&call)?;
    }
    let mut body = compose(&call, &asked, words);
    for (name, value) in sasl::of_hello(&call).await?.iter().flatten() {
        body.append(name, value);
    }
    let then = match &asked.wait {
        Some(_) if call.exhaust_allowed => next_request(&call.body, &body),
        _ => Then::Wait,
    };
    Ok(Reply { then, ..Reply::from(body) })
}

/// The parsed arguments.
struct Asked {
    hello_ok: bool,
    internal: Option<Internal>,
    /// The supported ones of the client's `compression`, if it was sent.
    compressors: Option<protocol::Compressors>,
    metadata: Option<RawDoc>,
    /// `hangUpOnStepDown`, if it was sent.
    hang_up: Option<bool>,
    wait: Option<Wait>,
}

/// `internalClient`.
struct Internal {
    max_wire_version: i32,
}

/// `topologyVersion` and `maxAwaitTimeMS`.
struct Wait {
    process_id: ObjectId,
    counter: i64,
    max: Duration,
}

impl Asked {
    fn parse(call: &Call) -> Result<Self, Failure> {
        let fields = Fields::idl(&call.name, &call.body);
        Ok(Self {
            hello_ok: fields.optional("helloOk")?.map_or(Ok(false), |flag| flag.safe_bool())?,
            internal: internal(&fields)?,
            compressors: compression(call, &fields)?,
            metadata: metadata(call, &fields)?,
            hang_up: fields
                .optional("hangUpOnStepDown")?
                .map(|flag| flag.safe_bool())
                .transpose()?,
            wait: wait(&fields)?,
        })
    }
}

/// Parses the wire versions of a peer, which are its set's; both must be present.
fn internal(fields: &Fields<'_>) -> Result<Option<Internal>, Failure> {
    let Some(client) = fields.optional("internalClient")? else { return Ok(None) };
    let client = client.fields()?;
    client.only(&["minWireVersion", "maxWireVersion"])?;
    client.required("minWireVersion")?.safe_i32()?;
    let max_wire_version = client.required("maxWireVersion")?.safe_i32()?;
    Ok(Some(Internal { max_wire_version }))
}

fn compression(call: &Call, fields: &Fields<'_>) -> Result<Option<protocol::Compressors>, Failure> {
    let Some(names) = fields.optional("compression")? else { return Ok(None) };
    let offered = names.array()?.into_iter().flatten().filter_map(|name| name.as_str());
    Ok(Some(call.node().compressors().negotiate(offered)))
}

/// mongod's size limits of client metadata, which is kept as long as the connection: for drivers since 8.0, and for
/// members, routers and older releases.
const METADATA_LEN_MAX: usize = 512;
const INTERNAL_METADATA_LEN_MAX: usize = 1024;
/// mongod's length limit of an appName.
const APP_NAME_LEN_MAX: usize = 128;

fn metadata(call: &Call, fields: &Fields<'_>) -> Result<Option<RawDoc>, Failure> {
    let said = |code, text: &str| Err(Failure::said(code, text));
    match fields.optional("client")?.map(|client| client.raw()) {
        None => Ok(None),
        Some(_) if call.client.handshake().greeted => said(
            ErrorCode::ClientMetadataCannotBeMutated,
            "The client metadata document may only be sent in the first hello",
        ),
        Some(RawBsonRef::Document(client)) => {
            let (len, newer) = (client.as_bytes().len(), call.profile().login_comes_first);
            let text = "The client metadata document must be less";
            if len > INTERNAL_METADATA_LEN_MAX {
                let space = if newer { " " } else { "" };
                let text =
                    format!("{text} then or equal to {INTERNAL_METADATA_LEN_MAX}{space}bytes");
                return said(ErrorCode::ClientMetadataDocumentTooLarge, &text);
            }
            let from_driver = fields.get("internalClient")?.is_none();
            if newer && from_driver && len > METADATA_LEN_MAX {
                let text = format!("{text} than or equal to {METADATA_LEN_MAX} bytes");
                return said(ErrorCode::ClientMetadataDocumentTooLarge, &text);
            }
            check_metadata(client)?;
            Ok(Some(RawDoc::from(client)))
        }
        Some(_) => said(ErrorCode::TypeMismatch, "The client metadata document must be a document"),
    }
}

/// Checks the required fields of the client metadata.
fn check_metadata(client: &RawDocument) -> Result<(), Failure> {
    let said = |code, text: String| {
        Err(Failure::said(code, format!("{text} in the client metadata document")))
    };
    for (part, must_be, required) in [
        ("application", false, &["name"][..]),
        ("driver", true, &["name", "version"]),
        ("os", true, &["type"]),
    ] {
        let inner = match client.get(part) {
            Ok(Some(RawBsonRef::Document(inner))) => inner,
            Ok(Some(_)) => {
                let text = format!("The '{part}' field is required to be a BSON document");
                return said(ErrorCode::TypeMismatch, text);
            }
            _ if must_be => {
                let text = format!("Missing required sub-document '{part}'");
                return said(ErrorCode::ClientMetadataMissingField, text);
            }
            _ => continue,
        };
        for field in required {
            match inner.get(field) {
                Ok(Some(RawBsonRef::String(text))) => {
                    if part == "application" && text.len() > APP_NAME_LEN_MAX {
                        let text = format!(
                            "The 'application.name' field must be less then or equal to {APP_NAME_LEN_MAX} bytes"
                        );
                        return said(ErrorCode::ClientMetadataAppNameTooLarge, text);
                    }
                }
                Ok(None) if !must_be => {}
                Ok(None) => {
                    let text = format!("Missing required field '{part}.{field}'");
                    return said(ErrorCode::ClientMetadataMissingField, text);
                }
                _ => {
                    let text = format!("The '{part}.{field}' field must be a string");
                    return said(ErrorCode::TypeMismatch, text);
                }
            }
        }
    }
    Ok(())
}

fn wait(fields: &Fields<'_>) -> Result<Option<Wait>, Failure> {
    let alone = |text| Err(Failure::said(ErrorCode::from_code(31368), text));
    let (version, max) = match (fields.get("topologyVersion")?, fields.get("maxAwaitTimeMS")?) {
        (None, None) => return Ok(None),
        (Some(version), Some(max)) => (version.fields()?, max),
        (Some(_), None) => {
            return alone("A request with a 'topologyVersion' must include 'maxAwaitTimeMS'");
        }
        (None, Some(_)) => {
            return alone("A request with 'maxAwaitTimeMS' must include a 'topologyVersion'");
        }
    };
    let process_id = version.required("processId")?.object_id()?;
    let counter = version.required("counter")?.long()?;
    let max = Duration::from_millis(max.non_negative()?);
    if counter < 0 {
        let text = "topologyVersion must have a non-negative counter";
        return Err(Failure::said(ErrorCode::from_code(31372), text));
    }
    Ok(Some(Wait { process_id, counter, max }))
}

/// The timestamp that the appName of a first hello asks for.
fn pin(call: &Call, asked: &Asked) -> Result<Option<Arc<Pin>>, Failure> {
    let client = &call.client;
    let Some(metadata) = asked.metadata.as_ref().filter(|_| asked.internal.is_none()) else {
        return Ok(None);
    };
    if client.handshake().metadata.is_some() {
        return Ok(None);
    }
    let node = call.node();
    node.pins.pin(node.store()?, node.cluster_time(), client.remote.ip(), metadata)
}

fn settle(call: &Call, asked: &Asked) -> Result<(), Failure> {
    let pin = pin(call, asked)?;
    call.client.settle(|handshake| {
        handshake.greeted = true;
        handshake.hello_ok |= asked.hello_ok;
        if let Some(hang_up) = asked.hang_up {
            handshake.stays = !hang_up;
        }
        if let Some(internal) = &asked.internal {
            handshake.internal = Some(internal.max_wire_version);
        }
        if let Some(compressors) = asked.compressors {
            handshake.compressors = compressors;
        }
        if handshake.metadata.is_none() {
            handshake.metadata.clone_from(&asked.metadata);
            handshake.pin = pin;
        }
    });
    call.client.hold_pin(&call.who)?;
    // With access control, a member is trusted only after it has authenticated.
    if asked.internal.is_some() && !call.node().auth.required() {
        call.client.member_is_known();
    }
    if let Some(metadata) = &asked.metadata
        && !call.node().log.quiet()
    {
        tracing::info!(target: "NETWORK", id = 51800, ctx = call.client.name(),
                remote = %call.client.remote, doc = crate::logging::shown(metadata), "client metadata");
    }
    Ok(())
}

/// Returns when the topology differs from the one that the client knows, or after the timeout.
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
    // A timeout leads to a normal reply.
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
    let (min, max) = wire_versions(call, asked);
    body.append(cstr!("minWireVersion"), min);
    body.append(cstr!("maxWireVersion"), max);
    body.append(cstr!("readOnly"), call.node().is_read_only());
    if let Some(names) = compression.filter(|_| !profile.hello_compression_first) {
        body.append(cstr!("compression"), names);
    }
    body
}

/// A peer gets the single wire version of its set. Before there is a config, that is the peer's own.
fn wire_versions(call: &Call, asked: &Asked) -> (i32, i32) {
    let own = call.profile().wire_version;
    let Some(internal) = &asked.internal else { return (0, own) };
    let pinned = call.node().settings.impersonate.is_some();
    let unconfigured = call.node().repl().is_some_and(|repl| repl.snapshot().config.is_none());
    if unconfigured && !pinned {
        return (internal.max_wire_version, internal.max_wire_version);
    }
    (own, own)
}

fn append_role(call: &Call, words: Words, body: &mut RawDocumentBuf) {
    let node = call.node();
    if let Some(repl) = node.repl() {
        let mut snapshot = repl.snapshot();
        if let Some(pinned) = call.client.pinned() {
            Arc::make_mut(&mut snapshot).show_moment(pinned);
        }
        for (name, value) in snapshot.hello(words == Words::Hello).iter().flatten() {
            body.append(name, value);
        }
        return;
    }
    match words {
        Words::Hello => body.append(cstr!("isWritablePrimary"), true),
        Words::IsMaster => body.append(cstr!("ismaster"), true),
    }
    body.append(cstr!("topologyVersion"), node.topology_version());
}

/// A member that is shutting down tells drivers so; only hello does.
fn refuse_when_quiescing(call: &Call) -> Result<(), Failure> {
    let node = call.node();
    match node.shutdown.phase() {
        Phase::Quiescing { until } if node.repl().is_some() => {
            let left = until.saturating_duration_since(tokio::time::Instant::now());
            let remaining_millis = i64::try_from(left.as_millis()).unwrap_or(i64::MAX);
            Err(Failure::Quiescing { remaining_millis })
        }
        _ => Ok(()),
    }
}

/// The same request with the topology version that was just sent.
fn next_request(request: &RawDoc, reply: &RawDocumentBuf) -> Then {
    let Ok(version) = reply.get_document("topologyVersion") else { return Then::Wait };
    let mut next = RawDocumentBuf::new();
    for element in request.as_raw().iter().flatten() {
        let (name, value) = element;
        if name.as_str() == "topologyVersion" {
            next.append(name, version);
        } else {
            next.append(name, value);
        }
    }
    Then::Again(next.into())
}
