//! Numeric functions: rounding, powers, logarithms, trigonometry.

use dec::Rounding;

use super::{
    Env, Evaluated,
    arithmetic::{as_decimal, as_f64, as_i64, error, is_zero, whole},
    decimal, quad,
};
use crate::{
    error::QueryError,
    matcher::truncate as f64_to_i64,
    value::{Decimal, DecimalClass, Spelled, Value, compare_values, display::general},
};

/// The argument of a numeric function: `None` for null, an error for other types.
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
        Some(Value::Decimal(n)) => Value::Decimal(decimal::quantized(n, 0, rounding)),
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
    if value.is_nullish() {
        return Ok(Value::Null);
    }
    if !value.is_number() {
        return error(
            51_081,
            format!("{name} only supports numeric types, not {}", value.type_name()),
        );
    }
    if place.is_nullish() {
        return Ok(Value::Null);
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
    ($($fun:ident, $name:literal, $domain:expr, $double:expr, $decimal:expr;)*) => {$(
        pub(super) fn $fun<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
            let argument = number($name, args)?;
            check_domain($name, $domain, argument)?;
            Ok(match argument {
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

/// The domain of a function.
#[derive(Clone, Copy)]
enum Domain {
    All,
    Finite,
    Unit,
    FromOne,
}

fn check_domain(name: &str, domain: Domain, value: Option<Value<'_>>) -> Result<(), QueryError> {
    let Some(value) = value else { return Ok(()) };
    let n = match value {
        Value::Decimal(n) if n.is_nan() => return Ok(()),
        other => as_f64(other),
    };
    let against = |bound: i32| compare_values(value, Value::Int32(bound), None);
    let (within, shown) = match domain {
        Domain::All => return Ok(()),
        Domain::Finite => {
            let infinite = match value {
                Value::Decimal(n) => matches!(n.class(), DecimalClass::Infinite),
                _ => n.is_infinite(),
            };
            (!infinite, "(-inf,inf)")
        }
        Domain::Unit => (against(-1).is_ge() && against(1).is_le(), "[-1,1]"),
        Domain::FromOne => (against(1).is_ge(), "[1,inf]"),
    };
    if within || n.is_nan() && !matches!(value, Value::Decimal(_)) {
        return Ok(());
    }
    let value = match value {
        Value::Decimal(n) => n.to_string(),
        _ => general(n, 6),
    };
    let text = format!("cannot apply {name} to {value}, value must be in {shown}");
    Err(QueryError::location(50_989, text))
}

/// Computes a function in double precision, for values too large for decimals.
fn by_double(n: Decimal, function: fn(f64) -> f64) -> Decimal {
    let value = function(decimal::to_f64(n));
    decimal::parse(&format!("{value:e}")).unwrap_or(Decimal::NAN)
}

functions! {
    op_exp, "$exp", Domain::All, f64::exp, quad::exp;
    op_sin, "$sin", Domain::Finite, f64::sin, |n| if quad::is_angle(n) { quad::sin(n) } else { by_double(n, f64::sin) };
    op_cos, "$cos", Domain::Finite, f64::cos, |n| if quad::is_angle(n) { quad::cos(n) } else { by_double(n, f64::cos) };
    op_tan, "$tan", Domain::Finite, f64::tan, |n| if quad::is_angle(n) { quad::tan(n) } else { by_double(n, f64::tan) };
    op_asin, "$asin", Domain::Unit, f64::asin, quad::asin;
    op_acos, "$acos", Domain::Unit, f64::acos, quad::acos;
    op_atan, "$atan", Domain::All, f64::atan, quad::atan;
    op_sinh, "$sinh", Domain::All, f64::sinh, quad::sinh;
    op_cosh, "$cosh", Domain::All, f64::cosh, quad::cosh;
    op_tanh, "$tanh", Domain::All, f64::tanh, quad::tanh;
    op_asinh, "$asinh", Domain::All, f64::asinh, quad::asinh;
    op_acosh, "$acosh", Domain::FromOne, f64::acosh, quad::acosh;
    op_atanh, "$atanh", Domain::Unit, f64::atanh, quad::atanh;
    op_degrees_to_radians, "$degreesToRadians", Domain::All, |n| n * (std::f64::consts::PI / 180.0), |n| decimal::mul(n, decimal::div(pi(), decimal::from_i64(180)));
    op_radians_to_degrees, "$radiansToDegrees", Domain::All, |n| n * (180.0 / std::f64::consts::PI), |n| decimal::mul(n, decimal::div(decimal::from_i64(180), pi()));
}

fn pi() -> Decimal {
    decimal::parse("3.141592653589793238462643383279503").unwrap_or(Decimal::NAN)
}

pub(super) fn op_atan2<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let [a, b] = *args else { return Ok(Value::Null) };
    for (value, code) in [(a, 51_044), (b, 51_045)] {
        if value.is_nullish() {
            return Ok(Value::Null);
        }
        if !value.is_number() {
            let name = value.type_name();
            return error(code, format!("$atan2 only supports numeric types, not {name}"));
        }
    }
    Ok(match (a, b) {
        (Value::Decimal(_), _) | (_, Value::Decimal(_)) => {
            Value::Decimal(quad::atan2(as_decimal(a), as_decimal(b)))
        }
        _ => Value::Double(as_f64(a).atan2(as_f64(b))),
    })
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

/// Compared in its own type: a small decimal would be zero as a double.
fn is_positive(value: Value<'_>) -> bool {
    compare_values(value, Value::Int32(0), None).is_gt()
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
        Some(value) if !is_positive(value) => error(
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
    logarithm("$ln", 28_766, args, f64::ln, quad::ln)
}

pub(super) fn op_log10<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    logarithm("$log10", 28_761, args, f64::log10, quad::log10)
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
    let nan = as_f64(a).is_nan() || as_f64(base).is_nan();
    if !nan && !is_positive(a) {
        return error(
            28_758,
            format!("$log's argument must be a positive number, but is {}", general(as_f64(a), 6)),
        );
    }
    let is_one = || compare_values(base, Value::Int32(1), None).is_eq();
    if !nan && (!is_positive(base) || is_one()) {
        return error(
            28_759,
            format!(
                "$log's base must be a positive number not equal to 1, but is {}",
                general(as_f64(base), 6)
            ),
        );
    }
    if nan {
        return Ok(Value::Double(f64::NAN));
    }
    if matches!(a, Value::Decimal(_)) || matches!(base, Value::Decimal(_)) {
        let (a, base) = (quad::ln(as_decimal(a)), quad::ln(as_decimal(base)));
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
    let negative = as_f64(exponent) < 0.0
        || matches!(exponent, Value::Decimal(n) if n.is_negative() && !n.is_nan());
    if is_zero(base) && negative {
        return error(28_764, "$pow cannot take a base of 0 and a negative exponent".into());
    }
    if matches!(base, Value::Decimal(_)) || matches!(exponent, Value::Decimal(_)) {
        return Ok(Value::Decimal(quad::pow(as_decimal(base), as_decimal(exponent))));
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
