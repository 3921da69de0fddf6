//! saslStart and saslContinue: without access control nobody is known.

use protocol::ErrorCode;

use super::{Api, Auth, Command, Run};
use crate::{
    context::{Call, Outcome},
    error::Failure,
};

pub(super) const SASL_START: Command = Command {
    name: "saslStart",
    help: "Begins an authentication.",
    auth: Auth::None,
    api: Api::V1,
    by_op_query: true,
    run: Run::Now(start),
    ..Command::DEFAULT
};

pub(super) const SASL_CONTINUE: Command = Command {
    name: "saslContinue",
    help: "Goes on with an authentication.",
    auth: Auth::None,
    api: Api::V1,
    by_op_query: true,
    run: Run::Now(|_| Err(Failure::said(ErrorCode::ProtocolError, "No SASL session state found"))),
    ..Command::DEFAULT
};

fn start(call: &Call) -> Outcome {
    let mechanism = call.body.get_str("mechanism").unwrap_or_default();
    tracing::info!(target: "ACCESS", id = 5286307, ctx = call.client.name(), mechanism,
        remote = %call.client.remote, "Failed to authenticate");
    Err(Failure::said(ErrorCode::from_code(18), "Authentication failed."))
}
