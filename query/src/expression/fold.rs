//! Constants are worked out once, when all has been parsed, as mongod does.
//!
//! A constant that fails is a fault of the query, whatever the documents are: the [`Scope`] keeps the first one, and
//! whoever parses the whole (a pipeline, a filter with its projection) raises it, in mongod's words for that place.

use super::{
    Base, Bump, Call, Env, Expr, FieldPath, Scope, build, date_math, logic, regex, set,
    special::Special,
};
use crate::{
    context::Context,
    error::QueryError,
    value::{OwnedValue, Value},
};

/// Calls that mongod leaves for the documents, even if all their arguments are constants.
const LEFT_ALONE: &[&str] = &[
    "$firstN",
    "$getField",
    "$lastN",
    "$maxN",
    "$minN",
    "$replaceAll",
    "$replaceOne",
    "$setField",
    "$sigmoid",
    "$similarityCosine",
    "$similarityDotProduct",
    "$similarityEuclidean",
    "$unsetField",
];

/// Calls whose arguments mongod does not look into either.
const NOT_ENTERED: &[&str] = &[
    "$firstN",
    "$getField",
    "$lastN",
    "$maxN",
    "$minN",
    "$setField",
    "$similarityCosine",
    "$similarityDotProduct",
    "$similarityEuclidean",
    "$toHashedIndexKey",
    "$unsetField",
];

/// How far constants among other arguments may be taken together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Grouping {
    No,
    /// Those at the front: the sum of doubles depends on the order.
    Front,
    /// Neighbours.
    Neighbours,
    /// All of them, which then stand last.
    All,
    /// The same, but a call of the same name among the arguments is one of them.
    Last,
    /// The first of them, which the others are compared with.
    First,
}

fn grouping(name: &str) -> Grouping {
    match name {
        "$add" | "$multiply" => Grouping::Front,
        "$concat" | "$concatArrays" => Grouping::Neighbours,
        "$bitAnd" | "$bitOr" | "$bitXor" | "$setIntersection" | "$setUnion" => Grouping::All,
        "$max" | "$min" => Grouping::Last,
        "$setEquals" => Grouping::First,
        _ => Grouping::No,
    }
}

type Folded = Result<Expr, QueryError>;

/// What is known when an expression is folded.
pub(super) struct Folding {
    context: Context,
    /// Values of variables, by their slots.
    known: Vec<Option<OwnedValue>>,
    now: bool,
    in_filter: bool,
}

impl Folding {
    pub(super) fn new(scope: &Scope) -> Self {
        let mut context = Context::new(scope.known.now.unwrap_or(0), 0);
        context.collator.clone_from(&scope.known.collator);
        let known = scope.known.variables.iter().cloned().map(Some).collect();
        Self { context, known, now: scope.known.now.is_some(), in_filter: scope.in_filter }
    }

    /// The expression with its constant parts worked out.
    pub(super) fn fold(&mut self, expr: Expr) -> Folded {
        match expr {
            Expr::Literal(_) => Ok(expr),
            Expr::Path(path) => Ok(self.path(path)),
            Expr::Document(fields) => {
                let fields = fields
                    .into_iter()
                    .map(|(name, field)| Ok((name, self.fold(field)?)))
                    .collect::<Result<Vec<_>, QueryError>>()?;
                let constant = fields.iter().all(|(_, field)| field.as_literal().is_some());
                self.settled(Expr::Document(fields), constant)
            }
            Expr::Array(items) => {
                let items = self.all(items)?;
                let constant = literals(&items);
                self.settled(Expr::Array(items), constant)
            }
            Expr::Call(call) => self.call(call),
            Expr::Special(special) => self.special(*special),
        }
    }

    fn all(&mut self, exprs: Vec<Expr>) -> Result<Vec<Expr>, QueryError> {
        exprs.into_iter().map(|expr| self.fold(expr)).collect()
    }

    fn optional(&mut self, expr: Option<Expr>) -> Result<Option<Expr>, QueryError> {
        expr.map(|expr| self.fold(expr)).transpose()
    }

    /// The value of a constant expression.
    fn value(&self, expr: &Expr) -> Result<Expr, QueryError> {
        let arena = Bump::new();
        let mut env = Env::new(&arena, &self.context, EMPTY);
        expr.eval(&mut env).map(|value| Expr::Literal(value.into()))
    }

    fn settled(&self, expr: Expr, constant: bool) -> Folded {
        if constant { self.value(&expr) } else { Ok(expr) }
    }

    fn path(&self, path: FieldPath) -> Expr {
        let start = match path.base {
            Base::Slot(slot) => self.known.get(slot).and_then(Option::as_ref).map(OwnedValue::get),
            Base::Now => self.now.then_some(Value::Date(self.context.now)),
            Base::Remove => Some(Value::Missing),
            Base::Root | Base::Plain | Base::Current | Base::Notes | Base::ClusterTime => None,
        };
        let Some(start) = start else { return Expr::Path(path) };
        let arena = Bump::new();
        let env = Env::new(&arena, &self.context, EMPTY);
        Expr::Literal(super::descend(&env, start, &path.names).into())
    }

    fn call(&mut self, mut call: Call) -> Folded {
        if NOT_ENTERED.contains(&call.name) {
            return Ok(Expr::Call(call));
        }
        call.args = self.all(call.args)?;
        if literals(&call.args) {
            let left_alone = LEFT_ALONE.contains(&call.name);
            return self.settled(Expr::Call(call), !left_alone);
        }
        check_parameters(&call)?;
        match grouping(call.name) {
            Grouping::No => {}
            Grouping::Front => self.front(&mut call)?,
            Grouping::Neighbours => self.neighbours(&mut call)?,
            Grouping::All => {
                call.args = flat(&mut call);
                self.together(&mut call)?;
            }
            Grouping::Last => self.together(&mut call)?,
            // What a filter's optimiser knew is forgotten when it is read again.
            Grouping::First if self.in_filter => {}
            Grouping::First => with_known_set(&mut call),
        }
        Ok(Expr::Call(call))
    }

    /// One constant of several, under the same operator.
    fn joined(&self, call: &Call, mut constants: Vec<Expr>) -> Result<Vec<Expr>, QueryError> {
        if constants.len() > 1 {
            constants = vec![self.value(&Expr::Call(Call { args: constants, ..call.clone() }))?];
        }
        Ok(constants)
    }

    fn front(&self, call: &mut Call) -> Result<(), QueryError> {
        // sum(sum(a, b), c) is sum(a, b, c).
        if let Some(Expr::Call(first)) = call.args.first()
            && first.name == call.name
        {
            let inner = first.args.clone();
            call.args.splice(0..1, inner);
        }
        let many = call.args.iter().take_while(|arg| arg.as_literal().is_some()).count();
        let rest = call.args.split_off(many);
        let constants = std::mem::take(&mut call.args);
        call.args = self.joined(call, constants)?;
        call.args.extend(rest);
        Ok(())
    }

    fn neighbours(&self, call: &mut Call) -> Result<(), QueryError> {
        let (mut args, mut run) = (Vec::new(), Vec::new());
        for arg in flat(call) {
            if arg.as_literal().is_some() {
                run.push(arg);
                continue;
            }
            args.extend(self.joined(call, std::mem::take(&mut run))?);
            args.push(arg);
        }
        args.extend(self.joined(call, run)?);
        call.args = args;
        Ok(())
    }

    fn together(&self, call: &mut Call) -> Result<(), QueryError> {
        let (constants, mut args): (Vec<_>, Vec<_>) =
            call.args.drain(..).partition(|arg| arg.as_literal().is_some());
        // One alone would be taken for the list of what is compared.
        match constants.len() {
            0 | 1 => args.extend(constants),
            _ => args.extend(self.joined(call, constants)?),
        }
        call.args = args;
        Ok(())
    }

    fn special(&mut self, special: Special) -> Folded {
        let folded = match special {
            Special::And(args) => return self.junction(args, false),
            Special::Or(args) => return self.junction(args, true),
            Special::Cond(test, then, otherwise) => {
                let (test, then) = (self.fold(test)?, self.fold(then)?);
                let otherwise = self.fold(otherwise)?;
                match test.as_literal().map(logic::truth) {
                    Some(true) => return Ok(then),
                    Some(false) => return Ok(otherwise),
                    None => Special::Cond(test, then, otherwise),
                }
            }
            Special::IfNull(args) => return self.if_null(args),
            Special::Switch(branches, default) => return self.switch(branches, default),
            Special::Let(vars, body) => return self.let_in(vars, body),
            Special::Map { input, slot, body } => {
                Special::Map { input: self.fold(input)?, slot, body: self.fold(body)? }
            }
            Special::Filter { input, slot, cond, limit } => Special::Filter {
                input: self.fold(input)?,
                slot,
                cond: self.fold(cond)?,
                limit: self.optional(limit)?,
            },
            Special::Reduce { input, initial, value, this, body } => Special::Reduce {
                input: self.fold(input)?,
                initial: self.fold(initial)?,
                value,
                this,
                body: self.fold(body)?,
            },
            Special::SortArray(input, by) => Special::SortArray(self.fold(input)?, by),
            Special::Zip { inputs, longest, defaults } => Special::Zip {
                inputs: self.all(inputs)?,
                longest,
                defaults: self.optional(defaults)?,
            },
            Special::RegexOf { kind, input, regex, options } => {
                let (input, regex) = (self.fold(input)?, self.fold(regex)?);
                return regex::folded(kind, input, regex, self.optional(options)?);
            }
            Special::Percentile(_) | Special::Rand | Special::Regex(..) => special,
        };
        Ok(Expr::Special(Box::new(folded)))
    }

    /// `$and` and `$or`: a constant either settles it or says nothing.
    fn junction(&mut self, args: Vec<Expr>, settles: bool) -> Folded {
        let args = self.all(args)?;
        let settled =
            args.iter().filter_map(Expr::as_literal).any(|value| logic::truth(value) == settles);
        if settled || literals(&args) {
            return Ok(Expr::Literal(Value::Bool(settled == settles).into()));
        }
        let open = args.into_iter().filter(|arg| arg.as_literal().is_none()).collect();
        let special = if settles { Special::Or(open) } else { Special::And(open) };
        Ok(Expr::Special(Box::new(special)))
    }

    fn if_null(&mut self, args: Vec<Expr>) -> Folded {
        let mut args = self.all(args)?;
        let last = args.len().saturating_sub(1);
        let mut at = 0;
        args.retain(|arg| {
            at += 1;
            at > last || !arg.as_literal().is_some_and(|value| value.is_nullish())
        });
        if let Some(sure) =
            args.iter().position(|arg| arg.as_literal().is_some_and(|value| !value.is_nullish()))
        {
            args.truncate(sure + 1);
        }
        if args.len() == 1
            && let Some(only) = args.pop()
        {
            return Ok(only);
        }
        Ok(Expr::Special(Box::new(Special::IfNull(args))))
    }

    fn switch(&mut self, branches: Vec<(Expr, Expr)>, default: Option<Expr>) -> Folded {
        let mut default = self.optional(default)?;
        let mut open = Vec::new();
        for (case, then) in branches {
            let case = self.fold(case)?;
            match case.as_literal().map(logic::truth) {
                Some(false) => {}
                Some(true) => {
                    default = Some(self.fold(then)?);
                    break;
                }
                None => open.push((case, self.fold(then)?)),
            }
        }
        match default {
            None if open.is_empty() => Err(QueryError::location(
                40_069,
                "Cannot execute a switch statement where all the cases evaluate to false without a \
                 default",
            )),
            Some(default) if open.is_empty() => Ok(default),
            default => Ok(Expr::Special(Box::new(Special::Switch(open, default)))),
        }
    }

    fn let_in(&mut self, vars: Vec<(usize, Expr)>, body: Expr) -> Folded {
        let mut open = Vec::new();
        for (slot, expr) in vars {
            let expr = self.fold(expr)?;
            if let Some(value) = expr.as_literal() {
                if self.known.len() <= slot {
                    self.known.resize(slot + 1, None);
                }
                if let Some(place) = self.known.get_mut(slot) {
                    *place = Some(value.into());
                }
            }
            open.push((slot, expr));
        }
        let body = self.fold(body)?;
        if body.as_literal().is_some() || open.is_empty() {
            return Ok(body);
        }
        Ok(Expr::Special(Box::new(Special::Let(open, body))))
    }
}

const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

fn literals(exprs: &[Expr]) -> bool {
    exprs.iter().all(|expr| expr.as_literal().is_some())
}

/// The arguments, with those of calls of the same operator in their places.
fn flat(call: &mut Call) -> Vec<Expr> {
    std::mem::take(&mut call.args)
        .into_iter()
        .flat_map(|arg| match arg {
            Expr::Call(inner) if inner.name == call.name => inner.args,
            arg => vec![arg],
        })
        .collect()
}

/// `$setEquals` with a constant compares the others with that.
fn with_known_set(call: &mut Call) {
    let Some(place) = call.args.iter().position(|arg| arg.as_literal().is_some()) else { return };
    let known = call.args.remove(place);
    let place = Value::Int32(i32::try_from(place).unwrap_or(0));
    call.args.splice(0..0, [known, Expr::Literal(place.into())]);
    call.fun = set::op_set_equals_known;
}

/// Constant parameters that are wrong for every document.
fn check_parameters(call: &Call) -> Result<(), QueryError> {
    let literal = |at: usize| call.args.get(at).and_then(Expr::as_literal);
    match call.name {
        "$setEquals" => {
            for (at, arg) in call.args.iter().enumerate() {
                if let Some(value) = arg.as_literal().filter(|v| !matches!(v, Value::Array(_))) {
                    return Err(super::set::not_an_array_to_equal(at, value));
                }
            }
            Ok(())
        }
        "$setIsSubset" => match literal(1) {
            Some(value) if !matches!(value, Value::Array(_)) => Err(super::set::no_superset(value)),
            _ => Ok(()),
        },
        "$indexOfArray" => match literal(0) {
            Some(value) if !matches!(value, Value::Array(_)) && !value.is_nullish() => {
                Err(QueryError::location(
                    50_809,
                    format!(
                        "First operand of $indexOfArray must be an array. First argument is of \
                         type: {}",
                        value.type_name()
                    ),
                ))
            }
            _ => Ok(()),
        },
        name => date_math::check_parameters(name, literal),
    }
}

/// An array of constants is one.
pub(super) fn array(items: Vec<Expr>) -> Expr {
    if literals(&items) {
        let bytes = build::array_bytes(items.iter().filter_map(Expr::as_literal));
        return Expr::Literal(OwnedValue::from(Value::Array(&bytes)));
    }
    Expr::Array(items)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    fn parsed(doc: &bson::RawDocument) -> (Expr, Scope) {
        let mut scope = Scope::default();
        (Expr::parse(Value::from(doc), &mut scope).unwrap(), scope)
    }

    #[test]
    fn constants_become_values() {
        for (doc, value) in [
            (rawdoc! { "$add": [1, { "$multiply": [2, 3] }] }, Value::Int32(7)),
            (rawdoc! { "$cond": [true, 1, "$a"] }, Value::Int32(1)),
            (rawdoc! { "$and": ["$a", false] }, Value::Bool(false)),
            (
                rawdoc! { "$let": { "vars": { "v": 2 }, "in": { "$add": ["$$v", 1] } } },
                Value::Int32(3),
            ),
            (rawdoc! { "$ifNull": [null, 4, "$a"] }, Value::Int32(4)),
        ] {
            let (expr, scope) = parsed(&doc);
            assert_eq!(
                expr.as_literal().map(|v| format!("{v:?}")),
                Some(format!("{value:?}")),
                "{doc:?}"
            );
            assert!(scope.settle().is_ok());
        }
    }

    #[test]
    fn constants_that_fail_are_faults_of_the_whole() {
        for (doc, fails) in [
            (rawdoc! { "$add": ["$a", { "$divide": [1, 0] }] }, true),
            (rawdoc! { "$add": ["x", 1, "$a"] }, true),
            (rawdoc! { "$add": ["$a", "x", 1] }, false),
            (rawdoc! { "$concat": ["$a", 1, 2] }, true),
            (rawdoc! { "$concat": [1, "$a", 2] }, false),
            (rawdoc! { "$setUnion": [1, "$a", 2] }, true),
            (
                rawdoc! { "$switch": { "branches": [{ "case": false, "then": { "$toInt": "x" } }], "default": 1 } },
                false,
            ),
            (rawdoc! { "$dateAdd": { "startDate": "$a", "unit": "foo", "amount": 1 } }, true),
            (rawdoc! { "$firstN": { "input": 1, "n": 1 } }, false),
        ] {
            assert_eq!(parsed(&doc).1.settle().is_err(), fails, "{doc:?}");
        }
    }
}
