//! Forward scans over a keyspace that has no sealed memtable.
//!
//! The engine's own iterator can change direction at any row. For that it passes every row through a heap of all
//! sources and a peek buffer, and it searches the first and last block of a table twice, once for the upper bound.
//! Here rows come directly from the sources, a memtable and the runs of tables:
//!
//! ```text
//!   memtable   . . . . c9 . . .       the source with the smallest row leads: as long as its next row stays
//!   run 1      . b7 . . . . . f7      below the rival's, the smallest of the others, a row costs one comparison;
//!   run 2      a1 b1 b2 c3 d4 . .     none where its whole block lies below the rival and the end of the scan
//! ```
//! A1 Rows come by key, and by descending sequence number: the first row of a key is the valid one, even if it is a
//!    tombstone.
//! A2 Sealed memtables are not accessible from here: while there is one, the engine's own iterator is used.

mod blocks;
mod source;

use std::{
    ops::{Bound, Deref},
    sync::Arc,
};

use fjall::{AbstractTree, Keyspace, Slice};
use lsm_tree::{InternalValue, Memtable, SeqNo, Table};

use self::source::{Source, Tables};
use super::super::Look;

/// Returns the runs of tables that reach beyond a lower bound. A closure, because the engine's version type is not
/// nameable.
type Runs = Box<dyn Fn(Bound<&[u8]>) -> Vec<Tables> + Send + Sync>;

/// The state of a keyspace without sealed memtables.
pub(super) struct Still {
    memtable: Arc<Memtable>,
    runs: Runs,
}

impl Still {
    /// The present state, or `None` if there is a sealed memtable (A2).
    pub(super) fn of(keyspace: &Keyspace) -> Option<Self> {
        let memtable = keyspace.tree.active_memtable();
        let version = keyspace.tree.current_version();
        let tree = keyspace.tree.id();
        let still = Self {
            memtable,
            runs: Box::new(move |from| {
                let runs = version.iter_levels().flat_map(|level| level.iter());
                let of = |next| Tables::new(tree, next);
                runs.filter_map(|run| tables(Arc::clone(run), from).map(of)).collect()
            }),
        };
        still.holds(keyspace).then_some(still)
    }

    /// True if no memtable has been sealed since; a sealed memtable is replaced by one with a new id.
    pub(super) fn holds(&self, keyspace: &Keyspace) -> bool {
        keyspace.tree.sealed_memtable_count() == 0
            && keyspace.tree.active_memtable().id() == self.memtable.id()
    }

    /// The rows between two bounds, as a snapshot sees them.
    pub(super) fn ascend(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, at: SeqNo) -> Ascent {
        let to = to.map(Slice::from);
        let memtable = Source::memtable(Arc::clone(&self.memtable), from, to.clone(), at);
        let runs = (self.runs)(from).into_iter().map(|tables| Source::run(tables, from));
        Ascent {
            sources: std::iter::once(memtable).chain(runs).collect(),
            place: Place::Start,
            to,
            at,
            last: Vec::new(),
        }
    }
}

/// The tables of a run from a lower bound on.
fn tables<R>(
    run: Arc<R>,
    from: Bound<&[u8]>,
) -> Option<impl FnMut() -> Option<Table> + Send + 'static>
where
    R: Deref<Target = [Table]> + Send + Sync + 'static,
{
    let mut next = run.partition_point(|table| {
        let last: &[u8] = table.metadata.key_range.max();
        match from {
            Bound::Included(from) => last < from,
            Bound::Excluded(from) => last <= from,
            Bound::Unbounded => false,
        }
    });
    run.get(next)?;
    Some(move || {
        let table = run.get(next)?.clone();
        next += 1;
        Some(table)
    })
}

/// A forward scan.
pub(super) struct Ascent {
    sources: Vec<Source>,
    place: Place,
    to: Bound<Slice>,
    /// Rows with this sequence number or a later one are newer than the snapshot.
    at: SeqNo,
    /// The key of the last row, removed or not. No key is empty.
    last: Vec<u8>,
}

/// Position of a scan.
#[derive(Clone, Copy)]
enum Place {
    /// No source has been read yet.
    Start,
    /// The source with the smallest row, and the one with the second smallest.
    Between {
        lead: usize,
        rival: Option<usize>,
        /// Until the end of the lead's block there is neither a row of the rival nor the end of the scan.
        alone: bool,
    },
    End,
}

impl Ascent {
    /// The next row that the test accepts. The test gets the key's length and the value as stored in the table; rows
    /// whose value is in a blob file are always accepted.
    pub(super) fn find(&mut self, test: Look<'_>) -> Option<lsm_tree::Result<InternalValue>> {
        let row = self.step(test);
        if !matches!(row, Ok(Some(_))) {
            self.place = Place::End;
        }
        row.transpose()
    }

    fn step(&mut self, test: Look<'_>) -> lsm_tree::Result<Option<InternalValue>> {
        if matches!(self.place, Place::Start) {
            for source in &mut self.sources {
                source.begin(self.at)?;
            }
            self.elect();
        }
        loop {
            let Place::Between { lead, rival, alone } = self.place else { return Ok(None) };
            let Some(source) = self.sources.get_mut(lead) else { return Ok(None) };
            if alone {
                let found = source.find_in_block(self.at, &mut self.last, test);
                if source.settle(self.at)? {
                    self.elect();
                }
                if found.is_some() {
                    return Ok(found);
                }
                continue;
            }
            let Some(head) = source.head() else { return Ok(None) };
            if head.is_beyond(&self.to) {
                return Ok(None);
            }
            // A1: further rows of the same key are older.
            let wanted = !head.has_key(&self.last) && {
                self.last.clear();
                self.last.extend_from_slice(head.prefix);
                self.last.extend_from_slice(head.rest);
                head.is_value_elsewhere() || !head.is_removal() && test(self.last.len(), head.value)
            };
            let row = if wanted { source.row() } else { None };
            let crossed = source.advance(self.at)?;
            if crossed || !self.still_leads(lead, rival) {
                self.elect();
            }
            if row.is_some() {
                return Ok(row);
            }
        }
    }

    fn still_leads(&self, lead: usize, rival: Option<usize>) -> bool {
        let head = |at: usize| self.sources.get(at).and_then(Source::head);
        match (head(lead), rival.and_then(head)) {
            (Some(lead), Some(rival)) => lead.is_before(&rival),
            (lead, _) => lead.is_some(),
        }
    }

    fn elect(&mut self) {
        let (mut lead, mut rival) = (None, None);
        for (at, source) in self.sources.iter().enumerate() {
            let Some(head) = source.head() else { continue };
            let before = |other: Option<usize>| {
                let other = other.and_then(|other| self.sources.get(other)?.head());
                other.is_none_or(|other| head.is_before(&other))
            };
            if before(lead) {
                (lead, rival) = (Some(at), lead);
            } else if before(rival) {
                rival = Some(at);
            }
        }
        self.place = match lead {
            Some(lead) => Place::Between { lead, rival, alone: self.is_alone(lead, rival) },
            None => Place::End,
        };
    }

    fn is_alone(&self, lead: usize, rival: Option<usize>) -> bool {
        let Some(last) = self.sources.get(lead).and_then(Source::last_key) else { return false };
        let within = match &self.to {
            Bound::Included(to) => last <= to,
            Bound::Excluded(to) => last < to,
            Bound::Unbounded => true,
        };
        let rival = rival.and_then(|rival| self.sources.get(rival)?.head());
        within && rival.is_none_or(|rival| rival.compare_key(last).is_gt())
    }
}

impl Iterator for Ascent {
    type Item = lsm_tree::Result<InternalValue>;

    fn next(&mut self) -> Option<Self::Item> {
        self.find(&mut |_, _| true)
    }
}

#[cfg(test)]
mod tests;
