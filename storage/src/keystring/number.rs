//! Encodes numbers of the four types by value.
//!
//! ```text
//!   20 NaN   21 -inf   22 <= -2^64   23..2A negative, 8..1 bytes before the point   2B > -1   2C zero
//!   2D < 1   2E..35 positive, 1..8 bytes before the point   36 >= 2^64   37 +inf
//!
//!   1 <= x < 2^64:  the integer part in its bytes, then 00, or 01 and the fraction
//!   the rest, and the fraction:  the largest double not above it (8 bytes), then
//!       00 if that is exact, or 01 exponent(2) decimal digits 00: only decimals have that tail
//! ```
//! For negative numbers everything after the type byte is inverted.

use std::cmp::Ordering;

use query::value::{Decimal, Value, compare_values};

pub(super) const NAN: u8 = 0x20;
pub(super) const NEGATIVE_INFINITY: u8 = 0x21;
pub(super) const ZERO: u8 = 0x2C;
pub(super) const INFINITY: u8 = 0x37;
/// Distance of the type byte from [`ZERO`], in the direction of the sign.
pub(super) const FRACTION: u8 = 1;
pub(super) const HUGE: u8 = 10;

/// 2^64: from here on doubles and decimals are not split into integer part and fraction.
const TWO_64: f64 = 18_446_744_073_709_551_616.0;

pub(super) fn append_int(out: &mut Vec<u8>, n: i64) {
    if n == 0 {
        return out.push(ZERO);
    }
    let start = whole(out, n < 0, n.unsigned_abs());
    out.push(0);
    finish(out, n < 0, start);
}

pub(super) fn append_double(out: &mut Vec<u8>, n: f64) {
    if let Some(special) = special(n) {
        return out.push(special);
    }
    let negative = n < 0.0;
    let size = n.abs();
    let start = if size >= TWO_64 {
        let start = lead(out, negative, HUGE);
        append_part(out, size, None);
        start
    } else if size < 1.0 {
        let start = lead(out, negative, FRACTION);
        append_part(out, size, None);
        start
    } else {
        let start = whole(out, negative, trunc(size));
        match size.fract() {
            0.0 => out.push(0),
            fraction => {
                out.push(1);
                append_part(out, fraction, None);
            }
        }
        start
    };
    finish(out, negative, start);
}

/// Decodes what [`append_double`] wrote, except NaN.
pub(super) fn read(key: &[u8]) -> Option<f64> {
    match key.first() {
        Some(&NEGATIVE_INFINITY) => return Some(f64::NEG_INFINITY),
        Some(&INFINITY) => return Some(f64::INFINITY),
        _ => {}
    }
    let Parts { negative, whole, behind } = Parts::of(key)?;
    #[allow(clippy::cast_precision_loss, reason = "it was a double's")]
    let size = whole as f64 + behind.unwrap_or(0.0);
    Some(if negative { -size } else { size })
}

/// Decodes what [`append_int`] wrote.
pub(super) fn read_int(key: &[u8]) -> Option<i64> {
    match Parts::of(key)? {
        Parts { behind: Some(_), .. } => None,
        Parts { negative: true, whole, .. } => 0_i64.checked_sub_unsigned(whole),
        Parts { whole, .. } => i64::try_from(whole).ok(),
    }
}

/// A finite number, or the double part of a decimal.
struct Parts {
    negative: bool,
    whole: u64,
    behind: Option<f64>,
}

impl Parts {
    fn of(key: &[u8]) -> Option<Self> {
        let (&lead, rest) = key.split_first()?;
        if !(ZERO - HUGE..=ZERO + HUGE).contains(&lead) {
            return None;
        }
        let negative = lead < ZERO;
        let turned = if negative { u64::MAX } else { 0 };
        let double =
            |bytes: &[u8]| Some(f64::from_bits(u64::from_be_bytes(*bytes.first_chunk()?) ^ turned));
        let (whole, behind) = match lead.abs_diff(ZERO) {
            0 => (0, None),
            FRACTION | HUGE => (0, Some(double(rest)?)),
            len => {
                let len = usize::from(len - FRACTION);
                let (whole, rest) = rest.split_at_checked(len)?;
                let whole = whole.iter().fold(0_u64, |n, byte| n << 8 | u64::from(*byte));
                // Invert only the bytes that are present.
                let whole = whole ^ (turned >> (64 - 8 * len));
                let (more, rest) = rest.split_first()?;
                let more = u64::from(*more) ^ (turned & 0xFF);
                (whole, if more == 0 { None } else { Some(double(rest)?) })
            }
        };
        Some(Self { negative, whole, behind })
    }
}

fn special(n: f64) -> Option<u8> {
    if n.is_nan() {
        return Some(NAN);
    }
    if n.is_infinite() {
        return Some(if n < 0.0 { NEGATIVE_INFINITY } else { INFINITY });
    }
    (n == 0.0).then_some(ZERO)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 <= size < 2^64")]
fn trunc(size: f64) -> u64 {
    size as u64
}

pub(super) fn append_decimal(out: &mut Vec<u8>, n: Decimal) {
    let bits = u128::from_le_bytes(n.bytes());
    let negative = bits >> 127 == 1;
    match (bits >> 122) & 0b1_1111 {
        0b1_1111 => return out.push(NAN),
        0b1_1110 => return out.push(if negative { NEGATIVE_INFINITY } else { INFINITY }),
        _ => {}
    }
    let Some(finite) = Finite::of(bits) else { return out.push(ZERO) };
    let start = match finite.split() {
        Split::Huge => {
            let start = lead(out, negative, HUGE);
            finite.append_part(out);
            start
        }
        Split::At { whole: 0, .. } => {
            let start = lead(out, negative, FRACTION);
            finite.append_part(out);
            start
        }
        Split::At { whole: n, behind } => {
            let start = whole(out, negative, n);
            match behind {
                None => out.push(0),
                Some(behind) => {
                    out.push(1);
                    behind.append_part(out);
                }
            }
            start
        }
    };
    finish(out, negative, start);
}

/// `coefficient * 10^exponent`, positive.
#[derive(Clone, Copy)]
struct Finite {
    coefficient: u128,
    exponent: i32,
}

enum Split {
    /// 2^64 or more.
    Huge,
    /// Integer part and fraction.
    At { whole: u64, behind: Option<Finite> },
}

const EXPONENT_BIAS: i32 = 6176;
const COEFFICIENT_MAX: u128 = 10u128.pow(34) - 1;

impl Finite {
    /// Decodes a decimal; `None` for zero. A coefficient of more than 34 digits counts as zero, as IEEE 754 says; the
    /// second encoding (leading bits 11) is only used for those.
    #[allow(clippy::cast_possible_truncation, reason = "14 masked bits")]
    fn of(bits: u128) -> Option<Self> {
        let coefficient = bits & ((1 << 113) - 1);
        let second_encoding = (bits >> 125) & 0b11 == 0b11;
        if coefficient == 0 || coefficient > COEFFICIENT_MAX || second_encoding {
            return None;
        }
        let exponent = ((bits >> 113) & 0x3FFF) as i32 - EXPONENT_BIAS;
        Some(Self { coefficient, exponent })
    }

    fn split(self) -> Split {
        if self.exponent >= 0 {
            let whole = 10u128
                .checked_pow(self.exponent.unsigned_abs())
                .and_then(|scale| self.coefficient.checked_mul(scale))
                .and_then(|n| u64::try_from(n).ok());
            return whole.map_or(Split::Huge, |whole| Split::At { whole, behind: None });
        }
        let Some(scale) = 10u128.checked_pow(self.exponent.unsigned_abs()) else {
            return Split::At { whole: 0, behind: Some(self) };
        };
        let Ok(whole) = u64::try_from(self.coefficient / scale) else { return Split::Huge };
        let behind = self.coefficient % scale;
        let behind = (behind > 0).then_some(Self { coefficient: behind, ..self });
        Split::At { whole, behind }
    }

    /// Appends the largest double not above this number, and the number's digits if the double is not exact.
    fn append_part(self, out: &mut Vec<u8>) {
        let nearest: f64 =
            format!("{}e{}", self.coefficient, self.exponent).parse().unwrap_or(f64::INFINITY);
        let below = match self.compare(nearest) {
            Ordering::Less => nearest.next_down(),
            _ => nearest,
        };
        let exact = below > 0.0 && self.compare(below) == Ordering::Equal;
        append_part(out, below, (!exact).then_some(self));
    }

    fn compare(self, double: f64) -> Ordering {
        let exponent = u128::from((self.exponent + EXPONENT_BIAS).unsigned_abs());
        let decimal = Decimal::from_bytes((exponent << 113 | self.coefficient).to_le_bytes());
        compare_values(Value::Decimal(decimal), Value::Double(double), None)
    }

    /// Appends the exponent of the first digit, then the digits in pairs, without trailing zeros.
    #[allow(clippy::cast_possible_truncation, reason = "two digits make at most 99")]
    fn append_digits(self, out: &mut Vec<u8>) {
        let mut coefficient = self.coefficient;
        let mut exponent = self.exponent;
        while coefficient.is_multiple_of(10) {
            coefficient /= 10;
            exponent += 1;
        }
        let count = coefficient.ilog10() + 1;
        let first = exponent + count.cast_signed() - 1;
        out.extend_from_slice(&u16::try_from(first + 10_000).unwrap_or(0).to_be_bytes());
        if count % 2 == 1 {
            coefficient *= 10;
        }
        for pair in (0..count.div_ceil(2)).rev() {
            let digits = (coefficient / 100u128.pow(pair)) % 100;
            out.push(digits as u8 + 1);
        }
        out.push(0);
    }
}

/// Appends the type byte; returns where its content starts.
fn lead(out: &mut Vec<u8>, negative: bool, distance: u8) -> usize {
    out.push(if negative { ZERO - distance } else { ZERO + distance });
    out.len()
}

fn whole(out: &mut Vec<u8>, negative: bool, n: u64) -> usize {
    let zeros = n.leading_zeros() / 8;
    let len = u8::try_from(8 - zeros).unwrap_or(8);
    let start = lead(out, negative, FRACTION + len);
    out.extend(n.to_be_bytes().into_iter().skip(8 - usize::from(len)));
    start
}

fn append_part(out: &mut Vec<u8>, double: f64, tail: Option<Finite>) {
    // The bits of positive doubles sort like the doubles.
    out.extend_from_slice(&double.to_bits().to_be_bytes());
    match tail {
        None => out.push(0),
        Some(finite) => {
            out.push(1);
            finite.append_digits(out);
        }
    }
}

fn finish(out: &mut [u8], negative: bool, start: usize) {
    if negative {
        for byte in out.get_mut(start..).unwrap_or_default() {
            *byte = !*byte;
        }
    }
}
