//! The writes of one batch: its own reads see them, and they become one engine batch at the end.

use std::collections::{BTreeMap, HashMap, HashSet};

use foldhash::fast::RandomState;
use protocol::Timestamp;

use super::{
    Direction, Reader, Version,
    history::Held,
    version::{BEFORE_MAX, Head},
};
use crate::{
    StorageError,
    engine::{Batch, Keyspace, Slice},
    layout::{Epoch, Reader as Bytewise, TableId, cut, history_key},
};

/// Estimated rows per document: the document and the index entries that an update adds and removes.
const ROWS_A_DOCUMENT: usize = 4;

/// Changed rows, and the versions that they replaced.
pub(crate) struct Changes {
    pub(crate) reader: Reader,
    rows: HashMap<Slice, Row, RandomState>,
    past: Vec<(Slice, Slice)>,
    moved: BTreeMap<(Epoch, TableId), Held>,
    /// Rows that a rollback must examine although history has no version of them.
    undo: Vec<Undo>,
    keep_history: bool,
    /// Timestamp at which history begins.
    kept_from: Timestamp,
    bytes: u64,
    /// During the replay of a half-written batch: rows that this batch's own parts have written.
    own: HashSet<Slice>,
}

/// A row that a rollback to before this batch must remove, or, with `at`, whose version at that timestamp it must
/// undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Undo {
    pub(crate) row: Slice,
    /// Set for commits of prepared transactions, whose timestamps lie before the batch.
    pub(crate) at: Option<Timestamp>,
}

struct Row {
    now: Option<Version>,
    /// If the row was removed in this batch: when, and the earlier starts for a version that begins at that
    /// timestamp.
    gone: Option<(Timestamp, Vec<Timestamp>)>,
    changed: bool,
}

impl Row {
    fn known(now: Option<Version>) -> Self {
        Self { now, gone: None, changed: false }
    }
}

/// The timestamps of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct When {
    /// The timestamp that readers use.
    pub(crate) ts: Timestamp,
    /// The timestamp that rollback uses, if it differs: that of a prepared transaction's commit entry.
    pub(crate) durable: Option<Timestamp>,
}

impl From<Timestamp> for When {
    fn from(ts: Timestamp) -> Self {
        Self { ts, durable: None }
    }
}

impl Changes {
    /// An empty batch on top of the reader's present.
    pub(crate) fn new(reader: Reader, keep_history: bool) -> Self {
        Self {
            kept_from: reader.history.begins(),
            reader,
            rows: HashMap::default(),
            past: Vec::new(),
            moved: BTreeMap::new(),
            undo: Vec::new(),
            keep_history,
            bytes: 0,
            own: HashSet::new(),
        }
    }

    /// An empty batch that continues after this one.
    pub(crate) fn successor(&mut self) -> Self {
        let own = std::mem::take(&mut self.own);
        Self { own, ..Self::new(self.reader.clone(), self.keep_history) }
    }

    /// Marks these rows as written by this batch.
    pub(crate) fn note_own(&mut self, batch: &Batch) {
        let current = batch.writes.iter().filter(|(ks, ..)| *ks == Keyspace::Current);
        self.own.extend(current.map(|(_, row, _)| row.clone()));
    }

    /// Approximate size of the resulting engine batch.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The present version of a row, including this batch's writes.
    pub(crate) fn get(
        &mut self,
        table: TableId,
        key: &[u8],
    ) -> Result<Option<Version>, StorageError> {
        let short = cut(key);
        let row = table.row(short.as_deref().unwrap_or(key));
        Ok(self.load(&row)?.now.clone())
    }

    /// Writes a row and returns its previous version.
    pub(crate) fn put(
        &mut self,
        table: TableId,
        key: &[u8],
        when: impl Into<When>,
        payload: &[&[u8]],
    ) -> Result<Option<Version>, StorageError> {
        let short = cut(key);
        let row = table.row(short.as_deref().unwrap_or(key));
        self.load(&row)?;
        Ok(self.put_loaded(table, row, short.is_some().then_some(key), when.into(), payload))
    }

    /// Writes a row that the caller knows to be absent, without reading it.
    pub(crate) fn put_new(
        &mut self,
        table: TableId,
        key: &[u8],
        when: impl Into<When>,
        payload: &[&[u8]],
    ) {
        let short = cut(key);
        let row = table.row(short.as_deref().unwrap_or(key));
        self.put_loaded(table, row, short.is_some().then_some(key), when.into(), payload);
    }

    fn put_loaded(
        &mut self,
        table: TableId,
        row: Slice,
        full_key: Option<&[u8]>,
        when: When,
        payload: &[&[u8]],
    ) -> Option<Version> {
        let slot = match self.rows.get_mut(&row) {
            Some(slot) => slot,
            None => self.rows.entry(row.clone()).or_insert(Row::known(None)),
        };
        let old = slot.now.take();
        let before = match (&old, slot.gone.take()) {
            _ if !self.keep_history => Vec::new(),
            (Some(old), _) => before(old, when.ts, self.kept_from),
            (None, Some((at, before))) if at == when.ts => before,
            (None, _) => Vec::new(),
        };
        let fresh = self.keep_history && before.is_empty();
        let head = Head { start: when.ts, before: &before, durable: when.durable, full_key };
        let version = Version::new(head, payload);
        self.bytes += (row.len() + version.bytes().len()) as u64;
        slot.now = Some(version);
        slot.changed = true;
        match &old {
            Some(old) if old.start() == when.ts => {}
            Some(old) => self.move_to_history(table, &row, old, when.ts, false),
            // A new row leaves no trace in history, so rollback needs an undo row.
            None if fresh => {
                self.bytes += row.len() as u64;
                self.undo.push(Undo { row: row.clone(), at: None });
            }
            None => {}
        }
        self.note_prepared(row, when);
        old
    }

    /// Removes a row and returns its previous version.
    pub(crate) fn remove(
        &mut self,
        table: TableId,
        key: &[u8],
        when: impl Into<When>,
    ) -> Result<Option<Version>, StorageError> {
        let when = when.into();
        let short = cut(key);
        let row = table.row(short.as_deref().unwrap_or(key));
        let kept_from = self.kept_from;
        let slot = self.load(&row)?;
        let Some(old) = slot.now.take() else { return Ok(None) };
        slot.changed = true;
        let before = before(&old, when.ts, kept_from);
        slot.gone = (!before.is_empty()).then_some((when.ts, before));
        self.bytes += row.len() as u64;
        if old.start() != when.ts {
            self.move_to_history(table, &row, &old, when.ts, true);
        } else if old.replaced() {
            // The version that it had replaced at this timestamp now ends by a removal.
            let epoch = self.reader.history.epoch_of(when.ts);
            self.moved.entry((epoch, table)).or_default().note_removal(when.ts);
        }
        self.note_prepared(row, when);
        Ok(Some(old))
    }

    /// Records a row's present version that the caller already knows, so that it is not read.
    pub(crate) fn assume(
        &mut self,
        table: TableId,
        key: &[u8],
        start: Timestamp,
        payload: &[&[u8]],
    ) {
        if cut(key).is_none() {
            let version = Version::new(Head { start, ..Head::default() }, payload);
            self.rows.entry(table.row(key)).or_insert(Row::known(Some(version)));
        }
    }

    /// Removes a row without reading it, for rows without history.
    pub(crate) fn remove_unseen(&mut self, table: TableId, key: &[u8]) {
        let short = cut(key);
        let row = table.row(short.as_deref().unwrap_or(key));
        self.bytes += row.len() as u64;
        self.rows.insert(row, Row { changed: true, ..Row::known(None) });
    }

    /// True if replaced versions are kept.
    pub(crate) fn keeps_history(&self) -> bool {
        self.keep_history
    }

    fn note_prepared(&mut self, row: Slice, when: When) {
        if when.durable.is_some() {
            self.undo.push(Undo { row, at: Some(when.ts) });
        }
    }

    fn move_to_history(
        &mut self,
        table: TableId,
        row: &[u8],
        old: &Version,
        stop: Timestamp,
        removal: bool,
    ) {
        if !self.keep_history {
            return;
        }
        let epoch = self.reader.history.epoch_of(stop);
        let key = history_key(epoch, row, stop);
        let bytes = (key.len() + old.bytes().len()) as u64;
        self.bytes += bytes;
        let held = self.moved.entry((epoch, table)).or_default();
        held.versions += 1;
        held.bytes += bytes;
        if removal {
            held.note_removal(stop);
        }
        self.past.push((key, old.bytes().clone()));
    }

    fn load(&mut self, row: &Slice) -> Result<&mut Row, StorageError> {
        if !self.rows.contains_key(row) {
            let table = TableId(Bytewise(row).u32().unwrap_or(0));
            let now = if self.own.contains(row) {
                self.reader.present(row)?
            } else {
                self.reader.get_row(row, table)?
            };
            self.preload(row.clone(), now);
        }
        let missing = || StorageError::corrupt("a batch", "it forgot a row");
        self.rows.get_mut(row).ok_or_else(missing)
    }

    /// Reserves space for the rows of this many documents and their index entries.
    pub(crate) fn expect_documents(&mut self, documents: usize) {
        self.rows.reserve(documents.saturating_mul(ROWS_A_DOCUMENT));
    }

    /// Adds a present version that was read ahead.
    pub(crate) fn preload(&mut self, row: Slice, now: Option<Version>) {
        self.rows.entry(row).or_insert(Row::known(now.map(Version::detached)));
    }

    /// Keys of the rows that this batch changes.
    pub(crate) fn changed_rows(&self) -> impl Iterator<Item = &Slice> {
        self.rows.iter().filter(|(_, row)| row.changed).map(|(key, _)| key)
    }

    /// All rows of a table in key order, including this batch's writes. Keys are uncut.
    pub(crate) fn rows_of(&self, table: TableId) -> Result<BTreeMap<Slice, Version>, StorageError> {
        use std::ops::Bound::Unbounded;
        let mut out = BTreeMap::new();
        for item in self.reader.scan(table, Unbounded, Unbounded, Direction::Forward) {
            let (key, version) = item?;
            out.insert(key, version);
        }
        let prefix = table.key(&[]);
        for (row, state) in self.rows.iter().filter(|(_, state)| state.changed) {
            let Some(key) = row.strip_prefix(prefix.as_slice()) else { continue };
            match &state.now {
                Some(version) => {
                    out.insert(version.full_key().unwrap_or(key).into(), version.clone());
                }
                None => {
                    out.remove(key);
                    // Compare with the cut form of each key, since `out` has full keys.
                    out.retain(|whole, _| cut(whole).is_none_or(|short| short != key));
                }
            }
        }
        Ok(out)
    }

    /// The first row of a table whose keys ascend with time, including this batch's writes.
    pub(crate) fn first_of(&self, table: TableId) -> Result<Option<Version>, StorageError> {
        use std::ops::Bound::Unbounded;
        for item in self.reader.scan(table, Unbounded, Unbounded, Direction::Forward) {
            let (key, version) = item?;
            match self.rows.get(&table.row(&key)) {
                None => return Ok(Some(version)),
                Some(state) if state.now.is_some() => return Ok(state.now.clone()),
                Some(_) => {}
            }
        }
        let prefix = table.key(&[]);
        let ours =
            self.rows.iter().filter(|(row, state)| row.starts_with(&prefix) && state.now.is_some());
        Ok(ours.min_by_key(|(row, _)| *row).and_then(|(_, state)| state.now.clone()))
    }

    /// Converts everything to engine writes and updates the counters of history.
    pub(crate) fn into_batch(self, batch: &mut Batch) -> Vec<Undo> {
        batch.writes.reserve(self.rows.len() + self.past.len() + 8);
        // Sorted, because inserting adjacent keys into the engine's memtable is faster.
        let mut past = self.past;
        past.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        for (key, value) in past {
            batch.put(Keyspace::History, key, value);
        }
        let mut rows: Vec<_> = self.rows.into_iter().filter(|(_, row)| row.changed).collect();
        rows.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        for (key, row) in rows {
            match row.now {
                Some(version) => batch.put(Keyspace::Current, key, version.into_bytes()),
                None => batch.remove(Keyspace::Current, key),
            }
        }
        self.reader.history.count(&self.moved, batch);
        self.undo
    }
}

/// The earlier starts that a version after `old` at `ts` lists. A second write at the same timestamp replaces the
/// first and keeps its list.
fn before(old: &Version, ts: Timestamp, kept_from: Timestamp) -> Vec<Timestamp> {
    if old.start() == ts {
        return old.before().collect();
    }
    let mut out = vec![old.start()];
    // No reader needs versions before the one that is valid where history begins.
    out.extend(old.before().take(BEFORE_MAX - 1));
    if let Some(last) = out.iter().position(|start| *start <= kept_from) {
        out.truncate(last + 1);
    }
    out
}
