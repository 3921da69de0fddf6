//! Parses `$densify`.

use std::collections::HashMap;

use super::{Densify, NAME, Step, Within};
use crate::{
    error::QueryError,
    exec::Sort,
    expression::{Expr, unit_named},
    field_path,
    matcher::operands::integer,
    sort::{SortPart, SortPattern},
    stage::{
        Parsed, StageContext, fill,
        spec::{self, Spec, Takes, field},
    },
    value::{Value, compare_values, path::Path},
};

static SPEC: Spec = Spec::new(
    NAME,
    &[
        field("field", Takes::String).or_null(),
        field("partitionByFields", Takes::Strings).or_null(),
        field("range", Takes::Spec(&RANGE)).or_null(),
    ],
)
.not_object(9, "The {stage} stage specification must be an object, found {type}");

static RANGE: Spec = Spec::new(
    "$densify.range",
    &[
        field("step", Takes::Number).or_null(),
        field("bounds", Takes::Any),
        field("unit", Takes::String).or_null(),
    ],
);

/// Parses `$densify`.
pub(in crate::stage) fn parse(value: Value<'_>, cx: &StageContext) -> Result<Parsed, QueryError> {
    let [field, names, range] = SPEC.read(value)?;
    let field = spec::string(field).ok_or_else(|| SPEC.missing("field"))?;
    let range = range.ok_or_else(|| SPEC.missing("range"))?;
    let names = names.map(spec::strings).unwrap_or_default();
    let (step, within) = parse_range(range)?;
    field_path::check(field)?;
    check_names(field, &names)?;
    if matches!(within, Within::Partition) && names.is_empty() {
        return Err(QueryError::location(
            5_733_408,
            "One cannot specify the bounds as 'partition' without specifying a non-empty array of \
             partitionByFields. You may have meant to specify 'full' bounds.",
        ));
    }
    let partition = match names.as_slice() {
        [] => None,
        names => {
            let expr = fill::partition_of(names)?;
            Some(Expr::parse(Value::Document(&expr), &mut cx.scope.clone())?)
        }
    };
    // With 'full' all partitions are processed together, in the order of the field.
    let by_partition = if matches!(within, Within::Full) { &[][..] } else { names.as_slice() };
    let paths = by_partition.iter().map(|name| &**name).chain([field]);
    let parts =
        paths.map(|path| SortPart { path: Path::new(path), ascending: true, note: None }).collect();
    let pattern = SortPattern { parts, collator: cx.parse.collator.clone() };
    let densify = Densify {
        field: field.split(|b| *b == b'.').map(Box::from).collect(),
        partition,
        step,
        within,
        collator: cx.parse.collator.clone(),
        begun: false,
        seen: HashMap::new(),
        order: Vec::new(),
        least: None,
        greatest: None,
        making: None,
        rest: None,
        made: 0,
    };
    Ok(Parsed::Other(vec![Box::new(Sort::new(pattern, None)), Box::new(densify)]))
}

fn check_names(field: &[u8], names: &[Box<[u8]>]) -> Result<(), QueryError> {
    let within = |outer: &[u8], inner: &[u8]| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
    };
    for name in names {
        field_path::check(name)?;
        let (shown, field_shown) = (String::from_utf8_lossy(name), String::from_utf8_lossy(field));
        if within(field, name) {
            return Err(QueryError::location(
                8_993_000,
                format!(
                    "partitionByFields '{shown}' cannot include field '{field_shown}' that is \
                     being densified."
                ),
            ));
        }
        if within(name, field) {
            return Err(QueryError::location(
                9_554_500,
                format!(
                    "field '{field_shown}' that is being densified cannot include \
                     partitionByFields '{shown}'."
                ),
            ));
        }
    }
    Ok(())
}

fn no_bounds() -> QueryError {
    QueryError::location(
        5_733_404,
        "The bounds in a range statement must be the string 'full', 'partition', or an ascending \
         array of two numbers or two dates",
    )
}

fn parse_range(range: Value<'_>) -> Result<(Step, Within), QueryError> {
    let [step, bounds, unit] = RANGE.read(range)?;
    let unit = spec::string(unit).map(|name| {
        unit_named(name).ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            QueryError::failed_to_parse(format!("unknown time unit value: {name}"))
        })
    });
    let unit = unit.transpose()?;
    let bounds = bounds.ok_or_else(|| RANGE.missing("bounds"))?;
    let step = step.ok_or_else(|| RANGE.missing("step"))?;
    if !compare_values(step, Value::Int32(0), None).is_gt() {
        return Err(QueryError::location(
            5_733_401,
            "The step parameter in a range statement must be a strictly positive numeric value",
        ));
    }
    if unit.is_some() && integer("", step).is_err() {
        return Err(QueryError::location(
            6_586_400,
            "The step parameter in a range statement must be a whole number when densifying a \
             date range",
        ));
    }
    let within = match bounds {
        Value::Array(_) => explicit(bounds, unit.is_some())?,
        Value::String(b"full") => Within::Full,
        Value::String(b"partition") => Within::Partition,
        Value::String(_) => {
            return Err(QueryError::location(
                5_946_802,
                "Bounds string must either be 'full' or 'partition'",
            ));
        }
        _ => return Err(no_bounds()),
    };
    if let Within::Explicit(low, high) = &within
        && unit.is_none()
        && [low, high].iter().any(|end| end.get().type_byte() != step.type_byte())
    {
        return Err(QueryError::location(
            5_876_900,
            "Upper bound, lower bound, and step must all have the same type",
        ));
    }
    Ok((Step { by: step.into(), unit }, within))
}

fn explicit(bounds: Value<'_>, has_unit: bool) -> Result<Within, QueryError> {
    let mut ends = bounds.elements().map(|e| e.value());
    let (Some(low), Some(high), None) = (ends.next(), ends.next(), ends.next()) else {
        return Err(QueryError::location(
            5_733_403,
            "A bounding array in a range statement must have exactly two elements",
        ));
    };
    let fault = |code, text: &str| Err(QueryError::location(code, text));
    if compare_values(low, high, None).is_gt() {
        return fault(
            5_733_402,
            "A bounding array must be an ascending array of either two dates or two numbers",
        );
    }
    match low {
        Value::Date(_) if !has_unit => {
            fault(5_733_410, "A bounding array of dates must specify a unit")
        }
        _ if low.is_number() && has_unit => {
            fault(5_733_409, "Numeric bounds may not have unit parameter")
        }
        _ if low.is_number() == high.is_number()
            && (low.is_number() || matches!((low, high), (Value::Date(_), Value::Date(_)))) =>
        {
            Ok(Within::Explicit(low.into(), high.into()))
        }
        _ if low.is_number() || matches!(low, Value::Date(_)) => fault(
            5_733_406,
            "A bounding array must contain either both dates or both numeric types",
        ),
        _ => fault(5_946_800, "Explicit bounds must be numeric or dates"),
    }
}
