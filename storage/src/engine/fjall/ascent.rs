//! Walks upward over a keyspace of which nothing waits for its flush.
//!
//! The engine's own walk can turn round at any row. For that it hands every row through a heap of all sources and a look
//! ahead, and each block of a table at either end of the walk is gone through twice, once for the upper bound. Here rows
//! come straight from the sources, a memtable and the runs of tables:
//!
//! ```text
//!   memtable   . . . . c9 . . .       the source with the smallest row leads: as long as its next row stays
//!   run 1      . b7 . . . . . f7      below the rival's, the smallest of the others, a row costs one comparison
//!   run 2      a1 b1 b2 c3 d4 . .
//! ```
//! A1 Rows come by key, and by sequence number downward: the first of a key counts, if only to say that it was removed.
//! A2 Memtables that wait for their flush can't be reached from here: while there is one, the engine's walk serves.

use std::{
    cmp::Ordering,
    collections::VecDeque,
    ops::{Bound, Deref},
    sync::Arc,
};

use fjall::{AbstractTree, Keyspace, Slice};
use lsm_tree::{InternalValue, Memtable, SeqNo, Table, ValueType};

/// Rows of tables, in order.
type Rows = Box<dyn Iterator<Item = lsm_tree::Result<InternalValue>> + Send>;
/// The rows of the next table, until there is none.
type Tables = Box<dyn FnMut() -> Option<Rows> + Send>;
/// The runs of tables that reach a lower bound, from there on. The engine does not name the type of its state.
type Runs = Box<dyn Fn(Bound<&[u8]>) -> Vec<Tables> + Send + Sync>;

/// A keyspace while no memtable waits.
pub(super) struct Still {
    memtable: Arc<Memtable>,
    runs: Runs,
}

impl Still {
    /// As it is now, A2.
    pub(super) fn of(keyspace: &Keyspace) -> Option<Self> {
        let memtable = keyspace.tree.active_memtable();
        let version = keyspace.tree.current_version();
        let still = Self {
            memtable,
            runs: Box::new(move |from| {
                let runs = version.iter_levels().flat_map(|level| level.iter());
                runs.filter_map(|run| tables(Arc::clone(run), from)).collect()
            }),
        };
        still.holds(keyspace).then_some(still)
    }

    /// Whether no memtable has been put to wait since: each one is another.
    pub(super) fn holds(&self, keyspace: &Keyspace) -> bool {
        keyspace.tree.sealed_memtable_count() == 0
            && keyspace.tree.active_memtable().id() == self.memtable.id()
    }

    /// The rows between two bounds, as a snapshot sees them.
    pub(super) fn ascend(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, at: SeqNo) -> Ascent {
        let memtable = Recent {
            memtable: Arc::clone(&self.memtable),
            after: match from {
                Bound::Included(key) => Bound::Included((key.into(), SeqNo::MAX)),
                Bound::Excluded(key) => Bound::Excluded((key.into(), 0)),
                Bound::Unbounded => Bound::Unbounded,
            },
            to: to.map(Slice::from),
            at,
            batch: VecDeque::new(),
            batch_len: BATCH_LEN_FIRST,
        };
        let runs = (self.runs)(from).into_iter().map(|mut tables| {
            let rows = tables();
            Source { head: None, rows: From::Run { tables, rows } }
        });
        let memtable = Source { head: None, rows: From::Memtable(memtable) };
        Ascent {
            sources: std::iter::once(memtable).chain(runs).collect(),
            place: Place::Start,
            to: to.map(Slice::from),
            at,
            last: None,
        }
    }
}

/// The tables of a run from a lower bound on.
fn tables<R>(run: Arc<R>, from: Bound<&[u8]>) -> Option<Tables>
where
    R: Deref<Target = [Table]> + Send + Sync + 'static,
{
    let first = run.partition_point(|table| {
        let last: &[u8] = table.metadata.key_range.max();
        match from {
            Bound::Included(from) => last < from,
            Bound::Excluded(from) => last <= from,
            Bound::Unbounded => false,
        }
    });
    run.get(first)?;
    let from = from.map(Slice::from);
    let mut next = first;
    Some(Box::new(move || {
        let table = run.get(next)?;
        next += 1;
        // Blocks of a bounded walk are searched for the bound, one after the other: only the first table needs it.
        let rows: Rows = if next == first + 1 {
            Box::new(table.range((from.clone(), Bound::Unbounded)))
        } else {
            Box::new(table.iter())
        };
        Some(rows)
    }))
}

/// A walk.
pub(super) struct Ascent {
    sources: Vec<Source>,
    place: Place,
    to: Bound<Slice>,
    /// Rows with this number or a later one came after the snapshot.
    at: SeqNo,
    /// The key that was seen last, removed or not.
    last: Option<Slice>,
}

/// How far a walk is.
enum Place {
    /// No source was looked at.
    Start,
    /// The source with the smallest row, and the one with the smallest of the others.
    Between {
        lead: usize,
        rival: Option<usize>,
    },
    End,
}

struct Source {
    head: Option<InternalValue>,
    rows: From,
}

enum From {
    Memtable(Recent),
    Run { tables: Tables, rows: Option<Rows> },
}

impl Source {
    /// The row at the head; the next one takes its place.
    fn take(&mut self, at: SeqNo) -> lsm_tree::Result<Option<InternalValue>> {
        let next = loop {
            match self.pull().transpose()? {
                Some(row) if row.key.seqno >= at => {}
                next => break next,
            }
        };
        Ok(std::mem::replace(&mut self.head, next))
    }

    fn pull(&mut self) -> Option<lsm_tree::Result<InternalValue>> {
        match &mut self.rows {
            From::Memtable(recent) => recent.next().map(Ok),
            From::Run { tables, rows } => loop {
                if let Some(row) = rows.as_mut()?.next() {
                    return Some(row);
                }
                *rows = tables();
            },
        }
    }
}

impl Ascent {
    fn step(&mut self) -> lsm_tree::Result<Option<InternalValue>> {
        if matches!(self.place, Place::Start) {
            for source in &mut self.sources {
                source.take(self.at)?;
            }
            self.place = self.elect();
        }
        loop {
            let Place::Between { lead, rival } = self.place else { return Ok(None) };
            let Some(source) = self.sources.get_mut(lead) else { return Ok(None) };
            let Some(row) = source.take(self.at)? else { return Ok(None) };
            if !self.still_leads(lead, rival) {
                self.place = self.elect();
            }
            let key = &row.key.user_key;
            let beyond = match &self.to {
                Bound::Included(to) => key > to,
                Bound::Excluded(to) => key >= to,
                Bound::Unbounded => false,
            };
            if beyond {
                return Ok(None);
            }
            // A1: what follows of the same key is older.
            if self.last.as_ref() == Some(key) {
                continue;
            }
            self.last = Some(key.clone());
            if !row.is_tombstone() {
                return Ok(Some(row));
            }
        }
    }

    fn head(&self, source: usize) -> Option<&InternalValue> {
        self.sources.get(source)?.head.as_ref()
    }

    fn still_leads(&self, lead: usize, rival: Option<usize>) -> bool {
        match (self.head(lead), rival.and_then(|rival| self.head(rival))) {
            (Some(lead), Some(rival)) => lead.key.cmp(&rival.key) == Ordering::Less,
            (lead, _) => lead.is_some(),
        }
    }

    fn elect(&self) -> Place {
        let (mut lead, mut rival) = (None, None);
        for (at, source) in self.sources.iter().enumerate() {
            let Some(head) = &source.head else { continue };
            let before = |other: Option<usize>| {
                other.and_then(|other| self.head(other)).is_none_or(|other| head.key < other.key)
            };
            if before(lead) {
                (lead, rival) = (Some(at), lead);
            } else if before(rival) {
                rival = Some(at);
            }
        }
        lead.map_or(Place::End, |lead| Place::Between { lead, rival })
    }
}

impl Iterator for Ascent {
    type Item = lsm_tree::Result<InternalValue>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.step();
        if !matches!(row, Ok(Some(_))) {
            self.place = Place::End;
        }
        row.transpose()
    }
}

/// The rows of a memtable. An iterator would borrow it; so they are taken out some at a time.
struct Recent {
    memtable: Arc<Memtable>,
    after: Bound<(Slice, SeqNo)>,
    to: Bound<Slice>,
    at: SeqNo,
    batch: VecDeque<InternalValue>,
    /// How many come next; 0 when all have come.
    batch_len: usize,
}

/// As many rows of a memtable are taken out at once: few first, for short walks.
const BATCH_LEN_FIRST: usize = 8;
const BATCH_LEN_MAX: usize = 128;

impl Recent {
    fn next(&mut self) -> Option<InternalValue> {
        if self.batch.is_empty() && self.batch_len > 0 {
            self.refill();
        }
        self.batch.pop_front()
    }

    fn refill(&mut self) {
        // The order is by key, then by sequence number downward.
        let key = |key: &Slice, number| {
            InternalValue::from_components(key.clone(), Slice::empty(), number, ValueType::Value)
                .key
        };
        let from = self.after.as_ref().map(|(at, number)| key(at, *number));
        let to = match &self.to {
            Bound::Included(to) => Bound::Included(key(to, 0)),
            Bound::Excluded(to) => Bound::Excluded(key(to, SeqNo::MAX)),
            Bound::Unbounded => Bound::Unbounded,
        };
        let seen = self.memtable.items.range((from, to)).filter(|row| row.key().seqno < self.at);
        let rows = seen
            .take(self.batch_len)
            .map(|row| InternalValue { key: row.key().clone(), value: row.value().clone() });
        self.batch.extend(rows);
        // What comes into the memtable later is beyond the snapshot.
        match self.batch.back() {
            Some(last) if self.batch.len() == self.batch_len => {
                self.after = Bound::Excluded((last.key.user_key.clone(), last.key.seqno));
                self.batch_len = (self.batch_len * 4).min(BATCH_LEN_MAX);
            }
            _ => self.batch_len = 0,
        }
    }
}
