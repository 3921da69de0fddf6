//! One version of one key, as stored in `current` and `history`.

use byteview::ByteView;
use protocol::{RawDoc, Timestamp};

use crate::{
    StorageError,
    engine::Slice,
    layout::{Reader, push_varint},
};

/// Flag: an earlier version of this key ends where this one starts. The earlier starts follow.
const REPLACED: u8 = 1;
/// Flag: the version came from a prepared transaction. The commit entry's timestamp follows the start.
const DURABLE: u8 = 2;
/// Flag: the key was cut. The full key's length and bytes follow.
const LONG_KEY: u8 = 4;

/// Maximum number of earlier versions that a version lists. A read at T finds its version with one lookup if no more
/// versions were written since, and otherwise jumps this many versions at a time.
pub(crate) const BEFORE_MAX: usize = 12;
/// Typical length of a header: flags, two timestamps and some earlier starts.
const HEAD_LEN: usize = 48;
/// Smaller values are copied out of the engine's block before they are kept, since a view of 400 bytes would keep a
/// whole block of 4 KiB alive.
const DETACH_BELOW: usize = 2 << 10;

/// A version: its start and its payload.
#[derive(Clone)]
pub(crate) struct Version {
    bytes: Slice,
    start: Timestamp,
    payload_at: usize,
}

/// The header of a new version.
#[derive(Clone, Copy, Default)]
pub(crate) struct Head<'a> {
    pub(crate) start: Timestamp,
    /// Starts of the earlier versions, newest first; each ends where its successor starts.
    pub(crate) before: &'a [Timestamp],
    pub(crate) durable: Option<Timestamp>,
    pub(crate) full_key: Option<&'a [u8]>,
}

impl Head<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let mut flags = 0;
        flags |= if self.before.is_empty() { 0 } else { REPLACED };
        flags |= if self.durable.is_some() { DURABLE } else { 0 };
        flags |= if self.full_key.is_some() { LONG_KEY } else { 0 };
        out.push(flags);
        out.extend_from_slice(&self.start.as_u64().to_be_bytes());
        if let Some(durable) = self.durable {
            out.extend_from_slice(&durable.as_u64().to_be_bytes());
        }
        push_before(out, self.start, self.before);
        if let Some(key) = self.full_key {
            out.extend_from_slice(&u32::try_from(key.len()).unwrap_or(u32::MAX).to_be_bytes());
            out.extend_from_slice(key);
        }
    }
}

impl Version {
    /// Makes a version; the payload may come in parts.
    pub(crate) fn new(head: Head<'_>, payload: &[&[u8]]) -> Self {
        let mut out = Vec::with_capacity(HEAD_LEN + head.full_key.map_or(0, |key| key.len() + 4));
        head.write(&mut out);
        let bytes = match payload {
            // A single part, such as a document or an index entry, is copied only once.
            [only] => ByteView::fused(&out, only),
            parts => {
                out.extend(parts.concat());
                ByteView::from(out)
            }
        };
        let payload_at = bytes.len() - payload.iter().map(|part| part.len()).sum::<usize>();
        Self { bytes: bytes.into(), start: head.start, payload_at }
    }

    /// Reads what [`Self::new`] wrote.
    pub(crate) fn parse(bytes: Slice) -> Result<Self, StorageError> {
        let (start, payload_at) = Self::look(&bytes)?;
        Ok(Self { bytes, start, payload_at })
    }

    /// Start and payload offset of a stored version.
    pub(super) fn look(bytes: &[u8]) -> Result<(Timestamp, usize), StorageError> {
        let mut reader = Reader(bytes);
        let parsed = (|| {
            let flags = reader.u8()?;
            if flags & !(REPLACED | DURABLE | LONG_KEY) != 0 {
                return None;
            }
            let start = reader.ts()?;
            if flags & DURABLE != 0 {
                reader.ts()?;
            }
            if flags & REPLACED != 0 {
                let len = usize::from(reader.u8()?);
                reader.bytes(len)?;
            }
            if flags & LONG_KEY != 0 {
                let len = usize::try_from(reader.u32()?).ok()?;
                reader.bytes(len)?;
            }
            Some((start, bytes.len() - reader.0.len()))
        })();
        parsed.ok_or_else(|| StorageError::corrupt("a stored version", "its head cannot be read"))
    }

    /// Timestamp from which on it is valid.
    pub(crate) fn start(&self) -> Timestamp {
        self.start
    }

    fn flags(&self) -> u8 {
        self.bytes.first().copied().unwrap_or(0)
    }

    /// True if an earlier version ends where this one starts.
    pub(crate) fn replaced(&self) -> bool {
        self.flags() & REPLACED != 0
    }

    /// Starts of the earlier versions that it lists, newest first.
    pub(crate) fn before(&self) -> Before<'_> {
        let list = self.replaced().then(|| {
            let mut reader = Reader(self.bytes.get(self.before_at()..)?);
            let len = usize::from(reader.u8()?);
            reader.bytes(len)
        });
        Before { list: Reader(list.flatten().unwrap_or_default()), after: self.start }
    }

    fn before_at(&self) -> usize {
        if self.flags() & DURABLE == 0 { 9 } else { 17 }
    }

    /// The stop time by which to look in history for the version valid at `at`, which is before this one: the end of
    /// that version, or of the earliest one that this version lists.
    pub(crate) fn way_back(&self, at: Timestamp) -> Timestamp {
        let mut stop = self.start;
        let mut before = self.before().peekable();
        while let Some(start) = before.next() {
            if start <= at || before.peek().is_none() {
                break;
            }
            stop = start;
        }
        stop
    }

    /// A copy in its own memory, if it would otherwise keep an engine block alive.
    pub(crate) fn detached(self) -> Self {
        if self.bytes.len() >= DETACH_BELOW {
            return self;
        }
        Self { bytes: Slice::from(&*self.bytes), ..self }
    }

    /// When the row was inserted, if this version shows it: there is no earlier version and no special header.
    pub(crate) fn birth(&self) -> Option<Timestamp> {
        (self.flags() == 0).then_some(self.start)
    }

    /// The timestamp that decides whether a rollback undoes it: the commit entry's for a prepared transaction,
    /// otherwise the start.
    pub(crate) fn effective(&self) -> Timestamp {
        if self.flags() & DURABLE == 0 {
            return self.start;
        }
        self.bytes.get(9..).and_then(|rest| Reader(rest).ts()).unwrap_or(self.start)
    }

    /// The full key, if the row's own key was cut.
    pub(crate) fn full_key(&self) -> Option<&[u8]> {
        if self.flags() & LONG_KEY == 0 {
            return None;
        }
        let mut at = self.before_at();
        if self.replaced() {
            at += 1 + usize::from(*self.bytes.get(at)?);
        }
        self.bytes.get(at + 4..self.payload_at)
    }

    /// The payload.
    pub(crate) fn payload(&self) -> &[u8] {
        self.bytes.get(self.payload_at..).unwrap_or_default()
    }

    /// The document in the payload, sharing the engine's buffer.
    pub(crate) fn into_doc(self) -> Result<RawDoc, StorageError> {
        RawDoc::stored(ByteView::from(self.bytes).slice(self.payload_at..))
            .map_err(|e| StorageError::corrupt("a stored document", e.to_string()))
    }

    /// As stored.
    pub(crate) fn into_bytes(self) -> Slice {
        self.bytes
    }

    /// The version in its stored form.
    pub(crate) fn bytes(&self) -> &Slice {
        &self.bytes
    }
}

/// Each earlier start is stored as (seconds before its successor, increment).
fn push_before(out: &mut Vec<u8>, start: Timestamp, before: &[Timestamp]) {
    if before.is_empty() {
        return;
    }
    let len_at = out.len();
    out.push(0);
    let mut after = start.secs();
    for ts in before.iter().take(BEFORE_MAX) {
        for number in [after.saturating_sub(ts.secs()), ts.inc()] {
            push_varint(out, usize::try_from(number).unwrap_or(usize::MAX));
        }
        after = ts.secs();
    }
    let len = out.len() - len_at - 1;
    if let Some(slot) = out.get_mut(len_at) {
        // At most twelve times two numbers of five bytes.
        *slot = u8::try_from(len).unwrap_or(u8::MAX);
    }
}

/// See [`Version::before`].
pub(crate) struct Before<'a> {
    list: Reader<'a>,
    /// The start of the version that came next.
    after: Timestamp,
}

impl Iterator for Before<'_> {
    type Item = Timestamp;

    fn next(&mut self) -> Option<Timestamp> {
        let back = u32::try_from(self.list.varint()?).ok()?;
        let inc = u32::try_from(self.list.varint()?).ok()?;
        let start = Timestamp::new(self.after.secs().checked_sub(back)?, inc);
        // No version starts after the one that replaced it: a list that says so is damaged, and ends here.
        if start > self.after {
            return None;
        }
        self.after = start;
        Some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_comes_back_as_it_was() {
        let ts = Timestamp::new(1_794_792_414, 3);
        let long: Vec<_> = (1..=12).map(|n| Timestamp::new(ts.secs() - n * 7, n * 99)).collect();
        let early = [Timestamp::new(ts.secs(), 1), Timestamp::NULL];
        for before in [&[][..], &early, &long] {
            for durable in [None, Some(Timestamp::new(9, 1))] {
                for full_key in [None, Some(&b"the key"[..])] {
                    let head = Head { start: ts, before, durable, full_key };
                    let version = Version::new(head, &[b"pay", b"load"]);
                    let back = Version::parse(version.bytes().clone()).unwrap();
                    assert_eq!(back.start(), ts);
                    assert_eq!(back.replaced(), !before.is_empty());
                    assert_eq!(back.before().collect::<Vec<_>>(), before);
                    assert_eq!(back.effective(), durable.unwrap_or(ts));
                    assert_eq!(back.full_key(), full_key);
                    assert_eq!(back.payload(), b"payload");
                }
            }
        }
    }

    #[test]
    fn the_way_back_leads_to_the_version_that_lives_then() {
        let at = |secs| Timestamp::new(secs, 1);
        let head = Head { start: at(40), before: &[at(30), at(20), at(10)], ..Head::default() };
        let version = Version::new(head, &[]);
        // The version valid at 35 ends at 40; the one at 10 ends at 20, and so does everything earlier.
        for (when, stop) in [(35, 40), (30, 40), (29, 30), (15, 20), (10, 20), (5, 20)] {
            assert_eq!(version.way_back(at(when)), at(stop), "{when}");
        }
    }

    #[test]
    fn cut_short_bytes_are_refused() {
        let whole = Version::new(
            Head {
                start: Timestamp::new(9, 9),
                before: &[Timestamp::new(3, 1)],
                full_key: Some(b"abc"),
                ..Head::default()
            },
            &[],
        );
        for len in 0..whole.bytes().len() {
            assert!(Version::parse(whole.bytes()[..len].into()).is_err(), "{len}");
        }
    }
}
