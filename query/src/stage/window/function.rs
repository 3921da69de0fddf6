//! The functions of `$setWindowFields` and their arguments.

use std::cell::Cell;

use super::bounds::Bounds;
use crate::{
    Release,
    error::QueryError,
    expression::{Expr, as_decimal, decimal_div},
    matcher::operands::integer,
    stage::{
        StageContext,
        accumulator::{Accumulator, Spec},
        spec::{Spec as Fields, Takes, field},
    },
    value::{Decimal, Element, Elements, OwnedValue, Shown, Value, compare_values},
};

/// A function and its frame.
#[derive(Debug)]
pub(super) enum Function {
    /// `$rank`, `$denseRank`, `$documentNumber`.
    Place(Place),
    /// `$shift`.
    Shift { output: Expr, by: i64, default: OwnedValue },
    /// `$derivative`; the unit in milliseconds.
    Derivative { input: Expr, unit: Option<i64>, bounds: Bounds },
    /// `$integral`.
    Integral { input: Expr, unit: Option<i64>, bounds: Bounds },
    /// `$expMovingAvg`.
    ExpMovingAvg { input: Expr, alpha: Decimal, decimal: Cell<bool> },
    /// `$linearFill`.
    LinearFill(Expr),
    /// `$locf`.
    Locf(Expr),
    /// `$covariancePop`, `$covarianceSamp`.
    Covariance { input: Expr, sample: bool, bounds: Bounds },
    /// `$minMaxScaler`.
    MinMaxScaler { input: Expr, low: OwnedValue, high: OwnedValue, bounds: Bounds },
    /// `$first`, `$last`.
    Edge { input: Expr, last: bool, bounds: Bounds },
    /// An accumulator of `$group`.
    Accumulator { spec: Spec, kind: Kind, bounds: Bounds },
}

/// Functions that number documents.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    Rank,
    DenseRank,
    Number,
}

/// How an accumulator works in a window: some can remove a value again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::stage) enum Kind {
    Sum,
    Avg,
    StdDev { sample: bool },
    Min,
    Max,
    Set,
    Other,
}

/// A function that `$group` does not have: its name, the first release that has it, and its parser.
struct Row(&'static str, Release, fn(&Call<'_>) -> Result<Function, QueryError>);

static FUNCTIONS: &[Row] = &[
    Row("$covariancePop", Release::V5_0, |call| call.covariance(false)),
    Row("$covarianceSamp", Release::V5_0, |call| call.covariance(true)),
    Row("$denseRank", Release::V5_0, |call| call.place(Place::DenseRank)),
    Row("$derivative", Release::V5_0, |call| call.derivative()),
    Row("$documentNumber", Release::V5_0, |call| call.place(Place::Number)),
    Row("$expMovingAvg", Release::V5_0, |call| call.exp_moving_avg()),
    Row("$first", Release::V5_0, |call| call.edge(false)),
    Row("$integral", Release::V5_0, |call| call.integral()),
    Row("$last", Release::V5_0, |call| call.edge(true)),
    Row("$linearFill", Release::V6_0, |call| call.linear_fill()),
    Row("$locf", Release::V6_0, |call| call.locf()),
    Row("$minMaxScaler", Release::V8_2, |call| call.min_max_scaler()),
    Row("$rank", Release::V5_0, |call| call.place(Place::Rank)),
    Row("$shift", Release::V5_0, |call| call.shift()),
];

/// The directions of `sortBy`, true for ascending.
type Sort<'s> = Option<&'s [bool]>;

fn refuse<T>(text: impl Into<String>) -> Result<T, QueryError> {
    Err(QueryError::failed_to_parse(text))
}

impl Function {
    pub(super) fn parse(doc: &[u8], sort: Sort<'_>, cx: &StageContext) -> Result<Self, QueryError> {
        let mut named = Elements::of_bytes(doc).filter(|f| f.key.starts_with(b"$"));
        let Some(function) = named.next() else {
            return match Elements::of_bytes(doc).next() {
                None => refuse("Expected a $-prefixed window function"),
                Some(first) => refuse(format!(
                    "Expected a $-prefixed window function, {}",
                    String::from_utf8_lossy(first.key)
                )),
            };
        };
        if named.next().is_some() {
            return refuse("Cannot specify two functions in window function spec");
        }
        let call = Call { doc, function, sort, cx };
        let release = cx.scope.release;
        if let Some(Row(_, since, parse)) =
            FUNCTIONS.iter().find(|row| row.0.as_bytes() == function.key)
        {
            return if release >= *since { parse(&call) } else { call.unknown() };
        }
        let accumulator = Accumulator::named(function.key).filter(|row| row.is_in(release));
        match accumulator.and_then(|row| row.window) {
            Some(kind) => call.accumulator(kind),
            None => call.unknown(),
        }
    }
}

/// A function as written: its name and argument among the output's fields.
struct Call<'a> {
    doc: &'a [u8],
    function: Element<'a>,
    sort: Sort<'a>,
    cx: &'a StageContext,
}

impl<'a> Call<'a> {
    fn unknown(&self) -> Result<Function, QueryError> {
        // Releases before 6.0 do not name the unknown function.
        match self.cx.scope.release < Release::V6_0 {
            true => refuse("Unrecognized window function"),
            false => refuse(format!("Unrecognized window function, {}", self.name())),
        }
    }

    fn name(&self) -> String {
        String::from_utf8_lossy(self.function.key).into_owned()
    }

    fn expr(&self, value: Value<'_>) -> Result<Expr, QueryError> {
        Expr::parse(value, &mut self.cx.scope.clone())
    }

    fn window(&self) -> Option<Element<'a>> {
        Elements::of_bytes(self.doc).find(b"window")
    }

    /// The frame; besides the function only `window` is allowed.
    fn bounds(&self) -> Result<Bounds, QueryError> {
        for field in Elements::of_bytes(self.doc) {
            if field.key != b"window" && field.key != self.function.key {
                return refuse(format!(
                    "Window function found an unknown argument: {}",
                    String::from_utf8_lossy(field.key)
                ));
            }
        }
        Bounds::parse(self.window().as_ref(), self.sort)
    }

    fn is_alone(&self) -> bool {
        Elements::of_bytes(self.doc).count() == 1
    }

    fn place(&self, place: Place) -> Result<Function, QueryError> {
        if !self.is_alone() {
            return Err(QueryError::location(
                5_371_601,
                "Rank style window functions take no other arguments",
            ));
        }
        let name = self.name();
        let empty = matches!(self.function.value(), Value::Document(doc)
            if Elements::of_bytes(doc).next().is_none());
        if !empty {
            return Err(QueryError::location(
                5_371_603,
                format!("{name} must be specified with '{{}}' as the value"),
            ));
        }
        if !matches!(self.sort, Some([_])) {
            return Err(QueryError::location(
                5_371_602,
                format!(
                    "{name} must be specified with a top level sortBy expression with exactly one \
                     element"
                ),
            ));
        }
        Ok(Function::Place(place))
    }

    fn shift(&self) -> Result<Function, QueryError> {
        if self.sort.is_none() {
            return refuse("'$shift' requires a sortBy");
        }
        let Value::Document(doc) = self.function.value() else {
            return refuse("Argument to $shift must be an object");
        };
        let (mut output, mut by, mut default) = (None, None, OwnedValue::from(Value::Null));
        for field in Elements::of_bytes(doc) {
            match field.key {
                b"output" => output = Some(self.expr(field.value())?),
                b"by" => {
                    let n = integer("", field.value()).ok().and_then(|n| i32::try_from(n).ok());
                    let Some(n) = n else {
                        return refuse(format!(
                            "'$shift:by' field must be an integer, but found  by: {}",
                            Shown(field.value())
                        ));
                    };
                    by = Some(i64::from(n));
                }
                b"default" => {
                    let expr = self.expr(field.value())?;
                    match expr.constant()? {
                        Some(value) => default = value,
                        None => {
                            return refuse(
                                "'$shift:default' expression must yield a constant value.",
                            );
                        }
                    }
                }
                _ => return refuse("Unknown argument in $shift"),
            }
        }
        let Some(output) = output else {
            return refuse("$shift requires an 'output' expression.");
        };
        let Some(by) = by else { return refuse("$shift requires 'by' as an integer value.") };
        if self.window().is_some() {
            return refuse("$shift does not accept a 'window' field");
        }
        Ok(Function::Shift { output, by, default })
    }

    /// `{input, unit}` of `$derivative` and `$integral`.
    fn input_and_unit(&self) -> Result<(Expr, Option<i64>), QueryError> {
        let name = self.name();
        let Value::Document(doc) = self.function.value() else {
            return refuse(format!(
                "{name} expects an object, but got a {}: {name}: {}",
                self.function.value().type_name(),
                Shown(self.function.value())
            ));
        };
        let (mut input, mut unit) = (None, None);
        for field in Elements::of_bytes(doc) {
            match field.key {
                b"input" => input = Some(self.expr(field.value())?),
                b"unit" => {
                    let fixed = super::unit(field.value())?.millis();
                    unit = Some(fixed.ok_or_else(|| {
                        QueryError::location(5_490_710, "unit must be 'week' or smaller")
                    })?);
                }
                other => {
                    return refuse(format!(
                        "{name} got unexpected argument: {}",
                        String::from_utf8_lossy(other)
                    ));
                }
            }
        }
        let Some(input) = input else {
            return refuse(format!("{name} requires an 'input' expression"));
        };
        Ok((input, unit))
    }

    fn check_one_sort(&self) -> Result<(), QueryError> {
        match self.sort {
            Some([_]) => Ok(()),
            None => refuse(format!("{} requires a sortBy", self.name())),
            Some(_) => refuse(format!("{} requires a non-compound sortBy", self.name())),
        }
    }

    /// The frame of `$derivative` and `$integral`, whose errors name the function.
    fn own_bounds(&self) -> Result<Bounds, QueryError> {
        let stranger =
            |field: &Element<'_>| field.key != b"window" && field.key != self.function.key;
        let bounds = Bounds::parse(self.window().as_ref(), self.sort)?;
        match Elements::of_bytes(self.doc).find_map(|field| stranger(&field).then_some(field.key)) {
            Some(name) => refuse(format!(
                "{} got unexpected argument: {}",
                self.name(),
                String::from_utf8_lossy(name)
            )),
            None => Ok(bounds),
        }
    }

    fn derivative(&self) -> Result<Function, QueryError> {
        self.check_one_sort()?;
        let bounds = self.own_bounds()?;
        let (input, unit) = self.input_and_unit()?;
        if self.window().is_none() {
            return refuse("$derivative requires explicit window bounds");
        }
        Ok(Function::Derivative { input, unit, bounds })
    }

    fn integral(&self) -> Result<Function, QueryError> {
        self.check_one_sort()?;
        let bounds = self.own_bounds()?;
        let (input, unit) = self.input_and_unit()?;
        Ok(Function::Integral { input, unit, bounds })
    }

    fn exp_moving_avg(&self) -> Result<Function, QueryError> {
        const TWO_FIELDS: &str = "$expMovingAvg sub object must have exactly two fields: An \
                                  'input' field, and either an 'N' field or an 'alpha' field";
        if self.sort.is_none() {
            return refuse("$expMovingAvg requires an explicit 'sortBy'");
        }
        let (Value::Document(doc), true) = (self.function.value(), self.is_alone()) else {
            return refuse("$expMovingAvg must have exactly one argument that is an object");
        };
        let part = |name: &[u8]| Elements::of_bytes(doc).find(name).map(|f| f.value());
        let (Some(input), 2) = (part(b"input"), Elements::of_bytes(doc).count()) else {
            return refuse(TWO_FIELDS);
        };
        let alpha = match (part(b"N"), part(b"alpha")) {
            (Some(n), None) => {
                if !n.is_number() {
                    return refuse(format!(
                        "'N' field must be an integer, but found type {}",
                        n.type_name()
                    ));
                }
                let Some(whole) = whole(n) else {
                    return refuse(format!(
                        "'N' field must be an integer, but found  N: {}. To use a non-integer, \
                         use the 'alpha' argument instead",
                        Shown(n)
                    ));
                };
                if whole <= 0 {
                    return refuse(format!("'N' must be greater than zero. Got {whole}"));
                }
                let two = as_decimal(Value::Int32(2));
                decimal_div(two, as_decimal(Value::Int64(whole.saturating_add(1))))
            }
            (None, Some(alpha)) => {
                if !alpha.is_number() {
                    return refuse("'alpha' must be a number");
                }
                let outside = compare_values(alpha, Value::Int32(0), None).is_le()
                    || compare_values(alpha, Value::Int32(1), None).is_ge();
                if outside {
                    return refuse(format!(
                        "'alpha' must be between 0 and 1 (exclusive), found alpha: {}",
                        Shown(alpha)
                    ));
                }
                as_decimal(alpha)
            }
            _ => return refuse(TWO_FIELDS),
        };
        Ok(Function::ExpMovingAvg { input: self.expr(input)?, alpha, decimal: Cell::new(false) })
    }

    fn linear_fill(&self) -> Result<Function, QueryError> {
        let input = self.expr(self.function.value())?;
        if self.window().is_some() {
            return refuse("'window' field is not allowed in $linearFill");
        }
        if !matches!(self.sort, Some([_])) {
            return Err(QueryError::location(
                605_001,
                "$linearFill must be specified with a top level sortBy expression with exactly \
                 one element",
            ));
        }
        Ok(Function::LinearFill(input))
    }

    fn locf(&self) -> Result<Function, QueryError> {
        let input = self.expr(self.function.value())?;
        if self.window().is_some() {
            return refuse("'window' field is not allowed in $locf");
        }
        Ok(Function::Locf(input))
    }

    fn covariance(&self, sample: bool) -> Result<Function, QueryError> {
        let input = self.expr(self.function.value())?;
        Ok(Function::Covariance { input, sample, bounds: self.bounds()? })
    }

    fn edge(&self, last: bool) -> Result<Function, QueryError> {
        let input = self.expr(self.function.value())?;
        Ok(Function::Edge { input, last, bounds: self.bounds()? })
    }

    fn min_max_scaler(&self) -> Result<Function, QueryError> {
        static SPEC: Fields = Fields::new(
            "root.$minMaxScaler",
            &[field("input", Takes::Any), field("min", Takes::Any), field("max", Takes::Any)],
        );
        let [input, low, high] = SPEC.read(self.function.value())?;
        let input = input.ok_or_else(|| SPEC.missing("input"))?;
        let (low, high) = match (low, high) {
            (None, None) => (Value::Int32(0).into(), Value::Int32(1).into()),
            (Some(low), Some(high)) => {
                let constant = |name: &str, value: Value<'_>| match self.expr(value)?.constant()? {
                    Some(value) if value.get().is_number() => Ok(value),
                    Some(_) => {
                        refuse(format!("'{name}' argument to $minMaxScaler must be a numeric"))
                    }
                    None => {
                        refuse(format!("'{name}' argument to $minMaxScaler must be a constant"))
                    }
                };
                (constant("min", low)?, constant("max", high)?)
            }
            _ => {
                return refuse(
                    "Only one of 'min' and 'max' were specified as an argument to $minMaxScaler. \
                     Neither or both must be specified",
                );
            }
        };
        if compare_values(low.get(), high.get(), None).is_ge() {
            return refuse(
                "the 'max' must be strictly greater than 'min', as arguments to $minMaxScaler",
            );
        }
        let input = self.expr(input)?;
        let bounds = self.bounds()?;
        bounds.check_holds_current("$minMaxScaler")?;
        Ok(Function::MinMaxScaler { input, low, high, bounds })
    }

    fn accumulator(&self, kind: Kind) -> Result<Function, QueryError> {
        let count_takes_more = self.function.key == b"$count"
            && !matches!(self.function.value(), Value::Document(doc)
                if Elements::of_bytes(doc).next().is_none());
        if count_takes_more {
            return refuse("$count only accepts an empty object as input");
        }
        let spec =
            Spec::of(b"", self.function.key, self.function.value(), &mut self.cx.scope.clone())?;
        Ok(Function::Accumulator { spec, kind, bounds: self.bounds()? })
    }
}

/// `N` of `$expMovingAvg`: mongod rounds a number outside of the range of long to the nearest long, and does not
/// accept a decimal below one as an integer.
fn whole(n: Value<'_>) -> Option<i64> {
    match n {
        Value::Double(n) if n.is_nan() => Some(0),
        Value::Decimal(n) if n.is_nan() => Some(0),
        #[allow(clippy::cast_possible_truncation, reason = "it saturates")]
        Value::Double(n) => (n.trunc() == n).then_some(n as i64),
        Value::Decimal(_) => integer("", n).ok().filter(|n| *n > 0),
        _ => integer("", n).ok(),
    }
}
