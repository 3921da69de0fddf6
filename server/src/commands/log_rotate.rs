//! logRotate: starts a new log file.

use protocol::ErrorCode;

use super::{Auth, Command, Run};
use crate::{
    auth::action::action,
    context::{Call, Outcome, Reply},
    error::Failure,
};

pub(super) const COMMAND: Command = Command {
    name: "logRotate",
    help: "Moves the log file aside, or opens it anew, as --logRotate says.",
    auth: Auth::Cluster(action("logRotate")),
    admin_only: true,
    run: Run::Now(run),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    tracing::info!(target: "CONTROL", id = 23166, ctx = call.client.name(), "Log rotation initiated");
    call.node().log.rotate().map_err(|error| {
        tracing::error!(target: "CONTROL", id = 23168, error = %error, "Log rotation failed");
        Failure::said(ErrorCode::from_code(96), "Log rotation failed due to one or more errors")
    })?;
    Ok(Reply::empty())
}
