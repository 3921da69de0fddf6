//! connPoolStats: statistics of connections to other servers.

use bson::rawdoc;

use super::{Auth, Command, Run};
use crate::auth::action::action;

pub(super) const COMMAND: Command = Command {
    name: "connPoolStats",
    help: "Returns the pools of connections to other servers. There are none: each task of replication has its own.",
    auth: Auth::Cluster(action("connPoolStats")),
    run: Run::Now(|_| {
        Ok(rawdoc! {
            "numClientConnections": 0,
            "numAScopedConnections": 0,
            "totalInUse": 0,
            "totalAvailable": 0,
            "totalLeased": 0,
            "totalCreated": 0,
            "totalRefreshing": 0,
            "totalRefreshed": 0,
            "totalWasNeverUsed": 0,
            "pools": {},
            "hosts": {},
            "replicaSets": {},
        }
        .into())
    }),
    ..Command::DEFAULT
};
