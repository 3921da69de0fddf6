//! getCmdLineOpts: the options with which the server was started.

use bson::{RawDocumentBuf, rawdoc};
use protocol::ErrorCode;

use super::{Auth, Command, Run};
use crate::{
    auth::action::action,
    context::{Call, Outcome},
    error::Failure,
};

pub(super) const COMMAND: Command = Command {
    name: "getCmdLineOpts",
    help: "Returns the command line and what was understood of it.",
    auth: Auth::Cluster(action("getCmdLineOpts")),
    admin_only: true,
    run: Run::Now(run),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    let settings = &call.node().settings;
    let argv: bson::RawArrayBuf = settings.argv.iter().map(String::as_str).collect();
    let parsed = RawDocumentBuf::try_from(&settings.parsed)
        .map_err(|error| Failure::said(ErrorCode::InternalError, error.to_string()))?;
    Ok(rawdoc! { "argv": argv, "parsed": parsed }.into())
}
