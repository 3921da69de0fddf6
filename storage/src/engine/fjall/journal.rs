//! Checks the engine's journals before the engine opens them.
//!
//! ```text
//!   <n>.jnl   batch* ++ zeros         the highest number is being written, the others are sealed
//!   batch     1 ++ rows(4) ++ sequence number(8), the rows, 3 ++ XXH3 of the rows(8) ++ "FJL" 3
//!   row       2 ++ kind(1) ++ compression(1) ++ keyspace(8) ++ key length(2) ++ value length(4) ++ stored length(4)
//!               ++ key ++ value, or, for a keyspace that was emptied, 4 ++ keyspace(8)
//! ```
//! All numbers are little-endian. The engine takes the first unreadable byte for the end of a journal, truncates the
//! journal there, and continues with the next one: one flipped bit loses everything after it. So we check the
//! journals first.
//!
//! J1 A sealed journal is complete. It was sealed because it had grown beyond [`SEALED_ABOVE`].
//! J2 No number is missing between the first journal and the last one.
//! J3 Sequence numbers ascend over all journals.
//! J4 The active journal may end in garbage: after a power cut, unsynced data may be partly written, in any order.
//!    But if a whole batch follows the garbage and records that the garbage was synced before that batch was written,
//!    the journal is damaged.

mod scan;

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use self::scan::{Scan, Step};
use crate::StorageError;

/// The engine seals a journal when it has grown beyond this many bytes.
const SEALED_ABOVE: u64 = 64_000_000;

/// Content of the journals of a directory.
#[derive(Debug, Default)]
pub(in crate::engine) struct Journals {
    /// Content of each journal, by number.
    pub(super) held: BTreeMap<u64, Held>,
    /// Sequence number of the last whole batch.
    pub(super) last: Option<u64>,
}

/// Content of one journal.
#[derive(Debug, Default)]
pub(in crate::engine) struct Held {
    /// Sequence number of the last row, by keyspace.
    pub(super) rows: BTreeMap<u64, u64>,
    /// Offset of the end of its last whole batch.
    pub(super) end: u64,
}

/// What to do with unsynced garbage at the end of the last journal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Rubble {
    /// Truncate it.
    Cut,
    /// Leave it, for a read-only check.
    Leave,
}

/// Checks all journals of an engine.
pub(in crate::engine) fn check(engine: &Path, rubble: Rubble) -> Result<Journals, StorageError> {
    let numbers = numbers(engine)?;
    let mut found = Journals::default();
    let (Some(&first), Some(&active)) = (numbers.first(), numbers.last()) else {
        return Ok(found);
    };
    if let Some((_, gap)) = numbers.iter().zip(first..).find(|(number, next)| *number != next) {
        return Err(damaged(&file(engine, gap), "it is missing".to_owned()));
    }
    for number in numbers {
        let path = file(engine, number);
        let held = if number == active {
            check_active(&path, &mut found.last, rubble)?
        } else {
            check_sealed(&path, &mut found.last)?
        };
        found.held.insert(number, held);
    }
    Ok(found)
}

/// Reads one sealed journal of a running engine.
pub(in crate::engine) fn read_sealed(engine: &Path, number: u64) -> Result<Held, StorageError> {
    check_sealed(&file(engine, number), &mut None)
}

/// The path of a journal.
pub(super) fn file(engine: &Path, number: u64) -> PathBuf {
    engine.join(format!("{number}.jnl"))
}

/// The numbers of the journals, ascending.
pub(in crate::engine) fn numbers(engine: &Path) -> Result<Vec<u64>, StorageError> {
    let map = || StorageError::io(engine.display().to_string());
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(engine).map_err(map())? {
        let entry = entry.map_err(map())?;
        let path = entry.path();
        if !path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("jnl")) {
            continue;
        }
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        match number.filter(|number| file(engine, *number) == path) {
            Some(number) if entry.file_type().map_err(map())?.is_file() => numbers.push(number),
            _ => return Err(damaged(&path, "no journal has such a name".to_owned())),
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn check_sealed(path: &Path, last: &mut Option<u64>) -> Result<Held, StorageError> {
    let mut scan = open(path)?;
    let (held, stop) = read_batches(path, &mut scan, last)?;
    let end = held.end;
    match stop {
        Step::Bad(why) => Err(damaged(path, format!("{why}, in the batch at byte {end}"))),
        Step::End | Step::Batch { .. } if end <= SEALED_ABOVE => {
            Err(damaged(path, format!("it ends at byte {end}, before its time")))
        }
        Step::End | Step::Batch { .. } => Ok(held),
    }
}

fn check_active(path: &Path, last: &mut Option<u64>, rubble: Rubble) -> Result<Held, StorageError> {
    let mut scan = open(path)?;
    let (held, stop) = read_batches(path, &mut scan, last)?;
    let Step::Bad(why) = stop else { return Ok(held) };
    let rest = scan::whole_batches_after(path, held.end, *last).map_err(io_error(path))?;
    if rest.proves_synced_beyond(last.unwrap_or(0)) {
        let end = held.end;
        return Err(damaged(
            path,
            format!(
                "{why}, in the batch at byte {end}, which was synced: a whole one follows at byte {}",
                rest.first
            ),
        ));
    }
    if rubble == Rubble::Leave {
        return Ok(held);
    }
    // Unsynced data was never acknowledged, so nothing is lost. The engine would refuse some of it.
    tracing::warn!(journal = %path.display(), end = held.end, why,
        "truncating the journal: its end is incomplete and was never synced, as after a power loss");
    let file = OpenOptions::new().write(true).open(path).map_err(io_error(path))?;
    file.set_len(held.end).and_then(|()| file.sync_all()).map_err(io_error(path))?;
    Ok(held)
}

/// Reads batches up to the first bad one or the end.
fn read_batches(
    path: &Path,
    scan: &mut Scan<File>,
    last: &mut Option<u64>,
) -> Result<(Held, Step), StorageError> {
    let mut held = Held::default();
    loop {
        let rows = &mut held.rows;
        let step = scan
            .batch(&mut |row| {
                let seen = rows.entry(row.keyspace).or_default();
                *seen = row.at.max(*seen);
            })
            .map_err(io_error(path))?;
        match step {
            Step::Batch { at } if last.is_some_and(|last| at <= last) => {
                return Ok((held, Step::Bad("its sequence number is not above the one before")));
            }
            Step::Batch { at } => {
                *last = Some(at);
                held.end = scan.at();
            }
            stop => return Ok((held, stop)),
        }
    }
}

fn open(path: &Path) -> Result<Scan<File>, StorageError> {
    File::open(path).and_then(|file| Scan::new(file, 0)).map_err(io_error(path))
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> StorageError {
    StorageError::io(path.display().to_string())
}

pub(super) fn damaged(path: &Path, why: String) -> StorageError {
    StorageError::JournalDamaged { path: path.to_owned(), why }
}

#[cfg(test)]
mod tests;
