//! Positions in the oplog: a timestamp, a timestamp with its term, and the latter with wall clock time.

use std::fmt;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};

/// A BSON timestamp as one number: seconds in the high half, increment in the low half.
///
/// The number sorts as MongoDB sorts timestamps, so it can be used as a key and stored in an atomic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// `Timestamp(0, 0)`: no position.
    pub const NULL: Self = Self(0);
    /// Later than every real timestamp.
    pub const MAX: Self = Self(u64::MAX);

    /// Makes a timestamp from seconds and increment.
    pub const fn new(secs: u32, inc: u32) -> Self {
        Self(((secs as u64) << 32) | inc as u64)
    }

    /// Unpacks the form that [`Self::as_u64`] returns.
    pub const fn from_u64(packed: u64) -> Self {
        Self(packed)
    }

    /// The packed form.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Seconds since 1970.
    pub const fn secs(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The increment within the second.
    #[allow(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
    pub const fn inc(self) -> u32 {
        self.0 as u32
    }

    /// True for [`Self::NULL`].
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }
}

impl From<bson::Timestamp> for Timestamp {
    fn from(ts: bson::Timestamp) -> Self {
        Self::new(ts.time, ts.increment)
    }
}

impl From<Timestamp> for bson::Timestamp {
    fn from(ts: Timestamp) -> Self {
        bson::Timestamp { time: ts.secs(), increment: ts.inc() }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timestamp({}, {})", self.secs(), self.inc())
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A position in the history of a replica set. OpTimes compare by term first: of two diverged branches, the one
/// written in the later term survives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpTime {
    /// Election term in which the entry was written; -1 if none was recorded.
    pub t: i64,
    /// Timestamp of the entry.
    pub ts: Timestamp,
}

impl OpTime {
    /// The optime of a node without any oplog entry.
    pub const NULL: Self = Self { ts: Timestamp::NULL, t: -1 };

    /// Makes an optime from its parts.
    pub const fn new(ts: Timestamp, t: i64) -> Self {
        Self { t, ts }
    }

    /// True if the timestamp is null.
    pub const fn is_null(self) -> bool {
        self.ts.is_null()
    }

    /// Parses `{ts, t}`. An oplog entry without `t` has term -1.
    pub fn from_raw(doc: &RawDocument) -> Option<Self> {
        let ts = doc.get_timestamp("ts").ok()?.into();
        let t = match doc.get("t").ok()? {
            None => -1,
            Some(RawBsonRef::Int64(t)) => t,
            Some(RawBsonRef::Int32(t)) => i64::from(t),
            Some(_) => return None,
        };
        Some(Self { t, ts })
    }

    /// The document `{ts, t}`.
    pub fn to_raw(self) -> RawDocumentBuf {
        rawdoc! { "ts": bson::Timestamp::from(self.ts), "t": self.t }
    }
}

impl Default for OpTime {
    fn default() -> Self {
        Self::NULL
    }
}

impl fmt::Display for OpTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{ts: {}, t: {}}}", self.ts, self.t)
    }
}

impl fmt::Debug for OpTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An optime with the wall clock time of the primary that wrote the entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct OpTimeAndWall {
    /// The optime.
    pub op_time: OpTime,
    /// The `wall` field of the entry.
    pub wall: bson::DateTime,
}

impl OpTimeAndWall {
    /// The position of a node without any oplog entry.
    pub const NULL: Self = Self { op_time: OpTime::NULL, wall: bson::DateTime::from_millis(0) };
}

impl Default for OpTimeAndWall {
    fn default() -> Self {
        Self::NULL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_term_decides_before_the_timestamp() {
        let old_branch = OpTime::new(Timestamp::new(20, 1), 1);
        let new_branch = OpTime::new(Timestamp::new(10, 1), 2);
        assert!(old_branch < new_branch);
        assert!(OpTime::NULL < OpTime::new(Timestamp::new(1, 1), -1));
    }

    #[test]
    fn packed_order_is_timestamp_order() {
        assert!(Timestamp::new(1, u32::MAX) < Timestamp::new(2, 0));
        let ts = Timestamp::new(7, 9);
        assert_eq!(Timestamp::from(bson::Timestamp::from(ts)), ts);
        assert_eq!(Timestamp::from_u64(ts.as_u64()), ts);
    }

    #[test]
    fn an_entry_without_term_has_term_minus_one() {
        let doc = rawdoc! { "ts": bson::Timestamp { time: 5, increment: 1 } };
        assert_eq!(OpTime::from_raw(&doc), Some(OpTime::new(Timestamp::new(5, 1), -1)));
        let op_time = OpTime::new(Timestamp::new(5, 1), 3);
        assert_eq!(OpTime::from_raw(&op_time.to_raw()), Some(op_time));
    }
}
