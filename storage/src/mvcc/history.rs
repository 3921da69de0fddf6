//! Old versions: epochs, their content, and how far back one may read.
//!
//! ```text
//!   epoch   1          2          3          4          a version is stored in the epoch in which it ended
//!           |----------|----------|----------|----- now
//!                      ^ oldest: epoch 1 is dropped as a whole, by key range
//! ```
//! An epoch ends after 1/96 of the window, by time or by size, whichever comes first. That is short enough that
//! adjacent rows in it are versions of different documents from about the same time, which suits a scan at T.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use protocol::{Namespace, Timestamp};

use crate::{
    StorageError,
    engine::{Batch, Engine, Keyspace, Snapshot},
    layout::{Epoch, Reader, TableId, meta_key, numbers, prefix_range},
};

/// Number of epochs per window.
const EPOCHS_PER_WINDOW: u32 = 96;

/// How long, and how many bytes, to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) length: Duration,
    pub(crate) bytes_max: Option<u64>,
    /// Whether dropped tables count towards `bytes_max`; otherwise they are kept for the whole length.
    pub(crate) dropped_too: bool,
}

/// A dropped table, kept for readers of earlier timestamps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub(crate) at: Timestamp,
    pub(crate) documents: u64,
    pub(crate) bytes: u64,
    /// The collection it belonged to.
    pub(crate) ns: Option<Namespace>,
}

/// What an epoch holds of a table.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) versions: u64,
    pub(crate) bytes: u64,
    /// Timestamp of the last removal: only before it can a row have existed that is absent now.
    pub(crate) last_removal: Timestamp,
}

impl Held {
    /// Records that a version ended at `stop` by a removal.
    pub(crate) fn note_removal(&mut self, stop: Timestamp) {
        self.last_removal = self.last_removal.max(stop);
    }
}

/// The state of history; one per store.
pub(crate) struct History(Mutex<State>);

struct State {
    /// Start of each epoch, ascending.
    epochs: Vec<(Epoch, Timestamp)>,
    held: BTreeMap<(Epoch, TableId), Held>,
    /// Dropped tables as of the last upkeep.
    dropped: BTreeMap<TableId, Dropped>,
    window: Window,
    /// Number of the next epoch if there is none.
    next: u32,
}

impl History {
    /// Loads the state of history from the store.
    pub(crate) fn open(snapshot: &dyn Snapshot, window: Window) -> Result<Self, StorageError> {
        let next = snapshot.get(Keyspace::Meta, &meta_key(b'm', &[b"nextEpoch"]))?;
        let next = next.and_then(|value| u32::try_from(Reader(&value).u64()?).ok()).unwrap_or(1);
        let mut state = State {
            epochs: Vec::new(),
            held: BTreeMap::new(),
            dropped: BTreeMap::new(),
            window,
            next,
        };
        for item in family(snapshot, b'e') {
            let (key, value) = item?;
            let row = (|| Some((Epoch(Reader(key.get(1..)?).u32()?), Reader(&value).ts()?)))();
            state.epochs.push(row.ok_or_else(|| StorageError::corrupt("meta", "an epoch row"))?);
        }
        for item in family(snapshot, b'h') {
            let (key, value) = item?;
            let row = (|| {
                let mut key = Reader(key.get(1..)?);
                let mut value = Reader(&value);
                let at = (Epoch(key.u32()?), TableId(key.u32()?));
                Some((
                    at,
                    Held { versions: value.u64()?, bytes: value.u64()?, last_removal: value.ts()? },
                ))
            })();
            let (at, held) = row.ok_or_else(|| StorageError::corrupt("meta", "a history row"))?;
            state.held.insert(at, held);
        }
        Ok(Self(Mutex::new(state)))
    }

    /// False if no history is kept at all.
    pub(crate) fn keeps(&self) -> bool {
        !self.0.lock().window.length.is_zero()
    }

    /// Changes the window from now on.
    pub(crate) fn set_window(&self, window: Window) {
        self.0.lock().window = window;
    }

    /// The epoch that holds a version that ends at `stop`.
    pub(crate) fn epoch_of(&self, stop: Timestamp) -> Epoch {
        self.0.lock().epoch_of(stop)
    }

    /// The epochs that may hold versions of `table` valid at `ts` or later, oldest first.
    pub(crate) fn epochs_from(&self, ts: Timestamp, table: TableId) -> Vec<Epoch> {
        self.0.lock().epochs_from(ts, table, |held| held.versions > 0)
    }

    /// True if a row of `table` that is absent now, or was inserted after `ts`, may have existed at `ts`.
    pub(crate) fn may_have_removed(&self, ts: Timestamp, table: TableId) -> bool {
        !self.removals_from(ts, table).is_empty()
    }

    /// The epochs in which a row of `table` may have been removed after `ts`.
    pub(crate) fn removals_from(&self, ts: Timestamp, table: TableId) -> Vec<Epoch> {
        self.0.lock().epochs_from(ts, table, |held| held.last_removal > ts)
    }

    /// Starts a new epoch if one is due at `now`. M4: `now` is after all stops so far.
    pub(crate) fn roll(&self, now: Timestamp) {
        let mut state = self.0.lock();
        if state.is_due(now) {
            let next = Epoch(state.epochs.last().map_or(state.next, |(epoch, _)| epoch.0 + 1));
            state.epochs.push((next, now));
        }
    }

    /// Adds the newest epoch's row to a batch. Every batch gets it, since any of them may be the first one that
    /// survives a crash.
    pub(crate) fn save(&self, batch: &mut Batch) {
        if let Some((epoch, from)) = self.0.lock().epochs.last() {
            let key = meta_key(b'e', &[&epoch.prefix()]);
            batch.put(Keyspace::Meta, key, numbers([from.as_u64()]));
        }
    }

    /// Counts the versions that a batch moved into history and adds the counters' rows to the batch.
    pub(crate) fn count(&self, moved: &BTreeMap<(Epoch, TableId), Held>, batch: &mut Batch) {
        let mut state = self.0.lock();
        for (at, more) in moved {
            let held = state.held.entry(*at).or_default();
            held.versions += more.versions;
            held.bytes += more.bytes;
            held.last_removal = held.last_removal.max(more.last_removal);
            batch.put(
                Keyspace::Meta,
                meta_key(b'h', &[&at.0.prefix(), &at.1.0.to_be_bytes()]),
                numbers([held.versions, held.bytes, held.last_removal.as_u64()]),
            );
        }
    }

    /// The content of history by epoch and table.
    pub(crate) fn held(&self) -> Vec<(Epoch, TableId, Held)> {
        self.0.lock().held.iter().map(|((epoch, table), held)| (*epoch, *table, *held)).collect()
    }

    /// Bytes of everything kept: old versions and dropped tables.
    pub(crate) fn bytes(&self) -> u64 {
        let state = self.0.lock();
        state.held.values().map(|held| held.bytes).sum::<u64>() + state.dropped_bytes(|_| true)
    }

    /// The dropped tables that can still be read.
    pub(crate) fn dropped(&self) -> BTreeMap<TableId, Dropped> {
        self.0.lock().dropped.clone()
    }

    /// Sets the dropped tables that upkeep has found.
    pub(crate) fn set_dropped(&self, dropped: BTreeMap<TableId, Dropped>) {
        self.0.lock().dropped = dropped;
    }

    /// How far `oldest` may advance: to the window's start at `now`, or further if there is too much data. A pinned
    /// timestamp holds it back, but only within twice the window's length and size.
    pub(crate) fn wanted_oldest(&self, now: Timestamp, pinned: Option<Timestamp>) -> Timestamp {
        let state = self.0.lock();
        let wanted = state.begin_of(now, state.window);
        match pinned {
            Some(pinned) if pinned < wanted => {
                let Window { length, bytes_max, dropped_too } = state.window;
                let bytes_max = bytes_max.map(|max| max.saturating_mul(2));
                let bound = Window { length: length.saturating_mul(2), bytes_max, dropped_too };
                pinned.max(state.begin_of(now, bound))
            }
            _ => wanted,
        }
    }

    /// Drops the epochs that ended before `oldest`. M5 holds because the caller has advanced `oldest` first.
    pub(crate) fn drop_before(
        &self,
        oldest: Timestamp,
        engine: &dyn Engine,
    ) -> Result<usize, StorageError> {
        let gone: Vec<Epoch> = {
            let state = self.0.lock();
            let ended = state.epochs.iter().zip(state.epochs.iter().skip(1));
            ended.take_while(|(_, next)| next.1 <= oldest).map(|(epoch, _)| epoch.0).collect()
        };
        let Some(last) = gone.last() else { return Ok(0) };
        let mut batch = Batch::default();
        {
            let mut state = self.0.lock();
            state.epochs.retain(|(epoch, _)| epoch > last);
            let kept = state.held.split_off(&(Epoch(last.0 + 1), TableId(0)));
            for (at, _) in std::mem::replace(&mut state.held, kept) {
                batch.remove(
                    Keyspace::Meta,
                    meta_key(b'h', &[&at.0.prefix(), &at.1.0.to_be_bytes()]),
                );
            }
        }
        for epoch in &gone {
            batch.remove(Keyspace::Meta, meta_key(b'e', &[&epoch.prefix()]));
        }
        batch.put(Keyspace::Meta, meta_key(b'm', &[b"oldest"]), numbers([oldest.as_u64()]));
        // Synced before anything is removed: otherwise a crash could bring back epochs with missing versions.
        engine.commit(batch, crate::engine::Sync::Yes)?;
        engine.forget(Keyspace::History, &[], &Epoch(last.0 + 1).prefix())?;
        Ok(gone.len())
    }

    /// Recounts the epochs from `ts` on after a rollback.
    pub(crate) fn recount_after(
        &self,
        ts: Timestamp,
        snapshot: &dyn Snapshot,
        batch: &mut Batch,
    ) -> Result<(), StorageError> {
        let first = self.epoch_of(ts);
        let mut counted: BTreeMap<(Epoch, TableId), Held> = BTreeMap::new();
        let from = first.prefix();
        let bounds = (std::ops::Bound::Included(&from[..]), std::ops::Bound::Unbounded);
        for item in snapshot.range(Keyspace::History, bounds.0, bounds.1) {
            let (key, value) = item?;
            let mut reader = Reader(&key);
            let at = (|| Some((Epoch(reader.u32()?), TableId(reader.u32()?))))();
            let at = at.ok_or_else(|| StorageError::corrupt("history", "a key is cut short"))?;
            let held = counted.entry(at).or_default();
            held.versions += 1;
            held.bytes += (key.len() + value.len()) as u64;
            // It is no longer known which versions ended by a removal; searching in vain is harmless.
            held.last_removal = Timestamp::MAX;
        }
        let mut state = self.0.lock();
        for (at, _) in state.held.split_off(&(first, TableId(0))) {
            let key = meta_key(b'h', &[&at.0.prefix(), &at.1.0.to_be_bytes()]);
            batch.remove(Keyspace::Meta, key);
        }
        drop(state);
        self.count(&counted, batch);
        Ok(())
    }

    /// Forgets everything for a new initial sync. Epoch numbers are not reused: returns the next one.
    pub(crate) fn reset(&self) -> Epoch {
        let mut state = self.0.lock();
        state.next = state.epochs.last().map_or(state.next, |(epoch, _)| epoch.0 + 1);
        state.epochs.clear();
        state.held.clear();
        state.dropped.clear();
        Epoch(state.next)
    }

    /// Timestamp since which ended versions are kept.
    pub(crate) fn begins(&self) -> Timestamp {
        self.0.lock().epochs.first().map_or(Timestamp::NULL, |(_, from)| *from)
    }

    /// The first epoch that is kept; all earlier ones are dropped. Used by the engine at open.
    pub(crate) fn first_epoch(&self) -> Option<Epoch> {
        self.0.lock().epochs.first().map(|(epoch, _)| *epoch)
    }
}

impl State {
    fn epoch_of(&self, stop: Timestamp) -> Epoch {
        let at = self.epochs.partition_point(|(_, from)| *from <= stop);
        let found = at.checked_sub(1).and_then(|i| self.epochs.get(i)).or(self.epochs.first());
        found.map_or(Epoch(self.next), |(epoch, _)| *epoch)
    }

    fn epochs_from(
        &self,
        ts: Timestamp,
        table: TableId,
        want: impl Fn(&Held) -> bool,
    ) -> Vec<Epoch> {
        let first = self.epoch_of(ts);
        self.epochs
            .iter()
            .map(|(epoch, _)| *epoch)
            .filter(|epoch| *epoch >= first)
            .filter(|epoch| self.held.get(&(*epoch, table)).is_some_and(&want))
            .collect()
    }

    /// Start of a window that ends at `now`.
    fn begin_of(&self, now: Timestamp, window: Window) -> Timestamp {
        let secs = u32::try_from(window.length.as_secs()).unwrap_or(u32::MAX);
        let mut oldest = Timestamp::new(now.secs().saturating_sub(secs), now.inc());
        let versions: u64 = self.held.values().map(|held| held.bytes).sum();
        let mut gone = 0;
        for (epoch, next) in self.epochs.iter().zip(self.epochs.iter().skip(1)) {
            let dropped = match window.dropped_too {
                true => self.dropped_bytes(|at| at >= oldest),
                false => 0,
            };
            let bytes = (versions + dropped).saturating_sub(gone);
            if window.bytes_max.is_none_or(|max| bytes <= max) {
                break;
            }
            gone += self.bytes_in(epoch.0);
            oldest = oldest.max(next.1);
        }
        oldest
    }

    fn dropped_bytes(&self, which: impl Fn(Timestamp) -> bool) -> u64 {
        self.dropped.values().filter(|it| which(it.at)).map(|it| it.bytes).sum()
    }

    fn is_due(&self, now: Timestamp) -> bool {
        let Some((epoch, from)) = self.epochs.last() else { return true };
        if now <= *from {
            return false;
        }
        let secs = self.window.length.as_secs() / u64::from(EPOCHS_PER_WINDOW);
        let old = u64::from(now.secs().saturating_sub(from.secs())) >= secs.max(1);
        let share = self.window.bytes_max.map(|max| max / u64::from(EPOCHS_PER_WINDOW));
        let dropped = match self.window.dropped_too {
            true => self.dropped_bytes(|at| at >= *from),
            false => 0,
        };
        old || share.is_some_and(|share| self.bytes_in(*epoch) + dropped > share)
    }

    fn bytes_in(&self, epoch: Epoch) -> u64 {
        let range = (epoch, TableId(0))..=(epoch, TableId(u32::MAX));
        self.held.range(range).map(|(_, held)| held.bytes).sum()
    }
}

fn family(snapshot: &dyn Snapshot, family: u8) -> crate::engine::Iter {
    let (from, to) = prefix_range(&[family]);
    snapshot.range(Keyspace::Meta, from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice))
}
