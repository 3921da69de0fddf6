//! One entry of an index.
//!
//! ```text
//!   row:  KeyString of the fields ++ record key      payload: length of the KeyString ++ marks
//!   the `_id` index of a capped collection:  KeyString of _id      payload: its length ++ record key
//! ```

use std::ops::Deref;

use crate::{
    StorageError,
    engine::{Slice, part},
    keystring::Marks,
    layout::{Reader, push_varint},
    mvcc::Version,
};

/// The longest varint length, and marks.
const PAYLOAD_MAX: usize = 5 + 8;

/// The payload of an entry whose record key is part of the row key; fits on the stack.
pub(crate) struct Payload {
    bytes: [u8; PAYLOAD_MAX],
    len: usize,
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// The payload of an entry whose record key is part of the row key.
#[allow(clippy::cast_possible_truncation, reason = "masked to seven bits")]
pub(crate) fn payload(key_len: usize, marks: Marks) -> Payload {
    let mut payload = Payload { bytes: [0; PAYLOAD_MAX], len: 0 };
    let mut places = payload.bytes.iter_mut();
    let mut put = |byte| {
        places.next().into_iter().for_each(|place| *place = byte);
        payload.len += 1;
    };
    let mut rest = key_len;
    while rest >= 0x80 {
        put((rest & 0x7F) as u8 | 0x80);
        rest >>= 7;
    }
    put(rest as u8);
    marks.bytes().for_each(put);
    payload
}

/// The payload of a capped collection's `_id` entry.
pub(crate) fn payload_with_record(key_len: usize, record: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 + record.len());
    push_varint(&mut out, key_len);
    out.extend_from_slice(record);
    out
}

/// Key, record key and marks of an entry.
pub(crate) fn split(row: &Slice, version: &Version) -> Result<(Slice, Slice, Marks), StorageError> {
    let mut payload = Reader(version.payload());
    let len = payload.varint().filter(|len| *len <= row.len());
    let len = len.ok_or_else(|| StorageError::corrupt("an index", "a bad entry"))?;
    let key = part(row.clone(), ..len);
    Ok(match len == row.len() {
        true => (key, payload.0.into(), Marks::NONE),
        false => (key, part(row.clone(), len..), Marks::parse(payload.0)),
    })
}
