//! Parses the fields that every command accepts.

use std::time::Duration;

use bson::{RawBsonRef, RawDocument};
use protocol::{ClusterTime, ErrorCode, Profile, RawDoc, repl_metadata::Signature};

use super::transaction::Statement;
use crate::{
    commands::{Api, Command},
    error::Failure,
    sessions::Lsid,
};

/// The parsed generic fields.
#[derive(Default)]
pub(super) struct Generic {
    pub(super) db: Option<String>,
    pub(super) secondary_ok: bool,
    pub(super) help: bool,
    pub(super) lsid: Option<Lsid>,
    pub(super) cluster_time: Option<ClusterTime>,
    pub(super) repl_data: bool,
    pub(super) oplog_query_data: bool,
    pub(super) max_time: Option<Duration>,
    pub(super) statement: Statement,
    api_version: Option<String>,
    api_strict: bool,
    read_concern: Option<ReadConcern>,
    write_concern: bool,
}

/// Fields that no command refuses.
const KNOWN: &[&str] = &[
    "$db",
    "$readPreference",
    "$clusterTime",
    "$replData",
    "$oplogQueryData",
    "$client",
    "$audit",
    "$configServerState",
    "$configTime",
    "$topologyTime",
    "$queryOptions",
    "$tenant",
    "$traceCtx",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
    "autocommit",
    "clientOperationKey",
    "comment",
    "coordinator",
    "databaseVersion",
    "help",
    "lsid",
    "maxTimeMS",
    "maxTimeMSOpOnly",
    "mayBypassWriteBlocking",
    "rawData",
    "readConcern",
    "requestGossipRoutingCache",
    "shardVersion",
    "startOrContinueTransaction",
    "startTransaction",
    "stmtId",
    "stmtIds",
    "tracking_info",
    "txnNumber",
    "txnRetryCounter",
    "usesDefaultMaxTimeMS",
    "versionContext",
    "writeConcern",
];

impl Generic {
    /// Parses the fields and refuses wrong types.
    pub(super) fn read(
        &mut self,
        body: &RawDoc,
        command: &str,
        profile: &Profile,
    ) -> Result<(), Failure> {
        for element in body.as_raw().iter().skip(1) {
            let (name, value) =
                element.map_err(|err| Failure::said(ErrorCode::InvalidBSON, format!("{err}")))?;
            self.field(name.as_str(), value, command, profile)?;
        }
        Ok(())
    }

    fn field(
        &mut self,
        name: &str,
        value: RawBsonRef<'_>,
        command: &str,
        profile: &Profile,
    ) -> Result<(), Failure> {
        let mistyped = |expected| Failure::wrong_type(format!("{command}.{name}"), value, expected);
        match (name, value) {
            // For an OP_QUERY the namespace has already determined it.
            ("$db", RawBsonRef::String(db)) => {
                self.db.get_or_insert_with(|| db.to_owned());
            }
            ("$db", _) => return Err(mistyped(&["string"])),
            ("$readPreference", RawBsonRef::Document(preference)) => {
                self.secondary_ok |= preference.get_str("mode").is_ok_and(|mode| mode != "primary");
            }
            ("$readPreference", _) => return Err(mistyped(&["object"])),
            ("lsid", RawBsonRef::Document(lsid)) => {
                self.lsid = Some(Lsid::parse(lsid, &format!("{command}.lsid"))?);
            }
            ("lsid", _) => return Err(mistyped(&["object"])),
            ("txnNumber", RawBsonRef::Int64(number)) => self.statement.number = Some(number),
            ("txnNumber", _) => return Err(mistyped(&["long"])),
            ("autocommit", RawBsonRef::Boolean(flag)) => self.statement.autocommit = Some(flag),
            ("autocommit", _) => return Err(mistyped(&["bool"])),
            ("startTransaction", RawBsonRef::Boolean(flag)) => self.statement.start = Some(flag),
            ("startTransaction", _) => return Err(mistyped(&["bool"])),
            ("$clusterTime", value) => {
                let value = protocol::fields::Value::new(command, name, value);
                self.cluster_time = Some(cluster_time(value)?);
            }
            ("maxTimeMS", _) => self.max_time = max_time(command, value, profile)?,
            ("readConcern", other)
                if !profile.typed_commands && !matches!(other, RawBsonRef::Document(_)) =>
            {
                let text = "readConcern field should be an object";
                return Err(Failure::said(ErrorCode::FailedToParse, text));
            }
            ("readConcern", RawBsonRef::Document(concern)) => {
                self.read_concern = Some(ReadConcern::of(concern));
            }
            ("writeConcern", _) => self.write_concern = true,
            ("$replData", _) => self.repl_data = true,
            ("$oplogQueryData", _) => self.oplog_query_data = true,
            // 5.0 has no help for commands with strict fields; nobody relies on that.
            ("help", RawBsonRef::Boolean(help)) => self.help = help,
            ("apiVersion", RawBsonRef::String(version)) if profile.stable_api => {
                self.api_version = Some(version.to_owned());
            }
            ("apiStrict", value) => self.api_strict = truthy(value),
            _ => {}
        }
        Ok(())
    }

    /// The database, which must be present and valid.
    pub(super) fn take_db(&mut self, command: &str, profile: &Profile) -> Result<String, Failure> {
        let Some(db) = self.db.take() else {
            return Err(if profile.idl_codes_have_names {
                Failure::missing(format!("{command}.$db"))
            } else {
                let text = "OP_MSG requests require a $db argument";
                Failure::said(ErrorCode::from_code(40571), text)
            });
        };
        let invalid = |text: String| Err(Failure::said(ErrorCode::InvalidNamespace, text));
        if let Some(bad) = db.chars().find(is_forbidden) {
            return invalid(format!("'{bad}' is an invalid character in a db name: {db}"));
        }
        if db.is_empty() || db.len() >= DB_NAME_LEN_MAX {
            return invalid(format!("Invalid database name: '{db}'"));
        }
        Ok(db)
    }

    /// Checks the stable API version: 1 is the only one.
    pub(super) fn check_api(&self, command: &Command) -> Result<(), Failure> {
        let Some(version) = &self.api_version else { return Ok(()) };
        if version != "1" {
            let text = format!("Cannot accept API version {version}");
            return Err(Failure::said(ErrorCode::from_code(322), text));
        }
        if self.api_strict && command.api != Api::V1 {
            let text = format!(
                "Provided apiStrict:true, but the command {} is not in API Version 1. Information on \
                 supported commands and migrations in API Version 1 can be found at \
                 https://dochub.mongodb.org/core/manual-versioned-api.",
                command.name
            );
            return Err(Failure::said(ErrorCode::from_code(323), text));
        }
        Ok(())
    }

    /// Refuses concerns where they have no meaning.
    pub(super) fn check_concerns(
        &self,
        command: &Command,
        name: &str,
        profile: &Profile,
    ) -> Result<(), Failure> {
        if self.write_concern && !command.takes_concerns {
            let text = "Command does not support writeConcern";
            return Err(Failure::said(ErrorCode::InvalidOptions, text));
        }
        let Some(concern) = &self.read_concern else { return Ok(()) };
        let refused = |why: &str| {
            let shown = &concern.shown;
            let text = format!(
                "Command {name} does not support {{ readConcern: {{ {shown}, provenance: \
                 \"clientSupplied\" }} }} :: caused by :: {why}"
            );
            Err(Failure::said(ErrorCode::InvalidOptions, text))
        };
        // Beyond mongod, a command that can read the past accepts an explicit timestamp.
        let level = match concern.level.as_deref() {
            None | Some("local") => return Ok(()),
            Some("snapshot") if concern.names_moment && command.takes_concerns => return Ok(()),
            Some(level) => level,
        };
        let known = ["majority", "available", "linearizable", "snapshot"].contains(&level);
        let explains = command.name == "explain" && !profile.explain_takes_concerns;
        if !command.takes_concerns || known && (command.newest_only || explains) {
            return refused("read concern not supported");
        }
        if level != "snapshot" {
            return Ok(());
        }
        if !profile.snapshot_reads {
            let text = "read concern level snapshot is only valid in a transaction";
            return Err(Failure::said(ErrorCode::InvalidOptions, text));
        }
        if command.name == "count" {
            return refused("read concern snapshot not supported");
        }
        Ok(())
    }
}

/// A read concern that is not interpreted yet.
struct ReadConcern {
    shown: String,
    level: Option<String>,
    names_moment: bool,
}

impl ReadConcern {
    fn of(concern: &RawDocument) -> Self {
        Self {
            shown: shown(concern),
            level: concern.get_str("level").ok().map(str::to_owned),
            names_moment: matches!(concern.get("atClusterTime"), Ok(Some(_))),
        }
    }
}

/// True for a valid database name.
pub fn is_database(name: &str) -> bool {
    !name.is_empty() && name.len() < DB_NAME_LEN_MAX && !name.chars().any(|c| is_forbidden(&c))
}

/// Characters that a database name must not contain.
fn is_forbidden(c: &char) -> bool {
    matches!(c, '.' | '/' | '\\' | ' ' | '"' | '\0')
}

fn max_time(
    command: &str,
    value: RawBsonRef<'_>,
    profile: &Profile,
) -> Result<Option<Duration>, Failure> {
    let old = !profile.typed_commands;
    if old && !is_number(value) {
        return Err(Failure::said(ErrorCode::BadValue, "maxTimeMS must be a number"));
    }
    match value {
        RawBsonRef::Null => return Ok(None),
        RawBsonRef::Double(n) if n.fract() != 0.0 => {
            return Err(if old {
                Failure::said(ErrorCode::BadValue, "maxTimeMS has non-integral value")
            } else {
                let text = format!("Expected an integer: maxTimeMS: {n}");
                Failure::said(ErrorCode::FailedToParse, text)
            });
        }
        _ => {}
    }
    let value = protocol::fields::Value::new(request_name(command), "maxTimeMS", value);
    let millis = value.non_negative()?;
    if millis > MAX_TIME_MILLIS {
        let text = format!(
            "BSON field 'maxTimeMS' value must be <= {MAX_TIME_MILLIS}, actual value '{millis}'"
        );
        return Err(Failure::said(ErrorCode::BadValue, text));
    }
    Ok((millis > 0).then(|| Duration::from_millis(millis)))
}

fn is_number(value: RawBsonRef<'_>) -> bool {
    use RawBsonRef::{Decimal128, Double, Int32, Int64};
    matches!(value, Double(_) | Int32(_) | Int64(_) | Decimal128(_))
}

/// The name of a command in mongod's generated parsers.
fn request_name(command: &str) -> &str {
    if command == "find" { "FindCommandRequest" } else { command }
}

/// mongod's limit of `maxTimeMS`.
const MAX_TIME_MILLIS: u64 = i32::MAX as u64;
/// mongod's limit, including the terminating zero.
const DB_NAME_LEN_MAX: usize = 64;

/// Refuses a field that neither the command nor the generic fields have.
pub(super) fn refuse_unknown(body: &RawDoc, command: &str, own: &[&str]) -> Result<(), Failure> {
    for element in body.as_raw().iter_elements().skip(1).flatten() {
        let name = element.key().as_str();
        if !own.contains(&name) && !KNOWN.contains(&name) {
            return Err(Failure::unknown_field(format!("{command}.{name}")));
        }
    }
    Ok(())
}

fn cluster_time(value: protocol::fields::Value<'_>) -> Result<ClusterTime, Failure> {
    let fields = value.fields()?;
    let time = fields.required("clusterTime")?.timestamp()?;
    let Some(signature) = fields.optional("signature")? else {
        return Ok(ClusterTime { time, signature: None });
    };
    let signature = signature.fields()?;
    let hash = signature.required("hash")?.raw();
    let RawBsonRef::Binary(hash) = hash else {
        return Err(Failure::wrong_type("$clusterTime.signature.hash", hash, &["binData"]));
    };
    let hash = hash.bytes.try_into().map_err(|_| {
        let text = format!("Unsupported SHA1Block hash length: {}", hash.bytes.len());
        Failure::said(ErrorCode::UnsupportedFormat, text)
    })?;
    let key_id = signature.required("keyId")?.safe_i64()?;
    Ok(ClusterTime { time, signature: Some(Signature { hash, key_id }) })
}

fn truthy(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Boolean(flag) => flag,
        RawBsonRef::Int32(n) => n != 0,
        RawBsonRef::Int64(n) => n != 0,
        RawBsonRef::Double(n) => n != 0.0,
        _ => false,
    }
}

/// The content of a read concern as mongod's texts show it: `level: "majority"`.
fn shown(concern: &RawDocument) -> String {
    let fields = concern.iter().flatten().map(|(name, value)| match value {
        RawBsonRef::String(text) => format!("{}: \"{text}\"", name.as_str()),
        other => format!("{}: {other:?}", name.as_str()),
    });
    fields.collect::<Vec<_>>().join(", ")
}
