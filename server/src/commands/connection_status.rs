//! connectionStatus: who the client is.

use bson::{Binary, RawArrayBuf, RawDocumentBuf, raw::cstr, rawdoc, spec::BinarySubtype};

use super::{Api, Auth, Command, Run};
use crate::context::{Call, Outcome};

pub(super) const COMMAND: Command = Command {
    name: "connectionStatus",
    help: "Returns the users and roles of the connection.",
    auth: Auth::None,
    api: Api::None,
    run: Run::Now(run),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    let mut info = rawdoc! {
        "authenticatedUsers": RawArrayBuf::new(),
        "authenticatedUserRoles": RawArrayBuf::new(),
    };
    if matches!(call.body.get_bool("showPrivileges"), Ok(true)) {
        info.append(cstr!("authenticatedUserPrivileges"), RawArrayBuf::new());
    }
    let mut body = RawDocumentBuf::new();
    body.append(cstr!("authInfo"), info);
    if call.profile().connection_status_uuid {
        let bytes = call.client.uuid.as_bytes().to_vec();
        body.append(cstr!("uuid"), Binary { subtype: BinarySubtype::Uuid, bytes });
    }
    Ok(body.into())
}
