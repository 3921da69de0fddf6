//! Stages that find also has, or that are little more than a projection.

use protocol::Release;

use super::{Parsed, StageContext, geo_near, raw};
use crate::{
    error::QueryError,
    exec::{Project, Stage},
    expression::check_levels,
    matcher::{Matcher, NO_JAVASCRIPT, operands},
    projection::Projection,
    sort::SortPattern,
    value::Value,
};

type Outcome = Result<Parsed, QueryError>;

pub(super) fn one(stage: impl Stage + 'static) -> Outcome {
    Ok(Parsed::Other(vec![Box::new(stage)]))
}

pub(super) fn in_stage(name: &str, error: QueryError) -> QueryError {
    // Missing scores are reported later, when the whole pipeline is checked.
    if error.code.code() == crate::expression::NO_SCORES {
        return error;
    }
    QueryError { message: format!("Invalid {name} :: caused by :: {}", error.message), ..error }
}

pub(super) fn add_fields(name: &str, value: Value<'_>, cx: &StageContext) -> Outcome {
    let Value::Document(doc) = value else {
        return Err(QueryError::location(
            40_272,
            format!("{name} specification stage must be an object, got {}", value.type_name()),
        ));
    };
    let parsed = Projection::parse_add_fields(raw(doc)?, &cx.scope);
    one(Project(parsed.map_err(|e| in_stage(name, e))?))
}

pub(super) fn project(value: Value<'_>, cx: &StageContext) -> Outcome {
    let Value::Document(doc) = value else {
        return Err(QueryError::location(15_969, "$project specification must be an object"));
    };
    let parsed = Projection::parse_project(raw(doc)?, &cx.scope.clone().of_project());
    let parsed = parsed.map_err(|e| in_stage("$project", e))?;
    check_levels(value)?;
    one(Project(parsed))
}

pub(super) fn unset(value: Value<'_>, _: &StageContext) -> Outcome {
    let name = |value: Value<'_>| match value {
        Value::String(name) => Ok(name.to_vec()),
        _ => Err(QueryError::location(
            31_120,
            "$unset specification must be a string or an array containing only string values",
        )),
    };
    let names = match value {
        Value::Array(_) => {
            let names: Result<Vec<_>, _> = value.elements().map(|e| name(e.value())).collect();
            let names = names?;
            if names.is_empty() {
                return Err(QueryError::location(
                    31_119,
                    "$unset specification must be a string or an array with at least one field",
                ));
            }
            names
        }
        Value::String(_) => vec![name(value)?],
        _ => {
            return Err(QueryError::location(
                31_002,
                "$unset specification must be a string or an array",
            ));
        }
    };
    let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    for name in &names {
        crate::field_path::check(name).map_err(|e| in_stage("$unset", e))?;
    }
    one(Project(Projection::parse_unset(&names).map_err(|e| in_stage("$unset", e))?))
}

pub(super) fn matching(value: Value<'_>, cx: &StageContext) -> Outcome {
    let Value::Document(doc) = value else {
        return Err(QueryError::location(
            15_959,
            "the match filter must be an expression in an object",
        ));
    };
    let filter = Matcher::parse_within(raw(doc)?, &cx.parse, &cx.scope).map_err(|error| {
        // JavaScript is not allowed in a pipeline, whether it is enabled or not.
        match error.code.code() {
            NO_JAVASCRIPT => QueryError::bad_value("$where is not allowed in this context"),
            _ => error,
        }
    })?;
    if filter.near().is_some() {
        return Err(geo_near::not_here());
    }
    Ok(Parsed::Match(filter))
}

pub(super) fn sort(value: Value<'_>, cx: &StageContext) -> Outcome {
    let Value::Document(doc) = value else {
        return Err(QueryError::location(15_973, "the $sort key specification must be an object"));
    };
    let collator = cx.parse.collator.clone();
    let pattern = SortPattern::parse_scored(raw(doc)?, collator, &|| cx.scope.wish_scores())?;
    if pattern.parts.is_empty() {
        return Err(QueryError::location(15_976, "$sort stage must have at least one sort key"));
    }
    Ok(Parsed::Sort(pattern))
}

pub(super) fn limit(value: Value<'_>, _: &StageContext) -> Outcome {
    let n = whole("$limit", (5_107_201, 15_957), value)?;
    if n == 0 {
        return Err(QueryError::location(15_958, "the limit must be positive"));
    }
    Ok(Parsed::Limit(n))
}

pub(super) fn skip(value: Value<'_>, _: &StageContext) -> Outcome {
    whole("$skip", (5_107_200, 15_972), value).map(Parsed::Skip)
}

/// Parses a non-negative integer; `codes` are the current error code and that of 4.4.
fn whole(name: &str, codes: (i32, i32), value: Value<'_>) -> Result<u64, QueryError> {
    let refused = |why: String| {
        QueryError::location(codes.0, format!("invalid argument to {name} stage: {why}"))
            .until(Release::V4_4, codes.1)
    };
    let n = operands::integer(name, value).map_err(refused)?;
    u64::try_from(n).map_err(|_| {
        refused(format!(
            "Expected a non-negative number in: {name}: {}",
            crate::value::Shown(value)
        ))
    })
}
