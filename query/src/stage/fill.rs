//! `$fill`: fills missing values. It is translated to `$setWindowFields` and `$addFields`.

use super::{
    Parsed, StageContext,
    plain::in_stage,
    raw,
    spec::{self, Spec, Takes, field},
    window,
};
use crate::{
    error::QueryError,
    exec::{Project, Stage},
    expression::{DocBuilder, array_bytes},
    field_path,
    projection::Projection,
    sort::SortPattern,
    value::{Elements, Value},
};

static SPEC: Spec = Spec::new(
    "$fill",
    &[
        field("partitionBy", Takes::ObjectOrString),
        field("partitionByFields", Takes::Strings).or_null(),
        field("sortBy", Takes::Object).or_null(),
        field("output", Takes::Object).or_null(),
    ],
)
.not_object(9, "The {stage} stage specification must be an object, found {type}");

static OUTPUT: Spec =
    Spec::new("$fill", &[field("value", Takes::Any), field("method", Takes::String).or_null()]);

/// Parses `$fill`.
pub(super) fn parse(value: Value<'_>, cx: &StageContext) -> Result<Parsed, QueryError> {
    let [partition, fields, sort, output] = SPEC.read(value)?;
    let output = spec::object(output).ok_or_else(|| SPEC.missing("output"))?;
    let sort = spec::object(sort);
    if partition.is_some() && fields.is_some() {
        return Err(QueryError::location(
            6_050_204,
            "Maximum one of 'partitionBy' and 'partitionByFields can be specified in '$fill'",
        ));
    }
    if Elements::of_bytes(output).next().is_none() {
        return Err(QueryError::location(
            6_050_203,
            "The output field in '$fill' must contain an object with at least one element",
        ));
    }
    let by_fields = fields.map(|names| partition_of(&spec::strings(names))).transpose()?;
    let partition = partition.or(by_fields.as_deref().map(Value::Document));
    let (by_window, by_value) = outputs(output)?;
    if let Some(sort) = sort {
        SortPattern::parse(raw(sort)?, None)?;
    }
    let mut stages: Vec<Box<dyn Stage>> = Vec::new();
    if let Some(by_window) = by_window {
        let Parsed::Other(window) = window::build(partition, sort, &by_window, cx)? else {
            return Ok(Parsed::Other(stages));
        };
        stages.extend(window);
    }
    if let Some(by_value) = by_value {
        let projection = Projection::parse_add_fields(raw(&by_value)?, &cx.scope);
        let projection = projection.map_err(|error| in_stage("$addFields", error))?;
        stages.push(Box::new(Project(projection)));
    }
    Ok(Parsed::Other(stages))
}

/// The partition expression `{a: "$a", b: {c: "$b.c"}}` for these names.
pub(super) fn partition_of(names: &[Box<[u8]>]) -> Result<Vec<u8>, QueryError> {
    let mut doc = DocBuilder::new().finish();
    for name in names {
        field_path::check(name)?;
        let path: Vec<Box<[u8]>> = name.split(|b| *b == b'.').map(Box::from).collect();
        let text = [b"$", &**name].concat();
        doc = super::unwind::with(&doc, &path, Value::String(&text));
    }
    Ok(doc)
}

/// The outputs that need a window, and those with a constant value.
type Outputs = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Separates the outputs.
fn outputs(output: &[u8]) -> Result<Outputs, QueryError> {
    let (mut windows, mut values) = (DocBuilder::new(), DocBuilder::new());
    let (mut has_window, mut has_value) = (false, false);
    for field in Elements::of_bytes(output) {
        let Value::Document(spec) = field.value() else {
            return Err(QueryError::location(
                6_050_200,
                "Each fill output specification must be an object with exactly one field",
            ));
        };
        let [value, method] = OUTPUT.read(Value::Document(spec))?;
        let text = [b"$", field.key].concat();
        let path = Value::String(&text);
        match (spec::string(method), value) {
            (Some(_), Some(_)) => {
                return Err(QueryError::location(
                    6_050_201,
                    "Each fill output specification must have exactly one of 'method' or 'value' \
                     fields, not both",
                ));
            }
            (Some(method), None) => {
                let operator: &[u8] = match method {
                    b"locf" => b"$locf",
                    b"linear" => b"$linearFill",
                    _ => {
                        return Err(QueryError::location(
                            6_050_202,
                            "Method must be either locf or linear",
                        ));
                    }
                };
                let mut function = DocBuilder::new();
                function.push(operator, path);
                windows.push(field.key, Value::Document(&function.finish()));
                has_window = true;
            }
            (None, Some(value)) => {
                let mut call = DocBuilder::new();
                call.push(b"$ifNull", Value::Array(&array_bytes([path, value])));
                values.push(field.key, Value::Document(&call.finish()));
                has_value = true;
            }
            (None, None) => {}
        }
    }
    Ok((has_window.then(|| windows.finish()), has_value.then(|| values.finish())))
}
