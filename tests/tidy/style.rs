//! Checks imports, public items, line length and file length.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    none,
    sources::{PRODUCT, Source, all, below},
};

const LINE_MAX: usize = 150;
const FILE_MAX: usize = 750;
const TEST_FILE_MAX: usize = 1_100;
/// Maximum number of public items that no other crate uses.
const DEAD_MAX: usize = 190;

#[test]
fn lines_and_files_are_short() {
    let mut broken = Vec::new();
    for file in all() {
        let lines = file.text.lines().count();
        let most = if file.is_test() { TEST_FILE_MAX } else { FILE_MAX };
        if lines > most {
            broken.push(format!("{}: {lines} lines, {most} at most", file.path));
        }
        for (at, line) in file.text.lines().enumerate() {
            let long = line.chars().count();
            // A long error text of mongod and a row of a table may stay on one line.
            if long > LINE_MAX && !line.contains('"') && !line.starts_with("//! |") {
                broken.push(format!("{}:{}: {long} characters", file.path, at + 1));
            }
        }
    }
    none(broken, "split these");
}

/// A module with files of its own is `x.rs` beside the folder `x/`.
#[test]
fn modules_are_files_beside_their_folder() {
    let named_mod = |file: &Source| file.path.contains("/src/") && file.path.ends_with("/mod.rs");
    let broken = all().into_iter().filter(named_mod).map(|file| file.path);
    none(broken.collect(), "name these after their folder, beside it");
}

/// Pure code (replication decisions, the query language) gets time, randomness and I/O from outside.
#[test]
fn pure_code_is_pure() {
    const IMPURE: &[&str] = &[
        "tokio",
        "std::fs",
        "std::net",
        "std::thread",
        "std::process",
        "SystemTime",
        "Instant::now",
        "rand::rng",
        "rand::random",
        "new_v4",
        "println!",
    ];
    let mut broken = Vec::new();
    for folder in ["query/src", "repl/src/core", "protocol/src"] {
        for file in below(folder) {
            let client = file.path.starts_with("protocol/src/client")
                || file.path.starts_with("protocol/src/codec");
            if file.is_test() || client {
                continue;
            }
            for (at, line) in file.product_lines() {
                let code = line.split("//").next().unwrap_or_default();
                if let Some(word) = IMPURE.iter().find(|word| code.contains(**word)) {
                    broken.push(format!("{}:{at}: {word}", file.path));
                }
            }
        }
    }
    none(broken, "pure code is given what it needs; move these to an `io` module");
}

#[test]
fn public_items_are_named_by_other_crates() {
    let files = all();
    let mut named: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for file in &files {
        named.entry(user_of(file)).or_default().extend(words(&file.text));
    }
    let mut dead = Vec::new();
    for file in &files {
        let owner = file.owner();
        if !PRODUCT.contains(&owner) || user_of(file) != owner {
            continue;
        }
        for (at, line) in file.product_lines() {
            let Some(item) = public_item(line) else { continue };
            let used = named.iter().any(|(user, words)| user != owner && words.contains(item));
            if !used {
                dead.push(format!("{}:{at}: {item}", file.path));
            }
        }
    }
    if dead.len() > DEAD_MAX {
        none(dead, "no other crate names these: make them pub(crate), or delete them");
    }
}

/// The user of a file's public items: its crate, or the programs, tests and benchmarks of its crate.
fn user_of(file: &Source) -> String {
    let owner = file.owner();
    let outside = !file.path.starts_with(&format!("{owner}/src/"))
        || file.path.contains("/bin/")
        || file.path.ends_with("/main.rs");
    if outside { format!("programs of {owner}") } else { owner.to_owned() }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

fn public_item(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let rest = rest.strip_prefix("async ").unwrap_or(rest);
    let rest = rest.strip_prefix("const fn").or(rest.strip_prefix("fn")).or_else(|| {
        ["struct", "enum", "trait", "type", "const", "static"]
            .iter()
            .find_map(|kind| rest.strip_prefix(*kind))
    })?;
    words(rest.strip_prefix(' ')?).next()
}
