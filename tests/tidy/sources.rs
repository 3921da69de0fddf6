//! The workspace's files.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates of the product, lowest layer first; `CRATES` adds tests and benchmarks.
pub(crate) const PRODUCT: &[&str] = &["protocol", "query", "storage", "repl", "server", "tools"];
pub(crate) const CRATES: &[&str] =
    &["protocol", "query", "storage", "repl", "server", "tools", "tests", "bench"];

/// One Rust file.
pub(crate) struct Source {
    /// Path relative to the workspace.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Source {
    /// The crate that it belongs to.
    pub(crate) fn owner(&self) -> &str {
        self.path.split('/').next().unwrap_or_default()
    }

    /// True for files that contain only tests.
    pub(crate) fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name == "tests.rs"
            || name == "testdata.rs"
            || name.ends_with("_tests.rs")
            || self.path.contains("/tests/")
            || self.path.contains("/sim/")
    }

    /// The numbered lines before the unit tests at the file's end.
    pub(crate) fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self.text.find("#[cfg(test)]\nmod tests").unwrap_or(self.text.len());
        let product = self.text.get(..end).unwrap_or(&self.text);
        product.lines().enumerate().map(|(at, line)| (at + 1, line))
    }
}

/// The workspace's directory.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// All Rust files below a folder of the workspace.
pub(crate) fn below(folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    collect(&root(), Path::new(folder), &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!found.is_empty(), "no Rust file below {folder}");
    found
}

/// All Rust files of all crates.
pub(crate) fn all() -> Vec<Source> {
    CRATES.iter().flat_map(|name| below(name)).collect()
}

fn collect(root: &Path, folder: &Path, into: &mut Vec<Source>) {
    for entry in fs::read_dir(root.join(folder)).expect("a folder of the workspace") {
        let entry = entry.expect("an entry of the workspace");
        let path = folder.join(entry.file_name());
        let kind = entry.file_type().expect("the kind of an entry");
        if kind.is_dir() && entry.file_name() != "target" {
            collect(root, &path, into);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(root.join(&path)).expect("a source file");
            into.push(Source { path: path.display().to_string(), text });
        }
    }
}
