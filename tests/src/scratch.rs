//! The place where one test lives.
//!
//! A temporary directory for data and logs. A test that ends well says so with [`Scratch::finish`];
//! otherwise, by error or panic, the tail of every log goes to the test's output.
//! A test that takes too long is ended: its servers are killed, so that whatever it waits for fails.
//! `UNDERSTUDY_KEEP=1` leaves the directory of a failed test in place.

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

/// The processes that a test runs now.
#[derive(Clone, Debug, Default)]
pub struct Children(Arc<Mutex<BTreeSet<u32>>>);

impl Children {
    /// A process was started.
    pub fn add(&self, pid: u32) {
        self.lock().insert(pid);
    }

    /// It has ended.
    pub fn remove(&self, pid: u32) {
        self.lock().remove(&pid);
    }

    fn kill_all(&self) {
        for pid in self.lock().iter() {
            if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
                // One that has just ended needs no signal.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scratch {
    /// A fresh directory, named after the test, which has some minutes.
    pub fn new(name: &str) -> Result<Self> {
        Self::with_limit(name, CASE_LIMIT)
    }

    /// The same with another limit; a demo or a benchmark may take long.
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

    /// Where the test's processes are noted.
    pub fn children(&self) -> &Children {
        &self.children
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

/// Kills the children at the limit, unless the scratch directory is gone before.
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
/// Far beyond what a test takes, so that only one that hangs meets it.
pub(crate) const CASE_LIMIT: Duration = Duration::from_secs(300);
