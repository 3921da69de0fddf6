//! Operators on documents.

use std::collections::{HashMap, HashSet};

use super::{
    DocBuilder, Env, Evaluated, Expr, NamedCall, Operator,
    parse::{Scope, lossy, operand},
};
use crate::{
    error::QueryError,
    value::{Elements, Value},
};

fn error<'a>(code: i32, message: impl Into<String>) -> Evaluated<'a> {
    Err(QueryError::location(code, message))
}

/// Merges `over` into `base`: existing fields keep their position, new ones are appended.
pub(crate) fn merge(base: &[u8], over: &[u8]) -> Vec<u8> {
    let mut new: HashMap<&[u8], &[u8]> = HashMap::new();
    for field in Elements::of_bytes(over) {
        new.entry(field.key).or_insert(field.bytes);
    }
    let mut doc = DocBuilder::new();
    let mut known = HashSet::new();
    for field in Elements::of_bytes(base) {
        known.insert(field.key);
        doc.push_raw(new.get(field.key).copied().unwrap_or(field.bytes));
    }
    for field in Elements::of_bytes(over) {
        if !known.contains(field.key) {
            doc.push_raw(field.bytes);
        }
    }
    doc.finish()
}

pub(super) fn op_merge_objects<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    // A single array argument contains the documents.
    let single = match *args {
        [list @ Value::Array(_)] => list.elements().map(|e| e.value()).collect(),
        _ => args.to_vec(),
    };
    let mut merged = vec![5, 0, 0, 0, 0];
    for value in single {
        match value {
            Value::Document(doc) => merged = merge(&merged, doc),
            _ if value.is_nullish() => {}
            other => {
                return error(
                    40_400,
                    format!(
                        "$mergeObjects requires object inputs, but input {} is of type {}",
                        crate::value::Spelled(other),
                        other.type_name()
                    ),
                );
            }
        }
    }
    Ok(Value::Document(env.keep(&merged)))
}

/// `$getField` takes a name or `{field, input}`.
pub(super) fn get_field(
    row: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope,
) -> Result<Expr, QueryError> {
    let mut field = None;
    let mut input = None;
    match value {
        Value::Document(doc)
            if !Elements::of_bytes(doc).next().is_some_and(|f| f.key.starts_with(b"$")) =>
        {
            for part in Elements::of_bytes(doc) {
                match part.key {
                    b"field" => field = Some(operand(part.value(), scope)?),
                    b"input" => input = Some(operand(part.value(), scope)?),
                    other => {
                        return Err(QueryError::location(
                            3_041_701,
                            format!("$getField found an unknown argument: {}", lossy(other)),
                        ));
                    }
                }
            }
            if input.is_none() {
                return Err(QueryError::location(
                    3_041_703,
                    "$getField requires 'input' to be specified",
                ));
            }
        }
        other => field = Some(operand(other, scope)?),
    }
    let field = field.ok_or_else(|| {
        QueryError::location(3_041_702, "$getField requires 'field' to be specified")
    })?;
    let input = input.or_else(|| scope.current());
    Ok(Expr::Named(NamedCall { row, fun: op_get_field, args: vec![Some(field), input] }))
}

fn op_get_field<'a>(env: &mut Env<'a>, args: &[Option<Value<'a>>]) -> Evaluated<'a> {
    let [Some(field), input] = *args else { return Ok(Value::Null) };
    let Value::String(name) = field else {
        return error(
            3_041_704,
            format!(
                "$getField requires 'field' to evaluate to type String, but got {}",
                field.type_name()
            ),
        );
    };
    match input.unwrap_or(env.root()) {
        Value::Document(doc) => {
            Ok(Elements::of_bytes(doc).find(name).map_or(Value::Missing, |e| e.value()))
        }
        Value::Null | Value::Undefined => Ok(Value::Null),
        _ => Ok(Value::Missing),
    }
}

pub(super) fn op_set_field<'a>(env: &mut Env<'a>, args: &[Option<Value<'a>>]) -> Evaluated<'a> {
    let [Some(field), Some(input), Some(value)] = *args else { return Ok(Value::Null) };
    set_field(env, field, input, value)
}

fn set_field<'a>(
    env: &mut Env<'a>,
    field: Value<'a>,
    input: Value<'a>,
    value: Value<'a>,
) -> Evaluated<'a> {
    let Value::String(name) = field else {
        return error(
            4_161_107,
            format!(
                "$setField requires 'field' to evaluate to type String, but got {}",
                field.type_name()
            ),
        );
    };
    let Value::Document(doc) = input else {
        if input.is_nullish() {
            return Ok(Value::Null);
        }
        return error(4_161_105, "$setField requires 'input' to evaluate to type Object");
    };
    let mut out = DocBuilder::new();
    let mut met = false;
    for element in Elements::of_bytes(doc) {
        if element.key == name {
            met = true;
            out.push(name, value);
        } else {
            out.push_raw(element.bytes);
        }
    }
    if !met {
        out.push(name, value);
    }
    Ok(Value::Document(env.keep(&out.finish())))
}

pub(super) fn op_unset_field<'a>(env: &mut Env<'a>, args: &[Option<Value<'a>>]) -> Evaluated<'a> {
    let [Some(field), Some(input)] = *args else { return Ok(Value::Null) };
    set_field(env, field, input, Value::Missing)
}

/// mongod reports a missing `value` of `$setField` before it checks anything but `field`.
pub(super) fn check_set_field(name: &str, fields: Elements<'_>) -> Result<(), QueryError> {
    let has = |field: &[u8]| fields.clone().find(field).is_some();
    if has(b"field") && !has(b"value") {
        let text = format!("{name} requires 'value' to be specified");
        return Err(QueryError::location(4_161_103, text));
    }
    check_field_name(name, fields)
}

/// The `field` of `$setField` and `$unsetField` must be a syntactic constant; this is checked before folding.
pub(super) fn check_field_name(name: &str, fields: Elements<'_>) -> Result<(), QueryError> {
    let Some(field) = fields.clone().find(b"field") else { return Ok(()) };
    if fields.clone().find(b"input").is_none() {
        let text = format!("{name} requires 'input' to be specified");
        return Err(QueryError::location(4_161_109, text));
    }
    let constant = match field.value() {
        Value::String(path) if path.starts_with(b"$") => {
            let path = match path.strip_prefix(b"$$") {
                Some(variable) => lossy(variable),
                None => format!("CURRENT.{}", lossy(path.get(1..).unwrap_or_default())),
            };
            let text = format!(
                "'${path}' is a field path reference which is not allowed in this context. Did you \
                 mean {{$literal: '${path}'}}?"
            );
            return Err(QueryError::location(4_161_108, text));
        }
        Value::Document(inner) => Elements::of_bytes(inner)
            .next()
            .filter(|operator| matches!(operator.key, b"$literal" | b"$const"))
            .map(|operator| operator.value()),
        Value::Array(_) => None,
        other => Some(other),
    };
    match constant {
        Some(Value::String(_)) => Ok(()),
        Some(other) => Err(QueryError::location(
            4_161_107,
            format!(
                "$setField requires 'field' to evaluate to type String, but got {}",
                other.type_name()
            ),
        )),
        None => Err(QueryError::location(
            4_161_106,
            "$setField requires 'field' to evaluate to a constant, but got a non-constant argument",
        )),
    }
}
