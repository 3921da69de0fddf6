//! Stages whose documents the server provides.
//!
//! They are parsed here; [`crate::context::Collections::outside`] provides their documents.

use protocol::ErrorCode;

use super::{
    Parsed, StageContext,
    row::{Place, RunsOver, StageRow},
    spec::{Field, Spec, Takes, field, wrong_type},
};
use crate::{
    error::QueryError,
    exec::{Noted, Stage, Upstream},
    value::{Elements, Value},
};

/// What a pipeline runs over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Over {
    /// The output of the enclosing stage.
    #[default]
    Part,
    /// The collection or view with this name.
    Collection(String),
    /// No collection: `{aggregate: 1}`.
    Nothing,
}

/// Placeholder for a stage that the server should have removed from the pipeline; running it fails.
#[derive(Debug)]
pub(super) struct Refused(pub(super) &'static str);

impl Stage for Refused {
    fn next(&mut self, _: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        Err(not_supported(self.0))
    }
}

/// The error for an unsupported stage.
pub(super) fn not_supported(name: &str) -> QueryError {
    QueryError::location(115, format!("The {name} stage is not supported by this server yet"))
}

/// mongod's error for stages that need a search server.
pub(super) fn no_search(_: &str) -> QueryError {
    search_refused(
        "Using $search and $vectorSearch aggregation stages requires additional configuration. \
         Please connect to Atlas or an AtlasCLI local deployment to enable.",
    )
}

pub(super) fn no_search_indexes(_: &str) -> QueryError {
    search_refused(
        "Using Atlas Search Database Commands and the $listSearchIndexes aggregation stage \
         requires additional configuration. Please connect to Atlas or an AtlasCLI local \
         deployment to enable. ",
    )
}

fn search_refused(why: &str) -> QueryError {
    QueryError::location(
        31_082,
        format!(
            "{why}For more information on how to connect, see \
             https://dochub.mongodb.org/core/atlas-cli-deploy-local-reqs."
        ),
    )
}

/// Refuses a stage in a wrong position.
pub(super) fn check_places(
    stages: impl ExactSizeIterator<Item = &'static StageRow>,
) -> Result<(), QueryError> {
    let last = stages.len().saturating_sub(1);
    for (at, row) in stages.enumerate() {
        let (code, why) = match row.place {
            Place::First if at > 0 => (40_602, "is only valid as the first stage in a pipeline"),
            Place::Last if at < last => (40_601, "can only be the final stage in the pipeline"),
            _ => continue,
        };
        return Err(QueryError::location(code, format!("{} {why}", row.name)));
    }
    Ok(())
}

fn not_here(text: impl Into<String>) -> Result<(), QueryError> {
    Err(QueryError::new(ErrorCode::InvalidNamespace, text))
}

/// Checks that a stage runs on `admin` without a collection.
pub(super) fn on_admin(row: &StageRow, db: &str, over: &Over) -> Result<(), QueryError> {
    if db == "admin" && *over == Over::Nothing {
        return Ok(());
    }
    not_here(format!("{} must be run against the 'admin' database with {{aggregate: 1}}", row.name))
}

/// Checks that a stage runs on a collection, or on `admin` for all collections.
pub(super) fn catalog_on_admin(row: &StageRow, db: &str, over: &Over) -> Result<(), QueryError> {
    if db == "admin" || *over != Over::Nothing {
        return Ok(());
    }
    not_here(format!(
        "Collectionless {} must be run against the 'admin' database with {{aggregate: 1}}",
        row.name
    ))
}

/// Checks that a stage runs on a database without a collection.
pub(super) fn on_database(row: &StageRow, _: &str, over: &Over) -> Result<(), QueryError> {
    if *over == Over::Nothing {
        return Ok(());
    }
    let text = format!("The {} stage must run on a database, not a collection.", row.name);
    Err(QueryError::location(9_621_301, text))
}

/// The same for an older stage, with a different error text.
pub(super) fn on_no_collection(row: &StageRow, _: &str, over: &Over) -> Result<(), QueryError> {
    if *over == Over::Nothing {
        return Ok(());
    }
    not_here(format!(
        "{} must be run against the database with {{aggregate: 1}}, not a collection",
        row.name
    ))
}

/// Checks that a stage runs on the sessions collection.
pub(super) fn on_sessions(row: &StageRow, db: &str, over: &Over) -> Result<(), QueryError> {
    match over {
        Over::Collection(name) if db == "config" && name == "system.sessions" => Ok(()),
        _ => not_here(format!("{} may only be run against config.system.sessions", row.name)),
    }
}

/// Some first stages provide documents; the others need a collection.
pub(super) fn check_first(first: Option<&'static StageRow>, over: &Over) -> Result<(), QueryError> {
    match (first, over) {
        (Some(row), Over::Collection(_)) if row.runs_over == RunsOver::Nothing => {
            not_here(format!("'{}' can only be run with {{aggregate: 1}}", row.name))
        }
        (Some(row), Over::Nothing) if row.runs_over == RunsOver::Collection => not_here(format!(
            "{{aggregate: 1}} is not valid for '{}'; a collection is required.",
            row.name
        )),
        (None, Over::Nothing) => not_here("{aggregate: 1} is not valid for an empty pipeline."),
        _ => Ok(()),
    }
}

const NOT_BOOL: &str = "Field '{field}' should be a boolean value, but found: {type}";

static COLL_STATS: Spec = Spec::new(
    "$collStats",
    &[
        field("latencyStats", Takes::Spec(&LATENCY_STATS)),
        field("storageStats", Takes::Object),
        field("count", Takes::Object),
        field("queryExecStats", Takes::Object),
        field("operationStats", Takes::Object),
    ],
)
.not_object(5_447_000, "{stage} must take a nested object but found: {stage}: {shown}");

static LATENCY_STATS: Spec = Spec::new(
    "$collStats.latencyStats",
    &[field("histograms", Takes::Bool).otherwise(14, NOT_BOOL)],
);

pub(super) fn parse_coll_stats(value: Value<'_>, _: &StageContext) -> Result<Parsed, QueryError> {
    COLL_STATS.each(value, |name, value| match name {
        "latencyStats" => Ok(()),
        "storageStats" => {
            value.elements().find(b"scale").map_or(Ok(()), |scale| check_scale(scale.value()))
        }
        _ if value.elements().next().is_some() => Err(QueryError::location(
            31_170,
            format!("expected an empty object, but got {}", crate::value::Shown(value)),
        )),
        _ => Ok(()),
    })?;
    Ok(Parsed::Outside("$collStats"))
}

fn check_scale(scale: Value<'_>) -> Result<(), QueryError> {
    if !scale.is_number() {
        let expected = "types '[decimal, double, long, int]'";
        return Err(wrong_type("$collStats.storageStats", b"scale", scale, expected));
    }
    match crate::matcher::operands::integer("scale", scale) {
        Ok(n) if n < 1 => Err(QueryError::bad_value(format!(
            "BSON field 'scale' value must be >= 1, actual value '{n}'"
        ))),
        _ => Ok(()),
    }
}

/// Parses a stage that accepts only `{}`.
fn empty(name: &'static str, code: i32, value: Value<'_>) -> Result<Parsed, QueryError> {
    match value {
        Value::Document(doc) if Elements::of_bytes(doc).next().is_none() => {
            Ok(Parsed::Outside(name))
        }
        _ => Err(QueryError::location(
            code,
            format!("The {name} stage specification must be an empty object"),
        )),
    }
}

pub(super) fn parse_index_stats(value: Value<'_>, _: &StageContext) -> Result<Parsed, QueryError> {
    empty("$indexStats", 28_803, value)
}

pub(super) fn parse_list_catalog(value: Value<'_>, _: &StageContext) -> Result<Parsed, QueryError> {
    empty("$listCatalog", 6_200_600, value)
}

static PLAN_CACHE_STATS: Spec = Spec::new(
    "$planCacheStats",
    &[field("allHosts", Takes::Bool)
        .otherwise(9, "{field} parameter of {stage} must be a boolean value. Found: {type}")],
)
.not_object(9, "{stage} value must be an object. Found: {type}")
.unknown(9, "{stage} parameters object may contain only 'allHosts' field. Found: {field}");

pub(super) fn parse_plan_cache_stats(
    value: Value<'_>,
    _: &StageContext,
) -> Result<Parsed, QueryError> {
    let [all_hosts] = PLAN_CACHE_STATS.read(value)?;
    if let Some(Value::Bool(true)) = all_hosts {
        let text = "$planCacheStats stage supports allHosts parameter only for sharded clusters";
        return Err(QueryError::location(4_503_200, text));
    }
    Ok(Parsed::Outside("$planCacheStats"))
}

const OPTIONS: &str = "{stage} options must be specified in an object, but found: {type}";
const CURRENT_OP_BOOL: &str =
    "The '{field}' parameter of the {stage} stage must be a boolean value, but found: {type}";

static CURRENT_OP: Spec = Spec::new(
    "$currentOp",
    &[
        field("allUsers", Takes::Bool).otherwise(14, CURRENT_OP_BOOL),
        field("localOps", Takes::Bool).otherwise(14, CURRENT_OP_BOOL),
        field("truncateOps", Takes::Bool).otherwise(14, CURRENT_OP_BOOL),
        field("idleConnections", Takes::Bool).otherwise(14, NOT_BOOL),
        field("idleCursors", Takes::Bool).otherwise(14, NOT_BOOL),
        field("idleSessions", Takes::Bool).otherwise(14, NOT_BOOL),
        field("targetAllNodes", Takes::Bool).otherwise(14, NOT_BOOL),
    ],
)
.not_object(14, OPTIONS);

pub(super) fn parse_current_op(value: Value<'_>, _: &StageContext) -> Result<Parsed, QueryError> {
    CURRENT_OP.check(value)?;
    Ok(Parsed::Outside("$currentOp"))
}

static LIST_CLUSTER_CATALOG: Spec = Spec::new(
    "$listClusterCatalog",
    &[
        field("shards", Takes::Bool).otherwise(14, NOT_BOOL),
        field("balancingConfiguration", Takes::Bool).otherwise(14, NOT_BOOL),
        field("tracked", Takes::Bool).otherwise(14, NOT_BOOL),
    ],
)
.not_object(9_621_302, "{stage} must take an object but found: {stage}: {shown}");

pub(super) fn parse_list_cluster_catalog(
    value: Value<'_>,
    _: &StageContext,
) -> Result<Parsed, QueryError> {
    LIST_CLUSTER_CATALOG.check(value)?;
    Ok(Parsed::Outside("$listClusterCatalog"))
}

/// mongod checks only one field here.
pub(super) fn parse_list_sampled_queries(
    value: Value<'_>,
    _: &StageContext,
) -> Result<Parsed, QueryError> {
    const NAME: &str = "$listSampledQueries";
    let Value::Document(doc) = value else {
        let shown = crate::value::Shown(value);
        let text = format!("{NAME} must take a nested object but found: {NAME}: {shown}");
        return Err(QueryError::location(6_876_000, text));
    };
    match Elements::of_bytes(doc).find(b"namespace").map(|field| field.value()) {
        None | Some(Value::String(_)) => Ok(Parsed::Outside(NAME)),
        Some(other) => Err(wrong_type(NAME, b"namespace", other, "type 'string'")),
    }
}

static QUERY_SETTINGS: Spec = Spec::new(
    "$querySettings",
    &[field("showDebugQueryShape", Takes::Bool).otherwise(14, NOT_BOOL)],
)
.not_object(7_746_800, "{stage} stage expects a document as argument");

pub(super) fn parse_query_settings(
    value: Value<'_>,
    _: &StageContext,
) -> Result<Parsed, QueryError> {
    QUERY_SETTINGS.check(value)?;
    Ok(Parsed::Outside("$querySettings"))
}

static QUERY_STATS: Spec =
    Spec::new("$queryStats", &[field("transformIdentifiers", Takes::Object)])
        .not_object(9, "{stage} value must be an object. Found: {type}");

pub(super) fn parse_query_stats(value: Value<'_>, _: &StageContext) -> Result<Parsed, QueryError> {
    QUERY_STATS.check(value)?;
    Ok(Parsed::Outside("$queryStats"))
}

const SESSIONS: &[Field] = &[field("allUsers", Takes::Bool), field("users", Takes::Array)];

pub(super) fn parse_list_sessions(
    value: Value<'_>,
    _: &StageContext,
) -> Result<Parsed, QueryError> {
    static SPEC: Spec = Spec::new("$listSessions", SESSIONS).not_object(14, OPTIONS);
    SPEC.check(value)?;
    Ok(Parsed::Outside("$listSessions"))
}

pub(super) fn parse_list_local_sessions(
    value: Value<'_>,
    _: &StageContext,
) -> Result<Parsed, QueryError> {
    static SPEC: Spec = Spec::new("$listLocalSessions", SESSIONS).not_object(14, OPTIONS);
    SPEC.check(value)?;
    Ok(Parsed::Outside("$listLocalSessions"))
}
