//! One entry of an index.
//!
//! ```text
//!   row:  KeyString of the fields ++ record key      payload: length of the KeyString
//!   the `_id` index of a capped collection:  KeyString of _id      payload: its length ++ record key
//! ```

use crate::{
    StorageError,
    engine::{Slice, part},
    layout::{Reader, push_varint},
    mvcc::Version,
};

/// The payload of an entry whose record key stands in the row.
pub(crate) fn payload(key_len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(2);
    push_varint(&mut out, key_len);
    out
}

/// The payload of a capped collection's `_id` entry.
pub(crate) fn payload_with_record(key_len: usize, record: &[u8]) -> Vec<u8> {
    let mut out = payload(key_len);
    out.extend_from_slice(record);
    out
}

/// Key and record of an entry.
pub(crate) fn split(row: &Slice, version: &Version) -> Result<(Slice, Slice), StorageError> {
    let mut payload = Reader(version.payload());
    let len = payload.varint().filter(|len| *len <= row.len());
    let len = len.ok_or_else(|| StorageError::corrupt("an index", "a bad entry"))?;
    let record = if len == row.len() { payload.0.into() } else { part(row.clone(), len..) };
    Ok((part(row.clone(), ..len), record))
}
