//! Reads every file of an engine at a chosen speed and compares it with its checksum. The engine may be running.
//!
//! Normal reads check only what they read. Data that nobody reads may be damaged for years before anybody notices.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use super::{
    damage::{self, Damaged},
    fjall::journal::{self, Rubble},
};
use crate::StorageError;

/// The result of a scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// The number of files that were read.
    pub files: u64,
    /// The number of bytes that were read.
    pub bytes: u64,
    /// The damage found, one sentence each, beginning with the file's name. Empty if there is none.
    pub damaged: Vec<String>,
    /// False if the scrub was stopped before its end.
    pub complete: bool,
}

impl Scrubbed {
    /// True if everything was read and nothing is damaged.
    pub fn is_whole(&self) -> bool {
        self.complete && self.damaged.is_empty()
    }
}

/// Reads all files of an engine. `running` means that the engine is open; then its last journal is still being
/// written and is not checked.
pub(crate) fn scrub(
    engine: &Path,
    running: bool,
    pace: &mut dyn FnMut(u64) -> bool,
) -> Result<Scrubbed, StorageError> {
    let mut found = Scrubbed { complete: true, ..Scrubbed::default() };
    let folder = engine.join("keyspaces");
    let map = || StorageError::io(folder.display().to_string());
    let mut dirs: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(map())? {
        let path = entry.map_err(map())?.path();
        if path.is_dir() {
            dirs.push(path);
        }
    }
    dirs.sort();
    for dir in dirs {
        keyspace(&dir, pace, &mut found);
    }
    journals(engine, running, &mut found)?;
    Ok(found)
}

/// Checks a keyspace. Compaction may replace the manifest while its files are being read; then the new manifest is
/// used.
fn keyspace(dir: &Path, pace: &mut dyn FnMut(u64) -> bool, found: &mut Scrubbed) {
    let current = dir.join("current");
    let mut done = HashSet::new();
    loop {
        let before = damage::read(&current);
        let result = before.map(|before| {
            let result = files(dir, &before, &mut done, pace, found);
            (before, result)
        });
        let damaged = match result {
            Ok((_, Ok(()))) => return,
            Ok((before, Err(_))) if damage::read(&current).is_ok_and(|now| now != before) => {
                continue;
            }
            Ok((_, Err(damaged))) | Err(damaged) => damaged,
        };
        let what = format!("{} is damaged: {}", damaged.file.display(), damaged.why);
        if !done.insert(damaged.file) {
            return;
        }
        found.damaged.push(what);
    }
}

fn files(
    dir: &Path,
    current: &[u8],
    done: &mut HashSet<PathBuf>,
    pace: &mut dyn FnMut(u64) -> bool,
    found: &mut Scrubbed,
) -> Result<(), Damaged> {
    for file in damage::named(dir, current)? {
        if !found.complete || done.contains(&file.path) {
            continue;
        }
        let (mut bytes, mut go_on) = (0, true);
        let result = damage::check_at_pace(&file.path, file.sum, &mut |read| {
            bytes += read;
            go_on = pace(read);
            go_on
        });
        found.bytes += bytes;
        found.complete = go_on;
        result?;
        found.files += 1;
        done.insert(file.path);
    }
    Ok(())
}

fn journals(engine: &Path, running: bool, found: &mut Scrubbed) -> Result<(), StorageError> {
    let numbers = journal::numbers(engine)?;
    let result = if running {
        let sealed = numbers.split_last().map(|(_, sealed)| sealed).unwrap_or_default();
        sealed.iter().try_for_each(|number| match journal::read_sealed(engine, *number) {
            // The engine has removed this journal in the meantime.
            Err(StorageError::Io { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(())
            }
            other => other.map(drop),
        })
    } else {
        journal::check(engine, Rubble::Leave).map(drop)
    };
    match result {
        Ok(()) => found.files += numbers.len() as u64,
        Err(StorageError::JournalDamaged { path, why }) => {
            found.damaged.push(format!("{} is damaged: {why}", path.display()));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}
