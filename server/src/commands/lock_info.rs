//! lockInfo: empty, since there are no locks that an operator could see.

use bson::{RawArrayBuf, rawdoc};

use super::{Auth, Command, Run};

pub(super) const COMMAND: Command = Command {
    name: "lockInfo",
    help: "Lists locks. There are none: readers pin a moment instead.",
    auth: Auth::Cluster(super::action("serverStatus")),
    admin_only: true,
    run: Run::Now(|_| Ok(rawdoc! { "lockInfo": RawArrayBuf::new() }.into())),
    ..Command::DEFAULT
};
