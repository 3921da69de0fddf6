//! killCursors: closes cursors.

use bson::{RawArrayBuf, RawBsonRef, rawdoc};
use protocol::Fields;

use super::{Api, Auth, Command, Run};
use crate::{
    auth::{action::action, privilege::Target},
    context::{Call, Outcome},
    error::Failure,
};

pub(super) const COMMAND: Command = Command {
    name: "killCursors",
    help: "Closes cursors.",
    auth: Auth::User,
    api: Api::V1,
    run: Run::Now(run),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    let fields = Fields::idl("killCursors", &call.body);
    let ids = fields.required("cursors")?.array()?;
    let (mut killed, mut unknown) = (RawArrayBuf::new(), RawArrayBuf::new());
    for (at, id) in ids.into_iter().flatten().enumerate() {
        let RawBsonRef::Int64(id) = id else {
            return Err(Failure::wrong_type(format!("killCursors.cursors.{at}"), id, &["long"]));
        };
        check_rights(call, id)?;
        if call.node().cursors.kill(id) {
            killed.push(id);
        } else {
            unknown.push(id);
        }
    }
    Ok(rawdoc! {
        "cursorsKilled": killed,
        "cursorsNotFound": unknown,
        "cursorsAlive": RawArrayBuf::new(),
        "cursorsUnknown": RawArrayBuf::new(),
    }
    .into())
}

/// Checks that the cursor is the client's own, or that the client may kill any cursor.
pub(super) fn check_rights(call: &Call, id: i64) -> Result<(), Failure> {
    if !call.who.is_restricted() || call.who.may(Target::Cluster, action("killAnyCursor")) {
        return Ok(());
    }
    let Some((ns, owners)) = call.node().cursors.whose(id) else { return Ok(()) };
    let on = Target::Collection(ns.db(), ns.coll());
    if owners == call.who.names() || call.who.may(on, action("killAnyCursor")) {
        return Ok(());
    }
    Err(call.unauthorized())
}
