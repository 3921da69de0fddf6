//! Keeps the newest lines, for getLog.

use std::collections::VecDeque;

/// As many as mongod keeps.
const LINES_MAX: usize = 1024;
/// Maximum total size: long lines must not use much memory.
const BYTES_MAX: usize = 1024 * 1024;

#[derive(Default)]
pub(super) struct Ring {
    lines: VecDeque<String>,
    bytes: usize,
    total: u64,
}

/// The content for getLog.
#[derive(Debug, PartialEq, Eq)]
pub struct RingView {
    /// Number of lines ever written.
    pub total: u64,
    /// The newest lines, oldest first.
    pub lines: Vec<String>,
}

impl Ring {
    pub(super) fn push(&mut self, line: String) {
        self.total += 1;
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.lines.len() > LINES_MAX || (self.bytes > BYTES_MAX && self.lines.len() > 1) {
            if let Some(gone) = self.lines.pop_front() {
                self.bytes -= gone.len();
            }
        }
    }

    pub(super) fn view(&self) -> RingView {
        RingView { total: self.total, lines: self.lines.iter().cloned().collect() }
    }
}
