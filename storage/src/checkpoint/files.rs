//! Writes the files of a backup into a directory whose name says that the backup is unfinished.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
};

use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::Xxh3;

use super::{BackupError, manifest::Manifest};
use crate::{StorageError, node_files};

/// The number of bytes read at a time. A backup can be cancelled between two reads.
const CHUNK: usize = 1 << 20;
/// A marker file in the directory of a backup that is still being written.
pub(crate) const UNFINISHED: &str = "UNFINISHED";

/// Refuses a path that is not below the directory the operator allows.
pub(super) fn check_root(path: &Path, root: Option<&Path>) -> Result<(), BackupError> {
    let Some(root) = root else { return Ok(()) };
    if !path.is_absolute() {
        return Err(BackupError::Relative(path.to_owned()));
    }
    let (real, below) = (resolve(path), resolve(root));
    // `resolve` does not resolve the part of the path that does not exist, so a `..` in it could lead out of the
    // allowed directory.
    let leads_out = real.components().any(|part| part == Component::ParentDir);
    if leads_out || !real.starts_with(&below) || real == below {
        return Err(BackupError::Outside(path.to_owned(), root.to_owned()));
    }
    Ok(())
}

/// Refuses a relative target, one that overlaps the dbpath, and one that is not empty.
pub(super) fn check_place(into: &Path, dbpath: &Path) -> Result<(), BackupError> {
    if !into.is_absolute() {
        return Err(BackupError::Relative(into.to_owned()));
    }
    let (real, dbpath) = (resolve(into), resolve(dbpath));
    if real.starts_with(&dbpath) || dbpath.starts_with(&real) {
        return Err(BackupError::Overlaps(into.to_owned(), dbpath));
    }
    match fs::read_dir(into) {
        Ok(mut entries) => match entries.next() {
            Some(_) => Err(BackupError::NotEmpty(into.to_owned())),
            None => Ok(()),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(BackupError::io(into)(e)),
    }
}

/// Resolves symbolic links and `..` in the part of the path that exists.
fn resolve(path: &Path) -> PathBuf {
    let mut rest = Vec::new();
    let mut there = path;
    loop {
        if let Ok(real) = there.canonicalize() {
            return rest.iter().rev().fold(real, |path, part| path.join(part));
        }
        match (there.parent(), there.file_name()) {
            (Some(parent), Some(name)) => {
                rest.push(name.to_owned());
                there = parent;
            }
            _ => return path.to_owned(),
        }
    }
}

/// A backup that is being written.
pub(super) struct Target {
    into: PathBuf,
    unfinished: PathBuf,
    _lock: node_files::Lock,
}

impl Target {
    /// Begins a backup. Also returns true if the remains of an interrupted backup were removed first.
    pub(super) fn begin(into: &Path) -> Result<(Self, bool), BackupError> {
        let mut name = into.file_name().map_or_else(OsString::new, OsString::from);
        name.push(".unfinished");
        let unfinished = into.with_file_name(name);
        let cleared = clear_left_over(&unfinished)?;
        fs::create_dir_all(&unfinished).map_err(BackupError::io(&unfinished))?;
        let lock = lock(&unfinished)?;
        let target = Self { into: into.to_owned(), unfinished, _lock: lock };
        target
            .write(UNFINISHED, b"A backup is being written here, or was when its node ended.\n")?;
        Ok((target, cleared))
    }

    /// The directory that is being written to.
    pub(super) fn path(&self) -> &Path {
        &self.unfinished
    }

    /// Writes a small file and returns its size and SHA-256.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> Result<(u64, String), BackupError> {
        let path = self.place(name)?;
        let map = || BackupError::io(&path);
        let mut file = File::create_new(&path).map_err(map())?;
        file.write_all(content).and_then(|()| file.sync_all()).map_err(map())?;
        Ok((content.len() as u64, hex(&Sha256::digest(content))))
    }

    /// Copies a file and returns its size and checksums.
    pub(super) fn copy(
        &self,
        from: &Path,
        name: &str,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Sums, BackupError> {
        let path = self.place(name)?;
        let mut out = File::create_new(&path).map_err(BackupError::io(&path))?;
        let read =
            read_all(from, go_on, |chunk| out.write_all(chunk).map_err(BackupError::io(&path)))?;
        out.sync_all().map_err(BackupError::io(&path))?;
        Ok(read)
    }

    pub(super) fn link(&self, to: &Path, name: &str) -> Result<(), BackupError> {
        let path = self.place(name)?;
        fs::hard_link(to, &path).map_err(BackupError::io(&path))
    }

    fn place(&self, name: &str) -> Result<PathBuf, BackupError> {
        let path = self.unfinished.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(BackupError::io(folder))?;
        }
        Ok(path)
    }

    /// Completes the backup: writes the manifest last and then renames the directory, so whatever is found at `into`
    /// is a complete backup.
    pub(super) fn finish(&self, manifest: &Manifest) -> Result<(), BackupError> {
        self.write(super::manifest::NAME, manifest.to_text().as_bytes())?;
        sync_folders(&self.unfinished)?;
        for name in [node_files::LOCK, UNFINISHED] {
            let path = self.unfinished.join(name);
            fs::remove_file(&path).map_err(BackupError::io(&path))?;
        }
        node_files::sync_dir(&self.unfinished)?;
        fs::rename(&self.unfinished, &self.into).map_err(BackupError::io(&self.into))?;
        node_files::sync_dir(self.into.parent().unwrap_or(&self.into))?;
        Ok(())
    }

    /// Removes the unfinished backup after a failure.
    pub(super) fn clear(&self) {
        if let Err(error) = fs::remove_dir_all(&self.unfinished) {
            tracing::warn!(path = %self.unfinished.display(), %error,
                "cannot remove the files of a failed backup; remove them by hand");
        }
    }
}

fn lock(unfinished: &Path) -> Result<node_files::Lock, BackupError> {
    node_files::Lock::take(unfinished).map_err(|error| match error {
        StorageError::Locked { .. } => BackupError::Busy(unfinished.to_owned()),
        other => other.into(),
    })
}

/// Removes what an interrupted backup left behind. Refuses to remove a directory that is not a backup.
fn clear_left_over(unfinished: &Path) -> Result<bool, BackupError> {
    if !unfinished.exists() {
        return Ok(false);
    }
    let entries = fs::read_dir(unfinished).map_err(BackupError::io(unfinished))?;
    let names: Vec<OsString> = entries.filter_map(Result::ok).map(|e| e.file_name()).collect();
    let ours = names.iter().any(|name| name == UNFINISHED || name == super::manifest::NAME)
        || names.iter().all(|name| name == node_files::LOCK);
    if !ours {
        return Err(BackupError::InTheWay(unfinished.to_owned()));
    }
    let _lock = lock(unfinished)?;
    fs::remove_dir_all(unfinished).map_err(BackupError::io(unfinished))?;
    Ok(true)
}

fn sync_folders(folder: &Path) -> Result<(), BackupError> {
    for entry in fs::read_dir(folder).map_err(BackupError::io(folder))? {
        let entry = entry.map_err(BackupError::io(folder))?;
        if entry.file_type().map_err(BackupError::io(folder))?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    Ok(node_files::sync_dir(folder)?)
}

/// Size and checksums of a file that was read completely.
pub(super) struct Sums {
    pub(super) bytes: u64,
    pub(super) sha256: String,
    /// The checksum as the engine computes it (xxh3).
    engine: u128,
}

impl Sums {
    /// True if the engine's checksum of the file equals this one, or if the engine has none.
    pub(super) fn agree_with(&self, sum: Option<u128>) -> bool {
        sum.is_none_or(|sum| sum == self.engine)
    }
}

/// Reads a file and returns its size and checksums.
pub(super) fn sums(path: &Path, go_on: &dyn Fn() -> bool) -> Result<Sums, BackupError> {
    read_all(path, go_on, |_| Ok(()))
}

fn read_all(
    path: &Path,
    go_on: &dyn Fn() -> bool,
    mut each: impl FnMut(&[u8]) -> Result<(), BackupError>,
) -> Result<Sums, BackupError> {
    let mut file = File::open(path).map_err(BackupError::io(path))?;
    let (mut sha256, mut engine, mut bytes) = (Sha256::new(), Xxh3::new(), 0);
    let mut buffer = vec![0; CHUNK];
    loop {
        if !go_on() {
            return Err(BackupError::Cancelled);
        }
        let n = file.read(&mut buffer).map_err(BackupError::io(path))?;
        let chunk = buffer.get(..n).unwrap_or_default();
        if chunk.is_empty() {
            let (sha256, engine) = (hex(&sha256.finalize()), engine.digest128());
            return Ok(Sums { bytes, sha256, engine });
        }
        sha256.update(chunk);
        engine.update(chunk);
        bytes += n as u64;
        each(chunk)?;
    }
}

pub(super) fn len(path: &Path) -> Result<u64, BackupError> {
    fs::metadata(path).map(|data| data.len()).map_err(BackupError::io(path))
}

pub(super) fn same_file_system(a: &Path, b: &Path) -> Result<bool, BackupError> {
    let device =
        |path: &Path| fs::metadata(path).map(|data| data.dev()).map_err(BackupError::io(path));
    Ok(device(a)? == device(b)?)
}

pub(super) fn free_bytes(path: &Path) -> Result<u64, BackupError> {
    let stat = rustix::fs::statvfs(path).map_err(|e| BackupError::io(path)(e.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
