//! The stages by name.

use super::{
    Parsed, StageContext, bucket, densify, facet, fill, geo_near, graph, group, join, outside, raw,
    simple, unpack, unwind, window, write,
};
use crate::{
    Release,
    error::QueryError,
    exec::{Project, Stage},
    expression::check_levels,
    matcher::{Matcher, operands},
    projection::Projection,
    sort::SortPattern,
    value::Value,
};

type Outcome = Result<Parsed, QueryError>;
pub(super) type Parse = fn(Value<'_>, &StageContext) -> Outcome;

/// A stage: its name and how it is parsed.
#[derive(Debug)]
pub struct Row {
    /// The name, with its dollar.
    pub name: &'static str,
    parse: Parse,
}

/// The stages of the language, sorted by name.
pub static STAGES: &[Row] = &[
    Row { name: "$_internalUnpackBucket", parse: unpack::parse },
    Row { name: "$_unpackBucket", parse: unpack::parse_short },
    Row { name: "$addFields", parse: |v, cx| add_fields("$addFields", v, cx) },
    Row { name: "$bucket", parse: bucket::parse },
    Row { name: "$bucketAuto", parse: bucket::parse_auto },
    Row { name: "$collStats", parse: outside::parse_coll_stats },
    Row { name: "$count", parse: group::parse_count },
    Row { name: "$currentOp", parse: outside::parse_current_op },
    Row { name: "$densify", parse: densify::parse },
    Row { name: "$documents", parse: simple::parse_documents },
    Row { name: "$facet", parse: facet::parse_facet },
    Row { name: "$fill", parse: fill::parse },
    Row { name: "$geoNear", parse: geo_near::parse },
    Row { name: "$graphLookup", parse: graph::parse },
    Row { name: "$group", parse: group::parse },
    Row { name: "$indexStats", parse: outside::parse_index_stats },
    Row { name: "$limit", parse: limit },
    Row { name: "$listCatalog", parse: outside::parse_list_catalog },
    Row { name: "$listClusterCatalog", parse: outside::parse_list_cluster_catalog },
    Row { name: "$listLocalSessions", parse: outside::parse_list_local_sessions },
    Row { name: "$listSampledQueries", parse: outside::parse_list_sampled_queries },
    Row { name: "$listSessions", parse: outside::parse_list_sessions },
    Row { name: "$lookup", parse: join::parse_lookup },
    Row { name: "$match", parse: matching },
    Row { name: "$merge", parse: write::parse_merge },
    Row { name: "$out", parse: write::parse_out },
    Row { name: "$planCacheStats", parse: outside::parse_plan_cache_stats },
    Row { name: "$project", parse: project },
    Row { name: "$querySettings", parse: outside::parse_query_settings },
    Row { name: "$queryStats", parse: outside::parse_query_stats },
    Row { name: "$redact", parse: simple::parse_redact },
    Row { name: "$replaceRoot", parse: simple::parse_replace_root },
    Row { name: "$replaceWith", parse: simple::parse_replace_with },
    Row { name: "$sample", parse: simple::parse_sample },
    Row { name: "$set", parse: |v, cx| add_fields("$set", v, cx) },
    Row { name: "$setWindowFields", parse: window::parse },
    Row { name: "$skip", parse: skip },
    Row { name: "$sort", parse: sort },
    Row { name: "$sortByCount", parse: group::parse_sort_by_count },
    Row { name: "$unionWith", parse: join::parse_union_with },
    Row { name: "$unset", parse: unset },
    Row { name: "$unwind", parse: unwind::parse },
];

/// Stages that mongod has and we don't yet: a clear refusal instead of "unrecognized".
const NOT_YET: &[&str] = &["$rankFusion", "$score", "$scoreFusion"];

/// mongod's words for stages that need a search server beside it.
fn search_stage(name: &[u8]) -> Option<QueryError> {
    const WHERE: &str = "For more information on how to connect, see \
                         https://dochub.mongodb.org/core/atlas-cli-deploy-local-reqs.";
    let what = match name {
        b"$search" | b"$searchMeta" | b"$vectorSearch" => {
            "Using $search and $vectorSearch aggregation stages requires additional configuration. \
             Please connect to Atlas or an AtlasCLI local deployment to enable."
        }
        b"$listSearchIndexes" => {
            "Using Atlas Search Database Commands and the $listSearchIndexes aggregation stage \
             requires additional configuration. Please connect to Atlas or an AtlasCLI local \
             deployment to enable. "
        }
        _ => return None,
    };
    Some(QueryError::location(31_082, format!("{what}{WHERE}")))
}

/// How the stage of this name is parsed.
pub(super) fn named(name: &[u8], release: Release) -> Result<Parse, QueryError> {
    let shown = String::from_utf8_lossy(name);
    let unknown =
        || QueryError::location(40_324, format!("Unrecognized pipeline stage name: '{shown}'"));
    if !crate::release::has_stage(release, name) {
        return Err(unknown());
    }
    // Before it was there for all, it was there for mongod itself.
    if name == b"$documents" && release < Release::V6_0 {
        return Err(match release < Release::V5_0 {
            true => QueryError::location(
                5_858_204,
                "Must set 'enableSearchMeta' to true to use '$documents'",
            ),
            false => QueryError::location(5_491_300, "$documents' is not allowed in user requests"),
        });
    }
    if let Ok(at) = STAGES.binary_search_by(|row| row.name.as_bytes().cmp(name))
        && let Some(row) = STAGES.get(at)
    {
        return Ok(row.parse);
    }
    if name == b"$changeStream" {
        return Err(QueryError::location(
            40_573,
            "The $changeStream stage is only supported on replica sets",
        ));
    }
    if name == b"$changeStreamSplitLargeEvent" {
        return Err(QueryError::new(
            protocol::ErrorCode::IllegalOperation,
            "$changeStreamSplitLargeEvent can only be used in a $changeStream pipeline",
        ));
    }
    if name == b"$shardedDataDistribution" {
        return Err(QueryError::location(
            6_789_101,
            "The $shardedDataDistribution stage can only be run on router",
        ));
    }
    if let Some(refusal) = search_stage(name) {
        return Err(refusal);
    }
    if NOT_YET.contains(&&*shown) {
        return Err(QueryError::location(
            115,
            format!("The {shown} stage is not supported by this server yet"),
        ));
    }
    Err(unknown())
}

pub(super) fn one(stage: impl Stage + 'static) -> Outcome {
    Ok(Parsed::Other(vec![Box::new(stage)]))
}

pub(super) fn in_stage(name: &str, error: QueryError) -> QueryError {
    // That there are no scores is found out later, when the pipeline is looked at as a whole.
    if error.code.code() == crate::expression::NO_SCORES {
        return error;
    }
    QueryError { message: format!("Invalid {name} :: caused by :: {}", error.message), ..error }
}

fn add_fields(name: &str, value: Value<'_>, cx: &StageContext) -> Outcome {
    let Value::Document(doc) = value else {
        return Err(QueryError::location(
            40_272,
            format!("{name} specification stage must be an object, got {}", value.type_name()),
        ));
    };
    let parsed = Projection::parse_add_fields(raw(doc)?, &cx.scope);
    one(Project(parsed.map_err(|e| in_stage(name, e))?))
}

fn project(value: Value<'_>, cx: &StageContext) -> Outcome {
    let Value::Document(doc) = value else {
        return Err(QueryError::location(15_969, "$project specification must be an object"));
    };
    let parsed = Projection::parse_project(raw(doc)?, &cx.scope).map_err(|error| {
        let name = error.message.strip_prefix("Unrecognized expression '");
        match name.and_then(|name| name.strip_suffix('\'')) {
            Some(name) => QueryError::location(31_325, format!("Unknown expression {name}")),
            None => error,
        }
    });
    let parsed = parsed.map_err(|e| in_stage("$project", e))?;
    check_levels(value)?;
    one(Project(parsed))
}

fn unset(value: Value<'_>, _: &StageContext) -> Outcome {
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

fn matching(value: Value<'_>, cx: &StageContext) -> Outcome {
    let Value::Document(doc) = value else {
        return Err(QueryError::location(
            15_959,
            "the match filter must be an expression in an object",
        ));
    };
    let filter = Matcher::parse_within(raw(doc)?, &cx.parse, &cx.scope).map_err(|error| {
        // JavaScript has no place in a pipeline, whether there is an engine for it or not.
        match error.message.starts_with("no globalScriptEngine") {
            true => QueryError::bad_value("$where is not allowed in this context"),
            false => error,
        }
    })?;
    if filter.near().is_some() {
        return Err(geo_near::not_here());
    }
    Ok(Parsed::Match(filter))
}

fn sort(value: Value<'_>, cx: &StageContext) -> Outcome {
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

fn limit(value: Value<'_>, _: &StageContext) -> Outcome {
    let n = whole("$limit", 5_107_201, value)?;
    if n == 0 {
        return Err(QueryError::location(15_958, "the limit must be positive"));
    }
    Ok(Parsed::Limit(n))
}

fn skip(value: Value<'_>, _: &StageContext) -> Outcome {
    whole("$skip", 5_107_200, value).map(Parsed::Skip)
}

fn whole(name: &str, code: i32, value: Value<'_>) -> Result<u64, QueryError> {
    let refused = |why: String| {
        QueryError::location(code, format!("invalid argument to {name} stage: {why}"))
    };
    let n = operands::integer(name, value).map_err(refused)?;
    u64::try_from(n).map_err(|_| {
        refused(format!(
            "Expected a non-negative number in: {name}: {}",
            crate::value::Shown(value)
        ))
    })
}
