//! `$graphLookup`: follows references from document to document.

use std::collections::HashSet;

use super::{
    Parsed, StageContext, hash_key,
    join::run_on,
    plain::one,
    spec::{self, Spec, Takes, field},
    to_doc, unwind,
};
use crate::{
    Release,
    error::QueryError,
    exec::{Noted, Stage, Upstream},
    expression::{Bump, DocBuilder, Env, Expr, array_bytes},
    field_path,
    matcher::operands,
    value::{
        Elements, OwnedValue, Shown, Value,
        path::{LeafArrays, Path},
    },
};

/// Memory limit of one search, as in mongod.
const MEMORY_MAX: usize = 100 * 1024 * 1024;

#[derive(Debug)]
struct GraphLookup {
    namespace: String,
    start: Expr,
    from: Path,
    to: Vec<u8>,
    into: Vec<Box<[u8]>>,
    depth_max: Option<i64>,
    depth_field: Option<Vec<Box<[u8]>>>,
    restrict: Option<OwnedValue>,
    cx: StageContext,
}

fn specification(value: Value<'_>) -> Result<&[u8], QueryError> {
    match value {
        Value::Document(doc) => Ok(doc),
        other => Err(QueryError::failed_to_parse(format!(
            "the $graphLookup stage specification must be an object, but found {}",
            other.type_name()
        ))),
    }
}

/// Checks `from` before any stage of the pipeline is parsed.
pub(super) fn check_from(value: Value<'_>, _: Release) -> Result<(), QueryError> {
    let doc = specification(value)?;
    match Elements::of_bytes(doc).find(b"from").map(|field| field.value()) {
        Some(Value::String(_)) => Ok(()),
        Some(other) => Err(QueryError::failed_to_parse(format!(
            "$graphLookup 'from' field must be a string, but found {}",
            other.type_name()
        ))),
        None => Err(QueryError::failed_to_parse(format!(
            "missing 'from' option to $graphLookup stage specification: {}",
            Shown(value)
        ))),
    }
}

const NOT_STRING: &str = "expected string as argument for {field}, found: {type}";

static SPEC: Spec = Spec::new(
    "$graphLookup",
    &[
        field("from", Takes::String),
        field("as", Takes::String).otherwise(40_103, NOT_STRING),
        field("startWith", Takes::Any),
        field("connectFromField", Takes::String).otherwise(40_103, NOT_STRING),
        field("connectToField", Takes::String).otherwise(40_103, NOT_STRING),
        field("depthField", Takes::String).otherwise(40_103, NOT_STRING),
        field("maxDepth", Takes::Number)
            .otherwise(40_100, "maxDepth must be numeric, found type: {type}"),
        field("restrictSearchWithMatch", Takes::Object)
            .otherwise(40_185, "restrictSearchWithMatch must be an object, found {type}"),
    ],
)
.not_object(9, "the {stage} stage specification must be an object, but found {type}")
.unknown(40_104, "Unknown argument to {stage}: {field}")
.once();

fn max_depth(value: Value<'_>) -> Result<i64, QueryError> {
    match operands::integer("maxDepth", value) {
        Ok(depth) if depth < 0 => Err(QueryError::location(
            40_101,
            format!("maxDepth requires a nonnegative argument, found: {depth}"),
        )),
        Ok(depth) => Ok(depth),
        Err(_) => Err(QueryError::location(
            40_102,
            format!("maxDepth could not be represented as a long long: {}", Shown(value)),
        )),
    }
}

/// Parses `$graphLookup`.
pub(super) fn parse(value: Value<'_>, cx: &StageContext) -> Result<Parsed, QueryError> {
    let (mut from, mut into, mut start, mut path, mut to) = (None, None, None, None, None);
    let (mut depth_max, mut depth_field, mut restrict) = (None, None, None);
    SPEC.each(value, |name, value| {
        match name {
            "startWith" => start = Some(Expr::parse(value, &mut cx.scope.clone())?),
            "maxDepth" => depth_max = Some(max_depth(value)?),
            "restrictSearchWithMatch" => restrict = Some(OwnedValue::from(value)),
            "from" => from = spec::string(Some(value)),
            "as" => into = spec::string(Some(value)),
            "connectFromField" => path = spec::string(Some(value)),
            "connectToField" => to = spec::string(Some(value)),
            _ => depth_field = spec::string(Some(value)),
        }
        Ok(())
    })?;
    let (Some(from), Some(into), Some(start), Some(path), Some(to)) = (from, into, start, path, to)
    else {
        return Err(QueryError::location(
            40_105,
            "$graphLookup requires 'from', 'as', 'startWith', 'connectFromField', and 'connectToField' to be specified.",
        ));
    };
    for path in [into, path, to].into_iter().chain(depth_field) {
        field_path::check(path)?;
    }
    let split = |path: &[u8]| path.split(|&b| b == b'.').map(Box::from).collect::<Vec<_>>();
    one(GraphLookup {
        namespace: format!("{}.{}", cx.database, String::from_utf8_lossy(from)),
        start,
        from: Path::new(path),
        to: to.to_vec(),
        into: split(into),
        depth_max,
        depth_field: depth_field.map(split),
        restrict,
        cx: cx.inner()?,
    })
}

impl GraphLookup {
    fn search(&self, doc: &Noted, up: &Upstream<'_, '_>) -> Result<Vec<Vec<u8>>, QueryError> {
        let arena = Bump::new();
        let mut env = Env::over(&arena, up.context(), doc.seen());
        let collator = self.cx.parse.collator.as_deref();
        let mut frontier: Vec<OwnedValue> = match self.start.eval(&mut env)? {
            list @ Value::Array(_) => list.elements().map(|e| e.value().into()).collect(),
            Value::Missing => Vec::new(),
            value => vec![value.into()],
        };
        let mut asked: HashSet<Vec<u8>> = HashSet::new();
        let mut met: HashSet<Vec<u8>> = HashSet::new();
        let (mut found, mut bytes, mut depth) = (Vec::new(), 0, 0i64);
        loop {
            frontier.retain(|value| asked.insert(hash_key::of(value.get(), collator)));
            if frontier.is_empty() || self.depth_max.is_some_and(|max| depth > max) {
                return Ok(found);
            }
            up.context().check()?;
            let stage = self.level(&frontier);
            let pipeline = array_bytes([Value::Document(&stage)]);
            frontier.clear();
            for next in run_on(&self.namespace, Value::Array(&pipeline), up.context(), &self.cx)? {
                let id = Elements::new(&next).find(b"_id").map_or(Value::Missing, |e| e.value());
                if !met.insert(hash_key::of(id, collator)) {
                    continue;
                }
                self.from.any(next.as_bytes(), LeafArrays::Closed, |value| {
                    match value {
                        Value::Array(_) => {
                            frontier.extend(value.elements().map(|e| e.value().into()))
                        }
                        Value::Missing => {}
                        value => frontier.push(value.into()),
                    }
                    false
                });
                let shown = match &self.depth_field {
                    Some(path) => unwind::with(next.as_bytes(), path, Value::Int64(depth)),
                    None => next.as_bytes().to_vec(),
                };
                bytes += shown.len();
                found.push(shown);
            }
            if bytes > MEMORY_MAX {
                return Err(QueryError::location(
                    40_099,
                    "$graphLookup reached maximum memory consumption",
                ));
            }
            depth += 1;
        }
    }

    /// `{$match: {$and: [{to: {$in: values}}, {to: {$exists: true}}, restriction]}}`.
    fn level(&self, frontier: &[OwnedValue]) -> Vec<u8> {
        let list = array_bytes(frontier.iter().map(OwnedValue::get));
        let mut inside = DocBuilder::new();
        inside.push(b"$in", Value::Array(&list));
        let mut by_field = DocBuilder::new();
        by_field.push(&self.to, Value::Document(&inside.finish()));
        let by_field = by_field.finish();
        let restrict = self.restrict.iter().map(OwnedValue::get);
        // Null matches null, but not a missing field.
        let null = frontier.iter().any(|value| value.get().is_nullish());
        let there = null.then(|| {
            let exists = bson::rawdoc! { "$exists": true };
            let mut there = DocBuilder::new();
            there.push(&self.to, Value::Document(exists.as_bytes()));
            there.finish()
        });
        let there = there.iter().map(|there| Value::Document(there));
        let both =
            array_bytes([Value::Document(&by_field)].into_iter().chain(there).chain(restrict));
        let mut filter = DocBuilder::new();
        filter.push(b"$and", Value::Array(&both));
        let mut stage = DocBuilder::new();
        stage.push(b"$match", Value::Document(&filter.finish()));
        stage.finish()
    }
}

impl Stage for GraphLookup {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        let Some(doc) = up.pull()? else { return Ok(None) };
        let found = self.search(&doc, up)?;
        let list = array_bytes(found.iter().map(|doc| Value::Document(doc)));
        let joined = to_doc(unwind::with(doc.as_bytes(), &self.into, Value::Array(&list)))?;
        Ok(Some(doc.with(joined)))
    }
}
