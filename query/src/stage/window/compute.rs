//! The values of a function for every document of a partition.

use std::collections::VecDeque;

use protocol::RawDoc;

use super::{
    bounds::{Bounds, Frame},
    function::{Function, Kind, Place},
    removable::{RunningCovariance, RunningDeviation, RunningIntegral, RunningMean, RunningSum},
};
use crate::{
    collation::Collator,
    context::Context,
    error::QueryError,
    expression::{
        Bump, Env, Expr, add, as_decimal, decimal_add, decimal_mul, decimal_sub, decimal_to_f64,
        difference, divide, is_zero, multiply, subtract,
    },
    sort::SortPattern,
    stage::accumulator::{Spec, State},
    value::{Decimal, OwnedValue, Value, compare_values},
};

type Values = Result<Vec<OwnedValue>, QueryError>;

/// The documents of a partition in their order.
pub(super) struct Partition<'p> {
    docs: &'p [RawDoc],
    context: &'p Context,
    collator: Option<&'p Collator>,
    sort_by: Option<&'p Expr>,
    sort: Option<&'p SortPattern>,
}

impl<'p> Partition<'p> {
    pub(super) fn new(
        docs: &'p [RawDoc],
        context: &'p Context,
        collator: Option<&'p Collator>,
        sort_by: Option<&'p Expr>,
        sort: Option<&'p SortPattern>,
    ) -> Self {
        Self { docs, context, collator, sort_by, sort }
    }

    /// An expression over every document.
    fn eval(&self, expr: &Expr) -> Values {
        let mut arena = Bump::new();
        let mut values = Vec::with_capacity(self.docs.len());
        for doc in self.docs {
            arena.reset();
            let mut env = Env::new(&arena, self.context, doc.as_bytes());
            env.collator = self.collator;
            values.push(expr.eval(&mut env)?.into());
        }
        Ok(values)
    }

    /// The values of the field that sorts.
    fn sorted_by(&self) -> Values {
        self.sort_by.map_or_else(|| Ok(Vec::new()), |expr| self.eval(expr))
    }

    fn frames(&self, bounds: &Bounds) -> Result<Vec<Frame>, QueryError> {
        let by = match bounds {
            Bounds::Documents(..) => Vec::new(),
            Bounds::Range { .. } => self.sorted_by()?,
        };
        bounds.frames(self.docs.len(), &by)
    }
}

impl Function {
    pub(super) fn over(&self, partition: &Partition<'_>) -> Values {
        match self {
            Self::Place(place) => places(*place, partition),
            Self::Shift { output, by, default } => {
                let values = partition.eval(output)?;
                Ok((0..values.len())
                    .map(|at| {
                        let at = i64::try_from(at).unwrap_or(i64::MAX).saturating_add(*by);
                        let found = usize::try_from(at).ok().and_then(|at| values.get(at));
                        let found = found.filter(|v| !matches!(v.get(), Value::Missing));
                        found.unwrap_or(default).clone()
                    })
                    .collect())
            }
            Self::Derivative { input, unit, bounds } => derivative(partition, input, *unit, bounds),
            Self::Integral { input, unit, bounds } => integral(partition, input, *unit, bounds),
            Self::ExpMovingAvg { input, alpha, decimal } => {
                // Once a decimal was met, mongod gives decimals in the partitions after it too.
                let mut met = decimal.get();
                let values = moving_average(&partition.eval(input)?, *alpha, &mut met);
                decimal.set(met);
                Ok(values)
            }
            Self::LinearFill(input) => linear_fill(partition, input),
            Self::Locf(input) => {
                let mut last = OwnedValue::from(Value::Null);
                let values = partition.eval(input)?.into_iter().map(|value| {
                    if !value.get().is_nullish() {
                        last = value;
                    }
                    last.clone()
                });
                Ok(values.collect())
            }
            Self::Covariance { input, sample, bounds } => {
                let values = partition.eval(input)?;
                let mut running = RunningCovariance::default();
                slide(partition, bounds, |step| {
                    match step {
                        Step::Enter(at) => running.add(value(&values, at))?,
                        Step::Leave(at) => running.remove(value(&values, at))?,
                        Step::Give => return Ok(Some(running.value(*sample).into())),
                    }
                    Ok(None)
                })
            }
            Self::MinMaxScaler { input, low, high, bounds } => {
                scaled(partition, input, low.get(), high.get(), bounds)
            }
            Self::Edge { input, last, bounds } => {
                let values = partition.eval(input)?;
                let at = |frame: &Frame| {
                    let at = if *last { frame.end.checked_sub(1)? } else { frame.start };
                    frame.contains(&at).then(|| values.get(at)).flatten()
                };
                let frames = partition.frames(bounds)?;
                let null = OwnedValue::from(Value::Null);
                Ok(frames.iter().map(|frame| present(at(frame).unwrap_or(&null))).collect())
            }
            Self::Accumulator { spec, kind, bounds } => accumulate(partition, spec, *kind, bounds),
        }
    }
}

fn present(value: &OwnedValue) -> OwnedValue {
    if matches!(value.get(), Value::Missing) { Value::Null.into() } else { value.clone() }
}

fn value(values: &[OwnedValue], at: usize) -> Value<'_> {
    values.get(at).map_or(Value::Missing, OwnedValue::get)
}

/// What happens to a running value from document to document.
enum Step {
    Enter(usize),
    Leave(usize),
    Give,
}

/// Moves a frame over the partition. A frame by places takes in before it lets go, one by values the
/// other way round.
fn slide(
    partition: &Partition<'_>,
    bounds: &Bounds,
    mut step: impl FnMut(Step) -> Result<Option<OwnedValue>, QueryError>,
) -> Values {
    let frames = partition.frames(bounds)?;
    let by_place = matches!(bounds, Bounds::Documents(..));
    let (mut from, mut end) = (0, 0);
    let mut values = Vec::with_capacity(frames.len());
    for frame in frames {
        if !by_place || frame.start > end {
            while from < frame.start.min(end) {
                step(Step::Leave(from))?;
                from += 1;
            }
        }
        // What lies between two frames that don't meet is never taken in.
        if frame.start > end {
            (from, end) = (frame.start, frame.start);
        }
        while end < frame.end {
            step(Step::Enter(end))?;
            end += 1;
        }
        while from < frame.start {
            step(Step::Leave(from))?;
            from += 1;
        }
        values.push(step(Step::Give)?.unwrap_or_else(|| Value::Null.into()));
    }
    Ok(values)
}

fn places(place: Place, partition: &Partition<'_>) -> Values {
    let Some(pattern) = partition.sort else { return Ok(Vec::new()) };
    let keys: Result<Vec<_>, _> =
        partition.docs.iter().map(|doc| pattern.key(doc.as_bytes())).collect();
    let keys = keys?;
    let (mut rank, mut dense) = (0i64, 0i64);
    let mut values = Vec::with_capacity(keys.len());
    for (at, key) in (1i64..).zip(&keys) {
        let before = usize::try_from(at - 2).ok().and_then(|at| keys.get(at));
        if !before.is_some_and(|before| pattern.compare(before, key).is_eq()) {
            rank = at;
            dense += 1;
        }
        let n = match place {
            Place::Rank => rank,
            Place::DenseRank => dense,
            Place::Number => at,
        };
        values.push(i32::try_from(n).map_or(Value::Int64(n), Value::Int32).into());
    }
    Ok(values)
}

fn derivative(
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
        // One document alone has no run.
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

fn integral(partition: &Partition<'_>, input: &Expr, unit: Option<i64>, bounds: &Bounds) -> Values {
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

fn moving_average(values: &[OwnedValue], alpha: Decimal, decimal: &mut bool) -> Vec<OwnedValue> {
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

fn linear_fill(partition: &Partition<'_>, input: &Expr) -> Values {
    let (xs, ys) = (partition.sorted_by()?, partition.eval(input)?);
    let is_date =
        |v: Value<'_>| matches!(v, Value::Date(_) | Value::Timestamp(_) | Value::ObjectId(_));
    let mut last: Option<Value<'_>> = None;
    for (x, y) in xs.iter().map(OwnedValue::get).zip(ys.iter().map(OwnedValue::get)) {
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
        if let Some(last) = last {
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
        }
        last = Some(x);
    }
    // The next value at or after each document, found from the end.
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

fn interpolate(
    (x1, y1): (Value<'_>, Value<'_>),
    (x2, y2): (Value<'_>, Value<'_>),
    x: Value<'_>,
) -> Result<OwnedValue, QueryError> {
    let slope = divide(subtract(y2, y1), difference(x2, x1)?);
    Ok(add(y1, multiply(difference(x, x1)?, slope)).into())
}

fn scaled(
    partition: &Partition<'_>,
    input: &Expr,
    low: Value<'_>,
    high: Value<'_>,
    bounds: &Bounds,
) -> Values {
    let values = partition.eval(input)?;
    if let Some(other) = values.iter().find(|v| !v.get().is_number()) {
        return Err(QueryError::location(
            if bounds.starts_at_first() { 10_487_001 } else { 10_487_000 },
            format!(
                "'input' argument to $minMaxScaler must evaluate to a numeric type, got: {}",
                other.get().type_name()
            ),
        ));
    }
    let (least, greatest) =
        (extremes(partition, &values, bounds, false)?, extremes(partition, &values, bounds, true)?);
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

/// The least or greatest value of each frame: those that can still become it wait in line.
fn extremes(
    partition: &Partition<'_>,
    values: &[OwnedValue],
    bounds: &Bounds,
    greatest: bool,
) -> Values {
    let mut line: VecDeque<usize> = VecDeque::new();
    slide(partition, bounds, |step| {
        match step {
            Step::Enter(at) => {
                let new = value(values, at);
                if new.is_nullish() {
                    return Ok(None);
                }
                while let Some(back) = line.back() {
                    let order = compare_values(value(values, *back), new, partition.collator);
                    let beaten = if greatest { order.is_lt() } else { order.is_gt() };
                    if !beaten {
                        break;
                    }
                    line.pop_back();
                }
                line.push_back(at);
            }
            Step::Leave(at) => {
                if line.front() == Some(&at) {
                    line.pop_front();
                }
            }
            Step::Give => {
                let front = line.front().map_or(Value::Null, |at| value(values, *at));
                return Ok(Some(front.into()));
            }
        }
        Ok(None)
    })
}

fn accumulate(partition: &Partition<'_>, spec: &Spec, kind: Kind, bounds: &Bounds) -> Values {
    let values = partition.eval(spec.input())?;
    let grows = bounds.starts_at_first();
    match kind {
        Kind::Sum if !grows => {
            let mut running = RunningSum::default();
            slide(partition, bounds, |step| {
                Ok(match step {
                    Step::Enter(at) => {
                        running.add(value(&values, at));
                        None
                    }
                    Step::Leave(at) => {
                        running.remove(value(&values, at));
                        None
                    }
                    Step::Give => Some(running.value().into()),
                })
            })
        }
        Kind::Avg if !grows => {
            let mut running = RunningMean::default();
            slide(partition, bounds, |step| {
                Ok(match step {
                    Step::Enter(at) => {
                        running.add(value(&values, at));
                        None
                    }
                    Step::Leave(at) => {
                        running.remove(value(&values, at));
                        None
                    }
                    Step::Give => Some(running.value().into()),
                })
            })
        }
        Kind::StdDev { sample } if !grows => {
            let mut running = RunningDeviation::default();
            slide(partition, bounds, |step| {
                Ok(match step {
                    Step::Enter(at) => {
                        running.update(value(&values, at), 1);
                        None
                    }
                    Step::Leave(at) => {
                        running.update(value(&values, at), -1);
                        None
                    }
                    Step::Give => Some(running.value(sample).into()),
                })
            })
        }
        Kind::Min if !grows => extremes(partition, &values, bounds, false),
        Kind::Max if !grows => extremes(partition, &values, bounds, true),
        _ => accumulate_anew(partition, spec, &values, bounds),
    }
}

/// With an accumulator that only takes in: as long as frames grow it goes on, else it begins anew.
fn accumulate_anew(
    partition: &Partition<'_>,
    spec: &Spec,
    values: &[OwnedValue],
    bounds: &Bounds,
) -> Values {
    let frames = partition.frames(bounds)?;
    let mut held: Option<(State, Frame)> = None;
    let mut last: Option<(Frame, OwnedValue)> = None;
    let mut found = Vec::with_capacity(frames.len());
    for frame in frames {
        if let Some((same, value)) = &last
            && *same == frame
        {
            found.push(value.clone());
            continue;
        }
        partition.context.check()?;
        let (mut state, from) = match held.take() {
            Some((state, before)) if before.start == frame.start && before.end <= frame.end => {
                (state, before.end)
            }
            _ => (spec.start(partition.context)?, frame.start),
        };
        for at in from..frame.end {
            let doc = partition.docs.get(at).map_or(&[][..], |doc| doc.as_bytes());
            spec.feed(&mut state, value(values, at), partition.collator, doc)?;
        }
        let value = spec.finish(&state);
        last = Some((frame.clone(), value.clone()));
        held = Some((state, frame));
        found.push(value);
    }
    Ok(found)
}
