//! What the bytes of a key leave open.
//!
//! Numbers of all types stand in one order, and so do strings and symbols: equal values have equal bytes. Two bits for each
//! component tell which one it was:
//!
//! ```text
//!            number                        text
//!     0      look at the document          look at the document
//!     1      32-bit integer                string
//!     2      64-bit integer
//!     3      double, not -0 and not NaN
//! ```
//! Everything else has one reading, but for documents, arrays and code with a scope, which have none: the numbers within
//! them are many. Nothing known is all zeros, which is what entries of older programs have.

use query::value::Value;

/// Two bits for each component of a key, the first in the lowest. An index has at most 32 fields, as in mongod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Marks(u64);

/// The type of a component whose bytes are those of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Unknown,
    IntOrString,
    Long,
    Double,
}

impl Marks {
    /// Nothing is known.
    pub const NONE: Self = Self(0);

    /// Notes what the component at this place was made of.
    pub(crate) fn note(&mut self, place: usize, value: Value<'_>) {
        let mark = match value {
            Value::Int32(_) | Value::String(_) => 1,
            Value::Int64(_) => 2,
            Value::Double(n) if !n.is_nan() && (n != 0.0 || n.is_sign_positive()) => 3,
            _ => 0,
        };
        self.0 |=
            u32::try_from(place * 2).ok().and_then(|at| 1_u64.checked_shl(at)).unwrap_or(0) * mark;
    }

    pub(super) fn at(self, place: usize) -> Mark {
        let shifted = u32::try_from(place * 2).ok().and_then(|at| self.0.checked_shr(at));
        match shifted.unwrap_or(0) & 0b11 {
            1 => Mark::IntOrString,
            2 => Mark::Long,
            3 => Mark::Double,
            _ => Mark::Unknown,
        }
    }

    /// As they stand in a row: the lowest first, without zeros at the end.
    pub(crate) fn bytes(self) -> impl Iterator<Item = u8> {
        let len = 8 - self.0.leading_zeros() as usize / 8;
        self.0.to_le_bytes().into_iter().take(len)
    }

    /// Reads what [`Self::bytes`] gave.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        Self(bytes.iter().take(8).rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    }
}

/// For those who hand entries on without a look.
impl From<Marks> for u64 {
    fn from(marks: Marks) -> Self {
        marks.0
    }
}

impl From<u64> for Marks {
    fn from(bits: u64) -> Self {
        Self(bits)
    }
}
