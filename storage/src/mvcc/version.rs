//! One version of one key, as `current` and `history` hold it.

use bytes::Bytes;
use protocol::Timestamp;

use crate::{StorageError, engine::Slice, layout::Reader};

/// Another version of this key ends where this one starts.
const REPLACED: u8 = 1;
/// The version came from a prepared transaction: the commit entry's ts follows the start.
const DURABLE: u8 = 2;
/// The key was cut: its length and the whole of it follow.
const LONG_KEY: u8 = 4;

/// A version: its life's beginning and its payload.
#[derive(Clone)]
pub(crate) struct Version {
    bytes: Slice,
    start: Timestamp,
    payload_at: usize,
}

/// What a new version says about itself besides its payload.
#[derive(Clone, Copy, Default)]
pub(crate) struct Head<'a> {
    pub(crate) start: Timestamp,
    pub(crate) replaced: bool,
    pub(crate) durable: Option<Timestamp>,
    pub(crate) full_key: Option<&'a [u8]>,
}

impl Version {
    /// Puts a version together; the payload may come in parts.
    pub(crate) fn new(head: Head<'_>, payload: &[&[u8]]) -> Self {
        let payload_len: usize = payload.iter().map(|part| part.len()).sum();
        let mut out =
            Vec::with_capacity(9 + 8 + payload_len + head.full_key.map_or(0, |key| key.len() + 4));
        let mut flags = 0;
        flags |= if head.replaced { REPLACED } else { 0 };
        flags |= if head.durable.is_some() { DURABLE } else { 0 };
        flags |= if head.full_key.is_some() { LONG_KEY } else { 0 };
        out.push(flags);
        out.extend_from_slice(&head.start.as_u64().to_be_bytes());
        if let Some(durable) = head.durable {
            out.extend_from_slice(&durable.as_u64().to_be_bytes());
        }
        if let Some(key) = head.full_key {
            out.extend_from_slice(&u32::try_from(key.len()).unwrap_or(u32::MAX).to_be_bytes());
            out.extend_from_slice(key);
        }
        let payload_at = out.len();
        for part in payload {
            out.extend_from_slice(part);
        }
        Self { bytes: out.into(), start: head.start, payload_at }
    }

    /// Reads what [`Self::new`] wrote.
    pub(crate) fn parse(bytes: Slice) -> Result<Self, StorageError> {
        let mut reader = Reader(&bytes);
        let parsed = (|| {
            let flags = reader.u8()?;
            let start = reader.ts()?;
            if flags & DURABLE != 0 {
                reader.ts()?;
            }
            if flags & LONG_KEY != 0 {
                let len = usize::try_from(reader.u32()?).ok()?;
                reader.bytes(len)?;
            }
            Some((start, bytes.len() - reader.0.len()))
        })();
        let (start, payload_at) =
            parsed.ok_or_else(|| StorageError::corrupt("a stored version", "it is cut short"))?;
        Ok(Self { bytes, start, payload_at })
    }

    /// When its life begins.
    pub(crate) fn start(&self) -> Timestamp {
        self.start
    }

    fn flags(&self) -> u8 {
        self.bytes.first().copied().unwrap_or(0)
    }

    /// Another version ends where this one starts.
    pub(crate) fn replaced(&self) -> bool {
        self.flags() & REPLACED != 0
    }

    /// When a rollback must undo it: the commit entry's time for a prepared transaction, else its start.
    pub(crate) fn effective(&self) -> Timestamp {
        if self.flags() & DURABLE == 0 {
            return self.start;
        }
        self.bytes.get(9..).and_then(|rest| Reader(rest).ts()).unwrap_or(self.start)
    }

    /// The whole key, where the row's own was cut.
    pub(crate) fn full_key(&self) -> Option<&[u8]> {
        if self.flags() & LONG_KEY == 0 {
            return None;
        }
        let at = if self.flags() & DURABLE == 0 { 9 } else { 17 };
        self.bytes.get(at + 4..self.payload_at)
    }

    /// What it holds.
    pub(crate) fn payload(&self) -> &[u8] {
        self.bytes.get(self.payload_at..).unwrap_or_default()
    }

    /// What it holds, shared with the engine's buffer.
    pub(crate) fn into_payload(self) -> Bytes {
        let at = self.payload_at;
        Bytes::from_owner(self.bytes).slice(at..)
    }

    /// As stored.
    pub(crate) fn bytes(&self) -> &Slice {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_comes_back_as_it_was() {
        let ts = Timestamp::new(7, 3);
        for replaced in [false, true] {
            for durable in [None, Some(Timestamp::new(9, 1))] {
                for full_key in [None, Some(&b"the key"[..])] {
                    let head = Head { start: ts, replaced, durable, full_key };
                    let version = Version::new(head, &[b"pay", b"load"]);
                    let back = Version::parse(version.bytes().clone()).unwrap();
                    assert_eq!(back.start(), ts);
                    assert_eq!(back.replaced(), replaced);
                    assert_eq!(back.effective(), durable.unwrap_or(ts));
                    assert_eq!(back.full_key(), full_key);
                    assert_eq!(back.payload(), b"payload");
                    assert_eq!(back.into_payload(), b"payload"[..]);
                }
            }
        }
    }

    #[test]
    fn cut_short_bytes_are_refused() {
        let whole = Version::new(
            Head { start: Timestamp::NULL, full_key: Some(b"abc"), ..Head::default() },
            &[],
        );
        for len in 0..whole.bytes().len() {
            assert!(Version::parse(whole.bytes()[..len].into()).is_err(), "{len}");
        }
    }
}
