//! Operators that bind variables: `$let`, `$map`, `$filter`, `$reduce`.

use super::{
    Env, Evaluated, Expr, build,
    operator::{Arguments, optional},
    parse::{self, Scope, lossy, operand},
    rounds::{Held, Rounds},
    special::Special,
};
use crate::{
    Release,
    error::QueryError,
    value::{Elements, Spelled, Value},
};

pub(super) fn let_in(value: Value<'_>, scope: &mut Scope) -> Result<Special, QueryError> {
    let Value::Document(doc) = value else {
        return Err(QueryError::location(16_874, "$let only supports an object as its argument"));
    };
    let (mut vars, mut body) = (None, None);
    for field in Elements::of_bytes(doc) {
        match field.key {
            b"vars" => vars = Some(field.value()),
            b"in" => body = Some(field.value()),
            other => {
                return Err(QueryError::location(
                    16_875,
                    format!("Unrecognized parameter to $let: {}", lossy(other)),
                ));
            }
        }
    }
    let vars =
        vars.ok_or_else(|| QueryError::location(16_876, "Missing 'vars' parameter to $let"))?;
    let body =
        body.ok_or_else(|| QueryError::location(16_877, "Missing 'in' parameter to $let"))?;
    let (Value::Document(vars) | Value::Array(vars)) = vars else {
        return Err(QueryError::location(10_065, "invalid parameter: expected an object (vars)"));
    };
    let mut parsed = Vec::new();
    for var in Elements::of_bytes(vars) {
        parse::check_variable(var.key)?;
        parsed.push((var.key, operand(var.value(), scope)?));
    }
    let mark = scope.enter();
    let vars = parsed.into_iter().map(|(name, expr)| (scope.declare(name), expr)).collect();
    let body = operand(body, scope);
    scope.leave(mark);
    Ok(Special::Let(vars, body?))
}

/// The fields of an operator's document, not parsed yet.
fn fields<'v, const N: usize>(
    name: &str,
    arguments: &Arguments,
    value: Value<'v>,
    scope: &Scope,
) -> Result<[Option<Value<'v>>; N], QueryError> {
    let mut found = [None; N];
    for (at, given) in arguments.read(name, value, scope.release)? {
        if let Some(place) = found.get_mut(at) {
            *place = Some(given);
        }
    }
    Ok(found)
}

fn required<'v>(value: Option<Value<'v>>, code: i32, text: &str) -> Result<Value<'v>, QueryError> {
    value.ok_or_else(|| QueryError::location(code, text))
}

fn with_variable(
    name: Option<Value<'_>>,
    body: Value<'_>,
    scope: &mut Scope,
) -> Result<(usize, Expr), QueryError> {
    // mongod takes a name that is not text for an empty one.
    let name = match name {
        Some(Value::String(name)) => name,
        Some(_) => b"".as_slice(),
        None => b"this",
    };
    parse::check_variable(name)?;
    let mark = scope.enter();
    let slot = scope.declare(name);
    let body = operand(body, scope);
    scope.leave(mark);
    Ok((slot, body?))
}

static MAP: Arguments = Arguments::new(
    &[optional("input"), optional("as"), optional("in")],
    (16_878, "{op} only supports an object as its argument"),
    (16_879, "Unrecognized parameter to {op}: {field}"),
);

pub(super) fn map(value: Value<'_>, scope: &mut Scope) -> Result<Special, QueryError> {
    let [input, name, body] = fields("$map", &MAP, value, scope)?;
    let input = required(input, 16_880, "Missing 'input' parameter to $map")?;
    let body = required(body, 16_882, "Missing 'in' parameter to $map")?;
    let input = operand(input, scope)?;
    let (slot, body) = with_variable(name, body, scope)?;
    Ok(Special::Map { input, slot, body })
}

static FILTER: Arguments = Arguments::new(
    &[optional("input"), optional("as"), optional("cond"), optional("limit").since(Release::V6_0)],
    (28_646, "{op} only supports an object as its argument"),
    (28_647, "Unrecognized parameter to {op}: {field}"),
);

pub(super) fn filter(value: Value<'_>, scope: &mut Scope) -> Result<Special, QueryError> {
    let [input, name, cond, limit] = fields("$filter", &FILTER, value, scope)?;
    let input = required(input, 28_648, "Missing 'input' parameter to $filter")?;
    let cond = required(cond, 28_650, "Missing 'cond' parameter to $filter")?;
    let input = operand(input, scope)?;
    let limit = limit.map(|limit| operand(limit, scope)).transpose()?;
    let (slot, cond) = with_variable(name, cond, scope)?;
    Ok(Special::Filter { input, slot, cond, limit })
}

static REDUCE: Arguments = Arguments::new(
    &[optional("input"), optional("initialValue"), optional("in")],
    (40_075, "{op} requires an object as an argument, found: {type}"),
    (40_076, "{op} found an unknown argument: {field}"),
);

pub(super) fn reduce(value: Value<'_>, scope: &mut Scope) -> Result<Special, QueryError> {
    let [input, initial, body] = fields("$reduce", &REDUCE, value, scope)?;
    let input = required(input, 40_077, "$reduce requires 'input' to be specified")?;
    let initial = required(initial, 40_078, "$reduce requires 'initialValue' to be specified")?;
    let body = required(body, 40_079, "$reduce requires 'in' to be specified")?;
    let (input, initial) = (operand(input, scope)?, operand(initial, scope)?);
    let mark = scope.enter();
    let (this, value) = (scope.declare(b"this"), scope.declare(b"value"));
    let body = operand(body, scope);
    scope.leave(mark);
    Ok(Special::Reduce { input, initial, value, this, body: body? })
}

/// The array that an operator iterates over; `None` for null.
fn array_of<'a>(
    input: &'a Expr,
    env: &mut Env<'a>,
    refused: impl Fn(Value<'a>) -> QueryError,
) -> Result<Option<Value<'a>>, QueryError> {
    match input.eval(env)? {
        list @ Value::Array(_) => Ok(Some(list)),
        list if list.is_nullish() => Ok(None),
        other => Err(refused(other)),
    }
}

pub(super) fn eval_map<'a>(
    input: &'a Expr,
    slot: usize,
    body: &'a Expr,
    env: &mut Env<'a>,
) -> Evaluated<'a> {
    let Some(list) = array_of(input, env, |list| {
        QueryError::location(
            16_883,
            format!("input to $map must be an array not {}", list.type_name()),
        )
    })?
    else {
        return Ok(Value::Null);
    };
    let (mut mapped, mut rounds) = (Vec::new(), Rounds::begin("$map", env));
    for element in list.elements() {
        mapped.push(rounds.eval(body, (slot, element.value()), env)?);
    }
    Ok(build::array(env, mapped))
}

pub(super) fn eval_filter<'a>(
    input: &'a Expr,
    slot: usize,
    cond: &'a Expr,
    limit: Option<&'a Expr>,
    env: &mut Env<'a>,
) -> Evaluated<'a> {
    let Some(list) = array_of(input, env, |list| {
        QueryError::location(
            28_651,
            format!("input to $filter must be an array not {}", list.type_name()),
        )
    })?
    else {
        return Ok(Value::Null);
    };
    let limit = match limit.map(|limit| limit.eval(env)).transpose()? {
        None | Some(Value::Null | Value::Missing | Value::Undefined) => usize::MAX,
        Some(value) => {
            let number = crate::matcher::operands::integer("limit", value).ok();
            match number.and_then(|n| i32::try_from(n).ok()) {
                None => {
                    return Err(QueryError::location(
                        327_391,
                        format!(
                            "$filter: limit must be represented as a 32-bit integral value: {}",
                            Spelled(value)
                        ),
                    ));
                }
                Some(n) if n < 1 => {
                    return Err(QueryError::location(
                        327_392,
                        format!("$filter: limit must be greater than 0: {n}"),
                    ));
                }
                Some(n) => usize::try_from(n).unwrap_or(usize::MAX),
            }
        }
    };
    let (mut kept, mut rounds) = (Vec::new(), Rounds::begin("$filter", env));
    for element in list.elements() {
        if kept.len() >= limit {
            break;
        }
        if rounds.test(cond, (slot, element.value()), env)? {
            kept.push(element.value());
        }
    }
    Ok(build::array(env, kept))
}

pub(super) fn eval_reduce<'a>(
    input: &'a Expr,
    initial: &'a Expr,
    value: usize,
    this: usize,
    body: &'a Expr,
    env: &mut Env<'a>,
) -> Evaluated<'a> {
    let Some(list) = array_of(input, env, |list| {
        QueryError::location(
            40_080,
            format!("$reduce requires that 'input' be an array, found: {}", Spelled(list)),
        )
    })?
    else {
        return Ok(Value::Null);
    };
    let mut so_far = Held::InArena(initial.eval(env)?);
    let mut rounds = Rounds::begin("$reduce", env);
    for element in list.elements() {
        so_far = rounds.fold(body, so_far, (value, (this, element.value())), env)?;
    }
    Ok(so_far.settle(env))
}
