//! releaseMemory: open cursors hold little memory, and need it.

use bson::{RawArrayBuf, RawBsonRef, rawdoc};
use protocol::{Fields, Release};

use super::{Command, Run, kill_cursors::check_rights};
use crate::{
    context::{Call, Outcome},
    error::Failure,
};

pub(super) const COMMAND: Command = Command {
    name: "releaseMemory",
    help: "Asks cursors to give memory back: those that are open say that they did.",
    since: Release::V8_2,
    run: Run::Now(run),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    let fields = Fields::idl("releaseMemory", &call.body);
    let ids = fields.required("releaseMemory")?.array()?;
    let (mut released, mut unknown) = (RawArrayBuf::new(), RawArrayBuf::new());
    for (at, id) in ids.into_iter().flatten().enumerate() {
        let RawBsonRef::Int64(id) = id else {
            let path = format!("releaseMemory.releaseMemory.{at}");
            return Err(Failure::wrong_type(path, id, &["long"]));
        };
        check_rights(call, id)?;
        match call.node().cursors.whose(id) {
            Some(_) => released.push(id),
            None => unknown.push(id),
        }
    }
    Ok(rawdoc! {
        "cursorsReleased": released,
        "cursorsNotFound": unknown,
        "cursorsCurrentlyPinned": RawArrayBuf::new(),
        "cursorsWithErrors": RawArrayBuf::new(),
    }
    .into())
}
