//! Maps all errors to replies on the wire.

use std::sync::Arc;

use bson::{RawBsonRef, RawDocumentBuf, raw::cstr};
use protocol::{
    ErrorCategory, ErrorCode, Release,
    fields::{FieldError, type_name},
};
use query::QueryError;
use storage::StorageError;

use protocol::Profile;

/// Why a command failed. The texts are mongod's.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// Unknown command.
    #[error("no such command: '{0}'")]
    UnknownCommand(String),
    /// A command by OP_QUERY, which only supports the handshake.
    #[error(
        "Unsupported OP_QUERY command: {0}. The client driver may require an upgrade. For more details see https://dochub.mongodb.org/core/legacy-opcode-removal"
    )]
    OpQueryCommand(String),
    /// The command runs only on `admin`.
    #[error("{0} may only be run against the admin database.")]
    AdminOnly(&'static str),
    /// An unsupported mechanism.
    #[error("Received authentication for mechanism {0} which is not enabled")]
    MechanismUnavailable(String),
    /// The client is not authenticated.
    #[error("{} {command} requires authentication", if *.capital { "Command" } else { "command" })]
    LoginRequired {
        /// The command.
        command: &'static str,
        /// Newer releases begin the text with a capital letter.
        capital: bool,
    },
    /// The client is authenticated but not authorized.
    #[error("not authorized on {db} to execute command {command}")]
    Unauthorized {
        /// The database.
        db: String,
        /// The command, without its secrets.
        command: String,
    },
    /// A field is missing, has the wrong type or is unknown.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A write, or another command for primaries only.
    #[error("{}", if *.hello_ok { "not primary" } else { "not master" })]
    NotWritablePrimary {
        /// The client understands the word `primary`.
        hello_ok: bool,
        /// The error label for drivers.
        label: Option<&'static str>,
    },
    /// A read that does not allow a secondary.
    #[error("{}", if *.hello_ok { "not primary and secondaryOk=false" } else { "not master and slaveOk=false" })]
    NotPrimaryNoSecondaryOk {
        /// The client understands the word `primary`.
        hello_ok: bool,
    },
    /// A read while the member is neither primary nor secondary.
    #[error("{0}")]
    NotPrimaryOrSecondary(&'static str),
    /// A replica set command to a standalone.
    #[error("{0}")]
    NoReplication(&'static str),
    /// Errors of getLog, getParameter and setParameter, which have no code in old releases.
    #[error("{message}")]
    Parameter {
        /// The code in newer releases.
        code: ErrorCode,
        /// What is wrong.
        message: String,
    },
    /// The server is shutting down.
    #[error("The server is in quiesce mode and will shut down")]
    Quiescing {
        /// How long it will still answer.
        remaining_millis: i64,
    },
    /// A linearizable read, which only a primary can serve.
    #[error("cannot satisfy linearizable read concern on non-primary node")]
    Linearizable,
    /// An error of the store.
    #[error("{}", .0.text_for_clients())]
    Storage(Arc<StorageError>),
    /// An error of the query language.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The primary refused a write of a pipeline.
    #[error("{message}")]
    OnPrimary {
        /// The error code.
        code: ErrorCode,
        /// What is wrong.
        message: String,
        /// Further fields such as `keyPattern`.
        details: RawDocumentBuf,
    },
    /// Any other error, with mongod's text.
    #[error("{message}")]
    Said {
        /// The error code.
        code: ErrorCode,
        /// What is wrong.
        message: String,
    },
}

impl Failure {
    /// An error with mongod's code and text.
    pub fn said(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::Said { code, message: message.into() }
    }

    /// The error for any failed login, without details.
    pub(crate) fn authentication_failed() -> Self {
        Self::said(ErrorCode::AuthenticationFailed, "Authentication failed.")
    }

    /// The error for a message that does not belong to the login.
    pub fn sasl(message: &str) -> Self {
        Self::said(ErrorCode::ProtocolError, message)
    }

    /// A missing required field.
    pub fn missing(path: impl Into<String>) -> Self {
        FieldError::Missing { path: path.into() }.into()
    }

    /// An unknown field.
    pub(crate) fn unknown_field(path: impl Into<String>) -> Self {
        FieldError::Unknown { path: path.into() }.into()
    }

    /// A field of the wrong type.
    pub fn wrong_type(
        path: impl Into<String>,
        value: RawBsonRef<'_>,
        expected: &'static [&'static str],
    ) -> Self {
        let found = type_name(&value);
        FieldError::Type { path: path.into(), found, expected }.into()
    }

    /// The code on the wire, if this release sends one.
    pub(crate) fn wire_code(&self, profile: &Profile) -> Option<ErrorCode> {
        match self {
            Self::Parameter { .. } if !profile.parameter_errors_have_codes => None,
            failure => Some(failure.code_on(profile.release)),
        }
    }

    /// The code in a release.
    fn code_on(&self, release: Release) -> ErrorCode {
        match self {
            Self::Field(FieldError::OutOfBounds { .. }) if release <= Release::V5_0 => {
                ErrorCode::from_code(51_024)
            }
            Self::Query(error) => error.code_on(release),
            other => other.code(),
        }
    }

    /// The code in the newest release.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::UnknownCommand(_) => ErrorCode::CommandNotFound,
            Self::OpQueryCommand(_) => ErrorCode::from_code(352),
            Self::AdminOnly(_) | Self::LoginRequired { .. } | Self::Unauthorized { .. } => {
                ErrorCode::Unauthorized
            }
            Self::MechanismUnavailable(_) => ErrorCode::MechanismUnavailable,
            Self::Field(error) => error.code(),
            Self::NotWritablePrimary { .. } => ErrorCode::NotWritablePrimary,
            Self::NotPrimaryNoSecondaryOk { .. } => ErrorCode::NotPrimaryNoSecondaryOk,
            Self::NotPrimaryOrSecondary(_) => ErrorCode::NotPrimaryOrSecondary,
            Self::NoReplication(_) => ErrorCode::from_code(76),
            Self::Quiescing { .. } => ErrorCode::ShutdownInProgress,
            Self::Linearizable => ErrorCode::NotWritablePrimary,
            Self::Storage(error) => error.code(),
            Self::Query(error) => error.code,
            Self::Parameter { code, .. }
            | Self::OnPrimary { code, .. }
            | Self::Said { code, .. } => *code,
        }
    }

    /// Converts it to an error of the query language.
    pub(crate) fn into_query_error(self) -> QueryError {
        match self {
            Self::Query(error) => error,
            other => QueryError::new(other.code(), other.to_string()),
        }
    }

    /// The value of `errorLabels`.
    pub fn label(&self) -> Option<&'static str> {
        match self {
            Self::NotWritablePrimary { label, .. } => *label,
            _ => None,
        }
    }

    /// True if the reply contains the topology version, because the driver's view of it was wrong.
    pub(crate) fn shows_topology(&self) -> bool {
        let code = self.code();
        code.is(ErrorCategory::NotPrimaryError) || matches!(self, Self::Quiescing { .. })
    }

    /// Appends `ok`, `errmsg`, `code` and `codeName`.
    pub fn append_to(&self, body: &mut RawDocumentBuf, profile: &Profile) {
        body.append(cstr!("ok"), 0.0);
        body.append(cstr!("errmsg"), self.to_string());
        if let Some(code) = self.wire_code(profile) {
            body.append(cstr!("code"), code.code());
            body.append(cstr!("codeName"), code_name(code, profile));
        }
        if let Self::OnPrimary { details, .. } = self {
            for (name, value) in details.iter().flatten() {
                body.append(name, value);
            }
        }
        if let Self::Quiescing { remaining_millis } = self {
            body.append(cstr!("remainingQuiesceTimeMillis"), *remaining_millis);
        }
    }
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Self {
        Self::Storage(Arc::new(error))
    }
}

impl From<repl::CommandError> for Failure {
    fn from(error: repl::CommandError) -> Self {
        Self::Said { code: error.code, message: error.message }
    }
}

/// The code's name; codes that a release has no name for are `Location` and the number.
fn code_name(code: ErrorCode, profile: &Profile) -> String {
    let idl = matches!(code.code(), 40413..=40415);
    if idl && !profile.idl_codes_have_names {
        return format!("Location{}", code.code());
    }
    code.name()
}
