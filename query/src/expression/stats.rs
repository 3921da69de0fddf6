//! The accumulators that also stand in expressions, over their arguments or one array.

use super::{Env, Evaluated, arithmetic, logic};
use crate::value::Value;

/// The numbers of the arguments: one argument that is an array means its elements.
fn inputs<'a>(args: &[Value<'a>]) -> Vec<Value<'a>> {
    match *args {
        [list @ Value::Array(_)] => list.elements().map(|e| e.value()).collect(),
        _ => args.to_vec(),
    }
}

/// Adds numbers without losing the small ones among the large.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sum {
    whole: i128,
    double: f64,
    error: f64,
    decimal: Option<crate::value::Decimal>,
    has_double: bool,
    has_long: bool,
}

impl Sum {
    pub(crate) fn add(&mut self, value: Value<'_>) {
        match value {
            Value::Int32(n) => self.whole += i128::from(n),
            Value::Int64(n) => {
                self.has_long = true;
                self.whole += i128::from(n);
            }
            Value::Double(n) => {
                self.has_double = true;
                self.add_double(n);
            }
            Value::Decimal(n) => {
                let so_far = self.decimal.unwrap_or(super::decimal::from_i64(0));
                self.decimal = Some(super::decimal::add(so_far, n));
            }
            _ => {}
        }
    }

    /// Neumaier's way: the part that rounding drops is kept beside.
    fn add_double(&mut self, n: f64) {
        let sum = self.double + n;
        if sum.is_finite() {
            self.error += if self.double.abs() >= n.abs() {
                (self.double - sum) + n
            } else {
                (n - sum) + self.double
            };
        }
        self.double = sum;
    }

    pub(crate) fn total(&self) -> Value<'static> {
        if let Some(decimal) = self.decimal {
            let doubles = super::decimal::from_f64_exact(self.double + self.error);
            let whole = super::decimal::parse(&self.whole.to_string());
            let mut sum = super::decimal::add(decimal, whole.unwrap_or(crate::value::Decimal::NAN));
            if self.has_double {
                sum = super::decimal::add(sum, doubles);
            }
            return Value::Decimal(sum);
        }
        if self.has_double {
            return Value::Double(self.with_whole());
        }
        match (i32::try_from(self.whole), i64::try_from(self.whole)) {
            (Ok(n), _) if !self.has_long => Value::Int32(n),
            (_, Ok(n)) => Value::Int64(n),
            _ => Value::Double(self.with_whole()),
        }
    }

    #[allow(
        clippy::cast_precision_loss,
        reason = "a sum that is a double has a double's precision"
    )]
    fn with_whole(&self) -> f64 {
        let mut all = self.clone();
        all.add_double(self.whole as f64);
        if all.double.is_finite() { all.double + all.error } else { all.double }
    }
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
    Ok(average(&sum, count))
}

/// The mean; null of nothing.
pub(crate) fn average(sum: &Sum, count: i64) -> Value<'static> {
    if count == 0 { Value::Null } else { arithmetic::divide(sum.total(), Value::Int64(count)) }
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

/// Mean and spread in one pass (Welford).
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
