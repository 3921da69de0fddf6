//! `$add` and the rest of arithmetic, over the four number types.
//!
//! int with int stays int until it overflows into long; long overflows into double; a double makes the
//! result a double and a decimal makes it a decimal.

use dec::Rounding;

use super::{Env, Evaluated, decimal};
use crate::{
    error::QueryError,
    matcher::truncate as f64_to_i64,
    value::{Decimal, Spelled, Value, display::general},
};

fn error<'a>(code: i32, message: String) -> Evaluated<'a> {
    Err(QueryError::location(code, message))
}

fn type_mismatch<'a>(message: String) -> Evaluated<'a> {
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

fn as_i64(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Int32(n) => Some(i64::from(n)),
        Value::Int64(n) => Some(n),
        _ => None,
    }
}

/// A whole result: an int if both operands were and it fits.
fn whole<'a>(n: i64, ints: bool) -> Value<'a> {
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
                return type_mismatch(format!(
                    "$add only supports numeric or date types, not {}",
                    other.type_name()
                ));
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

/// The difference of two numbers or dates, as `$subtract` has it.
pub(crate) fn difference<'a>(a: Value<'a>, b: Value<'a>) -> Evaluated<'a> {
    match (a, b) {
        _ if a.is_nullish() || b.is_nullish() => Ok(Value::Null),
        _ if a.is_number() && b.is_number() => Ok(subtract(a, b)),
        (Value::Date(x), Value::Date(y)) => match x.checked_sub(y) {
            Some(ms) => Ok(Value::Int64(ms)),
            None => Err(QueryError::new(protocol::ErrorCode::Overflow, "date overflow")),
        },
        (Value::Date(x), _) if b.is_number() => add_to_date(x, subtract(Value::Int32(0), b)),
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

/// The quotient of two numbers, never a whole type.
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

/// The quotient of two values, as `$divide` has it.
pub(crate) fn quotient<'a>(a: Value<'a>, b: Value<'a>) -> Evaluated<'a> {
    if a.is_number() && b.is_number() {
        if is_zero(b) {
            return error(2, "can't $divide by zero".into());
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
            return error(5_733_415, "can't $mod by zero".into());
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

/// Whether one number is a whole multiple of another, both taken as decimals. A number so large that the
/// quotient has more digits than a decimal counts as one.
pub(crate) fn is_multiple(value: Value<'_>, of: Value<'_>) -> bool {
    let value = as_decimal(value);
    let rest = decimal::rem(value, as_decimal(of));
    value.is_finite() && (rest.is_nan() || is_zero(Value::Decimal(rest)))
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

/// The number argument of a function of one number: null for null, an error for anything else.
fn number<'a>(name: &str, args: &[Value<'a>]) -> Result<Option<Value<'a>>, QueryError> {
    let value = args.first().copied().unwrap_or(Value::Missing);
    if value.is_nullish() {
        return Ok(None);
    }
    if value.is_number() {
        return Ok(Some(value));
    }
    Err(QueryError::location(
        28_765,
        format!("{name} only supports numeric types, not {}", value.type_name()),
    ))
}

pub(super) fn op_abs<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    Ok(match number("$abs", args)? {
        None => Value::Null,
        Some(Value::Int32(n)) => {
            n.checked_abs().map_or_else(|| Value::Int64(i64::from(n).abs()), Value::Int32)
        }
        Some(Value::Int64(n)) => match n.checked_abs() {
            Some(n) => Value::Int64(n),
            None => return error(28_680, "can't take $abs of long long min".into()),
        },
        Some(Value::Double(n)) => Value::Double(n.abs()),
        Some(Value::Decimal(n)) => Value::Decimal(decimal::abs(n)),
        Some(_) => Value::Null,
    })
}

fn to_whole<'a>(
    name: &str,
    args: &[Value<'a>],
    double: fn(f64) -> f64,
    rounding: Rounding,
) -> Evaluated<'a> {
    Ok(match number(name, args)? {
        None => Value::Null,
        Some(Value::Double(n)) => Value::Double(double(n)),
        Some(Value::Decimal(n)) => Value::Decimal(decimal::round(n, 0, rounding)),
        Some(whole) => whole,
    })
}

pub(super) fn op_ceil<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    to_whole("$ceil", args, f64::ceil, Rounding::Ceiling)
}

pub(super) fn op_floor<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    to_whole("$floor", args, f64::floor, Rounding::Floor)
}

pub(super) fn op_round<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    to_place("$round", args, Rounding::HalfEven, f64::round_ties_even)
}

pub(super) fn op_trunc<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    to_place("$trunc", args, Rounding::Down, f64::trunc)
}

fn to_place<'a>(
    name: &str,
    args: &[Value<'a>],
    rounding: Rounding,
    double: fn(f64) -> f64,
) -> Evaluated<'a> {
    let value = args.first().copied().unwrap_or(Value::Missing);
    let place = args.get(1).copied().unwrap_or(Value::Int32(0));
    if value.is_nullish() || place.is_nullish() {
        return Ok(Value::Null);
    }
    if !value.is_number() {
        return error(
            51_081,
            format!("{name} only supports numeric types, not {}", value.type_name()),
        );
    }
    if !place.is_number() {
        return error(
            16_004,
            format!("can't convert from BSON type {} to long", place.type_name()),
        );
    }
    if let Value::Double(n) = place
        && f64_to_i64(n).is_none()
    {
        return error(
            31_109,
            format!("Can't coerce out of range value {} to long", Spelled(place)),
        );
    }
    let place = match place {
        Value::Double(n) if n.fract() == 0.0 => f64_to_i64(n),
        Value::Decimal(n) if n.is_whole() => n.truncate_to_i64(),
        Value::Int32(n) => Some(i64::from(n)),
        Value::Int64(n) => Some(n),
        _ => None,
    };
    let Some(place) = place.and_then(|p| i32::try_from(p).ok()) else {
        return error(51_082, format!("precision argument to  {name} must be a integral value"));
    };
    if !(-20..=100).contains(&place) {
        return error(
            51_083,
            format!("cannot apply {name} with precision value {place} value must be in [-20, 100]"),
        );
    }
    Ok(match value {
        Value::Decimal(n) => Value::Decimal(decimal::round(n, place, rounding)),
        Value::Double(n) if place == 0 => Value::Double(double(n)),
        Value::Double(n) if n.is_finite() => {
            let exact = decimal::parse(&format!("{n:e}")).unwrap_or(Decimal::NAN);
            Value::Double(decimal::to_f64(decimal::round(exact, place, rounding)))
        }
        Value::Int32(n) if place < 0 => {
            return round_whole(name, i64::from(n), place, rounding, true);
        }
        Value::Int64(n) if place < 0 => return round_whole(name, n, place, rounding, false),
        other => other,
    })
}

fn round_whole<'a>(name: &str, n: i64, place: i32, rounding: Rounding, int: bool) -> Evaluated<'a> {
    let rounded = decimal::round(decimal::from_i64(n), place, rounding).truncate_to_i64();
    match rounded {
        Some(n) => Ok(whole(n, int)),
        None => error(
            51_080,
            format!(
                "invalid conversion from Decimal128 result in {name} resulting from arguments: [{n}, {place}]"
            ),
        ),
    }
}

macro_rules! functions {
    ($($fun:ident, $name:literal, $double:expr, $decimal:expr;)*) => {$(
        pub(super) fn $fun<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
            Ok(match number($name, args)? {
                None => Value::Null,
                Some(Value::Decimal(n)) => {
                    let by: fn(Decimal) -> Decimal = $decimal;
                    Value::Decimal(by(n))
                }
                Some(other) => {
                    let by: fn(f64) -> f64 = $double;
                    Value::Double(by(as_f64(other)))
                }
            })
        }
    )*};
}

/// A function that decNumber does not have, by way of a double.
macro_rules! by_double {
    ($by:expr) => {
        |n| {
            decimal::parse(&format!("{:e}", {
                let f: fn(f64) -> f64 = $by;
                f(decimal::to_f64(n))
            }))
            .unwrap_or(Decimal::NAN)
        }
    };
}

functions! {
    op_exp, "$exp", f64::exp, decimal::exp;
    op_sin, "$sin", f64::sin, by_double!(f64::sin);
    op_cos, "$cos", f64::cos, by_double!(f64::cos);
    op_tan, "$tan", f64::tan, by_double!(f64::tan);
    op_asin, "$asin", f64::asin, by_double!(f64::asin);
    op_acos, "$acos", f64::acos, by_double!(f64::acos);
    op_atan, "$atan", f64::atan, by_double!(f64::atan);
    op_sinh, "$sinh", f64::sinh, by_double!(f64::sinh);
    op_cosh, "$cosh", f64::cosh, by_double!(f64::cosh);
    op_tanh, "$tanh", f64::tanh, by_double!(f64::tanh);
    op_asinh, "$asinh", f64::asinh, by_double!(f64::asinh);
    op_acosh, "$acosh", f64::acosh, by_double!(f64::acosh);
    op_atanh, "$atanh", f64::atanh, by_double!(f64::atanh);
    op_degrees_to_radians, "$degreesToRadians", |n| n * (std::f64::consts::PI / 180.0), |n| decimal::mul(n, decimal::div(pi(), decimal::from_i64(180)));
    op_radians_to_degrees, "$radiansToDegrees", |n| n * (180.0 / std::f64::consts::PI), |n| decimal::mul(n, decimal::div(decimal::from_i64(180), pi()));
}

fn pi() -> Decimal {
    decimal::parse("3.141592653589793238462643383279503").unwrap_or(Decimal::NAN)
}

pub(super) fn op_atan2<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let [a, b] = *args else { return Ok(Value::Null) };
    if a.is_nullish() || b.is_nullish() {
        return Ok(Value::Null);
    }
    for (value, code) in [(a, 51_044), (b, 51_045)] {
        if !value.is_number() {
            let name = value.type_name();
            return error(code, format!("$atan2 only supports numeric types, not {name}"));
        }
    }
    Ok(Value::Double(as_f64(a).atan2(as_f64(b))))
}

pub(super) fn op_sqrt<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    match number("$sqrt", args)? {
        None => Ok(Value::Null),
        Some(value) if as_f64(value) < 0.0 => {
            error(28_714, "$sqrt's argument must be greater than or equal to 0".into())
        }
        Some(Value::Decimal(n)) => Ok(Value::Decimal(decimal::sqrt(n))),
        Some(other) => Ok(Value::Double(as_f64(other).sqrt())),
    }
}

fn logarithm<'a>(
    name: &str,
    code: i32,
    args: &[Value<'a>],
    double: fn(f64) -> f64,
    by_decimal: fn(Decimal) -> Decimal,
) -> Evaluated<'a> {
    match number(name, args)? {
        None => Ok(Value::Null),
        Some(value) if as_f64(value).is_nan() => Ok(Value::Double(f64::NAN)),
        Some(value) if as_f64(value) <= 0.0 => error(
            code,
            format!(
                "{name}'s argument must be a positive number, but is {}",
                general(as_f64(value), 6)
            ),
        ),
        Some(Value::Decimal(n)) => Ok(Value::Decimal(by_decimal(n))),
        Some(other) => Ok(Value::Double(double(as_f64(other)))),
    }
}

pub(super) fn op_ln<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    logarithm("$ln", 28_766, args, f64::ln, decimal::ln)
}

pub(super) fn op_log10<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    logarithm("$log10", 28_761, args, f64::log10, decimal::log10)
}

pub(super) fn op_log<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let [a, base] = *args else { return Ok(Value::Null) };
    if a.is_nullish() || base.is_nullish() {
        return Ok(Value::Null);
    }
    if !a.is_number() {
        return error(28_756, format!("$log's argument must be numeric, not {}", a.type_name()));
    }
    if !base.is_number() {
        return error(28_757, format!("$log's base must be numeric, not {}", base.type_name()));
    }
    if as_f64(a) <= 0.0 {
        return error(
            28_758,
            format!("$log's argument must be a positive number, but is {}", general(as_f64(a), 6)),
        );
    }
    if as_f64(base) <= 0.0 || as_f64(base) == 1.0 {
        return error(
            28_759,
            format!(
                "$log's base must be a positive number not equal to 1, but is {}",
                general(as_f64(base), 6)
            ),
        );
    }
    if matches!(a, Value::Decimal(_)) || matches!(base, Value::Decimal(_)) {
        let (a, base) = (decimal::ln(as_decimal(a)), decimal::ln(as_decimal(base)));
        return Ok(Value::Decimal(decimal::div(a, base)));
    }
    Ok(Value::Double(as_f64(a).ln() / as_f64(base).ln()))
}

pub(super) fn op_pow<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let [base, exponent] = *args else { return Ok(Value::Null) };
    if base.is_nullish() || exponent.is_nullish() {
        return Ok(Value::Null);
    }
    if !base.is_number() {
        return error(28_762, format!("$pow's base must be numeric, not {}", base.type_name()));
    }
    if !exponent.is_number() {
        return error(
            28_763,
            format!("$pow's exponent must be numeric, not {}", exponent.type_name()),
        );
    }
    if is_zero(base) && as_f64(exponent) < 0.0 {
        return error(28_764, "$pow cannot take a base of 0 and a negative exponent".into());
    }
    if matches!(base, Value::Decimal(_)) || matches!(exponent, Value::Decimal(_)) {
        return Ok(Value::Decimal(decimal::pow(as_decimal(base), as_decimal(exponent))));
    }
    let ints = matches!((base, exponent), (Value::Int32(_), Value::Int32(_)));
    if let (Some(b), Some(e)) = (as_i64(base), as_i64(exponent)) {
        let power = u32::try_from(e).ok().and_then(|e| b.checked_pow(e));
        let small = matches!(b, 0 | 1);
        if let Some(n) = power.or(if small { Some(b) } else { None }) {
            return Ok(whole(n, ints));
        }
        if b == -1 {
            return Ok(whole(if e % 2 == 0 { 1 } else { -1 }, ints));
        }
    }
    Ok(Value::Double(as_f64(base).powf(as_f64(exponent))))
}

fn bits<'a>(name: &str, args: &[Value<'a>], start: i64, by: fn(i64, i64) -> i64) -> Evaluated<'a> {
    let mut result = start;
    let mut int = true;
    for &arg in args {
        match arg {
            Value::Int32(n) => result = by(result, i64::from(n)),
            Value::Int64(n) => {
                int = false;
                result = by(result, n);
            }
            _ if arg.is_nullish() => return Ok(Value::Null),
            _ => {
                return type_mismatch(format!("{name} only supports int and long operands."));
            }
        }
    }
    Ok(whole(result, int))
}

pub(super) fn op_bit_and<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    bits("$bitAnd", args, -1, |a, b| a & b)
}

pub(super) fn op_bit_or<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    bits("$bitOr", args, 0, |a, b| a | b)
}

pub(super) fn op_bit_xor<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    bits("$bitXor", args, 0, |a, b| a ^ b)
}

pub(super) fn op_bit_not<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    match args.first().copied().unwrap_or(Value::Missing) {
        Value::Int32(n) => Ok(Value::Int32(!n)),
        Value::Int64(n) => Ok(Value::Int64(!n)),
        value if value.is_nullish() => Ok(Value::Null),
        other if other.is_number() => type_mismatch(format!(
            "$bitNot only supports int and long, not: {}.",
            other.type_name()
        )),
        other => {
            error(28_765, format!("$bitNot only supports numeric types, not {}", other.type_name()))
        }
    }
}
