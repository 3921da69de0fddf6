//! The accumulators of `$group`.

mod state;
mod table;

pub(super) use state::State;
pub(super) use table::Accumulator;
use table::Takes;

use std::{cmp::Ordering, sync::Arc};

use super::hash_key;
use crate::{
    collation::Collator,
    context::Context,
    error::QueryError,
    expression::{Bump, Env, Expr, Percentile, Scope, Spread, average, mean, percentile_number},
    matcher::operands,
    sort::SortPattern,
    value::{Elements, OwnedValue, Shown, Spelled, Value},
};

/// An accumulator with its arguments.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    pub(super) name: Box<[u8]>,
    kind: Kind,
    input: Expr,
    /// How many values to keep, for accumulators that keep several.
    n: Option<Expr>,
    sort: Option<SortPattern>,
    percentile: Option<Percentile>,
    /// mongod's second execution engine (SBE) runs it.
    pushed: bool,
    /// The collation of values kept in a heap.
    collator: Option<Arc<Collator>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sum,
    Avg,
    Min,
    Max,
    First,
    Last,
    Push,
    AddToSet,
    StdDevPop,
    StdDevSamp,
    MergeObjects,
    FirstN,
    LastN,
    MinN,
    MaxN,
    ConcatArrays,
    SetUnion,
    Percentile,
    /// `$topN` and `$bottomN`; `$top` and `$bottom` are these with n = 1 and without an array.
    TopN {
        bottom: bool,
        single: bool,
    },
}

impl Kind {
    fn takes_n(self) -> bool {
        matches!(
            self,
            Self::FirstN | Self::LastN | Self::MinN | Self::MaxN | Self::TopN { single: false, .. }
        )
    }
}

impl Spec {
    /// Parses `name: {$accumulator: expression}`.
    pub(super) fn parse(
        name: &[u8],
        value: Value<'_>,
        scope: &mut Scope,
    ) -> Result<Self, QueryError> {
        let shown = String::from_utf8_lossy(name);
        let first = match value {
            Value::Document(doc) => Elements::of_bytes(doc).next(),
            _ => None,
        };
        let Some(first) = first.filter(|first| first.key.starts_with(b"$")) else {
            return Err(QueryError::location(
                40_234,
                format!("The field '{shown}' must be an accumulator object"),
            ));
        };
        if name.contains(&b'.') {
            return Err(QueryError::location(
                40_235,
                format!("The field name '{shown}' cannot contain '.'"),
            ));
        }
        if name.starts_with(b"$") {
            return Err(QueryError::location(
                40_236,
                format!("The field name '{shown}' cannot be an operator name"),
            ));
        }
        if value.elements().count() != 1 {
            return Err(QueryError::location(
                40_238,
                format!(
                    "The field '{shown}' must specify one accumulator: {shown}: {}",
                    Shown(value)
                ),
            ));
        }
        if matches!(first.value(), Value::Array(_)) {
            return Err(QueryError::location(
                40_237,
                format!(
                    "The {} accumulator is a unary operator",
                    String::from_utf8_lossy(first.key)
                ),
            ));
        }
        let spec = Self::of(name, first.key, first.value(), scope)?;
        Ok(spec)
    }

    /// The accumulator as SBE runs it, which checks constants before the documents and has its own error texts.
    pub(super) fn pushed(mut self, collator: Option<Arc<Collator>>) -> Result<Self, QueryError> {
        (self.pushed, self.collator) = (true, collator);
        if let Some(n) = self.n.as_ref().and_then(Expr::as_literal) {
            positive(n, true)?;
        }
        Ok(self)
    }

    /// Parses an accumulator by name and argument.
    pub(super) fn of(
        name: &[u8],
        operator: &[u8],
        value: Value<'_>,
        scope: &mut Scope,
    ) -> Result<Self, QueryError> {
        let row = Accumulator::named(operator).filter(|row| row.is_in(scope.release));
        let Some(row) = row else {
            let operator = String::from_utf8_lossy(operator);
            return Err(QueryError::location(
                15_952,
                format!("unknown group operator '{operator}'"),
            ));
        };
        let mut spec = Self {
            name: name.into(),
            kind: row.kind,
            input: Expr::Literal(Value::Int32(1).into()),
            n: None,
            sort: None,
            percentile: None,
            pushed: false,
            collator: None,
        };
        match row.takes {
            Takes::Several(not_object) | Takes::Sorted(not_object) => {
                spec.parse_named(row.name, not_object, value, scope)?;
            }
            Takes::Percentile(not_object) => {
                let percentile = Percentile::parse(row.name, value, not_object, scope)?;
                spec.input = percentile.input.clone();
                spec.percentile = Some(percentile);
            }
            Takes::Nothing => {
                if value.elements().next().is_some() || !matches!(value, Value::Document(_)) {
                    let text = "$count takes no arguments, i.e. $count:{}";
                    return Err(QueryError::type_mismatch(text));
                }
            }
            Takes::Expression => spec.input = Expr::parse(value, scope)?,
        }
        Ok(spec)
    }

    fn parse_named(
        &mut self,
        operator: &str,
        not_object: i32,
        value: Value<'_>,
        scope: &mut Scope,
    ) -> Result<(), QueryError> {
        let Value::Document(doc) = value else {
            return Err(QueryError::location(
                not_object,
                format!("specification must be an object; found {operator}: {}", Shown(value)),
            ));
        };
        let input = if matches!(self.kind, Kind::TopN { .. }) { "output" } else { "input" };
        let (mut found, mut sort) = (false, None);
        for field in Elements::of_bytes(doc) {
            match field.key {
                b"n" if self.kind.takes_n() => self.n = Some(Expr::parse(field.value(), scope)?),
                b"sortBy" if matches!(self.kind, Kind::TopN { .. }) => {
                    if !matches!(field.value(), Value::Document(_) | Value::Array(_)) {
                        return Err(QueryError::location(
                            10_065,
                            "invalid parameter: expected an object (sortBy)",
                        ));
                    }
                    sort = Some(field.value());
                }
                key if key == input.as_bytes() => {
                    found = true;
                    self.input = Expr::parse(field.value(), scope)?;
                }
                other => {
                    let other = String::from_utf8_lossy(other);
                    return Err(match self.kind {
                        Kind::TopN { .. } => QueryError::location(
                            5_788_002,
                            format!("Unknown argument to {operator} '{other}'"),
                        ),
                        _ => QueryError::location(
                            5_787_901,
                            format!("Unknown argument for 'n' operator: {other}"),
                        ),
                    });
                }
            }
        }
        let sorts = matches!(self.kind, Kind::TopN { .. });
        if self.kind.takes_n() && self.n.is_none() {
            let code = if sorts { 5_788_003 } else { 5_787_906 };
            return Err(QueryError::location(code, "Missing value for 'n'"));
        }
        if !found {
            let code = if sorts { 5_788_004 } else { 5_787_907 };
            return Err(QueryError::location(code, format!("Missing value for '{input}'")));
        }
        match sort {
            Some(Value::Document(sort)) => {
                self.sort = Some(SortPattern::parse(super::raw(sort)?, scope.collator())?);
            }
            Some(_) => {
                return Err(QueryError::location(
                    5_788_604,
                    format!(
                        "expected 'sortBy' to already be an object in the arguments to {operator}"
                    ),
                ));
            }
            None if sorts => {
                return Err(QueryError::location(5_788_005, "Missing value for 'sortBy'"));
            }
            None => {}
        }
        Ok(())
    }

    /// The input, if the accumulator needs nothing else.
    pub(super) fn plain_input(&self) -> Option<&Expr> {
        (self.sort.is_none() && self.n.is_none()).then_some(&self.input)
    }

    /// The input expression.
    pub(super) fn input(&self) -> &Expr {
        &self.input
    }

    /// The state before the first document.
    pub(super) fn start(&self, cx: &Context) -> Result<State, QueryError> {
        let n = match &self.n {
            None => 1,
            Some(expr) => {
                // `n` is a constant or an expression over the group key.
                let arena = Bump::new();
                let mut inner = Env::new(&arena, cx, &[5, 0, 0, 0, 0]);
                positive(expr.eval(&mut inner)?, self.pushed)?
            }
        };
        Ok(State { n, ..State::default() })
    }

    /// Adds a document.
    pub(super) fn add<'a>(
        &'a self,
        state: &mut State,
        env: &mut Env<'a>,
        doc: &[u8],
    ) -> Result<(), QueryError> {
        let value = self.input.eval(env)?;
        self.add_value(state, value, env.collator, doc)
    }

    /// Adds a document whose value is already computed.
    pub(super) fn add_value(
        &self,
        state: &mut State,
        value: Value<'_>,
        collator: Option<&Collator>,
        doc: &[u8],
    ) -> Result<(), QueryError> {
        self.feed(state, value, collator, doc).map_err(|error| match self.kind {
            // `$group` has its own error texts here.
            Kind::ConcatArrays => {
                QueryError::type_mismatch("Expected new value for $concatArrays to be an array")
            }
            Kind::SetUnion => {
                QueryError::type_mismatch("Expected new value for $setUnion to be an array")
            }
            _ => error,
        })
    }

    /// Adds a computed value.
    pub(super) fn feed(
        &self,
        state: &mut State,
        value: Value<'_>,
        collator: Option<&Collator>,
        doc: &[u8],
    ) -> Result<(), QueryError> {
        if state.bytes() > MEMORY_MAX {
            return Err(self.too_much());
        }
        match self.kind {
            Kind::Sum => state.sum.add(value),
            Kind::Avg => {
                if value.is_number() {
                    state.count += 1;
                    state.sum.add(value);
                }
            }
            Kind::StdDevPop | Kind::StdDevSamp => state.rare().spread.add(value),
            Kind::Min => state.keep_extreme(value, collator, Ordering::Less),
            Kind::Max => state.keep_extreme(value, collator, Ordering::Greater),
            Kind::First => {
                if state.values.is_empty() {
                    state.push(value);
                }
            }
            Kind::Last => {
                state.values.clear();
                state.push(value);
            }
            Kind::Push => {
                if !matches!(value, Value::Missing) {
                    state.push(value);
                }
            }
            Kind::AddToSet => {
                if !matches!(value, Value::Missing)
                    && state.rare().set.insert(hash_key::of(value, collator))
                {
                    state.push(value);
                }
            }
            Kind::MergeObjects => state.merge(value, self.pushed)?,
            Kind::ConcatArrays | Kind::SetUnion => {
                let is_set = self.kind == Kind::SetUnion;
                state.extend(value, is_set, collator)?;
            }
            Kind::Percentile => {
                if let Some(n) = percentile_number(value) {
                    state.bytes += size_of::<f64>();
                    state.rare().numbers.push(n);
                }
            }
            Kind::FirstN => {
                if state.values.len() < state.n {
                    state.push(or_null(value));
                }
            }
            Kind::LastN => {
                if state.values.len() == state.n {
                    state.values.remove(0);
                }
                state.push(or_null(value));
            }
            Kind::MinN | Kind::MaxN => {
                let descending = self.kind == Kind::MaxN;
                if !value.is_nullish() {
                    state.insert_extreme(value, collator, descending, self.pushed);
                }
            }
            Kind::TopN { bottom, .. } => {
                if let Some(pattern) = &self.sort {
                    state.insert_by_key(pattern, doc, or_null(value), bottom)?;
                }
            }
        }
        Ok(())
    }

    /// The error for a single value that exceeds the memory limit, which spilling cannot help.
    fn too_much(&self) -> QueryError {
        let name = match self.kind {
            Kind::AddToSet => "$addToSet",
            Kind::ConcatArrays => "$concatArrays",
            Kind::SetUnion => "$setUnion",
            _ => "$push",
        };
        QueryError::new(
            protocol::ErrorCode::ExceededMemoryLimit,
            format!(
                "{name} used too much memory and cannot spill to disk. Memory limit: {MEMORY_MAX} \
                 bytes"
            ),
        )
    }

    /// The result of a group.
    pub(super) fn finish(&self, state: &State) -> OwnedValue {
        let all = || {
            let bytes = crate::expression::array_bytes(state.values.iter().map(OwnedValue::get));
            OwnedValue::from(Value::Array(&bytes))
        };
        let one = || state.values.first().cloned().unwrap_or(OwnedValue::from(Value::Null));
        match self.kind {
            Kind::Sum => state.sum.total().into(),
            Kind::Avg if self.pushed => average(&state.sum, state.count).into(),
            Kind::Avg => mean(&state.sum, state.count).into(),
            Kind::StdDevPop | Kind::StdDevSamp => {
                let spread = state.rare.as_ref().map_or_else(Spread::default, |rare| rare.spread);
                spread.deviation(self.kind == Kind::StdDevSamp).into()
            }
            Kind::Min | Kind::Max => one(),
            Kind::First | Kind::Last => {
                let value = one();
                if matches!(value.get(), Value::Missing) { Value::Null.into() } else { value }
            }
            Kind::Percentile => self.percentiles(state),
            Kind::ConcatArrays | Kind::SetUnion => all(),
            Kind::MinN | Kind::MaxN if self.pushed => {
                let values = state.sorted(self.collator.as_deref(), self.kind == Kind::MaxN);
                let bytes = crate::expression::array_bytes(values.iter().map(OwnedValue::get));
                OwnedValue::from(Value::Array(&bytes))
            }
            Kind::Push | Kind::AddToSet | Kind::FirstN | Kind::LastN | Kind::MinN | Kind::MaxN => {
                all()
            }
            Kind::MergeObjects => {
                let empty = OwnedValue::from(Value::Document(&[5, 0, 0, 0, 0]));
                state.values.first().cloned().unwrap_or(empty)
            }
            Kind::TopN { single, .. } => {
                let keyed = state.rare.as_ref().map_or(&[][..], |rare| rare.keyed.as_slice());
                if single {
                    keyed.first().map_or(Value::Null.into(), |(_, v)| v.clone())
                } else {
                    let bytes = crate::expression::array_bytes(keyed.iter().map(|(_, v)| v.get()));
                    OwnedValue::from(Value::Array(&bytes))
                }
            }
        }
    }
}

impl Spec {
    fn percentiles(&self, state: &State) -> OwnedValue {
        let Some(percentile) = &self.percentile else { return Value::Null.into() };
        let rare = state.rare.as_ref();
        let mut numbers = rare.map_or_else(Vec::new, |rare| rare.numbers.clone());
        let found = percentile.of(&mut numbers);
        if percentile.single {
            return found.first().copied().unwrap_or(Value::Null).into();
        }
        OwnedValue::from(Value::Array(&crate::expression::array_bytes(found)))
    }
}

/// Memory limit of one accumulator's value, as in mongod.
const MEMORY_MAX: usize = 100 << 20;

/// Parses the number of values to keep.
fn positive(n: Value<'_>, pushed: bool) -> Result<usize, QueryError> {
    let whole = operands::integer("n", n).ok();
    let fits = whole.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
    fits.ok_or_else(|| match whole {
        _ if pushed => QueryError::location(
            7_548_606,
            "parameter 'n' must be coercible to a positive 64-bit integer",
        ),
        Some(n) => {
            QueryError::location(5_787_908, format!("'n' must be greater than 0, found {n}"))
        }
        None => QueryError::location(
            if n.is_number() { 5_787_903 } else { 5_787_902 },
            format!("Value for 'n' must be of integral type, but found {}", Spelled(n)),
        ),
    })
}

fn or_null(value: Value<'_>) -> Value<'_> {
    if matches!(value, Value::Missing) { Value::Null } else { value }
}
