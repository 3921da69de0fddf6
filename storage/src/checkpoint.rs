//! Backups: an online copy of the store that another node can start from.
//!
//! ```text
//!   BACKUP/
//!     MANIFEST     what it is and every file with size and SHA-256; written last, gone once a node has started here
//!     FORMAT, vote
//!     engine/      the engine's files at one moment; but for the empty journal none is ever changed in place
//!   BACKUP.unfinished/     the same on its way, with a file UNFINISHED in it
//! ```
//! A full backup copies every file. One that builds on an earlier backup makes hard links to the files that are in
//! both, after it has read them there: a table that the engine has not rewritten costs no room. With `link` the files
//! are hard links to those of the store itself: a checkpoint on the same disk that costs nothing, and shares its fate.

pub(crate) mod files;
pub(crate) mod manifest;
pub(crate) mod start;
pub(crate) mod verify;

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use protocol::OpTime;

use self::{
    files::{Target, check_place, check_root},
    manifest::{FileEntry, Manifest},
};
use crate::{
    StorageError, Store,
    engine::{Content, FrozenFile, Keyspace},
    layout::FORMAT_VERSION,
    node_files,
    store::read_position,
};

/// What to write, and where.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    /// The directory: absolute, and either not there or empty.
    pub into: PathBuf,
    /// An earlier backup on the same file system, whose files are shared.
    pub since: Option<PathBuf>,
    /// Hard links to the store's own files instead of copies.
    pub link: bool,
    /// The name of the set, for the manifest.
    pub set_name: String,
    /// Backups are written and looked for below this directory alone.
    pub root: Option<PathBuf>,
}

/// What was written.
#[derive(Clone, Debug)]
pub struct CheckpointReport {
    /// As it stands on disk.
    pub manifest: Manifest,
    /// How many files are hard links.
    pub linked_files: u64,
    /// Their bytes.
    pub linked_bytes: u64,
    /// Files of the earlier backup that are not what its manifest says: they were copied from the store instead.
    pub damaged_since: Vec<String>,
    /// An unfinished backup of the same name that was in the way and is gone.
    pub cleared: bool,
    /// How long writers had to wait.
    pub paused: Duration,
}

/// Why there is no backup, each with the way out. The store itself is as it was.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Where the process happens to stand is nobody's business.
    #[error("{} is not an absolute path; name the directory from the root on", .0.display())]
    Relative(PathBuf),
    /// The operator allows one place only.
    #[error("{} does not lie below {}, where backups of this node go (--backupRoot)", .0.display(), .1.display())]
    Outside(PathBuf, PathBuf),
    /// There is something already.
    #[error("{} is not empty; name a directory that is not there yet, or is empty", .0.display())]
    NotEmpty(PathBuf),
    /// A backup in the dbpath, or the other way round.
    #[error("{} and the dbpath {} lie within each other; name a directory elsewhere", .0.display(), .1.display())]
    Overlaps(PathBuf, PathBuf),
    /// Somebody writes there now.
    #[error("{} is being written by another backup; wait for its end, or name another directory", .0.display())]
    Busy(PathBuf),
    /// This node has one under way.
    #[error("a backup of this node is under way; wait for its end, or end it by killOp")]
    OneAtATime,
    /// The name that an unfinished backup gets is taken by something else.
    #[error("{} is in the way and was not left by a backup; move it away, or name another directory", .0.display())]
    InTheWay(PathBuf),
    /// The disk cannot take it.
    #[error(
        "the backup needs {needed} bytes in {}, where {free} are free; make room, choose another disk, \
         or build on an earlier backup there ('since')", path.display()
    )]
    NoSpace {
        /// The directory.
        path: PathBuf,
        /// What would be written.
        needed: u64,
        /// What is there.
        free: u64,
    },
    /// `since` names something that cannot be built on.
    #[error("cannot build on {}: {why}; name another backup in 'since', or leave it out for a full one", path.display())]
    BadSince {
        /// The directory named.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Hard links do not cross file systems.
    #[error("{} and {} are on different file systems, and hard links need one; leave out '{option}'", .from.display(), .to.display())]
    OtherFileSystem {
        /// What would be linked to.
        from: PathBuf,
        /// The backup.
        to: PathBuf,
        /// What asks for links.
        option: &'static str,
    },
    /// Not a whole backup.
    #[error("{} is not a backup that can be used: {why}", path.display())]
    NotWhole {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// There is nothing whole to copy yet.
    #[error("the initial sync is not done; take the backup when this node is a secondary")]
    InitialSync,
    /// There is nothing at all.
    #[error("this node holds no data yet; take the backup when it is a secondary")]
    NoData,
    /// The caller said stop.
    #[error("the backup was cancelled; nothing is left of it")]
    Cancelled,
    /// The disk said no.
    #[error("{what}: {source}; nothing is left of this backup")]
    Io {
        /// The file.
        what: String,
        /// The system's word.
        source: io::Error,
    },
    /// The store said no.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl BackupError {
    /// For `map_err` on file operations: names the file.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let what = path.display().to_string();
        move |source| Self::Io { what, source }
    }
}

impl Store {
    /// Writes a backup of the store as it stands. `go_on` is asked again and again; what a false leaves is cleared.
    ///
    /// `applied` of the backup is that of a batch boundary, and its oplog may reach further: it is replayed at start.
    pub fn checkpoint(
        &self,
        wanted: &Checkpoint,
        go_on: &dyn Fn() -> bool,
    ) -> Result<CheckpointReport, BackupError> {
        let _alone = self.0.backup.try_lock().ok_or(BackupError::OneAtATime)?;
        if self.initial_sync_pending() {
            return Err(BackupError::InitialSync);
        }
        if self.watermarks().applied().op_time.is_null() {
            return Err(BackupError::NoData);
        }
        for path in [Some(&wanted.into), wanted.since.as_ref()].into_iter().flatten() {
            check_root(path, wanted.root.as_deref())?;
        }
        check_place(&wanted.into, self.dbpath())?;
        let since = wanted.since.as_deref().map(Since::open).transpose()?;
        let (target, cleared) = Target::begin(&wanted.into)?;
        let mut work = Work { store: self, wanted, since, target, go_on };
        match work.write() {
            Ok(report) => Ok(CheckpointReport { cleared, ..report }),
            Err(error) => {
                work.target.clear();
                Err(error)
            }
        }
    }
}

/// An earlier backup to build on.
struct Since {
    path: PathBuf,
    files: HashMap<String, FileEntry>,
}

impl Since {
    fn open(path: &Path) -> Result<Self, BackupError> {
        let bad = |why: String| BackupError::BadSince { path: path.to_owned(), why };
        let manifest = Manifest::read(path).map_err(|error| match error {
            BackupError::NotWhole { why, .. } => bad(why),
            other => bad(other.to_string()),
        })?;
        let files = manifest.files.into_iter().map(|file| (file.path.clone(), file)).collect();
        Ok(Self { path: path.to_owned(), files })
    }

    /// The same file there, by the engine's own checksum of it.
    fn same(&self, name: &str, sum: Option<u128>, bytes: u64) -> Option<&FileEntry> {
        let sum = sum.map(|sum| format!("{sum:032x}"))?;
        self.files.get(name).filter(|file| file.engine_sum == Some(sum) && file.bytes == bytes)
    }
}

struct Work<'a> {
    store: &'a Store,
    wanted: &'a Checkpoint,
    since: Option<Since>,
    target: Target,
    go_on: &'a dyn Fn() -> bool,
}

impl Work<'_> {
    fn write(&mut self) -> Result<CheckpointReport, BackupError> {
        self.check_links()?;
        let frozen = self.store.0.engine.freeze()?;
        let at = read_position(&*frozen.snapshot, "applied")?;
        let oldest = self.store.watermarks().oldest();
        let oplog_top = last_entry(&*frozen.snapshot)?.unwrap_or(at.op_time.ts.as_u64());
        // It would keep memory from being freed for as long as the copy takes.
        drop(frozen.snapshot);
        self.check_space(&frozen.files)?;
        let mut report = CheckpointReport {
            manifest: Manifest {
                format: FORMAT_VERSION,
                engine: "fjall".to_owned(),
                set: self.wanted.set_name.clone(),
                optime: OpTime::new(at.op_time.ts, at.op_time.t),
                wall_millis: at.wall.timestamp_millis(),
                oplog_top: protocol::Timestamp::from_u64(oplog_top),
                oldest,
                since: self.wanted.since.clone(),
                files: Vec::new(),
            },
            linked_files: 0,
            linked_bytes: 0,
            damaged_since: Vec::new(),
            cleared: false,
            paused: frozen.paused,
        };
        for file in &frozen.files {
            self.take(file, &mut report)?;
        }
        self.take_node_files(&mut report)?;
        report.manifest.files.sort_by(|a, b| a.path.cmp(&b.path));
        self.target.finish(&report.manifest)?;
        Ok(report)
    }

    /// Hard links are refused before anything is written.
    fn check_links(&self) -> Result<(), BackupError> {
        let ours = self.wanted.link.then(|| (self.store.dbpath().to_owned(), "link"));
        let theirs = self.since.as_ref().map(|since| (since.path.clone(), "since"));
        for (from, option) in ours.into_iter().chain(theirs) {
            if !files::same_file_system(&from, self.target.path())? {
                let to = self.wanted.into.clone();
                return Err(BackupError::OtherFileSystem { from, to, option });
            }
        }
        Ok(())
    }

    fn check_space(&self, files: &[FrozenFile]) -> Result<(), BackupError> {
        let mut needed = 0;
        for file in files {
            match &file.content {
                Content::Bytes(bytes) => needed += bytes.len() as u64,
                Content::File { .. } if self.wanted.link => {}
                Content::File { path, sum } => {
                    let bytes = files::len(path)?;
                    let since = self.since.as_ref();
                    if since.and_then(|s| s.same(&in_backup(&file.name), *sum, bytes)).is_none() {
                        needed += bytes;
                    }
                }
            }
        }
        let free = files::free_bytes(self.target.path())?;
        if needed > free {
            return Err(BackupError::NoSpace { path: self.wanted.into.clone(), needed, free });
        }
        Ok(())
    }

    fn take(&self, file: &FrozenFile, report: &mut CheckpointReport) -> Result<(), BackupError> {
        let name = in_backup(&file.name);
        let (bytes, sha256, sum) = match &file.content {
            Content::Bytes(content) => {
                let (bytes, sha256) = self.target.write(&name, content)?;
                (bytes, sha256, None)
            }
            Content::File { path, sum } => {
                let bytes = files::len(path)?;
                let shared = match self.since.as_ref() {
                    Some(since) => self.link_to(since, &name, *sum, bytes, report)?,
                    None => None,
                };
                let sha256 = match shared {
                    Some(sha256) => sha256,
                    None => self.take_ours(path, *sum, &name, report)?,
                };
                (bytes, sha256, *sum)
            }
        };
        let engine_sum = sum.map(|sum| format!("{sum:032x}"));
        report.manifest.files.push(FileEntry { path: name, bytes, sha256, engine_sum });
        Ok(())
    }

    /// Copies a file of the store, or links to it. What is rotten is no backup: the engine knows a checksum of each.
    fn take_ours(
        &self,
        path: &Path,
        sum: Option<u128>,
        name: &str,
        report: &mut CheckpointReport,
    ) -> Result<String, BackupError> {
        let sums = if self.wanted.link {
            self.target.link(path, name)?;
            let sums = files::sums(path, self.go_on)?;
            report.linked_files += 1;
            report.linked_bytes += sums.bytes;
            sums
        } else {
            self.target.copy(path, name, self.go_on)?
        };
        if sums.agree_with(sum) {
            return Ok(sums.sha256);
        }
        let why = "its checksum is wrong";
        Err(StorageError::corrupt(path.display().to_string(), why).into())
    }

    /// Links to the same file of the earlier backup, once it was read there and is whole.
    fn link_to(
        &self,
        since: &Since,
        name: &str,
        sum: Option<u128>,
        bytes: u64,
        report: &mut CheckpointReport,
    ) -> Result<Option<String>, BackupError> {
        let Some(entry) = since.same(name, sum, bytes) else { return Ok(None) };
        let path = since.path.join(name);
        match files::sums(&path, self.go_on) {
            Ok(sums) if sums.sha256 == entry.sha256 && sums.agree_with(sum) => {}
            Err(BackupError::Cancelled) => return Err(BackupError::Cancelled),
            _ => {
                report.damaged_since.push(name.to_owned());
                return Ok(None);
            }
        }
        self.target.link(&path, name)?;
        report.linked_files += 1;
        report.linked_bytes += bytes;
        Ok(Some(entry.sha256.clone()))
    }

    /// The files beside the engine's.
    fn take_node_files(&self, report: &mut CheckpointReport) -> Result<(), BackupError> {
        for name in node_files::IN_BACKUPS {
            let path = self.store.dbpath().join(name);
            let content = match std::fs::read(&path) {
                Ok(content) => node_files::whole(&path, content)?,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(BackupError::io(&path)(e)),
            };
            let (bytes, sha256) = self.target.write(name, &content)?;
            let path = (*name).to_owned();
            report.manifest.files.push(FileEntry { path, bytes, sha256, engine_sum: None });
        }
        Ok(())
    }
}

fn in_backup(name: &str) -> String {
    format!("engine/{name}")
}

/// How far the copied oplog reaches.
fn last_entry(snapshot: &dyn crate::engine::Snapshot) -> Result<Option<u64>, StorageError> {
    use std::ops::Bound::Unbounded;
    let Some(last) = snapshot.range_back(Keyspace::Oplog, Unbounded, Unbounded).next() else {
        return Ok(None);
    };
    Ok(crate::layout::Reader(&last?.0).u64())
}

#[cfg(test)]
mod tests;
