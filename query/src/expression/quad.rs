//! Functions of decimals, computed in 113-bit binary precision.
//!
//! mongod's decimal library has no functions of its own: it rounds the argument to quadruple precision, computes the
//! function there, and rounds the result back to 34 digits. Both roundings are visible in the last digits: 0.1 to the
//! 7th is 9.999999999999999999999999999999995E-8. The function itself is computed here with more digits than either.

use std::cmp::Ordering;

use dec::{Context, Decimal128, Rounding};

use crate::value::{Decimal, Value, compare_values};

/// Digits of intermediate results.
const DIGITS: usize = 90;
type Big = dec::Decimal<31>;

/// Bits of a quadruple precision number.
const BITS: i32 = 113;

/// Beyond these exponents of ten a function has its limit value: quadruple precision ends there.
const EXPONENT_MAX: i32 = 4900;

/// Maximum exponent of a decimal.
const DECIMAL_MAX: i32 = 6200;

const PI: &str = "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534\
                  21170679821480865132823066470938446095505822317253594081284811174502841027";

/// Arithmetic with many digits.
struct Work(Context<Big>);

impl Work {
    fn new() -> Self {
        let mut cx = Context::<Big>::default();
        let set = cx.set_precision(DIGITS).is_ok()
            && cx.set_max_exponent(999_999).is_ok()
            && cx.set_min_exponent(-999_999).is_ok();
        debug_assert!(set, "within the limits of the library");
        cx.set_rounding(Rounding::HalfEven);
        Self(cx)
    }

    fn parse(&mut self, text: &str) -> Big {
        self.0.parse(text).unwrap_or_else(|_| Big::nan())
    }

    fn int(&mut self, n: i32) -> Big {
        self.0.from_i32(n)
    }

    fn pi(&mut self) -> Big {
        let mut pi = self.parse(PI);
        self.0.plus(&mut pi);
        pi
    }

    fn add(&mut self, mut a: Big, b: &Big) -> Big {
        self.0.add(&mut a, b);
        a
    }

    fn sub(&mut self, mut a: Big, b: &Big) -> Big {
        self.0.sub(&mut a, b);
        a
    }

    fn mul(&mut self, mut a: Big, b: &Big) -> Big {
        self.0.mul(&mut a, b);
        a
    }

    fn div(&mut self, mut a: Big, b: &Big) -> Big {
        self.0.div(&mut a, b);
        a
    }

    fn half(&mut self, a: Big) -> Big {
        let two = self.int(2);
        self.div(a, &two)
    }

    fn by(&mut self, mut a: Big, function: fn(&mut Context<Big>, &mut Big)) -> Big {
        function(&mut self.0, &mut a);
        a
    }

    fn cmp(&mut self, a: &Big, b: &Big) -> Ordering {
        self.0.partial_cmp(a, b).unwrap_or(Ordering::Equal)
    }

    fn two_to(&mut self, power: i32) -> Big {
        let (mut two, power) = (self.int(2), self.int(power));
        self.0.pow(&mut two, &power);
        two
    }

    /// Rounds to the nearest number of 113 bits.
    fn quad(&mut self, x: Big) -> Big {
        if x.is_zero() || !x.is_finite() {
            return x;
        }
        let magnitude = i32::try_from(x.digits()).unwrap_or(0) + x.exponent();
        #[allow(clippy::cast_possible_truncation, reason = "an exponent")]
        let mut bits = (f64::from(magnitude) * std::f64::consts::LOG2_10) as i32 - LOWER;
        let (one, top) = (self.int(1), self.two_to(BITS));
        // Search in one direction only: a number close to a power of two would alternate.
        loop {
            let scale = self.two_to(BITS - bits);
            let mut scaled = self.mul(x, &scale);
            let size = self.by(scaled, |cx, n| cx.abs(n));
            if self.cmp(&size, &top).is_lt() {
                self.0.quantize(&mut scaled, &one);
                return self.div(scaled, &scale);
            }
            bits += 1;
        }
    }

    /// The arc tangent; the argument is halved until few terms suffice.
    fn atan(&mut self, x: Big) -> Big {
        let one = self.int(1);
        let size = self.by(x, |cx, n| cx.abs(n));
        if self.cmp(&size, &one).is_gt() {
            let pi = self.pi();
            let quarter = self.half(pi);
            let inverse = self.div(one, &size);
            let below = self.atan(inverse);
            let angle = self.sub(quarter, &below);
            return if x.is_negative() { self.by(angle, |cx, n| cx.minus(n)) } else { angle };
        }
        let mut y = x;
        for _ in 0..HALVINGS {
            let square = self.mul(y, &y);
            let root = self.add(square, &one);
            let root = self.by(root, |cx, n| cx.sqrt(n));
            let below = self.add(root, &one);
            y = self.div(y, &below);
        }
        let square = self.mul(y, &y);
        let square = self.by(square, |cx, n| cx.minus(n));
        let (mut sum, mut power) = (y, y);
        for n in 1..TERMS {
            power = self.mul(power, &square);
            let odd = self.int(2 * n + 1);
            let term = self.div(power, &odd);
            sum = self.add(sum, &term);
        }
        let scale = self.two_to(HALVINGS);
        self.mul(sum, &scale)
    }

    /// Sine and cosine of an angle that is not too large.
    fn sin_cos(&mut self, x: Big) -> (Big, Big) {
        let pi = self.pi();
        let circle = self.add(pi, &pi);
        let mut angle = x;
        self.0.rem_near(&mut angle, &circle);
        let scale = self.two_to(HALVINGS);
        let small = self.div(angle, &scale);
        let square = self.mul(small, &small);
        let square = self.by(square, |cx, n| cx.minus(n));
        let one = self.int(1);
        let (mut sin, mut cos) = (small, one);
        let (mut of_sin, mut of_cos) = (small, one);
        for n in 1..TERMS {
            let (even, odd) = (self.int(2 * n * (2 * n - 1)), self.int(2 * n * (2 * n + 1)));
            of_cos = self.mul(of_cos, &square);
            of_cos = self.div(of_cos, &even);
            cos = self.add(cos, &of_cos);
            of_sin = self.mul(of_sin, &square);
            of_sin = self.div(of_sin, &odd);
            sin = self.add(sin, &of_sin);
        }
        for _ in 0..HALVINGS {
            let both = self.mul(sin, &cos);
            let (sin_square, cos_square) = (self.mul(sin, &sin), self.mul(cos, &cos));
            sin = self.add(both, &both);
            cos = self.sub(cos_square, &sin_square);
        }
        (sin, cos)
    }

    /// `e^x` and `e^-x`.
    fn both_exp(&mut self, x: Big) -> (Big, Big) {
        let up = self.by(x, |cx, n| cx.exp(n));
        let down = self.by(x, |cx, n| {
            cx.minus(n);
            cx.exp(n);
        });
        (up, down)
    }
}

/// How far below the estimate the search for an exponent starts, since a digit is worth several bits.
const LOWER: i32 = 5;

/// How often an argument is halved, and the number of series terms then needed: more than enough for 40 digits.
const HALVINGS: i32 = 6;
const TERMS: i32 = 16;

/// The result of a function for zero and for values outside of the range of 113 bits.
enum Edge {
    /// No special result: the function computes it.
    None,
    Value(Decimal),
}

/// Computes a function of one number.
fn through(x: Decimal, function: impl FnOnce(&mut Work, Big) -> Big) -> Decimal {
    let mut work = Work::new();
    let x = work.parse(&x.to_string());
    let x = work.quad(x);
    let y = function(&mut work, x);
    round(&mut work, y)
}

/// Rounds to 113 bits and then to 34 digits, with trailing zeros.
fn round(work: &mut Work, y: Big) -> Decimal {
    let magnitude = i32::try_from(y.digits()).unwrap_or(0).saturating_add(y.exponent());
    if y.is_zero() || y.is_finite() && magnitude < -DECIMAL_MAX {
        return zero(y.is_negative(), -6176);
    }
    if y.is_infinite() || y.is_finite() && magnitude > DECIMAL_MAX {
        return if y.is_negative() { Decimal::NEG_INFINITY } else { Decimal::INFINITY };
    }
    let y = work.quad(y);
    let back = Context::<Decimal128>::default().from_decimal(&y);
    full(back)
}

/// The same value with 34 digits.
pub(super) fn full(d: Decimal128) -> Decimal {
    if d.is_nan() {
        return Decimal::NAN;
    }
    if d.is_infinite() {
        return if d.is_negative() { Decimal::NEG_INFINITY } else { Decimal::INFINITY };
    }
    let (mut digits, mut exponent) = (d.coefficient().unsigned_abs(), d.exponent());
    while digits != 0 && digits < FULL && exponent > -6176 {
        digits *= 10;
        exponent -= 1;
    }
    Decimal::from_parts(d.is_signed(), digits, exponent)
}

/// The smallest coefficient of 34 digits.
const FULL: u128 = 10u128.pow(33);

fn zero(negative: bool, exponent: i32) -> Decimal {
    Decimal::from_parts(negative, 0, exponent)
}

fn magnitude(x: Decimal) -> i32 {
    let d = super::decimal::to_dec(x);
    i32::try_from(d.digits()).unwrap_or(0) + d.exponent()
}

fn is_zero(x: Decimal) -> bool {
    x.is_finite() && super::decimal::to_dec(x).is_zero()
}

/// For a function that approximates its argument near zero: zero with this exponent for zero.
fn odd(x: Decimal, of_zero: i32) -> Edge {
    match () {
        () if x.is_nan() => Edge::Value(Decimal::NAN),
        () if is_zero(x) => Edge::Value(zero(x.is_negative(), of_zero)),
        () if x.is_finite() && magnitude(x) < -EXPONENT_MAX => {
            Edge::Value(full(super::decimal::to_dec(x)))
        }
        () => Edge::None,
    }
}

macro_rules! or_edge {
    ($edge:expr) => {
        if let Edge::Value(known) = $edge {
            return known;
        }
    };
}

pub(super) fn exp(x: Decimal) -> Decimal {
    if is_zero(x) || x.is_finite() && magnitude(x) < -40 {
        return super::decimal::from_i64(1);
    }
    if !x.is_finite() || magnitude(x) > 5 {
        return super::decimal::exp(x);
    }
    through(x, |work, x| work.by(x, |cx, n| cx.exp(n)))
}

pub(super) fn ln(x: Decimal) -> Decimal {
    logarithm(x, |_, ln| ln)
}

pub(super) fn log10(x: Decimal) -> Decimal {
    let d = super::decimal::to_dec(x);
    // A power of ten outside of the range of 113 bits.
    if x.is_finite() && d.coefficient() == 1 && d.exponent().abs() > EXPONENT_MAX {
        return super::decimal::from_i64(i64::from(d.exponent()));
    }
    let found = logarithm(x, |work, ln| {
        let mut ten = work.int(10);
        work.0.ln(&mut ten);
        let one = work.int(1);
        let factor = work.div(one, &ten);
        let (ln, factor) = (work.quad(ln), work.quad(factor));
        work.mul(ln, &factor)
    });
    // A whole number has no digits behind the point.
    let whole = found.is_finite() && found.is_whole();
    found.truncate_to_i64().filter(|_| whole).map_or(found, super::decimal::from_i64)
}

/// Computes the natural logarithm and applies `then`.
fn logarithm(x: Decimal, then: impl FnOnce(&mut Work, Big) -> Big) -> Decimal {
    if !x.is_finite() {
        return x;
    }
    if super::decimal::to_dec(x) == Decimal128::ONE {
        return super::decimal::from_i64(0);
    }
    let mut work = Work::new();
    let exact = work.parse(&x.to_string());
    let one = work.int(1);
    // Near one the difference to one is exact: 113 bits of the number itself would hold little of it.
    let rest = work.sub(exact, &one);
    let near = i32::try_from(rest.digits()).unwrap_or(0) + rest.exponent() < NEAR;
    let x = if near { work.quad(rest) } else { work.quad(exact) };
    let x = if near { work.add(x, &one) } else { x };
    let ln = work.by(x, |cx, n| cx.ln(n));
    let y = then(&mut work, ln);
    round(&mut work, y)
}

/// The exponent below which a number counts as near one.
const NEAR: i32 = -10;

/// The powers that mongod's library does not compute.
fn special_power(base: Decimal, exponent: Decimal) -> Option<Decimal> {
    let is = |value: Decimal, n: i64| {
        compare_values(Value::Decimal(value), Value::Int64(n), None).is_eq()
    };
    // So the library has it.
    if is(base, 10) && is_zero(exponent) {
        return Some(zero(false, -6176));
    }
    if is_zero(exponent) || is(base, 1) {
        return Some(full(Decimal128::ONE));
    }
    if base.is_nan() || exponent.is_nan() {
        return None;
    }
    if !exponent.is_finite() {
        let size = super::decimal::abs(base);
        if is(size, 1) {
            return Some(full(Decimal128::ONE));
        }
        let above = compare_values(Value::Decimal(size), Value::Int32(1), None).is_gt();
        let grows = above != exponent.is_negative();
        return Some(if grows { Decimal::INFINITY } else { zero(false, -6176) });
    }
    (!base.is_finite() && exponent.is_negative()).then(|| zero(false, -6176))
}

pub(super) fn pow(base: Decimal, exponent: Decimal) -> Decimal {
    if let Some(special) = special_power(base, exponent) {
        return special;
    }
    let whole = exponent.is_finite() && exponent.is_whole();
    if base.is_nan() || exponent.is_nan() || base.is_negative() && !is_zero(base) && !whole {
        return super::decimal::pow(base, exponent);
    }
    if !base.is_finite() || !exponent.is_finite() {
        return super::decimal::pow(base, exponent);
    }
    if is_zero(base) {
        return zero(false, -6176);
    }
    if base.is_negative() {
        let odd = exponent.truncate_to_i64().is_some_and(|n| n % 2 != 0);
        let power = pow(super::decimal::abs(base), exponent);
        return if odd { Decimal::from_bits(power.bits() | 1 << 127) } else { power };
    }
    // Only a base of one stays finite with such an exponent, and the search for the power would take long.
    if magnitude(exponent) > 12 || magnitude(exponent) < -EXPONENT_MAX {
        return super::decimal::pow(base, exponent);
    }
    let mut work = Work::new();
    let (x, y) = (work.parse(&base.to_string()), work.parse(&exponent.to_string()));
    let (mut x, y) = (work.quad(x), work.quad(y));
    work.0.pow(&mut x, &y);
    round(&mut work, x)
}

pub(super) fn atan2(y: Decimal, x: Decimal) -> Decimal {
    if y.is_nan() || x.is_nan() {
        return Decimal::NAN;
    }
    let mut work = Work::new();
    let (flat, steep) = (is_zero(y) || !x.is_finite(), is_zero(x) || !y.is_finite());
    let pi = work.pi();
    let angle = match (flat, steep) {
        (true, true) if !x.is_finite() && !y.is_finite() => {
            let four = work.int(if x.is_negative() { 3 } else { 1 });
            let eighth = work.int(4);
            let eighth = work.div(pi, &eighth);
            work.mul(eighth, &four)
        }
        (true, _) if x.is_negative() => pi,
        (true, _) => return zero(y.is_negative(), -6176),
        (false, true) => work.half(pi),
        (false, false) if magnitude(y) - magnitude(x) < -EXPONENT_MAX && !x.is_negative() => {
            return super::decimal::div(y, x);
        }
        (false, false) => {
            let size = |d: Decimal| super::decimal::abs(d).to_string();
            let (a, b) = (work.parse(&size(y)), work.parse(&size(x)));
            let (a, b) = (work.quad(a), work.quad(b));
            let ratio = work.div(a, &b);
            let angle = work.atan(ratio);
            if x.is_negative() { work.sub(pi, &angle) } else { angle }
        }
    };
    let angle = if y.is_negative() { work.by(angle, |cx, n| cx.minus(n)) } else { angle };
    round(&mut work, angle)
}

/// Larger angles are computed in double precision: their position on the circle is not determined.
const ANGLE_MAX: i32 = 45;

/// True if pi is known to enough digits to reduce the angle.
pub(super) fn is_angle(x: Decimal) -> bool {
    x.is_finite() && magnitude(x) <= ANGLE_MAX
}

pub(super) fn sin(x: Decimal) -> Decimal {
    or_edge!(odd(x, super::decimal::to_dec(x).exponent()));
    through(x, |work, x| work.sin_cos(x).0)
}

pub(super) fn cos(x: Decimal) -> Decimal {
    if is_zero(x) || x.is_finite() && magnitude(x) < -EXPONENT_MAX {
        return full(Decimal128::ONE);
    }
    through(x, |work, x| work.sin_cos(x).1)
}

pub(super) fn tan(x: Decimal) -> Decimal {
    or_edge!(odd(x, OF_ZERO));
    through(x, |work, x| {
        let (sin, cos) = work.sin_cos(x);
        work.div(sin, &cos)
    })
}

/// The exponent of zero in results where the library computes with a small number.
const OF_ZERO: i32 = -40;

pub(super) fn asin(x: Decimal) -> Decimal {
    or_edge!(odd(x, OF_ZERO));
    through(x, |work, x| {
        let one = work.int(1);
        let square = work.mul(x, &x);
        let rest = work.sub(one, &square);
        if rest.is_zero() {
            let pi = work.pi();
            let right = work.half(pi);
            return if x.is_negative() { work.by(right, |cx, n| cx.minus(n)) } else { right };
        }
        let root = work.by(rest, |cx, n| cx.sqrt(n));
        let slope = work.div(x, &root);
        work.atan(slope)
    })
}

pub(super) fn acos(x: Decimal) -> Decimal {
    if x.is_nan() {
        return x;
    }
    through(x, |work, x| {
        // Twice the arc tangent of sqrt((1 - x) / (1 + x)).
        let one = work.int(1);
        let (above, below) = (work.sub(one, &x), work.add(one, &x));
        if below.is_zero() {
            return work.pi();
        }
        let ratio = work.div(above, &below);
        let root = work.by(ratio, |cx, n| cx.sqrt(n));
        let half = work.atan(root);
        work.add(half, &half)
    })
}

pub(super) fn atan(x: Decimal) -> Decimal {
    or_edge!(odd(x, super::decimal::to_dec(x).exponent()));
    if !x.is_finite() {
        return atan2(x, super::decimal::from_i64(1));
    }
    through(x, Work::atan)
}

pub(super) fn sinh(x: Decimal) -> Decimal {
    or_edge!(odd(x, OF_ZERO));
    if !x.is_finite() || magnitude(x) > 5 {
        return if x.is_negative() { Decimal::NEG_INFINITY } else { Decimal::INFINITY };
    }
    through(x, |work, x| {
        let (up, down) = work.both_exp(x);
        let twice = work.sub(up, &down);
        work.half(twice)
    })
}

pub(super) fn cosh(x: Decimal) -> Decimal {
    if is_zero(x) || x.is_finite() && magnitude(x) < -EXPONENT_MAX {
        return full(Decimal128::ONE);
    }
    if x.is_nan() {
        return x;
    }
    if !x.is_finite() || magnitude(x) > 5 {
        return Decimal::INFINITY;
    }
    through(x, |work, x| {
        let (up, down) = work.both_exp(x);
        let twice = work.add(up, &down);
        work.half(twice)
    })
}

pub(super) fn tanh(x: Decimal) -> Decimal {
    or_edge!(odd(x, super::decimal::to_dec(x).exponent()));
    if !x.is_finite() || magnitude(x) > 5 {
        return super::decimal::from_i64(if x.is_negative() { -1 } else { 1 });
    }
    through(x, |work, x| {
        let (up, down) = work.both_exp(x);
        let (above, below) = (work.sub(up, &down), work.add(up, &down));
        work.div(above, &below)
    })
}

pub(super) fn asinh(x: Decimal) -> Decimal {
    if !x.is_finite() {
        return x;
    }
    if !is_zero(x) && magnitude(x) < -EXPONENT_MAX {
        return super::decimal::from_i64(0);
    }
    or_edge!(odd(x, -6176));
    through(x, |work, x| {
        // Computed with the absolute value: adding a negative number and the root would lose digits.
        let one = work.int(1);
        let size = work.by(x, |cx, n| cx.abs(n));
        let square = work.mul(size, &size);
        let root = work.add(square, &one);
        let root = work.by(root, |cx, n| cx.sqrt(n));
        let sum = work.add(root, &size);
        let angle = work.by(sum, |cx, n| cx.ln(n));
        if x.is_negative() { work.by(angle, |cx, n| cx.minus(n)) } else { angle }
    })
}

pub(super) fn acosh(x: Decimal) -> Decimal {
    if !x.is_finite() {
        return x;
    }
    if super::decimal::to_dec(x) == Decimal128::ONE {
        return super::decimal::from_i64(0);
    }
    through(x, |work, x| {
        let one = work.int(1);
        let square = work.mul(x, &x);
        let root = work.sub(square, &one);
        let root = work.by(root, |cx, n| cx.sqrt(n));
        let sum = work.add(root, &x);
        work.by(sum, |cx, n| cx.ln(n))
    })
}

pub(super) fn atanh(x: Decimal) -> Decimal {
    if x.is_finite() && !is_zero(x) && magnitude(x) < -EXPONENT_MAX {
        return x;
    }
    or_edge!(odd(x, -6176));
    if super::decimal::to_dec(super::decimal::abs(x)) == Decimal128::ONE {
        return if x.is_negative() { Decimal::NEG_INFINITY } else { Decimal::INFINITY };
    }
    through(x, |work, x| {
        let one = work.int(1);
        let (above, below) = (work.add(one, &x), work.sub(one, &x));
        let ratio = work.div(above, &below);
        let twice = work.by(ratio, |cx, n| cx.ln(n));
        work.half(twice)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::decimal::parse;

    #[track_caller]
    fn check(got: Decimal, want: &str) {
        assert_eq!(got.to_string(), want);
    }

    fn dec(text: &str) -> Decimal {
        parse(text).unwrap()
    }

    #[test]
    fn the_last_digits_are_those_of_113_bits() {
        check(
            pow(dec("9223372036854775808"), dec("7")),
            "5.678427533559428832416592249125035E+132",
        );
        check(pow(dec("2"), dec("3")), "8.000000000000000000000000000000000");
        check(log10(dec("7")), "0.8450980400142568307122162585926363");
        check(ln(dec("2.5")), "0.9162907318741550651835272117680110");
        check(exp(dec("10")), "22026.46579480671651695790064528425");
        check(atan2(dec("1"), dec("3")), "0.3217505543966421934014046143586613");
        check(atan2(dec("0"), dec("-3.75")), "3.141592653589793238462643383279503");
        check(sin(dec("1E+10")), "-0.4875060250875106915277942943481060");
        check(cos(dec("0")), "1.000000000000000000000000000000000");
        check(tanh(dec("1")), "0.7615941559557648881194582826047936");
        check(asin(dec("0")), "0E-40");
    }
}
