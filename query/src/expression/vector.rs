//! `$sigmoid` and vector similarity operators.

use super::{
    Call, Env, Evaluated, Expr, Fun, Operator, arithmetic, decimal,
    parse::{Scope, lossy, operand},
};
use crate::{
    error::QueryError,
    value::{Elements, OwnedValue, Value},
};

/// `$sigmoid` takes one argument, which is not an array.
pub(super) fn sigmoid(
    row: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope,
) -> Result<Expr, QueryError> {
    match value {
        Value::Array(_) => Err(no_number(row.name, value)),
        Value::String(text) if !text.starts_with(b"$") => Err(no_number(row.name, value)),
        _ => Ok(Expr::Call(Call { row, fun: op_sigmoid, args: vec![operand(value, scope)?] })),
    }
}

/// `1 / (1 + e^-x)`.
fn op_sigmoid<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    let value = args.first().copied().unwrap_or(Value::Missing);
    match value {
        _ if value.is_nullish() => Ok(Value::Null),
        Value::Decimal(n) => {
            let one = decimal::from_i64(1);
            let minus = decimal::mul(n, decimal::from_i64(-1));
            Ok(Value::Decimal(decimal::div(one, decimal::add(one, decimal::exp(minus)))))
        }
        _ if value.is_number() => {
            Ok(Value::Double(1.0 / (1.0 + (-arithmetic::as_f64(value)).exp())))
        }
        // mongod computes it with `$multiply`, whose error is shown.
        other => Err(no_number("$multiply", other)),
    }
}

pub(super) fn no_number(name: &str, value: Value<'_>) -> QueryError {
    QueryError::type_mismatch(format!(
        "{name} only supports numeric types, not {}",
        value.type_name()
    ))
}

/// The kind of similarity.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Cosine,
    DotProduct,
    Euclidean,
}

/// Parses two vectors in an array, or `{vectors, score}`.
pub(super) fn parse(
    row: &'static Operator,
    fun: Fun,
    value: Value<'_>,
    scope: &mut Scope,
) -> Result<Expr, QueryError> {
    let name = row.name;
    let (mut list, mut score) = (value, false);
    match value {
        Value::Array(_) => {}
        Value::Document(doc) => {
            list = Value::Missing;
            for field in Elements::of_bytes(doc) {
                match (field.key, field.value()) {
                    (b"vectors", vectors) => list = vectors,
                    (b"score", Value::Bool(given)) => score = given,
                    (other, _) => {
                        return Err(QueryError::location(
                            10_413_207,
                            format!("{name} found an unknown argument: {}", lossy(other)),
                        ));
                    }
                }
            }
        }
        other => {
            return Err(QueryError::location(
                10_413_208,
                format!(
                    "{name} only supports an object or array as an argument, but found{}",
                    other.type_name()
                ),
            ));
        }
    }
    let mut vectors = list.elements().map(|e| e.value());
    let (Some(a), Some(b), None) = (vectors.next(), vectors.next(), vectors.next()) else {
        return Err(QueryError::location(
            10_413_209,
            format!("{name} requires exactly two vectors"),
        ));
    };
    let score = Expr::Literal(OwnedValue::from(Value::Bool(score)));
    let args = vec![operand(a, scope)?, operand(b, scope)?, score];
    Ok(Expr::Call(Call { row, fun, args }))
}

type Pair = (Vec<f64>, Vec<f64>);

/// The two vectors as numbers; `None` if one of them is null.
fn vectors(name: &str, a: Value<'_>, b: Value<'_>) -> Result<Option<Pair>, QueryError> {
    if a.is_nullish() || b.is_nullish() {
        return Ok(None);
    }
    for (which, code, value) in [("First", 10_413_200, a), ("Second", 10_413_201, b)] {
        if !matches!(value, Value::Array(_)) {
            return Err(QueryError::location(
                code,
                format!(
                    "{which} argument to {name} must be an array, but is of type: {}",
                    value.type_name()
                ),
            ));
        }
    }
    let (count_a, count_b) = (a.elements().count(), b.elements().count());
    if count_a != count_b {
        return Err(QueryError::location(
            10_413_202,
            format!(
                "Array arguments to {name} must be the same size, but the first is of size \
                 {count_a} and the second is of size {count_b}"
            ),
        ));
    }
    let numbers = |which: &str, code, value: Value<'_>| -> Result<Vec<f64>, QueryError> {
        value
            .elements()
            .map(|e| match e.value() {
                v if v.is_number() => Ok(arithmetic::as_f64(v)),
                _ => Err(QueryError::location(
                    code,
                    format!("All elements in the {which} argument to {name} must be numeric"),
                )),
            })
            .collect()
    };
    Ok(Some((numbers("first", 10_413_203, a)?, numbers("second", 10_413_204, b)?)))
}

fn similarity<'a>(name: &str, kind: Kind, args: &[Value<'a>]) -> Evaluated<'a> {
    let [a, b, score] = *args else { return Ok(Value::Null) };
    let Some((a, b)) = vectors(name, a, b)? else { return Ok(Value::Null) };
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).fold(0.0, |sum, (x, y)| sum + x * y);
    let plain = match kind {
        Kind::DotProduct => dot(&a, &b),
        Kind::Cosine => {
            let lengths = dot(&a, &a).sqrt() * dot(&b, &b).sqrt();
            if lengths == 0.0 { 0.0 } else { dot(&a, &b) / lengths }
        }
        Kind::Euclidean => {
            let squares = a.iter().zip(&b).map(|(x, y)| (x - y) * (x - y));
            squares.fold(0.0, |sum: f64, n| sum + n).sqrt()
        }
    };
    let scored = matches!(score, Value::Bool(true));
    Ok(Value::Double(match kind {
        _ if !scored => plain,
        Kind::Euclidean => 1.0 / (1.0 + plain),
        Kind::Cosine | Kind::DotProduct => (1.0 + plain) / 2.0,
    }))
}

pub(super) fn op_cosine<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    similarity("$similarityCosine", Kind::Cosine, args)
}

pub(super) fn op_dot_product<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    similarity("$similarityDotProduct", Kind::DotProduct, args)
}

pub(super) fn op_euclidean<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    similarity("$similarityEuclidean", Kind::Euclidean, args)
}
