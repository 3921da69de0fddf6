//! What mongod's parsers of stage specifications say of a field that is wrong, missing or unknown.

use std::collections::HashSet;

use crate::{
    error::QueryError,
    value::{Element, Elements, Value},
};

pub(super) fn unknown(stage: &str, field: &[u8]) -> QueryError {
    let field = String::from_utf8_lossy(field);
    QueryError::location(40_415, format!("BSON field '{stage}.{field}' is an unknown field."))
}

/// Refuses a specification with a field that is there twice.
pub(super) fn once(stage: &str, spec: &[u8]) -> Result<(), QueryError> {
    let mut seen = HashSet::new();
    for field in Elements::of_bytes(spec) {
        if !seen.insert(field.key) {
            let field = String::from_utf8_lossy(field.key);
            let text = format!("BSON field '{stage}.{field}' is a duplicate field");
            return Err(QueryError::location(40_413, text));
        }
    }
    Ok(())
}

pub(super) fn missing(stage: &str, field: &str) -> QueryError {
    QueryError::location(
        40_414,
        format!("BSON field '{stage}.{field}' is missing but a required field"),
    )
}

/// `expected` is "type 'object'" or "types '[int, long]'".
pub(super) fn wrong_type(stage: &str, field: &[u8], got: Value<'_>, expected: &str) -> QueryError {
    QueryError::type_mismatch(format!(
        "BSON field '{stage}.{}' is the wrong type '{}', expected {expected}",
        String::from_utf8_lossy(field),
        got.type_name()
    ))
}

/// The field's document.
pub(super) fn object<'a>(stage: &str, field: &Element<'a>) -> Result<&'a [u8], QueryError> {
    match field.value() {
        Value::Document(doc) => Ok(doc),
        other => Err(wrong_type(stage, field.key, other, "type 'object'")),
    }
}

/// The field's text.
pub(super) fn string<'a>(stage: &str, field: &Element<'a>) -> Result<&'a [u8], QueryError> {
    match field.value() {
        Value::String(text) => Ok(text),
        other => Err(wrong_type(stage, field.key, other, "type 'string'")),
    }
}

/// The field's list of names.
pub(super) fn strings(stage: &str, field: &Element<'_>) -> Result<Vec<Box<[u8]>>, QueryError> {
    let Value::Array(_) = field.value() else {
        return Err(wrong_type(stage, field.key, field.value(), "type 'array'"));
    };
    let inner = format!("{stage}.{}", String::from_utf8_lossy(field.key));
    field.value().elements().map(|e| string(&inner, &e).map(Box::from)).collect()
}

/// Whether the field is as good as absent: mongod's generated parsers pass over null and undefined.
pub(super) fn is_absent(field: &Element<'_>) -> bool {
    field.value().is_nullish()
}
