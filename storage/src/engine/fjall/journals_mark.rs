//! A file of our own beside the journals that says what they must hold.
//!
//! ```text
//!   journals.mark    active <number> <write>                    this journal was the last one, and it or a later one
//!                                                               holds this write
//!                    meta <keyspace>                            the keyspace that is flushed last
//!                    sealed <number> <keyspace>:<write> ...     the last writes of each sealed journal
//!                    sum <CRC-32 of all before>
//! ```
//! It is replaced when a journal was started or removed, so it may be a second old. It stays true all the same: a
//! journal that it names exists unchanged, or was removed because all of its content is in tables.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use super::journal::{self, Held, Journals};
use crate::{StorageError, node_files};

/// File name in the engine's directory.
pub(super) const NAME: &str = "journals.mark";

/// Content of the file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Mark {
    /// Number of the last journal.
    pub(super) active: u64,
    /// A write in that journal or a later one; zero if none is known.
    pub(super) holds: u64,
    /// The keyspace that is flushed last and always has the newest row.
    pub(super) meta: u64,
    /// By journal number: the last write of each keyspace in each sealed journal.
    pub(super) sealed: BTreeMap<u64, BTreeMap<u64, u64>>,
}

impl Mark {
    /// Reads the file. Engines of older programs have none; a damaged file counts as missing.
    pub(super) fn read(engine: &Path) -> Option<Self> {
        let path = engine.join(NAME);
        let text = std::fs::read_to_string(&path).ok()?;
        let mark = Self::parse(&text);
        if mark.is_none() {
            tracing::warn!(path = %path.display(), "the file is damaged and ignored; it will be rewritten");
        }
        mark
    }

    /// Replaces the file; synced when the call returns.
    pub(super) fn write(&self, engine: &Path) -> Result<(), StorageError> {
        node_files::replace_file(&engine.join(NAME), self.text().as_bytes())
    }

    /// Checks that the journals hold what the mark says. `last` returns the last write in the tables of a keyspace.
    pub(super) fn check(
        &self,
        engine: &Path,
        journals: &Journals,
        last: &dyn Fn(u64) -> Option<u64>,
    ) -> Result<(), StorageError> {
        let newest = journals.held.keys().next_back().copied().unwrap_or(0);
        if newest < self.active {
            let path = journal::file(engine, self.active);
            return Err(journal::damaged(&path, "it is missing".to_owned()));
        }
        if journals.held.contains_key(&self.active) && journals.last.unwrap_or(0) < self.holds {
            let why = format!("it has lost its end: write {} is not there", self.holds);
            return Err(journal::damaged(&journal::file(engine, newest), why));
        }
        for (number, rows) in &self.sealed {
            let path = journal::file(engine, *number);
            match journals.held.get(number) {
                Some(held) if held.rows == *rows => {}
                Some(_) => {
                    let why = "it does not hold what it held when it was sealed".to_owned();
                    return Err(journal::damaged(&path, why));
                }
                None if rows.get(&self.meta) > last(self.meta).as_ref() => {
                    return Err(journal::damaged(&path, "it is missing".to_owned()));
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Records the content of a journal that was sealed.
    pub(super) fn seal(&mut self, number: u64, held: Held) {
        self.sealed.insert(number, held.rows);
    }

    fn text(&self) -> String {
        let mut text = format!("active {} {}\nmeta {}\n", self.active, self.holds, self.meta);
        for (number, rows) in &self.sealed {
            // Writing to a string cannot fail.
            let _ = write!(text, "sealed {number}");
            for (keyspace, write) in rows {
                let _ = write!(text, " {keyspace}:{write}");
            }
            text.push('\n');
        }
        let sum = crc32fast::hash(text.as_bytes());
        let _ = writeln!(text, "sum {sum:08x}");
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let mut mark = Self::default();
        for line in text.lines() {
            let mut words = line.split(' ');
            match words.next()? {
                "active" => {
                    mark.active = words.next()?.parse().ok()?;
                    mark.holds = words.next()?.parse().ok()?;
                }
                "meta" => mark.meta = words.next()?.parse().ok()?,
                "sealed" => {
                    let number = words.next()?.parse().ok()?;
                    let rows = words.map(|row| {
                        let (keyspace, write) = row.split_once(':')?;
                        Some((keyspace.parse().ok()?, write.parse().ok()?))
                    });
                    mark.sealed.insert(number, rows.collect::<Option<_>>()?);
                }
                "sum" => {}
                _ => return None,
            }
        }
        // The file is accepted only if writing the parsed mark gives the same text.
        (mark.text() == text).then_some(mark)
    }
}
