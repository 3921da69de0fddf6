//! A queued write to an index that is being built.
//!
//! ```text
//!   0 ++ key length (varint) ++ row                                   remove an entry
//!   1 ++ key length (varint) ++ row                                   add an entry, written by older programs
//!   2 ++ key length (varint) ++ length(1) ++ marks ++ row             add an entry
//! ```

use crate::{
    StorageError,
    keystring::Marks,
    layout::{Reader, push_varint},
    mvcc::Version,
};

/// A queued write.
pub(crate) struct Waiting<'a> {
    /// The marks of an entry to add; `None` to remove an entry.
    pub(crate) insert: Option<Marks>,
    pub(crate) key_len: usize,
    /// Key and record key of the entry.
    pub(crate) row: &'a [u8],
}

impl<'a> Waiting<'a> {
    /// Encodes it for the side table.
    pub(crate) fn payload(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + self.row.len());
        out.push(if self.insert.is_some() { 2 } else { 0 });
        push_varint(&mut out, self.key_len);
        if let Some(marks) = self.insert {
            let at = out.len();
            out.push(0);
            out.extend(marks.bytes());
            let len = u8::try_from(out.len() - at - 1).unwrap_or(0);
            out.get_mut(at).into_iter().for_each(|place| *place = len);
        }
        out.extend_from_slice(self.row);
        out
    }

    /// Reads what [`Self::payload`] wrote.
    pub(crate) fn parse(version: &'a Version) -> Result<Self, StorageError> {
        let mut payload = Reader(version.payload());
        let mut read = || {
            let kind = payload.u8()?;
            let key_len = payload.varint()?;
            let insert = match kind {
                0 => None,
                1 => Some(Marks::NONE),
                _ => {
                    let len = usize::from(payload.u8()?);
                    Some(Marks::parse(payload.bytes(len)?))
                }
            };
            Some(Self { insert, key_len, row: payload.0 })
        };
        read().ok_or_else(|| StorageError::corrupt("an index build", "a waiting write"))
    }
}

#[cfg(test)]
mod tests {
    use query::value::Value;

    use super::*;
    use crate::mvcc::version::Head;

    fn read(payload: &[u8]) -> (Option<Marks>, usize, Vec<u8>) {
        let version = Version::new(Head::default(), &[payload]);
        let Waiting { insert, key_len, row } = Waiting::parse(&version).unwrap();
        (insert, key_len, row.to_vec())
    }

    #[test]
    fn waiting_writes_come_back_those_of_older_programs_too() {
        let mut marks = Marks::NONE;
        marks.note(0, Value::Int32(1));
        marks.note(5, Value::String(b"a"));
        for insert in [None, Some(Marks::NONE), Some(marks)] {
            let payload = Waiting { insert, key_len: 3, row: b"keyrecord" }.payload();
            assert_eq!(read(&payload), (insert, 3, b"keyrecord".to_vec()));
        }
        assert_eq!(read(b"\x01\x03keyrecord"), (Some(Marks::NONE), 3, b"keyrecord".to_vec()));
        assert!(Waiting::parse(&Version::new(Head::default(), &[b"\x02\x03\x04ab"])).is_err());
    }
}
