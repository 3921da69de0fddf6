//! String operators.

use std::borrow::Cow;

use super::{Env, Evaluated, build, convert};
use crate::{
    error::QueryError,
    matcher::truncate,
    value::{Value, display::general},
};

fn error<'a>(code: i32, message: impl Into<String>) -> Evaluated<'a> {
    Err(QueryError::location(code, message))
}

fn first<'a>(args: &[Value<'a>]) -> Value<'a> {
    args.first().copied().unwrap_or(Value::Missing)
}

fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Converts a value to text as the older operators do: strings, numbers, dates; "" for null.
fn coerced<'a>(value: Value<'a>) -> Option<Cow<'a, str>> {
    Some(match value {
        Value::String(s) | Value::Symbol(s) | Value::Code(s) => lossy(s),
        _ if value.is_nullish() => "".into(),
        Value::Double(n) if n.is_nan() => "nan".into(),
        Value::Double(n) if n.is_infinite() => if n > 0.0 { "inf" } else { "-inf" }.into(),
        Value::Double(n) => general(n, 6).into(),
        Value::Int32(_) | Value::Int64(_) | Value::Decimal(_) | Value::Date(_) => {
            convert::to_text(value).into()
        }
        Value::Timestamp(n) => super::date::timestamp_text(n).into(),
        _ => return None,
    })
}

fn coerced_or<'a>(value: Value<'a>) -> Result<Cow<'a, str>, QueryError> {
    coerced(value).ok_or_else(|| {
        QueryError::location(
            16_007,
            format!("can't convert from BSON type {} to String", value.type_name()),
        )
    })
}

pub(super) fn op_concat<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let mut out = Vec::new();
    for &arg in args {
        match arg {
            Value::String(s) => out.extend_from_slice(s),
            _ if arg.is_nullish() => return Ok(Value::Null),
            other => {
                return error(
                    16_702,
                    format!("$concat only supports strings, not {}", other.type_name()),
                );
            }
        }
    }
    text_of(env, &out)
}

/// A text that was made, if it is not too long.
fn text_of<'a>(env: &Env<'a>, made: &[u8]) -> Evaluated<'a> {
    if made.len() >= TEXT_MAX {
        let size = made.len();
        let text = format!("RCString too large. Requires size={size} < limit={TEXT_MAX}");
        return error(16_493, text);
    }
    Ok(Value::String(env.keep(made)))
}

/// Maximum length of a text, as in mongod.
const TEXT_MAX: usize = 16 << 20;

pub(super) fn op_to_lower<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    // Only ASCII letters are converted.
    Ok(env.text(&coerced_or(first(args))?.to_ascii_lowercase()))
}

pub(super) fn op_to_upper<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    Ok(env.text(&coerced_or(first(args))?.to_ascii_uppercase()))
}

pub(super) fn op_strcasecmp<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let [a, b] = *args else { return Ok(Value::Null) };
    let (a, b) = (coerced_or(a)?.to_ascii_uppercase(), coerced_or(b)?.to_ascii_uppercase());
    Ok(Value::Int32(match a.cmp(&b) {
        std::cmp::Ordering::Less => -1,
        std::cmp::Ordering::Equal => 0,
        std::cmp::Ordering::Greater => 1,
    }))
}

fn whole(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Int32(n) => Some(i64::from(n)),
        Value::Int64(n) => Some(n),
        Value::Double(n) => truncate(n),
        Value::Decimal(n) => n.truncate_to_i64(),
        _ => None,
    }
}

pub(super) fn op_substr_bytes<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let [text, start, length] = *args else { return Ok(Value::Null) };
    let text = coerced_or(text)?;
    if !start.is_number() {
        return error(
            16_034,
            format!(
                "$substrBytes:  starting index must be a numeric type (is BSON type {})",
                start.type_name()
            ),
        );
    }
    if !length.is_number() {
        return error(
            16_035,
            format!(
                "$substrBytes:  length must be a numeric type (is BSON type {})",
                length.type_name()
            ),
        );
    }
    let bytes = text.as_bytes();
    let coerced = |value: Value<'_>| match value {
        Value::Double(n) => truncate(n).ok_or_else(|| {
            QueryError::location(
                31_109,
                format!("Can't coerce out of range value {} to long", crate::value::Spelled(value)),
            )
        }),
        Value::Decimal(n) => {
            let even = super::decimal::round(n, 0, dec::Rounding::HalfEven);
            Ok(even.truncate_to_i64().unwrap_or(i64::MAX))
        }
        other => Ok(whole(other).unwrap_or(i64::MAX)),
    };
    let start = coerced(start)?;
    let Ok(from) = usize::try_from(start) else {
        return error(
            50_752,
            format!("$substrBytes:  starting index must be non-negative (got: {start})"),
        );
    };
    let wanted = usize::try_from(coerced(length)?).unwrap_or(usize::MAX);
    let is_continuation = |at: usize| bytes.get(at).is_some_and(|b| b & 0xc0 == 0x80);
    if is_continuation(from) {
        return error(
            28_656,
            "$substrBytes:  Invalid range, starting index is a UTF-8 continuation byte.",
        );
    }
    let end = from.saturating_add(wanted).min(bytes.len());
    if is_continuation(end) {
        return error(
            28_657,
            "$substrBytes:  Invalid range, ending index is in the middle of a UTF-8 character.",
        );
    }
    Ok(Value::String(env.keep(bytes.get(from..end).unwrap_or_default())))
}

pub(super) fn op_substr_cp<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let [text, start, length] = *args else { return Ok(Value::Null) };
    let text = coerced_or(text)?;
    if !start.is_number() {
        return error(
            34_450,
            format!(
                "$substrCP: starting index must be a numeric type (is BSON type {})",
                start.type_name()
            ),
        );
    }
    let Some(from) = integral(start) else {
        return error(
            34_451,
            format!(
                "$substrCP: starting index cannot be represented as a 32-bit integral value: {}",
                crate::value::Spelled(start)
            ),
        );
    };
    if !length.is_number() {
        return error(
            34_452,
            format!(
                "$substrCP: length must be a numeric type (is BSON type {})",
                length.type_name()
            ),
        );
    }
    let Some(wanted) = integral(length) else {
        return error(
            34_453,
            format!(
                "$substrCP: length cannot be represented as a 32-bit integral value: {}",
                crate::value::Spelled(length)
            ),
        );
    };
    let Ok(wanted) = usize::try_from(wanted) else {
        return error(34_454, "$substrCP: length must be a nonnegative integer.");
    };
    let Ok(from) = usize::try_from(from) else {
        return error(34_455, "$substrCP: the starting index must be nonnegative integer.");
    };
    let cut: String = text.chars().skip(from).take(wanted).collect();
    Ok(env.text(&cut))
}

fn integral(value: Value<'_>) -> Option<i32> {
    crate::matcher::operands::integer("", value).ok().and_then(|n| i32::try_from(n).ok())
}

fn length<'a>(n: usize) -> Value<'a> {
    i32::try_from(n).map_or(Value::Int64(i64::MAX), Value::Int32)
}

pub(super) fn op_str_len_bytes<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    match first(args) {
        Value::String(s) => Ok(length(s.len())),
        other => error(
            34_473,
            format!("$strLenBytes requires a string argument, found: {}", other.type_name()),
        ),
    }
}

pub(super) fn op_str_len_cp<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    match first(args) {
        Value::String(s) => Ok(length(lossy(s).chars().count())),
        other => error(
            34_471,
            format!("$strLenCP requires a string argument, found: {}", other.type_name()),
        ),
    }
}

pub(super) fn op_split<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let [text, by] = *args else { return Ok(Value::Null) };
    if text.is_nullish() || by.is_nullish() {
        return Ok(Value::Null);
    }
    let Value::String(text) = text else {
        return error(
            40_085,
            format!(
                "$split requires an expression that evaluates to a string as a first argument, found: {}",
                text.type_name()
            ),
        );
    };
    let Value::String(by) = by else {
        return error(
            10_503_900,
            format!(
                "$split requires an expression that evaluates to a string as a second argument, found: {}",
                by.type_name()
            ),
        );
    };
    if by.is_empty() {
        return error(40_087, "$split requires a non-empty separator");
    }
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = find_bytes(rest, by, 0) {
        let (part, after) = rest.split_at_checked(at).unwrap_or((rest, &[]));
        parts.push(Value::String(part));
        rest = after.get(by.len()..).unwrap_or_default();
    }
    parts.push(Value::String(rest));
    Ok(build::array(env, parts))
}

/// The first position of `needle` in `hay`, from `start` on.
fn find_bytes(hay: &[u8], needle: &[u8], start: usize) -> Option<usize> {
    if needle.is_empty() {
        return (start <= hay.len()).then_some(start);
    }
    let windows = hay.get(start..)?.windows(needle.len());
    windows.into_iter().position(|w| w == needle).map(|at| at + start)
}

pub(super) fn op_index_of_bytes<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let (text, token) = (first(args), args.get(1).copied().unwrap_or(Value::Missing));
    if text.is_nullish() {
        return Ok(Value::Null);
    }
    let Value::String(text) = text else {
        return error(
            40_091,
            format!(
                "$indexOfBytes requires a string as the first argument, found: {}",
                text.type_name()
            ),
        );
    };
    let Value::String(token) = token else {
        return error(
            40_092,
            format!(
                "$indexOfBytes requires a string as the second argument, found: {}",
                token.type_name()
            ),
        );
    };
    let (start, end) = range("$indexOfBytes", args, text.len())?;
    let hay = text.get(..end.min(text.len())).unwrap_or_default();
    if start > text.len() || end < start {
        return Ok(Value::Int32(-1));
    }
    Ok(find_bytes(hay, token, start).map_or(Value::Int32(-1), length))
}

pub(super) fn op_index_of_cp<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let (text, token) = (first(args), args.get(1).copied().unwrap_or(Value::Missing));
    if text.is_nullish() {
        return Ok(Value::Null);
    }
    let Value::String(text) = text else {
        return error(
            40_093,
            format!(
                "$indexOfCP requires a string as the first argument, found: {}",
                text.type_name()
            ),
        );
    };
    let Value::String(token) = token else {
        return error(
            40_094,
            format!(
                "$indexOfCP requires a string as the second argument, found: {}",
                token.type_name()
            ),
        );
    };
    let text: Vec<char> = lossy(text).chars().collect();
    let token: Vec<char> = lossy(token).chars().collect();
    let (start, end) = range("$indexOfCP", args, text.len())?;
    if start > text.len() || end < start {
        return Ok(Value::Int32(-1));
    }
    let hay = text.get(start..end.min(text.len())).unwrap_or_default();
    let found = if token.is_empty() {
        // mongod searches before every character, so not after the last one.
        (!hay.is_empty() || text.is_empty()).then_some(0)
    } else {
        hay.windows(token.len()).position(|w| w == token.as_slice())
    };
    Ok(found.map_or(Value::Int32(-1), |at| length(at + start)))
}

/// The optional start and end of a search.
pub(super) fn range(
    name: &str,
    args: &[Value<'_>],
    len: usize,
) -> Result<(usize, usize), QueryError> {
    let bound = |at: usize, what: &str, default: usize| match args.get(at) {
        None => Ok(default),
        Some(value) => {
            let Some(n) = integral(*value) else {
                // mongod's own text, including the missing space.
                return Err(QueryError::location(
                    if name == "$indexOfArray" { 9_711_600 } else { 40_096 },
                    format!(
                        "{name}requires an integral {what} index, found a value of type: {}, with value: {}",
                        value.type_name(),
                        crate::value::Spelled(*value)
                    ),
                ));
            };
            usize::try_from(n).map_err(|_| {
                QueryError::location(
                    if name == "$indexOfArray" { 9_711_601 } else { 40_097 },
                    format!("{name} requires a nonnegative {what} index, found: {n}"),
                )
            })
        }
    };
    Ok((bound(2, "starting", 0)?, bound(3, "ending", len)?))
}

fn trimmed<'a>(
    name: &str,
    env: &mut Env<'a>,
    args: &[Option<Value<'a>>],
    left: bool,
    right: bool,
) -> Evaluated<'a> {
    let [Some(input), chars] = *args else { return Ok(Value::Null) };
    if input.is_nullish() {
        return Ok(Value::Null);
    }
    let Value::String(text) = input else {
        return error(
            50_699,
            format!(
                "{name} requires its input to be a string, got {} (of type {}) instead.",
                crate::value::Spelled(input),
                input.type_name()
            ),
        );
    };
    let set: Vec<char> = match chars {
        None => WHITESPACE.to_vec(),
        Some(Value::String(chars)) => lossy(chars).chars().collect(),
        Some(other) if other.is_nullish() => return Ok(Value::Null),
        Some(other) => {
            return error(
                50_700,
                format!(
                    "{name} requires 'chars' to be a string, got {} (of type {}) instead.",
                    crate::value::Spelled(other),
                    other.type_name()
                ),
            );
        }
    };
    let text = lossy(text);
    let mut cut: &str = &text;
    if left {
        cut = cut.trim_start_matches(set.as_slice());
    }
    if right {
        cut = cut.trim_end_matches(set.as_slice());
    }
    Ok(env.text(cut))
}

/// Whitespace characters of `$trim`.
const WHITESPACE: [char; 21] = [
    '\0', '\t', '\n', '\u{b}', '\u{c}', '\r', ' ', '\u{a0}', '\u{1680}', '\u{2000}', '\u{2001}',
    '\u{2002}', '\u{2003}', '\u{2004}', '\u{2005}', '\u{2006}', '\u{2007}', '\u{2008}', '\u{2009}',
    '\u{200a}', '\u{180e}',
];

pub(super) fn op_trim<'a>(env: &mut Env<'a>, args: &[Option<Value<'a>>]) -> Evaluated<'a> {
    trimmed("$trim", env, args, true, true)
}

pub(super) fn op_ltrim<'a>(env: &mut Env<'a>, args: &[Option<Value<'a>>]) -> Evaluated<'a> {
    trimmed("$ltrim", env, args, true, false)
}

pub(super) fn op_rtrim<'a>(env: &mut Env<'a>, args: &[Option<Value<'a>>]) -> Evaluated<'a> {
    trimmed("$rtrim", env, args, false, true)
}

fn replaced<'a>(
    name: &str,
    env: &mut Env<'a>,
    args: &[Option<Value<'a>>],
    all: bool,
) -> Evaluated<'a> {
    let [Some(input), Some(find), Some(with)] = *args else { return Ok(Value::Null) };
    for (value, what, code) in [
        (input, "input", 10_503_904),
        (find, "find", 10_503_901),
        (with, "replacement", 10_503_902),
    ] {
        if !value.is_nullish() && !matches!(value, Value::String(_)) {
            return error(
                code,
                format!(
                    "{name} requires that '{what}' be a string, found: {}",
                    crate::value::Spelled(value)
                ),
            );
        }
    }
    let (Value::String(input), Value::String(find), Value::String(with)) = (input, find, with)
    else {
        return Ok(Value::Null);
    };
    let (input, find, with) = (lossy(input), lossy(find), lossy(with));
    let out = if all { input.replace(&*find, &with) } else { input.replacen(&*find, &with, 1) };
    text_of(env, out.as_bytes())
}

pub(super) fn op_replace_one<'a>(env: &mut Env<'a>, args: &[Option<Value<'a>>]) -> Evaluated<'a> {
    replaced("$replaceOne", env, args, false)
}

pub(super) fn op_replace_all<'a>(env: &mut Env<'a>, args: &[Option<Value<'a>>]) -> Evaluated<'a> {
    replaced("$replaceAll", env, args, true)
}

pub(super) fn op_binary_size<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    match first(args) {
        Value::String(bytes) | Value::Binary { bytes, .. } => Ok(length(bytes.len())),
        value if value.is_nullish() => Ok(Value::Null),
        other => error(
            51_276,
            format!(
                "$binarySize requires a string or BinData argument, found: {}",
                other.type_name()
            ),
        ),
    }
}

pub(super) fn op_bson_size<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    match first(args) {
        Value::Document(bytes) => Ok(length(bytes.len())),
        value if value.is_nullish() => Ok(Value::Null),
        other => error(
            31_393,
            format!("$bsonSize requires a document input, found: {}", other.type_name()),
        ),
    }
}
