//! logout: forgets who the client is.

use super::{Auth, Command, Run};
use crate::context::Reply;

pub(super) const COMMAND: Command = Command {
    name: "logout",
    help: "Forgets the client's authentication.",
    auth: Auth::None,
    run: Run::Now(|_| Ok(Reply::empty())),
    ..Command::DEFAULT
};
