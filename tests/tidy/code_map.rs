//! Checks ARCHITECTURE.md's code map: every path in it exists, and every file that should be in it is.
//!
//! Every file and folder directly below a crate's `src` has a line. If a folder has lines for its files, it has one
//! for each of them; otherwise its own line describes it as a whole.

use std::collections::BTreeSet;
use std::fs;

use crate::{
    none,
    sources::{PRODUCT, root},
};

#[test]
fn the_code_map_names_what_exists() {
    let broken = mapped().into_iter().filter(|path| !root().join(path).exists());
    none(broken.collect(), "ARCHITECTURE.md's code map names files that are not there");
}

#[test]
fn the_code_map_is_complete() {
    let mapped = mapped();
    let mut missing = Vec::new();
    for folder in PRODUCT.iter().map(|name| format!("{name}/src")).chain(["tests/src".into()]) {
        missing_below(&folder, &mapped, &mut missing);
    }
    none(missing, "ARCHITECTURE.md's code map lacks these; say in a line what each is");
}

fn missing_below(folder: &str, mapped: &BTreeSet<String>, missing: &mut Vec<String>) {
    let listed = mapped.iter().any(|path| path.starts_with(&format!("{folder}/")));
    if !listed {
        return;
    }
    for entry in fs::read_dir(root().join(folder)).expect("a source folder") {
        let entry = entry.expect("an entry of a source folder");
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{folder}/{name}");
        let is_dir = entry.file_type().expect("the kind of an entry").is_dir();
        if is_dir {
            missing_below(&path, mapped, missing);
        }
        // The line of `x.rs` also covers the folder `x/`, and vice versa. Crate roots and tests need no line.
        let twin = if is_dir { format!("{path}.rs") } else { path.trim_end_matches(".rs").into() };
        let needs_none = ["lib.rs", "main.rs", "tests.rs", "tests"];
        if !needs_none.contains(&name.as_str())
            && !mapped.contains(&path)
            && !mapped.contains(&twin)
        {
            missing.push(path);
        }
    }
}

/// The paths in the map, without trailing slashes.
fn mapped() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let map = text.split("## Code map").nth(1).expect("a code map");
    let map = map.split("```").nth(1).expect("the map's block");
    let mut paths = BTreeSet::new();
    let mut open: Vec<(usize, String)> = Vec::new();
    for line in map.lines().skip(1).filter(|line| !line.trim().is_empty()) {
        let depth = line.len() - line.trim_start().len();
        let Some(name) = line.split_whitespace().next() else { continue };
        open.retain(|(other, _)| *other < depth);
        let parent = open.last().map_or(String::new(), |(_, path)| format!("{path}/"));
        // The files of the folder `x` are indented below `x.rs`.
        let parent = parent.replace(".rs/", "/");
        let path = format!("{parent}{}", name.trim_end_matches('/'));
        open.push((depth, path.clone()));
        paths.insert(path);
    }
    assert!(paths.len() > 100, "the map was not understood: {paths:?}");
    paths
}
