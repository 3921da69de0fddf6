//! Operators that don't evaluate all their arguments, or evaluate one many times.

use super::{
    Base, Call, Env, Evaluated, Expr, FieldPath, Percentile,
    arity::check_count,
    arrange::{self, SortBy},
    conditional, convert, logic,
    parse::{Scope, arguments, lossy, operand},
    scoped, vector,
};
use crate::{
    Release,
    error::QueryError,
    exec::{INDEX_KEY, NOTES, RECORD_ID, SORT_KEY, TEXT_SCORE},
    matcher::Regex,
    value::{Elements, OwnedValue, Value},
};

/// An operator with a way of its own.
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
        /// The element's slot.
        slot: usize,
        /// What becomes of it.
        body: Expr,
    },
    /// `$filter`.
    Filter {
        /// The array.
        input: Expr,
        /// The element's slot.
        slot: usize,
        /// Whether it stays.
        cond: Expr,
        /// How many at most.
        limit: Option<Expr>,
    },
    /// `$reduce`.
    Reduce {
        /// The array.
        input: Expr,
        /// Where it starts.
        initial: Expr,
        /// The slot of the result so far.
        value: usize,
        /// The slot of the element.
        this: usize,
        /// The next result.
        body: Expr,
    },
    /// `$sortArray`.
    SortArray(Expr, SortBy),
    /// `$zip`.
    Zip {
        /// The arrays.
        inputs: Vec<Expr>,
        /// Go on to the end of the longest.
        longest: bool,
        /// What stands for missing elements.
        defaults: Option<Expr>,
    },
    /// `$percentile` and `$median`.
    Percentile(Percentile),
    /// `$rand`.
    Rand,
    /// `$regexFind` and its like with a constant regex, compiled once.
    Regex(super::regex::Kind, Expr, Regex),
    /// `$regexFind` and its like with a regex of the document.
    RegexOf {
        /// Which of them.
        kind: super::regex::Kind,
        /// The text.
        input: Expr,
        /// The regex.
        regex: Expr,
        /// Its options.
        options: Option<Expr>,
    },
}

/// Parses an operator of this family; `None` if it is none.
pub(super) fn parse(
    name: &[u8],
    value: Value<'_>,
    scope: &mut Scope,
) -> Result<Option<Expr>, QueryError> {
    let special = match name {
        b"$literal" | b"$const" => return Ok(Some(Expr::Literal(OwnedValue::from(value)))),
        b"$and" => Special::And(arguments(value, scope)?),
        b"$or" => Special::Or(arguments(value, scope)?),
        b"$cond" => conditional::cond(value, scope)?,
        b"$ifNull" => {
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
            Special::IfNull(args)
        }
        b"$switch" => conditional::switch(value, scope)?,
        b"$let" => scoped::let_in(value, scope)?,
        b"$map" => scoped::map(value, scope)?,
        b"$filter" => scoped::filter(value, scope)?,
        b"$reduce" => scoped::reduce(value, scope)?,
        b"$sortArray" => arrange::sort_array(value, scope)?,
        b"$zip" => arrange::zip(value, scope)?,
        b"$rand" => match value {
            Value::Document(doc) if Elements::of_bytes(doc).next().is_none() => Special::Rand,
            Value::Array(a) if Elements::of_bytes(a).next().is_none() => Special::Rand,
            _ => {
                return Err(QueryError::location(
                    10_065,
                    "invalid parameter: expected an object ($rand)",
                ));
            }
        },
        b"$percentile" => {
            Special::Percentile(Percentile::parse("$percentile", value, 7_436_200, scope)?)
        }
        b"$median" => Special::Percentile(Percentile::parse("$median", value, 7_436_201, scope)?),
        b"$expr" => return operand(value, scope).map(Some),
        b"$sigmoid" => match value {
            Value::Array(_) => return Err(vector::no_number("$sigmoid", value)),
            Value::String(text) if !text.starts_with(b"$") => {
                return Err(vector::no_number("$sigmoid", value));
            }
            _ => return unary("$sigmoid", vector::op_sigmoid, value, scope).map(Some),
        },
        b"$toHashedIndexKey" => {
            let fun = convert::op_to_hashed_index_key;
            return unary("$toHashedIndexKey", fun, value, scope).map(Some);
        }
        b"$similarityCosine" => {
            return vector::parse("$similarityCosine", vector::op_cosine, value, scope).map(Some);
        }
        b"$similarityDotProduct" => {
            let fun = vector::op_dot_product;
            return vector::parse("$similarityDotProduct", fun, value, scope).map(Some);
        }
        b"$similarityEuclidean" => {
            let fun = vector::op_euclidean;
            return vector::parse("$similarityEuclidean", fun, value, scope).map(Some);
        }
        b"$function" | b"$accumulator" => {
            return Err(QueryError::location(
                31_264,
                format!("{} requires the JavaScript engine to be enabled", lossy(name)),
            ));
        }
        b"$meta" => return meta(value, scope).map(Some),
        _ => {
            return super::regex::parse(name, value, scope)
                .map(|special| special.map(|special| Expr::Special(Box::new(special))));
        }
    };
    Ok(Some(Expr::Special(Box::new(special))))
}

/// An operator of one argument, which may be an array itself.
fn unary(
    name: &'static str,
    fun: super::Fun,
    value: Value<'_>,
    scope: &mut Scope,
) -> Result<Expr, QueryError> {
    Ok(Expr::Call(Call { name, fun, args: vec![operand(value, scope)?] }))
}

/// What stands beside a document.
fn meta(value: Value<'_>, scope: &Scope) -> Result<Expr, QueryError> {
    match value {
        Value::String(TEXT_SCORE) => {
            scope.wish_scores()?;
            Ok(Expr::Path(match scope.has_scores() {
                false => FieldPath { base: Base::Remove, names: Vec::new() },
                true if scope.has_notes => {
                    FieldPath { base: Base::Notes, names: vec![TEXT_SCORE.into()] }
                }
                true => {
                    FieldPath { base: Base::Root, names: vec![NOTES.into(), TEXT_SCORE.into()] }
                }
            }))
        }
        Value::String(name @ (RECORD_ID | INDEX_KEY | SORT_KEY)) if scope.has_notes => {
            Ok(Expr::Path(FieldPath { base: Base::Notes, names: vec![name.into()] }))
        }
        // What only a search could note.
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

/// `$meta` of what no stage here carries beside its documents.
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
    /// Whether no document, time or chance has a part in it. What binds variables is taken to need them.
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

    /// The value of the expression.
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
