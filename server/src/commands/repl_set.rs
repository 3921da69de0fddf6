//! The replica set commands, answered by the replication node.

use bson::{raw::cstr, rawdoc};
use protocol::{ErrorCode, RawDoc};
use repl::Request;

use super::{Auth, Command, MEMBER, Run, Waiting, history_window};
use crate::{
    auth::action::action,
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
    auth: MEMBER,
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

const CHANGE_STATE: Auth = Auth::Cluster(action("replSetStateChange"));
const CONFIGURE: Auth = Auth::Cluster(action("replSetConfigure"));

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("replSetAbortPrimaryCatchUp", CHANGE_STATE, "Ends a new primary's catch-up.", Request::AbortPrimaryCatchUp),
    ("replSetFreeze", CHANGE_STATE, "Keeps a member from standing for election.", Request::Freeze),
    ("replSetGetConfig", Auth::Cluster(action("replSetGetConfig")), "Returns the configuration of the set.", Request::Config),
    ("replSetGetStatus", Auth::Cluster(action("replSetGetStatus")), "Returns the state of the set as this member sees it.", Request::Status),
    ("replSetHeartbeat", MEMBER, "How members watch each other.", Request::Heartbeat),
    ("replSetInitiate", CONFIGURE, "Begins a set.", Request::Initiate),
    ("replSetMaintenance", CHANGE_STATE, "Puts a member into maintenance mode, or back.", Request::Maintenance),
    ("replSetReconfig", CONFIGURE, "Changes the configuration of the set.", Request::Reconfig),
    ("replSetRequestVotes", MEMBER, "A candidate asks for a vote.", Request::RequestVotes),
    ("replSetStepDown", CHANGE_STATE, "Makes a primary step down.", Request::StepDown),
    ("replSetStepUp", CHANGE_STATE, "Makes a member stand for election.", Request::StepUp),
    ("replSetSyncFrom", CHANGE_STATE, "Chooses the member to sync from.", Request::SyncFrom),
    ("replSetUpdatePosition", MEMBER, "A member tells how far it is.", Request::UpdatePosition),
];
