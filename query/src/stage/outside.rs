//! Stages that need the server: those whose documents it knows.
//!
//! Here they are parsed and put in their place; [`crate::context::Collections::outside`] gives their documents.

use bson::RawDocumentBuf;
use protocol::{ErrorCode, RawDoc};

use super::{Parsed, StageContext, idl, raw};
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

/// A stage that brings documents of the server's own.
#[derive(Debug, Clone)]
pub struct Outside {
    /// Its name, with the dollar.
    pub name: &'static str,
    /// What it was given, checked.
    pub spec: RawDocumentBuf,
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

/// Stages that must stand first, and those that must stand last.
pub(super) fn check_places(names: &[&[u8]]) -> Result<(), QueryError> {
    const FIRST: [&[u8]; 13] = [
        b"$collStats",
        b"$indexStats",
        b"$listCatalog",
        b"$listClusterCatalog",
        b"$listSampledQueries",
        b"$querySettings",
        b"$queryStats",
        b"$planCacheStats",
        b"$currentOp",
        b"$documents",
        b"$listSessions",
        b"$listLocalSessions",
        b"$geoNear",
    ];
    for (at, name) in names.iter().enumerate() {
        let shown = String::from_utf8_lossy(name);
        if at > 0 && FIRST.contains(name) {
            return Err(QueryError::location(
                40_602,
                format!("{shown} is only valid as the first stage in a pipeline"),
            ));
        }
        if at + 1 < names.len() && matches!(*name, b"$out" | b"$merge") {
            return Err(QueryError::location(
                40_601,
                format!("{shown} can only be the final stage in the pipeline"),
            ));
        }
    }
    Ok(())
}

/// Stages that are at home in one place of the server alone.
pub(super) fn check_namespace(name: &[u8], db: &str, over: &Over) -> Result<(), QueryError> {
    let text = match (name, over) {
        (_, Over::Part) => return Ok(()),
        (b"$currentOp", _) if db != "admin" || *over != Over::Nothing => {
            "$currentOp must be run against the 'admin' database with {aggregate: 1}"
        }
        (b"$queryStats", _) if db != "admin" || *over != Over::Nothing => {
            "$queryStats must be run against the 'admin' database with {aggregate: 1}"
        }
        (b"$listSampledQueries", _) if db != "admin" || *over != Over::Nothing => {
            "$listSampledQueries must be run against the 'admin' database with {aggregate: 1}"
        }
        (b"$listCatalog", Over::Nothing) if db != "admin" => {
            "Collectionless $listCatalog must be run against the 'admin' database with \
             {aggregate: 1}"
        }
        (b"$listClusterCatalog", Over::Collection(_)) => {
            return Err(QueryError::location(
                9_621_301,
                "The $listClusterCatalog stage must run on a database, not a collection.",
            ));
        }
        (b"$listLocalSessions", Over::Collection(_)) => {
            "$listLocalSessions must be run against the database with {aggregate: 1}, not a \
             collection"
        }
        (b"$listSessions", Over::Collection(name)) if db == "config" && name == SESSIONS => {
            return Ok(());
        }
        (b"$listSessions", _) => "$listSessions may only be run against config.system.sessions",
        _ => return Ok(()),
    };
    Err(QueryError::new(ErrorCode::InvalidNamespace, text))
}

const SESSIONS: &str = "system.sessions";

/// Some stages bring documents, the others want a collection's.
pub(super) fn check_first(first: Option<&[u8]>, over: &Over) -> Result<(), QueryError> {
    const BRING: [&[u8]; 8] = [
        b"$currentOp",
        b"$documents",
        b"$listCatalog",
        b"$listClusterCatalog",
        b"$listLocalSessions",
        b"$listSampledQueries",
        b"$querySettings",
        b"$queryStats",
    ];
    let shown = String::from_utf8_lossy(first.unwrap_or_default());
    let text = match (first, over) {
        (Some(b"$documents" | b"$querySettings"), Over::Collection(_)) => {
            format!("'{shown}' can only be run with {{aggregate: 1}}")
        }
        (Some(name), Over::Nothing) if !BRING.contains(&name) => {
            format!("{{aggregate: 1}} is not valid for '{shown}'; a collection is required.")
        }
        (None, Over::Nothing) => "{aggregate: 1} is not valid for an empty pipeline.".to_owned(),
        _ => return Ok(()),
    };
    Err(QueryError::new(ErrorCode::InvalidNamespace, text))
}

fn given(name: &'static str, spec: &[u8]) -> Result<Parsed, QueryError> {
    Ok(Parsed::Outside(Outside { name, spec: raw(spec)?.to_owned() }))
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
    given(NAME, doc)
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
            given("$indexStats", doc)
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
        None | Some(Value::Bool(false)) => given("$planCacheStats", doc),
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
    given(NAME, doc)
}

pub(super) fn parse_list_catalog(value: Value<'_>, _: &StageContext) -> Result<Parsed, QueryError> {
    match value {
        Value::Document(doc) if Elements::of_bytes(doc).next().is_none() => {
            given("$listCatalog", doc)
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
    given(NAME, doc)
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
    given(NAME, doc)
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
    given(NAME, doc)
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
    given(NAME, doc)
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
    given(name, doc)
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
