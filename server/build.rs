//! Tells the program which commit it is built from. Only builds with optimisation ask git: others would be linked anew
//! after every commit.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let optimised = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = if optimised { commit() } else { None };
    let version = env!("CARGO_PKG_VERSION");
    let shown = match commit {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    };
    println!("cargo:rustc-env=UNDERSTUDY_VERSION={shown}");
}

/// The short hash; `None` outside of a repository or without git.
fn commit() -> Option<String> {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}
