//! `$bucket` and `$bucketAuto`.

use std::{
    cmp::Ordering,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use protocol::RawDoc;

use super::{
    Parsed, StageContext,
    accumulator::{Spec, State},
    granularity::Granularity,
    group::counted,
    plain::one,
    pushed,
    spec::{Spec as Fields, Takes, field},
    to_doc, unwind,
};
use crate::{
    collation::Collator,
    error::QueryError,
    exec::{Noted, Sort, Stage, Upstream},
    expression::{Bump, DocBuilder, Env, Expr},
    sort::{SortPart, SortPattern},
    value::{Elements, OwnedValue, Shown, Spelled, Value, compare_values, path::Path},
};

#[derive(Debug)]
struct Bucket {
    by: Expr,
    boundaries: Vec<OwnedValue>,
    default: Option<OwnedValue>,
    specs: Vec<Spec>,
    /// mongod's second execution engine (SBE) would run it.
    pushed: bool,
    collator: Option<Arc<Collator>>,
    done: Option<std::vec::IntoIter<RawDoc>>,
}

fn output(value: Value<'_>, cx: &StageContext) -> Result<Vec<Spec>, QueryError> {
    let mut scope = cx.scope.clone();
    value.elements().map(|field| Spec::parse(field.key, field.value(), &mut scope)).collect()
}

/// True for a path or an operator, as `groupBy` must be.
fn is_expression(value: Value<'_>) -> bool {
    match value {
        Value::Document(doc) => {
            Elements::of_bytes(doc).next().is_some_and(|field| field.key.starts_with(b"$"))
        }
        Value::String(text) => text.starts_with(b"$"),
        _ => false,
    }
}

fn constant(value: Value<'_>, cx: &StageContext) -> Option<OwnedValue> {
    let expr = Expr::parse(value, &mut cx.scope.clone()).ok()?;
    expr.as_literal().map(OwnedValue::from)
}

static BUCKET: Fields = Fields::new(
    "$bucket",
    &[
        field("groupBy", Takes::Any),
        field("boundaries", Takes::Array).otherwise(
            40_200,
            "The {stage} '{field}' field must be an array, but found type: {type}.",
        ),
        field("default", Takes::Any),
        field("output", Takes::Object).otherwise(
            40_196,
            "The {stage} '{field}' field must be an object, but found type: {type}.",
        ),
    ],
)
.not_object(40_201, "Argument to {stage} stage must be an object, but found type: {type}.")
.unknown(40_197, "Unrecognized option to {stage}: {field}.");

fn parse_default(value: Value<'_>, cx: &StageContext) -> Result<OwnedValue, QueryError> {
    constant(value, cx).ok_or_else(|| {
        QueryError::location(
            40_195,
            format!(
                "The $bucket 'default' field must be a constant expression, but found: {}.",
                Shown(value)
            ),
        )
    })
}

pub(super) fn parse(value: Value<'_>, cx: &StageContext) -> Result<Parsed, QueryError> {
    let (mut by, mut boundaries, mut default, mut specs) = (None, None, None, None);
    let mut pushed = cx.pushed;
    BUCKET.each(value, |name, value| {
        match name {
            "groupBy" if !is_expression(value) => {
                return Err(QueryError::location(
                    40_202,
                    format!(
                        "The $bucket 'groupBy' field must be defined as a $-prefixed path or an \
                         expression, but found: {}.",
                        Shown(value)
                    ),
                ));
            }
            "groupBy" => {
                pushed &= pushed::takes_expression(value);
                by = Some(Expr::parse(value, &mut cx.scope.clone())?);
            }
            "boundaries" => boundaries = Some(parse_boundaries(value, cx)?),
            "default" => default = Some(parse_default(value, cx)?),
            _ => {
                pushed &= value.elements().all(|e| pushed::takes_accumulator(e.value()));
                specs = Some(output(value, cx)?);
            }
        }
        Ok(())
    })?;
    let (Some(by), Some(boundaries)) = (by, boundaries) else {
        return Err(QueryError::location(
            40_198,
            "$bucket requires 'groupBy' and 'boundaries' to be specified.",
        ));
    };
    if let Some(default) = &default {
        let collator = cx.parse.collator.as_deref();
        let within = |v: &OwnedValue, edge: Option<&OwnedValue>, out: Ordering| {
            edge.is_some_and(|e| compare_values(v.get(), e.get(), collator) != out)
        };
        if within(default, boundaries.first(), Ordering::Less)
            && boundaries
                .last()
                .is_some_and(|e| compare_values(default.get(), e.get(), collator).is_lt())
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
    let collator = cx.parse.collator.clone();
    one(Bucket { by, boundaries, default, specs, pushed, collator, done: None })
}

fn parse_boundaries(value: Value<'_>, cx: &StageContext) -> Result<Vec<OwnedValue>, QueryError> {
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
    for (at, pair) in boundaries.windows(2).enumerate() {
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
        if compare_values(a.get(), b.get(), cx.parse.collator.as_deref()) != Ordering::Less {
            return Err(QueryError::location(
                40_194,
                format!(
                    "The 'boundaries' option to $bucket must be sorted, but elements {} and {} are not in ascending order ({} is not less than {}).",
                    at,
                    at + 1,
                    Spelled(a.get()),
                    Spelled(b.get())
                ),
            ));
        }
    }
    Ok(boundaries)
}

impl Stage for Bucket {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        if self.done.is_none() {
            self.done = Some(self.gather(up)?.into_iter());
        }
        Ok(self.done.as_mut().and_then(Iterator::next).map(Noted::from))
    }
}

impl Bucket {
    fn gather(&self, up: &mut Upstream<'_, '_>) -> Result<Vec<RawDoc>, QueryError> {
        // One entry for each interval, and one for the default.
        let mut buckets: Vec<Option<Vec<State>>> = Vec::new();
        buckets.resize_with(self.boundaries.len(), || None);
        while let Some(doc) = up.pull()? {
            let arena = Bump::new();
            let mut env = Env::over(&arena, up.context(), doc.seen());
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
        let collator = self.collator.as_deref();
        docs.sort_by(|a, b| compare_values(a.0.get(), b.0.get(), collator));
        Ok(docs.into_iter().map(|(_, doc)| doc).collect())
    }

    fn place(&self, value: Value<'_>) -> Result<usize, QueryError> {
        let collator = self.collator.as_deref();
        let below =
            self.boundaries.partition_point(|b| compare_values(b.get(), value, collator).is_le());
        let default = self.boundaries.len() - 1;
        match below.checked_sub(1) {
            Some(at) if at < default => Ok(at),
            _ if self.default.is_some() => Ok(default),
            _ => Err(QueryError::location(
                if self.pushed { 7_158_303 } else { 40_066 },
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

/// `$bucketAuto`, over documents sorted by the grouping value. They are counted on their way into the sort, which has
/// read all of them when it returns the first.
///
/// ```text
///   [tag with the value] -> [sort] -> [buckets, one after the other]
/// ```
#[derive(Debug)]
struct BucketAuto {
    granularity: Option<Granularity>,
    buckets: usize,
    specs: Vec<Spec>,
    collator: Option<Arc<Collator>>,
    count: Arc<AtomicUsize>,
    made: usize,
    begun: bool,
    /// The first document of the next bucket.
    ahead: Option<(OwnedValue, Noted)>,
    /// The end of the last bucket, by the granularity.
    edge: Option<OwnedValue>,
}

/// Appends the grouping value to the document and counts the document.
#[derive(Debug)]
struct Tag {
    by: Expr,
    checked: bool,
    count: Arc<AtomicUsize>,
}

/// The field that carries the value through the sort. The value is wrapped in a document, so that an array is not
/// expanded.
const TAG: &[u8] = b"__internal_bucketAuto_value";

impl Stage for Tag {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        let Some(doc) = up.pull()? else { return Ok(None) };
        let arena = Bump::new();
        let mut env = Env::over(&arena, up.context(), doc.seen());
        let value = match self.by.eval(&mut env)? {
            Value::Missing => Value::Null,
            value => value,
        };
        if self.checked {
            Granularity::check(value)?;
        }
        self.count.fetch_add(1, Relaxed);
        let mut tag = DocBuilder::new();
        tag.push(b"v", value);
        let tagged = unwind::with(doc.as_bytes(), &[TAG.into()], Value::Document(&tag.finish()));
        Ok(Some(doc.with(to_doc(tagged)?)))
    }
}

static AUTO: Fields = Fields::new(
    "$bucketAuto",
    &[
        field("groupBy", Takes::Any),
        field("buckets", Takes::Number).otherwise(
            40_241,
            "The {stage} '{field}' field must be a numeric value, but found type: {type}",
        ),
        field("output", Takes::Object).otherwise(
            40_244,
            "The {stage} '{field}' field must be an object, but found type: {type}",
        ),
        field("granularity", Takes::String).otherwise(
            40_261,
            "The {stage} '{field}' field must be a string, but found type: {type}",
        ),
    ],
)
.not_object(40_240, "The argument to {stage} must be an object, but found type: {type}")
.unknown(40_245, "Unrecognized option to {stage}: {field}");

fn how_many(value: Value<'_>) -> Result<usize, QueryError> {
    let n = crate::matcher::operands::integer("", value).ok().and_then(|n| i32::try_from(n).ok());
    let Some(n) = n else {
        return Err(QueryError::location(
            40_242,
            format!(
                "The $bucketAuto 'buckets' field must be representable as a 32-bit integer, but found {}",
                Shown(value)
            ),
        ));
    };
    usize::try_from(n).ok().filter(|n| *n > 0).ok_or_else(|| {
        QueryError::location(
            40_243,
            format!("The $bucketAuto 'buckets' field must be greater than 0, but found: {n}"),
        )
    })
}

pub(super) fn parse_auto(value: Value<'_>, cx: &StageContext) -> Result<Parsed, QueryError> {
    let (mut by, mut buckets, mut specs, mut granularity) = (None, None, None, None);
    AUTO.each(value, |name, value| {
        match (name, value) {
            ("groupBy", _) if !is_expression(value) => {
                return Err(QueryError::location(
                    40_239,
                    format!(
                        "The $bucketAuto 'groupBy' field must be defined as a $-prefixed path or an \
                         expression object, but found: {}",
                        Shown(value)
                    ),
                ));
            }
            ("groupBy", _) => by = Some(Expr::parse(value, &mut cx.scope.clone())?),
            ("buckets", _) => buckets = Some(how_many(value)?),
            (_, Value::String(name)) => {
                granularity = Some(Granularity::named(name).ok_or_else(|| {
                    QueryError::location(
                        40_257,
                        format!("Unknown rounding granularity '{}'", String::from_utf8_lossy(name)),
                    )
                })?);
            }
            _ => specs = Some(output(value, cx)?),
        }
        Ok(())
    })?;
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
    let count = Arc::new(AtomicUsize::new(0));
    let tag = Tag { by, checked: granularity.is_some(), count: Arc::clone(&count) };
    let parts = vec![SortPart { path: Path::new(TAG), ascending: true, note: None }];
    let collator = cx.parse.collator.clone();
    let sort = Sort::new(SortPattern { parts, collator: collator.clone() }, None);
    let auto = BucketAuto {
        granularity,
        buckets,
        specs,
        collator,
        count,
        made: 0,
        begun: false,
        ahead: None,
        edge: None,
    };
    Ok(Parsed::Other(vec![Box::new(tag), Box::new(sort), Box::new(auto)]))
}

impl Stage for BucketAuto {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        if !self.begun {
            self.begun = true;
            self.ahead = pull_tagged(up)?;
        }
        match self.ahead.take() {
            Some(first) if self.made < self.buckets => {
                self.made += 1;
                Ok(Some(self.bucket(first, up)?.into()))
            }
            _ => Ok(None),
        }
    }
}

/// The next document without its tag, and the tag's value.
fn pull_tagged(up: &mut Upstream<'_, '_>) -> Result<Option<(OwnedValue, Noted)>, QueryError> {
    let Some(doc) = up.pull()? else { return Ok(None) };
    let tag: [Box<[u8]>; 2] = [TAG.into(), b"v".as_slice().into()];
    let value = unwind::at(doc.as_bytes(), &tag).into();
    let untagged = to_doc(unwind::with(doc.as_bytes(), &[TAG.into()], Value::Missing))?;
    Ok(Some((value, doc.with(untagged))))
}

impl BucketAuto {
    /// Fills a bucket with its share of the documents, plus those that must not be separated from them.
    fn bucket(
        &mut self,
        first: (OwnedValue, Noted),
        up: &mut Upstream<'_, '_>,
    ) -> Result<RawDoc, QueryError> {
        let share = approximate(self.count.load(Relaxed), self.buckets);
        let is_last = self.made == self.buckets;
        let collator = self.collator.clone();
        let collator = collator.as_deref();
        let mut states = Vec::new();
        for spec in &self.specs {
            states.push(spec.start(up.context())?);
        }
        let (lowest, mut greatest) = (first.0.clone(), first.0.clone());
        let (mut taken, mut edge) = (0, None);
        let mut next = Some(first);
        while let Some((value, doc)) = next {
            if taken >= share && !is_last {
                let edge = edge.get_or_insert_with(|| self.edge_above(&greatest));
                let belongs = match edge {
                    // Zero has no boundary above it, so all zeros stay together.
                    Some(edge) if is_zero(edge) => is_zero(&value),
                    Some(edge) => compare_values(value.get(), edge.get(), collator).is_lt(),
                    None => compare_values(value.get(), greatest.get(), collator).is_eq(),
                };
                if !belongs {
                    self.ahead = Some((value, doc));
                    break;
                }
            }
            let arena = Bump::new();
            let mut env = Env::over(&arena, up.context(), doc.seen());
            for (spec, state) in self.specs.iter().zip(&mut states) {
                spec.add(state, &mut env, doc.as_bytes())?;
            }
            taken += 1;
            greatest = value;
            next = pull_tagged(up)?;
        }
        let edge = edge.unwrap_or_else(|| self.edge_above(&greatest));
        let (low, high) = self.ends(lowest, greatest, edge);
        let mut id = DocBuilder::new();
        id.push(b"min", low.get());
        id.push(b"max", high.get());
        finish(Value::Document(&id.finish()), &self.specs, &states)
    }

    fn edge_above(&self, greatest: &OwnedValue) -> Option<OwnedValue> {
        self.granularity.as_ref().map(|granularity| granularity.up(greatest.get()))
    }

    /// The boundaries of the bucket.
    fn ends(
        &mut self,
        lowest: OwnedValue,
        greatest: OwnedValue,
        edge: Option<OwnedValue>,
    ) -> (OwnedValue, OwnedValue) {
        let ahead = self.ahead.as_ref().map(|(value, _)| value);
        let (Some(granularity), Some(mut edge)) = (&self.granularity, edge) else {
            return (lowest, ahead.cloned().unwrap_or(greatest));
        };
        // A first bucket of zeros ends where the next one begins.
        if let (true, Some(ahead)) = (is_zero(&edge), ahead) {
            edge = granularity.down(ahead.get());
        }
        let low = match self.edge.take() {
            Some(edge) => edge,
            None if is_zero(&lowest) => lowest,
            None => granularity.down(lowest.get()),
        };
        self.edge = Some(edge.clone());
        (low, edge)
    }
}

fn is_zero(value: &OwnedValue) -> bool {
    compare_values(value.get(), Value::Int32(0), None).is_eq()
}

/// Documents per bucket: the count divided by the buckets, rounded, at least one.
fn approximate(count: usize, buckets: usize) -> usize {
    ((count + buckets / 2) / buckets).max(1)
}
