//! What can be wrong with a message, and what mongod does about it.
//!
//! ```text
//!  FrameError   the stream itself cannot be cut: close the connection
//!  ParseError   this message cannot be read: answer with code and text, or close (`is_fatal`)
//!  EncodeError  we tried to send what nobody would read
//! ```

use bson::{RawDocumentBuf, rawdoc};

use crate::{
    ErrorCode,
    bson_check::InvalidBson,
    header::{HEADER_LEN, MESSAGE_LEN_MAX},
    op_compressed::Compressor,
};

/// Why a stream of bytes can no longer be cut into messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length field is out of bounds.
    #[error(
        "message length {len} is invalid: it must lie between {HEADER_LEN} and {MESSAGE_LEN_MAX}"
    )]
    Length {
        /// What the header says.
        len: i32,
    },
    /// The bytes end before, or go on after, the message they should hold.
    #[error("the message does not have the length that its header gives; {have} bytes are there")]
    Truncated {
        /// Bytes that are there.
        have: usize,
    },
}

impl FrameError {
    /// True if the first four bytes are those of a browser's request. mongod then answers with a
    /// line of HTTP before it closes.
    pub fn is_http(self) -> bool {
        self == Self::Length { len: i32::from_le_bytes(*b"GET ") }
    }
}

/// Why a message that is whole cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// No opcode that we read.
    #[error("opcode {0} is not supported")]
    OpCode(i32),
    /// A required flag bit that we don't know.
    #[error("Message contains illegal flags value: Ob{0:b}")]
    UnknownFlags(u32),
    /// The checksum does not fit the bytes.
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
    /// The name of a document sequence is no text.
    #[error("document sequence name is not valid UTF-8")]
    SequenceName,
    /// A name that is both a field of the body and a document sequence.
    #[error("Duplicate field between body and document sequence {0}")]
    SequenceInBody(String),
    /// Too short to hold the fixed fields of its opcode.
    #[error("message is too short for its opcode")]
    TooShort,
    /// Too short to hold the checksum that its flags promise.
    #[error("Invalid message size for an OpMsg containing a checksum")]
    NoChecksum,
    /// A section's length goes beyond the message, or is negative.
    #[error("Invalid advance ({by}) past end of buffer[{left}] at offset: 0")]
    Overrun {
        /// What the length says, as mongod computes with it.
        by: u32,
        /// What is left of the message.
        left: usize,
    },
    /// A name without a closing zero byte.
    #[error("couldn't locate terminal char (\\u0000) in buffer[{left}] at offset: 0")]
    Unterminated {
        /// What is left of the message.
        left: usize,
    },
    /// Something follows the last part of an OP_QUERY or OP_REPLY, or is missing there.
    #[error("Client Error: Remaining data too small for BSON object")]
    Remainder,
    /// A document of an OP_QUERY that is not BSON.
    #[error("Client Error: bad object in message: {0}")]
    QueryBson(InvalidBson),
    /// A document that is not BSON.
    #[error(transparent)]
    Bson(#[from] InvalidBson),
    /// A compressor by a number that nobody knows.
    #[error("Unknown compressor id: {0}")]
    UnknownCompressor(u8),
    /// A compressor that was not agreed on.
    #[error("compressor {0} was not negotiated")]
    NotNegotiated(Compressor),
    /// The envelope claims more than a message may have.
    #[error("decompressed message would be {0} bytes long; that is too long or impossible")]
    DecompressedLength(i64),
    /// The compressed bytes are damaged, or don't have the length that the envelope gives.
    #[error("cannot decompress a {0} message")]
    Decompress(Compressor),
}

impl ParseError {
    /// The code of mongod's answer.
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

    /// True where mongod closes the connection without a word, false where it answers.
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

    /// The body of the answer where there is one: `{ok: 0, errmsg, code, codeName}`.
    pub fn to_reply(&self) -> RawDocumentBuf {
        let code = self.code();
        rawdoc! { "ok": 0.0, "errmsg": self.to_string(), "code": code.code(), "codeName": code.name() }
    }
}

/// Why a message cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// No peer would read it.
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
