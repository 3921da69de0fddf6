//! Parses expressions from BSON.

use std::sync::{Arc, OnceLock};

use super::{
    Base, Call, Expr, FieldPath, NamedCall, Operator, fold,
    operator::{Arguments, Form},
};
use crate::{
    Release,
    collation::Collator,
    error::QueryError,
    field_path,
    text::{ScoreWish, TextNode},
    value::{Elements, OwnedValue, Value},
};

type Parsed = Result<Expr, QueryError>;

/// The variable that paths without another begin at.
pub(crate) const CURRENT: &[u8] = b"CURRENT";

/// Deeper expressions are refused; BSON itself nests no deeper in a command.
const DEPTH_MAX: usize = 200;

/// The variables that an expression may use, with their slots.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    names: Vec<(Box<[u8]>, usize)>,
    slots: usize,
    depth: usize,
    reads_document: bool,
    /// Whether documents carry metadata for `$meta`.
    pub(super) has_notes: bool,
    pub(super) scores: Scores,
    unrecognized: Unrecognized,
    /// True in a filter, which mongod parses again after optimising it.
    pub(super) in_filter: bool,
    pub(super) known: Known,
    /// The release; later operators are unknown.
    pub(crate) release: Release,
    /// The error of the first constant that failed. Clones share it.
    fault: Arc<OnceLock<QueryError>>,
}

/// How an unknown operator is refused.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Unrecognized {
    #[default]
    InExpression,
    InProjection,
}

impl Unrecognized {
    fn of(self, name: &[u8]) -> QueryError {
        let name = lossy(name);
        match self {
            Self::InExpression => {
                QueryError::location(168, format!("Unrecognized expression '{name}'"))
            }
            Self::InProjection => {
                QueryError::location(31_325, format!("Unknown expression {name}"))
            }
        }
    }
}

/// What `$meta: "textScore"` returns.
#[derive(Debug, Clone, Default)]
pub(super) enum Scores {
    /// There is no text search, so it is refused.
    #[default]
    None,
    /// A missing value, in the filter of a find.
    Missing,
    /// The score in the document's metadata.
    Noted(ScoreWish),
}

/// What is known before the first document.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// The values of the first slots.
    pub(super) variables: Vec<OwnedValue>,
    /// `$$NOW`.
    pub(super) now: Option<i64>,
    /// The collation.
    pub(super) collator: Option<Arc<Collator>>,
}

/// mongod's error code for it.
pub(crate) const NO_SCORES: i32 = 40_218;

/// The error for a score without a text search.
pub(crate) fn no_scores() -> QueryError {
    QueryError::location(NO_SCORES, "query requires text score metadata, but it is not available")
}

impl Scope {
    /// The scope of a command at a time, with the variables of its `let` in the slots from 0 on.
    pub fn of_command<'n>(
        now: i64,
        release: Release,
        variables: impl IntoIterator<Item = (&'n [u8], OwnedValue)>,
    ) -> Self {
        let mut scope = Self::of_release(release);
        scope.known.now = Some(now);
        for (name, value) in variables {
            scope.declare(name);
            scope.known.variables.push(value);
        }
        scope
    }

    /// A scope without variables.
    pub fn of_release(release: Release) -> Self {
        Self { release, ..Self::default() }
    }

    /// A copy with this collation and its own error slot.
    #[must_use]
    pub(crate) fn apart(&self, collator: Option<&Arc<Collator>>) -> Self {
        let known = Known { collator: collator.cloned(), ..self.known.clone() };
        Self { known, fault: Arc::default(), ..self.clone() }
    }

    /// A copy for the expressions of a `$project`.
    #[must_use]
    pub(crate) fn of_project(self) -> Self {
        Self { unrecognized: Unrecognized::InProjection, ..self }
    }

    /// A copy for documents with metadata.
    #[must_use]
    pub(crate) fn with_notes(self) -> Self {
        Self { has_notes: true, ..self }
    }

    /// A copy for documents with text scores.
    #[must_use]
    pub(crate) fn with_scores(self, text: &TextNode) -> Self {
        Self { scores: Scores::Noted(text.score_wish()), ..self }
    }

    /// A copy in which scores are missing instead of an error.
    #[must_use]
    pub(crate) fn ignoring_scores(self) -> Self {
        Self { scores: Scores::Missing, ..self }
    }

    /// A copy for parsing an expression inside a filter (`$expr`).
    #[must_use]
    pub(crate) fn for_filter(self) -> Self {
        Self { in_filter: true, ..self }
    }

    /// A copy for a place where scores do not exist yet.
    #[must_use]
    pub(crate) fn without_scores(self) -> Self {
        match self.scores {
            Scores::Missing => self,
            _ => Self { scores: Scores::None, ..self },
        }
    }

    /// Requests the scores of documents, if they can have them.
    pub(crate) fn wish_scores(&self) -> Result<(), QueryError> {
        match &self.scores {
            Scores::None => Err(no_scores()),
            Scores::Missing => Ok(()),
            Scores::Noted(wish) => {
                wish.wish();
                Ok(())
            }
        }
    }

    /// True if documents may carry scores.
    pub(crate) fn has_scores(&self) -> bool {
        matches!(self.scores, Scores::Noted(_))
    }

    /// The collation.
    pub(crate) fn collator(&self) -> Option<Arc<Collator>> {
        self.known.collator.clone()
    }

    /// Records the error of a constant, if it is the first.
    pub(crate) fn note(&self, fault: QueryError) {
        let _ = self.fault.set(fault);
    }

    /// Gives the scope its own error slot until [`Scope::share_faults`] is called with the returned one.
    pub(crate) fn own_faults(&mut self) -> Arc<OnceLock<QueryError>> {
        std::mem::take(&mut self.fault)
    }

    /// Restores the shared error slot; returns the first error since [`Scope::own_faults`].
    pub(crate) fn share_faults(&mut self, shared: Arc<OnceLock<QueryError>>) -> Option<QueryError> {
        std::mem::replace(&mut self.fault, shared).get().cloned()
    }

    /// Fails with the first error that evaluating a constant has caused.
    pub(crate) fn settle(&self) -> Result<(), QueryError> {
        self.fault.get().map_or(Ok(()), |fault| Err(fault.clone()))
    }

    /// Declares a variable and gives it a slot. The newest of equal names is used.
    pub(crate) fn declare(&mut self, name: &[u8]) -> usize {
        let slot = self.slots;
        self.slots += 1;
        self.names.push((name.into(), slot));
        slot
    }

    /// True once an expression parsed in it refers to a document field.
    pub fn reads_document(&self) -> bool {
        self.reads_document
    }

    /// The current position, for [`Scope::leave`].
    pub(crate) fn enter(&self) -> usize {
        self.names.len()
    }

    /// Removes the variables declared since.
    pub(crate) fn leave(&mut self, mark: usize) {
        self.names.truncate(mark);
    }

    /// What the query has bound CURRENT to, if it has.
    pub(super) fn current(&self) -> Option<Expr> {
        let base = Base::Slot(self.slot(CURRENT)?);
        Some(Expr::Path(FieldPath { base, names: Vec::new() }))
    }

    fn slot(&self, name: &[u8]) -> Option<usize> {
        self.names.iter().rev().find(|(known, _)| **known == *name).map(|(_, slot)| *slot)
    }
}

/// Parses an operand: a path, an operator, a document of expressions, or a constant.
pub(super) fn operand(value: Value<'_>, scope: &mut Scope) -> Parsed {
    match value {
        Value::String(text) if text.starts_with(b"$") => path(text, scope),
        Value::Document(doc) => object(doc, scope),
        Value::Array(_) => {
            let items: Result<Vec<_>, _> =
                value.elements().map(|e| operand(e.value(), scope)).collect();
            Ok(fold::array(items?))
        }
        other => Ok(Expr::Literal(OwnedValue::from(other))),
    }
}

/// Parses a document, which is either one operator or fields, never both.
pub(super) fn object(doc: &[u8], scope: &mut Scope) -> Parsed {
    if scope.depth >= DEPTH_MAX {
        return Err(QueryError::new(
            protocol::ErrorCode::Overflow,
            format!("expression nests deeper than {DEPTH_MAX} levels"),
        ));
    }
    scope.depth += 1;
    let parsed = object_inner(doc, scope);
    scope.depth -= 1;
    parsed
}

fn object_inner(doc: &[u8], scope: &mut Scope) -> Parsed {
    let mut fields = Elements::of_bytes(doc);
    let Some(first) = fields.next() else {
        return Ok(Expr::Document(Vec::new()));
    };
    if first.key.starts_with(b"$") {
        if fields.next().is_some() {
            return Err(QueryError::location(
                15_983,
                format!(
                    "An object representing an expression must have exactly one field: {}",
                    crate::value::Shown(Value::Document(doc))
                ),
            ));
        }
        return operator(first.key, first.value(), scope);
    }
    let mut parsed: Vec<(Box<[u8]>, Expr)> = Vec::new();
    for field in Elements::of_bytes(doc) {
        let name = field.key;
        field_path::check_name(name)?;
        if name.contains(&b'.') {
            return Err(QueryError::location(
                16_412,
                format!(
                    "Consider using $getField or $setField for a field path with '.' or '$'. :: \
                     caused by :: FieldPath field names may not contain '.', given '{}'.",
                    lossy(name)
                ),
            ));
        }
        if parsed.iter().any(|(known, _)| **known == *name) {
            return Err(QueryError::location(
                16_406,
                format!(
                    "duplicate field name specified in object literal: {}",
                    crate::value::Shown(Value::Document(doc))
                ),
            ));
        }
        parsed.push((name.into(), operand(field.value(), scope)?));
    }
    Ok(Expr::Document(parsed))
}

/// Parses `{$operator: value}`.
pub(super) fn operator(name: &[u8], value: Value<'_>, scope: &mut Scope) -> Parsed {
    let row = Operator::named(name).filter(|row| scope.release >= row.since);
    let row = row.ok_or_else(|| scope.unrecognized.of(name))?;
    match &row.form {
        Form::List { min, max, fun, miscounted } => {
            let args = arguments(value, scope)?;
            if !(*min..=*max).contains(&args.len()) {
                return Err(miscounted(row.name, args.len(), *min, *max));
            }
            Ok(Expr::Call(Call { row, fun: *fun, args }))
        }
        Form::DatePart(fun) => {
            let args = date_and_zone(row.name, value, scope)?;
            Ok(Expr::Named(NamedCall { row, fun: *fun, args }))
        }
        Form::Named(arguments, fun) => {
            let args = named_arguments(row.name, arguments, value, scope)?;
            Ok(Expr::Named(NamedCall { row, fun: *fun, args }))
        }
        Form::Special(parse) => Ok(Expr::Special(Box::new(parse(value, scope)?))),
        Form::Own(parse) => parse(row, value, scope),
    }
}

/// The arguments of an operator: an array, or a single argument without an array.
pub(super) fn arguments(value: Value<'_>, scope: &mut Scope) -> Result<Vec<Expr>, QueryError> {
    match value {
        Value::Array(_) => value.elements().map(|e| operand(e.value(), scope)).collect(),
        other => Ok(vec![operand(other, scope)?]),
    }
}

/// Parses the argument of a date part operator: a date, or `{date, timezone}`.
fn date_and_zone(
    name: &str,
    value: Value<'_>,
    scope: &mut Scope,
) -> Result<Vec<Option<Expr>>, QueryError> {
    let doc = match value {
        Value::Document(doc) => doc,
        Value::Array(_) => {
            let mut given = value.elements();
            return match (given.next(), given.count()) {
                (Some(date), 0) => Ok(vec![Some(operand(date.value(), scope)?), None]),
                _ => Err(QueryError::location(
                    40_536,
                    format!(
                        "{name} accepts exactly one argument if given an array, but was given {}",
                        value.elements().count()
                    ),
                )),
            };
        }
        other => return Ok(vec![Some(operand(other, scope)?), None]),
    };
    if Elements::of_bytes(doc).next().is_some_and(|field| field.key.starts_with(b"$")) {
        return Ok(vec![Some(object(doc, scope)?), None]);
    }
    let (mut date, mut zone) = (None, None);
    for field in Elements::of_bytes(doc) {
        match field.key {
            b"date" => date = Some(operand(field.value(), scope)?),
            b"timezone" => zone = Some(operand(field.value(), scope)?),
            other => {
                return Err(QueryError::location(
                    40_535,
                    format!("unrecognized option to {name}: \"{}\"", lossy(other)),
                ));
            }
        }
    }
    let date = date.ok_or_else(|| {
        QueryError::location(
            40_539,
            format!(
                "missing 'date' argument to {name}, provided: {}: {}",
                name,
                crate::value::Shown(value)
            ),
        )
    })?;
    Ok(vec![Some(date), zone])
}

/// Parses `{$operator: {name: expression, ...}}`, in the order of the operator's row.
fn named_arguments(
    name: &str,
    arguments: &Arguments,
    value: Value<'_>,
    scope: &mut Scope,
) -> Result<Vec<Option<Expr>>, QueryError> {
    let mut places = arguments.read(name, value, scope.release)?;
    (arguments.before)(name, value.elements())?;
    if arguments.missed_in_order {
        places.sort_by_key(|(place, _)| *place);
    }
    let mut args = vec![None; arguments.fields.len()];
    for (place, given) in places {
        if arguments.missed_in_order {
            arguments.check_given(name, args.get(..place).unwrap_or_default())?;
        }
        let parsed = operand(given, scope)?;
        if let Some(arg) = args.get_mut(place) {
            arg.get_or_insert(parsed);
        }
    }
    arguments.check_given(name, &args)?;
    Ok(args)
}

/// Parses `$a.b` or `$$variable.a.b`.
pub(super) fn path(text: &[u8], scope: &mut Scope) -> Parsed {
    let Some(variable) = text.strip_prefix(b"$$") else {
        let dotted = text.get(1..).unwrap_or_default();
        if dotted.is_empty() {
            return Err(QueryError::location(16_872, "'$' by itself is not a valid FieldPath"));
        }
        field_path::check_below_root(dotted)?;
        // `$a` is short for `$$CURRENT.a`, and CURRENT may be a variable that the query binds.
        let base = scope.slot(CURRENT).map_or(Base::Root, Base::Slot);
        scope.reads_document |= base == Base::Root;
        return Ok(Expr::Path(FieldPath { base, names: split(dotted) }));
    };
    if variable.is_empty() {
        return Err(QueryError::failed_to_parse("empty variable names are not allowed"));
    }
    field_path::check(variable)?;
    let mut names = split(variable);
    let name = names.remove(0);
    let base = match &*name {
        b"ROOT" => Base::Root,
        CURRENT => scope.slot(CURRENT).map_or(Base::Current, Base::Slot),
        b"NOW" => Base::Now,
        b"CLUSTER_TIME" => Base::ClusterTime,
        b"REMOVE" => Base::Remove,
        other => match scope.slot(other) {
            Some(slot) => Base::Slot(slot),
            None => {
                let valid = other.first().is_some_and(|b| b.is_ascii_alphabetic() || *b >= 0x80);
                if !valid {
                    return Err(QueryError::failed_to_parse(format!(
                        "'{}' starts with an invalid character for a user variable name",
                        lossy(other)
                    )));
                }
                return Err(QueryError::location(
                    17_276,
                    format!("Use of undefined variable: {}", lossy(other)),
                ));
            }
        },
    };
    scope.reads_document |= matches!(base, Base::Root | Base::Current);
    Ok(Expr::Path(FieldPath { base, names }))
}

fn split(dotted: &[u8]) -> Vec<Box<[u8]>> {
    dotted.split(|&b| b == b'.').map(Box::from).collect()
}

/// Checks the name of a user variable.
pub(super) fn check_variable(name: &[u8]) -> Result<(), QueryError> {
    let first = name.first().copied().unwrap_or(0);
    if name.is_empty() {
        return Err(QueryError::failed_to_parse("empty variable names are not allowed"));
    }
    if !(first.is_ascii_lowercase() || first >= 0x80 || name == b"CURRENT") {
        return Err(QueryError::failed_to_parse(format!(
            "'{}' starts with an invalid character for a user variable name",
            lossy(name)
        )));
    }
    match name.iter().find(|b| !(b.is_ascii_alphanumeric() || **b == b'_' || **b >= 0x80)) {
        None => Ok(()),
        Some(bad) => Err(QueryError::failed_to_parse(format!(
            "'{}' contains an invalid character for a variable name: '{}'",
            lossy(name),
            char::from(*bad)
        ))),
    }
}

pub(super) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
