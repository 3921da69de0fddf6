//! features: asked for by old shells.

use bson::{RawDocumentBuf, raw::cstr, rawdoc};

use super::{Auth, Command, Run};
use crate::context::{Call, Outcome};

pub(super) const COMMAND: Command = Command {
    name: "features",
    help: "Returns how strings are handled, and the machine part of generated ids.",
    auth: Auth::User,
    run: Run::Now(run),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    let id = call.node().process_id.bytes();
    let machine = id.iter().skip(4).take(3).fold(0_i32, |sum, byte| sum << 8 | i32::from(*byte));
    let mut body = RawDocumentBuf::new();
    body.append(cstr!("js"), rawdoc! { "utf8": true });
    if call.profile().host_info_cores {
        body.append(cstr!("oidMachine"), i64::from(machine));
    } else {
        body.append(cstr!("oidMachine"), machine);
    }
    Ok(body.into())
}
