//! getParameter: values of server parameters.

use bson::{RawBson, RawBsonRef, RawDocumentBuf, rawdoc};
use protocol::ErrorCode;

use super::{Auth, Command, Run};
use crate::{
    auth::action::action,
    context::{Call, Outcome},
    error::Failure,
    parameters::{self, DELAYED_CLOCK, Parameter},
};

pub(super) const COMMAND: Command = Command {
    name: "getParameter",
    help: "Returns server parameters by name, or all of them for '*'.",
    auth: Auth::Cluster(action("getParameter")),
    admin_only: true,
    run: Run::Now(run),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    let (all, details) = match call.body.get("getParameter") {
        Ok(Some(RawBsonRef::String("*"))) => (true, false),
        Ok(Some(RawBsonRef::Document(options))) => (
            matches!(options.get_bool("allParameters"), Ok(true)),
            matches!(options.get_bool("showDetails"), Ok(true)),
        ),
        _ => (false, false),
    };
    let mut body = RawDocumentBuf::new();
    for parameter in parameters::all() {
        if all || matches!(call.body.get(parameter.name), Ok(Some(_))) {
            append(
                &mut body,
                parameter.name,
                value(call, parameter),
                details,
                parameter.at_run_time,
            );
        }
    }
    let fcv = "featureCompatibilityVersion";
    if all || matches!(call.body.get(fcv), Ok(Some(_))) {
        let version = rawdoc! { "version": call.profile().fcv };
        append(&mut body, fcv, version.into(), details, false);
    }
    if body.iter().next().is_none() {
        let message = "no option found to get".to_owned();
        return Err(Failure::Parameter { code: ErrorCode::InvalidOptions, message });
    }
    Ok(body.into())
}

fn value(call: &Call, parameter: &Parameter) -> RawBson {
    let value = match call.node().delay() {
        Some(delay) if parameter.name == DELAYED_CLOCK => delay.state().clock.to_string().into(),
        _ => call.node().parameters.get(parameter),
    };
    RawBson::try_from(value).unwrap_or(RawBson::Null)
}

fn append(body: &mut RawDocumentBuf, name: &str, value: RawBson, details: bool, at_run_time: bool) {
    let Ok(name) = bson::raw::CString::try_from(name) else { return };
    if details {
        body.append(
            name,
            rawdoc! { "value": value, "settableAtRuntime": at_run_time, "settableAtStartup": true },
        );
    } else {
        body.append(name, value);
    }
}
