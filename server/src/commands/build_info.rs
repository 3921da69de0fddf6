//! buildInfo: the MongoDB release that is shown, and build details.

use bson::{RawArrayBuf, RawDocumentBuf, raw::cstr, rawdoc};
use protocol::{Profile, release::BuildInfoShape};

use super::{Auth, Command, Run};
use crate::context::{Call, Outcome};

pub(super) const COMMAND: Command = Command {
    name: "buildInfo",
    aliases: &["buildinfo"],
    help: "Returns the version of MongoDB that this server looks like.",
    auth: Auth::NewerUser,
    by_op_query: true,
    run: Run::Now(run),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    Ok(build_document(call.profile()).into())
}

/// The reply of the command, which is also shown elsewhere.
pub(crate) fn build_document(profile: &Profile) -> RawDocumentBuf {
    let versions: RawArrayBuf = profile.version_array.into_iter().collect();
    let mut body = RawDocumentBuf::new();
    body.append(cstr!("version"), profile.version);
    if profile.build_info == BuildInfoShape::Idl {
        body.append(cstr!("versionArray"), versions.clone());
    }
    body.append(cstr!("gitVersion"), profile.git_version);
    body.append(cstr!("modules"), RawArrayBuf::new());
    body.append(cstr!("allocator"), "system");
    body.append(cstr!("javascriptEngine"), "none");
    match profile.build_info {
        BuildInfoShape::Idl => body.append(cstr!("sysinfo"), "deprecated"),
        BuildInfoShape::Classic => {
            body.append(cstr!("sysInfo"), "deprecated");
            body.append(cstr!("versionArray"), versions);
        }
    }
    body.append(cstr!("openssl"), rawdoc! { "running": "disabled", "compiled": "disabled" });
    body.append(cstr!("buildEnvironment"), build_environment());
    body.append(cstr!("bits"), 64);
    body.append(cstr!("debug"), false);
    body.append(cstr!("maxBsonObjectSize"), 16 * 1024 * 1024);
    body.append(cstr!("storageEngines"), RawArrayBuf::from_iter(["fjall", "memory"]));
    body.append(cstr!("understudy"), rawdoc! { "version": env!("CARGO_PKG_VERSION") });
    body
}

fn build_environment() -> RawDocumentBuf {
    rawdoc! {
        "distmod": "",
        "distarch": std::env::consts::ARCH,
        "cc": "",
        "ccflags": "",
        "cxx": "",
        "cxxflags": "",
        "linkflags": "",
        "target_arch": std::env::consts::ARCH,
        "target_os": std::env::consts::OS,
        "cppdefines": "",
    }
}
