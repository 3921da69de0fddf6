//! availableQueryOptions: how a member of 4.4 or 5.0 learns that exhaust cursors are understood.

use bson::rawdoc;

use super::{Command, Run};
use crate::{
    context::{Call, Outcome},
    error::Failure,
};

pub(super) const COMMAND: Command = Command {
    name: "availableQueryOptions",
    aliases: &["availablequeryoptions"],
    help: "Returns the flags of OP_QUERY as a number (4.4 and 5.0 only).",
    run: Run::Now(run),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    let options = call.profile().available_query_options;
    let options = options.ok_or_else(|| Failure::UnknownCommand(call.name.clone()))?;
    Ok(rawdoc! { "options": options }.into())
}
