//! fsync: nothing to do, since everything acknowledged is already on disk.

use bson::rawdoc;
use protocol::ErrorCode;

use super::{Auth, Command, Run};
use crate::{
    auth::action::action,
    context::{Call, Outcome},
    error::Failure,
};

pub(super) const COMMAND: Command = Command {
    name: "fsync",
    help: "Does nothing: what was reported as durable is on the disk already. There is no lock.",
    auth: Auth::Cluster(action("fsync")),
    admin_only: true,
    run: Run::Now(run),
    ..Command::DEFAULT
};

pub(super) const UNLOCK: Command = Command {
    name: "fsyncUnlock",
    help: "Ends the lock of fsync: refused, there is none.",
    auth: Auth::Cluster(action("unlock")),
    admin_only: true,
    run: Run::Now(|_| {
        let text = "fsyncUnlock called when not locked";
        Err(Failure::said(ErrorCode::IllegalOperation, text))
    }),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    if matches!(call.body.get_bool("lock"), Ok(true)) {
        let text = "fsync with lock is not supported: take a backup with the command checkpoint";
        return Err(Failure::said(ErrorCode::CommandFailed, text));
    }
    Ok(rawdoc! { "numFiles": 1 }.into())
}
