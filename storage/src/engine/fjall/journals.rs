//! Keeps the file `journals.mark` up to date while the engine runs.

use std::{io::ErrorKind, sync::atomic::Ordering};

use super::{
    Fjall,
    journal::{self, Journals},
    journals_mark::Mark,
};
use crate::{StorageError, engine::Keyspace};

/// The known state of the journals.
pub(super) struct Known {
    /// The mark as last written.
    mark: Mark,
    /// Writes up to this sequence number may be in an earlier journal than the last.
    floor: u64,
    written: bool,
}

impl Known {
    /// The state after the start.
    pub(super) fn new(journals: Journals) -> Self {
        let mut mark = Mark::default();
        let active = journals.held.keys().next_back().copied().unwrap_or(0);
        for (number, held) in journals.held {
            if number < active {
                mark.seal(number, held);
            }
        }
        mark.active = active;
        Self { mark, floor: 0, written: false }
    }
}

impl Fjall {
    /// Writes the mark if a journal was started or removed.
    pub(super) fn note_journals(&self) -> Result<(), StorageError> {
        let engine = &self.place.path;
        let numbers = journal::numbers(engine)?;
        let Some((&active, sealed)) = numbers.split_last() else {
            return Err(journal::damaged(engine, "none is there".to_owned()));
        };
        let mut known = self.known.lock();
        let mut mark = known.mark.clone();
        if active != mark.active {
            // No writer runs now: later writes go to this journal or a newer one.
            let _alone = self.writers.write();
            known.floor = self.journaled.load(Ordering::SeqCst);
            mark.active = active;
            mark.holds = 0;
        }
        mark.sealed.retain(|number, _| sealed.contains(number));
        for number in sealed {
            if mark.sealed.contains_key(number) {
                continue;
            }
            match journal::read_sealed(engine, *number) {
                Ok(held) => mark.seal(*number, held),
                // The journal was removed meanwhile.
                Err(StorageError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        if mark.holds == 0 {
            let journaled = self.synced.load(Ordering::SeqCst);
            mark.holds = if journaled > known.floor { journaled } else { 0 };
        }
        mark.meta = self.number_of(Keyspace::Meta);
        if mark != known.mark || !known.written {
            mark.write(engine)?;
            known.mark = mark;
            known.written = true;
        }
        Ok(())
    }

    /// The engine's number of a keyspace, which is the name of its directory.
    fn number_of(&self, ks: Keyspace) -> u64 {
        let name = self.keyspace(ks).path().file_name();
        name.and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0)
    }
}
