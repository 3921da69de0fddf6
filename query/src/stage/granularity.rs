//! Preferred number series, to which `$bucketAuto` rounds its boundaries.

use crate::{
    error::QueryError,
    expression::{as_decimal, as_f64, decimal_from_f64, decimal_mul, decimal_pow},
    value::{Decimal, DecimalClass, OwnedValue, Value, compare_values},
};

/// A series of numbers, or the powers of two.
#[derive(Debug, Clone)]
pub(super) enum Granularity {
    /// One decade of the series; the others are multiples by powers of ten.
    Series(Vec<f64>),
    /// 1, 2, 4, 8 and so on, and their fractions.
    PowersOfTwo,
}

const R5: [u16; 5] = [10, 16, 25, 40, 63];
const R10: [u16; 10] = [100, 125, 160, 200, 250, 315, 400, 500, 630, 800];
const R20: [u16; 20] = [
    100, 112, 125, 140, 160, 180, 200, 224, 250, 280, 315, 355, 400, 450, 500, 560, 630, 710, 800,
    900,
];
const R40: [u16; 40] = [
    100, 106, 112, 118, 125, 132, 140, 150, 160, 170, 180, 190, 200, 212, 224, 236, 250, 265, 280,
    300, 315, 335, 355, 375, 400, 425, 450, 475, 500, 530, 560, 600, 630, 670, 710, 750, 800, 850,
    900, 950,
];
const R80: [u16; 40] = [
    103, 109, 115, 122, 128, 136, 145, 155, 165, 175, 185, 195, 206, 218, 230, 243, 258, 272, 290,
    307, 325, 345, 365, 387, 412, 437, 462, 487, 515, 545, 575, 615, 650, 690, 730, 775, 825, 875,
    925, 975,
];
const ONE_TWO_FIVE: [u16; 3] = [10, 20, 50];
const E6: [u16; 6] = [10, 15, 22, 33, 47, 68];
const E12: [u16; 12] = [10, 12, 15, 18, 22, 27, 33, 39, 47, 56, 68, 82];
const E24: [u16; 24] = [
    10, 11, 12, 13, 15, 16, 18, 20, 22, 24, 27, 30, 33, 36, 39, 43, 47, 51, 56, 62, 68, 75, 82, 91,
];

/// The finer E series are rounded powers of a root of ten; by convention one value differs.
fn e_series(steps: u32) -> Vec<f64> {
    (0..steps)
        .map(|step| match (100.0 * 10f64.powf(f64::from(step) / f64::from(steps))).round() {
            919.0 => 920.0,
            n => n,
        })
        .collect()
}

impl Granularity {
    /// The series with this name.
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        let series =
            |numbers: &[u16]| Self::Series(numbers.iter().map(|n| f64::from(*n)).collect());
        Some(match name {
            b"R5" => series(&R5),
            b"R10" => series(&R10),
            b"R20" => series(&R20),
            b"R40" => series(&R40),
            b"R80" => series(&R80),
            b"1-2-5" => series(&ONE_TWO_FIVE),
            b"E6" => series(&E6),
            b"E12" => series(&E12),
            b"E24" => series(&E24),
            b"E48" => Self::Series(e_series(48)),
            b"E96" => Self::Series(e_series(96)),
            b"E192" => Self::Series(e_series(192)),
            b"POWERSOF2" => Self::PowersOfTwo,
            _ => return None,
        })
    }

    /// Refuses a value that cannot be rounded.
    pub(super) fn check(value: Value<'_>) -> Result<(), QueryError> {
        let refuse = |code, what: &str| {
            Err(QueryError::location(
                code,
                format!("$bucketAuto can specify a 'granularity' with {what}"),
            ))
        };
        if !value.is_number() {
            let found = value.type_name();
            let text = format!("numeric boundaries only, but found a value with type: {found}");
            return refuse(40_258, &text);
        }
        if as_f64(value).is_nan() {
            return refuse(40_259, "numeric boundaries only, but found a NaN");
        }
        if compare_values(value, Value::Int32(0), None).is_lt() {
            return refuse(40_260, "non-negative numbers only, but found a negative number");
        }
        Ok(())
    }

    /// The next number of the series above.
    pub(super) fn up(&self, value: Value<'_>) -> OwnedValue {
        self.rounded(value, true)
    }

    /// The next number of the series below.
    pub(super) fn down(&self, value: Value<'_>) -> OwnedValue {
        self.rounded(value, false)
    }

    fn rounded(&self, value: Value<'_>, up: bool) -> OwnedValue {
        let n = as_f64(value);
        if n == 0.0 {
            return if matches!(value, Value::Decimal(_)) { value } else { Value::Double(0.0) }
                .into();
        }
        match self {
            Self::Series(series) => {
                let (number, tens) = neighbour(series, n, up);
                match value {
                    Value::Decimal(_) => {
                        let scale = Decimal::from_parts(false, 1, tens);
                        Value::Decimal(decimal_mul(decimal_from_f64(number), scale)).into()
                    }
                    _ => Value::Double(number * multiplier(tens)).into(),
                }
            }
            Self::PowersOfTwo => power_of_two(value, n, up),
        }
    }
}

/// A power of ten, computed in steps of ten as in mongod.
fn multiplier(tens: i32) -> f64 {
    (0..tens.unsigned_abs()).fold(1.0, |m, _| if tens < 0 { m / 10.0 } else { m * 10.0 })
}

/// The series number next to `n`, and the power of ten to multiply it by.
fn neighbour(series: &[f64], n: f64, up: bool) -> (f64, i32) {
    let (Some(first), Some(last)) = (series.first().copied(), series.last().copied()) else {
        return (n, 0);
    };
    let mut tens = 0;
    while tens < 310 && n >= first * 10.0 * multiplier(tens) {
        tens += 1;
    }
    while tens > -330 && n < first * multiplier(tens) {
        tens -= 1;
    }
    let m = multiplier(tens);
    if up {
        match series.iter().find(|s| **s * m > n) {
            Some(next) => (*next, tens),
            None => (first, tens + 1),
        }
    } else {
        match series.iter().rev().find(|s| **s * m < n) {
            Some(previous) => (*previous, tens),
            None => (last, tens - 1),
        }
    }
}

fn power_of_two(value: Value<'_>, n: f64, up: bool) -> OwnedValue {
    #[allow(clippy::cast_possible_truncation, reason = "an exponent of a double")]
    let exponent = if up { n.log2().floor() as i32 + 1 } else { n.log2().ceil() as i32 - 1 };
    if let Value::Decimal(_) = value {
        let two = as_decimal(Value::Int32(2));
        let power = decimal_pow(two, as_decimal(Value::Int32(exponent)));
        return Value::Decimal(in_full(power)).into();
    }
    match u32::try_from(exponent) {
        Ok(bits @ 0..=30) => Value::Int32(1 << bits),
        Ok(bits @ 31..=62) => Value::Int64(1 << bits),
        _ => Value::Double(2f64.powi(exponent)),
    }
    .into()
}

/// The value with all 34 digits, as mongod's power function returns it.
fn in_full(n: Decimal) -> Decimal {
    let DecimalClass::Finite { mut coefficient, mut exponent } = n.class() else { return n };
    while coefficient != 0 && coefficient < 10u128.pow(33) {
        coefficient *= 10;
        exponent -= 1;
    }
    Decimal::from_parts(n.is_negative(), coefficient, exponent)
}
