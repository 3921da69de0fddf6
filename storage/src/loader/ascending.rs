//! Sorts rows that arrive in approximately ascending order.

use std::{sync::Arc, vec::IntoIter};

use protocol::RawDoc;

use super::{LATE_BYTES, WINDOW_BYTES, row};
use crate::{
    StorageError,
    apply::documents::id_of,
    catalog::Collection,
    engine::{Item, Slice},
    keystring,
    sort::Sorter,
    store::Inner,
};

/// Replacement selection: a full window returns its smaller half, and a row below what was returned is late.
pub(super) struct Ascending<'a> {
    docs: &'a mut dyn Iterator<Item = RawDoc>,
    coll: Arc<Collection>,
    next_record: u64,
    window: Vec<(Slice, Slice)>,
    window_bytes: usize,
    ready: IntoIter<(Slice, Slice)>,
    /// The largest key returned so far.
    given: Option<Slice>,
    late: Sorter,
}

impl<'a> Ascending<'a> {
    pub(super) fn new(
        store: &Inner,
        coll: &Arc<Collection>,
        docs: &'a mut dyn Iterator<Item = RawDoc>,
    ) -> Self {
        Self {
            docs,
            coll: Arc::clone(coll),
            next_record: store.counts_of(coll.table).next_record,
            window: Vec::new(),
            window_bytes: 0,
            ready: Vec::new().into_iter(),
            given: None,
            late: Sorter::new(&store.sort_dir(), LATE_BYTES),
        }
    }

    /// Reads until the window is full or the documents end, and prepares rows to return. True at the end.
    pub(super) fn fill(&mut self) -> Result<bool, StorageError> {
        let mut ended = false;
        while !ended && self.window_bytes < WINDOW_BYTES {
            match self.docs.next() {
                Some(doc) => self.take(&doc)?,
                None => ended = true,
            }
        }
        // A stable sort: equal keys stay in the order of their arrival.
        self.window.sort_by(|a, b| a.0.cmp(&b.0));
        // At least one row, or a document larger than the window would never be returned.
        let half = self.window.len().div_ceil(2);
        let rest = if ended { Vec::new() } else { self.window.split_off(half) };
        let mut ready = std::mem::replace(&mut self.window, rest);
        ready.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
        self.window_bytes = self.window.iter().map(weight).sum();
        if let Some((last, _)) = ready.last() {
            self.given = Some(last.clone());
        }
        // The other half may begin with the same key; that row is newer, so it goes to the late ones.
        let given = self.given.as_ref();
        let equal = self.window.partition_point(|(key, _)| Some(key) <= given);
        for (key, value) in self.window.drain(..equal) {
            self.late.push(&key, &value)?;
        }
        self.ready = ready.into_iter();
        Ok(ended)
    }

    fn take(&mut self, doc: &RawDoc) -> Result<(), StorageError> {
        let record = if self.coll.capped().is_some() {
            self.next_record += 1;
            self.next_record.to_be_bytes().to_vec()
        } else {
            keystring::encode(id_of(doc)?)?
        };
        let (key, value) = row(self.coll.table, &record, &[doc.as_bytes()]);
        if self.given.as_ref().is_some_and(|given| key <= *given) {
            return self.late.push(&key, &value);
        }
        let row = (key, value);
        self.window_bytes += weight(&row);
        self.window.push(row);
        Ok(())
    }

    /// The late rows, and the next record number.
    pub(super) fn into_late(self) -> (Sorter, u64) {
        (self.late, self.next_record)
    }
}

fn weight(row: &(Slice, Slice)) -> usize {
    row.0.len() + row.1.len() + size_of::<(Slice, Slice)>()
}

impl Iterator for Ascending<'_> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(row) = self.ready.next() {
                return Some(Ok(row));
            }
            match self.fill() {
                // At the end all rows become ready, so no ready row means that none is left.
                Ok(true) if self.ready.len() == 0 => return None,
                Ok(_) => {}
                Err(e) => return Some(Err(e)),
            }
        }
    }
}
