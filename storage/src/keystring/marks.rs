//! Type information that the bytes of a key lose.
//!
//! Numbers of all types share one order, and so do strings and symbols: equal values have equal bytes. Two bits per
//! component record which type it was:
//!
//! ```text
//!            number                        text
//!     0      read the document             read the document
//!     1      32-bit integer                string
//!     2      64-bit integer
//!     3      double, not -0 and not NaN
//! ```
//! All other types can be decoded without marks, except documents, arrays and code with scope: these are never
//! decoded, because they may contain many numbers. All zeros means that nothing is known, which is the case for
//! entries of older programs.

use query::value::Value;

/// Two bits per component of a key, the first in the lowest bits. An index has at most 32 fields, as in mongod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Marks(u64);

/// The type of a component whose bytes could stand for several types.
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

    /// Records the type of the component at this position.
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

    /// Encodes them for a row: lowest byte first, without trailing zeros.
    pub(crate) fn bytes(self) -> impl Iterator<Item = u8> {
        let len = 8 - self.0.leading_zeros() as usize / 8;
        self.0.to_le_bytes().into_iter().take(len)
    }

    /// Reads what [`Self::bytes`] gave.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        Self(bytes.iter().take(8).rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    }
}

/// The packed form, for code that passes entries on without reading them.
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
