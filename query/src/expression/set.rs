//! Operators on arrays as sets: order and duplicates do not matter. Results are sorted.

use super::{Env, Evaluated, build, logic};
use crate::{error::QueryError, value::Value};

fn error<'a>(code: i32, message: impl Into<String>) -> Evaluated<'a> {
    Err(QueryError::location(code, message))
}

fn first<'a>(args: &[Value<'a>]) -> Value<'a> {
    args.first().copied().unwrap_or(Value::Missing)
}

/// The elements, sorted and without duplicates.
fn set<'a>(env: &Env<'a>, list: Value<'a>) -> Vec<Value<'a>> {
    let mut all: Vec<_> = list.elements().map(|e| e.value()).collect();
    sort(env, &mut all);
    all
}

fn sort<'a>(env: &Env<'a>, all: &mut Vec<Value<'a>>) {
    all.sort_by(|a, b| logic::compare(env, *a, *b));
    all.dedup_by(|a, b| logic::compare(env, *a, *b).is_eq());
}

fn contains<'a>(env: &Env<'a>, set: &[Value<'a>], value: Value<'a>) -> bool {
    set.binary_search_by(|v| logic::compare(env, *v, value)).is_ok()
}

pub(super) fn op_set_union<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let mut all = Vec::new();
    for &arg in args {
        match arg {
            Value::Array(_) => all.extend(arg.elements().map(|e| e.value())),
            _ if arg.is_nullish() => return Ok(Value::Null),
            other => {
                return error(
                    17_043,
                    format!(
                        "All operands of $setUnion must be arrays. One argument is of type: {}",
                        other.type_name()
                    ),
                );
            }
        }
    }
    sort(env, &mut all);
    Ok(build::array(env, all))
}

pub(super) fn op_set_intersection<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let mut common: Option<Vec<Value<'a>>> = None;
    for &arg in args {
        match arg {
            Value::Array(_) => {
                let next = set(env, arg);
                common = Some(match common {
                    None => next,
                    Some(mut so_far) => {
                        so_far.retain(|v| contains(env, &next, *v));
                        so_far
                    }
                });
            }
            _ if arg.is_nullish() => return Ok(Value::Null),
            other => {
                return error(
                    17_047,
                    format!(
                        "All operands of $setIntersection must be arrays. One argument is of type: {}",
                        other.type_name()
                    ),
                );
            }
        }
    }
    Ok(build::array(env, common.unwrap_or_default()))
}

pub(super) fn op_set_difference<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let [a, b] = *args else { return Ok(Value::Null) };
    if a.is_nullish() || b.is_nullish() {
        return Ok(Value::Null);
    }
    let Value::Array(_) = a else {
        return error(
            17_048,
            format!(
                "both operands of $setDifference must be arrays. First argument is of type: {}",
                a.type_name()
            ),
        );
    };
    let Value::Array(_) = b else {
        return error(
            17_049,
            format!(
                "both operands of $setDifference must be arrays. Second argument is of type: {}",
                b.type_name()
            ),
        );
    };
    let without = set(env, b);
    let mut kept: Vec<Value<'a>> = Vec::new();
    for element in a.elements() {
        let value = element.value();
        let met = kept.iter().any(|v| logic::compare(env, *v, value).is_eq());
        if !met && !contains(env, &without, value) {
            kept.push(value);
        }
    }
    Ok(build::array(env, kept))
}

/// `$setEquals` with a folded constant: the constant's set, its original position, then the other sets, which are
/// compared with it.
pub(super) fn op_set_equals_known<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let [known, Value::Int32(place), others @ ..] = args else { return Ok(Value::Null) };
    let place = usize::try_from(*place).unwrap_or(0);
    all_equal(env, Some(set(env, *known)), others, |at| if at < place { at + 1 } else { at + 2 })
}

pub(super) fn op_set_equals<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    all_equal(env, None, args, |at| at + 1)
}

/// `shown` returns the number of an argument for error texts.
fn all_equal<'a>(
    env: &mut Env<'a>,
    mut first: Option<Vec<Value<'a>>>,
    args: &[Value<'a>],
    shown: impl Fn(usize) -> usize,
) -> Evaluated<'a> {
    let equal = |a: &[Value<'a>], b: &[Value<'a>]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| logic::compare(env, *a, *b).is_eq())
    };
    for (at, &arg) in args.iter().enumerate() {
        let Value::Array(_) = arg else {
            return error(
                17_044,
                format!(
                    "All operands of $setEquals must be arrays. {}-th argument is of type: {}",
                    shown(at),
                    arg.type_name()
                ),
            );
        };
        let next = set(env, arg);
        // Once two sets differ, the rest is not checked.
        match &first {
            Some(first) if !equal(first, &next) => return Ok(Value::Bool(false)),
            Some(_) => {}
            None => first = Some(next),
        }
    }
    Ok(Value::Bool(true))
}

/// mongod's error for a constant that is not an array.
pub(super) fn not_an_array_to_equal(at: usize, value: Value<'_>) -> QueryError {
    QueryError::location(
        5_887_502,
        format!(
            "All operands of $setEquals must be arrays. {}-th argument is of type: {}",
            at + 1,
            value.type_name()
        ),
    )
}

/// The same for the second operand of `$setIsSubset`.
pub(super) fn no_superset(value: Value<'_>) -> QueryError {
    QueryError::location(
        17_311,
        format!(
            "both operands of $setIsSubset must be arrays. Second argument is of type: {}",
            value.type_name()
        ),
    )
}

pub(super) fn op_set_is_subset<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let [a, b] = *args else { return Ok(Value::Null) };
    let Value::Array(_) = a else {
        return error(
            17_046,
            format!(
                "both operands of $setIsSubset must be arrays. First argument is of type: {}",
                a.type_name()
            ),
        );
    };
    let Value::Array(_) = b else {
        return error(
            17_042,
            format!(
                "both operands of $setIsSubset must be arrays. Second argument is of type: {}",
                b.type_name()
            ),
        );
    };
    let whole = set(env, b);
    Ok(Value::Bool(a.elements().all(|e| contains(env, &whole, e.value()))))
}

pub(super) fn op_all_elements_true<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    match first(args) {
        list @ Value::Array(_) => Ok(Value::Bool(list.elements().all(|e| logic::truth(e.value())))),
        other => error(
            17_040,
            format!("$allElementsTrue's argument must be an array, but is {}", other.type_name()),
        ),
    }
}

pub(super) fn op_any_element_true<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    match first(args) {
        list @ Value::Array(_) => Ok(Value::Bool(list.elements().any(|e| logic::truth(e.value())))),
        other => error(
            17_041,
            format!("$anyElementTrue's argument must be an array, but is {}", other.type_name()),
        ),
    }
}

/// Refuses constants that are not arrays.
pub(super) fn check_equals(_: &str, constants: &[Option<Value<'_>>]) -> Result<(), QueryError> {
    for (at, value) in constants.iter().enumerate() {
        if let Some(value) = value.filter(|value| !matches!(value, Value::Array(_))) {
            return Err(not_an_array_to_equal(at, value));
        }
    }
    Ok(())
}

/// Refuses a constant that is not an array.
pub(super) fn check_is_subset(_: &str, constants: &[Option<Value<'_>>]) -> Result<(), QueryError> {
    match constants.get(1) {
        Some(Some(value)) if !matches!(value, Value::Array(_)) => Err(no_superset(*value)),
        _ => Ok(()),
    }
}
