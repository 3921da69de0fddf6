//! Stages that run pipelines over other collections: `$lookup`, `$unionWith`.

use std::collections::VecDeque;

use protocol::RawDoc;

use super::{
    NoSource, Over, Parsed, StageContext, StageRow, check_part, drain, named, parse, parse_inner,
    plain::one,
    plan,
    row::Place,
    spec::{self, Spec, Takes, field},
    to_doc, unwind,
};
use crate::{
    Release,
    context::Context,
    error::QueryError,
    exec::{Noted, Stage, Upstream},
    expression::{Bump, DocBuilder, Env, Expr, array_bytes},
    value::{
        Elements, OwnedValue, Shown, Value,
        path::{LeafArrays, Path},
    },
};

/// Runs a pipeline over another collection. It is kept as BSON and parsed for each run, because stages have state.
pub(super) fn run_on(
    namespace: &str,
    pipeline: Value<'_>,
    context: &Context,
    cx: &StageContext,
) -> Result<Vec<RawDoc>, QueryError> {
    let view = match &context.collections {
        Some(collections) => collections.view(namespace)?,
        None => None,
    };
    if let Some((on, stages)) = view {
        let all = Value::Array(&stages).elements().chain(pipeline.elements());
        let whole = array_bytes(all.map(|stage| stage.value()));
        return run_on(&on, Value::Array(&whole), context, cx);
    }
    let parsed = parse(pipeline, cx)?;
    let opened = match &context.collections {
        Some(collections) => collections.open(namespace)?,
        None => None,
    };
    match opened {
        Some(source) => {
            let mut pipeline = plan(parsed, &*source, context, cx)?;
            drain(&mut pipeline, &*source, context).map(|(docs, _)| docs)
        }
        None => {
            let mut pipeline = plan(parsed, &NoSource, context, cx)?;
            drain(&mut pipeline, &NoSource, context).map(|(docs, _)| docs)
        }
    }
}

#[derive(Debug)]
struct Lookup {
    namespace: String,
    into: Vec<Box<[u8]>>,
    equality: Option<(Path, Vec<u8>)>,
    variables: Vec<(Box<[u8]>, Expr)>,
    pipeline: OwnedValue,
    cx: StageContext,
}

/// The error for a `from` with a database, which only mongod itself may use.
fn elsewhere(from: &[u8]) -> QueryError {
    static SPEC: Spec =
        Spec::new("from", &[field("db", Takes::String), field("coll", Takes::String)]);
    let [db, coll] = match SPEC.read(Value::Document(from)) {
        Ok(named) => named.map(|name| spec::string(name).unwrap_or_default()),
        Err(error) => return error,
    };
    let (db, coll) = (String::from_utf8_lossy(db), String::from_utf8_lossy(coll));
    QueryError::failed_to_parse(format!(
        "$lookup with syntax {{from: {{db:<>, coll:<>}},..}} is not supported for db: {db} and \
         coll: {coll}"
    ))
}

const NO_PIPELINE: &str = "A pipeline must be an array of objects";

static LOOKUP: Spec = Spec::new(
    "$lookup",
    &[
        field("from", Takes::String),
        field("as", Takes::String).or_null(),
        field("localField", Takes::String).or_null(),
        field("foreignField", Takes::String).or_null(),
        field("let", Takes::Object).or_null(),
        field("pipeline", Takes::Array).otherwise(14, NO_PIPELINE),
    ],
)
.not_object(9, "the {stage} stage specification must be an object, but found {type}")
.once();

/// Parses `$lookup`.
pub(super) fn parse_lookup(value: Value<'_>, cx: &StageContext) -> Result<Parsed, QueryError> {
    let (mut from, mut into, mut local, mut foreign) = (None, None, None, None);
    let mut variables: Vec<(Box<[u8]>, Expr)> = Vec::new();
    let mut pipeline = None;
    LOOKUP.each(value, |name, value| {
        match name {
            "let" => {
                for var in value.elements() {
                    // If a constant fails, the error is raised when the join runs.
                    let mut scope = cx.apart().scope;
                    variables.push((var.key.into(), Expr::parse(var.value(), &mut scope)?));
                }
            }
            "pipeline" => pipeline = Some(value),
            "from" => from = spec::string(Some(value)),
            "as" => into = spec::string(Some(value)),
            "localField" => local = spec::string(Some(value)),
            _ => foreign = spec::string(Some(value)),
        }
        Ok(())
    })?;
    if from.is_none() {
        let Some(pipeline) = pipeline else {
            let text = "must specify 'pipeline' when 'from' is empty";
            return Err(QueryError::failed_to_parse(text));
        };
        brings_documents("$lookup", pipeline)?;
    }
    let into = into.ok_or_else(|| LOOKUP.missing("as"))?;
    if cx.scope.release < Release::V5_0
        && pipeline.is_some()
        && (local.is_some() || foreign.is_some())
    {
        let text = "$lookup with 'pipeline' may not specify 'localField' or 'foreignField'";
        return Err(QueryError::failed_to_parse(text));
    }
    let equality = match (local, foreign) {
        (Some(local), Some(foreign)) => {
            crate::field_path::check(local)?;
            crate::field_path::check(foreign)?;
            Some((Path::new(local), foreign.to_vec()))
        }
        (None, None) if pipeline.is_some() => None,
        _ => {
            return Err(QueryError::failed_to_parse(
                "$lookup requires both or neither of 'localField' and 'foreignField' to be specified",
            ));
        }
    };
    crate::field_path::check(into)?;
    let mut inner = cx.inner()?;
    for (name, _) in &variables {
        inner.scope.declare(name);
    }
    let empty = Value::Array(&[5, 0, 0, 0, 0]);
    let pipeline = pipeline.unwrap_or(empty);
    // Errors of the inner pipeline are reported now, but its constants are evaluated when the join runs.
    check_reads_only(51_047, "$lookup", pipeline)?;
    parse_inner(pipeline, &inner.apart(), &over_named(from))?;
    one(Lookup {
        namespace: namespace(cx, from),
        into: into.split(|&b| b == b'.').map(Box::from).collect(),
        equality,
        variables,
        pipeline: pipeline.into(),
        cx: inner,
    })
}

/// The namespace of a stage; a placeholder if its pipeline brings its own documents.
fn namespace(cx: &StageContext, coll: Option<&[u8]>) -> String {
    let coll = coll.map_or_else(|| "$cmd.aggregate".into(), String::from_utf8_lossy);
    format!("{}.{coll}", cx.database)
}

fn over_named(coll: Option<&[u8]>) -> Over {
    coll.map_or(Over::Nothing, |name| Over::Collection(String::from_utf8_lossy(name).into_owned()))
}

/// Refuses writing stages in a sub-pipeline.
fn check_reads_only(code: i32, stage: &str, pipeline: Value<'_>) -> Result<(), QueryError> {
    let names = pipeline.elements().filter_map(|inner| inner.value().elements().next());
    let mut rows = names.filter_map(|field| StageRow::named(field.key));
    match rows.find(|row| row.place == Place::Last) {
        None => Ok(()),
        Some(row) => Err(QueryError::location(
            code,
            format!("{} is not allowed within a {stage}'s sub-pipeline", row.name),
        )),
    }
}

/// If no collection is named, the pipeline must begin with `$documents`.
fn brings_documents(stage: &str, pipeline: Value<'_>) -> Result<(), QueryError> {
    let first = pipeline.elements().next().map(|first| first.value());
    let brings = first.is_some_and(|first| {
        first.elements().next().is_some_and(|field| field.key == b"$documents")
    });
    if brings {
        return Ok(());
    }
    Err(QueryError::failed_to_parse(format!(
        "{stage} stage without explicit collection must have a pipeline with $documents as first stage"
    )))
}

impl Lookup {
    fn matches(&self, doc: &Noted, context: &Context) -> Result<Vec<RawDoc>, QueryError> {
        let arena = Bump::new();
        let mut env = Env::over(&arena, context, doc.seen());
        let mut values = context.variables.clone();
        for (_, expr) in &self.variables {
            values.push(expr.eval(&mut env)?.into());
        }
        let inner = context.child(values);
        let mut stages: Vec<Vec<u8>> = Vec::new();
        if let Some((local, foreign)) = &self.equality {
            stages.push(equality_stage(doc.as_bytes(), local, foreign));
        }
        let given = self.pipeline.get();
        let all = stages
            .iter()
            .map(|bytes| Value::Document(bytes))
            .chain(given.elements().map(|e| e.value()));
        let bytes = array_bytes(all);
        run_on(&self.namespace, Value::Array(&bytes), &inner, &self.cx)
    }
}

/// `{$match: {foreign: {$in: values}}}`: matches the local value or one of its elements. A missing local value
/// matches null.
fn equality_stage(doc: &[u8], local: &Path, foreign: &[u8]) -> Vec<u8> {
    let mut values = Vec::new();
    local.any(doc, LeafArrays::Closed, |value| {
        if let Value::Array(_) = value {
            values.extend(value.elements().map(|e| e.value()));
            // mongod treats an empty array as null here.
            if values.is_empty() {
                values.push(Value::Null);
            }
            return false;
        }
        match value {
            Value::Missing => {}
            Value::Undefined => values.push(Value::Null),
            found => values.push(found),
        }
        false
    });
    if values.is_empty() {
        values.push(Value::Null);
    }
    // A regex in `$in` would be used for searching, but it is meant as a value here.
    let equalities: Vec<Vec<u8>> = values
        .iter()
        .map(|value| {
            let mut eq = DocBuilder::new();
            eq.push(b"$eq", *value);
            let mut by_field = DocBuilder::new();
            by_field.push(foreign, Value::Document(&eq.finish()));
            by_field.finish()
        })
        .collect();
    let simple = values.iter().all(|v| !matches!(v, Value::Regex { .. } | Value::Document(_)));
    let mut filter = DocBuilder::new();
    if let ([value], true) = (values.as_slice(), simple) {
        // An equality on `_id` uses the fast lookup.
        let mut equal = DocBuilder::new();
        equal.push(b"$eq", *value);
        filter.push(foreign, Value::Document(&equal.finish()));
    } else if simple {
        let list = array_bytes(values.iter().copied());
        let mut inside = DocBuilder::new();
        inside.push(b"$in", Value::Array(&list));
        filter.push(foreign, Value::Document(&inside.finish()));
    } else {
        let list = array_bytes(equalities.iter().map(|bytes| Value::Document(bytes)));
        filter.push(b"$or", Value::Array(&list));
    }
    let mut stage = DocBuilder::new();
    stage.push(b"$match", Value::Document(&filter.finish()));
    stage.finish()
}

impl Stage for Lookup {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        let Some(doc) = up.pull()? else { return Ok(None) };
        up.context().check()?;
        let found = self.matches(&doc, up.context())?;
        let bytes = array_bytes(found.iter().map(|doc| Value::Document(doc.as_bytes())));
        let joined = to_doc(unwind::with(doc.as_bytes(), &self.into, Value::Array(&bytes)))?;
        Ok(Some(doc.with(joined)))
    }
}

/// `$unionWith`: returns its input, then the results of another pipeline.
#[derive(Debug)]
struct UnionWith {
    namespace: String,
    pipeline: OwnedValue,
    cx: StageContext,
    other: Option<VecDeque<RawDoc>>,
}

static UNION_WITH: Spec = Spec::new(
    "$unionWith",
    &[
        field("coll", Takes::String).or_null(),
        field("pipeline", Takes::Array).otherwise(14, NO_PIPELINE),
    ],
)
.not_object(9, "the {stage} stage specification must be an object or string, but found {type}")
.once();

/// Parses `$unionWith`.
pub(super) fn parse_union_with(value: Value<'_>, cx: &StageContext) -> Result<Parsed, QueryError> {
    let empty = Value::Array(&[5, 0, 0, 0, 0]);
    let (coll, pipeline) = match value {
        Value::String(name) => (Some(name), empty),
        _ => {
            let [coll, pipeline] = UNION_WITH.read(value)?;
            let (coll, pipeline) = (spec::string(coll), pipeline.unwrap_or(empty));
            if coll.is_none() {
                brings_documents("$unionWith", pipeline)?;
            }
            (coll, pipeline)
        }
    };
    let inner = cx.inner()?;
    check_reads_only(31_441, "$unionWith", pipeline)?;
    check_part(pipeline, &inner, &over_named(coll))?;
    one(UnionWith {
        namespace: namespace(cx, coll),
        pipeline: pipeline.into(),
        cx: inner,
        other: None,
    })
}

impl Stage for UnionWith {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        if self.other.is_none() {
            if let Some(doc) = up.pull()? {
                return Ok(Some(doc));
            }
            let docs = run_on(&self.namespace, self.pipeline.get(), up.context(), &self.cx)?;
            self.other = Some(docs.into());
        }
        Ok(self.other.as_mut().and_then(VecDeque::pop_front).map(Noted::from))
    }
}

/// Checks of a `$lookup` that mongod does before it parses any stage of the pipeline.
pub(super) fn check_lookup(value: Value<'_>, release: Release) -> Result<(), QueryError> {
    let Value::Document(spec) = value else { return Ok(()) };
    let part = |name: &[u8]| Elements::of_bytes(spec).find(name).map(|field| field.value());
    let from = part(b"from");
    match from {
        None if release < Release::V6_0 => {
            return Err(QueryError::failed_to_parse(format!(
                "missing 'from' option to $lookup stage specification: {}",
                Shown(value)
            )));
        }
        Some(Value::Document(from)) => return Err(elsewhere(from)),
        Some(Value::String(_)) | None => {}
        Some(other) => {
            return Err(QueryError::failed_to_parse(format!(
                "$lookup 'from' field must be a string, but found {}",
                other.type_name()
            )));
        }
    }
    match part(b"pipeline") {
        Some(pipeline @ Value::Array(_)) => named(pipeline, release).map(drop),
        Some(_) => Err(QueryError::type_mismatch(NO_PIPELINE)),
        None if from.is_none() => {
            Err(QueryError::failed_to_parse("must specify 'pipeline' when 'from' is empty"))
        }
        None => Ok(()),
    }
}

/// The same for a `$unionWith`.
pub(super) fn check_union_with(value: Value<'_>, release: Release) -> Result<(), QueryError> {
    match value {
        Value::Document(spec) => match Elements::of_bytes(spec).find(b"pipeline") {
            Some(pipeline) if matches!(pipeline.value(), Value::Array(_)) => {
                named(pipeline.value(), release).map(drop)
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}
