//! Parses the operands of match operators: numbers, types, bit positions, regex parts.

use super::{
    parse::lossy,
    predicate::{Predicate, TypeSet, truncate},
    regex::Regex,
};
use crate::{
    error::QueryError,
    expression::as_f64,
    value::{Element, Elements, Shown, Spelled, Value, path::Path},
};

/// True unless the value is false, zero, null, undefined or missing.
pub(crate) fn is_true(value: Value<'_>) -> bool {
    match value {
        Value::Bool(b) => b,
        Value::Int32(n) => n != 0,
        Value::Int64(n) => n != 0,
        Value::Double(n) => n != 0.0,
        Value::Decimal(n) => n.truncate_to_i64() != Some(0) || !n.is_whole(),
        Value::Null | Value::Undefined | Value::Missing => false,
        _ => true,
    }
}

/// Parses a 64-bit integer; the error is the text of mongod's refusal.
pub(crate) fn integer(name: &str, value: Value<'_>) -> Result<i64, String> {
    let shown = || format!("{name}: {}", Shown(value));
    match value {
        Value::Int32(n) => Ok(i64::from(n)),
        Value::Int64(n) => Ok(n),
        Value::Double(n) => {
            if n.is_nan() {
                return Err(format!("Expected an integer, but found NaN in: {}", shown()));
            }
            let whole = truncate(n)
                .ok_or_else(|| format!("Cannot represent as a 64-bit integer: {}", shown()))?;
            if n.fract() == 0.0 {
                Ok(whole)
            } else {
                Err(format!("Expected an integer: {}", shown()))
            }
        }
        Value::Decimal(n) => {
            let whole = n
                .truncate_to_i64()
                .filter(|_| !n.is_nan())
                .ok_or_else(|| format!("Cannot represent as a 64-bit integer: {}", shown()))?;
            if n.is_whole() {
                Ok(whole)
            } else {
                Err(format!("Cannot represent as a 64-bit integer: {}", shown()))
            }
        }
        _ => Err(format!("Expected a number in: {}", shown())),
    }
}

fn non_negative(name: &str, value: Value<'_>) -> Result<i64, String> {
    let n = integer(name, value)?;
    if n < 0 {
        return Err(format!("Expected a non-negative number in: {name}: {}", Shown(value)));
    }
    Ok(n)
}

pub(super) fn size(value: Value<'_>) -> Result<i64, QueryError> {
    let fits = |n: i64| match i32::try_from(n) {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("Cannot represent $size: {} in an int", Shown(value))),
    };
    integer("$size", value)
        .and_then(fits)
        .and_then(|()| non_negative("$size", value))
        .map_err(|why| QueryError::bad_value(format!("Failed to parse $size. {why}")))
}

/// Parses the operand of `$type`: one type or a list, each a name or a number.
pub(crate) fn types(path: Option<&Path>, value: Value<'_>) -> Result<TypeSet, QueryError> {
    let mut set = TypeSet::default();
    if let Value::Array(_) = value {
        for element in value.elements() {
            one_type(element.value(), &mut set)?;
        }
        if set == TypeSet::default() {
            return Err(QueryError::failed_to_parse(format!(
                "{} must match at least one type",
                lossy(path.map_or(b"(None)", Path::dotted))
            )));
        }
    } else {
        one_type(value, &mut set)?;
    }
    Ok(set)
}

fn one_type(value: Value<'_>, set: &mut TypeSet) -> Result<(), QueryError> {
    if let Value::String(name) = value {
        if name == b"number" {
            set.insert_numbers();
            return Ok(());
        }
        let known = TYPE_NAMES.iter().find(|(known, _)| known.as_bytes() == name);
        let (_, byte) = known.ok_or_else(|| {
            QueryError::bad_value(format!("Unknown type name alias: {}", lossy(name)))
        })?;
        set.insert(*byte);
        return Ok(());
    }
    if !value.is_number() {
        return Err(QueryError::type_mismatch("type must be represented as a number or a string"));
    }
    let bad = |hint: &str| {
        let code = Spelled(Value::Double(as_f64(value)));
        QueryError::bad_value(format!("Invalid numerical type code: {code}{hint}"))
    };
    match integer("", value) {
        Ok(0) => Err(bad(". Instead use {$exists:false}.")),
        Ok(-1) => {
            set.insert(0xff);
            Ok(())
        }
        Ok(code) => {
            let byte = u8::try_from(code).ok();
            let known = byte.and_then(|b| TYPE_NAMES.iter().find(|(_, known)| *known == b));
            known.map(|(_, byte)| set.insert(*byte)).ok_or_else(|| bad(""))
        }
        Err(_) => Err(bad("")),
    }
}

/// The type names of `$type`, with their type bytes.
pub(crate) const TYPE_NAMES: &[(&str, u8)] = &[
    ("double", 1),
    ("string", 2),
    ("object", 3),
    ("array", 4),
    ("binData", 5),
    ("undefined", 6),
    ("objectId", 7),
    ("bool", 8),
    ("date", 9),
    ("null", 10),
    ("regex", 11),
    ("dbPointer", 12),
    ("javascript", 13),
    ("symbol", 14),
    ("javascriptWithScope", 15),
    ("int", 16),
    ("timestamp", 17),
    ("long", 18),
    ("decimal", 19),
    ("maxKey", 127),
    ("minKey", 255),
];

pub(super) fn modulus(value: Value<'_>) -> Result<Predicate, QueryError> {
    let Value::Array(_) = value else {
        return Err(QueryError::bad_value("malformed mod, needs to be an array"));
    };
    let mut parts = value.elements().map(|e| e.value());
    let mut part = |what: &str| match parts.next() {
        None => Err(QueryError::bad_value("malformed mod, not enough elements")),
        Some(part) if !part.is_number() => {
            Err(QueryError::bad_value(format!("malformed mod, {what} not a number")))
        }
        Some(part) => Ok(part),
    };
    let (divisor, remainder) = (part("divisor")?, part("remainder")?);
    if parts.next().is_some() {
        return Err(QueryError::bad_value("malformed mod, too many elements"));
    }
    let divisor = coerced("divisor", divisor)?;
    if divisor == 0 {
        return Err(QueryError::bad_value("divisor cannot be 0"));
    }
    Ok(Predicate::Mod { divisor, remainder: coerced("remainder", remainder)? })
}

/// Truncates a number to an integer, or returns mongod's error.
fn coerced(what: &str, value: Value<'_>) -> Result<i64, QueryError> {
    let (finite, cut) = match value {
        Value::Int32(n) => (true, Some(i64::from(n))),
        Value::Int64(n) => (true, Some(n)),
        Value::Double(n) => (n.is_finite(), truncate(n)),
        Value::Decimal(n) => (n.is_finite(), n.truncate_to_i64()),
        _ => (true, None),
    };
    let why = if finite {
        "Out of bounds coercing to integral value"
    } else {
        "Unable to coerce NaN/Inf to integral type"
    };
    cut.filter(|_| finite).ok_or_else(|| {
        QueryError::bad_value(format!(
            "malformed mod, {what} value is invalid :: caused by :: {why}"
        ))
    })
}

/// Parses `$regex` and `$options`, which may come in either order.
pub(super) fn regex(operators: &[u8]) -> Result<Regex, QueryError> {
    let (mut pattern, mut options): (&[u8], &[u8]) = (b"", b"");
    let mut options_seen = false;
    for operator in Elements::of_bytes(operators) {
        match (operator.key, operator.value()) {
            (b"$regex", Value::String(text)) => pattern = text,
            (b"$regex", Value::Regex { pattern: text, options: own }) => {
                pattern = text;
                if !own.is_empty() {
                    if options_seen {
                        return Err(options_twice(51_074));
                    }
                    options = own;
                }
            }
            (b"$regex", _) => return Err(QueryError::bad_value("$regex has to be a string")),
            (b"$options", Value::String(text)) => {
                if !options.is_empty() {
                    return Err(options_twice(51_075));
                }
                options = text;
                options_seen = true;
            }
            (b"$options", _) => return Err(QueryError::bad_value("$options has to be a string")),
            _ => {}
        }
    }
    Ok(Regex::new(pattern, options)?)
}

fn options_twice(code: i32) -> QueryError {
    QueryError::location(code, "options set in both $regex and $options")
}

pub(super) fn bit_positions(
    path: Option<&Path>,
    operator: &Element<'_>,
) -> Result<Vec<u32>, QueryError> {
    let name = lossy(operator.key);
    match operator.value() {
        value @ Value::Array(_) => value.elements().map(|e| bit_position(&e)).collect(),
        value if value.is_number() => {
            let mask = non_negative(&name, value).map_err(QueryError::failed_to_parse)?;
            Ok((0..63).filter(|bit| mask >> bit & 1 == 1).collect())
        }
        Value::Binary { bytes, .. } => Ok((0u32..)
            .zip(bytes)
            .flat_map(|(at, byte)| {
                (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| at * 8 + bit)
            })
            .collect()),
        other => Err(QueryError::bad_value(format!(
            "{} takes an Array, a number, or a BinData but received: {name}: {}",
            lossy(path.map_or(b"(None)", Path::dotted)),
            Shown(other)
        ))),
    }
}

fn bit_position(element: &Element<'_>) -> Result<u32, QueryError> {
    let name = lossy(element.key);
    let failed =
        |why: String| QueryError::bad_value(format!("Failed to parse bit position. {why}"));
    let position = non_negative(&name, element.value()).map_err(failed)?;
    i32::try_from(position).map(i32::unsigned_abs).map_err(|_| {
        failed(format!("Cannot represent {name}: {} in an int", Shown(element.value())))
    })
}
