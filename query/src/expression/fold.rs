//! Constant folding: constants are computed once, after parsing, as in mongod.
//!
//! A constant that fails makes the query fail, whatever the documents are. The [`Scope`] keeps the first such error,
//! and whoever parses the whole (a pipeline, a filter with its projection) raises it with mongod's text for that
//! place.

use super::{
    Base, Bump, Call, Env, Expr, FieldPath, NamedCall, Scope, build, logic,
    operator::{Folding, Join},
    regex, set,
    special::Special,
};
use crate::{
    context::Context,
    error::QueryError,
    value::{OwnedValue, Value},
};

type Folded = Result<Expr, QueryError>;

/// What is known when an expression is folded.
pub(super) struct Folder {
    context: Context,
    /// Known values of variables, by slot.
    known: Vec<Option<OwnedValue>>,
    now: bool,
    in_filter: bool,
}

impl Folder {
    pub(super) fn new(scope: &Scope) -> Self {
        let mut context = Context::new(scope.known.now.unwrap_or(0), 0);
        context.collator.clone_from(&scope.known.collator);
        let known = scope.known.variables.iter().cloned().map(Some).collect();
        Self { context, known, now: scope.known.now.is_some(), in_filter: scope.in_filter }
    }

    /// The expression with its constant parts computed.
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
            Expr::Named(call) => self.named(call),
            Expr::Special(special) => self.special(*special),
        }
    }

    fn all(&mut self, exprs: Vec<Expr>) -> Result<Vec<Expr>, QueryError> {
        exprs.into_iter().map(|expr| self.fold(expr)).collect()
    }

    fn optional(&mut self, expr: Option<Expr>) -> Result<Option<Expr>, QueryError> {
        expr.map(|expr| self.fold(expr)).transpose()
    }

    /// Computes a constant expression.
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
            Base::Root | Base::Current | Base::Notes | Base::ClusterTime => None,
        };
        let Some(start) = start else { return Expr::Path(path) };
        let arena = Bump::new();
        let env = Env::new(&arena, &self.context, EMPTY);
        Expr::Literal(super::descend(&env, start, &path.names).into())
    }

    fn call(&mut self, mut call: Call) -> Folded {
        let Folding::Whole(join) = call.row.folding else {
            if call.row.folding == Folding::Arguments {
                call.args = self.all(call.args)?;
            }
            return Ok(Expr::Call(call));
        };
        call.args = self.all(call.args)?;
        if literals(&call.args) {
            return self.value(&Expr::Call(call));
        }
        let constants: Vec<_> = call.args.iter().map(Expr::as_literal).collect();
        (call.row.check)(call.row.name, &constants)?;
        match join {
            Join::None => {}
            Join::Front => self.front(&mut call)?,
            Join::Neighbours => self.neighbours(&mut call)?,
            Join::All => {
                call.args = flat(&mut call);
                self.together(&mut call)?;
            }
            Join::Last => self.together(&mut call)?,
            // mongod parses a filter again after optimising it, which discards this optimisation.
            Join::First if self.in_filter => {}
            Join::First => with_known_set(&mut call),
        }
        Ok(Expr::Call(call))
    }

    fn named(&mut self, mut call: NamedCall) -> Folded {
        if call.row.folding == Folding::Nothing {
            return Ok(Expr::Named(call));
        }
        let args = call.args.into_iter().map(|arg| self.optional(arg));
        call.args = args.collect::<Result<_, _>>()?;
        if call.row.folding == Folding::Arguments {
            return Ok(Expr::Named(call));
        }
        if call.args.iter().flatten().all(|arg| arg.as_literal().is_some()) {
            return self.value(&Expr::Named(call));
        }
        let given = call.args.iter().map(Option::as_ref);
        let constants: Vec<_> = given.map(|arg| arg.and_then(Expr::as_literal)).collect();
        (call.row.check)(call.row.name, &constants)?;
        Ok(Expr::Named(call))
    }

    /// Joins several constants to one, with the same operator.
    fn joined(&self, call: &Call, mut constants: Vec<Expr>) -> Result<Vec<Expr>, QueryError> {
        if constants.len() > 1 {
            constants = vec![self.value(&Expr::Call(Call { args: constants, ..call.clone() }))?];
        }
        Ok(constants)
    }

    fn front(&self, call: &mut Call) -> Result<(), QueryError> {
        // sum(sum(a, b), c) becomes sum(a, b, c).
        if let Some(Expr::Call(first)) = call.args.first()
            && first.row.name == call.row.name
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
        // A single argument would be taken for the list of values to compare.
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

    /// Folds `$and` and `$or`: a constant either decides the result or can be dropped.
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

/// The arguments, with nested calls of the same operator replaced by their arguments.
fn flat(call: &mut Call) -> Vec<Expr> {
    std::mem::take(&mut call.args)
        .into_iter()
        .flat_map(|arg| match arg {
            Expr::Call(inner) if inner.row.name == call.row.name => inner.args,
            arg => vec![arg],
        })
        .collect()
}

/// `$setEquals` with a constant compares the other sets with it.
fn with_known_set(call: &mut Call) {
    let Some(place) = call.args.iter().position(|arg| arg.as_literal().is_some()) else { return };
    let known = call.args.remove(place);
    let place = Value::Int32(i32::try_from(place).unwrap_or(0));
    call.args.splice(0..0, [known, Expr::Literal(place.into())]);
    call.fun = set::op_set_equals_known;
}

/// An array whose elements are all constants folds to a constant.
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
