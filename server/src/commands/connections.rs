//! connPoolSync and dropConnections: nothing to do, since there are no connection pools.

use bson::RawBsonRef;
use protocol::{ErrorCode, Fields};

use super::{Auth, Command, Run};
use crate::{
    auth::action::action,
    context::{Call, Outcome, Reply},
    error::Failure,
};

pub(super) const CONN_POOL_SYNC: Command = Command {
    name: "connPoolSync",
    help: "Does nothing: there are no pools of connections.",
    auth: Auth::Cluster(action("connPoolSync")),
    run: Run::Now(|_| Ok(Reply::empty())),
    ..Command::DEFAULT
};

pub(super) const DROP_CONNECTIONS: Command = Command {
    name: "dropConnections",
    help: "Does nothing: there are no pools of connections.",
    auth: Auth::Cluster(action("dropConnections")),
    admin_only: true,
    run: Run::Now(drop_connections),
    ..Command::DEFAULT
};

fn drop_connections(call: &Call) -> Outcome {
    let fields = Fields::idl("dropConnections", &call.body);
    fields.only(&["dropConnections", "hostAndPort"])?;
    for (at, host) in fields.required("hostAndPort")?.array()?.into_iter().flatten().enumerate() {
        match host {
            RawBsonRef::String(host) if host.matches(':').count() > 1 && !host.starts_with('[') => {
                let text = format!(
                    "More than one ':' detected. If this is an ipv6 address, it needs to be \
                     surrounded by '[' and ']'; {host}"
                );
                return Err(Failure::said(ErrorCode::FailedToParse, text));
            }
            RawBsonRef::String(_) => {}
            other => {
                let path = format!("dropConnections.hostAndPort.{at}");
                return Err(Failure::wrong_type(path, other, &["string"]));
            }
        }
    }
    Ok(Reply::empty())
}
