//! Computes a window function for every document of a partition.

use std::collections::VecDeque;

use super::{
    bounds::{Bounds, Frame},
    function::{Function, Kind, Place},
    removable::{RunningCovariance, RunningDeviation, RunningMean, RunningSum},
    series::{derivative, integral, linear_fill, moving_average, scaled},
};
use crate::{
    collation::Collator,
    context::Context,
    error::QueryError,
    exec::Noted,
    expression::{Bump, Env, Expr, array_bytes},
    sort::SortPattern,
    stage::accumulator::{Spec, State},
    value::{OwnedValue, Value, compare_values},
};

pub(super) type Values = Result<Vec<OwnedValue>, QueryError>;

/// The sorted documents of a partition.
pub(super) struct Partition<'p> {
    docs: &'p [Noted],
    context: &'p Context,
    collator: Option<&'p Collator>,
    sort_by: Option<&'p Expr>,
    sort: Option<&'p SortPattern>,
}

impl<'p> Partition<'p> {
    pub(super) fn new(
        docs: &'p [Noted],
        context: &'p Context,
        collator: Option<&'p Collator>,
        sort_by: Option<&'p Expr>,
        sort: Option<&'p SortPattern>,
    ) -> Self {
        Self { docs, context, collator, sort_by, sort }
    }

    /// Evaluates an expression for every document.
    pub(super) fn eval(&self, expr: &Expr) -> Values {
        let mut arena = Bump::new();
        let mut values = Vec::with_capacity(self.docs.len());
        for doc in self.docs {
            arena.reset();
            let mut env = Env::over(&arena, self.context, doc.seen());
            env.collator = self.collator;
            values.push(expr.eval(&mut env)?.into());
        }
        Ok(values)
    }

    /// The values of the sort field.
    pub(super) fn sorted_by(&self) -> Values {
        self.sort_by.map_or_else(|| Ok(Vec::new()), |expr| self.eval(expr))
    }

    pub(super) fn frames(&self, bounds: &Bounds) -> Result<Vec<Frame>, QueryError> {
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
                // After mongod has met a decimal, it also returns decimals in later partitions.
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

pub(super) fn value(values: &[OwnedValue], at: usize) -> Value<'_> {
    values.get(at).map_or(Value::Missing, OwnedValue::get)
}

/// A change of a running value.
pub(super) enum Step {
    Enter(usize),
    Leave(usize),
    Give,
}

/// Moves a frame over the partition. Documents enter before others leave, except if consecutive frames do not
/// overlap.
pub(super) fn slide(
    partition: &Partition<'_>,
    bounds: &Bounds,
    mut step: impl FnMut(Step) -> Result<Option<OwnedValue>, QueryError>,
) -> Values {
    let frames = partition.frames(bounds)?;
    let (mut from, mut end) = (0, 0);
    let mut values = Vec::with_capacity(frames.len());
    for frame in frames {
        if frame.start > end {
            while from < end {
                step(Step::Leave(from))?;
                from += 1;
            }
        }
        // Documents between two frames that do not overlap are never added.
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

/// The minimum or maximum of each frame, with a queue of the values that can still become it.
pub(super) fn extremes(
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
                    // Of equal values the first is the minimum and the last the maximum, as in mongod.
                    let beaten = if greatest { order.is_le() } else { order.is_gt() };
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

/// A running value that values are added to and removed from as the frame moves.
fn running<R>(
    partition: &Partition<'_>,
    bounds: &Bounds,
    values: &[OwnedValue],
    mut so_far: R,
    enter: impl Fn(&mut R, Value<'_>),
    leave: impl Fn(&mut R, Value<'_>),
    give: impl Fn(&mut R) -> OwnedValue,
) -> Values {
    slide(partition, bounds, |step| {
        Ok(match step {
            Step::Enter(at) => {
                enter(&mut so_far, value(values, at));
                None
            }
            Step::Leave(at) => {
                leave(&mut so_far, value(values, at));
                None
            }
            Step::Give => Some(give(&mut so_far)),
        })
    })
}

fn accumulate(partition: &Partition<'_>, spec: &Spec, kind: Kind, bounds: &Bounds) -> Values {
    let values = partition.eval(spec.input())?;
    let grows = bounds.starts_at_first();
    match kind {
        Kind::Sum if !grows => {
            let (enter, leave) = (RunningSum::add, RunningSum::remove);
            let give = |sum: &mut RunningSum| sum.value().into();
            running(partition, bounds, &values, RunningSum::default(), enter, leave, give)
        }
        Kind::Avg if !grows => {
            let (enter, leave) = (RunningMean::add, RunningMean::remove);
            let give = |mean: &mut RunningMean| mean.value().into();
            running(partition, bounds, &values, RunningMean::default(), enter, leave, give)
        }
        Kind::StdDev { sample } if !grows => {
            let enter = |spread: &mut RunningDeviation, value: Value<'_>| spread.update(value, 1);
            let leave = |spread: &mut RunningDeviation, value: Value<'_>| spread.update(value, -1);
            let give = |spread: &mut RunningDeviation| spread.value(sample).into();
            running(partition, bounds, &values, RunningDeviation::default(), enter, leave, give)
        }
        Kind::Min if !grows => extremes(partition, &values, bounds, false),
        Kind::Max if !grows => extremes(partition, &values, bounds, true),
        // If values can leave again, the set is kept sorted.
        Kind::Set if !grows => {
            let sets = accumulate_anew(partition, spec, &values, bounds)?;
            Ok(sets.iter().map(|set| in_order(set.get(), partition.collator)).collect())
        }
        _ => accumulate_anew(partition, spec, &values, bounds),
    }
}

fn in_order(set: Value<'_>, collator: Option<&Collator>) -> OwnedValue {
    let mut values: Vec<_> = set.elements().map(|element| element.value()).collect();
    values.sort_by(|a, b| compare_values(*a, *b, collator));
    Value::Array(&array_bytes(values)).into()
}

/// Uses an accumulator that only supports adding: it continues while frames grow, and restarts otherwise.
fn accumulate_anew(
    partition: &Partition<'_>,
    spec: &Spec,
    values: &[OwnedValue],
    bounds: &Bounds,
) -> Values {
    if partition.docs.is_empty() {
        // An invalid `n` is an error even without documents.
        spec.start(partition.context)?;
    }
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
            _ => {
                let mut state = spec.start(partition.context)?;
                state.newest = !bounds.starts_at_first();
                (state, frame.start)
            }
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
