//! connectionStatus: the authenticated users of the connection.

use bson::{Binary, RawArrayBuf, RawDocumentBuf, raw::cstr, rawdoc, spec::BinarySubtype};
use protocol::Fields;

use super::{Api, Auth, Command, Run};
use crate::{
    auth::privilege::Privileges,
    context::{Call, Outcome},
};

pub(super) const COMMAND: Command = Command {
    name: "connectionStatus",
    help: "Returns the users and roles of the connection.",
    auth: Auth::None,
    api: Api::None,
    run: Run::Now(run),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    let fields = Fields::idl("connectionStatus", &call.body);
    let shows = fields.optional("showPrivileges")?.map_or(Ok(false), |flag| flag.safe_bool())?;
    let who = call.client.login.who(&call.client)?;
    let users: RawArrayBuf = who.users().iter().map(|user| user.name.to_raw()).collect();
    let roles = who.users().iter().flat_map(|user| &user.all_roles);
    let roles: RawArrayBuf = roles.map(|role| role.to_raw()).collect();
    let mut info = rawdoc! { "authenticatedUsers": users, "authenticatedUserRoles": roles };
    if shows {
        let mut all = Privileges::default();
        who.users().iter().for_each(|user| all.extend(&user.privileges));
        info.append(cstr!("authenticatedUserPrivileges"), privileges_shown(&all));
    }
    let mut body = RawDocumentBuf::new();
    body.append(cstr!("authInfo"), info);
    if call.profile().connection_status_uuid {
        let bytes = call.client.uuid.as_bytes().to_vec();
        body.append(cstr!("uuid"), Binary { subtype: BinarySubtype::Uuid, bytes });
    }
    Ok(body.into())
}

/// The array `[{resource, actions}]`.
pub(super) fn privileges_shown(privileges: &Privileges) -> RawArrayBuf {
    let shown = privileges.iter().map(|(resource, actions)| {
        let actions: RawArrayBuf = actions.iter().map(|action| action.name()).collect();
        rawdoc! { "resource": resource.to_raw(), "actions": actions }
    });
    shown.collect()
}
