//! The columns of the operator table.
//!
//! A row contains everything that other code needs to know about an operator: how its arguments are written, in which
//! order they are evaluated, what is folded, since which release MongoDB has it, and whether mongod's second
//! execution engine (SBE) supports it.

use super::{Expr, Fun, NamedFun, Scope, arity, date_math, special::Special, table};
use crate::{
    Release,
    error::QueryError,
    value::{Elements, Shown, Value},
};

/// An operator of the expression language.
#[derive(Debug)]
pub(crate) struct Operator {
    /// The name, including its dollar sign.
    pub(crate) name: &'static str,
    /// The first release that has it.
    pub(super) since: Release,
    pub(super) form: Form,
    pub(super) order: Order,
    pub(super) folding: Folding,
    /// Whether mongod's second execution engine (SBE) supports it. There some errors have different codes and texts.
    pub(crate) pushed: bool,
    /// Whether it may read the whole document, beyond the paths in its arguments.
    pub(super) reads_document: bool,
    pub(super) check: Check,
    /// Whether it says if a value is in an array: filters make a predicate of it.
    pub(super) is_membership: bool,
}

/// Refuses constant arguments that are invalid for every document. It gets the operator's name and, by position, the
/// arguments that are constants.
pub(super) type Check = for<'v> fn(&str, &[Option<Value<'v>>]) -> Result<(), QueryError>;

/// How the arguments are written, and how they are parsed.
#[derive(Debug)]
pub(super) enum Form {
    /// `{$add: [a, b]}`; a single argument needs no array.
    List { min: usize, max: usize, fun: Fun, miscounted: Miscounted },
    /// `{$year: date}` or `{$year: {date, timezone}}`.
    DatePart(NamedFun),
    /// `{$trim: {input, chars}}`.
    Named(&'static Arguments, NamedFun),
    /// An operator that does not evaluate each argument exactly once.
    Special(fn(Value<'_>, &mut Scope) -> Result<Special, QueryError>),
    /// An operator with its own parser.
    Own(fn(&'static Operator, Value<'_>, &mut Scope) -> Result<Expr, QueryError>),
}

/// The error for a wrong number of arguments: the operator's name, the given number, the minimum and the maximum.
pub(super) type Miscounted = fn(&str, usize, usize, usize) -> QueryError;

/// The named arguments of an operator. In texts `{op}` stands for the operator's name.
#[derive(Debug)]
pub(super) struct Arguments {
    pub(super) fields: &'static [Argument],
    /// Code and text if the argument is not an object; `{type}` is its type, `{shown}` its value.
    pub(super) not_object: (i32, &'static str),
    /// Code and text for an unknown field; `{field}` is its name.
    pub(super) unknown: (i32, &'static str),
    /// Checks the fields before any of them is parsed.
    pub(super) before: fn(&str, Elements<'_>) -> Result<(), QueryError>,
    /// Whether a missing argument is reported before later ones are parsed; otherwise all given arguments are parsed
    /// first.
    pub(super) missed_in_order: bool,
}

/// One named argument.
#[derive(Debug)]
pub(super) struct Argument {
    pub(super) name: &'static str,
    /// The first release that has it.
    pub(super) since: Release,
    /// Code and text if it is missing and required.
    pub(super) required: Option<(i32, &'static str)>,
}

/// The order in which arguments are evaluated. It matters if one of them fails: the ones evaluated before may have
/// decided the result.
#[derive(Debug, Clone, Copy)]
pub(super) enum Order {
    /// All of them, from left to right, before the operator checks any.
    AllFirst,
    /// The second before the first.
    RightFirst,
    /// The operator checks each one before the next is evaluated.
    OneByOne(Rest),
}

/// What replaces the arguments after a failed one, so that the operator can check the ones before it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rest {
    /// Nothing; null for each named argument.
    Nothing,
    /// This many arguments in all, the rest filled with this value.
    Filled(usize, Value<'static>),
    /// One more argument with this value.
    OneMore(Value<'static>),
    /// Nothing, but the first two are evaluated together.
    FromTwo,
    /// `$indexOfArray`: the bounds are evaluated before the value to search for.
    BoundsFirst,
    /// `$setEquals`: two different sets decide the result.
    UntilDifferent,
}

/// What is computed before the first document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Folding {
    /// The call, if all its arguments are constants; otherwise as many constants as can be joined.
    Whole(Join),
    /// The arguments, but not the call.
    Arguments,
    Nothing,
}

/// Which constants among the arguments may be computed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Join {
    None,
    /// Those at the front: the sum of doubles depends on the order.
    Front,
    /// Adjacent ones.
    Neighbours,
    /// All of them, which are then placed last. Nested calls of the same operator are flattened first.
    All,
    /// All of them, which are then placed last.
    Last,
    /// None, but the others are compared with the first of them.
    First,
}

impl Operator {
    /// The operator with this name, whatever its release.
    pub(crate) fn named(name: &[u8]) -> Option<&'static Self> {
        let rows = table::OPERATORS;
        let at = rows.binary_search_by(|row| row.name.as_bytes().cmp(name)).ok()?;
        rows.get(at)
    }

    const fn new(name: &'static str, form: Form) -> Self {
        Self {
            name,
            since: Release::OLDEST,
            form,
            order: Order::AllFirst,
            folding: Folding::Whole(Join::None),
            pushed: true,
            reads_document: false,
            check: |_, _| Ok(()),
            is_membership: false,
        }
    }

    pub(super) const fn since(mut self, release: Release) -> Self {
        self.since = release;
        self
    }

    pub(super) const fn right_first(mut self) -> Self {
        self.order = Order::RightFirst;
        self
    }

    pub(super) const fn one_by_one(mut self, rest: Rest) -> Self {
        self.order = Order::OneByOne(rest);
        self
    }

    pub(super) const fn joining(mut self, join: Join) -> Self {
        self.folding = Folding::Whole(join);
        self
    }

    pub(super) const fn folding(mut self, folding: Folding) -> Self {
        self.folding = folding;
        self
    }

    pub(super) const fn checked(mut self, check: Check) -> Self {
        self.check = check;
        self
    }

    pub(super) const fn membership(mut self) -> Self {
        self.is_membership = true;
        self
    }

    pub(super) const fn not_pushed(mut self) -> Self {
        self.pushed = false;
        self
    }

    pub(super) const fn reading_document(mut self) -> Self {
        self.reads_document = true;
        self
    }
}

/// An operator with a list of arguments.
pub(super) const fn list(name: &'static str, min: usize, max: usize, fun: Fun) -> Operator {
    counted(name, min, max, fun, arity::miscounted)
}

/// Like [`list`], with its own error for a wrong number of arguments.
pub(super) const fn counted(
    name: &'static str,
    min: usize,
    max: usize,
    fun: Fun,
    miscounted: Miscounted,
) -> Operator {
    Operator::new(name, Form::List { min, max, fun, miscounted })
}

/// A conversion, such as `$toInt`.
pub(super) const fn conversion(name: &'static str, fun: Fun) -> Operator {
    counted(name, 1, 1, fun, arity::miscounted_conversion).not_pushed()
}

/// A part of a date.
pub(super) const fn date_part(name: &'static str, fun: NamedFun) -> Operator {
    Operator::new(name, Form::DatePart(fun)).checked(date_math::check_zone::<1>)
}

/// An operator with named arguments.
pub(super) const fn named(
    name: &'static str,
    arguments: &'static Arguments,
    fun: NamedFun,
) -> Operator {
    Operator::new(name, Form::Named(arguments, fun))
}

pub(super) const fn special(
    name: &'static str,
    parse: fn(Value<'_>, &mut Scope) -> Result<Special, QueryError>,
) -> Operator {
    Operator::new(name, Form::Special(parse))
}

pub(super) const fn own(
    name: &'static str,
    parse: fn(&'static Operator, Value<'_>, &mut Scope) -> Result<Expr, QueryError>,
) -> Operator {
    Operator::new(name, Form::Own(parse))
}

/// A required argument, with the code and text if it is missing.
pub(super) const fn required(name: &'static str, code: i32, text: &'static str) -> Argument {
    Argument { name, since: Release::OLDEST, required: Some((code, text)) }
}

/// An optional argument.
pub(super) const fn optional(name: &'static str) -> Argument {
    Argument { name, since: Release::OLDEST, required: None }
}

impl Argument {
    pub(super) const fn since(mut self, release: Release) -> Self {
        self.since = release;
        self
    }
}

impl Arguments {
    pub(super) const fn new(
        fields: &'static [Argument],
        not_object: (i32, &'static str),
        unknown: (i32, &'static str),
    ) -> Self {
        Self { fields, not_object, unknown, before: |_, _| Ok(()), missed_in_order: false }
    }

    pub(super) const fn before(
        mut self,
        check: fn(&str, Elements<'_>) -> Result<(), QueryError>,
    ) -> Self {
        self.before = check;
        self
    }

    pub(super) const fn missed_in_order(mut self) -> Self {
        self.missed_in_order = true;
        self
    }

    /// The fields of a document, each with its position among the arguments.
    pub(super) fn read<'v>(
        &self,
        name: &str,
        value: Value<'v>,
        release: Release,
    ) -> Result<Vec<(usize, Value<'v>)>, QueryError> {
        let Value::Document(doc) = value else {
            let mut error = refused(name, self.not_object);
            let text = error.message.replace("{type}", value.type_name());
            error.message = text.replace("{shown}", &Shown(value).to_string());
            return Err(error);
        };
        let mut places = Vec::new();
        for given in Elements::of_bytes(doc) {
            let known =
                |field: &Argument| field.name.as_bytes() == given.key && release >= field.since;
            let Some(place) = self.fields.iter().position(known) else {
                let mut error = refused(name, self.unknown);
                error.message =
                    error.message.replace("{field}", &String::from_utf8_lossy(given.key));
                return Err(error);
            };
            places.push((place, given.value()));
        }
        Ok(places)
    }

    /// Fails if a required argument is missing.
    pub(super) fn check_given(&self, name: &str, args: &[Option<Expr>]) -> Result<(), QueryError> {
        let mut absent = self.fields.iter().zip(args).filter(|(_, arg)| arg.is_none());
        let missed = absent.find_map(|(field, _)| field.required);
        missed.map_or(Ok(()), |missed| Err(refused(name, missed)))
    }
}

fn refused(name: &str, (code, text): (i32, &str)) -> QueryError {
    QueryError::location(code, text.replace("{op}", name))
}
