//! Remembers the first row of a table, so that a scan from its start does not pass over many tombstones.
//!
//! A queue removes rows at its front: each leaves a tombstone in the engine until compaction, and a reader of the
//! front passes all of them. The first reader that did so remembers the first live row.
//!
//! ```text
//!   x x x x x x x x x  [r] r r r          x tombstone   r row   [ ] low: no row before it
//! ```
//! L1 No row lies before a table's low key, in all published snapshots since the one in which it was learned.
//! L2 It is learned only from the newest snapshot, and not while a batch is being committed; a batch lowers it first.

use std::collections::HashMap;

use parking_lot::RwLock;

use crate::{
    engine::{Batch, Keyspace, Slice},
    layout::{Reader as Bytewise, TableId},
};

/// The low keys of all tables that were scanned from their start.
#[derive(Default)]
pub(crate) struct LowKeys(RwLock<State>);

#[derive(Default)]
struct State {
    /// Number of the newest published snapshot.
    latest: u64,
    /// The low key, and the number of the snapshot from which on it is valid.
    low: HashMap<TableId, (Slice, u64)>,
}

impl LowKeys {
    /// The number of the newest snapshot.
    pub(crate) fn latest(&self) -> u64 {
        self.0.read().latest
    }

    /// The low key of a table for a reader of snapshot `number`.
    pub(crate) fn of(&self, table: TableId, number: u64) -> Option<Slice> {
        let state = self.0.read();
        state.low.get(&table).filter(|(_, since)| *since <= number).map(|(row, _)| row.clone())
    }

    /// Records that a scan from the table's start, or from the low key, found this row first.
    pub(crate) fn learn(&self, table: TableId, number: u64, row: &[u8]) {
        let known = |state: &State| {
            state.latest != number || state.low.get(&table).is_some_and(|(low, _)| **low >= *row)
        };
        if known(&self.0.read()) {
            return;
        }
        let mut state = self.0.write();
        if !known(&state) {
            state.low.insert(table, (row.into(), number));
        }
    }

    /// L2: called before a batch is written; the next snapshot will show it.
    pub(crate) fn lower(&self, batch: &Batch) {
        let mut state = self.0.write();
        state.latest += 1;
        if state.low.is_empty() {
            return;
        }
        for (ks, row, value) in &batch.writes {
            if *ks != Keyspace::Current || value.is_none() {
                continue;
            }
            let Some(table) = Bytewise(row).u32().map(TableId) else { continue };
            if let Some((low, _)) = state.low.get_mut(&table)
                && **row < **low
            {
                *low = Slice::from(&**row);
            }
        }
    }

    /// Forgets all low keys: rows were written by other means than batches.
    pub(crate) fn forget(&self) {
        let mut state = self.0.write();
        state.latest += 1;
        state.low.clear();
    }
}
