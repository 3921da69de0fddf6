//! The commands of logical sessions.

use bson::{Binary, RawBsonRef, rawdoc, spec::BinarySubtype};
use protocol::ErrorCode;
use uuid::Uuid;

use super::{Api, Auth, Command, Run};
use crate::{
    auth::{action::action, privilege::Target, requirement},
    context::{Call, Outcome, Reply},
    error::Failure,
    sessions::{SessionId, TIMEOUT_MINUTES},
};

pub(super) const START_SESSION: Command = Command {
    name: "startSession",
    help: "Begins a logical session and returns its id.",
    run: Run::Now(start),
    ..Command::DEFAULT
};

pub(super) const REFRESH_SESSIONS: Command = Command {
    name: "refreshSessions",
    help: "Keeps sessions alive.",
    api: Api::V1,
    run: Run::Now(refresh),
    ..Command::DEFAULT
};

pub(super) const END_SESSIONS: Command = Command {
    name: "endSessions",
    help: "Ends sessions before their time.",
    api: Api::V1,
    run: Run::Now(end),
    ..Command::DEFAULT
};

pub(super) const KILL_SESSIONS: Command = Command {
    name: "killSessions",
    help: "Ends sessions and what runs in them.",
    run: Run::Now(end),
    ..Command::DEFAULT
};

pub(super) const KILL_ALL_SESSIONS: Command = Command {
    name: "killAllSessions",
    help: "Ends all sessions, or those of the given users.",
    auth: Auth::Cluster(action("killAnySession")),
    run: Run::Now(end_all),
    ..Command::DEFAULT
};

pub(super) const KILL_ALL_SESSIONS_BY_PATTERN: Command = Command {
    name: "killAllSessionsByPattern",
    help: "Ends the sessions that fit one of the patterns.",
    auth: Auth::Body(
        "`killAnySession` on the cluster, or that all are one's own",
        requirement::kill_sessions_by_pattern,
    ),
    run: Run::Now(end_matching),
    ..Command::DEFAULT
};

fn start(call: &Call) -> Outcome {
    if call.who.is_restricted() && call.who.users().is_empty() {
        let text = "Logical sessions require authentication";
        return Err(Failure::said(ErrorCode::Unauthorized, text));
    }
    let id = Uuid::new_v4();
    call.node().sessions.touch(id.into_bytes(), call.who.digest(), std::time::Instant::now());
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: id.as_bytes().to_vec() };
    Ok(rawdoc! { "id": { "id": id }, "timeoutMinutes": TIMEOUT_MINUTES }.into())
}

fn refresh(call: &Call) -> Outcome {
    let now = std::time::Instant::now();
    for id in listed(call)? {
        call.node().sessions.touch(id, call.who.digest(), now);
    }
    Ok(Reply::empty())
}

fn end(call: &Call) -> Outcome {
    for id in listed(call)? {
        close(call, Some(&id));
    }
    Ok(Reply::empty())
}

fn end_all(call: &Call) -> Outcome {
    elements(call)?;
    close(call, None);
    Ok(Reply::empty())
}

fn end_matching(call: &Call) -> Outcome {
    let patterns = elements(call)?;
    if patterns.is_empty() {
        close(call, None);
    }
    for pattern in patterns {
        let lsid = pattern.as_document().and_then(|doc| doc.get_document("lsid").ok());
        match lsid.and_then(id_of) {
            Some(id) => close(call, Some(&id)),
            // A pattern by user fits everybody while there are no users.
            None => close(call, None),
        }
    }
    Ok(Reply::empty())
}

/// Ends a session, or all, with their cursors.
fn close(call: &Call, id: Option<&SessionId>) {
    match id {
        Some(id) => call.node().sessions.end(id),
        None => call.node().sessions.end_all(),
    }
    // A session is its user's, whoever else may know its number.
    let own = call.who.names();
    let all = !call.who.is_restricted() || call.who.may(Target::Cluster, action("killAnySession"));
    call.node().cursors.kill_session(id, (!all).then_some(own.as_slice()));
}

/// The session ids of the command's array.
fn listed(call: &Call) -> Result<Vec<SessionId>, Failure> {
    elements(call)?
        .into_iter()
        .map(|value| {
            let doc = value.as_document().ok_or_else(|| {
                Failure::wrong_type(format!("{0}.{0}", call.name), value, &["object"])
            })?;
            id_of(doc).ok_or_else(|| Failure::missing(format!("{0}.{0}.id", call.name)))
        })
        .collect()
}

fn elements(call: &Call) -> Result<Vec<RawBsonRef<'_>>, Failure> {
    match call.body.get(&call.name) {
        Ok(Some(RawBsonRef::Array(array))) => Ok(array.into_iter().flatten().collect()),
        Ok(Some(other)) => {
            Err(Failure::wrong_type(format!("{0}.{0}", call.name), other, &["array"]))
        }
        _ => Ok(Vec::new()),
    }
}

fn id_of(lsid: &bson::RawDocument) -> Option<SessionId> {
    match lsid.get("id") {
        Ok(Some(RawBsonRef::Binary(id))) => id.bytes.try_into().ok(),
        _ => None,
    }
}
