//! MongoDB's error codes and their names.

use std::fmt;

macro_rules! error_codes {
    ($($name:ident = $code:literal,)*) => {
        /// An error code of the server. The names are MongoDB's own and are not explained here.
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "a table of names that MongoDB documents")]
        pub enum ErrorCode {
            $($name,)*
            /// A code without a name of its own: mongod calls it `Location` and the number.
            Location(i32),
        }

        impl ErrorCode {
            /// The number on the wire.
            pub const fn code(self) -> i32 {
                match self {
                    $(Self::$name => $code,)*
                    Self::Location(code) => code,
                }
            }

            /// The code with this number, named if MongoDB named it.
            pub const fn from_code(code: i32) -> Self {
                match code {
                    $($code => Self::$name,)*
                    code => Self::Location(code),
                }
            }

            const fn fixed_name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    Self::Location(_) => None,
                }
            }
        }
    };
}

impl ErrorCode {
    /// The `codeName` of a reply.
    pub fn name(self) -> String {
        self.fixed_name().map_or_else(|| format!("Location{}", self.code()), str::to_owned)
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

error_codes! {
    InternalError = 1,
    BadValue = 2,
    NoSuchKey = 4,
    HostUnreachable = 6,
    FailedToParse = 9,
    Unauthorized = 13,
    TypeMismatch = 14,
    Overflow = 15,
    InvalidLength = 16,
    ProtocolError = 17,
    IllegalOperation = 20,
    InvalidBSON = 22,
    NamespaceNotFound = 26,
    IndexNotFound = 27,
    CursorNotFound = 43,
    MaxTimeMSExpired = 50,
    CommandNotFound = 59,
    InvalidOptions = 72,
    InvalidNamespace = 73,
    NodeNotFound = 74,
    ShutdownInProgress = 91,
    InvalidReplicaSetConfig = 93,
    NotYetInitialized = 94,
    NotSecondary = 95,
    InconsistentReplicaSetNames = 108,
    CommandFailed = 125,
    KeyNotFound = 211,
    IllegalOpMsgFlag = 223,
    SnapshotTooOld = 239,
    SnapshotUnavailable = 246,
    ChecksumMismatch = 288,
    NotWritablePrimary = 10107,
    NotPrimaryNoSecondaryOk = 13435,
    NotPrimaryOrSecondary = 13436,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_go_together() {
        assert_eq!(ErrorCode::from_code(59), ErrorCode::CommandNotFound);
        assert_eq!(ErrorCode::CommandNotFound.name(), "CommandNotFound");
        assert_eq!(ErrorCode::from_code(40414).name(), "Location40414");
        assert_eq!(ErrorCode::from_code(40414).code(), 40414);
    }
}
