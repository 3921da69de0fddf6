//! Checks that a backup matches its manifest.

use std::{collections::HashSet, path::Path};

use super::{BackupError, files, manifest, manifest::Manifest};
use crate::{
    layout::{FORMAT_OLDEST, FORMAT_VERSION},
    node_files::LOCK,
};

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Verified {
    /// The manifest of the backup.
    pub manifest: Manifest,
    /// The problems found, one sentence each. Empty if the backup is undamaged.
    pub problems: Vec<String>,
}

/// Reads and checks every file of a backup. `each` is called after each file with the total bytes of the files so
/// far.
pub fn verify_backup(dir: &Path, each: &mut dyn FnMut(u64)) -> Result<Verified, BackupError> {
    let manifest = Manifest::read(dir)?;
    let mut problems = Vec::new();
    if !(FORMAT_OLDEST..=FORMAT_VERSION).contains(&manifest.format) {
        let format = manifest.format;
        problems.push(format!(
            "it has format {format}, this program reads {FORMAT_VERSION}: use the program that wrote it"
        ));
    }
    let mut done = 0;
    for file in &manifest.files {
        let name = &file.path;
        // An earlier version of this program may have backed up a file that was already damaged. The engine's
        // checksum reveals it.
        let sum = file.engine_sum.as_deref().map(|sum| u128::from_str_radix(sum, 16));
        let Ok(sum) = sum.transpose() else {
            problems.push(format!("{name} has a checksum that is none: {:?}", file.engine_sum));
            continue;
        };
        match files::sums(&dir.join(name), &|| true) {
            Err(BackupError::Io { source, .. }) => {
                problems.push(format!("{name} cannot be read: {source}"));
            }
            Err(error) => problems.push(format!("{name} cannot be read: {error}")),
            Ok(sums) if sums.bytes != file.bytes => {
                let (bytes, wanted) = (sums.bytes, file.bytes);
                problems.push(format!("{name} has {bytes} bytes instead of {wanted}"));
            }
            Ok(sums) if sums.sha256 != file.sha256 => {
                problems.push(format!("{name} has another content than what was backed up"));
            }
            Ok(sums) if !sums.agree_with(sum) => {
                problems.push(format!("{name} was damaged when it was backed up"));
            }
            Ok(_) => {}
        }
        done += file.bytes;
        each(done);
    }
    let known: HashSet<&str> = manifest.files.iter().map(|file| file.path.as_str()).collect();
    let mut found = Vec::new();
    list(dir, dir, &mut found)?;
    // A start that was refused leaves its lock file behind.
    let expected = |name: &str| known.contains(name) || [manifest::NAME, LOCK].contains(&name);
    for name in found.iter().filter(|name| !expected(name)) {
        problems.push(format!("{name} is not part of it"));
    }
    Ok(Verified { manifest, problems })
}

fn list(dir: &Path, folder: &Path, found: &mut Vec<String>) -> Result<(), BackupError> {
    for entry in std::fs::read_dir(folder).map_err(BackupError::io(folder))? {
        let path = entry.map_err(BackupError::io(folder))?.path();
        if path.is_dir() {
            list(dir, &path, found)?;
        } else if let Ok(name) = path.strip_prefix(dir) {
            found.push(name.to_string_lossy().into_owned());
        }
    }
    Ok(())
}
