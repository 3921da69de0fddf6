//! setParameter: changes a server parameter.

use bson::{Bson, RawBson, rawdoc};
use protocol::ErrorCode;
use repl::io::delay::Clock;

use super::{Auth, Command, Run, Waiting};
use crate::{
    auth::action::action,
    context::{Call, Outcome},
    error::Failure,
    parameters::{self, DELAYED_CLOCK},
};

pub(super) const COMMAND: Command = Command {
    name: "setParameter",
    help: "Changes a server parameter and returns its old value.",
    auth: Auth::Cluster(action("setParameter")),
    admin_only: true,
    run: Run::Waiting(|call| Box::pin(run(call)) as Waiting),
    ..Command::DEFAULT
};

/// Fields of the command that are not parameters.
const OTHERS: &[&str] = &["comment", "lsid", "maxTimeMS", "apiVersion", "apiStrict", "txnNumber"];

async fn run(call: Call) -> Outcome {
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
        let old = if name == DELAYED_CLOCK {
            set_clock(&call, value.as_str().unwrap_or_default()).await?
        } else {
            let parameters = &call.node().parameters;
            let old = parameters.get(parameter);
            parameters
                .set(parameter, value)
                .map_err(|error| Failure::said(ErrorCode::BadValue, error.to_string()))?;
            old
        };
        was.get_or_insert(old);
    }
    let Some(was) = was else {
        return Err(refused("no option found to set, use help:true to see options ".to_owned()));
    };
    // Replication that stopped because of a limit may continue now.
    if let Some(repl) = call.node().repl() {
        repl.try_again("a parameter was set");
    }
    Ok(rawdoc! { "was": RawBson::try_from(was).unwrap_or(RawBson::Null) }.into())
}

/// Stops or resumes the clock of a delayed member, or cuts its private tail.
async fn set_clock(call: &Call, to: &str) -> Result<Bson, Failure> {
    let wrong = |why: &dyn std::fmt::Display| {
        let text = format!("Bad value for parameter \"{DELAYED_CLOCK}\": {why}");
        Failure::said(ErrorCode::BadValue, text)
    };
    let Some(delay) = call.node().delay() else {
        return Err(Failure::NoReplication("not running with --replSet"));
    };
    let clock: Clock = to.parse().map_err(|why| wrong(&why))?;
    let old = delay.state().clock;
    delay.set_clock(clock).await.map_err(|why| wrong(&why))?;
    Ok(Bson::String(old.to_string()))
}
