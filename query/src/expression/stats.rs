//! Accumulators that are also expressions, over their arguments or a single array.

use super::{Env, Evaluated, arithmetic, logic};
use crate::value::Value;

/// The arguments; a single array argument means its elements.
fn inputs<'a>(args: &[Value<'a>]) -> Vec<Value<'a>> {
    match *args {
        [list @ Value::Array(_)] => list.elements().map(|e| e.value()).collect(),
        _ => args.to_vec(),
    }
}

/// Sums numbers without losing small ones among large ones.
///
/// Integers are summed exactly for an integer result, and also as doubles. If a double is among them, the result is
/// the sum of two doubles that together have twice the precision.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sum {
    whole: i128,
    high: f64,
    low: f64,
    /// The plain sum, which shows infinities and NaN.
    plain: f64,
    decimal: Option<Box<crate::value::Decimal>>,
    has_double: bool,
    has_long: bool,
}

impl Sum {
    pub(crate) fn add(&mut self, value: Value<'_>) {
        match value {
            Value::Int32(n) => {
                self.whole += i128::from(n);
                self.add_double(f64::from(n));
            }
            Value::Int64(n) => {
                self.has_long = true;
                self.whole += i128::from(n);
                self.add_long(n);
            }
            Value::Double(n) => {
                self.has_double = true;
                self.add_double(n);
            }
            Value::Decimal(n) => {
                let so_far = self.decimal.as_deref().copied();
                let sum = super::decimal::add(so_far.unwrap_or(super::decimal::from_i64(0)), n);
                self.decimal = Some(Box::new(sum));
            }
            _ => {}
        }
    }

    /// Removes a number that was added before.
    pub(crate) fn subtract(&mut self, value: Value<'_>) {
        match value {
            Value::Int32(n) => {
                self.whole -= i128::from(n);
                self.add_double(-f64::from(n));
            }
            Value::Int64(n) => {
                self.whole -= i128::from(n);
                self.add_long(n.wrapping_neg());
            }
            Value::Double(n) => self.add_double(-n),
            Value::Decimal(n) => {
                let so_far = self.decimal.as_deref().copied();
                let rest = super::decimal::sub(so_far.unwrap_or(super::decimal::from_i64(0)), n);
                self.decimal = Some(Box::new(rest));
            }
            _ => {}
        }
    }

    /// Adds it in two halves, each of which is exactly a double.
    #[allow(clippy::cast_precision_loss, reason = "both halves have at most 32 digits of two")]
    fn add_long(&mut self, n: i64) {
        let low = n % (1 << 32);
        self.add_double(low as f64);
        self.add_double((n - low) as f64);
    }

    /// The rounding error is kept in `low`, step by step as in mongod; `high` alone is the sum as a double.
    fn add_double(&mut self, n: f64) {
        self.plain += n;
        let (n, dropped) = two_sum(n, self.low);
        let (high, low) = two_sum(self.high, n);
        (self.high, self.low) = (high, low + dropped);
    }

    pub(crate) fn total(&self) -> Value<'static> {
        if let Some(decimal) = &self.decimal {
            return Value::Decimal(super::decimal::add(**decimal, self.as_decimal()));
        }
        if self.has_double {
            return Value::Double(self.as_double());
        }
        match (i32::try_from(self.whole), i64::try_from(self.whole)) {
            (Ok(n), _) if !self.has_long => Value::Int32(n),
            (_, Ok(n)) => Value::Int64(n),
            _ => Value::Double(self.as_double()),
        }
    }

    fn as_double(&self) -> f64 {
        if self.high.is_finite() { self.high } else { self.plain }
    }

    fn as_decimal(&self) -> crate::value::Decimal {
        if !self.has_double {
            let whole = super::decimal::parse(&self.whole.to_string());
            return whole.unwrap_or(crate::value::Decimal::NAN);
        }
        if !(self.high + self.low).is_finite() {
            return super::decimal::from_f64_15(self.plain);
        }
        let high = super::decimal::from_f64_exact(self.high);
        super::decimal::add(high, super::decimal::from_f64_exact(self.low))
    }
}

/// A sum and its rounding error (Knuth).
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let part = sum - a;
    (sum, (a - (sum - part)) + (b - part))
}

pub(super) fn op_sum<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let mut sum = Sum::default();
    inputs(args).into_iter().for_each(|v| sum.add(v));
    Ok(sum.total())
}

pub(super) fn op_avg<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let mut sum = Sum::default();
    let mut count = 0i64;
    for value in inputs(args).into_iter().filter(|v| v.is_number()) {
        sum.add(value);
        count += 1;
    }
    Ok(mean(&sum, count))
}

/// The mean; null if there are no values.
pub(crate) fn average(sum: &Sum, count: i64) -> Value<'static> {
    if count == 0 { Value::Null } else { arithmetic::divide(sum.total(), Value::Int64(count)) }
}

/// The mean as `$avg` computes it outside of the second executor: of the sum as a double, even if all are integers.
pub(crate) fn mean(sum: &Sum, count: i64) -> Value<'static> {
    match sum.decimal {
        None if count != 0 => {
            arithmetic::divide(Value::Double(sum.as_double()), Value::Int64(count))
        }
        _ => average(sum, count),
    }
}

pub(super) fn op_min<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let least = inputs(args).into_iter().filter(|v| !v.is_nullish());
    Ok(least
        .reduce(|a, b| if logic::compare(env, b, a).is_lt() { b } else { a })
        .unwrap_or(Value::Null))
}

pub(super) fn op_max<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let greatest = inputs(args).into_iter().filter(|v| !v.is_nullish());
    Ok(greatest
        .reduce(|a, b| if logic::compare(env, b, a).is_gt() { b } else { a })
        .unwrap_or(Value::Null))
}

/// Mean and variance in one pass (Welford).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spread {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Spread {
    pub(crate) fn add(&mut self, value: Value<'_>) {
        if !value.is_number() {
            return;
        }
        let n = arithmetic::as_f64(value);
        self.count += 1.0;
        let delta = n - self.mean;
        self.mean += delta / self.count;
        self.squares += delta * (n - self.mean);
    }

    pub(crate) fn deviation(&self, sample: bool) -> Value<'static> {
        let divisor = if sample { self.count - 1.0 } else { self.count };
        if divisor <= 0.0 { Value::Null } else { Value::Double((self.squares / divisor).sqrt()) }
    }
}

pub(super) fn op_std_dev_pop<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let mut spread = Spread::default();
    inputs(args).into_iter().for_each(|v| spread.add(v));
    Ok(spread.deviation(false))
}

pub(super) fn op_std_dev_samp<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let mut spread = Spread::default();
    inputs(args).into_iter().for_each(|v| spread.add(v));
    Ok(spread.deviation(true))
}
