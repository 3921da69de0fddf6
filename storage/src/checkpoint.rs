//! Backups: an online copy of the store that another node can start from.
//!
//! ```text
//!   BACKUP/
//!     MANIFEST     describes the backup and lists every file with size and SHA-256; written last, removed when a node
//!                  has started from this directory
//!     FORMAT, vote
//!     engine/      the engine's files as of one snapshot; except the empty journal, none is ever changed in place
//!   BACKUP.unfinished/     a backup that is still being written; contains a file UNFINISHED
//! ```
//!
//! A full backup copies every file. An incremental backup (`since`) makes hard links to the files that the earlier
//! backup already has, after it has read and checked them there, so a table that the engine has not rewritten takes
//! no additional space. With `link`, the files are hard links to the store's own files: such a checkpoint costs
//! nothing, but it is lost if the store's disk is lost.

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

/// The options of a backup.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    /// The target directory: an absolute path that either does not exist or is an empty directory.
    pub into: PathBuf,
    /// An earlier backup on the same file system. Files that did not change since are hard links to it.
    pub since: Option<PathBuf>,
    /// If true, the files are hard links to the store's own files instead of copies.
    pub link: bool,
    /// The name of the replica set, recorded in the manifest.
    pub set_name: String,
    /// If set, backups may be written and read only below this directory.
    pub root: Option<PathBuf>,
}

/// The result of a backup.
#[derive(Clone, Debug)]
pub struct CheckpointReport {
    /// The manifest that was written.
    pub manifest: Manifest,
    /// The number of files that are hard links.
    pub linked_files: u64,
    /// The size of the hard-linked files in bytes.
    pub linked_bytes: u64,
    /// Files of the earlier backup that do not match its manifest. They were copied from the store instead.
    pub damaged_since: Vec<String>,
    /// True if an unfinished backup of the same name was removed first.
    pub cleared: bool,
    /// How long writers were blocked.
    pub paused: Duration,
}

/// The reasons why a backup fails. Each message says what the operator can do. The store itself is not affected.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The path is relative. It must not depend on the working directory of the process.
    #[error("{} is not an absolute path; name the directory from the root on", .0.display())]
    Relative(PathBuf),
    /// The path is outside the directory that the operator allows for backups.
    #[error("{} does not lie below {}, where backups of this node go (--backupRoot)", .0.display(), .1.display())]
    Outside(PathBuf, PathBuf),
    /// The target directory exists and is not empty.
    #[error("{} is not empty; name a directory that is not there yet, or is empty", .0.display())]
    NotEmpty(PathBuf),
    /// The target lies inside the dbpath, or the dbpath inside the target.
    #[error("{} and the dbpath {} lie within each other; name a directory elsewhere", .0.display(), .1.display())]
    Overlaps(PathBuf, PathBuf),
    /// Another backup is being written to the same target.
    #[error("{} is being written by another backup; wait for its end, or name another directory", .0.display())]
    Busy(PathBuf),
    /// This node is already writing a backup.
    #[error("a backup of this node is under way; wait for its end, or end it by killOp")]
    OneAtATime,
    /// The name that the unfinished backup needs is taken by something that is not a backup.
    #[error("{} is in the way and was not left by a backup; move it away, or name another directory", .0.display())]
    InTheWay(PathBuf),
    /// The disk has too little free space.
    #[error(
        "the backup needs {needed} bytes in {}, where {free} are free; make room, choose another disk, \
         or build on an earlier backup there ('since')", path.display()
    )]
    NoSpace {
        /// The target directory.
        path: PathBuf,
        /// The bytes that the backup would write.
        needed: u64,
        /// The free bytes on the disk.
        free: u64,
    },
    /// `since` names a directory that cannot be built on.
    #[error("cannot build on {}: {why}; name another backup in 'since', or leave it out for a full one", path.display())]
    BadSince {
        /// The directory that `since` names.
        path: PathBuf,
        /// The reason why it cannot be used.
        why: String,
    },
    /// Hard links were asked for, but the two directories are on different file systems.
    #[error("{} and {} are on different file systems, and hard links need one; leave out '{option}'", .from.display(), .to.display())]
    OtherFileSystem {
        /// The directory whose files would be linked to.
        from: PathBuf,
        /// The target directory of the backup.
        to: PathBuf,
        /// The option that asks for hard links: `link` or `since`.
        option: &'static str,
    },
    /// The directory is not a complete backup.
    #[error("{} is not a backup that can be used: {why}", path.display())]
    NotWhole {
        /// The directory.
        path: PathBuf,
        /// The reason why it is not complete.
        why: String,
    },
    /// The node is in initial sync, so it has no complete data yet.
    #[error("the initial sync is not done; take the backup when this node is a secondary")]
    InitialSync,
    /// The node has applied nothing yet.
    #[error("this node holds no data yet; take the backup when it is a secondary")]
    NoData,
    /// The caller cancelled the backup.
    #[error("the backup was cancelled; nothing is left of it")]
    Cancelled,
    /// A file operation failed.
    #[error("{what}: {source}; nothing is left of this backup")]
    Io {
        /// The path of the file.
        what: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The store reported an error.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl BackupError {
    /// Wraps the error of a file operation and adds the file's path. For `map_err`.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let what = path.display().to_string();
        move |source| Self::Io { what, source }
    }
}

impl Store {
    /// Writes a backup of the store's current state. `go_on` is called repeatedly; when it returns false, the backup
    /// is cancelled and its files are removed.
    ///
    /// The backup's `applied` is the position after a whole batch. Its oplog may reach further; a node that starts
    /// from the backup replays the rest.
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

/// The earlier backup that an incremental backup builds on.
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

    /// The earlier backup's entry for a file with this name, size and engine checksum, if it has one.
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
        // The snapshot would prevent memory from being freed during the whole copy.
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

    /// Refuses hard links across file systems before anything is written.
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

    /// Copies or links a file of the store. Fails if the content does not match the engine's checksum, so that a
    /// damaged file never gets into a backup.
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

    /// Links to the same file of the earlier backup if that file, read now, is undamaged. Otherwise returns `None`.
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

    /// Copies the files that do not belong to the engine.
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

/// The timestamp of the last oplog entry in the snapshot.
fn last_entry(snapshot: &dyn crate::engine::Snapshot) -> Result<Option<u64>, StorageError> {
    use std::ops::Bound::Unbounded;
    let Some(last) = snapshot.range_back(Keyspace::Oplog, Unbounded, Unbounded).next() else {
        return Ok(None);
    };
    Ok(crate::layout::Reader(&last?.0).u64())
}

#[cfg(test)]
mod tests;
