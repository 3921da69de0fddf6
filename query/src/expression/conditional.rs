//! `$cond` and `$switch`.

use super::{
    Env, Evaluated, Expr,
    arity::check_count,
    logic,
    parse::{Scope, arguments, lossy, operand},
    special::Special,
};
use crate::{
    Release,
    error::QueryError,
    value::{Elements, Value},
};

pub(super) fn cond(value: Value<'_>, scope: &mut Scope) -> Result<Special, QueryError> {
    let Value::Document(doc) = value else {
        let args = arguments(value, scope)?;
        check_count("$cond", args.len(), 3, 3)?;
        let mut args = args.into_iter();
        return match (args.next(), args.next(), args.next()) {
            (Some(a), Some(b), Some(c)) => Ok(Special::Cond(a, b, c)),
            _ => Err(QueryError::bad_value("$cond needs three arguments")),
        };
    };
    let (mut test, mut then, mut otherwise) = (None, None, None);
    for field in Elements::of_bytes(doc) {
        let parsed = Some(match field.key {
            b"if" | b"then" | b"else" => operand(field.value(), scope)?,
            other => {
                return Err(QueryError::location(
                    17_083,
                    format!("Unrecognized parameter to $cond: {}", lossy(other)),
                ));
            }
        });
        match field.key {
            b"if" => test = parsed,
            b"then" => then = parsed,
            _ => otherwise = parsed,
        }
    }
    let test =
        test.ok_or_else(|| QueryError::location(17_080, "Missing 'if' parameter to $cond"))?;
    let then =
        then.ok_or_else(|| QueryError::location(17_081, "Missing 'then' parameter to $cond"))?;
    let otherwise = otherwise
        .ok_or_else(|| QueryError::location(17_082, "Missing 'else' parameter to $cond"))?;
    Ok(Special::Cond(test, then, otherwise))
}

pub(super) fn if_null(value: Value<'_>, scope: &mut Scope) -> Result<Special, QueryError> {
    let args = arguments(value, scope)?;
    if scope.release < Release::V5_0 {
        check_count("$ifNull", args.len(), 2, 2)?;
    }
    if args.len() < 2 {
        return Err(QueryError::location(
            1_257_300,
            format!("$ifNull needs at least two arguments, had: {}", args.len()),
        ));
    }
    Ok(Special::IfNull(args))
}

pub(super) fn switch(value: Value<'_>, scope: &mut Scope) -> Result<Special, QueryError> {
    let Value::Document(doc) = value else {
        return Err(QueryError::location(
            40_060,
            format!("$switch requires an object as an argument, found: {}", value.type_name()),
        ));
    };
    let (mut branches, mut default) = (Vec::new(), None);
    for field in Elements::of_bytes(doc) {
        match (field.key, field.value()) {
            (b"branches", list @ Value::Array(_)) => {
                for branch in list.elements() {
                    branches.push(switch_branch(branch.value(), scope)?);
                }
            }
            (b"branches", other) => {
                return Err(QueryError::location(
                    40_061,
                    format!(
                        "$switch expected an array for 'branches', found: {}",
                        other.type_name()
                    ),
                ));
            }
            (b"default", value) => default = Some(operand(value, scope)?),
            (other, _) => {
                return Err(QueryError::location(
                    40_067,
                    format!("$switch found an unknown argument: {}", lossy(other)),
                ));
            }
        }
    }
    if branches.is_empty() {
        return Err(QueryError::location(40_068, "$switch requires at least one branch"));
    }
    Ok(Special::Switch(branches, default))
}

fn switch_branch(branch: Value<'_>, scope: &mut Scope) -> Result<(Expr, Expr), QueryError> {
    let Value::Document(doc) = branch else {
        return Err(QueryError::location(
            40_062,
            format!("$switch expected each branch to be an object, found: {}", branch.type_name()),
        ));
    };
    let (mut case, mut then) = (None, None);
    for field in Elements::of_bytes(doc) {
        match field.key {
            b"case" => case = Some(operand(field.value(), scope)?),
            b"then" => then = Some(operand(field.value(), scope)?),
            other => {
                return Err(QueryError::location(
                    40_063,
                    format!("$switch found an unknown argument to a branch: {}", lossy(other)),
                ));
            }
        }
    }
    let case = case.ok_or_else(|| {
        QueryError::location(40_064, "$switch requires each branch have a 'case' expression")
    })?;
    let then = then.ok_or_else(|| {
        QueryError::location(40_065, "$switch requires each branch have a 'then' expression.")
    })?;
    Ok((case, then))
}

pub(super) fn eval_switch<'a>(
    branches: &'a [(Expr, Expr)],
    default: Option<&'a Expr>,
    env: &mut Env<'a>,
) -> Evaluated<'a> {
    for (case, then) in branches {
        if logic::truth(case.eval(env)?) {
            return then.eval(env);
        }
    }
    match default {
        Some(default) => default.eval(env),
        None => Err(QueryError::location(
            40_066,
            "$switch could not find a matching branch for an input, and no default was specified.",
        )),
    }
}
