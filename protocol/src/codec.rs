//! Adapts [`crate::framing`] and [`crate::message`] to `tokio_util::codec::Framed`.

use std::io;

use bytes::BytesMut;
use tokio_util::codec::{Decoder, Encoder};

use crate::{
    Accept, EncodeError, FrameError, Message, Op, OpMsg, OpReply, ParseError,
    framing::{room_wanted, take_frame},
    header::{Header, op_code},
};

/// A complete message that cannot be parsed. The connection may continue if mongod would continue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct BadMessage {
    /// Header of the message, needed for the reply.
    pub header: Header,
    /// What is wrong with it.
    pub error: ParseError,
}

impl BadMessage {
    /// mongod's reply, or `None` where mongod closes the connection without replying.
    pub fn reply(&self, request_id: i32) -> Option<Message> {
        if self.error.is_fatal() {
            return None;
        }
        let body = self.error.to_reply().into();
        let op = match self.header.op_code {
            op_code::QUERY => Op::Reply(OpReply::command(&body)),
            _ => Op::Msg(OpMsg::new(body)),
        };
        Some(Message { request_id, response_to: self.header.request_id, op, compressor: None })
    }
}

/// Why a connection must be closed.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The stream cannot be split into messages.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A message cannot be sent.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// Decodes to a message or to a parse error; encodes messages.
#[derive(Debug, Clone)]
pub struct MessageCodec {
    /// What to accept; changes when compression has been negotiated.
    pub accept: Accept,
}

impl MessageCodec {
    /// A codec that accepts what `accept` allows.
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

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::Compressors;

    #[test]
    fn a_bad_message_is_answered_and_the_next_one_read() {
        let mut codec = MessageCodec::new(Accept::checked(Compressors::NONE));
        let mut stream = BytesMut::new();
        let ping = Message::request(1, OpMsg::new(rawdoc! { "ping": 1 }));
        codec.encode(&ping, &mut stream).unwrap();
        stream.extend_from_slice(b"\x14\0\0\0\x02\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0");
        codec.encode(&ping, &mut stream).unwrap();
        assert_eq!(codec.decode(&mut stream).unwrap(), Some(Ok(ping.clone())));
        let bad = codec.decode(&mut stream).unwrap().unwrap().unwrap_err();
        assert_eq!(bad.error, ParseError::NoBody);
        let reply = bad.reply(9).unwrap();
        assert_eq!((reply.request_id, reply.response_to), (9, 2));
        assert_eq!(reply.body().unwrap().get_i32("code").unwrap(), 40587);
        assert_eq!(codec.decode(&mut stream).unwrap(), Some(Ok(ping)));
        assert_eq!(codec.decode_eof(&mut stream).unwrap(), None);
        stream.extend_from_slice(&[0x14, 0, 0, 0, 2]);
        assert!(matches!(codec.decode_eof(&mut stream), Err(CodecError::Frame(_))));
    }
}
