//! The nesting depth of an expression in its canonical form.
//!
//! mongod serialises filters and projections back to BSON, each operator with its arguments in an array and each
//! constant as `{$const: value}`. That form may be deeper than the original, and deeper than BSON allows: `{$abs:
//! {$abs: "$a"}}` becomes `{$abs: [{$abs: ["$a"]}]}`.

use super::operator::{Form, Operator};
use crate::{error::QueryError, value::Value};

/// Maximum nesting of BSON.
const LEVELS_MAX: usize = 200;

/// Refuses an expression whose canonical form is too deep.
pub(crate) fn check_levels(value: Value<'_>) -> Result<(), QueryError> {
    if levels(value) <= LEVELS_MAX {
        return Ok(());
    }
    let text = format!(
        "cannot convert document to BSON because it exceeds the limit of {LEVELS_MAX} levels of \
         nesting"
    );
    Err(QueryError::new(protocol::ErrorCode::Overflow, text))
}

fn levels(value: Value<'_>) -> usize {
    match value {
        Value::Document(_) => match value.elements().next() {
            Some(field) if field.key.starts_with(b"$") => 1 + arguments(field.key, field.value()),
            _ => 1 + deepest(value, levels),
        },
        Value::Array(_) => 1 + deepest(value, levels),
        Value::String(text) if text.starts_with(b"$") => 0,
        _ => 1,
    }
}

/// The depth of an operator's arguments, including their array or document.
fn arguments(name: &[u8], given: Value<'_>) -> usize {
    let form = Operator::named(name).map(|row| &row.form);
    match given {
        _ if name == b"$literal" => constant(given),
        Value::Array(_) => levels(given),
        Value::Document(_) if !matches!(form, Some(Form::List { .. } | Form::DatePart(_))) => {
            1 + deepest(given, levels)
        }
        one => 1 + levels(one),
    }
}

fn constant(value: Value<'_>) -> usize {
    match value {
        Value::Document(_) | Value::Array(_) => 1 + deepest(value, constant),
        _ => 0,
    }
}

fn deepest(of: Value<'_>, measure: fn(Value<'_>) -> usize) -> usize {
    of.elements().map(|element| measure(element.value())).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(times: usize) -> bson::RawDocumentBuf {
        (0..times).fold(bson::rawdoc! { "$abs": "$a" }, |inner, _| bson::rawdoc! { "$abs": inner })
    }

    #[test]
    fn arguments_that_stand_alone_count_as_arrays() {
        assert_eq!(levels(Value::Document(nested(0).as_bytes())), 2);
        assert!(check_levels(Value::Document(nested(99).as_bytes())).is_ok());
        assert!(check_levels(Value::Document(nested(100).as_bytes())).is_err());
        let written = bson::rawdoc! { "$add": [{ "$literal": { "a": 1 } }, 1] };
        assert_eq!(levels(Value::Document(written.as_bytes())), 4);
    }
}
