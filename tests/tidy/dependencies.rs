//! Checks dependencies: our crates use each other only as ARCHITECTURE.md draws it, and external crates are used,
//! freely licensed and maintained.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::{
    none,
    sources::{CRATES, below, root},
};

/// Which of our crates a crate may use. A new edge is a design question: ask it in ARCHITECTURE.md.
const EDGES: &[(&str, &[&str])] = &[
    ("protocol", &[]),
    ("query", &["protocol"]),
    ("storage", &["protocol", "query"]),
    ("repl", &["protocol", "query", "storage"]),
    ("server", &["protocol", "query", "storage", "repl"]),
    ("tools", &["protocol", "query", "storage"]),
    ("tests", &[]),
    ("bench", &["protocol", "server", "tests"]),
];

/// Licences that are compatible with an Apache-2.0 program.
const LICENCES: &[&str] = &[
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Unicode-3.0",
    "Zlib",
    "0BSD",
    "BSL-1.0",
    "Unlicense",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "MPL-2.0",
    "ICU",
    "NCSA",
];

/// Crates known to be unmaintained. `None` means that nothing may depend on the crate; a text is the reason why it is
/// accepted.
const UNMAINTAINED: &[(&str, Option<&str>)] = &[
    ("fxhash", None),
    ("instant", None),
    ("derivative", None),
    ("paste", Some("through dec, which has no successor: a macro that runs when dec is compiled")),
];

#[test]
fn crates_use_each_other_as_drawn() {
    let mut broken = Vec::new();
    for (name, allowed) in EDGES {
        for used in dependencies(name, "dependencies") {
            if CRATES.contains(&used.as_str()) && !allowed.contains(&used.as_str()) {
                broken.push(format!("{name} -> {used}"));
            }
        }
    }
    assert_eq!(EDGES.len(), CRATES.len());
    none(broken, "edges that ARCHITECTURE.md does not draw");
}

#[test]
fn dependencies_are_used() {
    let mut broken = Vec::new();
    for name in CRATES {
        let text: String = below(name).into_iter().map(|file| file.text).collect();
        for table in ["dependencies", "dev-dependencies"] {
            for used in dependencies(name, table) {
                let word = used.replace('-', "_");
                let word = if word == "md_5" { "md5".to_owned() } else { word };
                if !text.contains(&format!("{word}::")) && !text.contains(&format!("use {word}")) {
                    broken.push(format!("{name}: {used}"));
                }
            }
        }
    }
    none(broken, "dependencies that no code names: take them out of Cargo.toml");
}

#[test]
fn dependencies_are_free_and_kept() {
    let mut broken = Vec::new();
    for package in packages() {
        let text = |field: &str| package.get(field).and_then(Value::as_str).unwrap_or_default();
        let (name, licence) = (text("name"), text("license"));
        // For `(MIT OR Apache-2.0) AND Unicode-3.0`, each part joined by AND needs one allowed choice.
        let allowed = licence.replace('/', " OR ").split(" AND ").all(|part| {
            part.trim_matches(['(', ')', ' '])
                .split(" OR ")
                .any(|one| LICENCES.contains(&one.trim_matches(['(', ')', ' '])))
        });
        if !allowed {
            broken.push(format!("{name}: licence {licence:?}"));
        }
        if UNMAINTAINED.iter().any(|(known, reason)| *known == name && reason.is_none()) {
            broken.push(format!("{name}: is not maintained"));
        }
    }
    none(broken, "replace these dependencies, or list them here with a reason");
}

#[test]
fn every_reason_is_still_needed() {
    let names: BTreeSet<String> = packages()
        .iter()
        .filter_map(|package| Some(package.get("name")?.as_str()?.to_owned()))
        .collect();
    let stale = UNMAINTAINED
        .iter()
        .filter(|(name, reason)| reason.is_some() && !names.contains(*name))
        .map(|(name, _)| (*name).to_owned());
    none(stale.collect(), "listed with a reason, but nothing depends on them any more");
}

fn dependencies(name: &str, table: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(name).join("Cargo.toml")).expect("a Cargo.toml");
    let manifest: toml::Table = text.parse().expect("a manifest");
    let table = manifest.get(table).and_then(toml::Value::as_table);
    table.map(|table| table.keys().cloned().collect()).unwrap_or_default()
}

fn packages() -> Vec<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--filter-platform",
            "x86_64-unknown-linux-gnu",
        ])
        .current_dir(root())
        .output()
        .expect("run cargo metadata");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut told: Value = serde_json::from_slice(&output.stdout).expect("what cargo metadata says");
    let packages = told.get_mut("packages").and_then(Value::as_array_mut).expect("packages");
    packages.drain(..).filter(|package| !package["source"].is_null()).collect()
}
