//! Stages that need the server: those whose documents it knows.
//!
//! Here they are parsed and put in their place; [`crate::context::Collections::outside`] gives their documents.

use protocol::{ErrorCode, RawDoc};

use super::{
    Parsed, StageContext, idl,
    row::{Place, RunsOver, StageRow},
};
use crate::{
    error::QueryError,
    exec::{Stage, Upstream},
    value::{Elements, Value},
};

/// What a pipeline runs over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Over {
    /// What the stage gives that it is part of.
    #[default]
    Part,
    /// The collection or view of that name.
    Collection(String),
    /// `{aggregate: 1}`: nothing.
    Nothing,
}

/// Stands where a stage is that the server should have taken out of the pipeline.
#[derive(Debug)]
pub(super) struct Refused(pub(super) &'static str);

impl Stage for Refused {
    fn next(&mut self, _: &mut Upstream<'_, '_>) -> Result<Option<RawDoc>, QueryError> {
        Err(not_supported(self.0))
    }
}

/// A refusal by name.
pub(super) fn not_supported(name: &str) -> QueryError {
    QueryError::location(115, format!("The {name} stage is not supported by this server yet"))
}

/// mongod's words for stages that need a search server beside it.
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

/// Refuses a stage that stands where it must not.
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

/// A stage that runs on `admin`, over no collection.
pub(super) fn on_admin(row: &StageRow, db: &str, over: &Over) -> Result<(), QueryError> {
    if db == "admin" && *over == Over::Nothing {
        return Ok(());
    }
    not_here(format!("{} must be run against the 'admin' database with {{aggregate: 1}}", row.name))
}

/// A stage that runs over a collection, or over all of them on `admin`.
pub(super) fn catalog_on_admin(row: &StageRow, db: &str, over: &Over) -> Result<(), QueryError> {
    if db == "admin" || *over != Over::Nothing {
        return Ok(());
    }
    not_here(format!(
        "Collectionless {} must be run against the 'admin' database with {{aggregate: 1}}",
        row.name
    ))
}

/// A stage that runs on a database, over no collection.
pub(super) fn on_database(row: &StageRow, _: &str, over: &Over) -> Result<(), QueryError> {
    if *over == Over::Nothing {
        return Ok(());
    }
    let text = format!("The {} stage must run on a database, not a collection.", row.name);
    Err(QueryError::location(9_621_301, text))
}

/// The same of an older stage, with other words.
pub(super) fn on_no_collection(row: &StageRow, _: &str, over: &Over) -> Result<(), QueryError> {
    if *over == Over::Nothing {
        return Ok(());
    }
    not_here(format!(
        "{} must be run against the database with {{aggregate: 1}}, not a collection",
        row.name
    ))
}

/// A stage that runs over the collection of sessions.
pub(super) fn on_sessions(row: &StageRow, db: &str, over: &Over) -> Result<(), QueryError> {
    match over {
        Over::Collection(name) if db == "config" && name == "system.sessions" => Ok(()),
        _ => not_here(format!("{} may only be run against config.system.sessions", row.name)),
    }
}

/// Some stages bring documents, the others want a collection's.
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

fn must_be_bool(field: &[u8], value: Value<'_>) -> Result<(), QueryError> {
    match value {
        Value::Bool(_) => Ok(()),
        other => Err(QueryError::type_mismatch(format!(
            "Field '{}' should be a boolean value, but found: {}",
            String::from_utf8_lossy(field),
            other.type_name()
        ))),
    }
}

pub(super) fn parse_coll_stats(value: Value<'_>, _: &StageContext) -> Result<Parsed, QueryError> {
    const NAME: &str = "$collStats";
    let Value::Document(doc) = value else {
        return Err(QueryError::location(
            5_447_000,
            format!(
                "{NAME} must take a nested object but found: {NAME}: {}",
                crate::value::Shown(value)
            ),
        ));
    };
    for field in Elements::of_bytes(doc) {
        match field.key {
            b"latencyStats" => {
                for inner in Elements::of_bytes(idl::object(NAME, &field)?) {
                    match inner.key {
                        b"histograms" => must_be_bool(inner.key, inner.value())?,
                        other => return Err(idl::unknown("$collStats.latencyStats", other)),
                    }
                }
            }
            b"storageStats" => {
                for inner in Elements::of_bytes(idl::object(NAME, &field)?) {
                    if inner.key == b"scale" {
                        check_scale(inner.value())?;
                    }
                }
            }
            b"count" | b"queryExecStats" | b"operationStats" => {
                let inner = idl::object(NAME, &field)?;
                if Elements::of_bytes(inner).next().is_some() {
                    return Err(QueryError::location(
                        31_170,
                        format!(
                            "expected an empty object, but got {}",
                            crate::value::Shown(field.value())
                        ),
                    ));
                }
            }
            other => return Err(idl::unknown(NAME, other)),
        }
    }
    Ok(Parsed::Outside(NAME))
}

fn check_scale(scale: Value<'_>) -> Result<(), QueryError> {
    if !scale.is_number() {
        let expected = "types '[decimal, double, long, int]'";
        return Err(idl::wrong_type("$collStats.storageStats", b"scale", scale, expected));
    }
    match crate::matcher::operands::integer("scale", scale) {
        Ok(n) if n < 1 => Err(QueryError::bad_value(format!(
            "BSON field 'scale' value must be >= 1, actual value '{n}'"
        ))),
        _ => Ok(()),
    }
}

pub(super) fn parse_index_stats(value: Value<'_>, _: &StageContext) -> Result<Parsed, QueryError> {
    match value {
        Value::Document(doc) if Elements::of_bytes(doc).next().is_none() => {
            Ok(Parsed::Outside("$indexStats"))
        }
        _ => Err(QueryError::location(
            28_803,
            "The $indexStats stage specification must be an empty object",
        )),
    }
}

pub(super) fn parse_plan_cache_stats(
    value: Value<'_>,
    _: &StageContext,
) -> Result<Parsed, QueryError> {
    let Value::Document(doc) = value else {
        return Err(QueryError::failed_to_parse(format!(
            "$planCacheStats value must be an object. Found: {}",
            value.type_name()
        )));
    };
    if let Some(other) =
        Elements::of_bytes(doc).find_map(|f| (f.key != b"allHosts").then_some(f.key))
    {
        return Err(QueryError::failed_to_parse(format!(
            "$planCacheStats parameters object may contain only 'allHosts' field. Found: {}",
            String::from_utf8_lossy(other)
        )));
    }
    match Elements::of_bytes(doc).next().map(|field| field.value()) {
        None | Some(Value::Bool(false)) => Ok(Parsed::Outside("$planCacheStats")),
        Some(Value::Bool(true)) => Err(QueryError::location(
            4_503_200,
            "$planCacheStats stage supports allHosts parameter only for sharded clusters",
        )),
        Some(other) => Err(QueryError::failed_to_parse(format!(
            "allHosts parameter of $planCacheStats must be a boolean value. Found: {}",
            other.type_name()
        ))),
    }
}

pub(super) fn parse_current_op(value: Value<'_>, _: &StageContext) -> Result<Parsed, QueryError> {
    const NAME: &str = "$currentOp";
    let doc = options(NAME, value)?;
    for field in Elements::of_bytes(doc) {
        match (field.key, field.value()) {
            (b"allUsers" | b"localOps" | b"truncateOps", Value::Bool(_)) => {}
            (b"allUsers" | b"localOps" | b"truncateOps", other) => {
                return Err(QueryError::type_mismatch(format!(
                    "The '{}' parameter of the $currentOp stage must be a boolean value, but \
                     found: {}",
                    String::from_utf8_lossy(field.key),
                    other.type_name()
                )));
            }
            (b"idleConnections" | b"idleCursors" | b"idleSessions" | b"targetAllNodes", value) => {
                must_be_bool(field.key, value)?;
            }
            (other, _) => return Err(idl::unknown(NAME, other)),
        }
    }
    Ok(Parsed::Outside(NAME))
}

pub(super) fn parse_list_catalog(value: Value<'_>, _: &StageContext) -> Result<Parsed, QueryError> {
    match value {
        Value::Document(doc) if Elements::of_bytes(doc).next().is_none() => {
            Ok(Parsed::Outside("$listCatalog"))
        }
        _ => Err(QueryError::location(
            6_200_600,
            "The $listCatalog stage specification must be an empty object",
        )),
    }
}

pub(super) fn parse_list_cluster_catalog(
    value: Value<'_>,
    _: &StageContext,
) -> Result<Parsed, QueryError> {
    const NAME: &str = "$listClusterCatalog";
    let Value::Document(doc) = value else {
        return Err(QueryError::location(
            9_621_302,
            format!("{NAME} must take an object but found: {NAME}: {}", crate::value::Shown(value)),
        ));
    };
    for field in Elements::of_bytes(doc) {
        match field.key {
            b"shards" | b"balancingConfiguration" | b"tracked" => {
                must_be_bool(field.key, field.value())?;
            }
            other => return Err(idl::unknown(NAME, other)),
        }
    }
    Ok(Parsed::Outside(NAME))
}

pub(super) fn parse_list_sampled_queries(
    value: Value<'_>,
    _: &StageContext,
) -> Result<Parsed, QueryError> {
    const NAME: &str = "$listSampledQueries";
    let Value::Document(doc) = value else {
        return Err(QueryError::location(
            6_876_000,
            format!(
                "{NAME} must take a nested object but found: {NAME}: {}",
                crate::value::Shown(value)
            ),
        ));
    };
    if let Some(field) = Elements::of_bytes(doc).find(b"namespace") {
        idl::string(NAME, &field)?;
    }
    Ok(Parsed::Outside(NAME))
}

pub(super) fn parse_query_settings(
    value: Value<'_>,
    _: &StageContext,
) -> Result<Parsed, QueryError> {
    const NAME: &str = "$querySettings";
    let Value::Document(doc) = value else {
        return Err(QueryError::location(
            7_746_800,
            format!("{NAME} stage expects a document as argument"),
        ));
    };
    for field in Elements::of_bytes(doc) {
        match field.key {
            b"showDebugQueryShape" => must_be_bool(field.key, field.value())?,
            other => return Err(idl::unknown(NAME, other)),
        }
    }
    Ok(Parsed::Outside(NAME))
}

pub(super) fn parse_query_stats(value: Value<'_>, _: &StageContext) -> Result<Parsed, QueryError> {
    const NAME: &str = "$queryStats";
    let Value::Document(doc) = value else {
        return Err(QueryError::failed_to_parse(format!(
            "{NAME} value must be an object. Found: {}",
            value.type_name()
        )));
    };
    for field in Elements::of_bytes(doc) {
        match field.key {
            b"transformIdentifiers" => idl::object(NAME, &field).map(|_| ())?,
            other => return Err(idl::unknown(NAME, other)),
        }
    }
    Ok(Parsed::Outside(NAME))
}

pub(super) fn parse_list_sessions(
    value: Value<'_>,
    _: &StageContext,
) -> Result<Parsed, QueryError> {
    sessions("$listSessions", value)
}

pub(super) fn parse_list_local_sessions(
    value: Value<'_>,
    _: &StageContext,
) -> Result<Parsed, QueryError> {
    sessions("$listLocalSessions", value)
}

fn sessions(name: &'static str, value: Value<'_>) -> Result<Parsed, QueryError> {
    let doc = options(name, value)?;
    for field in Elements::of_bytes(doc) {
        match (field.key, field.value()) {
            (b"allUsers", Value::Bool(_)) | (b"users", Value::Array(_)) => {}
            (b"allUsers", other) => {
                return Err(idl::wrong_type(name, field.key, other, "type 'bool'"));
            }
            (b"users", other) => {
                return Err(idl::wrong_type(name, field.key, other, "type 'array'"));
            }
            (other, _) => return Err(idl::unknown(name, other)),
        }
    }
    Ok(Parsed::Outside(name))
}

fn options<'v>(name: &str, value: Value<'v>) -> Result<&'v [u8], QueryError> {
    match value {
        Value::Document(doc) => Ok(doc),
        other => Err(QueryError::type_mismatch(format!(
            "{name} options must be specified in an object, but found: {}",
            other.type_name()
        ))),
    }
}
