//! Starting a node in the directory of a backup, which then becomes its dbpath.

use std::path::Path;

use super::{files, manifest, manifest::Manifest};
use crate::{StorageError, node_files};

/// Refuses an incomplete backup before anything is written. Other directories are accepted.
///
/// Only sizes are compared: `verify-backup` reads the content, and the engine has its own checksums.
pub(crate) fn check_backup(dbpath: &Path) -> Result<(), StorageError> {
    let refuse = |why: String| StorageError::DamagedBackup { path: dbpath.to_owned(), why };
    if dbpath.join(files::UNFINISHED).exists() {
        return Err(refuse("it was never finished".to_owned()));
    }
    if !dbpath.join(manifest::NAME).exists() {
        return Ok(());
    }
    let manifest = Manifest::read(dbpath).map_err(|error| refuse(error.to_string()))?;
    for file in &manifest.files {
        match std::fs::metadata(dbpath.join(&file.path)) {
            Ok(found) if found.len() == file.bytes => {}
            Ok(found) => {
                let (name, found, wanted) = (&file.path, found.len(), file.bytes);
                return Err(refuse(format!("{name} has {found} bytes instead of {wanted}")));
            }
            Err(error) => return Err(refuse(format!("{}: {error}", file.path))),
        }
    }
    tracing::info!(set = manifest.set, optime = %manifest.optime, "Starting from a backup");
    Ok(())
}

/// True for the directory of a backup in which no node was started yet.
pub(crate) fn is_backup(dbpath: &Path) -> bool {
    dbpath.join(manifest::NAME).exists()
}

/// Turns a backup into a dbpath by removing its manifest, since the files will change from now on.
pub(crate) fn take_over(dbpath: &Path) -> Result<(), StorageError> {
    let path = dbpath.join(manifest::NAME);
    if is_backup(dbpath) {
        // A backup is a complete store in which nothing was acknowledged yet.
        node_files::DurableMark::make(dbpath)?;
        let mark = node_files::DurableMark::open(dbpath)?;
        if !mark.is_begun() {
            mark.begin()?;
        }
    }
    match std::fs::remove_file(&path) {
        Ok(()) => node_files::sync_dir(dbpath),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(StorageError::io(path.display().to_string())(e)),
    }
}
