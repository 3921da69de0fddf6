//! `$add` and the rest of arithmetic, over the four number types.
//!
//! int with int stays int until it overflows into long; long overflows into double; a double makes the result a
//! double and a decimal makes it a decimal.

use dec::Rounding;
use protocol::Release;

use super::{Env, Evaluated, decimal};
use crate::{
    error::QueryError,
    matcher::truncate as f64_to_i64,
    value::{Decimal, Value},
};

pub(super) fn error<'a>(code: i32, message: String) -> Evaluated<'a> {
    Err(QueryError::location(code, message))
}

pub(super) fn type_mismatch<'a>(message: String) -> Evaluated<'a> {
    Err(QueryError::type_mismatch(message))
}

pub(crate) fn as_f64(value: Value<'_>) -> f64 {
    match value {
        Value::Int32(n) => f64::from(n),
        #[allow(clippy::cast_precision_loss, reason = "this is how a long becomes a double")]
        Value::Int64(n) => n as f64,
        Value::Double(n) => n,
        Value::Decimal(n) => decimal::to_f64(n),
        _ => f64::NAN,
    }
}

pub(crate) fn as_decimal(value: Value<'_>) -> Decimal {
    match value {
        Value::Int32(n) => decimal::from_i64(i64::from(n)),
        Value::Int64(n) => decimal::from_i64(n),
        Value::Double(n) => decimal::from_f64_15(n),
        Value::Decimal(n) => n,
        _ => Decimal::NAN,
    }
}

pub(super) fn as_i64(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Int32(n) => Some(i64::from(n)),
        Value::Int64(n) => Some(n),
        _ => None,
    }
}

/// An integer result: an int if both operands were ints and it fits, otherwise a long.
pub(super) fn whole<'a>(n: i64, ints: bool) -> Value<'a> {
    match i32::try_from(n) {
        Ok(n) if ints => Value::Int32(n),
        _ => Value::Int64(n),
    }
}

struct Operators {
    ints: fn(i64, i64) -> Option<i64>,
    doubles: fn(f64, f64) -> f64,
    decimals: fn(Decimal, Decimal) -> Decimal,
}

fn combine<'a>(a: Value<'a>, b: Value<'a>, by: &Operators) -> Value<'a> {
    if matches!(a, Value::Decimal(_)) || matches!(b, Value::Decimal(_)) {
        return Value::Decimal((by.decimals)(as_decimal(a), as_decimal(b)));
    }
    let ints = matches!((a, b), (Value::Int32(_), Value::Int32(_)));
    match (as_i64(a), as_i64(b)) {
        (Some(x), Some(y)) => (by.ints)(x, y)
            .map_or_else(|| Value::Double((by.doubles)(as_f64(a), as_f64(b))), |n| whole(n, ints)),
        _ => Value::Double((by.doubles)(as_f64(a), as_f64(b))),
    }
}

const ADD: Operators =
    Operators { ints: i64::checked_add, doubles: |a, b| a + b, decimals: decimal::add };
const SUBTRACT: Operators =
    Operators { ints: i64::checked_sub, doubles: |a, b| a - b, decimals: decimal::sub };
const MULTIPLY: Operators =
    Operators { ints: i64::checked_mul, doubles: |a, b| a * b, decimals: decimal::mul };

/// The sum of two numbers.
pub(crate) fn add<'a>(a: Value<'a>, b: Value<'a>) -> Value<'a> {
    combine(a, b, &ADD)
}

/// The difference of two numbers.
pub(crate) fn subtract<'a>(a: Value<'a>, b: Value<'a>) -> Value<'a> {
    combine(a, b, &SUBTRACT)
}

/// The product of two numbers.
pub(crate) fn multiply<'a>(a: Value<'a>, b: Value<'a>) -> Value<'a> {
    combine(a, b, &MULTIPLY)
}

pub(super) fn op_add<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let mut sum = Value::Int32(0);
    let mut date = None;
    for &arg in args {
        match arg {
            Value::Date(ms) => {
                if date.replace(ms).is_some() {
                    return error(16_612, "only one date allowed in an $add expression".into());
                }
            }
            _ if arg.is_number() => sum = add(sum, arg),
            _ if arg.is_nullish() => return Ok(Value::Null),
            other => {
                let text =
                    format!("$add only supports numeric or date types, not {}", other.type_name());
                return Err(QueryError::type_mismatch(text).until(Release::V5_0, 16_554));
            }
        }
    }
    match date {
        None => Ok(sum),
        Some(ms) => add_to_date(ms, sum),
    }
}

fn add_to_date<'a>(ms: i64, by: Value<'a>) -> Evaluated<'a> {
    let by = match by {
        Value::Double(n) => f64_to_i64(n.round()),
        Value::Decimal(n) => decimal::round(n, 0, Rounding::HalfEven).truncate_to_i64(),
        other => as_i64(other),
    };
    by.and_then(|by| ms.checked_add(by))
        .map(Value::Date)
        .ok_or_else(|| QueryError::new(protocol::ErrorCode::Overflow, "date overflow"))
}

pub(super) fn op_subtract<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let [a, b] = *args else { return Ok(Value::Null) };
    difference(a, b)
}

/// The difference of two numbers or dates, as in `$subtract`.
pub(crate) fn difference<'a>(a: Value<'a>, b: Value<'a>) -> Evaluated<'a> {
    match (a, b) {
        _ if a.is_nullish() || b.is_nullish() => Ok(Value::Null),
        _ if a.is_number() && b.is_number() => Ok(subtract(a, b)),
        (Value::Date(x), Value::Date(y)) => match x.checked_sub(y) {
            Some(ms) => Ok(Value::Int64(ms)),
            None => Err(QueryError::new(protocol::ErrorCode::Overflow, "date overflow")),
        },
        (Value::Date(x), _) if b.is_number() => add_to_date(x, subtract(Value::Int32(0), b)),
        (Value::Date(_), _) => {
            type_mismatch(format!("can't $subtract {} from Date", b.type_name()))
        }
        _ => type_mismatch(format!("can't $subtract {} from {}", b.type_name(), a.type_name())),
    }
}

pub(super) fn op_multiply<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let mut product = Value::Int32(1);
    for &arg in args {
        if arg.is_nullish() {
            return Ok(Value::Null);
        }
        if !arg.is_number() {
            return type_mismatch(format!(
                "$multiply only supports numeric types, not {}",
                arg.type_name()
            ));
        }
        product = combine(product, arg, &MULTIPLY);
    }
    Ok(product)
}

/// The quotient of two numbers, which is never an integer type.
pub(crate) fn divide<'a>(a: Value<'a>, b: Value<'a>) -> Value<'a> {
    if matches!(a, Value::Decimal(_)) || matches!(b, Value::Decimal(_)) {
        return Value::Decimal(decimal::div(as_decimal(a), as_decimal(b)));
    }
    Value::Double(as_f64(a) / as_f64(b))
}

pub(crate) fn is_zero(value: Value<'_>) -> bool {
    match value {
        Value::Decimal(n) => n.truncate_to_i64() == Some(0) && n.is_whole(),
        other => as_f64(other) == 0.0,
    }
}

pub(super) fn op_divide<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let [a, b] = *args else { return Ok(Value::Null) };
    quotient(a, b)
}

/// The quotient of two values, as in `$divide`.
pub(crate) fn quotient<'a>(a: Value<'a>, b: Value<'a>) -> Evaluated<'a> {
    if a.is_number() && b.is_number() {
        if is_zero(b) {
            let error = QueryError::bad_value("can't $divide by zero");
            return Err(error.until(Release::V4_4, 16_608));
        }
        return Ok(divide(a, b));
    }
    if a.is_nullish() || b.is_nullish() {
        return Ok(Value::Null);
    }
    type_mismatch(format!(
        "$divide only supports numeric types, not {} and {}",
        a.type_name(),
        b.type_name()
    ))
}

pub(super) fn op_mod<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let [a, b] = *args else { return Ok(Value::Null) };
    if a.is_number() && b.is_number() {
        if is_zero(b) {
            let by_decimal = matches!((a, b), (Value::Decimal(_), _) | (_, Value::Decimal(_)));
            let code = if by_decimal { 5_733_415 } else { 16_610 };
            return error(code, "can't $mod by zero".into());
        }
        return Ok(remainder(a, b));
    }
    if a.is_nullish() || b.is_nullish() {
        return Ok(Value::Null);
    }
    error(
        16_611,
        format!("$mod only supports numeric types, not {} and {}", a.type_name(), b.type_name()),
    )
}

/// True if one number is an integer multiple of another, both as decimals.
pub(crate) fn is_multiple(value: Value<'_>, of: Value<'_>) -> bool {
    let value = as_decimal(value);
    let rest = decimal::modulo(value, as_decimal(of));
    value.is_finite() && is_zero(Value::Decimal(rest))
}

fn remainder<'a>(a: Value<'a>, b: Value<'a>) -> Value<'a> {
    match (a, b) {
        (Value::Decimal(_), _) | (_, Value::Decimal(_)) => {
            Value::Decimal(decimal::modulo(as_decimal(a), as_decimal(b)))
        }
        _ => match (as_i64(a), as_i64(b)) {
            (Some(x), Some(y)) => {
                let ints = matches!((a, b), (Value::Int32(_), Value::Int32(_)));
                whole(x.wrapping_rem(y), ints)
            }
            _ => Value::Double(as_f64(a) % as_f64(b)),
        },
    }
}
