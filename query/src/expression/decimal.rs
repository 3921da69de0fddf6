//! decimal128 arithmetic. BSON encodes the coefficient in binary, decNumber in groups of digits, so values are
//! converted through text in one direction and through sign, coefficient and exponent in the other.

use dec::{Context, Decimal128, Rounding};

use crate::value::Decimal;

/// Wide enough for 34 digits and the guard digits of the functions below.
type Wide = dec::Decimal<13>;

pub(super) fn to_dec(d: Decimal) -> Decimal128 {
    Context::<Decimal128>::default().parse(d.to_string()).unwrap_or(Decimal128::NAN)
}

fn from_dec(d: Decimal128) -> Decimal {
    if d.is_nan() {
        return Decimal::NAN;
    }
    if d.is_infinite() {
        return if d.is_negative() { Decimal::NEG_INFINITY } else { Decimal::INFINITY };
    }
    Decimal::from_parts(d.is_signed(), d.coefficient().unsigned_abs(), d.exponent())
}

macro_rules! binary {
    ($($name:ident)*) => {$(
        pub(crate) fn $name(a: Decimal, b: Decimal) -> Decimal {
            from_dec(Context::<Decimal128>::default().$name(to_dec(a), to_dec(b)))
        }
    )*};
}

binary! { add sub mul div rem }

/// The remainder, however many digits the quotient has.
pub(crate) fn modulo(a: Decimal, b: Decimal) -> Decimal {
    let rest = rem(a, b);
    let (x, y) = (to_dec(a), to_dec(b));
    if !rest.is_nan() || !a.is_finite() || !b.is_finite() || y.is_zero() {
        return rest;
    }
    let by = y.coefficient().unsigned_abs();
    let shift = u32::try_from(x.exponent() - y.exponent()).unwrap_or(0);
    let rest = times(x.coefficient().unsigned_abs() % by, ten_to(shift, by), by);
    Decimal::from_parts(a.is_negative(), rest, y.exponent())
}

/// `a * b % by` for numbers of 34 digits: doubling one of them always fits in 128 bits.
fn times(mut a: u128, mut b: u128, by: u128) -> u128 {
    let mut sum = 0;
    while b > 0 {
        if b & 1 == 1 {
            sum = (sum + a) % by;
        }
        a = (a + a) % by;
        b >>= 1;
    }
    sum
}

fn ten_to(mut exponent: u32, by: u128) -> u128 {
    let (mut power, mut base) = (1 % by, 10 % by);
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = times(power, base, by);
        }
        base = times(base, base, by);
        exponent >>= 1;
    }
    power
}

macro_rules! wide {
    ($($name:ident)*) => {$(
        pub(crate) fn $name(a: Decimal) -> Decimal {
            through_wide(a, |cx, n| cx.$name(n))
        }
    )*};
}

wide! { exp sqrt }

fn through_wide(a: Decimal, f: impl Fn(&mut Context<Wide>, &mut Wide)) -> Decimal {
    let mut cx = wide_context();
    let Ok(mut n) = cx.parse(a.to_string()) else { return Decimal::NAN };
    f(&mut cx, &mut n);
    from_dec(Context::<Decimal128>::default().from_decimal(&n))
}

fn wide_context() -> Context<Wide> {
    let mut cx = Context::<Wide>::default();
    // The precision is within the type's limit, so this cannot fail.
    let set = cx.set_precision(34);
    debug_assert!(set.is_ok(), "34 digits fit");
    // decNumber's functions refuse wider exponents.
    let set = cx.set_max_exponent(999_999).is_ok() && cx.set_min_exponent(-999_999).is_ok();
    debug_assert!(set, "within the limits of the library");
    cx
}

pub(crate) fn pow(a: Decimal, b: Decimal) -> Decimal {
    through_wide(a, |cx, n| {
        if let Ok(exponent) = cx.parse(b.to_string()) {
            let _: () = cx.pow(n, &exponent);
        }
    })
}

pub(crate) fn abs(a: Decimal) -> Decimal {
    Decimal::from_bits(a.bits() & !(1 << 127))
}

/// Rounds to `places` decimal places, with trailing zeros, as far as there is room.
pub(crate) fn round(a: Decimal, places: i32, rounding: Rounding) -> Decimal {
    if !a.is_finite() {
        return a;
    }
    let rounded = quantized(a, places, rounding);
    if rounded.is_nan() { super::quad::full(to_dec(a)) } else { rounded }
}

/// Rounds to `places` decimal places; NaN if there is no room for all digits.
pub(crate) fn quantized(a: Decimal, places: i32, rounding: Rounding) -> Decimal {
    let mut cx = Context::<Decimal128>::default();
    cx.set_rounding(rounding);
    let mut unit = Decimal128::ONE;
    cx.set_exponent(&mut unit, -places);
    if a.is_finite() { from_dec(cx.quantize(to_dec(a), unit)) } else { Decimal::NAN }
}

/// A double as a decimal of 15 digits, which is how mongod mixes the two.
pub(crate) fn from_f64_15(n: f64) -> Decimal {
    if n.is_nan() {
        return Decimal::NAN;
    }
    if n.is_infinite() {
        return if n > 0.0 { Decimal::INFINITY } else { Decimal::NEG_INFINITY };
    }
    if n == 0.0 {
        return Decimal::from_parts(n.is_sign_negative(), 0, 0);
    }
    parse(&format!("{n:.14e}")).unwrap_or(Decimal::NAN)
}

/// A double as the nearest decimal, with the fewest digits that represent it exactly.
pub(crate) fn from_f64_exact(n: f64) -> Decimal {
    if !n.is_finite() || n == 0.0 {
        return from_f64_15(n);
    }
    let text = format!("{n:.40e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    parse(&format!("{digits}e{exponent}")).unwrap_or(Decimal::NAN)
}

pub(crate) fn from_i64(n: i64) -> Decimal {
    Decimal::from_parts(n < 0, u128::from(n.unsigned_abs()), 0)
}

pub(crate) fn to_f64(d: Decimal) -> f64 {
    d.to_string().parse().unwrap_or(f64::NAN)
}

/// Parses text as a decimal, rounded to 34 digits.
pub(crate) fn parse(text: &str) -> Option<Decimal> {
    Context::<Decimal128>::default().parse(text).ok().map(from_dec)
}
