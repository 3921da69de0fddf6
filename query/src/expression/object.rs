//! Documents as values.

use super::{DocBuilder, Env, Evaluated};
use crate::{
    error::QueryError,
    value::{Elements, Value},
};

fn error<'a>(code: i32, message: impl Into<String>) -> Evaluated<'a> {
    Err(QueryError::location(code, message))
}

/// Puts one document over another: known fields keep their place, new ones go to the end.
pub(crate) fn merge(base: &[u8], over: &[u8]) -> Vec<u8> {
    let mut doc = DocBuilder::new();
    for field in Elements::of_bytes(base) {
        match Elements::of_bytes(over).find(field.key) {
            Some(new) => doc.push_raw(new.bytes),
            None => doc.push_raw(field.bytes),
        }
    }
    for field in Elements::of_bytes(over) {
        if Elements::of_bytes(base).find(field.key).is_none() {
            doc.push_raw(field.bytes);
        }
    }
    doc.finish()
}

pub(super) fn op_merge_objects<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    // One argument that is an array holds the documents.
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

pub(super) fn op_get_field<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let [field, input] = *args else { return Ok(Value::Null) };
    let Value::String(name) = field else {
        return error(
            3_041_704,
            format!(
                "$getField requires 'field' to evaluate to type String, but got {}",
                field.type_name()
            ),
        );
    };
    let input = if matches!(input, not_given!()) { env.root() } else { input };
    match input {
        Value::Document(doc) => {
            Ok(Elements::of_bytes(doc).find(name).map_or(Value::Missing, |e| e.value()))
        }
        Value::Null | Value::Undefined => Ok(Value::Null),
        _ => Ok(Value::Missing),
    }
}

pub(super) fn op_set_field<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let [field, input, value] = *args else { return Ok(Value::Null) };
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

pub(super) fn op_unset_field<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let [field, input] = *args else { return Ok(Value::Null) };
    op_set_field(env, &[field, input, Value::Missing])
}
