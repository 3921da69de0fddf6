//! `$setWindowFields`: functions over the documents around each document.
//!
//! ```text
//!   [tag with the partition's key] -> [sort by key and sortBy] -> [window]
//!                                                                   one partition at a time in memory:
//!        inputs of a function, once for each document  --->  frames (first..end)  --->  one value each
//! ```
//! W1 A whole partition is held in memory, up to the limit; partitions come one after the other.
//! W2 If a frame begins with the partition, values are only added; otherwise sums remove the values that left the
//!    frame, in mongod's order of steps.

mod bounds;
mod compute;
mod function;
mod removable;
mod series;

use std::sync::Arc;

use super::{
    Parsed, StageContext, raw,
    spec::{self, Spec, Takes, field},
    to_doc, unwind,
};
use crate::{
    collation::Collator,
    error::QueryError,
    exec::{Noted, Sort, Stage, Upstream},
    expression::{Bump, Env, Expr, Scope, Unit, unit_named},
    field_path,
    sort::{SortPart, SortPattern},
    value::{Elements, OwnedValue, Value, compare_values, path::Path},
};
use function::Function;
pub(super) use function::Kind;

/// Memory limit of a partition (mongod's internalDocumentSourceSetWindowFieldsMaxMemoryBytes).
const MEMORY_MAX: usize = 100 * 1024 * 1024;

/// The field that carries the partition's key through the sort.
const TAG: &[u8] = b"__internal_setWindowFields_partition_key";

const NAME: &str = "$setWindowFields";

/// Parses a time unit for windows.
fn unit(value: Value<'_>) -> Result<Unit, QueryError> {
    let Value::String(name) = value else {
        return Err(QueryError::failed_to_parse("'unit' must be a string"));
    };
    unit_named(name).ok_or_else(|| {
        QueryError::failed_to_parse(format!(
            "unknown time unit value: {}",
            String::from_utf8_lossy(name)
        ))
    })
}

static SPEC: Spec = Spec::new(
    NAME,
    &[
        field("partitionBy", Takes::Any),
        field("sortBy", Takes::Object).or_null(),
        field("output", Takes::Object).or_null(),
    ],
)
.not_object(9, "the {stage} stage specification must be an object, found {type}");

/// Parses `$setWindowFields`.
pub(super) fn parse(value: Value<'_>, cx: &StageContext) -> Result<Parsed, QueryError> {
    let [partition, sort, output] = SPEC.read(value)?;
    let output = spec::object(output).ok_or_else(|| SPEC.missing("output"))?;
    let sort = spec::object(sort);
    build(partition, sort, output, cx)
}

/// A partition expression with its own error slot.
struct Partitioning {
    expr: Expr,
    scope: Scope,
}

fn partition_by(expr: Value<'_>, cx: &StageContext) -> Result<Partitioning, QueryError> {
    let mut scope = cx.apart().scope;
    Ok(Partitioning { expr: Expr::parse(expr, &mut scope)?, scope })
}

impl Partitioning {
    /// mongod evaluates the constants of this expression after parsing the stage.
    fn settle(self) -> Result<Expr, QueryError> {
        self.scope.settle().map_err(|fault| QueryError {
            message: format!(
                "Failed to optimize partitionBy expression :: caused by :: {}",
                fault.message
            ),
            ..fault
        })?;
        Ok(self.expr)
    }
}

/// Builds the stages of a window from a partition expression, a sort and outputs.
pub(super) fn build(
    partition: Option<Value<'_>>,
    sort: Option<&[u8]>,
    output: &[u8],
    cx: &StageContext,
) -> Result<Parsed, QueryError> {
    let partition = partition.map(|expr| partition_by(expr, cx)).transpose()?;
    let collator = cx.parse.collator.clone();
    let sort = sort.map(|sort| SortPattern::parse(raw(sort)?, collator.clone())).transpose()?;
    let functions = outputs(output, sort.as_ref(), cx)?;
    // Constants are evaluated after everything is parsed.
    let partition = partition
        .map(Partitioning::settle)
        .transpose()?
        .filter(|expr| !matches!(expr.as_literal(), Some(v) if !matches!(v, Value::Array(_))));
    if let Some(Value::Array(_)) = partition.as_ref().and_then(Expr::as_literal) {
        return Err(array_partition());
    }
    let mut stages: Vec<Box<dyn Stage>> = Vec::new();
    let mut parts = Vec::new();
    if let Some(expr) = &partition {
        stages.push(Box::new(Tag(expr.clone())));
        parts.push(SortPart { path: Path::new(TAG), ascending: true, note: None });
    }
    parts.extend(sort.iter().flat_map(|sort| sort.parts.iter().cloned()));
    if !parts.is_empty() {
        let pattern = SortPattern { parts, collator: collator.clone() };
        stages.push(Box::new(Sort::new(pattern, None)));
    }
    stages.push(Box::new(Window {
        partitioned: partition.is_some(),
        sort_by: sort.as_ref().and_then(sort_expression),
        sort,
        functions,
        collator,
        ahead: None,
        ready: Vec::new().into_iter(),
        ended: false,
    }));
    Ok(Parsed::Other(stages))
}

/// The value that ranks and ranges compare: only for a single sort field.
fn sort_expression(sort: &SortPattern) -> Option<Expr> {
    let [only] = sort.parts.as_slice() else { return None };
    let text = [b"$", only.path.dotted()].concat();
    Expr::parse(Value::String(&text), &mut crate::expression::Scope::default()).ok()
}

/// An output field and its function.
#[derive(Debug)]
struct Output {
    path: Vec<Box<[u8]>>,
    function: Function,
}

fn outputs(
    doc: &[u8],
    sort: Option<&SortPattern>,
    cx: &StageContext,
) -> Result<Vec<Output>, QueryError> {
    let sort: Option<Vec<bool>> =
        sort.map(|sort| sort.parts.iter().map(|part| part.ascending).collect());
    let mut found: Vec<Output> = Vec::new();
    for field in Elements::of_bytes(doc) {
        let Value::Document(spec) = field.value() else {
            return Err(QueryError::failed_to_parse(format!(
                "The field '{}' must be an object",
                String::from_utf8_lossy(field.key)
            )));
        };
        let function = Function::parse(spec, sort.as_deref(), cx)?;
        field_path::check(field.key)?;
        let path: Vec<Box<[u8]>> = field.key.split(|b| *b == b'.').map(Box::from).collect();
        if found.iter().any(|known| known.path.starts_with(&path) || path.starts_with(&known.path))
        {
            return Err(QueryError::location(
                6_307_900,
                "$setWindowFields 'output' specification contains two conflicting paths",
            ));
        }
        found.push(Output { path, function });
    }
    Ok(found)
}

fn array_partition() -> QueryError {
    QueryError::type_mismatch(
        "An expression used to partition cannot evaluate to value of type array",
    )
}

/// Appends the partition's key to the document.
#[derive(Debug)]
struct Tag(Expr);

impl Stage for Tag {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        let Some(doc) = up.pull()? else { return Ok(None) };
        let arena = Bump::new();
        let mut env = Env::over(&arena, up.context(), doc.seen());
        let key = match self.0.eval(&mut env)? {
            Value::Array(_) => return Err(array_partition()),
            Value::Missing => Value::Null,
            key => key,
        };
        let tagged = to_doc(unwind::with(doc.as_bytes(), &[Box::from(TAG)], key))?;
        Ok(Some(doc.with(tagged)))
    }
}

/// The stage itself, whose input is sorted by partition.
#[derive(Debug)]
struct Window {
    partitioned: bool,
    sort_by: Option<Expr>,
    sort: Option<SortPattern>,
    functions: Vec<Output>,
    collator: Option<Arc<Collator>>,
    /// The first document of the next partition.
    ahead: Option<(OwnedValue, Noted)>,
    ready: std::vec::IntoIter<Noted>,
    ended: bool,
}

impl Stage for Window {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        loop {
            if let Some(doc) = self.ready.next() {
                return Ok(Some(doc));
            }
            if self.ended {
                return Ok(None);
            }
            let docs = self.partition(up)?;
            self.ready = self.fill(&docs, up)?.into_iter();
        }
    }
}

impl Window {
    /// The next document and its partition's key.
    fn pull(&self, up: &mut Upstream<'_, '_>) -> Result<Option<(OwnedValue, Noted)>, QueryError> {
        let Some(doc) = up.pull()? else { return Ok(None) };
        if !self.partitioned {
            return Ok(Some((Value::Null.into(), doc)));
        }
        let tag = [Box::from(TAG)];
        let key = unwind::at(doc.as_bytes(), &tag).into();
        let untagged = to_doc(unwind::with(doc.as_bytes(), &tag, Value::Missing))?;
        Ok(Some((key, doc.with(untagged))))
    }

    fn partition(&mut self, up: &mut Upstream<'_, '_>) -> Result<Vec<Noted>, QueryError> {
        let mut docs = Vec::new();
        let mut bytes = 0;
        let first = match self.ahead.take() {
            Some(first) => Some(first),
            None => self.pull(up)?,
        };
        let Some((key, first)) = first else {
            self.ended = true;
            return Ok(docs);
        };
        docs.push(first);
        loop {
            let Some((other, doc)) = self.pull(up)? else {
                self.ended = true;
                return Ok(docs);
            };
            if !compare_values(key.get(), other.get(), self.collator.as_deref()).is_eq() {
                self.ahead = Some((other, doc));
                return Ok(docs);
            }
            bytes += doc.as_bytes().len();
            if bytes > MEMORY_MAX {
                return Err(match &up.context().spill {
                    None => QueryError::location(
                        5_643_011,
                        format!(
                            "Exceeded max memory. Current memory: {bytes} bytes. Max allowed \
                             memory: {MEMORY_MAX} bytes. Set 'allowDiskUse: true' to spill to disk"
                        ),
                    ),
                    Some(_) => QueryError::location(
                        5_414_201,
                        format!(
                            "Exceeded memory limit in DocumentSourceSetWindowFields, used {bytes} \
                             bytes but max allowed is {MEMORY_MAX}"
                        ),
                    ),
                });
            }
            docs.push(doc);
        }
    }

    fn fill(&self, docs: &[Noted], up: &Upstream<'_, '_>) -> Result<Vec<Noted>, QueryError> {
        let partition = compute::Partition::new(
            docs,
            up.context(),
            self.collator.as_deref(),
            self.sort_by.as_ref(),
            self.sort.as_ref(),
        );
        let mut filled: Vec<Noted> = docs.to_vec();
        for output in &self.functions {
            up.context().check()?;
            let values = output.function.over(&partition)?;
            for (doc, value) in filled.iter_mut().zip(values) {
                doc.doc = to_doc(unwind::spread(doc.as_bytes(), &output.path, value.get()))?;
            }
        }
        Ok(filled)
    }
}
