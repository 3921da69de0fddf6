//! availableQueryOptions: tells a member of 4.4 or 5.0 that exhaust cursors are supported.

use bson::rawdoc;
use protocol::Release;

use super::{Command, Run};
use crate::context::{Call, Outcome};

pub(super) const COMMAND: Command = Command {
    name: "availableQueryOptions",
    aliases: &["availablequeryoptions"],
    help: "Returns the flags of OP_QUERY as a number (4.4 and 5.0 only).",
    until: Release::V5_0,
    run: Run::Now(run),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    let options = call.profile().available_query_options;
    Ok(rawdoc! { "options": options }.into())
}
