//! `$fill`: values where there are none. It is short for `$setWindowFields` and `$addFields`.

use super::{Parsed, StageContext, idl, plain::in_stage, raw, window};
use crate::{
    error::QueryError,
    exec::{Project, Stage},
    expression::{DocBuilder, array_bytes},
    field_path,
    projection::Projection,
    sort::SortPattern,
    value::{Elements, Value},
};

const NAME: &str = "$fill";

/// Parses `$fill`.
pub(super) fn parse(value: Value<'_>, cx: &StageContext) -> Result<Parsed, QueryError> {
    let Value::Document(doc) = value else {
        return Err(QueryError::failed_to_parse(format!(
            "The {NAME} stage specification must be an object, found {}",
            value.type_name()
        )));
    };
    let (mut partition, mut fields, mut sort, mut output) = (None, None, None, None);
    for field in Elements::of_bytes(doc) {
        match field.key {
            b"partitionBy" => match field.value() {
                value @ (Value::Document(_) | Value::String(_)) => partition = Some(value),
                other => {
                    return Err(idl::wrong_type(
                        NAME,
                        field.key,
                        other,
                        "types '[object, string]'",
                    ));
                }
            },
            b"partitionByFields" | b"sortBy" | b"output" if idl::is_absent(&field) => {}
            b"partitionByFields" => fields = Some(idl::strings(NAME, &field)?),
            b"sortBy" => sort = Some(idl::object(NAME, &field)?),
            b"output" => output = Some(idl::object(NAME, &field)?),
            other => return Err(idl::unknown(NAME, other)),
        }
    }
    let output = output.ok_or_else(|| idl::missing(NAME, "output"))?;
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
    let by_fields = fields.map(|names| partition_of(&names)).transpose()?;
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

/// `{a: "$a", b: {c: "$b.c"}}` of the names.
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

/// The outputs that need a window, and those that are values.
type Outputs = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Sorts the outputs.
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
        let part = |name: &[u8]| Elements::of_bytes(spec).find(name).map(|f| f.value());
        if let Some(other) = Elements::of_bytes(spec)
            .find_map(|f| (!matches!(f.key, b"value" | b"method")).then_some(f.key))
        {
            return Err(idl::unknown(NAME, other));
        }
        let text = [b"$", field.key].concat();
        let path = Value::String(&text);
        let method = part(b"method").filter(|method| !method.is_nullish());
        match (method, part(b"value")) {
            (Some(_), Some(_)) => {
                return Err(QueryError::location(
                    6_050_201,
                    "Each fill output specification must have exactly one of 'method' or 'value' \
                     fields, not both",
                ));
            }
            (Some(method), None) => {
                let operator: &[u8] = match method {
                    Value::String(b"locf") => b"$locf",
                    Value::String(b"linear") => b"$linearFill",
                    Value::String(_) => {
                        return Err(QueryError::location(
                            6_050_202,
                            "Method must be either locf or linear",
                        ));
                    }
                    other => {
                        return Err(idl::wrong_type(NAME, b"method", other, "type 'string'"));
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
