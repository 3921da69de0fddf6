//! Aggregation expressions: parsed once, evaluated over raw values.
//!
//! ```text
//!   {$add: ["$a", {$multiply: ["$b", 2]}]}  --parse-->  Expr tree  --eval(Env)-->  Value
//! ```
//! X1 Evaluation builds no tree of values: new results are bytes in the evaluation's arena, and every [`Value`] is a
//!    scalar or a slice of the document, the query or the arena.
//! X2 Each variable has a slot, determined at parse time; evaluation never looks up names.

mod arithmetic;
mod arity;
mod arrange;
mod array;
mod bit_operators;
mod build;
mod call;
mod conditional;
mod convert;
mod convert_binary;
mod date;
mod date_math;
mod date_text;
mod decimal;
mod fold;
mod functions;
mod levels;
mod logic;
mod object;
mod operator;
mod parse;
mod percentile;
mod quad;
mod regex;
mod rounds;
mod scoped;
mod set;
mod special;
mod stats;
mod string;
mod table;
mod vector;

pub(crate) use arithmetic::{
    add, as_decimal, as_f64, difference, divide, is_multiple, is_zero, multiply, quotient, subtract,
};
pub(crate) use array::cut;
pub(crate) use build::{DocBuilder, array_bytes};
pub use bumpalo::Bump;
pub use call::{Call, NamedCall};
pub(crate) use date::iso;
pub use date_math::Unit;
pub(crate) use date_math::{moved_in_utc, unit_named};
pub(crate) use decimal::{
    add as decimal_add, div as decimal_div, from_f64_15 as decimal_from_f64, mul as decimal_mul,
    pow as decimal_pow, sub as decimal_sub, to_f64 as decimal_to_f64,
};
pub(crate) use levels::check_levels;
pub(crate) use object::merge;
pub(crate) use operator::Operator;
pub use parse::Scope;
pub(crate) use parse::{CURRENT, NO_SCORES, no_scores};
pub use percentile::Percentile;
pub(crate) use percentile::number as percentile_number;
pub use special::Special;
pub(crate) use stats::{Spread, Sum, average, mean};

use crate::{
    collation::Collator,
    context::Context,
    error::QueryError,
    exec::Seen,
    value::{Elements, OwnedValue, Value},
};

/// The result of an evaluation.
pub type Evaluated<'a> = Result<Value<'a>, QueryError>;

/// An operator's function over evaluated arguments.
pub(crate) type Fun = for<'a> fn(&mut Env<'a>, &[Value<'a>]) -> Evaluated<'a>;

/// Like [`Fun`], for an operator with named arguments, some of which may be omitted.
pub(crate) type NamedFun = for<'a> fn(&mut Env<'a>, &[Option<Value<'a>>]) -> Evaluated<'a>;

/// A parsed expression.
#[derive(Debug, Clone)]
pub enum Expr {
    /// A constant.
    Literal(OwnedValue),
    /// A path from the document or a variable.
    Path(FieldPath),
    /// `{name: expression}`.
    Document(Vec<(Box<[u8]>, Expr)>),
    /// `[expression]`.
    Array(Vec<Expr>),
    /// An operator that evaluates all its arguments first.
    Call(Call),
    /// An operator with named arguments.
    Named(NamedCall),
    /// An operator with a way of its own.
    Special(Box<Special>),
}

/// A path: its start and its names.
#[derive(Debug, Clone)]
pub struct FieldPath {
    base: Base,
    names: Vec<Box<[u8]>>,
}

impl FieldPath {
    /// The dotted path, if it starts at the root document.
    pub(crate) fn path_from_root(&self) -> Option<Vec<u8>> {
        matches!(self.base, Base::Root).then(|| self.names.join(&b'.'))
    }
}

/// The start of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    Root,
    Current,
    Slot(usize),
    /// The document's metadata.
    Notes,
    Now,
    ClusterTime,
    Remove,
}

/// The environment of one evaluation.
#[derive(Debug)]
pub struct Env<'a> {
    /// Memory for results.
    pub arena: &'a Bump,
    /// Time, randomness and the rest of the context.
    pub cx: &'a Context,
    /// The collation.
    pub collator: Option<&'a Collator>,
    /// The metadata for `$meta`.
    pub(crate) notes: &'a [u8],
    root: Value<'a>,
    slots: Vec<Value<'a>>,
    /// Number of loop iterations so far.
    rounds: u64,
}

impl<'a> Env<'a> {
    /// An evaluation over a document.
    pub fn new(arena: &'a Bump, cx: &'a Context, doc: &'a [u8]) -> Self {
        let slots = cx.variables.iter().map(OwnedValue::get).collect();
        let collator = cx.collator.as_deref();
        Self { arena, cx, collator, notes: &[], root: Value::Document(doc), slots, rounds: 0 }
    }

    /// An evaluation over a document with its notes.
    pub fn over(arena: &'a Bump, cx: &'a Context, row: Seen<'a>) -> Self {
        Self { notes: row.notes, ..Self::new(arena, cx, row.doc) }
    }

    /// The document.
    pub fn root(&self) -> Value<'a> {
        self.root
    }

    /// Sets a variable.
    pub fn set(&mut self, slot: usize, value: Value<'a>) {
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, Value::Missing);
        }
        if let Some(place) = self.slots.get_mut(slot) {
            *place = value;
        }
    }

    /// Copies bytes into the arena.
    pub(crate) fn keep(&self, bytes: &[u8]) -> &'a [u8] {
        self.arena.alloc_slice_copy(bytes)
    }

    /// Copies a value into the arena.
    fn adopt(&self, value: Value<'_>) -> Value<'a> {
        let mut bytes = Vec::new();
        value.append_to(&mut bytes);
        Value::stored(value.type_byte(), self.keep(&bytes))
    }

    /// The same evaluation with another, shorter-lived arena.
    fn within<'b>(&self, arena: &'b Bump) -> Env<'b>
    where
        'a: 'b,
    {
        let Self { cx, collator, notes, root, rounds, .. } = *self;
        Env { arena, cx, collator, notes, root, slots: self.slots.clone(), rounds }
    }

    pub(crate) fn text(&self, text: &str) -> Value<'a> {
        Value::String(self.keep(text.as_bytes()))
    }
}

impl Expr {
    /// Parses an expression with the variables of `scope` and folds its constants. If a constant fails, the error is
    /// recorded in the scope for whoever parses the whole to raise.
    pub fn parse(value: Value<'_>, scope: &mut Scope) -> Result<Self, QueryError> {
        let parsed = parse::operand(value, scope)?;
        if matches!(parsed, Self::Literal(_)) {
            return Ok(parsed);
        }
        match fold::Folder::new(scope).fold(parsed.clone()) {
            Ok(folded) => Ok(folded),
            Err(fault) => {
                scope.note(fault);
                Ok(parsed)
            }
        }
    }

    /// Evaluates the expression.
    pub fn eval<'a>(&'a self, env: &mut Env<'a>) -> Evaluated<'a> {
        match self {
            Self::Literal(value) => Ok(value.get()),
            Self::Path(path) => Ok(path.eval(env)),
            Self::Document(fields) => {
                let mut doc = DocBuilder::new();
                for (name, expr) in fields {
                    let value = expr.eval(env)?;
                    doc.push(name, value);
                }
                Ok(Value::Document(env.keep(&doc.finish())))
            }
            Self::Array(items) => {
                let mut values = Vec::with_capacity(items.len());
                for item in items {
                    values.push(item.eval(env)?);
                }
                Ok(build::array(env, values))
            }
            Self::Call(call) => call.eval(env),
            Self::Named(call) => call.eval(env),
            Self::Special(special) => special.eval(env),
        }
    }

    /// Adds the paths that it reads; `None` if these cannot be determined statically.
    pub(crate) fn add_paths(&self, paths: &mut Vec<Vec<u8>>) -> Option<()> {
        match self {
            Self::Literal(_) => Some(()),
            Self::Path(path) => {
                let path = path.path_from_root().filter(|path| !path.is_empty())?;
                paths.push(path);
                Some(())
            }
            Self::Document(fields) => fields.iter().try_for_each(|(_, expr)| expr.add_paths(paths)),
            Self::Array(items) => items.iter().try_for_each(|expr| expr.add_paths(paths)),
            Self::Call(Call { row, .. }) | Self::Named(NamedCall { row, .. })
                if row.reads_document =>
            {
                None
            }
            Self::Call(call) => call.args.iter().try_for_each(|expr| expr.add_paths(paths)),
            Self::Named(call) => {
                call.args.iter().flatten().try_for_each(|expr| expr.add_paths(paths))
            }
            Self::Special(_) => None,
        }
    }

    /// Its value, if it does not depend on documents, time or randomness.
    pub(crate) fn constant(&self) -> Result<Option<OwnedValue>, QueryError> {
        if !self.is_constant() {
            return Ok(None);
        }
        let (arena, context) = (Bump::new(), Context::default());
        let mut env = Env::new(&arena, &context, &[5, 0, 0, 0, 0]);
        self.eval(&mut env).map(|value| Some(value.into()))
    }

    pub(crate) fn is_constant(&self) -> bool {
        match self {
            Self::Literal(_) => true,
            Self::Path(_) => false,
            Self::Document(fields) => fields.iter().all(|(_, expr)| expr.is_constant()),
            Self::Array(items) => items.iter().all(Self::is_constant),
            Self::Call(call) => call.args.iter().all(Self::is_constant),
            Self::Named(call) => call.args.iter().flatten().all(Self::is_constant),
            Self::Special(special) => special.is_constant(),
        }
    }

    /// The document field that the expression consists of, if it is just a field.
    pub(crate) fn as_field(&self) -> Option<&[u8]> {
        match self {
            Self::Path(FieldPath { base: Base::Root | Base::Current, names }) => match &**names {
                [name] => Some(name),
                _ => None,
            },
            _ => None,
        }
    }

    /// The path and the constants of an `{$in: ["$path", [constants]]}`.
    pub(crate) fn as_membership(&self) -> Option<(Vec<u8>, Value<'_>)> {
        let Self::Call(call) = self else { return None };
        let [Self::Path(path), Self::Literal(list)] = call.args.as_slice() else { return None };
        path.path_from_root().filter(|_| call.row.is_membership).map(|path| (path, list.get()))
    }

    /// The operator that it is, if it does not evaluate each argument once.
    pub(crate) fn as_special(&self) -> Option<&Special> {
        match self {
            Self::Special(special) => Some(special),
            _ => None,
        }
    }

    /// The constant that it is, if it is one.
    pub(crate) fn as_literal(&self) -> Option<Value<'_>> {
        match self {
            Self::Literal(value) => Some(value.get()),
            _ => None,
        }
    }
}

impl FieldPath {
    fn eval<'a>(&self, env: &Env<'a>) -> Value<'a> {
        if let (Base::Root | Base::Current, [name], Value::Document(doc)) =
            (self.base, self.names.as_slice(), &env.root)
        {
            return Elements::of_bytes(doc).find(name).map_or(Value::Missing, |e| e.value());
        }
        let start = match self.base {
            Base::Root | Base::Current => env.root,
            Base::Slot(slot) => env.slots.get(slot).copied().unwrap_or(Value::Missing),
            Base::Notes => Value::Document(env.notes),
            Base::Now => Value::Date(env.cx.now),
            Base::ClusterTime => {
                env.cx.cluster_time.map_or(Value::Missing, |ts| Value::Timestamp(ts.as_u64()))
            }
            Base::Remove => Value::Missing,
        };
        descend(env, start, &self.names)
    }
}

/// Follows names through documents; for an array, returns the array of its documents' values.
pub(crate) fn descend<'a>(env: &Env<'a>, value: Value<'a>, names: &[Box<[u8]>]) -> Value<'a> {
    let Some((name, rest)) = names.split_first() else { return value };
    match value {
        Value::Document(doc) => match Elements::of_bytes(doc).find(name) {
            None => Value::Missing,
            // Values are large, so the common case returns directly.
            Some(found) if rest.is_empty() => found.value(),
            Some(found) => descend(env, found.value(), rest),
        },
        Value::Array(_) => {
            let found: Vec<_> = value
                .elements()
                .filter(|e| e.type_byte == 0x03)
                .map(|e| descend(env, e.value(), names))
                .filter(|v| !matches!(v, Value::Missing))
                .collect();
            build::array(env, found)
        }
        _ => Value::Missing,
    }
}

#[cfg(test)]
mod tests;
