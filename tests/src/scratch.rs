//! The working directory of one test.
//!
//! It is a temporary directory for data and logs. A successful test calls [`Scratch::finish`]; otherwise, after an
//! error or panic, the tail of every log is printed. If a test takes too long, its servers are killed, so that
//! whatever it waits for fails. `UNDERSTUDY_KEEP=1` keeps the directory of a failed test.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
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
    children: Children,
    _watchdog: mpsc::Sender<()>,
}

/// The running processes of a test.
#[derive(Clone, Debug, Default)]
pub struct Children(Arc<Mutex<BTreeSet<u32>>>);

impl Children {
    /// Registers a started process.
    pub fn add(&self, pid: u32) {
        self.lock().insert(pid);
    }

    /// Removes an ended process.
    pub fn remove(&self, pid: u32) {
        self.lock().remove(&pid);
    }

    fn kill_all(&self) {
        for pid in self.lock().iter() {
            if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
                // A process that has just ended needs no signal.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scratch {
    /// Creates a directory named after the test, with the default time limit.
    pub fn new(name: &str) -> Result<Self> {
        Self::with_limit(name, CASE_LIMIT)
    }

    /// Like [`Self::new`], with another time limit, for a demo or a benchmark.
    pub fn with_limit(name: &str, limit: Duration) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix(&format!("understudy-{name}-"))
            .tempdir()
            .context("create a temporary directory")?;
        let children = Children::default();
        Ok(Self {
            _watchdog: watch(name, limit, children.clone()),
            children,
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

    /// The processes of the test.
    pub fn children(&self) -> &Children {
        &self.children
    }

    /// The test's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Registers a log whose tail is printed when the test fails.
    pub fn watch_log(&mut self, name: &str, path: &Path) {
        self.logs.push((name.to_owned(), path.to_owned()));
    }

    /// Sets how many lines of each log are printed; 0 for a program that reports failures itself.
    pub fn show_tail(&mut self, lines: usize) {
        self.tail_lines = lines;
    }

    /// Marks the test as successful: no logs are printed.
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

/// Kills the children when the limit is reached, unless the scratch directory is dropped before.
fn watch(name: &str, limit: Duration, children: Children) -> mpsc::Sender<()> {
    let (alive, gone) = mpsc::channel();
    let name = name.to_owned();
    std::thread::spawn(move || {
        if gone.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{name} is not done after {limit:?}: its servers are killed");
            children.kill_all();
        }
    });
    alive
}

const TAIL_LINES: usize = 40;
/// Much longer than any test takes, so that only a hanging test reaches it.
pub(crate) const CASE_LIMIT: Duration = Duration::from_secs(300);
