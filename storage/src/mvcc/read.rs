//! Reads a versioned table, at the present or at a timestamp.

use std::{ops::Bound, sync::Arc};

use protocol::Timestamp;

use super::{Direction, History, LowKeys, Version, scan::Scan};
use crate::{
    StorageError,
    engine::{Keyspace, Snapshot},
    layout::{TableId, cut, history_key, split_history_key},
};

/// A consistent view of all tables.
#[derive(Clone)]
pub(crate) struct Reader {
    pub(crate) snapshot: Arc<dyn Snapshot>,
    pub(crate) history: Arc<History>,
    pub(crate) low: Arc<LowKeys>,
    /// Number of the published snapshot.
    pub(crate) number: u64,
    /// The timestamp to read at; `None` for the snapshot's present.
    pub(crate) at: Option<Timestamp>,
}

impl Reader {
    /// The version of a key that is valid at this reader's timestamp.
    pub(crate) fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Version>, StorageError> {
        match cut(key) {
            None => self.get_row(&table.key(key), table),
            Some(short) => Ok(self
                .get_row(&table.key(&short), table)?
                .filter(|version| version.full_key() == Some(key))),
        }
    }

    /// Like [`Self::get`], by row key.
    pub(crate) fn get_row(
        &self,
        row: &[u8],
        table: TableId,
    ) -> Result<Option<Version>, StorageError> {
        let present = self.present(row)?;
        let Some(at) = self.at else { return Ok(present) };
        self.settle(row, table, present, at)
    }

    /// The newest version in the snapshot, whatever the timestamp.
    pub(crate) fn present(&self, row: &[u8]) -> Result<Option<Version>, StorageError> {
        self.snapshot.get(Keyspace::Current, row)?.map(Version::parse).transpose()
    }

    /// Finds the valid version (M1), going back from the newest one.
    pub(super) fn settle(
        &self,
        row: &[u8],
        table: TableId,
        newest: Option<Version>,
        at: Timestamp,
    ) -> Result<Option<Version>, StorageError> {
        if let Some(newest) = newest
            && let Some(found) = self.go_back(row, newest, at)?
        {
            return Ok(Some(found));
        }
        if !self.history.may_have_removed(at, table) {
            return Ok(None);
        }
        self.search(row, table, at)
    }

    /// M2: the version of the same row valid at `at`, going back from `version`.
    pub(super) fn go_back(
        &self,
        row: &[u8],
        mut version: Version,
        at: Timestamp,
    ) -> Result<Option<Version>, StorageError> {
        while version.start() > at {
            if !version.replaced() {
                return Ok(None);
            }
            version = self.ended_at(row, version.way_back(at))?;
        }
        Ok(Some(version))
    }

    /// The version of a row that ended at `stop`, which must exist because another version refers to it.
    fn ended_at(&self, row: &[u8], stop: Timestamp) -> Result<Version, StorageError> {
        let key = history_key(self.history.epoch_of(stop), row, stop);
        let found = self.snapshot.get(Keyspace::History, &key)?.map(Version::parse).transpose()?;
        found.filter(|version| version.start() < stop).ok_or_else(|| {
            StorageError::corrupt(
                "history",
                format!("the version that ends at {stop} is not there"),
            )
        })
    }

    /// Finds the valid version (M1) by epochs: the first one with stop > at.
    fn search(
        &self,
        row: &[u8],
        table: TableId,
        at: Timestamp,
    ) -> Result<Option<Version>, StorageError> {
        for epoch in self.history.epochs_from(at, table) {
            let from = history_key(epoch, row, at);
            let to = history_key(epoch, row, Timestamp::MAX);
            let mut range = self.snapshot.range(
                Keyspace::History,
                Bound::Excluded(&from),
                Bound::Included(&to),
            );
            if let Some(item) = range.next() {
                let (key, value) = item?;
                debug_assert!(split_history_key(&key).is_some_and(|(found, _)| found == row));
                return Ok(Some(Version::parse(value)?).filter(|version| version.start() <= at));
            }
        }
        Ok(None)
    }

    /// The rows of a table between two keys, each with the version valid at this reader's timestamp.
    pub(crate) fn scan(
        &self,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
    ) -> Scan {
        Scan::new(self, table, from, to, direction)
    }
}
