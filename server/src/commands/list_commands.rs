//! listCommands: the table of commands.

use bson::{RawArrayBuf, RawDocumentBuf, raw::cstr, rawdoc};
use protocol::Profile;

use super::{Api, Auth, Command, On, Run, all};
use crate::context::{Call, Outcome};

pub(super) const COMMAND: Command = Command {
    name: "listCommands",
    help: "Lists all commands with a sentence about each.",
    auth: Auth::None,
    run: Run::Now(run),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    let profile = call.profile();
    let mut list = RawDocumentBuf::new();
    for command in all() {
        if let Ok(name) = bson::raw::CString::try_from(command.name) {
            list.append(name, describe(command, profile));
        }
    }
    Ok(rawdoc! { "commands": list }.into())
}

fn describe(command: &Command, profile: &Profile) -> RawDocumentBuf {
    // The field name changed with 5.0, as did the stable API.
    let modern = profile.stable_api;
    let mut doc = rawdoc! {
        "help": command.help,
        "requiresAuth": !command.auth.is_open(profile),
    };
    let always = matches!(command.on, On::Always | On::Serving);
    match modern {
        true => doc.append(cstr!("secondaryOk"), always),
        false => doc.append(cstr!("slaveOk"), always),
    }
    doc.append(cstr!("adminOnly"), command.admin_only);
    match (command.on, modern) {
        (On::Readable, true) => doc.append(cstr!("secondaryOverrideOk"), true),
        (On::Readable, false) => doc.append(cstr!("slaveOverrideOk"), true),
        (On::Always | On::Serving | On::Primary, _) => {}
    }
    if modern {
        let versions = if command.api == Api::V1 { vec!["1"] } else { vec![] };
        doc.append(cstr!("apiVersions"), versions.into_iter().collect::<RawArrayBuf>());
        doc.append(cstr!("deprecatedApiVersions"), RawArrayBuf::new());
    }
    doc
}
