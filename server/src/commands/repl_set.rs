//! The commands of replica sets, answered by the replication node.

use bson::{raw::cstr, rawdoc};
use protocol::{ErrorCode, RawDoc};
use repl::Request;

use super::{Auth, Command, Run, Waiting, history_window};
use crate::{
    context::{Call, Outcome},
    error::Failure,
};

pub(super) fn commands() -> impl Iterator<Item = Command> {
    let asked = ROWS.iter().map(|(name, auth, help, _)| Command {
        name,
        help,
        auth: *auth,
        admin_only: true,
        takes_concerns: true,
        waits_on_purpose: true,
        run: Run::Waiting(ask),
        ..Command::DEFAULT
    });
    asked.chain([GET_RBID])
}

const GET_RBID: Command = Command {
    name: "replSetGetRBID",
    help: "Returns the rollback id.",
    auth: Auth::Internal,
    admin_only: true,
    run: Run::Now(get_rbid),
    ..Command::DEFAULT
};

fn ask(call: Call) -> Waiting {
    Box::pin(async move {
        let row = ROWS.iter().find(|(name, ..)| *name == call.name);
        let (Some(repl), Some((.., request))) = (call.node().repl(), row) else {
            return Err(Failure::NoReplication("not running with --replSet"));
        };
        let mut body = repl.ask(request(call.body.clone())).await?;
        if call.name == "replSetGetStatus" {
            body.append(cstr!("historyWindow"), history_window::extent(call.node()));
        }
        Ok(body.into())
    })
}

fn get_rbid(call: &Call) -> Outcome {
    let Some(repl) = call.node().repl() else {
        return Err(Failure::NoReplication("not running with --replSet"));
    };
    let snapshot = repl.snapshot();
    if snapshot.config.is_none() {
        let text = "no replset config has been received";
        return Err(Failure::said(ErrorCode::NotYetInitialized, text));
    }
    Ok(rawdoc! { "rbid": snapshot.rbid }.into())
}

type Row = (&'static str, Auth, &'static str, fn(RawDoc) -> Request);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("replSetAbortPrimaryCatchUp", Auth::Manage, "Ends a new primary's catch-up.", Request::AbortPrimaryCatchUp),
    ("replSetFreeze", Auth::Manage, "Keeps a member from standing for election.", Request::Freeze),
    ("replSetGetConfig", Auth::Monitor, "Returns the configuration of the set.", Request::Config),
    ("replSetGetStatus", Auth::Monitor, "Returns the state of the set as this member sees it.", Request::Status),
    ("replSetHeartbeat", Auth::Internal, "How members watch each other.", Request::Heartbeat),
    ("replSetInitiate", Auth::Manage, "Begins a set.", Request::Initiate),
    ("replSetMaintenance", Auth::Manage, "Puts a member into maintenance mode, or back.", Request::Maintenance),
    ("replSetReconfig", Auth::Manage, "Changes the configuration of the set.", Request::Reconfig),
    ("replSetRequestVotes", Auth::Internal, "A candidate asks for a vote.", Request::RequestVotes),
    ("replSetStepDown", Auth::Manage, "Makes a primary step down.", Request::StepDown),
    ("replSetStepUp", Auth::Manage, "Makes a member stand for election.", Request::StepUp),
    ("replSetSyncFrom", Auth::Manage, "Chooses the member to sync from.", Request::SyncFrom),
    ("replSetUpdatePosition", Auth::Internal, "A member tells how far it is.", Request::UpdatePosition),
];
