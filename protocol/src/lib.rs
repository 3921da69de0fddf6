//! The words two MongoDB nodes say to each other.

mod error_code;
mod host;
mod namespace;
mod optime;
mod raw_doc;

pub use error_code::ErrorCode;
pub use host::{DEFAULT_PORT, HostAndPort, HostParseError};
pub use namespace::Namespace;
pub use optime::{OpTime, OpTimeAndWall, Timestamp};
pub use raw_doc::RawDoc;
