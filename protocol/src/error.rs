//! Errors in messages, and how mongod reacts to each.
//!
//! ```text
//!  FrameError   the stream cannot be split into messages: close the connection
//!  ParseError   this message cannot be parsed: reply with code and text, or close (`is_fatal`)
//!  EncodeError  we tried to send a message that no peer would accept
//! ```

use bson::{RawDocumentBuf, rawdoc};

use crate::{
    ErrorCode,
    bson_check::InvalidBson,
    header::{HEADER_LEN, MESSAGE_LEN_MAX},
    op_compressed::Compressor,
};

/// Why a stream of bytes can no longer be split into messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length field is out of bounds.
    #[error(
        "message length {len} is invalid: it must lie between {HEADER_LEN} and {MESSAGE_LEN_MAX}"
    )]
    Length {
        /// Length in the header.
        len: i32,
    },
    /// There are fewer or more bytes than the message's length.
    #[error("the message does not have the length that its header gives; {have} bytes are there")]
    Truncated {
        /// Bytes that are available.
        have: usize,
    },
}

impl FrameError {
    /// True if the first four bytes are the start of an HTTP request. mongod then answers with a line of HTTP before
    /// it closes.
    pub fn is_http(self) -> bool {
        self == Self::Length { len: i32::from_le_bytes(*b"GET ") }
    }
}

/// Why a complete message cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// An opcode that we do not support.
    #[error("opcode {0} is not supported")]
    OpCode(i32),
    /// An unknown flag among the bits that must be understood.
    #[error("Message contains illegal flags value: Ob{0:b}")]
    UnknownFlags(u32),
    /// The checksum does not match the bytes.
    #[error("OP_MSG checksum does not match contents")]
    Checksum,
    /// A section of a kind other than 0 and 1.
    #[error("Unknown section kind {0}")]
    SectionKind(u8),
    /// A second section of kind 0.
    #[error("Multiple body sections in message")]
    TwoBodies,
    /// No section of kind 0.
    #[error("OP_MSG messages must have a body")]
    NoBody,
    /// Two document sequences with one name.
    #[error("Duplicate document sequence: {0}")]
    DuplicateSequence(String),
    /// The name of a document sequence is not UTF-8.
    #[error("document sequence name is not valid UTF-8")]
    SequenceName,
    /// A name that is both a field of the body and a document sequence.
    #[error("Duplicate field between body and document sequence {0}")]
    SequenceInBody(String),
    /// Too short to hold the fixed fields of its opcode.
    #[error("message is too short for its opcode")]
    TooShort,
    /// Too short to hold the checksum that its flags announce.
    #[error("Invalid message size for an OpMsg containing a checksum")]
    NoChecksum,
    /// A section's length exceeds the message or is negative.
    #[error("Invalid advance ({by}) past end of buffer[{left}] at offset: 0")]
    Overrun {
        /// The length minus four, wrapped around as in mongod.
        by: u32,
        /// Bytes left in the message.
        left: usize,
    },
    /// A name without a closing zero byte.
    #[error("couldn't locate terminal char (\\u0000) in buffer[{left}] at offset: 0")]
    Unterminated {
        /// Bytes left in the message.
        left: usize,
    },
    /// An OP_QUERY or OP_REPLY has bytes after its last part, or too few.
    #[error("Client Error: Remaining data too small for BSON object")]
    Remainder,
    /// A document of an OP_QUERY that is not valid BSON.
    #[error("Client Error: bad object in message: {0}")]
    QueryBson(InvalidBson),
    /// A document that is not valid BSON.
    #[error(transparent)]
    Bson(#[from] InvalidBson),
    /// An unknown compressor number.
    #[error("Unknown compressor id: {0}")]
    UnknownCompressor(u8),
    /// A compressor that was not negotiated.
    #[error("compressor {0} was not negotiated")]
    NotNegotiated(Compressor),
    /// The envelope claims a length above the maximum message length.
    #[error("decompressed message would be {0} bytes long; that is too long or impossible")]
    DecompressedLength(i64),
    /// The compressed bytes are damaged, or their length differs from the one in the envelope.
    #[error("cannot decompress a {0} message")]
    Decompress(Compressor),
}

impl ParseError {
    /// The error code that mongod replies with.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::OpCode(_) => ErrorCode::IllegalOperation,
            Self::UnknownFlags(_) => ErrorCode::IllegalOpMsgFlag,
            Self::Checksum => ErrorCode::ChecksumMismatch,
            Self::SectionKind(_) => ErrorCode::Location(40432),
            Self::TwoBodies => ErrorCode::Location(40430),
            Self::NoBody => ErrorCode::Location(40587),
            Self::DuplicateSequence(_) => ErrorCode::Location(40431),
            Self::SequenceName => ErrorCode::BadValue,
            Self::SequenceInBody(_) => ErrorCode::Location(40433),
            Self::NoChecksum => ErrorCode::Location(51252),
            Self::Overrun { .. } | Self::Unterminated { .. } => ErrorCode::Overflow,
            Self::Remainder => ErrorCode::InvalidBSON,
            Self::TooShort => ErrorCode::ProtocolError,
            Self::Bson(e) | Self::QueryBson(e) => e.code(),
            Self::UnknownCompressor(_)
            | Self::NotNegotiated(_)
            | Self::DecompressedLength(_)
            | Self::Decompress(_) => ErrorCode::BadValue,
        }
    }

    /// True where mongod closes the connection without replying.
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::OpCode(_)
            | Self::UnknownFlags(_)
            | Self::Checksum
            | Self::TooShort
            | Self::UnknownCompressor(_)
            | Self::NotNegotiated(_)
            | Self::DecompressedLength(_)
            | Self::Decompress(_) => true,
            Self::SectionKind(_)
            | Self::TwoBodies
            | Self::NoBody
            | Self::DuplicateSequence(_)
            | Self::SequenceName
            | Self::SequenceInBody(_)
            | Self::NoChecksum
            | Self::Overrun { .. }
            | Self::Unterminated { .. }
            | Self::Remainder
            | Self::Bson(_)
            | Self::QueryBson(_) => false,
        }
    }

    /// The body of the reply, if one is sent: `{ok: 0, errmsg, code, codeName}`.
    pub fn to_reply(&self) -> RawDocumentBuf {
        let code = self.code();
        rawdoc! { "ok": 0.0, "errmsg": self.to_string(), "code": code.code(), "codeName": code.name() }
    }
}

/// Why a message cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The message exceeds the maximum length.
    #[error(
        "the message would be {len} bytes long, more than the {MESSAGE_LEN_MAX} that a peer reads: send less at once"
    )]
    TooLong {
        /// Its length.
        len: usize,
    },
    /// The compressor failed.
    #[error("cannot compress a message with {0}")]
    Compress(Compressor),
}
