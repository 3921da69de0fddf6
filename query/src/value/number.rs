//! Numbers of the four types, compared by exact mathematical value.
//!
//! A double and a decimal are compared as integers: `m * 2^e` with `c * 10^q`, both scaled up until they are
//! integers. Everything else fits in 34 decimal digits and 128 bits.

use std::cmp::Ordering;

/// A decimal128 as stored: 16 bytes, little endian.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decimal(u128);

/// The class of a decimal128.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecimalClass {
    /// Not a number.
    NaN,
    /// Plus or minus infinity.
    Infinite,
    /// `coefficient * 10^exponent`.
    Finite {
        /// At most 34 digits.
        coefficient: u128,
        /// From -6176 to 6111.
        exponent: i32,
    },
}

const EXPONENT_BIAS: i32 = 6176;
const COEFFICIENT_MAX: u128 = 10u128.pow(34) - 1;

impl Decimal {
    /// Not a number.
    pub const NAN: Self = Self(0b11111 << 122);
    /// Positive infinity.
    pub const INFINITY: Self = Self(0b11110 << 122);
    /// Negative infinity.
    pub const NEG_INFINITY: Self = Self(0b11110 << 122 | 1 << 127);

    /// `coefficient * 10^exponent`, with at most 34 digits and an exponent from -6176 to 6111.
    pub(crate) fn from_parts(negative: bool, coefficient: u128, exponent: i32) -> Self {
        let biased = u128::try_from(exponent + EXPONENT_BIAS).unwrap_or(0) & 0x3fff;
        Self(u128::from(negative) << 127 | biased << 113 | coefficient)
    }

    /// The bits; the sign is the highest.
    pub const fn bits(self) -> u128 {
        self.0
    }

    /// From its bits.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// From the 16 bytes of BSON.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }

    /// The 16 bytes of BSON.
    pub const fn bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    /// True if the sign bit is set, also for zeros and NaNs.
    pub const fn is_negative(self) -> bool {
        self.0 >> 127 == 1
    }

    /// True for NaN of either kind.
    pub fn is_nan(self) -> bool {
        self.class() == DecimalClass::NaN
    }

    /// True unless NaN or infinite.
    pub(crate) fn is_finite(self) -> bool {
        matches!(self.class(), DecimalClass::Finite { .. })
    }

    /// Decodes the bits. A coefficient of more than 34 digits counts as zero, as IEEE 754 says.
    #[allow(clippy::cast_possible_truncation, reason = "14 masked bits fit in an i32")]
    pub fn class(self) -> DecimalClass {
        let combination = (self.0 >> 122) & 0b11111;
        match combination {
            0b11111 => return DecimalClass::NaN,
            0b11110 => return DecimalClass::Infinite,
            _ => {}
        }
        // The second encoding (leading bits 11) is only used for coefficients above 34 digits, which count as zero.
        if combination >> 3 == 0b11 {
            let exponent = ((self.0 >> 111) & 0x3fff) as i32 - EXPONENT_BIAS;
            return DecimalClass::Finite { coefficient: 0, exponent };
        }
        let exponent = ((self.0 >> 113) & 0x3fff) as i32 - EXPONENT_BIAS;
        let coefficient = self.0 & ((1 << 113) - 1);
        let coefficient = if coefficient > COEFFICIENT_MAX { 0 } else { coefficient };
        DecimalClass::Finite { coefficient, exponent }
    }
}

impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&bson::Decimal128::from_bytes(self.bytes()), f)
    }
}

impl std::fmt::Debug for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// A number of any type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Int(i64),
    Double(f64),
    Decimal(Decimal),
}

/// Compares two numbers: NaN is below all others, the two zeros are equal.
pub(crate) fn compare_numbers(a: Number, b: Number) -> Ordering {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => a.cmp(&b),
        (Number::Double(a), Number::Double(b)) => compare_doubles(a, b),
        (Number::Int(a), Number::Double(b)) => compare_int_double(a, b),
        (Number::Double(a), Number::Int(b)) => compare_int_double(b, a).reverse(),
        (Number::Decimal(a), Number::Decimal(b)) => compare_decimals(Parts::of(a), Parts::of(b)),
        (Number::Decimal(a), Number::Int(b)) => compare_decimals(Parts::of(a), Parts::of_int(b)),
        (Number::Int(a), Number::Decimal(b)) => compare_decimals(Parts::of_int(a), Parts::of(b)),
        (Number::Decimal(a), Number::Double(b)) => compare_decimal_double(Parts::of(a), b),
        (Number::Double(a), Number::Decimal(b)) => {
            compare_decimal_double(Parts::of(b), a).reverse()
        }
    }
}

fn compare_doubles(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

fn compare_int_double(a: i64, b: f64) -> Ordering {
    if b.is_nan() {
        return Ordering::Greater;
    }
    // 2^63 is exactly a double; i64 values are below it and not below its negative.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if b >= LIMIT {
        return Ordering::Less;
    }
    if b < -LIMIT {
        return Ordering::Greater;
    }
    #[allow(clippy::cast_possible_truncation, reason = "in range: checked above")]
    let whole = b.trunc() as i64;
    a.cmp(&whole).then_with(|| 0.0_f64.partial_cmp(&b.fract()).unwrap_or(Ordering::Equal))
}

/// A number as sign, class and 34-digit coefficient, for comparison.
#[derive(Clone, Copy)]
enum Parts {
    NaN,
    Infinite { negative: bool },
    Zero,
    Finite { negative: bool, coefficient: u128, exponent: i32 },
}

impl Parts {
    fn of(d: Decimal) -> Self {
        let negative = d.is_negative();
        match d.class() {
            DecimalClass::NaN => Self::NaN,
            DecimalClass::Infinite => Self::Infinite { negative },
            DecimalClass::Finite { coefficient: 0, .. } => Self::Zero,
            DecimalClass::Finite { coefficient, exponent } => {
                Self::Finite { negative, coefficient, exponent }
            }
        }
    }

    fn of_int(n: i64) -> Self {
        if n == 0 {
            return Self::Zero;
        }
        let coefficient = u128::from(n.unsigned_abs());
        Self::Finite { negative: n < 0, coefficient, exponent: 0 }
    }

    /// Negative, zero or positive; NaN is below them all.
    fn sign_rank(self) -> i8 {
        match self {
            Self::NaN => -2,
            Self::Zero => 0,
            Self::Infinite { negative } | Self::Finite { negative, .. } => {
                if negative {
                    -1
                } else {
                    1
                }
            }
        }
    }
}

fn compare_decimals(a: Parts, b: Parts) -> Ordering {
    let by_sign = a.sign_rank().cmp(&b.sign_rank());
    if by_sign != Ordering::Equal {
        return by_sign;
    }
    let by_size = match (a, b) {
        (
            Parts::Finite { coefficient: ca, exponent: ea, .. },
            Parts::Finite { coefficient: cb, exponent: eb, .. },
        ) => {
            let (ca, ea) = to_34_digits(ca, ea);
            let (cb, eb) = to_34_digits(cb, eb);
            ea.cmp(&eb).then(ca.cmp(&cb))
        }
        (Parts::Infinite { .. }, Parts::Finite { .. }) => Ordering::Greater,
        (Parts::Finite { .. }, Parts::Infinite { .. }) => Ordering::Less,
        _ => Ordering::Equal,
    };
    if a.sign_rank() < 0 { by_size.reverse() } else { by_size }
}

fn digits(n: u128) -> u32 {
    n.checked_ilog10().map_or(1, |log| log + 1)
}

/// The same value with exactly 34 digits, so that exponents order magnitudes.
fn to_34_digits(coefficient: u128, exponent: i32) -> (u128, i32) {
    let missing = 34_u32.saturating_sub(digits(coefficient));
    (coefficient * 10u128.pow(missing), exponent - missing.cast_signed())
}

fn compare_decimal_double(a: Parts, b: f64) -> Ordering {
    let sign_b = if b.is_nan() {
        -2
    } else if b == 0.0 {
        0
    } else if b < 0.0 {
        -1
    } else {
        1
    };
    let by_sign = a.sign_rank().cmp(&sign_b);
    if by_sign != Ordering::Equal || sign_b == 0 || sign_b == -2 {
        return by_sign;
    }
    let by_size = match a {
        Parts::Infinite { .. } if b.is_infinite() => Ordering::Equal,
        Parts::Infinite { .. } => Ordering::Greater,
        Parts::Finite { .. } if b.is_infinite() => Ordering::Less,
        Parts::Finite { coefficient, exponent, .. } => {
            compare_magnitudes(coefficient, exponent, b.abs())
        }
        Parts::NaN | Parts::Zero => Ordering::Equal,
    };
    if sign_b < 0 { by_size.reverse() } else { by_size }
}

/// Compares `c * 10^q` with a finite positive double.
fn compare_magnitudes(c: u128, q: i32, b: f64) -> Ordering {
    // Doubles are between 10^-324 and 10^309: decimals far outside need no arithmetic.
    let top_digit = q + digits(c).cast_signed() - 1;
    if top_digit > 310 {
        return Ordering::Greater;
    }
    if top_digit < -330 {
        return Ordering::Less;
    }
    let bits = b.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    let biased = i32::try_from((bits >> 52) & 0x7ff).unwrap_or(0);
    let (m, e) =
        if biased == 0 { (fraction, -1074) } else { (fraction | (1 << 52), biased - 1075) };
    let mut left = Natural::from(c);
    let mut right = Natural::from(u128::from(m));
    if q >= 0 {
        left.times_pow10(q.unsigned_abs())
    } else {
        right.times_pow10(q.unsigned_abs())
    }
    if e >= 0 {
        right.shift_left(e.unsigned_abs())
    } else {
        left.shift_left(e.unsigned_abs())
    }
    left.compare(&right)
}

/// A natural number of any size, lowest limb first, with just the arithmetic that a comparison needs.
struct Natural(Vec<u32>);

#[allow(clippy::cast_possible_truncation, reason = "limbs are cut from wider words on purpose")]
impl Natural {
    fn from(n: u128) -> Self {
        Self((0..4).map(|i| (n >> (32 * i)) as u32).collect())
    }

    fn times(&mut self, by: u32) {
        let mut carry = 0u64;
        for limb in &mut self.0 {
            let product = u64::from(*limb) * u64::from(by) + carry;
            *limb = product as u32;
            carry = product >> 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn times_pow10(&mut self, mut power: u32) {
        while power >= 9 {
            self.times(1_000_000_000);
            power -= 9;
        }
        self.times(10u32.pow(power));
    }

    fn shift_left(&mut self, bits: u32) {
        self.times(1 << (bits % 32));
        let zeros = usize::try_from(bits / 32).unwrap_or(0);
        self.0.splice(0..0, std::iter::repeat_n(0, zeros));
    }

    fn compare(&self, other: &Self) -> Ordering {
        let significant = |limbs: &[u32]| limbs.iter().rposition(|&l| l != 0).map_or(0, |i| i + 1);
        let (a, b) = (significant(&self.0), significant(&other.0));
        a.cmp(&b).then_with(|| self.0.iter().take(a).rev().cmp(other.0.iter().take(b).rev()))
    }
}

impl Decimal {
    /// The value truncated to an integer, if it fits in 64 bits.
    pub(crate) fn truncate_to_i64(self) -> Option<i64> {
        let DecimalClass::Finite { coefficient, exponent } = self.class() else { return None };
        let magnitude = if exponent <= 0 {
            10u128.checked_pow(exponent.unsigned_abs()).map_or(0, |p| coefficient / p)
        } else if coefficient == 0 {
            0
        } else {
            coefficient.checked_mul(10u128.checked_pow(exponent.unsigned_abs())?)?
        };
        let signed = i128::try_from(magnitude).ok()?;
        i64::try_from(if self.is_negative() { -signed } else { signed }).ok()
    }

    /// True if there is no fraction.
    pub fn is_whole(self) -> bool {
        match self.class() {
            DecimalClass::Finite { coefficient, exponent } if exponent < 0 => 10u128
                .checked_pow(exponent.unsigned_abs())
                .map_or(coefficient == 0, |p| coefficient % p == 0),
            DecimalClass::Finite { .. } => true,
            DecimalClass::NaN | DecimalClass::Infinite => false,
        }
    }
}
