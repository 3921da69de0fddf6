//! The commands for logical sessions.

use bson::{Binary, RawBsonRef, RawDocument, rawdoc, spec::BinarySubtype};
use protocol::ErrorCode;
use uuid::Uuid;

use super::{Api, Auth, Command, Run};
use crate::{
    auth::{action::action, requirement, user::UserName},
    context::{Call, Outcome, Reply},
    error::Failure,
    sessions::{Lsid, SessionId, TIMEOUT_MINUTES, Which, digest},
};

/// Requires a login; the localhost exception does not suffice.
const OWN_SESSIONS: Auth = Auth::Body("a login", requirement::own_sessions);

pub(super) const START_SESSION: Command = Command {
    name: "startSession",
    help: "Begins a logical session and returns its id.",
    run: Run::Now(start),
    ..Command::DEFAULT
};

pub(super) const REFRESH_SESSIONS: Command = Command {
    name: "refreshSessions",
    help: "Keeps sessions alive.",
    auth: OWN_SESSIONS,
    api: Api::V1,
    run: Run::Now(refresh),
    ..Command::DEFAULT
};

pub(super) const END_SESSIONS: Command = Command {
    name: "endSessions",
    help: "Ends sessions before their time.",
    auth: OWN_SESSIONS,
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
        "`killAnySession` on the cluster, `impersonate` for those of users",
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
    let session = SessionId { id: id.into_bytes(), user: call.who.digest() };
    call.node().sessions.touch(session, std::time::Instant::now());
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: id.as_bytes().to_vec() };
    Ok(rawdoc! { "id": { "id": id }, "timeoutMinutes": TIMEOUT_MINUTES }.into())
}

fn refresh(call: &Call) -> Outcome {
    let now = std::time::Instant::now();
    for id in listed(call)? {
        call.node().sessions.touch(id, now);
    }
    Ok(Reply::empty())
}

fn end(call: &Call) -> Outcome {
    for id in listed(call)? {
        close(call, &Which::One(id));
    }
    Ok(Reply::empty())
}

fn end_all(call: &Call) -> Outcome {
    let users = elements(call)?;
    if users.is_empty() {
        close(call, &Which::All);
    }
    let name = |(at, user): (usize, RawBsonRef<'_>)| {
        let field = format!("KillAllSessionsCmd.killAllSessions.{at}");
        let doc = user.as_document();
        let doc = doc.ok_or_else(|| Failure::wrong_type(&field, user, &["object"]))?;
        UserName::parse(doc).ok_or_else(|| Failure::missing(format!("{field}.user")))
    };
    for user in users.into_iter().enumerate().map(name).collect::<Result<Vec<_>, _>>()? {
        close(call, &Which::Of(UserName::digest(Some(&user))));
    }
    Ok(Reply::empty())
}

fn end_matching(call: &Call) -> Outcome {
    let patterns = elements(call)?;
    if patterns.is_empty() {
        close(call, &Which::All);
    }
    for pattern in patterns.into_iter().filter_map(|pattern| pattern.as_document()) {
        for which in fitting(call, pattern)? {
            close(call, &which);
        }
    }
    Ok(Reply::empty())
}

/// The sessions of a pattern: by session, by user digest, by users, or all.
fn fitting(call: &Call, pattern: &RawDocument) -> Result<Vec<Which>, Failure> {
    if let Ok(lsid) = pattern.get_document("lsid") {
        return Ok(vec![Which::One(Lsid::parse(lsid, &call.name)?.of(&call.who)?)]);
    }
    if let Ok(Some(RawBsonRef::Binary(uid))) = pattern.get("uid") {
        return Ok(vec![Which::Of(digest(uid.bytes)?)]);
    }
    let users = pattern.get_array("users").ok();
    let users = users.into_iter().flatten().flatten();
    let users: Vec<_> = users.filter_map(|user| UserName::parse(user.as_document()?)).collect();
    if users.is_empty() {
        return Ok(vec![Which::All]);
    }
    Ok(users.iter().map(|user| Which::Of(UserName::digest(Some(user)))).collect())
}

/// Ends sessions and their cursors.
fn close(call: &Call, which: &Which) {
    call.node().sessions.end(which);
    call.node().cursors.kill_sessions(which);
}

/// The sessions in the command's array.
fn listed(call: &Call) -> Result<Vec<SessionId>, Failure> {
    elements(call)?
        .into_iter()
        .map(|value| {
            let doc = value.as_document().ok_or_else(|| {
                Failure::wrong_type(format!("{0}.{0}", call.name), value, &["object"])
            })?;
            Lsid::parse(doc, &format!("{0}.{0}", call.name))?.of(&call.who)
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
