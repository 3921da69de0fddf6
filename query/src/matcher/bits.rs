//! `$bitsAllSet`, `$bitsAllClear`, `$bitsAnySet`, `$bitsAnyClear`.

use super::predicate::truncate;
use crate::value::Value;

/// The bit positions to test, and how.
#[derive(Debug, Clone)]
pub struct BitTest {
    /// Positions, counted from the lowest bit.
    pub positions: Vec<u32>,
    /// Whether all of them must match, or any.
    pub all: bool,
    /// Whether the bits must be set, or clear.
    pub set: bool,
}

impl BitTest {
    /// Tests a value. Only integral numbers and binary data have bits.
    pub fn test(&self, value: Value<'_>) -> bool {
        match value {
            Value::Int32(n) => self.test_number(i64::from(n)),
            Value::Int64(n) => self.test_number(n),
            Value::Double(n) if n.fract() == 0.0 => {
                truncate(n).is_some_and(|n| self.test_number(n))
            }
            Value::Decimal(n) if n.is_whole() => {
                n.truncate_to_i64().is_some_and(|n| self.test_number(n))
            }
            Value::Binary { bytes, .. } => self.test_by(|position| {
                let byte = usize::try_from(position / 8).ok().and_then(|at| bytes.get(at));
                byte.is_some_and(|b| b >> (position % 8) & 1 == 1)
            }),
            _ => false,
        }
    }

    /// Bits above 63 equal the sign bit.
    fn test_number(&self, n: i64) -> bool {
        self.test_by(|position| n >> position.min(63) & 1 == 1)
    }

    fn test_by(&self, is_set: impl Fn(u32) -> bool) -> bool {
        let as_asked = |&position: &u32| is_set(position) == self.set;
        if self.all {
            self.positions.iter().all(as_asked)
        } else {
            self.positions.iter().any(as_asked)
        }
    }
}
