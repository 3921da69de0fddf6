//! logout: logs out the users of a database.

use super::{Command, Run};
use crate::context::{Call, Outcome, Reply};

pub(super) const COMMAND: Command = Command {
    name: "logout",
    help: "Forgets the client's authentication as a user of the database.",
    run: Run::Now(run),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    call.client.login.leave(&call.db);
    Ok(Reply::empty())
}
