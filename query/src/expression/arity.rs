//! How many arguments operators take, and what must be constant.

use super::{parse::lossy, table};
use crate::{
    error::QueryError,
    value::{Elements, Value},
};

/// The conversions and one comparison of sets count their arguments in words of their own.
pub(super) fn check_arguments(row: &table::Positional, given: usize) -> Result<(), QueryError> {
    const CONVERSIONS: [&str; 9] = [
        "$toBool",
        "$toDate",
        "$toDecimal",
        "$toDouble",
        "$toInt",
        "$toLong",
        "$toObjectId",
        "$toString",
        "$toUUID",
    ];
    match row.name {
        name if given != 1 && CONVERSIONS.contains(&name) => Err(QueryError::location(
            50_723,
            format!("{name} requires a single argument, got {given}"),
        )),
        "$setEquals" if given < row.min => Err(QueryError::location(
            17_045,
            format!("$setEquals needs at least two arguments had: {given}"),
        )),
        "$substr" => check_count("$substrBytes", given, row.min, row.max),
        name => check_count(name, given, row.min, row.max),
    }
}

pub(super) fn check_count(
    name: &str,
    given: usize,
    min: usize,
    max: usize,
) -> Result<(), QueryError> {
    if (min..=max).contains(&given) {
        return Ok(());
    }
    if min == max {
        return Err(QueryError::location(
            16_020,
            format!("Expression {name} takes exactly {min} arguments. {given} were passed in."),
        ));
    }
    if max == usize::MAX {
        return Err(QueryError::location(
            16_020,
            format!("Expression {name} takes at least {min} arguments. {given} were passed in."),
        ));
    }
    Err(QueryError::location(
        28_667,
        format!(
            "Expression {name} takes at least {min} arguments, and at most {max}, but {given} were \
             passed in."
        ),
    ))
}

/// The `field` of `$setField` and `$unsetField` is a constant, told by the look of it.
pub(super) fn check_field_name(name: &str, doc: &[u8]) -> Result<(), QueryError> {
    let Some(field) = Elements::of_bytes(doc).find(b"field") else { return Ok(()) };
    if name == "$setField" && Elements::of_bytes(doc).find(b"value").is_none() {
        let text = "$setField requires 'value' to be specified";
        return Err(QueryError::location(4_161_103, text));
    }
    if Elements::of_bytes(doc).find(b"input").is_none() {
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
