//! MongoDB's error codes: numbers, names, and the categories that decide how a client continues.
//!
//! The names are those of MongoDB 8.2. An older server sends a code that it has no name for as `Location` and the
//! number; the numbers mean the same in all releases.

use std::fmt;

mod table;

pub use table::ErrorCode;

/// A group of codes that are handled alike (MongoDB's own groups and names).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorCategory {
    /// The network failed.
    NetworkError,
    /// The same request may succeed later or on another node. For a retryable write, the reply gets the label
    /// `RetryableWriteError`.
    RetriableError,
    /// A document failed validation.
    ValidationError,
    /// The operation was interrupted.
    Interruption,
    /// The cursor is gone.
    CursorInvalidatedError,
    /// A time limit passed.
    ExceededTimeLimitError,
    /// The write succeeded, but its write concern was not satisfied.
    WriteConcernError,
    /// The network timed out.
    NetworkTimeoutError,
    /// The operation was cancelled.
    CancellationError,
    /// The server is shutting down.
    ShutdownError,
    /// A participant votes to abort its transaction.
    VoteAbortError,
    /// The router used an outdated shard version.
    StaleShardVersionError,
    /// The router must select its shards again.
    NeedRetargettingError,
    /// The node was not primary at some point during the command.
    NotPrimaryError,
    /// The message cannot be parsed and the connection must close.
    ConnectionFatalMessageParseError,
    /// The participant has already forgotten the transaction.
    TwoPhaseDecisionAckError,
    /// The snapshot no longer exists or does not exist yet; a transaction may be retried.
    SnapshotError,
    /// The change stream cannot be resumed.
    NonResumableChangeStreamError,
    /// Never sent to a client.
    InternalOnly,
    /// The connection closes after the reply.
    CloseConnectionError,
    /// The stable API forbids the request.
    VersionedAPIError,
    /// A stream processor was used incorrectly.
    StreamProcessorUserError,
    /// A stream processor may try again.
    StreamProcessorRetryableError,
    /// The server is overloaded.
    SystemOverloadedError,
    /// A command has a missing, unknown or repeated field.
    IDLParseError,
    /// The planner could not estimate costs.
    PlannerEstimationError,
}

macro_rules! error_codes {
    ($($name:ident = $code:literal $([$($category:ident)+])?,)*) => {
        /// An error code of the server. The names are MongoDB's own and are not explained here.
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs, non_camel_case_types, reason = "a table of MongoDB's own names")]
        pub enum ErrorCode {
            $($name,)*
            /// A code without a name: mongod calls it `Location` and the number.
            Location(i32),
        }

        impl ErrorCode {
            /// Every code that has a name.
            pub const NAMED: &[Self] = &[$(Self::$name,)*];

            /// The number on the wire.
            pub const fn code(self) -> i32 {
                match self {
                    $(Self::$name => $code,)*
                    Self::Location(code) => code,
                }
            }

            /// The code with this number: a named one if MongoDB has a name for it.
            pub const fn from_code(code: i32) -> Self {
                match code {
                    $($code => Self::$name,)*
                    code => Self::Location(code),
                }
            }

            /// The categories of this code.
            pub(crate) const fn categories(self) -> &'static [super::ErrorCategory] {
                match self {
                    $(Self::$name => &[$($(super::ErrorCategory::$category,)+)?],)*
                    Self::Location(_) => &[],
                }
            }

            pub(super) const fn fixed_name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    Self::Location(_) => None,
                }
            }
        }
    };
}
use error_codes;

impl ErrorCode {
    /// The `codeName` of a reply.
    pub fn name(self) -> String {
        self.fixed_name().map_or_else(|| format!("Location{}", self.code()), str::to_owned)
    }

    /// The code with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        if let Some(code) = name.strip_prefix("Location") {
            return code.parse().ok().map(Self::from_code);
        }
        Self::NAMED.iter().copied().find(|code| code.fixed_name() == Some(name))
    }

    /// True if the code belongs to the category.
    pub fn is(self, category: ErrorCategory) -> bool {
        self.categories().contains(&category)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_go_together() {
        assert_eq!(ErrorCode::from_code(59), ErrorCode::CommandNotFound);
        assert_eq!(ErrorCode::CommandNotFound.name(), "CommandNotFound");
        assert_eq!(ErrorCode::from_code(40432).name(), "Location40432");
        assert_eq!(ErrorCode::from_code(40432).code(), 40432);
        for code in ErrorCode::NAMED {
            assert_eq!(ErrorCode::from_code(code.code()), *code);
            assert_eq!(ErrorCode::from_name(&code.name()), Some(*code));
        }
        assert_eq!(ErrorCode::from_name("Location7"), Some(ErrorCode::HostNotFound));
        assert_eq!(ErrorCode::from_name("NoSuchName"), None);
    }

    #[test]
    fn the_table_is_in_order() {
        assert!(ErrorCode::NAMED.is_sorted_by_key(|code| code.code()));
    }

    #[test]
    fn categories_say_how_to_go_on() {
        use ErrorCategory::{NotPrimaryError, RetriableError};
        assert!(ErrorCode::NotWritablePrimary.is(NotPrimaryError));
        assert!(ErrorCode::InterruptedAtShutdown.is(RetriableError));
        assert!(!ErrorCode::InterruptedAtShutdown.is(NotPrimaryError));
        assert!(!ErrorCode::BadValue.is(RetriableError));
    }
}
