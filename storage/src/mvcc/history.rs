//! Where old versions live: epochs, what they hold, and how far back one may read.
//!
//! ```text
//!   epoch   1          2          3          4          a version goes to the epoch in which it ended
//!           |----------|----------|----------|----- now
//!                      ^ oldest: epoch 1 goes as a whole, decided from the key alone
//! ```
//! An epoch ends after 1/96 of the window, by time or by size, whichever comes first: short enough that neighbours in
//! it are versions of different documents from about the same time, as a scan at T wants them.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use protocol::{Namespace, Timestamp};

use crate::{
    StorageError,
    engine::{Batch, Engine, Keyspace, Snapshot},
    layout::{Epoch, Reader, TableId, meta_key, numbers, prefix_range},
};

/// Into how many epochs the window is divided.
const EPOCHS_PER_WINDOW: u32 = 96;

/// How long and how much to remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) length: Duration,
    pub(crate) bytes_max: Option<u64>,
    /// Whether tables that were dropped count for `bytes_max`; else they stay for the whole length.
    pub(crate) dropped_too: bool,
}

/// A table that nothing of the present names any more, kept for readers of earlier moments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub(crate) at: Timestamp,
    pub(crate) documents: u64,
    pub(crate) bytes: u64,
    /// Whose table it was.
    pub(crate) ns: Option<Namespace>,
}

/// What an epoch holds of a table.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) versions: u64,
    pub(crate) bytes: u64,
    /// When the last of them ended by a removal: only before that can a key that is absent now have lived.
    pub(crate) last_removal: Timestamp,
}

impl Held {
    /// A version ended at `stop` by a removal.
    pub(crate) fn note_removal(&mut self, stop: Timestamp) {
        self.last_removal = self.last_removal.max(stop);
    }
}

/// The state of history; one per store.
pub(crate) struct History(Mutex<State>);

struct State {
    /// First time of each epoch, ascending.
    epochs: Vec<(Epoch, Timestamp)>,
    held: BTreeMap<(Epoch, TableId), Held>,
    /// As the last upkeep found them.
    dropped: BTreeMap<TableId, Dropped>,
    window: Window,
    /// The number of the first epoch when there is none.
    next: u32,
}

impl History {
    /// Reads what the store remembers about its history.
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

    /// False when nothing is to be remembered at all.
    pub(crate) fn keeps(&self) -> bool {
        !self.0.lock().window.length.is_zero()
    }

    /// Changes the window for what comes.
    pub(crate) fn set_window(&self, window: Window) {
        self.0.lock().window = window;
    }

    /// The epoch in which a version that ends at `stop` is found.
    pub(crate) fn epoch_of(&self, stop: Timestamp) -> Epoch {
        self.0.lock().epoch_of(stop)
    }

    /// The epochs that may hold versions of `table` that live at `ts` or later, oldest first.
    pub(crate) fn epochs_from(&self, ts: Timestamp, table: TableId) -> Vec<Epoch> {
        self.0.lock().epochs_from(ts, table, |held| held.versions > 0)
    }

    /// True when a row of `table` that is not there now, or came after `ts`, may have lived at `ts`.
    pub(crate) fn may_have_removed(&self, ts: Timestamp, table: TableId) -> bool {
        !self.removals_from(ts, table).is_empty()
    }

    /// Of those epochs the ones in which a life may have ended by a removal after `ts`.
    pub(crate) fn removals_from(&self, ts: Timestamp, table: TableId) -> Vec<Epoch> {
        self.0.lock().epochs_from(ts, table, |held| held.last_removal > ts)
    }

    /// Begins a new epoch if one is due at `now`. M4: `now` is after all stops so far.
    pub(crate) fn roll(&self, now: Timestamp) {
        let mut state = self.0.lock();
        if state.is_due(now) {
            let next = Epoch(state.epochs.last().map_or(state.next, |(epoch, _)| epoch.0 + 1));
            state.epochs.push((next, now));
        }
    }

    /// The row of the newest epoch joins every batch: whichever batch is the first to be kept brings it.
    pub(crate) fn save(&self, batch: &mut Batch) {
        if let Some((epoch, from)) = self.0.lock().epochs.last() {
            let key = meta_key(b'e', &[&epoch.prefix()]);
            batch.put(Keyspace::Meta, key, numbers([from.as_u64()]));
        }
    }

    /// Counts what a batch moved here; the rows join the batch.
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

    /// What is held, by epoch and table.
    pub(crate) fn held(&self) -> Vec<(Epoch, TableId, Held)> {
        self.0.lock().held.iter().map(|((epoch, table), held)| (*epoch, *table, *held)).collect()
    }

    /// Bytes of all that is held: versions, and dropped tables.
    pub(crate) fn bytes(&self) -> u64 {
        let state = self.0.lock();
        state.held.values().map(|held| held.bytes).sum::<u64>() + state.dropped_bytes(|_| true)
    }

    /// The tables that were dropped and can still be read.
    pub(crate) fn dropped(&self) -> BTreeMap<TableId, Dropped> {
        self.0.lock().dropped.clone()
    }

    /// Upkeep has looked at them.
    pub(crate) fn set_dropped(&self, dropped: BTreeMap<TableId, Dropped>) {
        self.0.lock().dropped = dropped;
    }

    /// How far `oldest` could move: the window's begin at `now`, or further if there is too much. A pinned moment
    /// holds it back, up to a window of twice the length and size.
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

    /// Drops the epochs that ended before `oldest`. M5 holds from here on: the caller has moved `oldest` first.
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
        // On disk before anything goes: a store that came back without this would read epochs with holes.
        engine.commit(batch, crate::engine::Sync::Yes)?;
        engine.forget(Keyspace::History, &[], &Epoch(last.0 + 1).prefix())?;
        Ok(gone.len())
    }

    /// After a rollback: counts the epochs from `ts` on anew.
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
            // Which of them ended by a removal is not known any more; to look in vain is harmless.
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

    /// Forgets everything: an initial sync begins. Numbers are not used again: returns the next.
    pub(crate) fn reset(&self) -> Epoch {
        let mut state = self.0.lock();
        state.next = state.epochs.last().map_or(state.next, |(epoch, _)| epoch.0 + 1);
        state.epochs.clear();
        state.held.clear();
        state.dropped.clear();
        Epoch(state.next)
    }

    /// Since when ended versions are kept.
    pub(crate) fn begins(&self) -> Timestamp {
        self.0.lock().epochs.first().map_or(Timestamp::NULL, |(_, from)| *from)
    }

    /// The first epoch that is kept: everything below is forgotten. For the engine, at open.
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

    /// Where a window that ends at `now` begins.
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
