//! Array operators.

use std::collections::{HashMap, hash_map::Entry};

use protocol::ErrorCode;

use super::{DocBuilder, Env, Evaluated, build, logic, string::range};
use crate::{
    error::QueryError,
    value::{Spelled, Value},
};

fn error<'a>(code: i32, message: impl Into<String>) -> Evaluated<'a> {
    Err(QueryError::location(code, message))
}

fn first<'a>(args: &[Value<'a>]) -> Value<'a> {
    args.first().copied().unwrap_or(Value::Missing)
}

fn integral(value: Value<'_>) -> Option<i32> {
    crate::matcher::operands::integer("", value).ok().and_then(|n| i32::try_from(n).ok())
}

fn items<'a>(value: Value<'a>) -> Vec<Value<'a>> {
    value.elements().map(|e| e.value()).collect()
}

fn count<'a>(n: usize) -> Value<'a> {
    i32::try_from(n).map_or(Value::Int64(i64::MAX), Value::Int32)
}

pub(super) fn op_array_elem_at<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let [list, at] = *args else { return Ok(Value::Null) };
    if list.is_nullish() || at.is_nullish() {
        return Ok(Value::Null);
    }
    let Value::Array(_) = list else {
        return error(
            28_689,
            format!("$arrayElemAt's first argument must be an array, but is {}", list.type_name()),
        );
    };
    if !at.is_number() {
        return error(
            28_690,
            format!(
                "$arrayElemAt's second argument must be a numeric value, but is {}",
                at.type_name()
            ),
        );
    }
    let Some(index) = integral(at) else {
        return error(
            28_691,
            format!(
                "$arrayElemAt's second argument must be representable as a 32-bit integer: {}",
                as_double(at)
            ),
        );
    };
    Ok(element_at(list, index))
}

fn element_at(list: Value<'_>, index: i32) -> Value<'_> {
    let mut elements = list.elements();
    if let Ok(at) = usize::try_from(index) {
        return elements.nth(at).map_or(Value::Missing, |e| e.value());
    }
    let all = items(list);
    let back = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
    all.len().checked_sub(back).and_then(|at| all.get(at)).copied().unwrap_or(Value::Missing)
}

pub(super) fn op_first<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    at_end("$first", first(args), 0)
}

pub(super) fn op_last<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    at_end("$last", first(args), -1)
}

fn at_end<'a>(name: &str, list: Value<'a>, index: i32) -> Evaluated<'a> {
    match list {
        Value::Array(_) => Ok(element_at(list, index)),
        _ if list.is_nullish() => Ok(Value::Null),
        other => error(
            28_689,
            format!("{name}'s argument must be an array, but is {}", other.type_name()),
        ),
    }
}

pub(super) fn op_concat_arrays<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    /// mongod uses as much memory as it gets; here the length of an array is limited to what its four-byte length
    /// allows.
    const BYTES_MAX: usize = 1 << 30;
    let mut bytes = 0;
    for &arg in args {
        match arg {
            Value::Array(array) => bytes += array.len(),
            _ if arg.is_nullish() => return Ok(Value::Null),
            other => {
                return error(
                    28_664,
                    format!("$concatArrays only supports arrays, not {}", other.type_name()),
                );
            }
        }
    }
    if bytes > BYTES_MAX {
        let text = "$concatArrays would use too much memory and cannot spill";
        return Err(QueryError::new(ErrorCode::ExceededMemoryLimit, text));
    }
    let values = args.iter().flat_map(|array| array.elements().map(|element| element.value()));
    Ok(build::array(env, values))
}

pub(super) fn op_is_array<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    Ok(Value::Bool(matches!(first(args), Value::Array(_))))
}

pub(super) fn op_size<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    match first(args) {
        list @ Value::Array(_) => Ok(count(list.elements().count())),
        other => error(
            17_124,
            format!(
                "The argument to $size must be an array, but was of type: {}",
                other.type_name()
            ),
        ),
    }
}

pub(super) fn op_in<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let [value, list] = *args else { return Ok(Value::Null) };
    let Value::Array(_) = list else {
        return error(
            40_081,
            format!("$in requires an array as a second argument, found: {}", list.type_name()),
        );
    };
    Ok(Value::Bool(list.elements().any(|e| logic::compare(env, e.value(), value).is_eq())))
}

/// Refuses a constant that is not an array.
pub(super) fn check_index_of(_: &str, constants: &[Option<Value<'_>>]) -> Result<(), QueryError> {
    match constants.first() {
        Some(Some(value)) if !matches!(value, Value::Array(_)) && !value.is_nullish() => {
            Err(QueryError::location(
                50_809,
                format!(
                    "First operand of $indexOfArray must be an array. First argument is of type: {}",
                    value.type_name()
                ),
            ))
        }
        _ => Ok(()),
    }
}

pub(super) fn op_index_of_array<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let list = first(args);
    if list.is_nullish() {
        return Ok(Value::Null);
    }
    let Value::Array(_) = list else {
        return error(
            40_090,
            format!(
                "$indexOfArray requires an array as a first argument, found: {}",
                list.type_name()
            ),
        );
    };
    let wanted = args.get(1).copied().unwrap_or(Value::Missing);
    let all = items(list);
    let (start, end) = range("$indexOfArray", args, all.len())?;
    let within = all.iter().enumerate().take(end.min(all.len())).skip(start);
    let found = within.into_iter().find(|(_, v)| logic::compare(env, **v, wanted).is_eq());
    Ok(found.map_or(Value::Int32(-1), |(at, _)| count(at)))
}

/// A decimal as the nearest double.
fn as_double(value: Value<'_>) -> Spelled<'_> {
    match value {
        Value::Decimal(_) => Spelled(Value::Double(super::as_f64(value))),
        value => Spelled(value),
    }
}

pub(super) fn op_range<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let (start, end) = (first(args), args.get(1).copied().unwrap_or(Value::Missing));
    let step = args.get(2).copied().unwrap_or(Value::Int32(1));
    let number = |value: Value<'a>, what: &str, codes: (i32, i32)| {
        if !value.is_number() {
            return Err(QueryError::location(
                codes.0,
                // mongod's own text, including the missing space.
                format!(
                    "$range requires a numeric {what} value, found value of type:{}{}",
                    if what == "step" { "" } else { " " },
                    value.type_name()
                ),
            ));
        }
        integral(value).ok_or_else(|| {
            QueryError::location(codes.1, format!("$range requires a{} {what} value that can be represented as a 32-bit integer, found value: {}", if what == "ending" { "n" } else { "" }, Spelled(value)))
        })
    };
    let start = i64::from(number(start, "starting", (34_443, 34_444))?);
    let end = i64::from(number(end, "ending", (34_445, 34_446))?);
    let step = i64::from(number(step, "step", (34_447, 34_448))?);
    if step == 0 {
        return error(34_449, "$range requires a non-zero step value");
    }
    // Limits the result, since a small document could ask for results that fill memory.
    const BYTES_MAX: i64 = 100 * 1024 * 1024;
    let bytes = ((end - start) / step).saturating_mul(16) + 40;
    if bytes > BYTES_MAX {
        return error(
            146,
            format!(
                "$range would use too much memory ({bytes} bytes) and cannot spill to disk. Memory limit: {BYTES_MAX} bytes"
            ),
        );
    }
    let mut all = Vec::new();
    let mut n = start;
    while if step > 0 { n < end } else { n > end } {
        all.push(i32::try_from(n).map_or(Value::Int64(n), Value::Int32));
        n += step;
    }
    Ok(build::array(env, all))
}

pub(super) fn op_reverse_array<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    match first(args) {
        list @ Value::Array(_) => {
            let mut all = items(list);
            all.reverse();
            Ok(build::array(env, all))
        }
        value if value.is_nullish() => Ok(Value::Null),
        other => error(
            34_435,
            format!(
                "The argument to $reverseArray must be an array, but was of type: {}",
                other.type_name()
            ),
        ),
    }
}

pub(super) fn op_slice<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let list = first(args);
    let second = args.get(1).copied().unwrap_or(Value::Missing);
    if list.is_nullish() || second.is_nullish() {
        return Ok(Value::Null);
    }
    let Value::Array(_) = list else {
        return error(
            28_724,
            format!(
                "First argument to $slice must be an array, but is of type: {}",
                list.type_name()
            ),
        );
    };
    if !second.is_number() {
        return error(
            28_725,
            format!(
                "Second argument to $slice must be a numeric value, but is of type: {}",
                second.type_name()
            ),
        );
    }
    let Some(n) = integral(second) else {
        return error(
            28_726,
            format!(
                "Second argument to $slice can't be represented as a 32-bit integer: {}",
                Spelled(Value::Double(super::as_f64(second)))
            ),
        );
    };
    let all = items(list);
    let Some(&third) = args.get(2) else {
        return Ok(build::array(env, cut(&all, n, None)));
    };
    if third.is_nullish() {
        return Ok(Value::Null);
    }
    if !third.is_number() {
        return error(
            28_727,
            format!(
                "Third argument to $slice must be numeric, but is of type: {}",
                third.type_name()
            ),
        );
    }
    let Some(len) = integral(third) else {
        return error(
            28_728,
            format!(
                "Third argument to $slice can't be represented as a 32-bit integer: {}",
                Spelled(Value::Double(super::as_f64(third)))
            ),
        );
    };
    let Some(len) = usize::try_from(len).ok().filter(|n| *n > 0) else {
        return error(
            28_729,
            format!("Third argument to $slice must be positive: {}", Spelled(third)),
        );
    };
    Ok(build::array(env, cut(&all, n, Some(len))))
}

/// The part of a list that `$slice` selects, in expressions and projections.
pub(crate) fn cut<'a>(all: &[Value<'a>], n: i32, len: Option<usize>) -> Vec<Value<'a>> {
    let back = usize::try_from(n.unsigned_abs()).unwrap_or(usize::MAX);
    let (start, len) = match (n < 0, len) {
        (true, len) => (all.len().saturating_sub(back), len.unwrap_or(back)),
        (false, Some(len)) => (back, len),
        (false, None) => (0, back),
    };
    all.iter().skip(start).take(len).copied().collect()
}

pub(super) fn op_array_to_object<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let list = first(args);
    if list.is_nullish() {
        return Ok(Value::Null);
    }
    let Value::Array(_) = list else {
        return error(
            40_386,
            format!("$arrayToObject requires an array input, found: {}", list.type_name()),
        );
    };
    let mut pairs: Vec<(&'a [u8], Value<'a>)> = Vec::new();
    let mut places: HashMap<&'a [u8], usize> = HashMap::new();
    let mut by_pairs = None;
    for element in list.elements() {
        let (key, value) = match element.value() {
            pair @ Value::Array(_) if by_pairs != Some(false) => {
                by_pairs = Some(true);
                as_pair(pair)?
            }
            Value::Document(doc) if by_pairs != Some(true) => {
                by_pairs = Some(false);
                as_key_value(doc)?
            }
            other => {
                let (code, text) = match by_pairs {
                    None => (40_398, "Unrecognised input type format for $arrayToObject: "),
                    Some(true) => (
                        40_396,
                        "$arrayToObject requires a consistent input format. Elements mustall be arrays or all be objects. Array was detected, now found: ",
                    ),
                    Some(false) => (
                        40_391,
                        "$arrayToObject requires a consistent input format. Elements mustall be arrays or all be objects. Object was detected, now found: ",
                    ),
                };
                return error(code, format!("{text}{}", other.type_name()));
            }
        };
        if key.contains(&0) {
            return error(4_940_400, "Key field cannot contain an embedded null byte");
        }
        match places.entry(key) {
            Entry::Vacant(place) => {
                place.insert(pairs.len());
                pairs.push((key, value));
            }
            Entry::Occupied(place) => {
                if let Some(known) = pairs.get_mut(*place.get()) {
                    known.1 = value;
                }
            }
        }
    }
    let mut doc = DocBuilder::new();
    for (key, value) in pairs {
        doc.push(key, value);
    }
    Ok(Value::Document(env.keep(&doc.finish())))
}

fn as_pair<'a>(pair: Value<'a>) -> Result<(&'a [u8], Value<'a>), QueryError> {
    let parts = items(pair);
    let [key, value] = *parts.as_slice() else {
        return Err(QueryError::location(
            40_397,
            format!(
                "$arrayToObject requires an array of size 2 arrays,found array of size: {}",
                parts.len()
            ),
        ));
    };
    match key {
        Value::String(key) => Ok((key, value)),
        other => Err(QueryError::location(
            40_395,
            format!(
                "$arrayToObject requires an array of key-value pairs, where the key must be of type string. Found key type: {}",
                other.type_name()
            ),
        )),
    }
}

fn as_key_value<'a>(doc: &'a [u8]) -> Result<(&'a [u8], Value<'a>), QueryError> {
    let fields = Value::Document(doc).elements();
    let count = fields.clone().count();
    if count != 2 {
        return Err(QueryError::location(
            40_392,
            format!(
                "$arrayToObject requires an object keys of 'k' and 'v'. Found incorrect number of keys:{count}"
            ),
        ));
    }
    let part = |name: &[u8]| fields.clone().find(name).map(|e| e.value());
    let (Some(key), Some(value)) = (part(b"k"), part(b"v")) else {
        return Err(QueryError::location(
            40_393,
            format!(
                "$arrayToObject requires an object with keys 'k' and 'v'. Missing either or both keys from: {}",
                Spelled(Value::Document(doc))
            ),
        ));
    };
    match key {
        Value::String(key) => Ok((key, value)),
        other => Err(QueryError::location(
            40_394,
            format!(
                "$arrayToObject requires an object with keys 'k' and 'v', where the value of 'k' must be of type string. Found type: {}",
                other.type_name()
            ),
        )),
    }
}

pub(super) fn op_object_to_array<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    match first(args) {
        doc @ Value::Document(_) => {
            let pairs: Vec<_> = doc
                .elements()
                .map(|field| {
                    let mut pair = DocBuilder::new();
                    pair.push(b"k", Value::String(field.key));
                    pair.push(b"v", field.value());
                    Value::Document(env.keep(&pair.finish()))
                })
                .collect();
            Ok(build::array(env, pairs))
        }
        value if value.is_nullish() => Ok(Value::Null),
        other => error(
            40_390,
            format!("$objectToArray requires a document input, found: {}", other.type_name()),
        ),
    }
}

/// `$firstN`, `$lastN`, `$minN`, `$maxN` over an array.
fn n_of<'a>(
    env: &mut Env<'a>,
    args: &[Option<Value<'a>>],
    pick: fn(&Env<'a>, Vec<Value<'a>>, usize) -> Vec<Value<'a>>,
) -> Evaluated<'a> {
    let [Some(n), Some(input)] = *args else { return Ok(Value::Null) };
    let Some(whole) = crate::matcher::operands::integer("n", n).ok() else {
        return error(
            if n.is_number() { 5_787_903 } else { 5_787_902 },
            format!("Value for 'n' must be of integral type, but found {}", Spelled(n)),
        );
    };
    let Some(n) = usize::try_from(whole).ok().filter(|n| *n > 0) else {
        return error(5_787_908, format!("'n' must be greater than 0, found {whole}"));
    };
    let Value::Array(_) = input else {
        return error(5_788_200, "Input must be an array");
    };
    let picked = pick(env, items(input), n);
    Ok(build::array(env, picked))
}

pub(super) fn op_first_n<'a>(env: &mut Env<'a>, args: &[Option<Value<'a>>]) -> Evaluated<'a> {
    n_of(env, args, |_, all, n| all.into_iter().take(n).collect())
}

pub(super) fn op_last_n<'a>(env: &mut Env<'a>, args: &[Option<Value<'a>>]) -> Evaluated<'a> {
    n_of(env, args, |_, all, n| {
        let skip = all.len().saturating_sub(n);
        all.into_iter().skip(skip).collect()
    })
}

pub(super) fn op_min_n<'a>(env: &mut Env<'a>, args: &[Option<Value<'a>>]) -> Evaluated<'a> {
    n_of(env, args, |env, mut all, n| {
        all.retain(|v| !v.is_nullish());
        all.sort_by(|a, b| logic::compare(env, *a, *b));
        all.truncate(n);
        all
    })
}

pub(super) fn op_max_n<'a>(env: &mut Env<'a>, args: &[Option<Value<'a>>]) -> Evaluated<'a> {
    n_of(env, args, |env, mut all, n| {
        all.retain(|v| !v.is_nullish());
        // Of equal values the first ones are kept, and come last.
        all.sort_by(|a, b| logic::compare(env, *b, *a));
        all.truncate(n);
        all.reverse();
        all.sort_by(|a, b| logic::compare(env, *b, *a));
        all
    })
}
