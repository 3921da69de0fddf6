//! ping: checks that the server answers.

use super::{Api, Auth, Command, Fields, Run};
use crate::context::Reply;

pub(super) const COMMAND: Command = Command {
    name: "ping",
    help: "Answers at once if the server is alive.",
    auth: Auth::None,
    fields: Fields::Only(&[]),
    api: Api::V1,
    run: Run::Now(|_| Ok(Reply::empty())),
    ..Command::DEFAULT
};
