//! `$sortArray` and `$zip`.

use super::{
    Env, Evaluated, Expr, build, logic,
    parse::{Scope, lossy, operand},
    special::Special,
};
use crate::{
    error::QueryError,
    matcher::operands::integer,
    sort::SortPattern,
    value::{Elements, Spelled, Value, path::Path},
};

/// The order of `$sortArray`.
#[derive(Debug, Clone)]
pub enum SortBy {
    /// Sort by whole values.
    Value {
        /// False for -1.
        ascending: bool,
    },
    /// Sort by fields of the elements.
    Pattern(SortPattern),
}

pub(super) fn sort_array(value: Value<'_>, scope: &mut Scope) -> Result<Special, QueryError> {
    let Value::Document(doc) = value else {
        return Err(QueryError::location(
            2_942_500,
            format!("$sortArray requires an object as an argument, found: {}", value.type_name()),
        ));
    };
    let (mut input, mut by) = (None, None);
    for field in Elements::of_bytes(doc) {
        match field.key {
            b"input" => input = Some(operand(field.value(), scope)?),
            b"sortBy" => by = Some(sort_by(field.value())?),
            other => {
                return Err(QueryError::location(
                    2_942_501,
                    format!("$sortArray found an unknown argument: {}", lossy(other)),
                ));
            }
        }
    }
    let missing = |code, name| {
        QueryError::location(code, format!("$sortArray requires '{name}' to be specified"))
    };
    let input = input.ok_or_else(|| missing(2_942_502, "input"))?;
    let by = by.ok_or_else(|| missing(2_942_503, "sortBy"))?;
    Ok(Special::SortArray(input, by))
}

fn sort_by(value: Value<'_>) -> Result<SortBy, QueryError> {
    match value {
        Value::Document(doc) => {
            let doc = bson::RawDocument::from_bytes(doc)
                .map_err(|_| QueryError::bad_value("malformed sortBy"))?;
            let refuse = |why: String| QueryError::location(2_942_505, format!("BadValue: {why}"));
            if doc.is_empty() {
                let why = "The sort pattern is empty when it should be a set of fields.";
                return Err(refuse(why.to_owned()));
            }
            for field in Elements::new(doc) {
                if !matches!(integer("", field.value()), Ok(1 | -1)) {
                    let why = "The sort element value must be either 1 or -1";
                    return Err(refuse(why.to_owned()));
                }
                let mut parts = field.key.split(|&b| b == b'.');
                if field.key.contains(&b'.') && parts.any(<[u8]>::is_empty) {
                    let name = String::from_utf8_lossy(field.key);
                    let why =
                        format!("The sort field is a dotted field but has an empty part: {name}");
                    return Err(refuse(why));
                }
            }
            SortPattern::parse(doc, None).map(SortBy::Pattern)
        }
        other if !other.is_number() => Err(QueryError::location(
            2_942_507,
            "The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to sort \
             embedded fields",
        )),
        other => match integer("sortBy", other) {
            Ok(1) => Ok(SortBy::Value { ascending: true }),
            Ok(-1) => Ok(SortBy::Value { ascending: false }),
            _ => Err(QueryError::location(
                2_942_506,
                "The $sort element value must be either 1 or -1",
            )),
        },
    }
}

pub(super) fn zip(value: Value<'_>, scope: &mut Scope) -> Result<Special, QueryError> {
    let Value::Document(doc) = value else {
        return Err(QueryError::location(
            34_460,
            format!("$zip only supports an object as an argument, found {}", value.type_name()),
        ));
    };
    let (mut inputs, mut longest, mut defaults) = (Vec::new(), false, None);
    for field in Elements::of_bytes(doc) {
        match (field.key, field.value()) {
            (b"inputs", list @ Value::Array(_)) => {
                for input in list.elements() {
                    inputs.push(operand(input.value(), scope)?);
                }
            }
            (b"inputs", other) => {
                return Err(QueryError::location(
                    34_461,
                    format!("inputs must be an array of expressions, found {}", other.type_name()),
                ));
            }
            (b"useLongestLength", Value::Bool(b)) => longest = b,
            (b"useLongestLength", other) => {
                return Err(QueryError::location(
                    34_463,
                    format!("useLongestLength must be a bool, found {}", other.type_name()),
                ));
            }
            // An empty list of defaults counts as none.
            (b"defaults", list @ Value::Array(_)) => {
                let some = list.elements().next().is_some();
                defaults = some.then(|| operand(list, scope)).transpose()?;
            }
            (b"defaults", other) => {
                return Err(QueryError::location(
                    34_462,
                    format!(
                        "defaults must be an array of expressions, found {}",
                        other.type_name()
                    ),
                ));
            }
            (other, _) => {
                return Err(QueryError::location(
                    34_464,
                    format!("$zip found an unknown argument: {}", lossy(other)),
                ));
            }
        }
    }
    if inputs.is_empty() {
        return Err(QueryError::location(34_465, "$zip requires at least one input array"));
    }
    if defaults.is_some() && !longest {
        return Err(QueryError::location(
            34_466,
            "cannot specify defaults unless useLongestLength is true",
        ));
    }
    let lengths = [b"inputs".as_slice(), b"defaults"]
        .map(|name| Elements::of_bytes(doc).find(name).map(|list| list.value().elements().count()));
    if defaults.is_some() && lengths.first() != lengths.last() {
        return Err(QueryError::location(34_467, "defaults and inputs must have the same length"));
    }
    Ok(Special::Zip { inputs, longest, defaults })
}

/// Sorts values for `$sortArray` and for sorting accumulators.
pub(crate) fn sort_values<'a>(env: &Env<'a>, list: Value<'a>, by: &SortBy) -> Evaluated<'a> {
    if list.is_nullish() {
        return Ok(Value::Null);
    }
    let Value::Array(_) = list else {
        return Err(QueryError::location(
            2_942_504,
            format!(
                "The input argument to $sortArray must be an array, but was of type: {}",
                list.type_name()
            ),
        ));
    };
    let mut values: Vec<_> = list.elements().map(|e| e.value()).collect();
    match by {
        SortBy::Value { ascending } => values.sort_by(|a, b| {
            let order = logic::compare(env, *a, *b);
            if *ascending { order } else { order.reverse() }
        }),
        SortBy::Pattern(pattern) => {
            // Unlike a sort of documents this one takes an array for what it is.
            let at = |value: Value<'a>, path: &Path| {
                let names = path.parts().iter();
                let found = names.fold(value, |value, name| match value {
                    Value::Document(doc) => {
                        Elements::of_bytes(doc).find(name).map_or(Value::Missing, |e| e.value())
                    }
                    _ => Value::Missing,
                });
                if matches!(found, Value::Missing) { Value::Null } else { found }
            };
            let key = |value: Value<'a>| -> Vec<Value<'a>> {
                pattern.parts.iter().map(|part| at(value, &part.path)).collect()
            };
            let mut keyed: Vec<_> = values.iter().map(|value| (key(*value), *value)).collect();
            keyed.sort_by(|a, b| pattern.compare_values(a.0.iter().copied(), b.0.iter().copied()));
            values = keyed.into_iter().map(|(_, value)| value).collect();
        }
    }
    Ok(build::array(env, values))
}

pub(super) fn eval_zip<'a>(
    inputs: &'a [Expr],
    longest: bool,
    defaults: Option<&'a Expr>,
    env: &mut Env<'a>,
) -> Evaluated<'a> {
    let mut lists = Vec::new();
    for input in inputs {
        let list = input.eval(env)?;
        if list.is_nullish() {
            return Ok(Value::Null);
        }
        let Value::Array(_) = list else {
            return Err(QueryError::location(
                34_468,
                format!("$zip found a non-array expression in input: {}", Spelled(list)),
            ));
        };
        lists.push(list.elements().map(|e| e.value()).collect::<Vec<_>>());
    }
    let defaults: Vec<_> = match defaults {
        None => Vec::new(),
        Some(expr) => expr.eval(env)?.elements().map(|e| e.value()).collect(),
    };
    if !defaults.is_empty() && defaults.len() != lists.len() {
        return Err(QueryError::location(34_467, "defaults and inputs must have the same length"));
    }
    let lengths = lists.iter().map(Vec::len);
    let rows = if longest { lengths.max() } else { lengths.min() }.unwrap_or(0);
    let zipped: Vec<_> = (0..rows)
        .map(|row| {
            let items = lists.iter().enumerate().map(|(at, list)| {
                list.get(row).or_else(|| defaults.get(at)).copied().unwrap_or(Value::Null)
            });
            build::array(env, items.collect::<Vec<_>>())
        })
        .collect();
    Ok(build::array(env, zipped))
}
