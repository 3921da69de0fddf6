//! getLog: the newest lines of the log.

use bson::{RawArrayBuf, RawBsonRef, rawdoc};
use protocol::ErrorCode;

use super::{Auth, Command, Run};
use crate::{
    auth::action::action,
    context::{Call, Outcome},
    error::Failure,
};

pub(super) const COMMAND: Command = Command {
    name: "getLog",
    help: "Returns the newest lines of the log: 'global', or 'startupWarnings'; '*' names them.",
    auth: Auth::Cluster(action("getLog")),
    admin_only: true,
    run: Run::Now(run),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    let name = match call.body.get("getLog") {
        Ok(Some(RawBsonRef::String(name))) => name,
        Ok(Some(other)) => {
            return Err(Failure::wrong_type("getLog.getLog", other, &["string"]));
        }
        _ => "",
    };
    let log = &call.node().log;
    let view = match name {
        "*" => {
            let names = RawArrayBuf::from_iter(["global", "startupWarnings"]);
            return Ok(rawdoc! { "names": names }.into());
        }
        "global" => log.global(),
        "startupWarnings" => log.startup_warnings(),
        _ => return Err(unknown(call, name)),
    };
    let end = if call.profile().log_lines_end_in_newline { "\n" } else { "" };
    let lines: RawArrayBuf = view.lines.iter().map(|line| format!("{line}{end}")).collect();
    let total = i32::try_from(view.total).unwrap_or(i32::MAX);
    Ok(rawdoc! { "totalLinesWritten": total, "log": lines }.into())
}

fn unknown(call: &Call, name: &str) -> Failure {
    let message = if call.profile().parameter_errors_have_codes {
        format!("No log named '{name}'")
    } else {
        format!("no RamLog named: {name}")
    };
    Failure::Parameter { code: ErrorCode::from_code(96), message }
}
