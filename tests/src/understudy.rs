//! Builds and starts our server.
//!
//! The binary comes from `UNDERSTUDY_BIN`, or cargo builds it once per test process, with the test's own profile;
//! that is quick if it is up to date.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use crate::driver::Security;
use crate::node::{NodeOptions, Program};

/// Options of our server.
pub fn options(name: &str, repl_set: Option<&str>) -> Result<NodeOptions> {
    Ok(options_of(binary()?, name, repl_set))
}

/// Options of our server with this binary.
pub fn options_of(binary: PathBuf, name: &str, repl_set: Option<&str>) -> NodeOptions {
    NodeOptions {
        name: name.to_owned(),
        program: Program::Understudy(binary),
        repl_set: repl_set.map(str::to_owned),
        args: Vec::new(),
        proxied: false,
        security: Security::default(),
    }
}

/// The `understudy` binary.
pub fn binary() -> Result<PathBuf> {
    match std::env::var_os("UNDERSTUDY_BIN") {
        Some(named) => Ok(PathBuf::from(named)),
        None => built(SERVER),
    }
}

/// The `understudy-tools` binary.
pub fn tools() -> Result<PathBuf> {
    match std::env::var_os("UNDERSTUDY_TOOLS") {
        Some(named) => Ok(PathBuf::from(named)),
        None => built(TOOLS),
    }
}

const SERVER: &str = "understudy";
const TOOLS: &str = "understudy-tools";

/// Path of one of our binaries. All are built together before the first server starts, since cases have little time.
fn built(name: &'static str) -> Result<PathBuf> {
    static BUILT: Mutex<Vec<(&str, PathBuf)>> = Mutex::new(Vec::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if built.is_empty() {
        *built = build(&[SERVER, TOOLS]).context("build our binaries")?;
    }
    let found = built.iter().find(|(known, _)| *known == name);
    found.map(|(_, path)| path.clone()).ok_or_else(|| anyhow!("cargo did not say where {name} is"))
}

/// The command line, with mongod's own flags.
pub(crate) fn command(
    binary: &Path,
    port: u16,
    data: &Path,
    repl_set: Option<&str>,
    args: &[String],
) -> Command {
    let mut command = Command::new(binary);
    command.args(["--port", &port.to_string(), "--bind_ip", "127.0.0.1"]);
    command.arg("--dbpath").arg(data);
    // By default a member that shuts down waits 15 seconds for clients to switch to another, as mongod does.
    command.args(["--setParameter", "shutdownTimeoutMillisForSignaledShutdown=100"]);
    if let Some(set) = repl_set {
        command.args(["--replSet", set]);
    }
    command.args(args);
    command
}

/// Builds the whole workspace, so that features are unified as in the test's own build and no dependency is compiled
/// twice.
fn build(names: &[&'static str]) -> Result<Vec<(&'static str, PathBuf)>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let mut command = Command::new(cargo);
    command.args(["build", "--workspace", "--manifest-path"]).arg(manifest);
    command.args(names.iter().flat_map(|name| ["--bin", name]));
    command.args(["--message-format", "json-render-diagnostics"]);
    if let Some((target, profile)) = own_build() {
        command.arg("--target-dir").arg(target).arg("--profile").arg(profile);
    }
    if std::io::stderr().is_terminal() {
        command.stderr(Stdio::inherit());
    }
    let output = command.output().context("run cargo")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr));
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let messages = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(messages
        .filter_map(|message| {
            let target = message.pointer("/target/name")?.as_str()?;
            let name = names.iter().find(|name| **name == target)?;
            Some((*name, PathBuf::from(message.get("executable")?.as_str()?)))
        })
        .collect())
}

/// The target directory and profile of this program's build: `target/debug/deps/cases-…`, `target/dist/bench`.
fn own_build() -> Option<(PathBuf, String)> {
    let exe = std::env::current_exe().ok()?;
    let mut dir = exe.parent()?;
    if dir.ends_with("deps") {
        dir = dir.parent()?;
    }
    let profile = match dir.file_name()?.to_str()? {
        "debug" => "dev",
        other => other,
    };
    Some((dir.parent()?.to_owned(), profile.to_owned()))
}
