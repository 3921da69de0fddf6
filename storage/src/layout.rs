//! All key prefixes and value formats that the store writes to disk.
//!
//! ```text
//! current:  table(4) ++ key                                -> version
//! history:  epoch(4) ++ table(4) ++ key ++ stop(8)         -> version
//!           epoch(4) ++ 2 or 3(4) ++ table(4) ++ batch end(8)  -> what the batch did to the counts of the table
//! prepared: 'k' ++ table(4) ++ key                         -> prepare ts(8) ++ transaction
//!           't' ++ transaction length(2) ++ transaction ++ n(4)   -> one write
//!           't' ++ transaction length(2) ++ transaction      -> prepare ts(8)
//! oplog:    ts(8)                                          -> raw entry
//! meta:     'd' ++ name                                    -> node document
//!           'c' ++ table(4)                                -> counts: documents(8) bytes(8) next record(8)
//!           'e' ++ epoch(4)                                -> first ts(8) of the epoch
//!           'h' ++ epoch(4) ++ table(4)                    -> history: versions(8) bytes(8) last removal(8)
//!           'o' ++ first ts(8)                             -> a stretch of the oplog: last ts(8) bytes(8) entries(8)
//!           'u' ++ applied ts(8) ++ n(4)                   -> rows that were new in that batch, for rollback
//!           'x' ++ table(4)                                -> drop ts(8) of a table whose rows wait to be reclaimed
//!           'm' ++ name                                    -> a mark: applied through, where history begins, next table...
//!
//! version:  flags(1) start(8) [durable(8)] [length(1) ++ earlier starts] [length(4) ++ full key] ++ payload
//! earlier starts: each as seconds before its successor (varint) ++ increment (varint), newest first
//! payload of a document: the document.   Of an index entry: key length (varint) ++ [record key] or
//! marks: two bits a field for the type of its value, without trailing zeros. See `keystring::marks`.
//! ```
//! All numbers in keys are big-endian, so that byte order is number order. `key` is prefix-free within its table: a
//! KeyString, a KeyString with its record key, or a fixed length.

use std::ops::Bound;

use protocol::Timestamp;

use crate::engine::{KEY_LEN_MAX, Slice};

/// Version of the on-disk format. A change that an older program would misread increments it.
///
/// 3: text indexes have keys. A store of format 2 is accepted as it is: its text indexes that were made without keys
/// stay so, which their catalog rows record.
///
/// 4: index entries have marks. An older program reads them correctly, but when it replaces 1 by 1.0 it would leave
/// the mark of an integer behind, which we would then believe; so it must not open the store. Entries of format 3
/// have no marks, and their documents are read instead.
pub(crate) const FORMAT_VERSION: u32 = 4;
/// The oldest format that can be opened; opening upgrades it to the present one.
pub(crate) const FORMAT_OLDEST: u32 = 2;

/// Identifies a table: a collection's documents, an index, the catalog. Ids are never reused, not even after a
/// rollback.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct TableId(pub(crate) u32);

impl TableId {
    /// The catalog's own table: UUID -> collection row.
    pub(crate) const CATALOG: Self = Self(1);
    /// Only in `history`: counts of collections, see `count_log`.
    pub(crate) const COUNTS: Self = Self(2);
    /// Only in `history`: count changes by commits of prepared transactions.
    pub(crate) const LATE_COUNTS: Self = Self(3);
    /// The first id of user tables.
    pub(crate) const FIRST_FREE: u32 = 16;

    /// The key of a row in `current`.
    pub(crate) fn key(self, key: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + key.len());
        out.extend_from_slice(&self.0.to_be_bytes());
        out.extend_from_slice(key);
        out
    }

    /// [`Self::key`] as the engine's type.
    pub(crate) fn row(self, key: &[u8]) -> Slice {
        join(&[&self.0.to_be_bytes(), key])
    }

    /// The first key after this table.
    pub(crate) fn end(self) -> [u8; 4] {
        self.0.saturating_add(1).to_be_bytes()
    }
}

/// A period of time. Versions are grouped in history by the epoch in which they ended, and dropped by epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Epoch(pub(crate) u32);

impl Epoch {
    /// The first key of the epoch in `history`.
    pub(crate) fn prefix(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }
}

/// Key of a version in `history`; `row` is the key it had in `current`.
pub(crate) fn history_key(epoch: Epoch, row: &[u8], stop: Timestamp) -> Slice {
    join(&[&epoch.prefix(), row, &stop.as_u64().to_be_bytes()])
}

/// Concatenates parts into one key. Most are short and need no heap allocation.
fn join(parts: &[&[u8]]) -> Slice {
    let mut short = [0; 128];
    let mut len = 0;
    for part in parts {
        let Some(place) = short.get_mut(len..len + part.len()) else {
            return parts.concat().into();
        };
        place.copy_from_slice(part);
        len += part.len();
    }
    short.get(..len).unwrap_or_default().into()
}

/// Splits a history key into the row's key and the stop time.
pub(crate) fn split_history_key(key: &[u8]) -> Option<(&[u8], Timestamp)> {
    let (_, rest) = key.split_first_chunk::<4>()?;
    let (row, stop) = rest.split_last_chunk::<8>()?;
    Some((row, Timestamp::from_u64(u64::from_be_bytes(*stop))))
}

/// A key in `meta`: its family byte, then the rest.
pub(crate) fn meta_key(family: u8, rest: &[&[u8]]) -> Vec<u8> {
    let mut out = vec![family];
    for part in rest {
        out.extend_from_slice(part);
    }
    out
}

/// The key of the mark "applied" in `meta`. Its value is a position, followed by the number for [`synced`].
pub(crate) const APPLIED: &[u8] = b"mapplied";

/// The key of the row in `meta` that is written after each bulk ingestion. Its value is never read.
pub(crate) const INGESTED: &[u8] = b"mingested";

/// The sequence number in a journal row up to which everything was synced before that row was written. `Some(None)`
/// if the row should have this number but was written by an older program.
pub(crate) fn synced(key: &[u8], value: &[u8]) -> Option<Option<u64>> {
    let rest = value.get(24..).filter(|_| key == APPLIED)?;
    Some(rest.first_chunk().map(|number| u64::from_be_bytes(*number)))
}

/// The range of all keys that begin with `prefix`.
pub(crate) fn prefix_range(prefix: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let mut end = prefix.to_vec();
    while let Some(last) = end.last_mut() {
        if *last < u8::MAX {
            *last += 1;
            return (Bound::Included(prefix.to_vec()), Bound::Excluded(end));
        }
        end.pop();
    }
    (Bound::Included(prefix.to_vec()), Bound::Unbounded)
}

/// True if nothing can lie between the bounds.
pub(crate) fn is_empty_range(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
            a >= b
        }
    }
}

/// Maximum length of a row's own key (without its table), leaving room for epoch, table and stop.
pub(crate) const ROW_KEY_MAX: usize = KEY_LEN_MAX - 16;
/// Number of bytes of a longer key that are kept before its hash.
pub(crate) const CUT_AT: usize = ROW_KEY_MAX - 17;
/// Separates the kept bytes of a cut key from its hash.
const CUT_MARK: u8 = 0xFE;

/// Shortens a key that is too long for the engine: it is cut, marked and hashed, and the full key is stored in the
/// value. `None` if the key fits.
pub(crate) fn cut(key: &[u8]) -> Option<Vec<u8>> {
    use md5::Digest;
    if key.len() <= ROW_KEY_MAX {
        return None;
    }
    let mut out = key.get(..CUT_AT)?.to_vec();
    out.push(CUT_MARK);
    out.extend_from_slice(&md5::Md5::digest(key));
    Some(out)
}

/// Reads big-endian numbers from the front of a value.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    /// The next byte.
    pub(crate) fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next four bytes.
    pub(crate) fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*first))
    }

    /// The next eight bytes.
    pub(crate) fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*first))
    }

    /// The next eight bytes as a timestamp.
    pub(crate) fn ts(&mut self) -> Option<Timestamp> {
        self.u64().map(Timestamp::from_u64)
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(first)
    }

    /// A number below 2^35 in seven-bit groups.
    pub(crate) fn varint(&mut self) -> Option<usize> {
        let mut value = 0usize;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.u8()?;
            value |= usize::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

/// Writes what [`Reader::varint`] reads.
#[allow(clippy::cast_possible_truncation, reason = "masked to seven bits")]
pub(crate) fn push_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Encodes several numbers as one value.
pub(crate) fn numbers<const N: usize>(values: [u64; N]) -> Slice {
    values.iter().flat_map(|n| n.to_be_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_keys_order_by_epoch_then_row_then_stop() {
        let row = TableId(20).key(b"k");
        let keys = [
            history_key(Epoch(1), &TableId(21).key(b"a"), Timestamp::new(9, 0)),
            history_key(Epoch(2), &row, Timestamp::new(5, 0)),
            history_key(Epoch(2), &row, Timestamp::new(5, 1)),
            history_key(Epoch(2), &TableId(20).key(b"l"), Timestamp::new(1, 0)),
        ];
        assert!(keys.is_sorted());
        assert_eq!(split_history_key(&keys[2]), Some((&row[..], Timestamp::new(5, 1))));
    }

    #[test]
    fn a_prefix_range_ends_before_the_next_prefix() {
        assert_eq!(prefix_range(&[1, 255]).1, Bound::Excluded(vec![2]));
        assert_eq!(prefix_range(&[255]).1, Bound::Unbounded);
    }

    #[test]
    fn varints_come_back() {
        for n in [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 200_000_000, 0xFFFF_FFFF] {
            let mut out = Vec::new();
            push_varint(&mut out, n);
            assert_eq!(Reader(&out).varint(), Some(n));
        }
        assert_eq!(Reader(&[0x80, 0x80]).varint(), None);
    }

    #[test]
    fn only_long_keys_are_cut_and_never_to_the_same() {
        assert_eq!(cut(&vec![1; ROW_KEY_MAX]), None);
        let (mut a, mut b) = (vec![1; 40_000], vec![1; 40_000]);
        a.push(2);
        b.push(3);
        let (a, b) = (cut(&a).unwrap(), cut(&b).unwrap());
        assert_ne!(a, b);
        assert_eq!(a.len(), ROW_KEY_MAX);
    }
}
