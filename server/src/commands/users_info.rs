//! usersInfo and rolesInfo: without access control there is nobody to name.

use bson::{RawArrayBuf, rawdoc};

use super::{Auth, Command, On, Run};

pub(super) const USERS_INFO: Command = Command {
    name: "usersInfo",
    help: "Lists users.",
    auth: Auth::Read,
    on: On::Readable,
    run: Run::Now(|_| Ok(rawdoc! { "users": RawArrayBuf::new() }.into())),
    ..Command::DEFAULT
};

pub(super) const ROLES_INFO: Command = Command {
    name: "rolesInfo",
    help: "Lists roles.",
    auth: Auth::Read,
    on: On::Readable,
    run: Run::Now(|_| Ok(rawdoc! { "roles": RawArrayBuf::new() }.into())),
    ..Command::DEFAULT
};
