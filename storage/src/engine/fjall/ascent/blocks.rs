//! Reads the blocks of a table row by row, without an allocation or a reference count per row.
//!
//! The engine's own iterator makes an owned key and value for every row. A scan that reads a million rows to keep a
//! hundred pays for that ten thousand times too often. Here a block is parsed as a whole, by the engine's own code,
//! and its rows stay in place until one is needed:
//!
//! ```text
//!   index     [part] -> [part] -> ...           read part by part, from the lower bound on
//!   handles    [block, last key] [block, last key] ...
//!   block     key|value key|value key|value     from the engine's cache, or read from disk into it
//!                       ^ rows[next]
//! ```

use std::{
    collections::VecDeque,
    fs::File,
    ops::{Bound, Range},
};

use byteview::ByteView;
use fjall::Slice;
use lsm_tree::{
    GlobalTableId, InternalValue, SeqNo, Table, TreeId, ValueType,
    table::{Block, BlockHandle, DataBlock, IndexBlock, block::BlockType, util::SliceIndexes},
};

use super::{super::super::Look, source::Head};

/// A forward scan over one table.
pub(super) struct Blocks {
    table: Table,
    id: GlobalTableId,
    /// Opened when a block is not in the cache.
    file: Option<File>,
    /// Index partitions that were not read yet.
    parts: VecDeque<Handle>,
    /// Blocks that were not read yet.
    handles: VecDeque<Handle>,
    /// The current block.
    data: ByteView,
    last_key: Slice,
    rows: Vec<Row>,
    next: usize,
}

/// A block and its last key.
struct Handle {
    block: BlockHandle,
    last_key: Slice,
}

/// A row as offsets into its block.
struct Row {
    seqno: SeqNo,
    kind: ValueType,
    prefix: Range<usize>,
    rest: Range<usize>,
    value: Range<usize>,
    /// An older version of the previous row's key.
    again: bool,
}

impl Row {
    fn key_len(&self) -> usize {
        self.prefix.len() + self.rest.len()
    }
}

impl Blocks {
    /// The rows of a table from a lower bound on.
    pub(super) fn of(table: &Table, tree: TreeId, from: Bound<&[u8]>) -> lsm_tree::Result<Self> {
        let mut blocks = Self {
            table: table.clone(),
            id: (tree, table.id()).into(),
            file: None,
            parts: VecDeque::new(),
            handles: VecDeque::new(),
            data: ByteView::default(),
            last_key: Slice::empty(),
            rows: Vec::new(),
            next: 0,
        };
        let top = blocks.index(table.regions.tli, from)?;
        match table.regions.index {
            Some(_) => blocks.parts = top,
            None => blocks.handles = top,
        }
        if blocks.load_from(from)? {
            blocks.skip(from);
        }
        Ok(blocks)
    }

    /// The current row, unless the scan is at its end.
    pub(super) fn head(&self) -> Option<Head<'_>> {
        let row = self.rows.get(self.next)?;
        Some(Head {
            prefix: self.data.get(row.prefix.clone())?,
            rest: self.data.get(row.rest.clone())?,
            seqno: row.seqno,
            kind: row.kind,
            value: self.data.get(row.value.clone())?,
        })
    }

    /// An owned copy of the current row.
    pub(super) fn row(&self) -> Option<InternalValue> {
        let (row, head) = (self.rows.get(self.next)?, self.head()?);
        let key = ByteView::fused(head.prefix, head.rest);
        let value = self.data.slice(row.value.clone());
        Some(InternalValue::from_components(key, value, row.seqno, row.kind))
    }

    /// Upper bound of the keys in the current block.
    pub(super) fn last_key(&self) -> Option<&Slice> {
        (self.next < self.rows.len()).then_some(&self.last_key)
    }

    /// Moves to the next row of the block.
    pub(super) fn advance(&mut self) {
        self.next += 1;
    }

    /// Loads the next block that has rows. False at the end.
    pub(super) fn load(&mut self) -> lsm_tree::Result<bool> {
        self.load_from(Bound::Unbounded)
    }

    fn load_from(&mut self, from: Bound<&[u8]>) -> lsm_tree::Result<bool> {
        self.rows.clear();
        self.next = 0;
        while self.rows.is_empty() {
            let Some(handle) = self.handles.pop_front() else {
                let Some(part) = self.parts.pop_front() else { return Ok(false) };
                self.handles = self.index(part.block, from)?;
                continue;
            };
            self.last_key = handle.last_key;
            let block = self.block(handle.block, BlockType::Data)?;
            self.data = block.data.clone().into();
            touch(&self.data);
            let plus = self.table.global_seqno();
            let rows = DataBlock::new(block);
            for item in rows.iter() {
                let mut row = Row {
                    seqno: item.seqno + plus,
                    kind: item.value_type,
                    prefix: range(item.prefix),
                    rest: range(Some(item.key)),
                    value: range(item.value),
                    again: false,
                };
                let ends = [row.prefix.end, row.rest.end, row.value.end];
                if ends.into_iter().any(|end| end > self.data.len()) {
                    return Err(outside());
                }
                row.again = self.rows.last().is_some_and(|before| self.have_one_key(before, &row));
                self.rows.push(row);
            }
        }
        Ok(true)
    }

    /// Adjacent rows with prefixes of equal length share the prefix: that of the last row before them without one.
    fn have_one_key(&self, before: &Row, row: &Row) -> bool {
        let bytes = |place: &Range<usize>| self.data.get(place.clone()).unwrap_or_default();
        if before.prefix.len() == row.prefix.len() {
            return bytes(&before.rest) == bytes(&row.rest);
        }
        let key = |row: &Row| bytes(&row.prefix).iter().chain(bytes(&row.rest));
        before.key_len() == row.key_len() && key(before).eq(key(row))
    }

    /// The next row of the current block that the test accepts, as in [`super::Ascent::find`], without looking at
    /// other sources. `last` is the previous key.
    pub(super) fn find(
        &mut self,
        at: SeqNo,
        last: &mut Vec<u8>,
        test: Look<'_>,
    ) -> Option<InternalValue> {
        let mut taken = self.head().is_some_and(|head| head.has_key(last));
        let first = self.next;
        while let Some(row) = self.rows.get(self.next) {
            taken &= row.again || self.next == first;
            if taken || row.seqno >= at {
                self.next += 1;
                continue;
            }
            taken = true;
            let wanted = match row.kind {
                ValueType::Indirection => true,
                ValueType::Value => test(row.key_len(), self.data.get(row.value.clone())?),
                ValueType::Tombstone | ValueType::WeakTombstone => false,
            };
            if wanted {
                let found = self.row()?;
                last.clear();
                last.extend_from_slice(&found.key.user_key);
                self.next += 1;
                return Some(found);
            }
            self.next += 1;
        }
        if taken {
            last.clear();
            last.extend_from_slice(&self.last_key);
        }
        None
    }

    /// Skips rows before the bound.
    fn skip(&mut self, from: Bound<&[u8]>) {
        while let Some(head) = self.head() {
            let before = match from {
                Bound::Included(from) => head.compare_key(from).is_lt(),
                Bound::Excluded(from) => head.compare_key(from).is_le(),
                Bound::Unbounded => false,
            };
            if !before {
                break;
            }
            self.next += 1;
        }
    }

    /// The handles in an index partition, from a lower bound on.
    fn index(
        &mut self,
        handle: BlockHandle,
        from: Bound<&[u8]>,
    ) -> lsm_tree::Result<VecDeque<Handle>> {
        let index = IndexBlock::new(self.block(handle, BlockType::Index)?);
        let bytes = index.as_slice();
        let reaches = |last: &Slice| match from {
            Bound::Included(from) => **last >= *from,
            Bound::Excluded(from) => **last > *from,
            Bound::Unbounded => true,
        };
        let part = |place| bytes.get(range(place)).ok_or_else(outside);
        let mut handles = VecDeque::new();
        for item in index.iter() {
            let last_key = ByteView::fused(part(item.prefix)?, part(Some(item.end_key))?).into();
            if !handles.is_empty() || reaches(&last_key) {
                let block = BlockHandle::new(item.offset, item.size);
                handles.push_back(Handle { block, last_key });
            }
        }
        Ok(handles)
    }

    /// A block from the engine's cache, or from disk, in which case it is added to the cache.
    fn block(&mut self, handle: BlockHandle, kind: BlockType) -> lsm_tree::Result<Block> {
        if let Some(block) = self.table.cache.get_block(self.id, handle.offset()) {
            return Ok(block);
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(File::open(&*self.table.path)?),
        };
        let metadata = &self.table.metadata;
        let compression = match kind {
            BlockType::Index => metadata.index_block_compression,
            _ => metadata.data_block_compression,
        };
        let block = Block::from_file(file, handle, compression)?;
        if block.header.block_type != kind {
            let found = block.header.block_type.into();
            return Err(lsm_tree::Error::InvalidTag(("BlockType", found)));
        }
        self.table.cache.insert_block(self.id, handle.offset(), block.clone());
        Ok(block)
    }
}

/// Reads one byte of every cache line in order, so that the CPU prefetches the block. Parsing alone would wait for
/// memory at each row, since a row's position depends on the length of the one before it.
fn touch(block: &[u8]) {
    const LINE: usize = 64;
    let sum = block.iter().step_by(LINE).fold(0u8, |sum, byte| sum ^ byte);
    std::hint::black_box(sum);
}

/// The error for a block whose checksum is right but whose rows are not: it must not be taken for a shorter block.
fn outside() -> lsm_tree::Error {
    let why = "a row lies outside of its block";
    std::io::Error::new(std::io::ErrorKind::InvalidData, why).into()
}

fn range(place: Option<SliceIndexes>) -> Range<usize> {
    place.map_or(0..0, |SliceIndexes(from, to)| from..to)
}
