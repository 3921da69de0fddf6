//! `$bitAnd`, `$bitOr`, `$bitXor`, `$bitNot`.

use super::{
    Env, Evaluated,
    arithmetic::{error, type_mismatch, whole},
};
use crate::value::Value;

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
