//! Number types in replies.

use bson::RawBson;

/// A count as a BSON integer.
pub(super) fn long(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// The smaller integer type that fits, as in mongod's `appendNumber`.
pub(super) fn number(n: u64) -> RawBson {
    i32::try_from(n).map_or_else(|_| RawBson::Int64(long(n)), RawBson::Int32)
}

/// As a double; exact up to 2^53.
#[allow(clippy::cast_precision_loss, reason = "sizes are shown, not computed with")]
pub(super) fn double(n: i64) -> f64 {
    n as f64
}
