//! Resource usage of a process, read from `/proc`.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use tests::node::Node;

/// Memory and CPU of a node's process since it started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    pub(super) resident_mib: f64,
    pub(super) peak_mib: f64,
    pub(super) cpu_secs: f64,
}

/// Clock ticks per second in `/proc/*/stat`; fixed for user space on Linux.
const TICKS_PER_SEC: f64 = 100.0;

impl Usage {
    pub(super) fn of(node: &Node) -> Result<Self> {
        let pid = node.process()?.id();
        let status = read(&format!("/proc/{pid}/status"))?;
        let kib = |field: &str| -> Result<f64> {
            status
                .lines()
                .find_map(|line| line.strip_prefix(field)?.split_whitespace().next()?.parse().ok())
                .ok_or_else(|| anyhow!("no {field} in /proc/{pid}/status"))
        };
        let stat = read(&format!("/proc/{pid}/stat"))?;
        // The process name in parentheses may contain spaces, so fields are counted after it.
        let rest = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
        let ticks = |n: usize| rest.split_whitespace().nth(n).and_then(|t| t.parse::<f64>().ok());
        let cpu = ticks(11).zip(ticks(12)).map(|(user, system)| user + system);
        Ok(Self {
            resident_mib: kib("VmRSS:")? / 1024.0,
            peak_mib: kib("VmHWM:")? / 1024.0,
            cpu_secs: cpu.ok_or_else(|| anyhow!("no times in /proc/{pid}/stat"))? / TICKS_PER_SEC,
        })
    }
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {path}"))
}

/// The unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;

/// Disk space used by all files below `dir`: allocated blocks, since a journal file may be longer than its content. A
/// file that disappears meanwhile counts as zero.
pub(super) fn disk_bytes(dir: &Path) -> Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))? {
        let entry = entry?;
        match entry.metadata() {
            Ok(meta) if meta.is_dir() => total += disk_bytes(&entry.path()).unwrap_or(0),
            Ok(meta) => total += meta.blocks() * BLOCK_BYTES,
            Err(_) => {}
        }
    }
    Ok(total)
}
