//! `$bucket` and `$bucketAuto`.

use std::cmp::Ordering;

use protocol::RawDoc;

use super::{
    Parsed, StageContext,
    accumulator::{Spec, State},
    granularity::Granularity,
    group::counted,
    table::one,
    to_doc,
};
use crate::{
    error::QueryError,
    exec::{Stage, Upstream},
    expression::{Bump, DocBuilder, Env, Expr},
    value::{Elements, OwnedValue, Shown, Value, compare_values},
};

#[derive(Debug)]
struct Bucket {
    by: Expr,
    boundaries: Vec<OwnedValue>,
    default: Option<OwnedValue>,
    specs: Vec<Spec>,
    done: Option<std::vec::IntoIter<RawDoc>>,
}

fn output(value: Value<'_>, cx: &StageContext) -> Result<Vec<Spec>, QueryError> {
    let Value::Document(doc) = value else {
        return Err(QueryError::location(
            40_196,
            format!(
                "The $bucket 'output' field must be an object, but found type: {}.",
                value.type_name()
            ),
        ));
    };
    let mut scope = cx.scope.clone();
    Elements::of_bytes(doc).map(|f| Spec::parse(f.key, f.value(), &mut scope)).collect()
}

fn constant(value: Value<'_>, cx: &StageContext) -> Option<OwnedValue> {
    let expr = Expr::parse(value, &mut cx.scope.clone()).ok()?;
    expr.as_literal().map(OwnedValue::from)
}

pub(super) fn parse(value: Value<'_>, cx: &StageContext) -> Result<Parsed, QueryError> {
    let Value::Document(doc) = value else {
        return Err(QueryError::location(
            40_201,
            format!(
                "Argument to $bucket stage must be an object, but found type: {}.",
                value.type_name()
            ),
        ));
    };
    let (mut by, mut boundaries, mut default, mut specs) = (None, None, None, None);
    for field in Elements::of_bytes(doc) {
        match field.key {
            b"groupBy" => by = Some(Expr::parse(field.value(), &mut cx.scope.clone())?),
            b"boundaries" => boundaries = Some(parse_boundaries(field.value(), cx)?),
            b"default" => {
                default = Some(constant(field.value(), cx).ok_or_else(|| {
                    QueryError::location(40_195, format!("The $bucket 'default' field must be a constant expression, but found: {}.", Shown(field.value())))
                })?);
            }
            b"output" => specs = Some(output(field.value(), cx)?),
            other => {
                return Err(QueryError::location(
                    40_197,
                    format!("Unrecognized option to $bucket: {}.", String::from_utf8_lossy(other)),
                ));
            }
        }
    }
    let (Some(by), Some(boundaries)) = (by, boundaries) else {
        return Err(QueryError::location(
            40_198,
            "$bucket requires 'groupBy' and 'boundaries' to be specified.",
        ));
    };
    if let Some(default) = &default {
        let within = |v: &OwnedValue, edge: Option<&OwnedValue>, out: Ordering| {
            edge.is_some_and(|e| compare_values(v.get(), e.get(), None) != out)
        };
        if within(default, boundaries.first(), Ordering::Less)
            && boundaries
                .last()
                .is_some_and(|e| compare_values(default.get(), e.get(), None).is_lt())
        {
            return Err(QueryError::location(
                40_199,
                "The $bucket 'default' field must be less than the lowest boundary or greater than or equal to the highest boundary.",
            ));
        }
    }
    let specs = match specs {
        Some(specs) => specs,
        None => vec![counted(b"count")?],
    };
    one(Bucket { by, boundaries, default, specs, done: None })
}

fn parse_boundaries(value: Value<'_>, cx: &StageContext) -> Result<Vec<OwnedValue>, QueryError> {
    let Value::Array(_) = value else {
        return Err(QueryError::location(
            40_200,
            format!(
                "The $bucket 'boundaries' field must be an array, but found type: {}.",
                value.type_name()
            ),
        ));
    };
    let mut boundaries: Vec<OwnedValue> = Vec::new();
    for element in value.elements() {
        boundaries.push(constant(element.value(), cx).ok_or_else(|| {
            QueryError::location(40_191, format!("The $bucket 'boundaries' field must be an array of constant values, but found value: {}.", Shown(element.value())))
        })?);
    }
    if boundaries.len() < 2 {
        return Err(QueryError::location(
            40_192,
            format!(
                "The $bucket 'boundaries' field must have at least 2 values, but found {} value(s).",
                boundaries.len()
            ),
        ));
    }
    for pair in boundaries.windows(2) {
        let [a, b] = pair else { continue };
        if a.get().type_rank() != b.get().type_rank() {
            return Err(QueryError::location(
                40_193,
                format!(
                    "All values in the the 'boundaries' option to $bucket must have the same type. Found conflicting types {} and {}.",
                    a.get().type_name(),
                    b.get().type_name()
                ),
            ));
        }
        if compare_values(a.get(), b.get(), None) != Ordering::Less {
            return Err(QueryError::location(
                40_194,
                format!(
                    "The 'boundaries' option to $bucket must be sorted, but elements {} and {} are not in ascending order ({} is not less than {}).",
                    0,
                    1,
                    Shown(a.get()),
                    Shown(b.get())
                ),
            ));
        }
    }
    Ok(boundaries)
}

impl Stage for Bucket {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<RawDoc>, QueryError> {
        if self.done.is_none() {
            self.done = Some(self.gather(up)?.into_iter());
        }
        Ok(self.done.as_mut().and_then(Iterator::next))
    }
}

impl Bucket {
    fn gather(&self, up: &mut Upstream<'_, '_>) -> Result<Vec<RawDoc>, QueryError> {
        // One place for each interval, and one for the default.
        let mut buckets: Vec<Option<Vec<State>>> = Vec::new();
        buckets.resize_with(self.boundaries.len(), || None);
        while let Some(doc) = up.pull()? {
            let arena = Bump::new();
            let mut env = Env::new(&arena, up.context(), doc.as_bytes());
            let value = self.by.eval(&mut env)?;
            let at = self.place(value)?;
            let Some(bucket) = buckets.get_mut(at) else { continue };
            if bucket.is_none() {
                let states: Result<Vec<_>, _> =
                    self.specs.iter().map(|spec| spec.start(up.context())).collect();
                *bucket = Some(states?);
            }
            for (spec, state) in self.specs.iter().zip(bucket.iter_mut().flatten()) {
                spec.add(state, &mut env, doc.as_bytes())?;
            }
        }
        let mut docs: Vec<(OwnedValue, RawDoc)> = Vec::new();
        for (at, states) in buckets.iter().enumerate() {
            let id = if at + 1 == self.boundaries.len() {
                self.default.as_ref()
            } else {
                self.boundaries.get(at)
            };
            if let (Some(states), Some(id)) = (states, id) {
                docs.push((id.clone(), finish(id.get(), &self.specs, states)?));
            }
        }
        docs.sort_by(|a, b| compare_values(a.0.get(), b.0.get(), None));
        Ok(docs.into_iter().map(|(_, doc)| doc).collect())
    }

    fn place(&self, value: Value<'_>) -> Result<usize, QueryError> {
        let below =
            self.boundaries.partition_point(|b| compare_values(b.get(), value, None).is_le());
        let default = self.boundaries.len() - 1;
        match below.checked_sub(1) {
            Some(at) if at < default => Ok(at),
            _ if self.default.is_some() => Ok(default),
            _ => Err(QueryError::location(
                7_158_303,
                "$switch could not find a matching branch for an input, and no default was specified.",
            )),
        }
    }
}

fn finish(id: Value<'_>, specs: &[Spec], states: &[State]) -> Result<RawDoc, QueryError> {
    let mut doc = DocBuilder::new();
    doc.push(b"_id", id);
    for (spec, state) in specs.iter().zip(states) {
        doc.push(&spec.name, spec.finish(state).get());
    }
    to_doc(doc.finish())
}

#[derive(Debug)]
struct BucketAuto {
    by: Expr,
    granularity: Option<Granularity>,
    buckets: usize,
    specs: Vec<Spec>,
    done: Option<std::vec::IntoIter<RawDoc>>,
}

pub(super) fn parse_auto(value: Value<'_>, cx: &StageContext) -> Result<Parsed, QueryError> {
    let Value::Document(doc) = value else {
        return Err(QueryError::location(
            40_240,
            format!(
                "The argument to $bucketAuto must be an object, but found type: {}",
                value.type_name()
            ),
        ));
    };
    let (mut by, mut buckets, mut specs) = (None, None, None);
    let mut granularity = None;
    for field in Elements::of_bytes(doc) {
        match field.key {
            b"groupBy" => by = Some(Expr::parse(field.value(), &mut cx.scope.clone())?),
            b"buckets" => {
                if !field.value().is_number() {
                    return Err(QueryError::location(
                        40_241,
                        format!(
                            "The $bucketAuto 'buckets' field must be a numeric value, but found type: {}",
                            field.value().type_name()
                        ),
                    ));
                }
                let n = crate::matcher::operands::integer("", field.value())
                    .ok()
                    .and_then(|n| i32::try_from(n).ok());
                let Some(n) = n else {
                    return Err(QueryError::location(
                        40_242,
                        format!(
                            "The $bucketAuto 'buckets' field must be representable as a 32-bit integer, but found {}",
                            Shown(field.value())
                        ),
                    ));
                };
                let Some(n) = usize::try_from(n).ok().filter(|n| *n > 0) else {
                    return Err(QueryError::location(
                        40_243,
                        format!(
                            "The $bucketAuto 'buckets' field must be greater than 0, but found: {n}"
                        ),
                    ));
                };
                buckets = Some(n);
            }
            b"output" => specs = Some(output(field.value(), cx)?),
            b"granularity" => {
                let Value::String(name) = field.value() else {
                    return Err(QueryError::location(
                        40_261,
                        format!(
                            "The $bucketAuto 'granularity' field must be a string, but found type: {}",
                            field.value().type_name()
                        ),
                    ));
                };
                granularity = Some(Granularity::named(name).ok_or_else(|| {
                    QueryError::location(
                        40_257,
                        format!("Unknown rounding granularity '{}'", String::from_utf8_lossy(name)),
                    )
                })?);
            }
            other => {
                return Err(QueryError::location(
                    40_245,
                    format!(
                        "Unrecognized option to $bucketAuto: {}",
                        String::from_utf8_lossy(other)
                    ),
                ));
            }
        }
    }
    let (Some(by), Some(buckets)) = (by, buckets) else {
        return Err(QueryError::location(
            40_246,
            "$bucketAuto requires 'groupBy' and 'buckets' to be specified",
        ));
    };
    let specs = match specs {
        Some(specs) => specs,
        None => vec![counted(b"count")?],
    };
    one(BucketAuto { by, granularity, buckets, specs, done: None })
}

impl Stage for BucketAuto {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<RawDoc>, QueryError> {
        if self.done.is_none() {
            self.done = Some(self.gather(up)?.into_iter());
        }
        Ok(self.done.as_mut().and_then(Iterator::next))
    }
}

impl BucketAuto {
    fn gather(&self, up: &mut Upstream<'_, '_>) -> Result<Vec<RawDoc>, QueryError> {
        let mut all: Vec<(OwnedValue, RawDoc)> = Vec::new();
        while let Some(doc) = up.pull()? {
            let arena = Bump::new();
            let mut env = Env::new(&arena, up.context(), doc.as_bytes());
            let value = match self.by.eval(&mut env)? {
                Value::Missing => OwnedValue::from(Value::Null),
                value => value.into(),
            };
            if self.granularity.is_some() {
                Granularity::check(value.get())?;
            }
            all.push((value, doc));
        }
        all.sort_by(|a, b| compare_values(a.0.get(), b.0.get(), None));
        // Equal values are never parted; each bucket takes its share of what is left.
        let mut cuts: Vec<&[(OwnedValue, RawDoc)]> = Vec::new();
        let mut rest = all.as_slice();
        let share = approximate(all.len(), self.buckets);
        let mut edges: Vec<OwnedValue> = Vec::new();
        while !rest.is_empty() && cuts.len() < self.buckets {
            let last = cuts.len() + 1 == self.buckets;
            let mut take = if last { rest.len() } else { share.min(rest.len()) };
            match (&self.granularity, rest.get(take - 1)) {
                (Some(granularity), Some((greatest, _))) => {
                    let mut edge = granularity.up(greatest.get());
                    let below = |(value, _): &(OwnedValue, RawDoc)| {
                        compare_values(value.get(), edge.get(), None).is_lt()
                    };
                    take += rest
                        .get(take..)
                        .unwrap_or_default()
                        .iter()
                        .take_while(|v| below(v))
                        .count();
                    // A first bucket of zeros ends where the next one begins.
                    let zero = compare_values(edge.get(), Value::Int32(0), None).is_eq();
                    if let (true, Some((next, _))) = (zero, rest.get(take)) {
                        edge = granularity.down(next.get());
                    }
                    edges.push(edge);
                }
                _ => {
                    while take < rest.len() && same(rest.get(take - 1), rest.get(take)) {
                        take += 1;
                    }
                }
            }
            let Some((bucket, after)) = rest.split_at_checked(take) else { break };
            cuts.push(bucket);
            rest = after;
        }
        (0..cuts.len()).map(|at| self.bucket(&cuts, &edges, at, up)).collect()
    }

    fn bucket(
        &self,
        cuts: &[&[(OwnedValue, RawDoc)]],
        edges: &[OwnedValue],
        at: usize,
        up: &Upstream<'_, '_>,
    ) -> Result<RawDoc, QueryError> {
        let docs = cuts.get(at).copied().unwrap_or_default();
        let first = docs.first().map_or(Value::Null, |(v, _)| v.get());
        let next = cuts.get(at + 1).and_then(|d| d.first()).map(|(v, _)| v.get());
        let last = next.or_else(|| docs.last().map(|(v, _)| v.get())).unwrap_or(Value::Null);
        let (low, high) = match &self.granularity {
            None => (OwnedValue::from(first), OwnedValue::from(last)),
            Some(granularity) => {
                let is_zero = compare_values(first, Value::Int32(0), None).is_eq();
                let low = match at.checked_sub(1).and_then(|before| edges.get(before)) {
                    Some(edge) => edge.clone(),
                    None if is_zero => first.into(),
                    None => granularity.down(first),
                };
                (low, edges.get(at).cloned().unwrap_or_else(|| last.into()))
            }
        };
        let mut states: Vec<State> = Vec::new();
        for (_, doc) in docs {
            let arena = Bump::new();
            let mut env = Env::new(&arena, up.context(), doc.as_bytes());
            if states.is_empty() {
                for spec in &self.specs {
                    states.push(spec.start(up.context())?);
                }
            }
            for (spec, state) in self.specs.iter().zip(&mut states) {
                spec.add(state, &mut env, doc.as_bytes())?;
            }
        }
        let mut id = DocBuilder::new();
        id.push(b"min", low.get());
        id.push(b"max", high.get());
        finish(Value::Document(&id.finish()), &self.specs, &states)
    }
}

fn same(a: Option<&(OwnedValue, RawDoc)>, b: Option<&(OwnedValue, RawDoc)>) -> bool {
    matches!((a, b), (Some(a), Some(b)) if compare_values(a.0.get(), b.0.get(), None).is_eq())
}

/// Documents for each bucket: the count divided, rounded to the nearest, at least one.
fn approximate(count: usize, buckets: usize) -> usize {
    ((count + buckets / 2) / buckets).max(1)
}
