//! Functions over a partition as a series: derivatives, integrals, moving averages, filled gaps, scaling.

use super::{
    bounds::{Bounds, Frame},
    compute::{Partition, Step, Values, extremes, slide, value},
    removable::RunningIntegral,
};
use crate::{
    error::QueryError,
    expression::{
        Expr, add, as_decimal, decimal_add, decimal_mul, decimal_sub, decimal_to_f64, difference,
        divide, is_zero, multiply, subtract,
    },
    value::{Decimal, OwnedValue, Value, compare_values},
};

pub(super) fn derivative(
    partition: &Partition<'_>,
    input: &Expr,
    unit: Option<i64>,
    bounds: &Bounds,
) -> Values {
    let (times, positions) = (partition.sorted_by()?, partition.eval(input)?);
    let frames = partition.frames(bounds)?;
    let one = |frame: &Frame| -> Result<OwnedValue, QueryError> {
        let Some(last) = frame.end.checked_sub(1).filter(|last| frame.contains(last)) else {
            return Ok(Value::Null.into());
        };
        let (left, right) = (value(&times, frame.start), value(&times, last));
        let dates = matches!((left, right), (Value::Date(_), Value::Date(_)));
        let some_date = matches!(left, Value::Date(_)) || matches!(right, Value::Date(_));
        let fault = |code, text: &str| Err(QueryError::location(code, text));
        match unit {
            Some(_) if !dates => {
                return fault(
                    5_624_900,
                    "$derivative with 'unit' expects the sortBy field to be a Date",
                );
            }
            None if some_date => {
                return fault(
                    5_624_901,
                    "$derivative where the sortBy is a Date requires an 'unit'",
                );
            }
            None if !left.is_number() || !right.is_number() => {
                return fault(
                    5_624_902,
                    "$derivative (with no 'unit') expects the sortBy field to be numeric",
                );
            }
            _ => {}
        }
        let run = difference(right, left)?;
        let rise = difference(value(&positions, last), value(&positions, frame.start))?;
        if rise.is_nullish() {
            return fault(5_624_903, "$derivative input must not be null or missing");
        }
        // A single document has no distance to another.
        if is_zero(run) {
            return Ok(Value::Null.into());
        }
        let slope = divide(rise, run);
        Ok(match unit {
            None => slope.into(),
            Some(unit) => multiply(slope, Value::Int64(unit)).into(),
        })
    };
    frames.iter().map(one).collect()
}

pub(super) fn integral(
    partition: &Partition<'_>,
    input: &Expr,
    unit: Option<i64>,
    bounds: &Bounds,
) -> Values {
    let (xs, ys) = (partition.sorted_by()?, partition.eval(input)?);
    let mut running = RunningIntegral::new(unit);
    slide(partition, bounds, |step| {
        match step {
            Step::Enter(at) => {
                if let (Some(x), Some(y)) = (xs.get(at), ys.get(at)) {
                    running.add(x, y)?;
                }
            }
            Step::Leave(_) => running.remove_first()?,
            Step::Give => return running.value().map(|value| Some(value.into())),
        }
        Ok(None)
    })
}

pub(super) fn moving_average(
    values: &[OwnedValue],
    alpha: Decimal,
    decimal: &mut bool,
) -> Vec<OwnedValue> {
    let one = as_decimal(Value::Int32(1));
    let mut average: Option<Decimal> = None;
    values
        .iter()
        .map(|value| {
            let value = value.get();
            if value.is_number() {
                *decimal |= matches!(value, Value::Decimal(_));
                let n = as_decimal(value);
                average = Some(match average {
                    None => n,
                    Some(before) => decimal_add(
                        decimal_mul(n, alpha),
                        decimal_mul(before, decimal_sub(one, alpha)),
                    ),
                });
            }
            match average {
                None => Value::Null.into(),
                Some(average) if *decimal => Value::Decimal(average).into(),
                Some(average) => Value::Double(decimal_to_f64(average)).into(),
            }
        })
        .collect()
}

/// Fails, as in mongod, at the first document that cannot be filled; later documents are not checked, except the
/// value that ends a gap.
pub(super) fn linear_fill(partition: &Partition<'_>, input: &Expr) -> Values {
    let (xs, ys) = (partition.sorted_by()?, partition.eval(input)?);
    // For each document the next value at or after it, found from the end.
    let mut next = vec![None; ys.len()];
    let mut known = None;
    for (at, (place, y)) in next.iter_mut().zip(&ys).enumerate().rev() {
        if !y.get().is_nullish() {
            known = Some(at);
        }
        *place = known;
    }
    let mut before: Option<usize> = None;
    let mut filled = Vec::with_capacity(ys.len());
    for (at, y) in ys.iter().enumerate() {
        check_fillable(at.checked_sub(1).map(|at| value(&xs, at)), value(&xs, at), y.get())?;
        if !y.get().is_nullish() {
            before = Some(at);
            filled.push(y.clone());
            continue;
        }
        let after = next.get(at).copied().flatten();
        filled.push(match (before, after) {
            (Some(a), Some(b)) => interpolate(
                (value(&xs, a), value(&ys, a)),
                (value(&xs, b), value(&ys, b)),
                value(&xs, at),
            )?,
            _ => Value::Null.into(),
        });
    }
    Ok(filled)
}

/// Checks that a document's value `y`, sorted by `x` after `last`, can be part of a line.
fn check_fillable(last: Option<Value<'_>>, x: Value<'_>, y: Value<'_>) -> Result<(), QueryError> {
    let is_date =
        |v: Value<'_>| matches!(v, Value::Date(_) | Value::Timestamp(_) | Value::ObjectId(_));
    if !y.is_number() && !y.is_nullish() {
        return Err(QueryError::type_mismatch(format!(
            "Value to be filled must be numeric or nullish, but found {}",
            y.type_name()
        )));
    }
    if !x.is_number() && !is_date(x) {
        return Err(QueryError::type_mismatch(format!(
            "Value of the sortBy field must be numeric or a date, but found {}",
            x.type_name()
        )));
    }
    let Some(last) = last else { return Ok(()) };
    if compare_values(last, x, None).is_eq() {
        return Err(QueryError::location(
            6_050_106,
            "There can be no repeated values in the sort field in the same partition",
        ));
    }
    if last.is_number() != x.is_number() {
        return Err(QueryError::type_mismatch(format!(
            "Conflicting sort value types, previously received type {}, but found {}",
            last.type_name(),
            x.type_name()
        )));
    }
    Ok(())
}

fn interpolate(
    (x1, y1): (Value<'_>, Value<'_>),
    (x2, y2): (Value<'_>, Value<'_>),
    x: Value<'_>,
) -> Result<OwnedValue, QueryError> {
    let slope = divide(difference(y2, y1)?, difference(x2, x1)?);
    Ok(add(y1, multiply(difference(x, x1)?, slope)).into())
}

pub(super) fn scaled(
    partition: &Partition<'_>,
    input: &Expr,
    low: Value<'_>,
    high: Value<'_>,
    bounds: &Bounds,
) -> Values {
    let values = partition.eval(input)?;
    let not_number = |code, value: &OwnedValue| {
        let kind = value.get().type_name();
        QueryError::location(
            code,
            format!(
                "'input' argument to $minMaxScaler must evaluate to a numeric type, got: {kind}"
            ),
        )
    };
    if let (true, Some(other)) =
        (bounds.starts_at_first(), values.iter().find(|value| !value.get().is_number()))
    {
        let by_place = matches!(bounds, Bounds::Documents(..));
        return Err(not_number(if by_place { 10_487_001 } else { 10_487_004 }, other));
    }
    let (least, greatest) =
        (extremes(partition, &values, bounds, false)?, extremes(partition, &values, bounds, true)?);
    // If values leave the frame, they are checked one by one with the frame's content at that time.
    for ((current, least), greatest) in values.iter().zip(&least).zip(&greatest) {
        if !current.get().is_number() {
            return Err(not_number(10_487_000, current));
        }
        if [least, greatest].iter().any(|value| !value.get().is_number()) {
            return Err(QueryError::location(
                9_522_903,
                "min_max_scaler::MinAndMax must be provided with numeric Value types upon \
                 construction",
            ));
        }
    }
    let one = |((current, least), greatest): ((&OwnedValue, OwnedValue), OwnedValue)| {
        let (least, greatest) = (least.get(), greatest.get());
        if least.is_nullish() || compare_values(least, greatest, None).is_eq() {
            return OwnedValue::from(low);
        }
        let share = divide(subtract(current.get(), least), subtract(greatest, least));
        add(multiply(share, subtract(high, low)), low).into()
    };
    Ok(values.iter().zip(least).zip(greatest).map(one).collect())
}
