//! Operators that do not evaluate all their arguments, or evaluate one many times.

use super::{
    Base, Env, Evaluated, Expr, FieldPath, Operator, Percentile,
    arrange::{self, SortBy},
    conditional, logic,
    parse::{Scope, lossy},
    scoped,
};
use crate::{
    error::QueryError,
    exec::{INDEX_KEY, RECORD_ID, SORT_KEY, TEXT_SCORE},
    matcher::Regex,
    value::{Elements, OwnedValue, Value},
};

type Parsed = Result<Expr, QueryError>;

/// An operator with its own evaluation rules.
#[derive(Debug, Clone)]
pub enum Special {
    /// `$and`.
    And(Vec<Expr>),
    /// `$or`.
    Or(Vec<Expr>),
    /// `$cond`.
    Cond(Expr, Expr, Expr),
    /// `$ifNull`.
    IfNull(Vec<Expr>),
    /// `$switch`.
    Switch(Vec<(Expr, Expr)>, Option<Expr>),
    /// `$let`.
    Let(Vec<(usize, Expr)>, Expr),
    /// `$map`.
    Map {
        /// The array.
        input: Expr,
        /// The slot of the element variable.
        slot: usize,
        /// The result expression.
        body: Expr,
    },
    /// `$filter`.
    Filter {
        /// The array.
        input: Expr,
        /// The slot of the element variable.
        slot: usize,
        /// The condition.
        cond: Expr,
        /// Maximum number of results.
        limit: Option<Expr>,
    },
    /// `$reduce`.
    Reduce {
        /// The array.
        input: Expr,
        /// The initial value.
        initial: Expr,
        /// The slot of `$$value`.
        value: usize,
        /// The slot of `$$this`.
        this: usize,
        /// The expression for the next value of `$$value`.
        body: Expr,
    },
    /// `$sortArray`.
    SortArray(Expr, SortBy),
    /// `$zip`.
    Zip {
        /// The arrays.
        inputs: Vec<Expr>,
        /// Continue to the end of the longest array.
        longest: bool,
        /// Values for missing elements.
        defaults: Option<Expr>,
    },
    /// `$percentile` and `$median`.
    Percentile(Percentile),
    /// `$rand`.
    Rand,
    /// `$regexFind` and similar operators with a constant regex, compiled once.
    Regex(super::regex::Kind, Expr, Regex),
    /// `$regexFind` and similar operators with a regex from the document.
    RegexOf {
        /// Which operator.
        kind: super::regex::Kind,
        /// The text.
        input: Expr,
        /// The regex.
        regex: Expr,
        /// Its options.
        options: Option<Expr>,
    },
}

/// `$literal` and `$const`.
pub(super) fn literal(_: &'static Operator, value: Value<'_>, _: &mut Scope) -> Parsed {
    Ok(Expr::Literal(OwnedValue::from(value)))
}

pub(super) fn rand(value: Value<'_>, _: &mut Scope) -> Result<Special, QueryError> {
    match value {
        Value::Document(list) | Value::Array(list) if Elements::of_bytes(list).next().is_none() => {
            Ok(Special::Rand)
        }
        _ => Err(QueryError::location(10_065, "invalid parameter: expected an object ($rand)")),
    }
}

pub(super) fn percentile(value: Value<'_>, scope: &mut Scope) -> Result<Special, QueryError> {
    Percentile::parse("$percentile", value, 7_436_200, scope).map(Special::Percentile)
}

pub(super) fn median(value: Value<'_>, scope: &mut Scope) -> Result<Special, QueryError> {
    Percentile::parse("$median", value, 7_436_201, scope).map(Special::Percentile)
}

/// Refuses operators that run JavaScript.
pub(super) fn no_javascript(row: &'static Operator, _: Value<'_>, _: &mut Scope) -> Parsed {
    let text = format!("{} requires the JavaScript engine to be enabled", row.name);
    Err(QueryError::location(31_264, text))
}

/// Parses `$meta`.
pub(super) fn meta(_: &'static Operator, value: Value<'_>, scope: &mut Scope) -> Parsed {
    match value {
        Value::String(TEXT_SCORE) => {
            scope.wish_scores()?;
            Ok(Expr::Path(match scope.has_scores() {
                false => FieldPath { base: Base::Remove, names: Vec::new() },
                true => FieldPath { base: Base::Notes, names: vec![TEXT_SCORE.into()] },
            }))
        }
        Value::String(name @ (RECORD_ID | INDEX_KEY | SORT_KEY)) if scope.has_notes => {
            Ok(Expr::Path(FieldPath { base: Base::Notes, names: vec![name.into()] }))
        }
        // Metadata that only a search stage provides.
        Value::String(
            b"searchScore"
            | b"searchHighlights"
            | b"vectorSearchScore"
            | b"timeseriesBucketMinTime"
            | b"timeseriesBucketMaxTime"
            | b"randVal",
        ) => Ok(Expr::Path(FieldPath { base: Base::Remove, names: Vec::new() })),
        _ => Err(no_meta(value)),
    }
}

/// The error for `$meta` of metadata that is not supported here.
fn no_meta(value: Value<'_>) -> QueryError {
    let Value::String(name) = value else {
        return QueryError::location(17_307, "$meta only supports string arguments");
    };
    let needs = match name {
        b"geoNearDistance" => "$geoNear distance",
        b"geoNearPoint" => "$geoNear point",
        b"score" => "score",
        b"scoreDetails" => "scoreDetails",
        b"stream" => {
            return QueryError::location(9_692_105, "Unsupported $meta field: stream");
        }
        b"indexKey" | b"recordId" | b"sortKey" => {
            return QueryError::location(
                115,
                format!("$meta: '{}' is not supported by this server yet", lossy(name)),
            );
        }
        other => {
            return QueryError::location(
                17_308,
                format!("Unsupported $meta field: {}", lossy(other)),
            );
        }
    };
    QueryError::location(
        40_218,
        format!("query requires {needs} metadata, but it is not available"),
    )
}

impl Special {
    /// True if it does not depend on documents, time or randomness. Operators that bind variables are never
    /// considered constant.
    pub(super) fn is_constant(&self) -> bool {
        let all = |exprs: &[Expr]| exprs.iter().all(Expr::is_constant);
        match self {
            Self::And(args) | Self::Or(args) | Self::IfNull(args) => all(args),
            Self::Cond(a, b, c) => a.is_constant() && b.is_constant() && c.is_constant(),
            Self::Switch(branches, default) => {
                branches.iter().all(|(case, then)| case.is_constant() && then.is_constant())
                    && default.as_ref().is_none_or(Expr::is_constant)
            }
            Self::SortArray(input, _) | Self::Regex(_, input, _) => input.is_constant(),
            Self::Zip { inputs, defaults, .. } => {
                all(inputs) && defaults.as_ref().is_none_or(Expr::is_constant)
            }
            Self::Percentile(percentile) => percentile.input.is_constant(),
            Self::Let(..)
            | Self::RegexOf { .. }
            | Self::Map { .. }
            | Self::Filter { .. }
            | Self::Reduce { .. }
            | Self::Rand => false,
        }
    }

    /// Evaluates the operator.
    pub(super) fn eval<'a>(&'a self, env: &mut Env<'a>) -> Evaluated<'a> {
        match self {
            Self::And(args) => {
                for arg in args {
                    if !logic::truth(arg.eval(env)?) {
                        return Ok(Value::Bool(false));
                    }
                }
                Ok(Value::Bool(true))
            }
            Self::Or(args) => {
                for arg in args {
                    if logic::truth(arg.eval(env)?) {
                        return Ok(Value::Bool(true));
                    }
                }
                Ok(Value::Bool(false))
            }
            Self::Cond(test, then, otherwise) => {
                if logic::truth(test.eval(env)?) {
                    then.eval(env)
                } else {
                    otherwise.eval(env)
                }
            }
            Self::IfNull(args) => {
                let mut last = Value::Missing;
                for arg in args {
                    last = arg.eval(env)?;
                    if !last.is_nullish() {
                        return Ok(last);
                    }
                }
                Ok(last)
            }
            Self::Switch(branches, default) => {
                conditional::eval_switch(branches, default.as_ref(), env)
            }
            Self::Let(vars, body) => {
                for (slot, expr) in vars {
                    let value = expr.eval(env)?;
                    env.set(*slot, value);
                }
                body.eval(env)
            }
            Self::Map { input, slot, body } => scoped::eval_map(input, *slot, body, env),
            Self::Filter { input, slot, cond, limit } => {
                scoped::eval_filter(input, *slot, cond, limit.as_ref(), env)
            }
            Self::Reduce { input, initial, value, this, body } => {
                scoped::eval_reduce(input, initial, *value, *this, body, env)
            }
            Self::SortArray(input, by) => {
                let list = input.eval(env)?;
                arrange::sort_values(env, list, by)
            }
            Self::Zip { inputs, longest, defaults } => {
                arrange::eval_zip(inputs, *longest, defaults.as_ref(), env)
            }
            Self::Percentile(percentile) => percentile.eval(env),
            Self::Rand => Ok(Value::Double(env.cx.random())),
            Self::Regex(kind, input, regex) => {
                let input = input.eval(env)?;
                super::regex::run(env, *kind, input, regex)
            }
            Self::RegexOf { kind, input, regex, options } => {
                super::regex::run_of(env, *kind, input, regex, options.as_ref())
            }
        }
    }
}
