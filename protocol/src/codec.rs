//! A thin coat over [`crate::framing`] and [`crate::message`] for `tokio_util::codec::Framed`.

use std::io;

use bytes::BytesMut;
use tokio_util::codec::{Decoder, Encoder};

use crate::{
    Accept, EncodeError, FrameError, Message, ParseError,
    framing::{room_wanted, take_frame},
    header::Header,
};

/// A whole message that could not be understood. The stream can go on after it, if mongod's would.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct BadMessage {
    /// Its header, for the answer.
    pub header: Header,
    /// What is wrong with it.
    pub error: ParseError,
}

/// Why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The stream cannot be cut into messages.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A message cannot be sent.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// Decodes to a message, or to what is wrong with it; encodes messages.
#[derive(Debug, Clone)]
pub struct MessageCodec {
    /// What to accept; changes when compression has been negotiated.
    pub accept: Accept,
}

impl MessageCodec {
    /// Accepts what `accept` says.
    pub fn new(accept: Accept) -> Self {
        Self { accept }
    }
}

impl Decoder for MessageCodec {
    type Item = Result<Message, BadMessage>;
    type Error = CodecError;

    fn decode(&mut self, src: &mut BytesMut) -> Result<Option<Self::Item>, CodecError> {
        let Some(frame) = take_frame(src)? else {
            let room = room_wanted(src);
            src.reserve(room);
            return Ok(None);
        };
        let header = frame.header();
        let parsed = Message::parse(frame, &self.accept);
        Ok(Some(parsed.map_err(|error| BadMessage { header, error })))
    }

    fn decode_eof(&mut self, src: &mut BytesMut) -> Result<Option<Self::Item>, CodecError> {
        match self.decode(src)? {
            Some(item) => Ok(Some(item)),
            None if src.is_empty() => Ok(None),
            None => Err(FrameError::Truncated { have: src.len() }.into()),
        }
    }
}

impl Encoder<&Message> for MessageCodec {
    type Error = CodecError;

    fn encode(&mut self, message: &Message, dst: &mut BytesMut) -> Result<(), CodecError> {
        Ok(message.encode(dst)?)
    }
}

impl Encoder<Message> for MessageCodec {
    type Error = CodecError;

    fn encode(&mut self, message: Message, dst: &mut BytesMut) -> Result<(), CodecError> {
        Ok(message.encode(dst)?)
    }
}
