//! Simple-8b: small numbers packed into 64-bit words.
//!
//! ```text
//!   63 .................................. 8 | 7 .... 4 | 3 .... 0
//!   values, the first one lowest            extension   selector        selectors 7 and 8
//!   values, the first one lowest ................. 4 | selector        the others
//! ```
//! The selector determines the width of a value. A value of all ones is a gap: no value in that row. With an
//! extension, the low bits of a value are a count of trailing zeros. Selector 15 repeats the last value.

use super::ColumnError;

/// The position in a run of words.
#[derive(Debug, Clone, Default)]
pub(super) struct Words {
    at: usize,
    end: usize,
    word: u64,
    shape: Shape,
    /// Number of values left in the word.
    left: u32,
    /// The last value, `None` for a gap; used by a repetition.
    last: Option<u128>,
}

/// The layout of a word's values.
#[derive(Debug, Clone, Copy, Default)]
struct Shape {
    /// Bits per value, including its count of zeros. 0 for a repetition.
    width: u32,
    /// Low bits of a value that are the count of zeros.
    zero_bits: u32,
    /// How many zeros one unit of that count means.
    zeros: u32,
}

impl Words {
    /// The words of `bytes[at..end]`; `last` is the value that a repetition repeats.
    pub(super) fn new(at: usize, end: usize, last: Option<u128>) -> Self {
        Self { at, end, last, ..Self::default() }
    }

    /// No words: a repetition would repeat zero.
    pub(super) fn none() -> Self {
        Self { last: Some(0), ..Self::default() }
    }

    /// The value read last.
    pub(super) fn last(&self) -> Option<u128> {
        self.last
    }

    /// The next value, `Some(None)` for a gap, `None` at the end.
    pub(super) fn next(&mut self, bytes: &[u8]) -> Result<Option<Option<u128>>, ColumnError> {
        if self.left == 0 {
            if self.at >= self.end {
                return Ok(None);
            }
            let word = bytes.get(self.at..self.end).and_then(|rest| rest.first_chunk());
            let word = u64::from_le_bytes(*word.ok_or(ColumnError("a block ends early"))?);
            self.at += 8;
            self.open(word)?;
        }
        self.left -= 1;
        if self.shape.width > 0 {
            self.last = self.take();
        }
        Ok(Some(self.last))
    }

    fn open(&mut self, word: u64) -> Result<(), ColumnError> {
        let (selector, extension) = (word & 0xf, (word >> 4) & 0xf);
        if selector == 15 {
            self.shape = Shape::default();
            self.left = (u32::try_from(extension).unwrap_or(0) + 1) * REPEAT;
            return Ok(());
        }
        self.shape = shape(selector, extension).ok_or(ColumnError("an invalid selector"))?;
        let data_bits = if matches!(selector, 7 | 8) { 56 } else { 60 };
        self.left = data_bits / self.shape.width;
        self.word = word >> (64 - data_bits);
        Ok(())
    }

    fn take(&mut self) -> Option<u128> {
        let Shape { width, zero_bits, zeros } = self.shape;
        let mask = (1u64 << width) - 1;
        let value = self.word & mask;
        self.word >>= width;
        if value == mask {
            return None;
        }
        let count = u32::try_from(value & ((1 << zero_bits) - 1)).unwrap_or(0);
        // At most 51 bits are shifted by at most 124: bits beyond 128 are lost, as in mongod.
        Some(u128::from(value >> zero_bits).wrapping_shl(count * zeros))
    }
}

/// Number of values per unit of a repetition's count.
const REPEAT: u32 = 120;

/// Bits per value for the selectors 1 to 14.
const WIDTHS: [u32; 15] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 60];
/// Bits per value for the extensions 1 to 9 of selector 7; four of them are a count of zeros.
const WIDTHS_7: [u32; 10] = [0, 6, 7, 8, 9, 11, 14, 18, 28, 56];
/// Bits per value for the extensions 1 to 13 of selector 8; from 8 on, five of them are a count of zeros.
const WIDTHS_8: [u32; 14] = [0, 8, 9, 11, 14, 18, 28, 56, 9, 11, 14, 18, 28, 56];

fn shape(selector: u64, extension: u64) -> Option<Shape> {
    let row = |widths: &[u32], at: u64| {
        usize::try_from(at).ok().and_then(|at| widths.get(at)).copied().filter(|width| *width > 0)
    };
    Some(match (selector, extension) {
        (7, 1..) => Shape { width: row(&WIDTHS_7, extension)?, zero_bits: 4, zeros: 1 },
        (8, 1..=7) => Shape { width: row(&WIDTHS_8, extension)?, zero_bits: 4, zeros: 4 },
        (8, 8..) => Shape { width: row(&WIDTHS_8, extension)?, zero_bits: 5, zeros: 4 },
        _ => Shape { width: row(&WIDTHS, selector)?, zero_bits: 0, zeros: 0 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(words: &[u64]) -> Result<Vec<Option<u128>>, ColumnError> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut words = Words::new(0, bytes.len(), Some(9));
        let mut found = Vec::new();
        while let Some(value) = words.next(&bytes)? {
            found.push(value);
        }
        Ok(found)
    }

    #[test]
    fn each_selector_holds_what_fits() {
        for (selector, count) in [(1, 60), (4, 15), (7, 8), (8, 7), (9, 6), (13, 2), (14, 1)] {
            assert_eq!(all(&[selector]).unwrap(), vec![Some(0); count], "selector {selector}");
        }
    }

    #[test]
    fn gaps_zeros_and_repetitions() {
        assert_eq!(all(&[14 | (5 << 4)]).unwrap(), [Some(5)]);
        assert_eq!(all(&[u64::MAX << 4 | 14]).unwrap(), [None]);
        // Extension 9 of selector 7: 52 bits of value above 4 bits of zero count.
        assert_eq!(all(&[7 | 9 << 4 | 3 << 8 | 5 << 12]).unwrap(), [Some(5 << 3)]);
        // Extension 13 of selector 8 counts zeros in units of four.
        assert_eq!(all(&[8 | 13 << 4 | 31 << 8 | 1 << 13]).unwrap(), [Some(1 << 124)]);
        assert_eq!(all(&[15 | 1 << 4]).unwrap(), vec![Some(9); 240]);
    }

    #[test]
    fn what_is_no_selector_is_refused() {
        for word in [0, 7 | 10 << 4, 8 | 14 << 4] {
            assert!(all(&[word]).is_err(), "{word:x}");
        }
    }
}
