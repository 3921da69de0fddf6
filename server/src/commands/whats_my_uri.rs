//! whatsmyuri: the client's address as the server sees it.

use bson::rawdoc;

use super::{Auth, Command, Fields, Run};

pub(super) const COMMAND: Command = Command {
    name: "whatsmyuri",
    help: "Returns the address that the client's connection comes from.",
    auth: Auth::NewerUser,
    fields: Fields::Only(&[]),
    run: Run::Now(|call| Ok(rawdoc! { "you": call.client.remote.to_string() }.into())),
    ..Command::DEFAULT
};
