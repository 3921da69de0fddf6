//! This node's `local.oplog.rs`.
//!
//! Entries are stored by timestamp, byte for byte as they were fetched. `append` passes them to the operating system
//! and advances `written`; `sync` makes all of them durable at once and advances `durable`. Public readers see
//! entries up to `applied`; the applier and the rollback read up to `written`.
//!
//! ```text
//!   | stretch | stretch | stretch ... | open stretch |      sizes are kept, and the front is trimmed, by stretches
//!   ^ first                         applied   ^ written
//! ```
//! O1 Timestamps ascend.
//! O2 Nothing is trimmed that replay, rollback or a pin may need.
//! O3 The new first timestamp is synced before the trimmed entries are removed.
//! O4 While entries are missing whose sync was reported, the durable mark keeps saying so, over restarts and initial
//!    syncs, until the oplog has reached it again.

use std::{collections::VecDeque, ops::Bound, sync::Arc, time::Duration};

use parking_lot::Mutex;
use protocol::{OpTime, OpTimeAndWall, RawDoc, Timestamp};

use crate::{
    StorageError, StoreOptions,
    apply::prepared,
    engine::{Batch, Engine, Iter, Keyspace, Slice, Snapshot, Sync},
    layout::{Reader, meta_key, numbers, prefix_range},
    mvcc::{self, Direction},
    node_files::DurableMark,
    watermarks::Watermarks,
};

/// Maximum size of a stretch; it is also at most a hundredth of the oplog.
const STRETCH_BYTES_MAX: u64 = 64 << 20;
/// Minimum size of a stretch.
const STRETCH_BYTES_MIN: u64 = 64 << 10;
/// Removals per engine batch when the tail is truncated.
const CUT_BATCH: usize = 10_000;

/// The oplog of this node.
pub struct Oplog {
    engine: Arc<dyn Engine>,
    marks: Arc<Watermarks>,
    durable_mark: Option<DurableMark>,
    pub(crate) state: Mutex<State>,
    /// The position in the durable mark, while the oplog has not reached it (O4).
    lost: Mutex<Option<OpTime>>,
    /// Held while the end of the oplog changes. `state` is never locked during an engine write.
    end: Mutex<()>,
}

pub(crate) struct State {
    stretches: VecDeque<Stretch>,
    /// Timestamp before which everything was trimmed.
    first: Timestamp,
    max_bytes: u64,
    min_retention: Duration,
    /// Entries within the history window are kept as long as the oplog is not larger than this.
    pub(crate) history_max_bytes: u64,
    pins: Vec<(u64, Timestamp)>,
    next_pin: u64,
    /// `applied` at the last sync: a replay never starts before it.
    applied_synced: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Stretch {
    first: Timestamp,
    last: Timestamp,
    bytes: u64,
    entries: u64,
}

/// Prevents trimming of entries from `from` on while it is held.
pub struct OplogPin {
    oplog: std::sync::Weak<Oplog>,
    id: u64,
}

impl Drop for OplogPin {
    fn drop(&mut self) {
        if let Some(oplog) = self.oplog.upgrade() {
            oplog.state.lock().pins.retain(|(id, _)| *id != self.id);
        }
    }
}

impl Oplog {
    /// Loads the oplog's state without reading the entries.
    pub(crate) fn open(
        engine: Arc<dyn Engine>,
        durable_mark: Option<DurableMark>,
        options: &StoreOptions,
        make_marks: impl FnOnce(OpTimeAndWall) -> Watermarks,
    ) -> Result<Self, StorageError> {
        let snapshot = engine.snapshot();
        let broken = || StorageError::corrupt("meta", "the extent of the oplog");
        let mut stretches: VecDeque<Stretch> = VecDeque::new();
        let (from, to) = prefix_range(b"o");
        let bounds = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
        for item in snapshot.range(Keyspace::Meta, bounds.0, bounds.1) {
            let (key, value) = item?;
            stretches.push_back(Stretch::parse(&key, &value).ok_or_else(broken)?);
        }
        let first = match snapshot.get(Keyspace::Meta, &first_key())? {
            Some(value) => Reader(&value).ts().ok_or_else(broken)?,
            None => Timestamp::NULL,
        };
        let (max_bytes, history_max_bytes) = match snapshot.get(Keyspace::Meta, &size_key())? {
            Some(value) => (Reader(&value).u64().ok_or_else(broken)?, 0),
            None => (options.oplog_max_bytes, options.oplog_history_max_bytes),
        };
        let written = last_entry(&*snapshot, first, Timestamp::MAX)?
            .map_or(Ok(OpTimeAndWall::NULL), |entry| position(&entry))?;
        if let Some(back) = stretches.back_mut() {
            // A crash while the tail was being truncated may leave the last stretch too long.
            back.last = written.op_time.ts;
        }
        let marks = Arc::new(make_marks(written));
        if !first.is_null() {
            engine.forget(Keyspace::Oplog, &[], &entry_key(first))?;
        }
        let state = State {
            stretches,
            first,
            max_bytes,
            min_retention: options.oplog_min_retention,
            history_max_bytes,
            pins: Vec::new(),
            next_pin: 0,
            applied_synced: marks.applied().op_time.ts,
        };
        let lost = Mutex::new(lost_tail(durable_mark.as_ref(), written.op_time));
        let (state, end) = (Mutex::new(state), Mutex::default());
        Ok(Self { engine, marks, durable_mark, state, lost, end })
    }

    pub(crate) fn marks(&self) -> &Arc<Watermarks> {
        &self.marks
    }

    /// Appends entries, which must ascend, after the existing ones. Not durable yet. Advances `written`.
    pub fn append(&self, entries: &[RawDoc]) -> Result<OpTimeAndWall, StorageError> {
        let _end = self.end.lock();
        let mut state = self.state.lock();
        let mut last = self.marks.written();
        let mut batch = Batch::default();
        let mut touched = None;
        for entry in entries {
            let next = position(entry)?;
            if next.op_time.ts <= last.op_time.ts {
                return Err(StorageError::OutOfOrder {
                    last: last.op_time.ts,
                    next: next.op_time.ts,
                });
            }
            last = next;
            let ts = next.op_time.ts;
            let len = entry.as_bytes().len() as u64;
            if touched.is_none_or(|stretch: Stretch| state.is_full(stretch)) {
                if let Some(done) = touched {
                    state.put_stretch(done, &mut batch);
                }
                let open = state.stretches.back().copied().filter(|s| !state.is_full(*s));
                touched = Some(open.filter(|_| touched.is_none()).unwrap_or(Stretch::new(ts)));
            }
            if let Some(stretch) = &mut touched {
                stretch.last = ts;
                stretch.bytes += len;
                stretch.entries += 1;
            }
            batch.put(Keyspace::Oplog, entry_key(ts), Slice::from(entry.as_bytes()));
        }
        if let Some(stretch) = touched {
            state.put_stretch(stretch, &mut batch);
        }
        drop(state);
        self.engine.commit(batch, Sync::No)?;
        self.marks.set_written(last);
        Ok(last)
    }

    /// Syncs everything that was appended before the call. Advances `durable` and returns it. Blocks.
    pub fn sync(&self) -> Result<OpTimeAndWall, StorageError> {
        let (written, applied) = (self.marks.written(), self.marks.applied());
        self.engine.sync()?;
        // The mark is written before the position is reported. If the disk loses the entries nevertheless, the mark
        // reveals it.
        self.note_mark(written)?;
        self.marks.raise_durable(written);
        let mut state = self.state.lock();
        state.applied_synced = state.applied_synced.max(applied.op_time.ts);
        drop(state);
        Ok(self.marks.durable())
    }

    /// Writes the first durable mark of a new store.
    pub(crate) fn begin_mark(&self, initial_sync: bool) -> Result<(), StorageError> {
        match &self.durable_mark {
            Some(mark) if mark.is_begun() => Ok(()),
            Some(mark) if self.marks.written().op_time.is_null() || initial_sync => mark.begin(),
            Some(mark) => Err(mark.emptied()),
            None => Ok(()),
        }
    }

    fn note_mark(&self, at: OpTimeAndWall) -> Result<(), StorageError> {
        match &self.durable_mark {
            Some(mark) if self.lost.lock().is_none() => mark.note(at),
            _ => Ok(()),
        }
    }

    /// Advances the durable mark to `durable`. Called about once a second, and at shutdown.
    pub(crate) fn save_mark(&self) -> Result<(), StorageError> {
        let Some(mark) = &self.durable_mark else { return Ok(()) };
        let mut lost = self.lost.lock();
        let durable = self.marks.durable();
        if lost.is_some_and(|lost| durable.op_time < lost) {
            return Ok(());
        }
        *lost = None;
        mark.write(durable)
    }

    /// A position that was reported durable and that the oplog has not reached again.
    pub(crate) fn lost(&self) -> Option<OpTime> {
        (*self.lost.lock()).filter(|lost| self.marks.durable().op_time < *lost)
    }

    /// The entry at `ts`, if it is applied.
    pub fn entry(&self, ts: Timestamp) -> Result<Option<RawDoc>, StorageError> {
        if ts > self.marks.applied().op_time.ts {
            return Ok(None);
        }
        self.entry_written(ts)
    }

    /// The entry at `ts`, applied or not.
    pub fn entry_written(&self, ts: Timestamp) -> Result<Option<RawDoc>, StorageError> {
        if ts < self.state.lock().first {
            return Ok(None);
        }
        let found = self.engine.snapshot().get(Keyspace::Oplog, &entry_key(ts))?;
        found.map(parse_entry).transpose()
    }

    /// The oldest entry, if it is applied.
    pub fn first(&self) -> Result<Option<RawDoc>, StorageError> {
        self.scan(Bound::Unbounded, Direction::Forward)
            .next()
            .map(|r| r.map(|(_, e)| e))
            .transpose()
    }

    /// The newest applied entry.
    pub fn last(&self) -> Result<Option<RawDoc>, StorageError> {
        self.scan(Bound::Unbounded, Direction::Backward)
            .next()
            .map(|r| r.map(|(_, e)| e))
            .transpose()
    }

    /// The newest entry.
    pub fn last_written(&self) -> Result<Option<RawDoc>, StorageError> {
        self.scan_written(Bound::Unbounded, Direction::Backward)
            .next()
            .map(|r| r.map(|(_, e)| e))
            .transpose()
    }

    /// The entries from a position on, in either direction, up to the present `applied`.
    pub fn scan(&self, from: Bound<Timestamp>, direction: Direction) -> OplogScan {
        self.walk(from, self.marks.applied().op_time.ts, direction)
    }

    /// The entries from a position on, up to the last one written.
    pub fn scan_written(&self, from: Bound<Timestamp>, direction: Direction) -> OplogScan {
        self.walk(from, self.marks.written().op_time.ts, direction)
    }

    fn walk(&self, from: Bound<Timestamp>, limit: Timestamp, direction: Direction) -> OplogScan {
        let first = self.state.lock().first;
        let snapshot = self.engine.snapshot();
        let (low, high) = match direction {
            Direction::Forward => {
                let low = match from {
                    Bound::Unbounded => Bound::Included(first),
                    Bound::Included(ts) | Bound::Excluded(ts) if ts < first => {
                        Bound::Included(first)
                    }
                    other => other,
                };
                (low, Bound::Included(limit))
            }
            Direction::Backward => {
                let high = match from {
                    Bound::Unbounded => Bound::Included(limit),
                    Bound::Included(ts) | Bound::Excluded(ts) if ts > limit => {
                        Bound::Included(limit)
                    }
                    other => other,
                };
                (Bound::Included(first), high)
            }
        };
        let (low, high) = (low.map(entry_key), high.map(entry_key));
        let low = low.as_ref().map(<[u8; 8]>::as_slice);
        let high = high.as_ref().map(<[u8; 8]>::as_slice);
        OplogScan(mvcc::walk(direction, &*snapshot, Keyspace::Oplog, low, high))
    }

    /// Removes everything after `ts`; synced when it returns. Moves `written` and `durable` back.
    pub fn truncate_after(&self, ts: Timestamp) -> Result<OpTimeAndWall, StorageError> {
        let _end = self.end.lock();
        let mut state = self.state.lock();
        let last = last_entry(&*self.engine.snapshot(), state.first, ts)?
            .map_or(Ok(OpTimeAndWall::NULL), |entry| position(&entry))?;
        // Write the mark first: a crash in between must not look like a lost tail. If the disk lost entries earlier,
        // those came after the entries that are removed now, so they are no longer missed.
        let mut lost = self.lost.lock();
        if let Some(mark) = &self.durable_mark
            && mark.at().op_time.ts > last.op_time.ts
            && (lost.is_none() || self.marks.written().op_time.ts > last.op_time.ts)
        {
            mark.write(last)?;
            *lost = None;
        }
        drop(lost);
        let snapshot = self.engine.snapshot();
        let from = entry_key(ts);
        let mut batch = Batch::default();
        // From the end, so that a crash in between leaves a shorter oplog without gaps.
        for item in snapshot.range_back(Keyspace::Oplog, Bound::Excluded(&from), Bound::Unbounded) {
            let (key, value) = item?;
            state.shrink(&key, value.len() as u64, &mut batch);
            batch.remove(Keyspace::Oplog, key);
            if batch.writes.len() >= CUT_BATCH {
                state.save_last(&mut batch);
                self.engine.commit(std::mem::take(&mut batch), Sync::No)?;
            }
        }
        state.set_last(last.op_time.ts, &mut batch);
        self.engine.commit(batch, Sync::Yes)?;
        self.marks.set_written(last);
        self.marks.set_durable(last);
        Ok(last)
    }

    /// Trims the front as far as size, retention and pins allow. Returns the number of removed entries.
    pub fn trim(&self, now: bson::DateTime) -> Result<u64, StorageError> {
        let (stable, readable) = (self.marks.stable().op_time.ts, self.marks.oldest());
        if self.state.lock().to_trim(now, stable, readable).is_none() {
            return Ok(0);
        }
        let keep_from = stable.min(self.first_undecided()?);
        let mut state = self.state.lock();
        let Some((bound, stretches)) = state.to_trim(now, keep_from, readable) else {
            return Ok(0);
        };
        let mut batch = Batch::default();
        let mut gone = 0;
        for stretch in state.stretches.drain(..stretches) {
            batch.remove(Keyspace::Meta, stretch.key());
            gone += stretch.entries;
        }
        state.first = bound;
        batch.put(Keyspace::Meta, first_key(), numbers([bound.as_u64()]));
        drop(state);
        // O3.
        self.engine.commit(batch, Sync::Yes)?;
        self.engine.forget(Keyspace::Oplog, &[], &entry_key(bound))?;
        Ok(gone)
    }

    /// The first entry of any prepared transaction: members that sync from us need all entries of undecided
    /// transactions. Transactions prepared later are after `stable`.
    fn first_undecided(&self) -> Result<Timestamp, StorageError> {
        let mut first = Timestamp::MAX;
        for (_, ts) in prepared::list(&*self.engine.snapshot())? {
            first = first.min(self.first_of_transaction(ts)?);
        }
        Ok(first)
    }

    /// The first entry of a transaction. A large transaction has several entries, and each refers to the previous
    /// one.
    fn first_of_transaction(&self, mut ts: Timestamp) -> Result<Timestamp, StorageError> {
        while let Some(entry) = self.entry_written(ts)? {
            let before = entry.get_document("prevOpTime").ok().and_then(OpTime::from_raw);
            match before.map(|before| before.ts).filter(|before| !before.is_null()) {
                Some(before) if before < ts => ts = before,
                _ => break,
            }
        }
        Ok(ts)
    }

    /// Keeps all entries from `from` on.
    pub fn pin(self: &Arc<Self>, from: Timestamp) -> OplogPin {
        let mut state = self.state.lock();
        let id = state.next_pin;
        state.next_pin += 1;
        state.pins.push((id, from));
        OplogPin { oplog: Arc::downgrade(self), id }
    }

    /// Bytes and number of the applied entries. Later entries are not public yet, and may be the private tail of a
    /// delayed member.
    pub fn applied_extent(&self) -> Result<(u64, u64), StorageError> {
        let applied = self.marks.applied().op_time.ts;
        let (mut bytes, mut entries, mut cut) = (0, 0, None);
        for stretch in &self.state.lock().stretches {
            if stretch.first <= applied {
                bytes += stretch.bytes;
                entries += stretch.entries;
                cut = (stretch.last > applied).then_some(stretch.last);
            }
        }
        if let Some(last) = cut {
            for item in self.walk(Bound::Excluded(applied), last, Direction::Forward) {
                bytes = bytes.saturating_sub(item?.1.as_bytes().len() as u64);
                entries -= 1;
            }
        }
        Ok((bytes, entries))
    }

    /// Bytes of all entries.
    pub fn bytes(&self) -> u64 {
        self.state.lock().stretches.iter().map(|stretch| stretch.bytes).sum()
    }

    /// Number of entries.
    pub fn count(&self) -> u64 {
        self.state.lock().stretches.iter().map(|stretch| stretch.entries).sum()
    }

    /// The size above which the front is trimmed.
    pub fn max_bytes(&self) -> u64 {
        self.state.lock().max_bytes
    }

    /// `replSetResizeOplog`: changes the size permanently, overriding the options at open. Synced when it returns.
    pub fn resize(&self, max_bytes: u64) -> Result<(), StorageError> {
        let mut batch = Batch::default();
        batch.put(Keyspace::Meta, size_key(), numbers([max_bytes]));
        self.engine.commit(batch, Sync::Yes)?;
        let mut state = self.state.lock();
        state.max_bytes = max_bytes;
        state.history_max_bytes = 0;
        Ok(())
    }

    /// `minRetentionHours`, until the store is closed.
    pub fn set_min_retention(&self, retention: Duration) {
        self.state.lock().min_retention = retention;
    }

    /// Resets the state for an initial sync, after the rows were removed.
    pub(crate) fn reset(&self) -> Result<(), StorageError> {
        let mut state = self.state.lock();
        state.stretches.clear();
        state.first = Timestamp::NULL;
        state.applied_synced = Timestamp::NULL;
        match &self.durable_mark {
            Some(mark) if self.lost.lock().is_none() => mark.write(OpTimeAndWall::NULL),
            _ => Ok(()),
        }
    }
}

impl State {
    fn is_full(&self, stretch: Stretch) -> bool {
        stretch.bytes >= (self.max_bytes / 100).clamp(STRETCH_BYTES_MIN, STRETCH_BYTES_MAX)
    }

    fn put_stretch(&mut self, stretch: Stretch, batch: &mut Batch) {
        match self.stretches.back_mut() {
            Some(back) if back.first == stretch.first => *back = stretch,
            _ => self.stretches.push_back(stretch),
        }
        batch.put(Keyspace::Meta, stretch.key(), stretch.value());
    }

    /// Removes the last entry from the counters.
    fn shrink(&mut self, key: &[u8], bytes: u64, batch: &mut Batch) {
        let Some(back) = self.stretches.back_mut() else { return };
        back.bytes = back.bytes.saturating_sub(bytes);
        back.entries = back.entries.saturating_sub(1);
        if entry_key(back.first) == key {
            batch.remove(Keyspace::Meta, back.key());
            self.stretches.pop_back();
        } else if let Some(ts) = Reader(key).ts() {
            // An upper bound that the next removal corrects: the entry before is not known here.
            back.last = Timestamp::from_u64(ts.as_u64().saturating_sub(1));
        }
    }

    fn save_last(&mut self, batch: &mut Batch) {
        if let Some(back) = self.stretches.back().copied() {
            batch.put(Keyspace::Meta, back.key(), back.value());
        }
    }

    fn set_last(&mut self, last: Timestamp, batch: &mut Batch) {
        if let Some(back) = self.stretches.back_mut() {
            back.last = last;
        }
        self.save_last(batch);
    }

    /// How far the front may be trimmed: the new first timestamp, and the number of stretches before it.
    fn to_trim(
        &self,
        now: bson::DateTime,
        stable: Timestamp,
        readable: Timestamp,
    ) -> Option<(Timestamp, usize)> {
        let mut total: u64 = self.stretches.iter().map(|stretch| stretch.bytes).sum();
        let pinned = self.pins.iter().map(|(_, from)| *from).min().unwrap_or(Timestamp::MAX);
        let keep_from = self.applied_synced.min(pinned).min(stable);
        let now_secs = now.timestamp_millis() / 1000;
        let kept_secs = i64::try_from(self.min_retention.as_secs()).unwrap_or(i64::MAX);
        let mut found = None;
        for (i, pair) in self.stretches.iter().zip(self.stretches.iter().skip(1)).enumerate() {
            let (stretch, next) = pair;
            let young = now_secs.saturating_sub(i64::from(stretch.last.secs())) < kept_secs;
            let in_history = stretch.last >= readable && total <= self.history_max_bytes;
            if total <= self.max_bytes || young || stretch.last >= keep_from || in_history {
                break;
            }
            total -= stretch.bytes;
            found = Some((next.first, i + 1));
        }
        found
    }
}

impl Stretch {
    fn new(first: Timestamp) -> Self {
        Self { first, last: first, bytes: 0, entries: 0 }
    }

    fn key(&self) -> Vec<u8> {
        meta_key(b'o', &[&entry_key(self.first)])
    }

    fn value(&self) -> Slice {
        numbers([self.last.as_u64(), self.bytes, self.entries])
    }

    fn parse(key: &[u8], value: &[u8]) -> Option<Self> {
        let mut value = Reader(value);
        Some(Self {
            first: Reader(key.get(1..)?).ts()?,
            last: value.ts()?,
            bytes: value.u64()?,
            entries: value.u64()?,
        })
    }
}

/// A scan over entries, up to the end of the oplog when it began.
pub struct OplogScan(Iter);

impl Iterator for OplogScan {
    type Item = Result<(Timestamp, RawDoc), StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.and_then(|(key, value)| {
            let ts = Reader(&key)
                .ts()
                .ok_or_else(|| StorageError::corrupt("the oplog", "a key is not a timestamp"))?;
            Ok((ts, parse_entry(value)?))
        }))
    }
}

fn lost_tail(mark: Option<&DurableMark>, written: OpTime) -> Option<OpTime> {
    let marked = mark?.at().op_time;
    if marked.is_null() || written >= marked {
        return None;
    }
    tracing::error!(%marked, %written, "the disk lost entries whose sync was reported");
    Some(marked)
}

fn first_key() -> Vec<u8> {
    meta_key(b'm', &[b"oplogFirst"])
}

/// The key of the size that was set by `replSetResizeOplog`.
fn size_key() -> Vec<u8> {
    meta_key(b'm', &[b"oplogSize"])
}

pub(crate) fn entry_key(ts: Timestamp) -> [u8; 8] {
    ts.as_u64().to_be_bytes()
}

fn parse_entry(value: Slice) -> Result<RawDoc, StorageError> {
    RawDoc::stored(value.into()).map_err(|e| StorageError::corrupt("the oplog", e.to_string()))
}

/// The position of an entry.
pub(crate) fn position(entry: &RawDoc) -> Result<OpTimeAndWall, StorageError> {
    let op_time = OpTime::from_raw(entry)
        .ok_or_else(|| StorageError::bad_document("an oplog entry without ts"))?;
    let wall = entry.get_datetime("wall").unwrap_or(bson::DateTime::from_millis(0));
    Ok(OpTimeAndWall { op_time, wall })
}

/// The last entry between two timestamps (inclusive).
fn last_entry(
    snapshot: &dyn Snapshot,
    first: Timestamp,
    to: Timestamp,
) -> Result<Option<RawDoc>, StorageError> {
    let (low, high) = (entry_key(first), entry_key(to));
    let mut range =
        snapshot.range_back(Keyspace::Oplog, Bound::Included(&low), Bound::Included(&high));
    range.next().map(|item| parse_entry(item?.1)).transpose()
}
