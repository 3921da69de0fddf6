//! The single map from failures to what the wire shows.

use bson::{RawBsonRef, RawDocumentBuf, raw::cstr, spec::ElementType};
use protocol::ErrorCode;

use crate::profile::Profile;

/// Why a command gives no result. The texts are mongod's.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Failure {
    /// No such command.
    #[error("no such command: '{0}'")]
    UnknownCommand(String),
    /// A command by OP_QUERY, which serves the handshake alone.
    #[error(
        "Unsupported OP_QUERY command: {0}. The client driver may require an upgrade. For more details see https://dochub.mongodb.org/core/legacy-opcode-removal"
    )]
    OpQueryCommand(String),
    /// The command belongs to `admin`.
    #[error("{0} may only be run against the admin database.")]
    AdminOnly(&'static str),
    /// A field that must be there.
    #[error("BSON field '{0}' is missing but a required field")]
    MissingField(String),
    /// A field nobody knows.
    #[error("BSON field '{0}' is an unknown field.")]
    UnknownField(String),
    /// A field of the wrong type.
    #[error("BSON field '{field}' is the wrong type '{found}', expected {expected}")]
    WrongType {
        /// `command.field`.
        field: String,
        /// The type it has.
        found: &'static str,
        /// `type 'x'` or `types '[x, y]'`.
        expected: &'static str,
    },
    /// A write, or anything else that only a primary does.
    #[error("{}", if *.hello_ok { "not primary" } else { "not master" })]
    NotWritablePrimary {
        /// The client knows the word `primary`.
        hello_ok: bool,
        /// What a driver may do about it.
        label: Option<&'static str>,
    },
    /// A read without leave to read from a secondary.
    #[error("{}", if *.hello_ok { "not primary and secondaryOk=false" } else { "not master and slaveOk=false" })]
    NotPrimaryNoSecondaryOk {
        /// The client knows the word `primary`.
        hello_ok: bool,
    },
    /// A read while we are neither primary nor secondary.
    #[error("node is not in primary or recovering state")]
    NotPrimaryOrSecondary,
    /// A command of replica sets to a server that runs alone.
    #[error("{0}")]
    NoReplication(&'static str),
    /// getLog, getParameter and setParameter: old versions give no code.
    #[error("{message}")]
    Parameter {
        /// The code of newer versions.
        code: ErrorCode,
        /// What is wrong.
        message: String,
    },
    /// The server is going down.
    #[error("{message}")]
    ShuttingDown {
        /// The server's way to say so.
        message: String,
        /// How long it will still answer.
        remaining_millis: Option<i64>,
    },
    /// Anything else, in mongod's words.
    #[error("{message}")]
    Said {
        /// Its code.
        code: ErrorCode,
        /// What is wrong.
        message: String,
    },
}

impl Failure {
    /// A failure with mongod's code and words.
    pub fn said(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::Said { code, message: message.into() }
    }

    /// A field of the wrong type.
    pub fn wrong_type(
        field: impl Into<String>,
        found: RawBsonRef<'_>,
        expected: &'static str,
    ) -> Self {
        Self::WrongType { field: field.into(), found: type_name(found.element_type()), expected }
    }

    /// The code on the wire, if this version gives one.
    pub fn wire_code(&self, profile: &Profile) -> Option<ErrorCode> {
        Some(match self {
            Self::UnknownCommand(_) => ErrorCode::CommandNotFound,
            Self::OpQueryCommand(_) => ErrorCode::from_code(352),
            Self::AdminOnly(_) => ErrorCode::Unauthorized,
            Self::MissingField(_) => ErrorCode::from_code(40414),
            Self::UnknownField(_) => ErrorCode::from_code(40415),
            Self::WrongType { .. } => ErrorCode::TypeMismatch,
            Self::NotWritablePrimary { .. } => ErrorCode::NotWritablePrimary,
            Self::NotPrimaryNoSecondaryOk { .. } => ErrorCode::NotPrimaryNoSecondaryOk,
            Self::NotPrimaryOrSecondary => ErrorCode::NotPrimaryOrSecondary,
            Self::NoReplication(_) => ErrorCode::from_code(76),
            Self::Parameter { code, .. } => {
                return profile.parameter_errors_have_codes.then_some(*code);
            }
            Self::ShuttingDown { .. } => ErrorCode::ShutdownInProgress,
            Self::Said { code, .. } => *code,
        })
    }

    /// `errorLabels`, for drivers.
    pub fn label(&self) -> Option<&'static str> {
        match self {
            Self::NotWritablePrimary { label, .. } => *label,
            _ => None,
        }
    }

    /// True where the reply tells the topology: the driver's picture of it was wrong.
    pub fn shows_topology(&self) -> bool {
        matches!(
            self,
            Self::NotWritablePrimary { .. }
                | Self::NotPrimaryNoSecondaryOk { .. }
                | Self::NotPrimaryOrSecondary
                | Self::ShuttingDown { .. }
        )
    }

    /// Appends `ok`, `errmsg`, `code` and `codeName`.
    pub fn append_to(&self, body: &mut RawDocumentBuf, profile: &Profile) {
        body.append(cstr!("ok"), 0.0);
        body.append(cstr!("errmsg"), self.to_string());
        if let Some(code) = self.wire_code(profile) {
            body.append(cstr!("code"), code.code());
            body.append(cstr!("codeName"), code_name(code, profile));
        }
        if let Self::ShuttingDown { remaining_millis: Some(millis), .. } = self {
            body.append(cstr!("remainingQuiesceTimeMillis"), *millis);
        }
    }
}

/// Names that a version has not given yet are `Location` and the number.
fn code_name(code: ErrorCode, profile: &Profile) -> String {
    match code.code() {
        40414 if profile.idl_codes_have_names => "IDLFailedToParse".to_owned(),
        40415 if profile.idl_codes_have_names => "IDLUnknownField".to_owned(),
        40414 | 40415 => format!("Location{}", code.code()),
        _ => code.name(),
    }
}

/// mongod's name of a type.
pub fn type_name(kind: ElementType) -> &'static str {
    match kind {
        ElementType::Double => "double",
        ElementType::String => "string",
        ElementType::EmbeddedDocument => "object",
        ElementType::Array => "array",
        ElementType::Binary => "binData",
        ElementType::Undefined => "undefined",
        ElementType::ObjectId => "objectId",
        ElementType::Boolean => "bool",
        ElementType::DateTime => "date",
        ElementType::Null => "null",
        ElementType::RegularExpression => "regex",
        ElementType::DbPointer => "dbPointer",
        ElementType::JavaScriptCode => "javascript",
        ElementType::Symbol => "symbol",
        ElementType::JavaScriptCodeWithScope => "javascriptWithScope",
        ElementType::Int32 => "int",
        ElementType::Timestamp => "timestamp",
        ElementType::Int64 => "long",
        ElementType::Decimal128 => "decimal",
        ElementType::MinKey => "minKey",
        ElementType::MaxKey => "maxKey",
    }
}
