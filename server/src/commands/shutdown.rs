//! shutdown: ends the server, quiescing first if it is a member of a set.

use std::time::Duration;

use bson::RawBsonRef;

use super::{Auth, Command, Run};
use crate::auth::action::action;
use crate::context::{Call, Outcome, Reply, Then};

pub(super) const COMMAND: Command = Command {
    name: "shutdown",
    help: "Ends the server; a member of a set first tells its clients to leave, for timeoutSecs.",
    auth: Auth::Cluster(action("shutdown")),
    admin_only: true,
    run: Run::Now(run),
    ..Command::DEFAULT
};

/// mongod's default.
const TIMEOUT_SECS: u64 = 15;

fn run(call: &Call) -> Outcome {
    let secs = match call.body.get("timeoutSecs") {
        Ok(Some(RawBsonRef::Int32(n))) => u64::try_from(n).unwrap_or(0),
        Ok(Some(RawBsonRef::Int64(n))) => u64::try_from(n).unwrap_or(0),
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        Ok(Some(RawBsonRef::Double(n))) => n as u64,
        _ => TIMEOUT_SECS,
    };
    let node = call.node();
    let quiesce = if node.quiesces() { secs } else { 0 };
    tracing::info!(target: "COMMAND", id = 4695400, ctx = call.client.name(),
        remote = %call.client.remote, "Shutdown command received");
    node.shutdown.begin(Duration::from_secs(quiesce));
    Ok(Reply { then: Then::Close, ..Reply::empty() })
}
