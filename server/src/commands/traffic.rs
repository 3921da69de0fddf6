//! getTrafficRecordingStatus, startTrafficRecording, stopTrafficRecording: traffic recording is not supported.

use protocol::{ErrorCode, Fields};

use super::{Auth, Command, Run};
use crate::{
    auth::action::action,
    context::{Call, Outcome, Reply},
    error::Failure,
};

pub(super) const STATUS: Command = Command {
    name: "getTrafficRecordingStatus",
    help: "Tells whether requests are recorded. They are not.",
    auth: Auth::Cluster(action("trafficRecord")),
    run: Run::Now(|call| {
        Fields::idl("getTrafficRecordingStatus", &call.body)
            .only(&["getTrafficRecordingStatus"])?;
        Ok(Reply::empty())
    }),
    ..Command::DEFAULT
};

pub(super) const START: Command = Command {
    name: "startTrafficRecording",
    help: "Records requests: refused, no directory is set for it.",
    run: Run::Now(start),
    ..STATUS
};

pub(super) const STOP: Command = Command {
    name: "stopTrafficRecording",
    help: "Ends a recording: refused, there is none.",
    run: Run::Now(|_| Err(refused("Traffic recording not active"))),
    ..STATUS
};

fn start(call: &Call) -> Outcome {
    let fields = Fields::idl("startTrafficRecording", &call.body);
    fields.required("destination")?.str()?;
    Err(refused("Traffic recording directory not set"))
}

fn refused(text: &str) -> Failure {
    Failure::said(ErrorCode::BadValue, text)
}
