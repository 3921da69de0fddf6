//! `$percentile` and `$median`, as expressions and as accumulators.
//!
//! mongod's method "approximate" is a t-digest whose centroids hold one value each while there are few values; the
//! result is then the value at rank `ceil(p * n)`. This implementation returns that value for any count.

use super::{Env, Evaluated, Expr, arithmetic, build, parse::Scope};
use crate::{
    error::QueryError,
    value::{Elements, Shown, Value},
};

/// The parsed operator.
#[derive(Debug, Clone)]
pub struct Percentile {
    /// The input expression.
    pub input: Expr,
    /// The requested percentiles, from 0 to 1.
    pub places: Vec<f64>,
    /// `$median` returns one value instead of an array.
    pub single: bool,
}

impl Percentile {
    /// Parses `{input, p, method}`; `not_object` is the error code for other types.
    pub(crate) fn parse(
        name: &str,
        value: Value<'_>,
        not_object: i32,
        scope: &mut Scope,
    ) -> Result<Self, QueryError> {
        let single = name == "$median";
        let Value::Document(doc) = value else {
            return Err(QueryError::location(
                not_object,
                format!("specification must be an object; found {name}: {}", Shown(value)),
            ));
        };
        let (mut input, mut places, mut method) = (None, None, None);
        for field in Elements::of_bytes(doc) {
            match field.key {
                b"input" => input = Some(field.value()),
                b"p" if !single => places = Some(field.value()),
                b"method" => match field.value() {
                    Value::String(text) => method = Some(text),
                    other => {
                        return Err(QueryError::type_mismatch(format!(
                            "BSON field '{name}.method' is the wrong type '{}', expected type \
                             'string'",
                            other.type_name()
                        )));
                    }
                },
                other => {
                    let other = String::from_utf8_lossy(other);
                    return Err(QueryError::location(
                        40_415,
                        format!("BSON field '{name}.{other}' is an unknown field."),
                    ));
                }
            }
        }
        let missing = |field: &str| {
            QueryError::location(
                40_414,
                format!("BSON field '{name}.{field}' is missing but a required field"),
            )
        };
        let input = input.ok_or_else(|| missing("input"))?;
        let method = method.ok_or_else(|| missing("method"))?;
        if !single && places.is_none() {
            return Err(missing("p"));
        }
        let input = Expr::parse(input, scope)?;
        let places = places.map_or(Ok(vec![0.5]), |value| parse_places(value, scope))?;
        if method != b"approximate" {
            return Err(QueryError::bad_value(
                "Currently only 'approximate' can be used as a percentile 'method'.",
            ));
        }
        Ok(Self { input, places, single })
    }

    /// Evaluates over the numbers of an array, or over a single number.
    pub(super) fn eval<'a>(&'a self, env: &mut Env<'a>) -> Evaluated<'a> {
        let input = self.input.eval(env)?;
        let mut numbers = Vec::new();
        match input {
            Value::Array(_) => {
                numbers.extend(input.elements().filter_map(|e| number(e.value())));
            }
            other => numbers.extend(number(other)),
        }
        let found = self.of(&mut numbers);
        if self.single {
            return Ok(found.first().copied().unwrap_or(Value::Null));
        }
        Ok(build::array(env, found))
    }

    /// The values at the percentiles; null for each if there are no numbers.
    pub(crate) fn of(&self, numbers: &mut [f64]) -> Vec<Value<'static>> {
        numbers.sort_by(f64::total_cmp);
        self.places
            .iter()
            .map(|place| {
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_precision_loss,
                    clippy::cast_sign_loss,
                    reason = "from 0 to the count, which is far below 2^53"
                )]
                let rank = (place * numbers.len() as f64).ceil() as usize;
                numbers.get(rank.saturating_sub(1)).map_or(Value::Null, |n| Value::Double(*n))
            })
            .collect()
    }
}

/// A number that can be ranked.
pub(crate) fn number(value: Value<'_>) -> Option<f64> {
    value.is_number().then(|| arithmetic::as_f64(value)).filter(|n| !n.is_nan())
}

fn parse_places(value: Value<'_>, scope: &mut Scope) -> Result<Vec<f64>, QueryError> {
    let Some(constant) = Expr::parse(value, scope)?.constant()? else {
        return Err(QueryError::location(
            7_750_300,
            format!(
                "The $percentile 'p' field must be an array of constant values, but found value: \
                 {}.",
                Shown(value)
            ),
        ));
    };
    let fault = |code, found: Value<'_>| {
        QueryError::location(
            code,
            format!(
                "The $percentile 'p' field must be an array of numbers from [0.0, 1.0], but \
                 found: {}",
                Shown(found)
            ),
        )
    };
    let list = constant.get();
    let empty = list.elements().next().is_none();
    if !matches!(list, Value::Array(_)) || empty {
        return Err(fault(7_750_301, list));
    }
    list.elements()
        .map(|element| {
            let value = element.value();
            if !value.is_number() {
                return Err(fault(7_750_302, value));
            }
            let place = arithmetic::as_f64(value);
            if (0.0..=1.0).contains(&place) { Ok(place) } else { Err(fault(7_750_303, value)) }
        })
        .collect()
}
