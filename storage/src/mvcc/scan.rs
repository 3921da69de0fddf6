//! Scans a versioned table in key order.
//!
//! A scan of the present reads only `current`. A scan at T, if no row was removed since T, reads `current` and looks
//! up the old version of each row that changed since; history has the same order, so adjacent rows share blocks. If
//! rows were removed since T, the scan of `current` is merged with a scan of each epoch from T on that contains a
//! removal: a removed row that existed at T left its last version there. Of a row's candidates, the one that ends
//! first after T is followed back to T, or the present version if there is none. Keys that were cut (see `layout`)
//! are only ordered by their first bytes: runs that share those are collected and sorted by the full key.

use std::{cmp::Ordering, collections::VecDeque, ops::Bound, sync::Arc};

use protocol::Timestamp;

use super::{Direction, LowKeys, Reader, Version};
use crate::{
    StorageError,
    engine::{Iter, Keyspace, Look, Slice, part},
    layout::{CUT_AT, Epoch, TableId, is_empty_range, split_history_key},
};

/// A scan. Yields the row's key without its table (the full key if it was cut) and the version.
pub(crate) struct Scan {
    inner: Merge,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    direction: Direction,
    /// Sorted rows whose first `CUT_AT` bytes are the same.
    run: VecDeque<(Slice, Version)>,
    ahead: Option<(Slice, Version)>,
}

impl Scan {
    pub(super) fn new(
        reader: &Reader,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
    ) -> Self {
        Self {
            inner: Merge::new(reader, table, from, to, direction),
            from: from.map(<[u8]>::to_vec),
            to: to.map(<[u8]>::to_vec),
            direction,
            run: VecDeque::new(),
            ahead: None,
        }
    }

    fn next_row(&mut self) -> Result<Option<(Slice, Version)>, StorageError> {
        match self.ahead.take() {
            Some(row) => Ok(Some(row)),
            None => self.inner.next(),
        }
    }

    fn step(&mut self) -> Result<Option<(Slice, Version)>, StorageError> {
        if let Some(row) = self.run.pop_front() {
            return Ok(Some(row));
        }
        let Some((key, version)) = self.next_row()? else { return Ok(None) };
        if key.len() < CUT_AT {
            return Ok(Some((key, version)));
        }
        self.collect_run(key, version)?;
        self.step()
    }

    /// The next row whose payload the test accepts. In a scan of the present, rejected rows are not copied.
    pub(crate) fn next_where(
        &mut self,
        test: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Option<(Slice, Version)>, StorageError> {
        loop {
            if let Merge::Present(walk) = &mut self.inner
                && self.run.is_empty()
                && self.ahead.is_none()
            {
                // An unparsable row is passed on, so that the code below reports it.
                let found = walk.next_where(&mut |key_len, value| {
                    key_len >= TABLE_LEN + CUT_AT
                        || Version::look(value)
                            .map_or(true, |(_, at)| test(value.get(at..).unwrap_or_default()))
                })?;
                let Some((row, value)) = found else { return Ok(None) };
                let short = row.len() < TABLE_LEN + CUT_AT;
                let row = (part(row, TABLE_LEN..), Version::parse(value)?);
                if short {
                    return Ok(Some(row));
                }
                self.ahead = Some(row);
            }
            let Some((key, version)) = self.step()? else { return Ok(None) };
            if test(version.payload()) {
                return Ok(Some((key, version)));
            }
        }
    }

    /// Handles long keys: sorts the run, then keeps the rows within the bounds.
    fn collect_run(&mut self, key: Slice, version: Version) -> Result<(), StorageError> {
        let head = key.get(..CUT_AT).unwrap_or_default().to_vec();
        let mut run = vec![whole(key, version)];
        while let Some((key, version)) = self.next_row()? {
            if key.get(..CUT_AT) != Some(&head) {
                self.ahead = Some((key, version));
                break;
            }
            run.push(whole(key, version));
        }
        run.retain(|(key, _)| {
            let range = (self.from.as_ref(), self.to.as_ref());
            std::ops::RangeBounds::<Vec<u8>>::contains(&range, &key.to_vec())
        });
        run.sort_by(|a, b| a.0.cmp(&b.0));
        if self.direction == Direction::Backward {
            run.reverse();
        }
        self.run = run.into();
        Ok(())
    }
}

fn whole(key: Slice, version: Version) -> (Slice, Version) {
    match version.full_key() {
        Some(full) => (full.into(), version),
        None => (key, version),
    }
}

impl Iterator for Scan {
    type Item = Result<(Slice, Version), StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}

/// Length of the table id before each key.
const TABLE_LEN: usize = size_of::<TableId>();

/// The rows in the engine's order.
enum Merge {
    Present(Walk),
    Changed { walk: Walk, reader: Reader, at: Timestamp },
    At(MergeAt),
}

impl Merge {
    fn new(
        reader: &Reader,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
    ) -> Self {
        let (from, to) = row_bounds(table, from, to);
        let walk = Walk::new(reader, table, &from, &to, direction);
        let Some(at) = reader.at else { return Self::Present(walk) };
        let mut epochs = reader.history.removals_from(at, table);
        if epochs.is_empty() {
            return Self::Changed { walk, reader: reader.clone(), at };
        }
        if is_empty_range(from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice)) {
            epochs.clear();
        }
        let past = epochs
            .into_iter()
            .map(|epoch| {
                let (from, to) = past_bounds(epoch, &from, &to);
                let (from, to) = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
                let walk = super::walk(direction, &*reader.snapshot, Keyspace::History, from, to);
                Past { walk, head: None, primed: false, at }
            })
            .collect();
        let reader = reader.clone();
        Self::At(MergeAt { reader, present: walk, head: None, primed: false, past, direction, at })
    }

    fn next(&mut self) -> Result<Option<(Slice, Version)>, StorageError> {
        let (row, version) = match self {
            Self::Present(walk) => {
                let Some((row, value)) = walk.next()? else { return Ok(None) };
                (row, Version::parse(value)?)
            }
            Self::Changed { walk, reader, at } => loop {
                let Some((row, value)) = walk.next()? else { return Ok(None) };
                if let Some(version) = reader.go_back(&row, Version::parse(value)?, *at)? {
                    break (row, version);
                }
            },
            Self::At(merge) => match merge.next()? {
                None => return Ok(None),
                Some(found) => found,
            },
        };
        Ok(Some((part(row, TABLE_LEN..), version)))
    }
}

/// A scan of `current` that starts at the table's first row.
struct Walk {
    rows: Iter,
    /// Set if the scan starts at the front of the table and has not seen the first row yet.
    front: Option<Front>,
}

impl Walk {
    fn new(
        reader: &Reader,
        table: TableId,
        from: &Bound<Vec<u8>>,
        to: &Bound<Vec<u8>>,
        direction: Direction,
    ) -> Self {
        let low = reader.low.of(table, reader.number);
        // No row lies before the low key, or, if none is known, before the start of the table.
        let begin = low.as_deref().unwrap_or(&table.0.to_be_bytes()).to_vec();
        let front = match from {
            Bound::Included(row) => *row <= begin,
            Bound::Excluded(row) => *row < begin,
            Bound::Unbounded => true,
        };
        let from = if front { Bound::Included(&begin) } else { from.as_ref() };
        let (from, to) = (from.map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
        let rows = super::walk(direction, &*reader.snapshot, Keyspace::Current, from, to);
        let front = (front && direction == Direction::Forward).then(|| Front {
            table,
            number: reader.number,
            low: Arc::clone(&reader.low),
            whole: to == Bound::Excluded(&table.end()[..]),
        });
        Self { rows, front }
    }

    fn next(&mut self) -> Result<Option<(Slice, Slice)>, StorageError> {
        self.next_where(&mut |_, _| true)
    }

    /// The first row is the new low key, whether the test accepts it or not.
    fn next_where(&mut self, test: Look<'_>) -> Result<Option<(Slice, Slice)>, StorageError> {
        let Some(front) = self.front.take() else {
            return self.rows.next_where(test).transpose();
        };
        let next = self.rows.next().transpose()?;
        front.came_to(next.as_ref().map(|(row, _)| &**row));
        match next {
            Some((row, value)) if !test(row.len(), &value) => self.next_where(test),
            next => Ok(next),
        }
    }
}

/// A scan from the front of a table that has not found its first row yet.
struct Front {
    table: TableId,
    number: u64,
    low: Arc<LowKeys>,
    /// The scan covers the whole table.
    whole: bool,
}

impl Front {
    fn came_to(self, row: Option<&[u8]>) {
        match row {
            Some(row) => self.low.learn(self.table, self.number, row),
            None if self.whole => self.low.learn(self.table, self.number, &self.table.end()),
            None => {}
        }
    }
}

/// Bounds on rows; bounds with cut keys are widened to the run, which is filtered later.
fn row_bounds(
    table: TableId,
    from: Bound<&[u8]>,
    to: Bound<&[u8]>,
) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let from = match from {
        Bound::Unbounded => Bound::Included(table.key(&[])),
        Bound::Included(key) | Bound::Excluded(key) if key.len() >= CUT_AT => {
            Bound::Included(table.key(key.get(..CUT_AT).unwrap_or(key)))
        }
        Bound::Included(key) => Bound::Included(table.key(key)),
        Bound::Excluded(key) => Bound::Excluded(table.key(key)),
    };
    let to = match to {
        Bound::Unbounded => Bound::Excluded(table.end().to_vec()),
        Bound::Included(key) | Bound::Excluded(key) if key.len() >= CUT_AT => {
            let head = table.key(key.get(..CUT_AT).unwrap_or(key));
            crate::layout::prefix_range(&head).1
        }
        Bound::Included(key) => Bound::Included(table.key(key)),
        Bound::Excluded(key) => Bound::Excluded(table.key(key)),
    };
    (from, to)
}

/// The same bounds within an epoch, where each row key is followed by eight bytes of stop time.
fn past_bounds(
    epoch: Epoch,
    from: &Bound<Vec<u8>>,
    to: &Bound<Vec<u8>>,
) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let with = |row: &[u8], tail: &[u8]| [&epoch.prefix()[..], row, tail].concat();
    let from = match from {
        Bound::Included(row) => Bound::Included(with(row, &[])),
        Bound::Excluded(row) => Bound::Excluded(with(row, &[0xFF; 8])),
        Bound::Unbounded => Bound::Included(with(&[], &[])),
    };
    let to = match to {
        Bound::Included(row) => Bound::Included(with(row, &[0xFF; 8])),
        Bound::Excluded(row) => Bound::Excluded(with(row, &[])),
        Bound::Unbounded => Bound::Excluded(Epoch(epoch.0 + 1).prefix().to_vec()),
    };
    (from, to)
}

/// `current` and the epochs with removals, merged by row.
struct MergeAt {
    reader: Reader,
    present: Walk,
    head: Option<(Slice, Version)>,
    primed: bool,
    past: Vec<Past>,
    direction: Direction,
    at: Timestamp,
}

impl MergeAt {
    fn next(&mut self) -> Result<Option<(Slice, Version)>, StorageError> {
        loop {
            self.prime()?;
            let Some(row) = self.first_row() else { return Ok(None) };
            let mut newest = self.take_past(&row)?;
            if self.head.as_ref().is_some_and(|(key, _)| *key == row) {
                self.primed = false;
                if let Some((_, version)) = self.head.take()
                    && (newest.is_none() || version.start() <= self.at)
                {
                    newest = Some(version);
                }
            }
            if let Some(newest) = newest
                && let Some(version) = self.reader.go_back(&row, newest, self.at)?
            {
                return Ok(Some((row, version)));
            }
        }
    }

    fn prime(&mut self) -> Result<(), StorageError> {
        if !self.primed {
            self.primed = true;
            self.head = match self.present.next()? {
                None => None,
                Some((key, value)) => Some((key, Version::parse(value)?)),
            };
        }
        self.past.iter_mut().try_for_each(Past::prime)
    }

    /// The next row in scan direction.
    fn first_row(&self) -> Option<Slice> {
        let before = |a: &Slice, b: &Slice| match self.direction {
            Direction::Forward => a.cmp(b),
            Direction::Backward => b.cmp(a),
        };
        let present = self.head.iter().map(|(row, _)| row);
        let past = self.past.iter().filter_map(|past| past.head.as_ref().map(|head| &head.row));
        present.chain(past).min_by(|a, b| before(a, b)).cloned()
    }

    /// The version that ends first after `at`; epochs are searched oldest first.
    fn take_past(&mut self, row: &Slice) -> Result<Option<Version>, StorageError> {
        let mut chosen = None;
        for past in &mut self.past {
            let first = past.take(row)?;
            chosen = chosen.or(first);
        }
        Ok(chosen)
    }
}

/// A scan of one epoch, grouped by row.
struct Past {
    walk: Iter,
    head: Option<PastRow>,
    primed: bool,
    at: Timestamp,
}

struct PastRow {
    row: Slice,
    stop: Timestamp,
    value: Slice,
}

impl Past {
    fn prime(&mut self) -> Result<(), StorageError> {
        while !self.primed {
            let Some((key, value)) = self.walk.next().transpose()? else {
                self.primed = true;
                self.head = None;
                return Ok(());
            };
            let (row, stop) = split_history_key(&key)
                .ok_or_else(|| StorageError::corrupt("history", "a key is cut short"))?;
            // Versions that ended at or before `at` are not valid at it.
            if stop > self.at {
                self.head = Some(PastRow { row: row.into(), stop, value });
                self.primed = true;
            }
        }
        Ok(())
    }

    /// Consumes all versions of a row and returns the one that ends first.
    fn take(&mut self, row: &Slice) -> Result<Option<Version>, StorageError> {
        let mut best: Option<PastRow> = None;
        loop {
            self.prime()?;
            match self.head.take() {
                Some(head) if head.row == *row => {
                    self.primed = false;
                    if best.as_ref().is_none_or(|b| head.stop.cmp(&b.stop) == Ordering::Less) {
                        best = Some(head);
                    }
                }
                other => {
                    self.head = other;
                    break;
                }
            }
        }
        best.map(|best| Version::parse(best.value)).transpose()
    }
}
