//! A node starts in the directory of a backup: from then on it is that node's dbpath.

use std::path::Path;

use super::{files, manifest, manifest::Manifest};
use crate::{StorageError, node_files};

/// Refuses a backup that is not whole, before anything is written. Anything else is left as it is.
///
/// Sizes alone are compared: reading it all is for `verify-backup`, and the engine has its own checksums.
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

/// From now on it is a dbpath: what was backed up will change.
pub(crate) fn take_over(dbpath: &Path) -> Result<(), StorageError> {
    let path = dbpath.join(manifest::NAME);
    if path.exists() {
        // A backup acknowledged nothing, and is a whole store.
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
