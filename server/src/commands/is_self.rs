//! _isSelf: lets a member find itself among the addresses of a config.

use bson::rawdoc;

use super::{Auth, Command, Run};

pub(super) const COMMAND: Command = Command {
    name: "_isSelf",
    help: "Returns an id of this process, so that a member can recognise its own address.",
    auth: Auth::None,
    by_op_query: true,
    run: Run::Now(|call| Ok(rawdoc! { "id": call.node().process_id }.into())),
    ..Command::DEFAULT
};
