//! Stages that need the server: those whose documents it knows.
//!
//! Here they are parsed and put in their place; [`crate::context::Collections::outside`] gives their documents.

use bson::RawDocumentBuf;
use protocol::RawDoc;

use super::{Parsed, StageContext, idl, raw};
use crate::{
    error::QueryError,
    exec::{Stage, Upstream},
    value::{Elements, Value},
};

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
    const FIRST: [&[u8]; 7] = [
        b"$collStats",
        b"$indexStats",
        b"$planCacheStats",
        b"$currentOp",
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
                    if inner.key == b"scale" && !inner.value().is_number() {
                        return Err(idl::wrong_type(
                            "$collStats.storageStats",
                            b"scale",
                            inner.value(),
                            "types '[decimal, double, long, int]'",
                        ));
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
    given("$planCacheStats", doc)
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
