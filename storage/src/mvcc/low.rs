//! Where the rows of a table begin, so that a walk from its front does not wade through what was removed there.
//!
//! A queue takes from its front: each row taken leaves a tombstone in the engine until compaction comes by, and a
//! reader of the front passes all of them. The first reader who did remembers the row that he came to.
//!
//! ```text
//!   x x x x x x x x x  [r] r r r          x tombstone   r row   [ ] low: nothing lies before it
//! ```
//! L1 No row lies before a table's low key, in every published moment from the one on that it was learned in.
//! L2 It is learned from the newest moment only, and not while a batch is on its way; a batch lowers it first.

use std::collections::HashMap;

use parking_lot::RwLock;

use crate::{
    engine::{Batch, Keyspace, Slice},
    layout::{Reader as Bytewise, TableId},
};

/// The low keys of all tables that were walked from their front.
#[derive(Default)]
pub(crate) struct LowKeys(RwLock<State>);

#[derive(Default)]
struct State {
    /// Moments are numbered as they are published.
    latest: u64,
    /// The low row, and the moment from which on it is one.
    low: HashMap<TableId, (Slice, u64)>,
}

impl LowKeys {
    /// The number of the newest moment.
    pub(crate) fn latest(&self) -> u64 {
        self.0.read().latest
    }

    /// Before which row a reader of the moment `number` need not look.
    pub(crate) fn of(&self, table: TableId, number: u64) -> Option<Slice> {
        let state = self.0.read();
        state.low.get(&table).filter(|(_, since)| *since <= number).map(|(row, _)| row.clone())
    }

    /// A walk from the front, or from the low key, came to this row first.
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

    /// L2: a batch is about to be written; the next moment will show it.
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

    /// Rows came or went by other ways than batches.
    pub(crate) fn forget(&self) {
        let mut state = self.0.write();
        state.latest += 1;
        state.low.clear();
    }
}
