//! profile: there is no profiler, but the threshold of slow operations can be set.

use bson::rawdoc;
use protocol::ErrorCode;

use super::{Auth, Command, Run};
use crate::{
    auth::requirement,
    context::{Call, Outcome},
    error::Failure,
};

pub(super) const COMMAND: Command = Command {
    name: "profile",
    help: "Shows the profiling level, which is always 0, and the threshold for slow operations.",
    auth: Auth::Body(
        "`enableProfiler` on the database, or `find` on `system.profile` to look",
        requirement::profile,
    ),
    run: Run::Now(run),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    match call.body.get_i32("profile") {
        Ok(-1 | 0) => {}
        _ => {
            let text = "There is no profiler: slow operations are in the log";
            return Err(Failure::said(ErrorCode::CommandFailed, text));
        }
    }
    let slow_ms = i32::try_from(call.node().parameters.slow_ms()).unwrap_or(i32::MAX);
    Ok(rawdoc! { "was": 0, "slowms": slow_ms, "sampleRate": 1.0 }.into())
}
