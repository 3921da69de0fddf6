//! `$convert` and its short forms such as `$toInt`.

use super::{
    Call, Env, Evaluated, Expr, Operator, Scope, arithmetic,
    convert_binary::{self, Format},
    date, decimal, logic,
    parse::operand,
};
use crate::{
    error::QueryError,
    matcher::{operands::TYPE_NAMES, truncate},
    value::{Value, display, hash64},
};

/// The error ConversionFailure.
pub(super) fn failed(message: impl Into<String>) -> QueryError {
    QueryError::location(241, message)
}

fn first<'a>(args: &[Value<'a>]) -> Value<'a> {
    args.first().copied().unwrap_or(Value::Missing)
}

/// The text of a scalar, as `$toString` returns it.
pub(super) fn to_text(value: Value<'_>) -> String {
    match value {
        Value::Bool(b) => b.to_string(),
        Value::Int32(n) => n.to_string(),
        Value::Int64(n) => n.to_string(),
        Value::Double(n) => double_text(n),
        Value::Decimal(n) => n.to_string(),
        Value::Date(ms) => date::iso(ms),
        Value::ObjectId(id) => id.iter().map(|b| format!("{b:02x}")).collect(),
        Value::String(s) => String::from_utf8_lossy(s).into_owned(),
        _ => String::new(),
    }
}

/// A double with the fewest digits that identify it.
fn double_text(n: f64) -> String {
    if n.is_nan() {
        return "NaN".into();
    }
    if n.is_infinite() {
        return if n > 0.0 { "Infinity".into() } else { "-Infinity".into() };
    }
    for precision in 15..=17 {
        let text = display::general(n, precision);
        if text.parse() == Ok(n) {
            return text;
        }
    }
    display::general(n, 17)
}

pub(super) fn op_type<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    Ok(Value::String(first(args).type_name().as_bytes()))
}

pub(super) fn op_is_number<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    Ok(Value::Bool(first(args).is_number()))
}

macro_rules! short_forms {
    ($($fun:ident = $type_byte:literal;)*) => {$(
        pub(super) fn $fun<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
            let value = first(args);
            if value.is_nullish() { Ok(Value::Null) } else { to(env, value, Target::of($type_byte)) }
        }
    )*};
}

short_forms! {
    op_to_bool = 0x08;
    op_to_int = 0x10;
    op_to_long = 0x12;
    op_to_double = 0x01;
    op_to_decimal = 0x13;
    op_to_string = 0x02;
    op_to_date = 0x09;
    op_to_object_id = 0x07;
}

pub(super) fn op_to_uuid<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let value = first(args);
    if value.is_nullish() {
        return Ok(Value::Null);
    }
    let target = Target { subtype: 4, format: Some(Format::Uuid), ..Target::of(0x05) };
    to(env, value, target)
}

/// `$toHashedIndexKey` takes one argument, which may itself be an array.
pub(super) fn to_hashed_index_key(
    row: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope,
) -> Result<Expr, QueryError> {
    let args = vec![operand(value, scope)?];
    Ok(Expr::Call(Call { row, fun: op_to_hashed_index_key, args }))
}

fn op_to_hashed_index_key<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    Ok(Value::Int64(hash64(first(args))))
}

/// The target of a conversion.
#[derive(Clone, Copy)]
struct Target {
    type_byte: u8,
    /// The subtype of binary data.
    subtype: u8,
    format: Option<Format>,
    big_endian: bool,
}

impl Target {
    /// The target of a short form: binary data is converted to text in the format that fits.
    fn of(type_byte: u8) -> Self {
        Self { type_byte, subtype: 0, format: Some(Format::Auto), big_endian: false }
    }
}

/// `{input, to, onError, onNull, format, byteOrder}`.
pub(super) fn op_convert<'a>(env: &mut Env<'a>, args: &[Option<Value<'a>>]) -> Evaluated<'a> {
    let [Some(input), Some(target), on_error, on_null, format, byte_order] = *args else {
        return Ok(Value::Null);
    };
    let of_null = on_null.unwrap_or(Value::Null);
    let part = |name: &[u8]| target.elements().find(name).map_or(Value::Missing, |e| e.value());
    let (wanted, subtype) = match target {
        Value::Document(_) => (part(b"type"), part(b"subtype")),
        other => (other, Value::Missing),
    };
    if target.is_nullish() {
        return Ok(if input.is_nullish() { of_null } else { Value::Null });
    }
    let type_byte = target_type(wanted)?;
    // For null input, other errors do not matter.
    if input.is_nullish() {
        return Ok(of_null);
    }
    let format = Format::parse(format)?;
    let subtype = match subtype {
        Value::Missing => 0,
        _ if type_byte != 0x05 => 0,
        given => convert_binary::subtype(given)?,
    };
    let big_endian = convert_binary::is_big_endian(byte_order)?;
    match (to(env, input, Target { type_byte, subtype, format, big_endian }), on_error) {
        (Err(error), Some(on_error)) if error.code.code() == 241 => Ok(on_error),
        (outcome, _) => outcome,
    }
}

/// The type byte of a missing field; nothing converts to it.
const MISSING: u8 = 0;
/// MinKey's number in `$type`.
const MIN_KEY: i64 = -1;

fn target_type(target: Value<'_>) -> Result<u8, QueryError> {
    let unknown = |name: String| QueryError::bad_value(format!("Unknown type name: {name}"));
    match target {
        Value::String(b"missing") => Ok(MISSING),
        Value::String(name) => TYPE_NAMES
            .iter()
            .find(|(known, _)| known.as_bytes() == name)
            .map(|(_, byte)| *byte)
            .ok_or_else(|| unknown(String::from_utf8_lossy(name).into_owned())),
        _ if target.is_number() => {
            let Ok(n) = crate::matcher::operands::integer("to", target) else {
                let text = "In $convert, numeric 'to' argument is not an integer";
                return Err(QueryError::failed_to_parse(text));
            };
            let code = if n == MIN_KEY { Some(0xff) } else { u8::try_from(n).ok() };
            let code =
                code.filter(|n| *n == MISSING || TYPE_NAMES.iter().any(|(_, byte)| byte == n));
            code.ok_or_else(|| {
                QueryError::failed_to_parse(format!(
                    "In $convert, numeric value for 'to' does not correspond to a BSON type: {}",
                    crate::value::Shown(target)
                ))
            })
        }
        other => Err(QueryError::failed_to_parse(format!(
            "$convert's 'to' argument must be a string or number, but is {}",
            other.type_name()
        ))),
    }
}

/// Converts a value that is not null.
fn to<'a>(env: &Env<'a>, value: Value<'a>, target: Target) -> Evaluated<'a> {
    let Target { type_byte, subtype, format, big_endian } = target;
    if value.type_byte() == type_byte && type_byte != 0x05 {
        return Ok(value);
    }
    let outcome = match type_byte {
        0x05 => convert_binary::to_binary(env, value, subtype, format, big_endian),
        0x08 => Ok(Some(to_bool(value))),
        0x01 | 0x02 | 0x10 | 0x12 if matches!(value, Value::Binary { .. }) => {
            from_binary(env, value, target)
        }
        0x10 => to_i32(value),
        0x12 => to_i64(value),
        0x01 => to_f64(value),
        0x13 => to_dec(value),
        0x02 => to_string(env, value),
        0x09 => to_date(value),
        0x07 => to_object_id(value),
        _ => Ok(None),
    };
    outcome?.ok_or_else(|| {
        let known = TYPE_NAMES.iter().find(|(_, b)| *b == type_byte);
        let name = known.map_or("missing", |(name, _)| name);
        failed(format!(
            "Unsupported conversion from {} to {name} in $convert with no onError value",
            value.type_name()
        ))
    })
}

fn from_binary<'a>(env: &Env<'a>, value: Value<'a>, target: Target) -> Converted<'a> {
    let Value::Binary { subtype, bytes } = value else { return Ok(None) };
    let whole = |len_max| convert_binary::to_whole(subtype, bytes, len_max, target.big_endian);
    Ok(Some(match target.type_byte {
        0x01 => Value::Double(convert_binary::to_double(subtype, bytes, target.big_endian)?),
        0x02 => convert_binary::to_text(env, subtype, bytes, target.format)?,
        0x10 => i32::try_from(whole(4)?).map_or(Value::Null, Value::Int32),
        _ => Value::Int64(whole(8)?),
    }))
}

type Converted<'a> = Result<Option<Value<'a>>, QueryError>;

fn to_bool(value: Value<'_>) -> Value<'_> {
    Value::Bool(match value {
        Value::Double(n) => n != 0.0,
        Value::String(_) | Value::ObjectId(_) | Value::Date(_) | Value::Timestamp(_) => true,
        other => logic::truth(other),
    })
}

fn not_finite(value: Value<'_>) -> Option<QueryError> {
    let (nan, infinite) = match value {
        Value::Double(n) => (n.is_nan(), n.is_infinite()),
        Value::Decimal(n) => (n.is_nan(), !n.is_finite() && !n.is_nan()),
        _ => (false, false),
    };
    if nan {
        return Some(failed(
            "Attempt to convert NaN value to integer type in $convert with no onError value",
        ));
    }
    infinite.then(|| {
        failed(
            "Attempt to convert infinity value to integer type in $convert with no onError value",
        )
    })
}

fn overflow(value: Value<'_>) -> QueryError {
    failed(format!(
        "Conversion would overflow target type in $convert with no onError value: {}",
        match value {
            Value::Double(n) => display::general(n, 6),
            // mongod omits the value here.
            Value::Int64(_) => String::new(),
            other => to_text(other),
        }
    ))
}

fn whole(value: Value<'_>) -> Result<Option<i64>, QueryError> {
    if let Some(error) = not_finite(value) {
        return Err(error);
    }
    let cut = match value {
        Value::Double(n) => truncate(n),
        Value::Decimal(n) => n.truncate_to_i64(),
        Value::Int32(n) => Some(i64::from(n)),
        Value::Int64(n) => Some(n),
        Value::Bool(b) => Some(i64::from(b)),
        _ => return Ok(None),
    };
    cut.map(Some).ok_or_else(|| overflow(value))
}

fn parse_failed(text: &[u8], why: &str) -> QueryError {
    failed(format!(
        "Failed to parse number '{}' in $convert with no onError value: {why}",
        String::from_utf8_lossy(text)
    ))
}

fn parse_whole<T: std::str::FromStr>(text: &[u8]) -> Result<T, QueryError> {
    let shown = std::str::from_utf8(text).unwrap_or("");
    if shown.is_empty() {
        return Err(parse_failed(text, "No digits"));
    }
    let digits = shown.strip_prefix(['+', '-']).unwrap_or(shown);
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(parse_failed(text, "Did not consume whole string."));
    }
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(parse_failed(text, "Did not consume whole string."));
    }
    shown.parse().map_err(|_| parse_failed(text, "Overflow"))
}

fn to_i32(value: Value<'_>) -> Converted<'_> {
    if let Value::String(text) = value {
        return parse_whole::<i32>(text).map(|n| Some(Value::Int32(n)));
    }
    match whole(value)? {
        None => Ok(None),
        Some(n) => i32::try_from(n).map(|n| Some(Value::Int32(n))).map_err(|_| overflow(value)),
    }
}

fn to_i64(value: Value<'_>) -> Converted<'_> {
    match value {
        Value::String(text) => parse_whole::<i64>(text).map(|n| Some(Value::Int64(n))),
        Value::Date(ms) => Ok(Some(Value::Int64(ms))),
        _ => Ok(whole(value)?.map(Value::Int64)),
    }
}

fn to_f64(value: Value<'_>) -> Converted<'_> {
    Ok(Some(Value::Double(match value {
        Value::String(text) => {
            let shown = std::str::from_utf8(text).unwrap_or("");
            if shown.is_empty() {
                return Err(parse_failed(text, "Empty string"));
            }
            shown.parse().map_err(|_| {
                let digits = shown.trim_start_matches(['+', '-']);
                let some = digits.starts_with(|c: char| c.is_ascii_digit());
                parse_failed(
                    text,
                    if some {
                        "Did not consume whole string."
                    } else {
                        "Did not consume any digits"
                    },
                )
            })?
        }
        #[allow(clippy::cast_precision_loss, reason = "a date as a double")]
        Value::Date(ms) => ms as f64,
        Value::Bool(b) => f64::from(u8::from(b)),
        Value::Decimal(n) => {
            let double = decimal::to_f64(n);
            // A value too small for full precision is out of range, too.
            let inexact = double.is_subnormal() || (double == 0.0 && logic::truth(value));
            if n.is_finite() && (double.is_infinite() || inexact) {
                return Err(overflow(value));
            }
            double
        }
        _ if value.is_number() => arithmetic::as_f64(value),
        _ => return Ok(None),
    })))
}

fn to_dec(value: Value<'_>) -> Converted<'_> {
    Ok(Some(Value::Decimal(match value {
        Value::String(text) => {
            let shown = std::str::from_utf8(text).unwrap_or("");
            if shown.is_empty() {
                return Err(parse_failed(text, "Empty string"));
            }
            decimal::parse(shown)
                .ok_or_else(|| parse_failed(text, "Failed to parse string to decimal"))?
        }
        Value::Date(ms) => decimal::from_i64(ms),
        Value::Bool(b) => decimal::from_i64(i64::from(b)),
        _ if value.is_number() => arithmetic::as_decimal(value),
        _ => return Ok(None),
    })))
}

fn to_string<'a>(env: &Env<'a>, value: Value<'a>) -> Converted<'a> {
    let text = match value {
        Value::Date(ms) => date::text(ms)?,
        Value::Bool(_)
        | Value::Int32(_)
        | Value::Int64(_)
        | Value::Double(_)
        | Value::Decimal(_)
        | Value::ObjectId(_) => to_text(value),
        _ => return Ok(None),
    };
    Ok(Some(env.text(&text)))
}

fn to_date(value: Value<'_>) -> Converted<'_> {
    Ok(Some(Value::Date(match value {
        Value::String(text) => date::parse_iso(text)?,
        Value::ObjectId(id) => {
            let secs = id.first_chunk().map_or(0, |b| i32::from_be_bytes(*b));
            i64::from(secs) * 1000
        }
        Value::Timestamp(n) => i64::try_from(n >> 32).unwrap_or(0) * 1000,
        Value::Int64(n) => n,
        Value::Double(_) | Value::Decimal(_) => match whole(value)? {
            Some(n) => n,
            None => return Ok(None),
        },
        _ => return Ok(None),
    })))
}

fn to_object_id(value: Value<'_>) -> Converted<'_> {
    let Value::String(text) = value else { return Ok(None) };
    let shown = String::from_utf8_lossy(text);
    let refused = |why: String| {
        failed(format!(
            "Failed to parse objectId '{shown}' in $convert with no onError value: {why}"
        ))
    };
    if text.len() != 24 {
        return Err(refused(format!(
            "Invalid string length for parsing to OID, expected 24 but found {}",
            text.len()
        )));
    }
    bson::oid::ObjectId::parse_str(&*shown).map(|id| Some(Value::ObjectId(id.bytes()))).map_err(
        |_| {
            let bad = shown.chars().find(|c| !c.is_ascii_hexdigit()).unwrap_or(' ');
            refused(format!("Invalid character found in hex string: '{bad}'"))
        },
    )
}
