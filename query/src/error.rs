//! Errors of queries, with mongod's code and text.

use protocol::{ErrorCode, Release};

/// An error of the query language. Clients read both the code and the text, so both are mongod's.
///
/// There are several hundred of them, each raised in one place. A variant for each would only repeat the text, so
/// code and text are given where the error is raised.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct QueryError {
    /// mongod's code.
    pub code: ErrorCode,
    /// mongod's text.
    pub message: String,
    /// The newest release that uses another code for this error, and that code.
    pub older: Option<(Release, ErrorCode)>,
}

impl QueryError {
    /// An error with a named code.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), older: None }
    }

    /// Sets the code that releases up to `newest` use for this error.
    #[must_use]
    pub fn until(mut self, newest: Release, code: i32) -> Self {
        self.older = Some((newest, ErrorCode::from_code(code)));
        self
    }

    /// The code that a release uses for this error.
    pub fn code_on(&self, release: Release) -> ErrorCode {
        match self.older {
            Some((newest, code)) if release <= newest => code,
            _ => self.code,
        }
    }

    /// An error with a numeric code.
    pub fn location(code: i32, message: impl Into<String>) -> Self {
        Self::new(ErrorCode::from_code(code), message)
    }

    /// BadValue (2).
    pub fn bad_value(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadValue, message)
    }

    /// FailedToParse (9).
    pub(crate) fn failed_to_parse(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::FailedToParse, message)
    }

    /// TypeMismatch (14).
    pub(crate) fn type_mismatch(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::TypeMismatch, message)
    }
}
