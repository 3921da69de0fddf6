//! The sources of a scan, each with its next row.

use std::{cmp::Ordering, collections::VecDeque, ops::Bound, sync::Arc};

use fjall::Slice;
use lsm_tree::{InternalValue, Memtable, SeqNo, Table, TreeId, ValueType};

use super::{super::super::Look, blocks::Blocks};

/// A row in place. In a block its key is split into two parts.
pub(super) struct Head<'b> {
    pub(super) prefix: &'b [u8],
    pub(super) rest: &'b [u8],
    pub(super) seqno: SeqNo,
    pub(super) kind: ValueType,
    pub(super) value: &'b [u8],
}

impl Head<'_> {
    pub(super) fn is_removal(&self) -> bool {
        self.kind.is_tombstone()
    }

    /// True if the value is a pointer into a blob file.
    pub(super) fn is_value_elsewhere(&self) -> bool {
        self.kind == ValueType::Indirection
    }

    pub(super) fn has_key(&self, key: &[u8]) -> bool {
        self.prefix.len() + self.rest.len() == key.len() && self.compare_key(key).is_eq()
    }

    /// Compares with a contiguous key.
    pub(super) fn compare_key(&self, key: &[u8]) -> Ordering {
        match key.split_at_checked(self.prefix.len()) {
            Some((front, back)) => self.prefix.cmp(front).then_with(|| self.rest.cmp(back)),
            None => self.prefix.cmp(key),
        }
    }

    pub(super) fn is_beyond(&self, to: &Bound<Slice>) -> bool {
        match to {
            Bound::Included(to) => self.compare_key(to).is_gt(),
            Bound::Excluded(to) => self.compare_key(to).is_ge(),
            Bound::Unbounded => false,
        }
    }

    /// The order of rows: by key, newer rows first.
    pub(super) fn is_before(&self, other: &Head<'_>) -> bool {
        let keys = if other.rest.is_empty() {
            self.compare_key(other.prefix)
        } else if self.rest.is_empty() {
            other.compare_key(self.prefix).reverse()
        } else {
            let key = |head: &Head<'_>| [head.prefix, head.rest].concat();
            key(self).cmp(&key(other))
        };
        keys.then(other.seqno.cmp(&self.seqno)).is_lt()
    }
}

/// A source and the next of its rows.
pub(super) enum Source {
    Memtable {
        head: Option<InternalValue>,
        rows: Recent,
    },
    /// A run of tables, read by the engine's iterator, which suits short scans.
    Run {
        head: Option<InternalValue>,
        rows: Run,
    },
    /// A run of tables in a long scan, read block by block.
    Blocks {
        blocks: Blocks,
        tables: Tables,
    },
}

/// Number of rows after which a scan counts as long, so that reading blocks directly pays off.
const LONG: usize = 64;

impl Source {
    pub(super) fn memtable(
        memtable: Arc<Memtable>,
        from: Bound<&[u8]>,
        to: Bound<Slice>,
        at: SeqNo,
    ) -> Self {
        Self::Memtable { head: None, rows: Recent::new(memtable, from, to, at) }
    }

    pub(super) fn run(tables: Tables, from: Bound<&[u8]>) -> Self {
        let from = from.map(Slice::from);
        Self::Run { head: None, rows: Run { tables, from, table: None, taken: 0 } }
    }

    /// Moves to the first row.
    pub(super) fn begin(&mut self, at: SeqNo) -> lsm_tree::Result<()> {
        match self {
            Self::Memtable { head, rows } => *head = rows.next(),
            Self::Run { head, rows } => *head = rows.next(at)?,
            Self::Blocks { .. } => {}
        }
        Ok(())
    }

    pub(super) fn head(&self) -> Option<Head<'_>> {
        match self {
            Self::Memtable { head, .. } | Self::Run { head, .. } => head.as_ref().map(|row| Head {
                prefix: &row.key.user_key,
                rest: &[],
                seqno: row.key.seqno,
                kind: row.key.value_type,
                value: &row.value,
            }),
            Self::Blocks { blocks, .. } => blocks.head(),
        }
    }

    /// Takes an owned copy of the row, before the source advances.
    pub(super) fn row(&mut self) -> Option<InternalValue> {
        match self {
            Self::Memtable { head, .. } => head.take(),
            // At the last row of a short scan the head is kept: the scan continues after it in blocks.
            Self::Run { head, rows } if rows.taken < LONG => head.take(),
            Self::Run { head, .. } => head.clone(),
            Self::Blocks { blocks, .. } => blocks.row(),
        }
    }

    /// The next row of the current block that the test accepts. See [`Blocks::find`].
    pub(super) fn find_in_block(
        &mut self,
        at: SeqNo,
        last: &mut Vec<u8>,
        test: Look<'_>,
    ) -> Option<InternalValue> {
        match self {
            Self::Blocks { blocks, .. } => blocks.find(at, last, test),
            Self::Memtable { .. } | Self::Run { .. } => None,
        }
    }

    /// Moves to a row that the snapshot sees. True if that is in another block, or there is none.
    pub(super) fn settle(&mut self, at: SeqNo) -> lsm_tree::Result<bool> {
        match self {
            Self::Blocks { blocks, tables } => tables.settle(blocks, at),
            Self::Memtable { .. } | Self::Run { .. } => Ok(false),
        }
    }

    /// Upper bound of the keys before the next block.
    pub(super) fn last_key(&self) -> Option<&Slice> {
        match self {
            Self::Blocks { blocks, .. } => blocks.last_key(),
            Self::Memtable { .. } | Self::Run { .. } => None,
        }
    }

    /// Moves to the next row that the snapshot sees. True if that is in another block, or there is none.
    pub(super) fn advance(&mut self, at: SeqNo) -> lsm_tree::Result<bool> {
        match self {
            Self::Memtable { head, rows } => {
                *head = rows.next();
                Ok(false)
            }
            Self::Run { head, rows } => {
                if rows.taken < LONG {
                    *head = rows.next(at)?;
                    return Ok(false);
                }
                if let Some(blocks) = self.in_blocks(at)? {
                    *self = blocks;
                }
                Ok(true)
            }
            Self::Blocks { blocks, tables } => tables.advance(blocks, at),
        }
    }

    /// The same run, read block by block from after its current row.
    fn in_blocks(&mut self, at: SeqNo) -> lsm_tree::Result<Option<Self>> {
        let Self::Run { head, rows } = self else { return Ok(None) };
        let (Some(row), Some((table, _))) = (head.take(), rows.table.take()) else {
            return Ok(None);
        };
        let mut tables = rows.tables.take();
        let key = &row.key.user_key;
        let mut blocks = Blocks::of(&table, tables.tree, Bound::Included(key))?;
        let passed = |head: Head<'_>| head.has_key(key) && head.seqno >= row.key.seqno;
        while blocks.head().is_some_and(passed) {
            blocks.advance();
        }
        tables.settle(&mut blocks, at)?;
        Ok(Some(Self::Blocks { blocks, tables }))
    }
}

/// The remaining tables of a run.
pub(super) struct Tables {
    tree: TreeId,
    next: Box<dyn FnMut() -> Option<Table> + Send>,
}

impl Tables {
    pub(super) fn new(tree: TreeId, next: impl FnMut() -> Option<Table> + Send + 'static) -> Self {
        Self { tree, next: Box::new(next) }
    }

    fn take(&mut self) -> Self {
        let next = std::mem::replace(&mut self.next, Box::new(|| None));
        Self { tree: self.tree, next }
    }

    fn advance(&mut self, blocks: &mut Blocks, at: SeqNo) -> lsm_tree::Result<bool> {
        blocks.advance();
        self.settle(blocks, at)
    }

    /// Skips rows newer than the snapshot, and moves from table to table.
    fn settle(&mut self, blocks: &mut Blocks, at: SeqNo) -> lsm_tree::Result<bool> {
        let mut crossed = false;
        loop {
            match blocks.head() {
                Some(head) if head.seqno < at => return Ok(crossed),
                Some(_) => blocks.advance(),
                None => {
                    crossed = true;
                    if blocks.load()? {
                        continue;
                    }
                    let Some(table) = (self.next)() else { return Ok(true) };
                    *blocks = Blocks::of(&table, self.tree, Bound::Unbounded)?;
                }
            }
        }
    }
}

/// Rows of a table, in order.
type Rows = Box<dyn Iterator<Item = lsm_tree::Result<InternalValue>> + Send>;

/// The rows of a run, through the engine's iterator.
pub(super) struct Run {
    tables: Tables,
    from: Bound<Slice>,
    table: Option<(Table, Rows)>,
    taken: usize,
}

impl Run {
    fn next(&mut self, at: SeqNo) -> lsm_tree::Result<Option<InternalValue>> {
        loop {
            if let Some((_, rows)) = &mut self.table
                && let Some(row) = rows.next().transpose()?
            {
                self.taken += 1;
                if row.key.seqno < at {
                    return Ok(Some(row));
                }
                continue;
            }
            let Some(table) = (self.tables.next)() else {
                self.table = None;
                return Ok(None);
            };
            // Every block of a bounded iterator is searched for the bound, and only the first table needs the bound.
            let rows: Rows = match std::mem::replace(&mut self.from, Bound::Unbounded) {
                Bound::Unbounded => Box::new(table.iter()),
                from => Box::new(table.range((from, Bound::Unbounded))),
            };
            self.table = Some((table, rows));
        }
    }
}

/// The rows of a memtable. They are copied in batches, because an iterator would borrow the memtable.
pub(super) struct Recent {
    memtable: Arc<Memtable>,
    after: Bound<(Slice, SeqNo)>,
    to: Bound<Slice>,
    at: SeqNo,
    batch: VecDeque<InternalValue>,
    /// Size of the next batch; 0 after the last.
    batch_len: usize,
}

/// Batch sizes: small at first, for short scans.
const BATCH_LEN_FIRST: usize = 8;
const BATCH_LEN_MAX: usize = 128;

impl Recent {
    fn new(memtable: Arc<Memtable>, from: Bound<&[u8]>, to: Bound<Slice>, at: SeqNo) -> Self {
        let after = match from {
            Bound::Included(key) => Bound::Included((key.into(), SeqNo::MAX)),
            Bound::Excluded(key) => Bound::Excluded((key.into(), 0)),
            Bound::Unbounded => Bound::Unbounded,
        };
        Self { memtable, after, to, at, batch: VecDeque::new(), batch_len: BATCH_LEN_FIRST }
    }

    fn next(&mut self) -> Option<InternalValue> {
        if self.batch.is_empty() && self.batch_len > 0 {
            self.refill();
        }
        self.batch.pop_front()
    }

    fn refill(&mut self) {
        // Rows are ordered by key, then by descending sequence number.
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
        // Rows added to the memtable later are newer than the snapshot.
        match self.batch.back() {
            Some(last) if self.batch.len() == self.batch_len => {
                self.after = Bound::Excluded((last.key.user_key.clone(), last.key.seqno));
                self.batch_len = (self.batch_len * 4).min(BATCH_LEN_MAX);
            }
            _ => self.batch_len = 0,
        }
    }
}
