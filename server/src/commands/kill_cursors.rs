//! killCursors: closes cursors.

use bson::{RawArrayBuf, RawBsonRef, rawdoc};
use protocol::Fields;

use super::{Api, Auth, Command, Run};
use crate::{
    context::{Call, Outcome},
    error::Failure,
};

pub(super) const COMMAND: Command = Command {
    name: "killCursors",
    help: "Closes cursors.",
    auth: Auth::Read,
    api: Api::V1,
    run: Run::Now(run),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    let fields = Fields::idl("killCursors", &call.body);
    let ids = fields.required("cursors")?.array()?;
    let (mut killed, mut unknown) = (RawArrayBuf::new(), RawArrayBuf::new());
    for id in ids.into_iter().flatten() {
        let RawBsonRef::Int64(id) = id else {
            return Err(Failure::wrong_type("killCursors.cursors", id, &["long"]));
        };
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
