//! Errors of a request, and whether the connection is still usable after one.

use std::{io, time::Duration};

use bson::{RawBsonRef, RawDocument};

use crate::{EncodeError, ErrorCode, FieldError, FrameError, HostAndPort, ParseError, RawDoc};

use super::WireVersions;

/// Why a request got no usable reply.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection could be made.
    #[error("cannot connect to {host}: {source}")]
    Connect {
        /// The peer.
        host: HostAndPort,
        /// The system's error.
        source: io::Error,
    },
    /// The peer's wire versions do not overlap with ours.
    #[error(
        "{host} speaks wire versions {theirs}, we speak {ours}: the set has another MongoDB version than expected"
    )]
    WireVersion {
        /// The peer.
        host: HostAndPort,
        /// Ours.
        ours: WireVersions,
        /// The peer's.
        theirs: WireVersions,
    },
    /// The socket failed.
    #[error("network error with {host}: {source}")]
    Io {
        /// The peer.
        host: HostAndPort,
        /// The system's error.
        source: io::Error,
    },
    /// The peer closed the connection.
    #[error("{host} closed the connection")]
    Closed {
        /// The peer.
        host: HostAndPort,
    },
    /// The peer sent nothing for too long.
    #[error("no answer from {host} within {after:?}")]
    TimedOut {
        /// The peer.
        host: HostAndPort,
        /// How long we waited.
        after: Duration,
    },
    /// An earlier exchange on this connection was abandoned.
    #[error("the connection to {host} was left in the middle of an exchange: connect again")]
    Broken {
        /// The peer.
        host: HostAndPort,
    },
    /// The peer's bytes cannot be split into messages.
    #[error("{host} sent a stream that cannot be read: {source}")]
    Frame {
        /// The peer.
        host: HostAndPort,
        /// What is wrong.
        source: FrameError,
    },
    /// A message from the peer cannot be parsed.
    #[error("{host} sent a message that cannot be read: {source}")]
    Parse {
        /// The peer.
        host: HostAndPort,
        /// What is wrong.
        source: ParseError,
    },
    /// The peer's answer does not fit the request.
    #[error("{host} broke the protocol: {what}")]
    Protocol {
        /// The peer.
        host: HostAndPort,
        /// What does not fit.
        what: &'static str,
    },
    /// A required field of a reply is missing or has the wrong type.
    #[error("reply of {host} cannot be understood: {source}")]
    Reply {
        /// The peer.
        host: HostAndPort,
        /// What is wrong.
        source: FieldError,
    },
    /// The request cannot be sent.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The peer rejected our authentication.
    #[error("authentication with {host} failed: {why}")]
    Authentication {
        /// The peer.
        host: HostAndPort,
        /// Why.
        why: String,
    },
    /// The command failed on the peer.
    #[error(transparent)]
    Command(#[from] Box<CommandError>),
}

impl ClientError {
    /// The error code, if the peer ran the command and it failed.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Command(error) => Some(error.code),
            _ => None,
        }
    }

    /// True if a new connection may help; false if the peer itself answered with an error.
    pub fn is_network(&self) -> bool {
        !matches!(self, Self::Command(_) | Self::Encode(_) | Self::Authentication { .. })
    }
}

/// A reply with `ok: 0`.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{host}: {message} ({code})")]
pub struct CommandError {
    /// The peer that answered.
    pub host: HostAndPort,
    /// The code.
    pub code: ErrorCode,
    /// The `codeName` as the peer wrote it.
    pub name: String,
    /// The `errmsg`.
    pub message: String,
    /// The `errorLabels`.
    pub labels: Vec<String>,
    /// The whole reply.
    pub reply: RawDoc,
}

impl CommandError {
    /// `None` if the reply says ok.
    pub(super) fn from_reply(host: &HostAndPort, reply: &RawDoc) -> Option<Box<Self>> {
        if is_ok(reply) {
            return None;
        }
        let text = |name| reply.get_str(name).unwrap_or_default().to_owned();
        // Some very old errors have no code.
        let code = reply.get_i32("code").map_or(ErrorCode::UnknownError, ErrorCode::from_code);
        let labels = reply.get_array("errorLabels").ok();
        let labels = labels.into_iter().flatten().flatten();
        Some(Box::new(Self {
            host: host.clone(),
            code,
            name: text("codeName"),
            message: text("errmsg"),
            labels: labels.filter_map(|label| label.as_str().map(str::to_owned)).collect(),
            reply: reply.clone(),
        }))
    }
}

/// mongod writes `ok` as a double; other servers write it as an integer or a boolean.
fn is_ok(reply: &RawDocument) -> bool {
    match reply.get("ok") {
        Ok(Some(RawBsonRef::Double(ok))) => ok == 1.0,
        Ok(Some(RawBsonRef::Int32(ok))) => ok == 1,
        Ok(Some(RawBsonRef::Int64(ok))) => ok == 1,
        Ok(Some(RawBsonRef::Boolean(ok))) => ok,
        _ => false,
    }
}
