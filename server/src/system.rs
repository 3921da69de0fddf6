//! Information about the machine and this process, from `/proc`.

use std::fs::read_to_string;

/// Page size on x86-64 and most others.
pub(crate) const PAGE_SIZE: i64 = 4096;

/// Information about the machine.
#[derive(Debug, Default)]
pub struct SystemInfo {
    /// Memory of the machine.
    pub memory_mb: i64,
    /// Memory in pages.
    pub pages: i32,
    /// Cores that this process may use.
    pub cores: i32,
    /// First line of the release file.
    pub os_name: String,
    /// Version of the kernel.
    pub kernel: String,
    /// The whole version line.
    pub version_string: String,
    /// Frequency of the first core.
    pub cpu_mhz: String,
    /// Features of the first core.
    pub cpu_features: String,
    /// Soft limit of open files.
    pub open_files_max: i32,
}

impl SystemInfo {
    /// Reads it; unavailable values stay empty.
    pub fn read() -> Self {
        let memory_kb = number_after(&read("/proc/meminfo"), "MemTotal:");
        let cpu = read("/proc/cpuinfo");
        let release = read("/etc/os-release");
        Self {
            memory_mb: memory_kb / 1024,
            pages: i32::try_from(memory_kb * 1024 / PAGE_SIZE).unwrap_or(i32::MAX),
            cores: cores(),
            os_name: release.lines().next().unwrap_or_default().to_owned(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            version_string: read("/proc/version").trim().to_owned(),
            cpu_mhz: cpu_field(&cpu, "cpu MHz"),
            cpu_features: cpu_field(&cpu, "flags"),
            open_files_max: i32::try_from(open_files_max()).unwrap_or(i32::MAX),
        }
    }
}

/// Cores that this process may use.
pub fn cores() -> i32 {
    std::thread::available_parallelism().map_or(1, |n| i32::try_from(n.get()).unwrap_or(i32::MAX))
}

/// The soft limit of open files.
pub(crate) fn open_files_max() -> usize {
    let limits = read("/proc/self/limits");
    limits
        .lines()
        .find_map(|line| {
            line.strip_prefix("Max open files")?.split_whitespace().next()?.parse().ok()
        })
        .unwrap_or(usize::MAX)
}

/// The name of this machine.
pub(crate) fn host_name() -> String {
    let name = read("/proc/sys/kernel/hostname").trim().to_owned();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

/// Memory and CPU time of this process.
#[derive(Debug, Default, Clone, Copy)]
pub struct ProcessInfo {
    /// Memory in use.
    pub resident_mb: i64,
    /// Memory mapped.
    pub virtual_mb: i64,
    /// Page faults that had to read from disk.
    pub major_faults: i64,
    /// Page faults without a disk read.
    pub minor_faults: i64,
    /// CPU time in user mode.
    pub user_micros: i64,
    /// CPU time in the kernel.
    pub system_micros: i64,
    /// Number of threads.
    pub threads: i64,
}

/// Clock ticks of `/proc/self/stat`: 100 per second on every common Linux.
const MICROS_PER_TICK: i64 = 10_000;

impl ProcessInfo {
    /// Reads it.
    pub fn read() -> Self {
        let status = read("/proc/self/status");
        let stat = read("/proc/self/stat");
        // The process name, in parentheses, may contain spaces.
        let fields: Vec<i64> = stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest)
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        // proc(5) numbers them from 3.
        let field = |n: usize| fields.get(n - 3).copied().unwrap_or(0);
        Self {
            resident_mb: number_after(&status, "VmRSS:") / 1024,
            virtual_mb: number_after(&status, "VmSize:") / 1024,
            minor_faults: field(10),
            major_faults: field(12),
            user_micros: field(14) * MICROS_PER_TICK,
            system_micros: field(15) * MICROS_PER_TICK,
            threads: field(20),
        }
    }
}

fn read(path: &str) -> String {
    read_to_string(path).unwrap_or_default()
}

fn number_after(text: &str, label: &str) -> i64 {
    text.lines()
        .find_map(|line| line.strip_prefix(label)?.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

fn cpu_field(cpuinfo: &str, name: &str) -> String {
    cpuinfo
        .lines()
        .find(|line| line.starts_with(name))
        .and_then(|line| line.split_once(':'))
        .map(|(_, value)| value.trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells_something() {
        let info = SystemInfo::read();
        assert!(info.memory_mb > 0 && info.cores > 0 && !info.kernel.is_empty());
        assert!(open_files_max() > 0);
        assert!(ProcessInfo::read().resident_mb > 0);
        assert!(ProcessInfo::read().threads > 0);
    }
}
