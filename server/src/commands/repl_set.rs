//! The commands of replica sets, answered by the replication node.

use super::{Auth, Command, Run};
use crate::{
    context::{Call, Outcome},
    error::Failure,
};

pub(super) fn commands() -> impl Iterator<Item = Command> {
    ROWS.iter().map(|(name, auth, help)| Command {
        name,
        help,
        auth: *auth,
        admin_only: true,
        run: Run::Now(run),
        ..Command::DEFAULT
    })
}

fn run(_: &Call) -> Outcome {
    Err(Failure::NoReplication("not running with --replSet"))
}

const ROWS: &[(&str, Auth, &str)] = &[
    ("replSetAbortPrimaryCatchUp", Auth::Manage, "Ends a new primary's catch-up."),
    ("replSetFreeze", Auth::Manage, "Keeps a member from standing for election."),
    ("replSetGetConfig", Auth::Monitor, "Returns the configuration of the set."),
    ("replSetGetRBID", Auth::Internal, "Returns the rollback id."),
    ("replSetGetStatus", Auth::Monitor, "Returns the state of the set as this member sees it."),
    ("replSetHeartbeat", Auth::Internal, "How members watch each other."),
    ("replSetInitiate", Auth::Manage, "Begins a set."),
    ("replSetMaintenance", Auth::Manage, "Puts a member into maintenance mode, or back."),
    ("replSetReconfig", Auth::Manage, "Changes the configuration of the set."),
    ("replSetRequestVotes", Auth::Internal, "A candidate asks for a vote."),
    ("replSetStepDown", Auth::Manage, "Makes a primary step down."),
    ("replSetStepUp", Auth::Manage, "Makes a member stand for election."),
    ("replSetSyncFrom", Auth::Manage, "Chooses the member to sync from."),
    ("replSetUpdatePosition", Auth::Internal, "A member tells how far it is."),
];
