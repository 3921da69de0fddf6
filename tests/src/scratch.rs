//! The place where one test lives.
//!
//! A temporary directory for data and logs. A test that ends well says so with [`Scratch::finish`];
//! otherwise, by error or panic, the tail of every log goes to the test's output.
//! `UNDERSTUDY_KEEP=1` leaves the directory of a failed test in place.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::{logs, wait};

/// A temporary directory with the logs of the servers that run in it.
#[derive(Debug)]
pub struct Scratch {
    name: String,
    dir: Option<TempDir>,
    logs: Vec<(String, PathBuf)>,
    finished: bool,
    tail_lines: usize,
}

impl Scratch {
    /// A fresh directory, named after the test.
    pub fn new(name: &str) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix(&format!("understudy-{name}-"))
            .tempdir()
            .context("create a temporary directory")?;
        Ok(Self {
            name: name.to_owned(),
            dir: Some(dir),
            logs: Vec::new(),
            finished: false,
            tail_lines: TAIL_LINES,
        })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.dir.as_ref().map_or(Path::new(""), TempDir::path)
    }

    /// The test's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Remembers a log whose tail is shown when the test fails.
    pub fn watch_log(&mut self, name: &str, path: &Path) {
        self.logs.push((name.to_owned(), path.to_owned()));
    }

    /// How many lines of each log are shown; none for a program that tells the end itself.
    pub fn show_tail(&mut self, lines: usize) {
        self.tail_lines = lines;
    }

    /// The test ended well: no logs are shown.
    pub fn finish(&mut self) {
        self.finished = true;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.finished || wait::interrupted() {
            return;
        }
        for (name, path) in self.logs.iter().filter(|_| self.tail_lines > 0) {
            eprintln!("---- {} of {}: the end of its log ----", name, self.name);
            eprintln!("{}", logs::tail(path, self.tail_lines));
        }
        if std::env::var_os("UNDERSTUDY_KEEP").is_some()
            && let Some(dir) = self.dir.take()
        {
            eprintln!("---- kept: {} ----", dir.keep().display());
        }
    }
}

const TAIL_LINES: usize = 40;
