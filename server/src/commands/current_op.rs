//! currentOp and killOp: shows and kills running operations.

use std::sync::Arc;

use bson::{DateTime, RawArrayBuf, RawBsonRef, RawDocumentBuf, raw::cstr, rawdoc};
use protocol::{ErrorCode, Fields, RawDoc};
use query::matcher::{Matcher, ParseContext};

use super::{Auth, Command, OpClass, Run};
use crate::{
    auth::{self, action::action, privilege::Target},
    context::{Call, Outcome},
    error::Failure,
    operations::Operation,
};

pub(super) const CURRENT_OP: Command = Command {
    name: "currentOp",
    help: "Lists the operations that run.",
    auth: Auth::Body("`inprog` on the cluster, or `$ownOps`", |call| {
        if asks_for_own(call) { Ok(()) } else { call.require(Target::Cluster, action("inprog")) }
    }),
    admin_only: true,
    run: Run::Now(current_op),
    ..Command::DEFAULT
};

pub(super) const KILL_OP: Command = Command {
    name: "killOp",
    help: "Ends an operation.",
    auth: Auth::Cluster(action("killop")),
    admin_only: true,
    run: Run::Now(kill_op),
    ..Command::DEFAULT
};

/// Fields of the command that are not conditions on the operations.
const OPTIONS: &[&str] = &["currentOp", "$all", "$ownOps", "$truncateOps"];

fn asks_for_own(call: &Call) -> bool {
    matches!(call.body.get_bool("$ownOps"), Ok(true)) && !call.who.users().is_empty()
}

fn current_op(call: &Call) -> Outcome {
    let mut filter = RawDocumentBuf::new();
    for (name, value) in call.body.iter().flatten() {
        let generic = name.as_str().starts_with('$')
            || matches!(name.as_str(), "lsid" | "comment" | "maxTimeMS" | "apiVersion");
        if !generic && !OPTIONS.contains(&name.as_str()) {
            filter.append(name, value);
        }
    }
    let matcher = Matcher::parse(&filter, &ParseContext::default())?;
    let mut found = RawArrayBuf::new();
    for doc in list(call, !asks_for_own(call)).into_iter().filter(|doc| matcher.matches(doc)) {
        found.push(doc.as_raw().to_owned());
    }
    Ok(rawdoc! { "inprog": found }.into())
}

fn kill_op(call: &Call) -> Outcome {
    let fields = Fields::idl("killOp", &call.body);
    let id = fields
        .optional("op")?
        .ok_or_else(|| Failure::said(ErrorCode::NoSuchKey, "Missing expected field \"op\""))?;
    let id = id.safe_i64()?;
    let id = i32::try_from(id).map_err(|_| {
        let text = format!("invalid op : {id}. Op ID cannot be represented with 32 bits");
        Failure::said(protocol::ErrorCode::from_code(26823), text)
    })?;
    call.node().operations.kill(id);
    Ok(rawdoc! { "info": "attempting to kill op" }.into())
}

/// The operations for `$currentOp`: the client's own or all.
pub(super) fn list(call: &Call, all_users: bool) -> Vec<RawDoc> {
    let own = call.who.names();
    let visible = |operation: &&Arc<Operation>| {
        all_users
            || !call.who.is_restricted()
            || operation.client.login.users().iter().any(|user| own.contains(&user.name))
    };
    let all = call.node().operations.list();
    all.iter().filter(visible).map(|operation| shown(operation).into()).collect()
}

fn shown(operation: &Operation) -> RawDocumentBuf {
    let client = &operation.client;
    let mut doc = rawdoc! {
        "type": "op",
        "host": client.node.host.as_str(),
        "desc": client.name(),
        "connectionId": client.id,
        "client": client.remote.to_string(),
    };
    let metadata = client.handshake().metadata;
    if let Some(metadata) = &metadata {
        if let Ok(application) = metadata.get_document("application")
            && let Ok(name) = application.get_str("name")
        {
            doc.append(cstr!("appName"), name);
        }
        doc.append(cstr!("clientMetadata"), metadata.as_raw().to_owned());
    }
    let running = operation.started.elapsed();
    let text = DateTime::now().try_to_rfc3339_string().unwrap_or_default().replace('Z', "+00:00");
    doc.append(cstr!("active"), true);
    doc.append(cstr!("currentOpTime"), text);
    doc.append(cstr!("isFromUserConnection"), true);
    doc.append(cstr!("threaded"), true);
    doc.append(cstr!("opid"), operation.id);
    if let Ok(Some(RawBsonRef::Document(lsid))) = operation.body.get("lsid") {
        doc.append(cstr!("lsid"), lsid.to_owned());
    }
    doc.append(cstr!("secs_running"), i64::try_from(running.as_secs()).unwrap_or(i64::MAX));
    let micros = i64::try_from(running.as_micros()).unwrap_or(i64::MAX);
    doc.append(cstr!("microsecs_running"), micros);
    doc.append(cstr!("op"), kind(operation.class));
    doc.append(cstr!("ns"), operation.namespace());
    doc.append(cstr!("redacted"), false);
    doc.append(cstr!("command"), auth::shown::without_secrets(&operation.body));
    if operation.is_killed() {
        doc.append(cstr!("killPending"), true);
    }
    doc.append(cstr!("numYields"), 0_i64);
    doc.append(cstr!("locks"), RawDocumentBuf::new());
    doc.append(cstr!("waitingForLock"), false);
    doc.append(cstr!("lockStats"), RawDocumentBuf::new());
    doc.append(cstr!("waitingForFlowControl"), false);
    doc.append(cstr!("flowControlStats"), RawDocumentBuf::new());
    doc
}

fn kind(class: Option<OpClass>) -> &'static str {
    match class {
        Some(OpClass::Query) => "query",
        Some(OpClass::GetMore) => "getmore",
        Some(OpClass::Insert) => "insert",
        Some(OpClass::Update) => "update",
        Some(OpClass::Delete) => "remove",
        Some(OpClass::Command) | None => "command",
    }
}
