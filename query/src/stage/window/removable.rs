//! Sums and similar values from which a value can be removed, step by step as in mongod: rounding makes the order of
//! steps visible in the result.

use std::collections::VecDeque;

use crate::{
    error::QueryError,
    expression::{Sum, add, as_f64, difference, divide, multiply, quotient},
    matcher::truncate,
    value::{Decimal, OwnedValue, Value},
};

/// A running sum; values that would spoil it (NaN, infinities) are counted separately.
#[derive(Debug, Default)]
pub(super) struct RunningSum {
    sum: Sum,
    positive_infinite: i64,
    negative_infinite: i64,
    nan: i64,
    doubles: i64,
    decimals: i64,
}

impl RunningSum {
    pub(super) fn add(&mut self, value: Value<'_>) {
        self.update(value, 1);
    }

    pub(super) fn remove(&mut self, value: Value<'_>) {
        self.update(value, -1);
    }

    fn update(&mut self, value: Value<'_>, by: i64) {
        let n = match value {
            Value::Double(n) => {
                self.doubles += by;
                n
            }
            Value::Decimal(d) => {
                self.decimals += by;
                if d.is_finite() { 0.0 } else { as_f64(value) }
            }
            Value::Int32(_) | Value::Int64(_) => 0.0,
            _ => return,
        };
        if n.is_nan() {
            self.nan += by;
        } else if n == f64::INFINITY {
            self.positive_infinite += by;
        } else if n == f64::NEG_INFINITY {
            self.negative_infinite += by;
        } else if by > 0 {
            self.sum.add(value);
        } else {
            self.sum.subtract(value);
        }
    }

    pub(super) fn value(&self) -> Value<'static> {
        let decimal = self.decimals > 0;
        if self.nan > 0 || (self.positive_infinite > 0 && self.negative_infinite > 0) {
            return if decimal { Value::Decimal(Decimal::NAN) } else { Value::Double(f64::NAN) };
        }
        if self.positive_infinite > 0 {
            return if decimal {
                Value::Decimal(Decimal::INFINITY)
            } else {
                Value::Double(f64::INFINITY)
            };
        }
        if self.negative_infinite > 0 {
            return if decimal {
                Value::Decimal(Decimal::NEG_INFINITY)
            } else {
                Value::Double(f64::NEG_INFINITY)
            };
        }
        let mut total = self.sum.total();
        // If more decimals were removed than added, the sum stays a decimal, as in mongod.
        if self.decimals == 0 && matches!(total, Value::Decimal(_)) {
            total = Value::Double(as_f64(total));
        }
        // When no double is left, the sum becomes an integer again.
        match total {
            Value::Double(n) if self.doubles == 0 && !decimal => match truncate(n.round()) {
                Some(n) => i32::try_from(n).map_or(Value::Int64(n), Value::Int32),
                None => total,
            },
            _ => total,
        }
    }
}

/// A running mean.
#[derive(Debug, Default)]
pub(super) struct RunningMean {
    sum: RunningSum,
    count: i64,
}

impl RunningMean {
    pub(super) fn add(&mut self, value: Value<'_>) {
        if value.is_number() {
            self.sum.add(value);
            self.count += 1;
        }
    }

    pub(super) fn remove(&mut self, value: Value<'_>) {
        if value.is_number() {
            self.sum.remove(value);
            self.count -= 1;
        }
    }

    /// The mean; null if there are no values.
    pub(super) fn value(&self) -> Value<'static> {
        if self.count == 0 {
            return Value::Null;
        }
        let sum = self.sum.value();
        let finite = match sum {
            Value::Double(n) => n.is_finite(),
            Value::Decimal(n) => n.is_finite(),
            _ => true,
        };
        if finite { divide(sum, Value::Int64(self.count)) } else { sum }
    }
}

/// A running standard deviation.
#[derive(Debug, Default)]
pub(super) struct RunningDeviation {
    sum: Sum,
    squares: Sum,
    count: i64,
    not_finite: i64,
}

impl RunningDeviation {
    #[allow(clippy::cast_precision_loss, reason = "counts of documents are far below 2^53")]
    pub(super) fn update(&mut self, value: Value<'_>, by: i64) {
        if !value.is_number() {
            return;
        }
        let n = as_f64(value);
        let finite = match value {
            Value::Decimal(d) => d.is_finite(),
            _ => n.is_finite(),
        };
        if !finite {
            self.not_finite += by;
            return;
        }
        if self.count == 0 {
            self.count = 1;
            self.sum.add(value);
            return;
        }
        if self.count + by == 0 {
            *self = Self { not_finite: self.not_finite, ..Self::default() };
            return;
        }
        let x = self.count as f64 * n - as_f64(self.sum.total());
        self.count += by;
        let by_double = by as f64;
        self.sum.add(Value::Double(n * by_double));
        let share = (self.count * (self.count - by)) as f64;
        self.squares.add(Value::Double(x * x * by_double / share));
    }

    #[allow(clippy::cast_precision_loss, reason = "counts of documents are far below 2^53")]
    pub(super) fn value(&mut self, sample: bool) -> Value<'static> {
        if self.not_finite > 0 {
            return Value::Null;
        }
        let divisor = if sample { self.count - 1 } else { self.count };
        if divisor <= 0 {
            return Value::Null;
        }
        let squares = as_f64(self.squares.total());
        if squares < 0.0 || (!sample && self.count == 1) {
            self.squares = Sum::default();
            return Value::Int32(0);
        }
        Value::Double((squares / divisor as f64).sqrt())
    }
}

/// A running covariance.
#[derive(Debug, Default)]
pub(super) struct RunningCovariance {
    count: i64,
    mean_x: RunningMean,
    mean_y: RunningMean,
    products: RunningSum,
}

impl RunningCovariance {
    /// The two numbers of an input; other inputs are ignored.
    fn pair<'a>(value: Value<'a>) -> Option<(Value<'a>, Value<'a>)> {
        let Value::Array(_) = value else { return None };
        let mut elements = value.elements().map(|e| e.value());
        match (elements.next(), elements.next(), elements.next()) {
            (Some(x), Some(y), None) if x.is_number() && y.is_number() => Some((x, y)),
            _ => None,
        }
    }

    /// The contribution of an input that is not finite.
    fn not_finite(x: Value<'_>, y: Value<'_>) -> Option<Value<'static>> {
        let (a, b) = (as_f64(x), as_f64(y));
        let infinite = |v: Value<'_>, n: f64| match v {
            Value::Decimal(d) => !d.is_finite(),
            _ => !n.is_finite(),
        };
        if !infinite(x, a) && !infinite(y, b) {
            return None;
        }
        let decimal = matches!(x, Value::Decimal(_)) || matches!(y, Value::Decimal(_));
        let nan = a.is_nan() || b.is_nan() || (a.is_infinite() && b.is_infinite() && a != b);
        let positive = a == f64::INFINITY || b == f64::INFINITY;
        Some(match (decimal, nan, positive) {
            (true, true, _) => Value::Decimal(Decimal::NAN),
            (true, _, true) => Value::Decimal(Decimal::INFINITY),
            (true, ..) => Value::Decimal(Decimal::NEG_INFINITY),
            (_, true, _) => Value::Double(f64::NAN),
            (_, _, true) => Value::Double(f64::INFINITY),
            _ => Value::Double(f64::NEG_INFINITY),
        })
    }

    pub(super) fn add(&mut self, value: Value<'_>) -> Result<(), QueryError> {
        let Some((x, y)) = Self::pair(value) else { return Ok(()) };
        if let Some(infinite) = Self::not_finite(x, y) {
            self.products.add(infinite);
            return Ok(());
        }
        self.count += 1;
        let delta_x = difference(x, self.mean_x.value())?;
        self.mean_x.add(x);
        self.mean_y.add(y);
        let delta_y = difference(y, self.mean_y.value())?;
        // The first pair has no mean to differ from.
        if !delta_x.is_nullish() {
            self.products.add(multiply(delta_x, delta_y));
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, value: Value<'_>) -> Result<(), QueryError> {
        let Some((x, y)) = Self::pair(value) else { return Ok(()) };
        if let Some(infinite) = Self::not_finite(x, y) {
            self.products.remove(infinite);
            return Ok(());
        }
        self.count -= 1;
        if self.count == 0 {
            *self = Self::default();
            return Ok(());
        }
        self.mean_x.remove(x);
        let delta_x = difference(x, self.mean_x.value())?;
        let delta_y = difference(y, self.mean_y.value())?;
        self.products.remove(multiply(delta_x, delta_y));
        self.mean_y.remove(y);
        Ok(())
    }

    #[allow(clippy::cast_precision_loss, reason = "counts of documents are far below 2^53")]
    pub(super) fn value(&self, sample: bool) -> Value<'static> {
        if self.count == 1 && !sample {
            return Value::Double(0.0);
        }
        let divisor = if sample { self.count - 1 } else { self.count };
        if divisor <= 0 {
            return Value::Null;
        }
        divide(self.products.value(), Value::Double(divisor as f64))
    }
}

/// A running integral: the area by trapezoids between adjacent points.
#[derive(Debug)]
pub(super) struct RunningIntegral {
    points: VecDeque<(OwnedValue, OwnedValue)>,
    area: RunningSum,
    nan: i64,
    /// Milliseconds per unit.
    unit: Option<i64>,
}

impl RunningIntegral {
    pub(super) fn new(unit: Option<i64>) -> Self {
        Self { points: VecDeque::new(), area: RunningSum::default(), nan: 0, unit }
    }

    fn check(&self, x: Value<'_>, y: Value<'_>) -> Result<(), QueryError> {
        if !y.is_number() || !(x.is_number() || matches!(x, Value::Date(_))) {
            return Err(QueryError::location(
                5_423_900,
                "The input value of $integral window function must be a vector of 2 value, the \
                 first value must be numeric or date type and the second must be numeric.",
            ));
        }
        match (self.unit, x) {
            (Some(_), Value::Date(_)) => Ok(()),
            (Some(_), _) => Err(QueryError::location(
                5_423_901,
                "$integral with 'unit' expects the sortBy field to be a Date",
            )),
            (None, Value::Date(_)) => Err(QueryError::location(
                5_423_902,
                "$integral (with no 'unit') expects the sortBy field to be numeric",
            )),
            (None, _) => Ok(()),
        }
    }

    pub(super) fn add(&mut self, x: &OwnedValue, y: &OwnedValue) -> Result<(), QueryError> {
        self.check(x.get(), y.get())?;
        self.nan += i64::from(is_nan(x.get()) || is_nan(y.get()));
        if let Some((x0, y0)) = self.points.back() {
            self.area.add(trapezoid(x0.get(), y0.get(), x.get(), y.get())?);
        }
        self.points.push_back((x.clone(), y.clone()));
        Ok(())
    }

    pub(super) fn remove_first(&mut self) -> Result<(), QueryError> {
        let Some((x, y)) = self.points.pop_front() else { return Ok(()) };
        self.nan -= i64::from(is_nan(x.get()) || is_nan(y.get()));
        if let Some((x1, y1)) = self.points.front() {
            self.area.remove(trapezoid(x.get(), y.get(), x1.get(), y1.get())?);
        }
        Ok(())
    }

    pub(super) fn value(&self) -> Result<Value<'static>, QueryError> {
        if self.points.is_empty() {
            return Ok(Value::Null);
        }
        if self.nan > 0 {
            return Ok(Value::Double(f64::NAN));
        }
        match self.unit {
            None => Ok(self.area.value()),
            Some(unit) => quotient(self.area.value(), Value::Int64(unit)),
        }
    }
}

fn is_nan(value: Value<'_>) -> bool {
    value.is_number() && as_f64(value).is_nan()
}

fn trapezoid(
    x0: Value<'_>,
    y0: Value<'_>,
    x1: Value<'_>,
    y1: Value<'_>,
) -> Result<Value<'static>, QueryError> {
    if [x0, y0, x1, y1].into_iter().any(is_nan) {
        return Ok(Value::Int32(0));
    }
    let same = x0.is_number() == x1.is_number();
    if !same {
        return Ok(Value::Int32(0));
    }
    let width = difference(x1, x0)?;
    let heights = add(y1, y0);
    Ok(divide(multiply(heights, width), Value::Double(2.0)).detached())
}
