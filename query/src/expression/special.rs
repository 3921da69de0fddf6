//! Operators that don't evaluate all their arguments, or evaluate one many times.

use std::cmp::Ordering;

use super::{
    Env, Evaluated, Expr, build, logic,
    parse::{self, Scope, arguments, check_count, lossy, operand},
};
use crate::{
    error::QueryError,
    matcher::Regex,
    sort::SortPattern,
    value::{Elements, OwnedValue, Shown, Value},
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
    /// `$rand`.
    Rand,
    /// `$regexFind` and its like with a constant regex, compiled once.
    Regex(super::regex::Kind, Expr, Regex),
}

/// The order of `$sortArray`.
#[derive(Debug, Clone)]
pub enum SortBy {
    /// Whole values.
    Value {
        /// False for -1.
        ascending: bool,
    },
    /// Fields of the elements.
    Pattern(SortPattern),
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
        b"$cond" => cond(value, scope)?,
        b"$ifNull" => {
            let args = arguments(value, scope)?;
            if args.len() < 2 {
                return Err(QueryError::location(
                    1_257_300,
                    format!("$ifNull needs at least two arguments, had: {}", args.len()),
                ));
            }
            Special::IfNull(args)
        }
        b"$switch" => switch(value, scope)?,
        b"$let" => let_in(value, scope)?,
        b"$map" => map(value, scope)?,
        b"$filter" => filter(value, scope)?,
        b"$reduce" => reduce(value, scope)?,
        b"$sortArray" => sort_array(value, scope)?,
        b"$zip" => zip(value, scope)?,
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
        b"$function" | b"$accumulator" => {
            return Err(QueryError::location(
                31_264,
                format!("{} requires the JavaScript engine to be enabled", lossy(name)),
            ));
        }
        b"$meta" if matches!(value, Value::String(b"textScore")) => {
            return Err(QueryError::location(
                40_218,
                "query requires text score metadata, but it is not available",
            ));
        }
        b"$meta" => {
            return Err(QueryError::location(
                17_308,
                format!("Unsupported $meta field: {}", value.as_str().unwrap_or("")),
            ));
        }
        _ => {
            return super::regex::parse(name, value, scope)
                .map(|special| special.map(|special| Expr::Special(Box::new(special))));
        }
    };
    Ok(Some(Expr::Special(Box::new(special))))
}

fn cond(value: Value<'_>, scope: &mut Scope) -> Result<Special, QueryError> {
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

fn switch(value: Value<'_>, scope: &mut Scope) -> Result<Special, QueryError> {
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

fn let_in(value: Value<'_>, scope: &mut Scope) -> Result<Special, QueryError> {
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
    let Value::Document(vars) = vars else {
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

/// Fields of an operator's document, with mongod's words for strangers.
fn fields<'v, const N: usize>(
    name: &str,
    value: Value<'v>,
    known: [&str; N],
    not_object: (i32, String),
    unknown: i32,
) -> Result<[Option<Value<'v>>; N], QueryError> {
    let Value::Document(doc) = value else {
        return Err(QueryError::location(not_object.0, not_object.1));
    };
    let mut found = [None; N];
    for field in Elements::of_bytes(doc) {
        let at = known.iter().position(|k| k.as_bytes() == field.key);
        match at.and_then(|at| found.get_mut(at)) {
            Some(place) => *place = Some(field.value()),
            None => {
                return Err(QueryError::location(
                    unknown,
                    format!("Unrecognized parameter to {name}: {}", lossy(field.key)),
                ));
            }
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
    let name = match name {
        Some(Value::String(name)) => name,
        _ => b"this",
    };
    parse::check_variable(name)?;
    let mark = scope.enter();
    let slot = scope.declare(name);
    let body = operand(body, scope);
    scope.leave(mark);
    Ok((slot, body?))
}

fn map(value: Value<'_>, scope: &mut Scope) -> Result<Special, QueryError> {
    let not_object = (16_878, "$map only supports an object as its argument".into());
    let [input, name, body] = fields("$map", value, ["input", "as", "in"], not_object, 16_879)?;
    let input = required(input, 16_880, "Missing 'input' parameter to $map")?;
    let body = required(body, 16_882, "Missing 'in' parameter to $map")?;
    let input = operand(input, scope)?;
    let (slot, body) = with_variable(name, body, scope)?;
    Ok(Special::Map { input, slot, body })
}

fn filter(value: Value<'_>, scope: &mut Scope) -> Result<Special, QueryError> {
    let not_object = (28_646, "$filter only supports an object as its argument".into());
    let known = ["input", "as", "cond", "limit"];
    let [input, name, cond, limit] = fields("$filter", value, known, not_object, 28_647)?;
    let input = required(input, 28_648, "Missing 'input' parameter to $filter")?;
    let cond = required(cond, 28_650, "Missing 'cond' parameter to $filter")?;
    let input = operand(input, scope)?;
    let limit = limit.map(|limit| operand(limit, scope)).transpose()?;
    let (slot, cond) = with_variable(name, cond, scope)?;
    Ok(Special::Filter { input, slot, cond, limit })
}

fn reduce(value: Value<'_>, scope: &mut Scope) -> Result<Special, QueryError> {
    let not_object = (
        40_075,
        format!("$reduce requires an object as an argument, found: {}", value.type_name()),
    );
    let Value::Document(doc) = value else {
        return Err(QueryError::location(not_object.0, not_object.1));
    };
    if let Some(stranger) = Elements::of_bytes(doc)
        .find_map(|f| (!matches!(f.key, b"input" | b"initialValue" | b"in")).then_some(f.key))
    {
        return Err(QueryError::location(
            40_076,
            format!("$reduce found an unknown argument: {}", lossy(stranger)),
        ));
    }
    let known = ["input", "initialValue", "in"];
    let [input, initial, body] = fields("$reduce", value, known, not_object, 40_076)?;
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

fn sort_array(value: Value<'_>, scope: &mut Scope) -> Result<Special, QueryError> {
    let not_object = (
        2_942_500,
        format!("$sortArray requires an object as an argument, found: {}", value.type_name()),
    );
    let [input, by] = fields("$sortArray", value, ["input", "sortBy"], not_object, 2_942_501)?;
    let input = required(input, 2_942_502, "$sortArray requires 'input' to be specified")?;
    let by = required(by, 2_942_503, "$sortArray requires 'sortBy' to be specified")?;
    let by = match by {
        Value::Document(doc) => {
            let doc = bson::RawDocument::from_bytes(doc)
                .map_err(|_| QueryError::bad_value("malformed sortBy"))?;
            SortBy::Pattern(SortPattern::parse(doc, None)?)
        }
        other => match crate::matcher::operands::integer("sortBy", other) {
            Ok(1) => SortBy::Value { ascending: true },
            Ok(-1) => SortBy::Value { ascending: false },
            _ => {
                return Err(QueryError::location(
                    2_942_506,
                    "The $sort element value must be either 1 or -1",
                ));
            }
        },
    };
    Ok(Special::SortArray(operand(input, scope)?, by))
}

fn zip(value: Value<'_>, scope: &mut Scope) -> Result<Special, QueryError> {
    let Value::Document(doc) = value else {
        return Err(QueryError::location(
            34_460,
            format!("$zip only supports an object as an argument, found {}", value.type_name()),
        ));
    };
    let (mut inputs, mut longest, mut defaults) = (Vec::new(), false, None);
    for field in Elements::of_bytes(doc) {
        match (field.key, field.value()) {
            (b"inputs", list @ Value::Array(_)) => {
                for input in list.elements() {
                    inputs.push(operand(input.value(), scope)?);
                }
            }
            (b"inputs", other) => {
                return Err(QueryError::location(
                    34_461,
                    format!("inputs must be an array of expressions, found {}", other.type_name()),
                ));
            }
            (b"useLongestLength", Value::Bool(b)) => longest = b,
            (b"useLongestLength", other) => {
                return Err(QueryError::location(
                    34_463,
                    format!("useLongestLength must be a bool, found {}", other.type_name()),
                ));
            }
            (b"defaults", list @ Value::Array(_)) => defaults = Some(operand(list, scope)?),
            (b"defaults", other) => {
                return Err(QueryError::location(
                    34_462,
                    format!(
                        "defaults must be an array of expressions, found {}",
                        other.type_name()
                    ),
                ));
            }
            (other, _) => {
                return Err(QueryError::location(
                    34_464,
                    format!("$zip found an unknown argument: {}", lossy(other)),
                ));
            }
        }
    }
    if inputs.is_empty() {
        return Err(QueryError::location(34_465, "$zip requires at least one input array"));
    }
    if defaults.is_some() && !longest {
        return Err(QueryError::location(
            34_466,
            "cannot specify defaults unless useLongestLength is true",
        ));
    }
    Ok(Special::Zip { inputs, longest, defaults })
}

impl Special {
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
            Self::Switch(branches, default) => eval_switch(branches, default.as_ref(), env),
            Self::Let(vars, body) => {
                for (slot, expr) in vars {
                    let value = expr.eval(env)?;
                    env.set(*slot, value);
                }
                body.eval(env)
            }
            Self::Map { input, slot, body } => eval_map(input, *slot, body, env),
            Self::Filter { input, slot, cond, limit } => {
                eval_filter(input, *slot, cond, limit.as_ref(), env)
            }
            Self::Reduce { input, initial, value, this, body } => {
                let list = input.eval(env)?;
                if list.is_nullish() {
                    return Ok(Value::Null);
                }
                let Value::Array(_) = list else {
                    return Err(QueryError::location(
                        40_080,
                        format!(
                            "$reduce requires that 'input' be an array, found: {}",
                            Shown(list)
                        ),
                    ));
                };
                let mut so_far = initial.eval(env)?;
                for element in list.elements() {
                    env.set(*this, element.value());
                    env.set(*value, so_far);
                    so_far = body.eval(env)?;
                }
                Ok(so_far)
            }
            Self::SortArray(input, by) => {
                let list = input.eval(env)?;
                sort_values(env, list, by)
            }
            Self::Zip { inputs, longest, defaults } => {
                eval_zip(inputs, *longest, defaults.as_ref(), env)
            }
            Self::Rand => Ok(Value::Double(env.cx.random())),
            Self::Regex(kind, input, regex) => {
                let input = input.eval(env)?;
                super::regex::run(env, *kind, input, regex)
            }
        }
    }
}

fn eval_switch<'a>(
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

fn eval_map<'a>(input: &'a Expr, slot: usize, body: &'a Expr, env: &mut Env<'a>) -> Evaluated<'a> {
    let list = input.eval(env)?;
    if list.is_nullish() {
        return Ok(Value::Null);
    }
    let Value::Array(_) = list else {
        return Err(QueryError::location(
            16_883,
            format!("input to $map must be an array not {}", list.type_name()),
        ));
    };
    let mut mapped = Vec::new();
    for element in list.elements() {
        env.set(slot, element.value());
        mapped.push(body.eval(env)?);
    }
    Ok(build::array(env, mapped))
}

fn eval_filter<'a>(
    input: &'a Expr,
    slot: usize,
    cond: &'a Expr,
    limit: Option<&'a Expr>,
    env: &mut Env<'a>,
) -> Evaluated<'a> {
    let list = input.eval(env)?;
    if list.is_nullish() {
        return Ok(Value::Null);
    }
    let Value::Array(_) = list else {
        return Err(QueryError::location(
            28_651,
            format!("input to $filter must be an array not {}", list.type_name()),
        ));
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
                            Shown(value)
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
    let mut kept = Vec::new();
    for element in list.elements() {
        if kept.len() >= limit {
            break;
        }
        env.set(slot, element.value());
        if logic::truth(cond.eval(env)?) {
            kept.push(element.value());
        }
    }
    Ok(build::array(env, kept))
}

/// `$sortArray` and the accumulators that sort.
pub(crate) fn sort_values<'a>(env: &Env<'a>, list: Value<'a>, by: &SortBy) -> Evaluated<'a> {
    if list.is_nullish() {
        return Ok(Value::Null);
    }
    let Value::Array(_) = list else {
        return Err(QueryError::location(
            2_942_504,
            format!(
                "The input argument to $sortArray must be an array, but was of type: {}",
                list.type_name()
            ),
        ));
    };
    let mut values: Vec<_> = list.elements().map(|e| e.value()).collect();
    match by {
        SortBy::Value { ascending } => values.sort_by(|a, b| {
            let order = logic::compare(env, *a, *b);
            if *ascending { order } else { order.reverse() }
        }),
        SortBy::Pattern(pattern) => {
            let empty: &[u8] = &[5, 0, 0, 0, 0];
            let key = |value: &Value<'a>| match value {
                Value::Document(doc) => pattern.key(doc),
                _ => pattern.key(empty),
            };
            let mut keyed = Vec::with_capacity(values.len());
            for value in &values {
                keyed.push((key(value)?, *value));
            }
            keyed.sort_by(|a, b| match pattern.compare(&a.0, &b.0) {
                // What is no document has no fields and stands by its own order.
                Ordering::Equal => Ordering::Equal,
                order => order,
            });
            values = keyed.into_iter().map(|(_, value)| value).collect();
        }
    }
    Ok(build::array(env, values))
}

fn eval_zip<'a>(
    inputs: &'a [Expr],
    longest: bool,
    defaults: Option<&'a Expr>,
    env: &mut Env<'a>,
) -> Evaluated<'a> {
    let mut lists = Vec::new();
    for input in inputs {
        let list = input.eval(env)?;
        if list.is_nullish() {
            return Ok(Value::Null);
        }
        let Value::Array(_) = list else {
            return Err(QueryError::location(
                34_468,
                format!("$zip found a non-array expression in input: {}", Shown(list)),
            ));
        };
        lists.push(list.elements().map(|e| e.value()).collect::<Vec<_>>());
    }
    let defaults: Vec<_> = match defaults {
        None => Vec::new(),
        Some(expr) => expr.eval(env)?.elements().map(|e| e.value()).collect(),
    };
    if !defaults.is_empty() && defaults.len() != lists.len() {
        return Err(QueryError::location(34_467, "defaults and inputs must have the same length"));
    }
    let lengths = lists.iter().map(Vec::len);
    let rows = if longest { lengths.max() } else { lengths.min() }.unwrap_or(0);
    let zipped: Vec<_> = (0..rows)
        .map(|row| {
            let items = lists.iter().enumerate().map(|(at, list)| {
                list.get(row).or_else(|| defaults.get(at)).copied().unwrap_or(Value::Null)
            });
            build::array(env, items.collect::<Vec<_>>())
        })
        .collect();
    Ok(build::array(env, zipped))
}
