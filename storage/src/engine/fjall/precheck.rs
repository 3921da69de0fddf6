//! Checks that the engine's files are complete and consistent, before the engine opens them.
//!
//! The engine repairs what it finds: it removes a keyspace without `current` as half-made, removes tables that a
//! damaged manifest does not name as leftovers, and restarts its sequence numbers if there is no journal. After a
//! crash that is right. After a file was lost or damaged it would turn the damage into data loss, so in that case the
//! engine is not started.
//!
//! F1 Every keyspace exists, with `current`, with the manifest that `current` names, whose checksum is right, and
//!    with every file that the manifest names.
//! F2 The names of the keyspaces can be read completely: the engine removes keyspaces without a name.
//! F3 The journals are whole, see [`super::journal`].
//! F4 The journals hold what their mark says, see [`super::journals_mark`].
//! F5 No table holds a later write than the journals: a journal that lost its end would restore some rows of a batch
//!    without the others. Writes are synced before they are flushed to a table. Ingested tables are exempt until the
//!    write that follows them is in the journal.

use std::{
    io::Read,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    sync::Arc,
};

use lsm_tree::{
    Cache, Checksum, CompressionType, SeqNo, Table,
    table::{Block, DataBlock},
};

use super::{
    journal::{self, Journals, Rubble},
    journals_mark::Mark,
};
use crate::{
    StorageError,
    engine::{
        Keyspace,
        damage::{self, Damaged},
    },
};

/// The tree that holds the names of the keyspaces.
const NAMES: u64 = 0;

/// The content of the engine's version file.
const VERSION: &[u8] = b"FJL\x03";

/// Summary of one keyspace's tables.
struct Tables {
    keyspace: u64,
    /// Sequence number of the last write, ingested or not.
    last: Option<SeqNo>,
    /// The last write that went through the journals, and its table file.
    journaled: Option<(SeqNo, PathBuf)>,
}

/// Refuses an incomplete engine and returns the content of its journals. `finished` means that an earlier start has
/// created all keyspaces.
pub(super) fn check(engine: &Path, finished: bool) -> Result<Journals, StorageError> {
    let version = engine.join("version");
    if !version.exists() {
        // There is no engine yet.
        return Ok(Journals::default());
    }
    if damage::read(&version).map_err(incomplete)? != VERSION {
        let why = "it is not of the engine's version that this program knows";
        return Err(incomplete(Damaged::new(&version, why)));
    }
    for name in ["lock", "keyspaces"] {
        if !engine.join(name).exists() {
            return Err(missing(&engine.join(name)));
        }
    }
    let keyspaces = keyspaces(engine, finished)?;
    let tables = keyspaces
        .iter()
        .map(|(number, dir)| check_keyspace(*number, dir, finished))
        .collect::<Result<Vec<_>, _>>()?;
    let journals = journal::check(engine, Rubble::Cut)?;
    if journals.held.is_empty() {
        return Err(missing(&journal::file(engine, 0)));
    }
    if let Some(mark) = Mark::read(engine) {
        let last = |number| tables.iter().find(|t| t.keyspace == number).and_then(|t| t.last);
        mark.check(engine, &journals, &last)?;
    }
    check_ends(engine, &tables, &journals)?;
    Ok(journals)
}

/// Removes an engine directory without a version marker: its creation was never finished, so it holds no data. If it
/// does hold data, the marker was lost, and that is an error. `finished` means that an engine was once created.
pub(super) fn clear_unfinished(path: &Path, finished: bool) -> Result<(), StorageError> {
    let version = path.join("version");
    if version.exists() || !finished && !path.exists() {
        return Ok(());
    }
    let map = || StorageError::io(path.display().to_string());
    let empty =
        |folder: PathBuf| folder.read_dir().map_or(true, |mut files| files.next().is_none());
    let only_beginnings = || {
        Ok(empty(path.join("keyspaces"))
            && path.read_dir()?.filter_map(Result::ok).all(|entry| {
                ["lock", "keyspaces", "0.jnl"].iter().any(|name| entry.file_name() == *name)
            }))
    };
    if finished || !only_beginnings().map_err(map())? {
        return Err(missing(&version));
    }
    std::fs::remove_dir_all(path).map_err(map())
}

/// The directories of all keyspaces.
fn keyspaces(engine: &Path, finished: bool) -> Result<Vec<(u64, PathBuf)>, StorageError> {
    let folder = engine.join("keyspaces");
    let map = || StorageError::io(folder.display().to_string());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(map())? {
        let path = entry.map_err(map())?.path();
        if path.is_file() {
            continue;
        }
        match path.file_name().and_then(|name| name.to_str()?.parse().ok()) {
            Some(number) => found.push((number, path)),
            None => return Err(stray(&path)),
        }
    }
    found.sort();
    let wanted = 1 + Keyspace::ALL.len();
    if finished && found.len() < wanted {
        let gap = found.iter().zip(NAMES..).find(|((number, _), expected)| number != expected);
        let number = gap.map_or(found.len() as u64, |(_, expected)| expected);
        return Err(missing(&folder.join(number.to_string())));
    }
    Ok(found)
}

fn check_keyspace(number: u64, dir: &Path, finished: bool) -> Result<Tables, StorageError> {
    let mut tables = Tables { keyspace: number, last: None, journaled: None };
    let current = dir.join("current");
    if !current.exists() {
        let tables_there = dir.join("tables").read_dir().is_ok_and(|mut dir| dir.next().is_some());
        if finished || tables_there {
            return Err(missing(&current));
        }
        // The first start ended before this keyspace was created.
        return Ok(tables);
    }
    check_names(&dir.join("tables"))?;
    check_names(&dir.join("blobs"))?;
    let files = damage::read(&current).and_then(|current| damage::named(dir, &current));
    for file in files.map_err(incomplete)? {
        if !file.path.is_file() {
            return Err(missing(&file.path));
        }
        if number == NAMES {
            damage::check(&file.path, file.sum).map_err(incomplete)?;
        }
        let Some(global) = file.global else {
            check_number(&file.path, guarded(&file.path, || blobs_number(&file.path))?)?;
            continue;
        };
        let (own, last) = guarded(&file.path, || table_ends(&file.path, global))?;
        check_number(&file.path, own)?;
        tables.last = tables.last.max(Some(last));
        if global == 0 && tables.journaled.as_ref().is_none_or(|(known, _)| *known < last) {
            tables.journaled = Some((last, file.path));
        }
    }
    Ok(tables)
}

/// Checks file names: the engine panics at a name that is not a number, or at a directory among its files.
fn check_names(folder: &Path) -> Result<(), StorageError> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry.map_err(StorageError::io(folder.display().to_string()))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        if name == ".DS_Store" || name.starts_with("._") {
            continue;
        }
        if !path.is_file() || name.parse::<u64>().is_err() {
            return Err(stray(&path));
        }
    }
    Ok(())
}

/// Each file of a keyspace stores its own number; this detects two files that were swapped.
fn check_number(path: &Path, own: u64) -> Result<(), StorageError> {
    if path.file_name().and_then(|name| name.to_str()?.parse().ok()) == Some(own) {
        return Ok(());
    }
    Err(incomplete(Damaged::new(path, format!("it is the file {own} by its content"))))
}

/// A table's own number and the sequence number of its last write. Only its header and footer are read.
fn table_ends(path: &Path, global: SeqNo) -> lsm_tree::Result<(u64, SeqNo)> {
    let cache = Arc::new(Cache::with_capacity_bytes(0));
    let sum = Checksum::from_raw(0);
    let table = Table::recover(path.to_owned(), sum, global, 0, cache, None, false, false)?;
    Ok((table.id(), table.get_highest_seqno()))
}

/// The number that a blob file stores of itself.
fn blobs_number(path: &Path) -> lsm_tree::Result<u64> {
    let archive = sfa::Reader::new(path)?;
    let section = archive.toc().section(b"meta").ok_or(lsm_tree::Error::Unrecoverable)?;
    let mut reader = section.buf_reader(path)?;
    reader.read_exact(&mut [0; 4])?;
    let block = DataBlock::new(Block::from_reader(&mut reader, CompressionType::None)?);
    let number = block.point_read(b"id", SeqNo::MAX);
    let number = number.and_then(|row| row.value.first_chunk().map(|n| u64::from_le_bytes(*n)));
    number.ok_or(lsm_tree::Error::Unrecoverable)
}

/// The engine's readers may panic on damaged bytes; this turns a panic into an error.
fn guarded<T>(path: &Path, read: impl FnOnce() -> lsm_tree::Result<T>) -> Result<T, StorageError> {
    match std::panic::catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(error)) => Err(incomplete(Damaged::new(path, format!("{error:?}")))),
        Err(_) => Err(incomplete(Damaged::new(path, "it cannot be read"))),
    }
}

/// Checks F5.
fn check_ends(engine: &Path, tables: &[Tables], journals: &Journals) -> Result<(), StorageError> {
    let (Some(end), Some(number)) = (journals.last, journals.held.keys().next_back()) else {
        return Ok(());
    };
    let later = tables
        .iter()
        .filter(|tables| tables.keyspace != NAMES)
        .filter_map(|tables| tables.journaled.as_ref())
        .find(|(last, _)| *last > end);
    let Some((last, table)) = later else { return Ok(()) };
    Err(journal::damaged(
        &journal::file(engine, *number),
        format!(
            "it has lost its end: it ends with write {end}, {} has write {last}",
            table.display()
        ),
    ))
}

fn missing(path: &Path) -> StorageError {
    StorageError::Incomplete { path: path.to_owned(), why: "is missing".to_owned() }
}

fn stray(path: &Path) -> StorageError {
    StorageError::Incomplete { path: path.to_owned(), why: "does not belong there".to_owned() }
}

fn incomplete(damaged: Damaged) -> StorageError {
    StorageError::Incomplete { path: damaged.file, why: format!("is damaged: {}", damaged.why) }
}
