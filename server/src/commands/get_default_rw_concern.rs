//! getDefaultRWConcern: the implicit defaults; those set by an operator are in `config.settings`.

use bson::{DateTime, RawDocumentBuf, raw::cstr, rawdoc};
use protocol::ErrorCode;

use super::{Auth, Command, Run};
use crate::{
    auth::action::action,
    context::{Call, Outcome},
    error::Failure,
};

pub(super) const COMMAND: Command = Command {
    name: "getDefaultRWConcern",
    help: "Returns the default read and write concerns.",
    auth: Auth::Cluster(action("getDefaultRWConcern")),
    admin_only: true,
    run: Run::Now(run),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    if call.node().settings.repl_set.is_none() {
        let text = "'getDefaultRWConcern' is not supported on standalone nodes.";
        return Err(Failure::said(ErrorCode::from_code(51300), text));
    }
    let mut body = RawDocumentBuf::new();
    if call.profile().implicit_rw_concern {
        body.append(cstr!("defaultReadConcern"), rawdoc! { "level": "local" });
        body.append(cstr!("defaultWriteConcern"), rawdoc! { "w": "majority", "wtimeout": 0 });
        body.append(cstr!("defaultWriteConcernSource"), "implicit");
        body.append(cstr!("defaultReadConcernSource"), "implicit");
    }
    body.append(cstr!("localUpdateWallClockTime"), DateTime::now());
    Ok(body.into())
}
