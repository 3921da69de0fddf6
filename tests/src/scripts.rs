//! Runs other clients against a port: pymongo, the Node driver, mongosh and the database tools.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::Process;
use crate::{servers, understudy};

/// Runs a Python program with pymongo; `port` and `args` are its arguments. Returns its output.
pub fn python(program: &str, port: u16, args: &[&str]) -> Result<String> {
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", servers::pymongo_dir()?);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.args(["-c", program, &port.to_string()]).args(args);
    output_of("python3", &command)
}

/// Like [`python`], for a program that prints a line of JSON.
pub fn python_json(program: &str, port: u16, args: &[&str]) -> Result<Value> {
    let printed = python(program, port, args)?;
    let json = printed.lines().rev().find_map(|line| serde_json::from_str(line).ok());
    json.with_context(|| format!("no line of JSON in:\n{printed}"))
}

/// Runs a Node program with the official driver available; `port` is `process.argv[1]`.
pub fn node(program: &str, port: u16) -> Result<String> {
    let mut command = Command::new("node");
    command.env("NODE_PATH", servers::mongosh_dir()?.join("node_modules"));
    command.args(["-e", program, "--", &port.to_string()]);
    output_of("node", &command)
}

/// Evaluates an expression in mongosh and returns its value as canonical extended JSON.
pub fn mongosh(expression: &str, port: u16) -> Result<Value> {
    mongosh_as(expression, port, "mongosh")
}

/// Like [`mongosh`], with an appName.
pub fn mongosh_as(expression: &str, port: u16, app_name: &str) -> Result<Value> {
    mongosh_at(expression, &uri(port, app_name))
}

/// Like [`mongosh`], with a connection string.
pub fn mongosh_at(expression: &str, uri: &str) -> Result<Value> {
    let home = tempfile::tempdir().context("create a home for mongosh")?;
    let mut command = Command::new("node");
    command.arg(servers::mongosh_dir()?.join("node_modules/mongosh/bin/mongosh.js"));
    command.env("HOME", home.path());
    command.args(["--quiet", "--norc", "--json=canonical", "--eval", expression]);
    command.arg(uri);
    let printed = output_of("mongosh", &command)?;
    serde_json::from_str(&printed).with_context(|| format!("mongosh printed: {printed}"))
}

/// Runs one of the database tools (`mongodump`, …) against a port in a directory.
pub fn tool(name: &str, port: u16, args: &[&str], dir: &Path) -> Result<String> {
    let mut command = Command::new(servers::tool(name)?);
    command.arg(format!("--uri={}", uri(port, name))).args(args).current_dir(dir);
    output_of(name, &command)
}

/// Like [`tool`], at a moment. The moment is passed as the region of a cloud function, which the tools read from the
/// environment.
pub fn tool_at(name: &str, at: &str, port: u16, args: &[&str], dir: &Path) -> Result<String> {
    let mut command = Command::new(servers::tool(name)?);
    command.env("FUNCTION_NAME", "past").env("FUNCTION_REGION", format!("@{at}"));
    command.arg(format!("--uri={}", uri(port, name))).args(args).current_dir(dir);
    output_of(name, &command)
}

/// Runs `understudy-tools` in a directory.
pub fn understudy_tools(args: &[&str], dir: &Path) -> Result<String> {
    let mut command = Command::new(understudy::tools()?);
    command.args(args).current_dir(dir);
    output_of("understudy-tools", &command)
}

fn uri(port: u16, app_name: &str) -> String {
    let escaped: String = app_name.bytes().map(|byte| format!("%{byte:02x}")).collect();
    format!("mongodb://127.0.0.1:{port}/?directConnection=true&appName={escaped}")
}

/// Runs a command to its end within a limit; if it fails, the error contains its output.
fn output_of(name: &str, command: &Command) -> Result<String> {
    let dir = tempfile::tempdir().context("create a directory for the output")?;
    let log = dir.path().join("output");
    let mut process = Process::spawn(name, command, &log)?;
    let ended = process.await_exit(SCRIPT_LIMIT);
    let printed =
        std::fs::read_to_string(&log).with_context(|| format!("read what {name} said"))?;
    let status = ended.with_context(|| format!("{name} printed so far:\n{printed}"))?;
    if !status.success() {
        bail!("{name} failed ({status}):\n{printed}");
    }
    Ok(printed)
}

const SCRIPT_LIMIT: Duration = Duration::from_secs(120);
