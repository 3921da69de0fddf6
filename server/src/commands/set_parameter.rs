//! setParameter: changes a server parameter.

use bson::{RawBson, rawdoc};
use protocol::ErrorCode;

use super::{Auth, Command, Run};
use crate::{
    context::{Call, Outcome},
    error::Failure,
    parameters,
};

pub(super) const COMMAND: Command = Command {
    name: "setParameter",
    help: "Changes a server parameter and returns its old value.",
    auth: Auth::Manage,
    admin_only: true,
    run: Run::Now(run),
    ..Command::DEFAULT
};

/// Fields of the command that are no parameters.
const OTHERS: &[&str] = &["comment", "lsid", "maxTimeMS", "apiVersion", "apiStrict", "txnNumber"];

fn run(call: &Call) -> Outcome {
    let refused = |message: String| Failure::Parameter { code: ErrorCode::InvalidOptions, message };
    let mut was = None;
    for element in call.body.as_raw().iter().skip(1).flatten() {
        let (name, value) = (element.0.as_str(), element.1);
        if name.starts_with('$') || OTHERS.contains(&name) {
            continue;
        }
        let parameter = parameters::find(name).ok_or_else(|| {
            let text = "use help:true to see options ";
            refused(format!("attempted to set unrecognized parameter [{name}], {text}"))
        })?;
        if !parameter.at_run_time {
            let text = format!("not allowed to change [{name}] at runtime");
            return Err(Failure::said(ErrorCode::IllegalOperation, text));
        }
        let old = call.node().parameters.get(parameter);
        call.node()
            .parameters
            .set(parameter, value)
            .map_err(|error| Failure::said(ErrorCode::BadValue, error.to_string()))?;
        was.get_or_insert(old);
    }
    let Some(was) = was else {
        return Err(refused("no option found to set, use help:true to see options ".to_owned()));
    };
    Ok(rawdoc! { "was": RawBson::try_from(was).unwrap_or(RawBson::Null) }.into())
}
