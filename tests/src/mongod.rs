//! Starts real mongods: small, quiet, on this machine only.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::driver::Security;
use crate::node::{NodeOptions, Program};
use crate::servers::{MongodBinary, Version};

/// Options of a mongod of this version; fetched if necessary.
pub fn options(name: &str, version: Version, repl_set: Option<&str>) -> Result<NodeOptions> {
    Ok(NodeOptions {
        name: name.to_owned(),
        program: Program::Mongod(MongodBinary::find(version)?),
        repl_set: repl_set.map(str::to_owned),
        args: Vec::new(),
        proxied: false,
        security: Security::default(),
    })
}

/// The command line: a small cache, no diagnostic files, fail points enabled.
pub(crate) fn command(
    binary: &MongodBinary,
    port: u16,
    data: &Path,
    repl_set: Option<&str>,
    args: &[String],
) -> Command {
    let mut command = binary.command();
    command.args(["--port", &port.to_string(), "--bind_ip", "127.0.0.1", "--nounixsocket"]);
    command.arg("--dbpath").arg(data);
    if !args.iter().any(|arg| arg == CACHE) {
        command.args([CACHE, "0.25"]);
    }
    if !args.iter().any(|arg| arg == OPLOG) {
        command.args([OPLOG, "256"]);
    }
    command.args(["--setParameter", "enableTestCommands=1"]);
    command.args(["--setParameter", "diagnosticDataCollectionEnabled=false"]);
    if let Some(set) = repl_set {
        command.args(["--replSet", set]);
    }
    command.args(args);
    command
}

const CACHE: &str = "--wiredTigerCacheSizeGB";
const OPLOG: &str = "--oplogSize";
