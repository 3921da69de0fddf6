//! Comparisons and truth.

use std::cmp::Ordering;

use super::{Env, Evaluated};
use crate::value::{Value, compare_values};

/// True for all values except false, zero, null, undefined and missing.
pub(crate) fn truth(value: Value<'_>) -> bool {
    crate::matcher::operands::is_true(value)
}

/// Compares values under the collation. A missing value ranks with undefined: above MinKey, below null.
pub(crate) fn compare<'a>(env: &Env<'a>, a: Value<'a>, b: Value<'a>) -> Ordering {
    compare_values(a, b, env.collator)
}

macro_rules! comparisons {
    ($($name:ident = $test:expr;)*) => {$(
        pub(super) fn $name<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
            let [a, b] = *args else { return Ok(Value::Null) };
            let test: fn(Ordering) -> bool = $test;
            Ok(Value::Bool(test(compare(env, a, b))))
        }
    )*};
}

comparisons! {
    op_eq = Ordering::is_eq;
    op_ne = Ordering::is_ne;
    op_lt = Ordering::is_lt;
    op_lte = Ordering::is_le;
    op_gt = Ordering::is_gt;
    op_gte = Ordering::is_ge;
}

pub(super) fn op_cmp<'a>(env: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let [a, b] = *args else { return Ok(Value::Null) };
    Ok(Value::Int32(match compare(env, a, b) {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    }))
}

pub(super) fn op_not<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    Ok(Value::Bool(!args.first().copied().is_some_and(truth)))
}
