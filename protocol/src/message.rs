//! One message, read from a frame or made to be sent.
//!
//! ```text
//!  Frame --parse--> Message { ids, op, compressor } --encode--> BytesMut    one copy of each document
//!    documents share the frame's buffer           `--into_buf--> MessageBuf  none, for vectored writes
//! ```
//! M1 An uncompressed message that is parsed and encoded again gives the same bytes.
//! M2 A reply travels as its request did: same opcode family, same compressor, checksum if there was one.

use std::{collections::VecDeque, io::IoSlice};

use bytes::{Buf, Bytes, BytesMut};

use crate::{
    Compressor, Compressors, DocRun, EncodeError, MsgFlags, OpMsg, OpQuery, OpReply, ParseError,
    RawDoc, bson_check,
    framing::Frame,
    header::{HEADER_LEN, Header, MESSAGE_LEN_MAX, op_code},
    op_compressed,
    wire::{Checksummed, Parts, Sink},
};

/// The content of a message, by opcode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// A command or its reply.
    Msg(OpMsg),
    /// The legacy handshake.
    Query(OpQuery),
    /// The reply to the legacy handshake.
    Reply(OpReply),
}

/// What to accept from a peer.
#[derive(Clone, Copy, Debug)]
pub struct Accept {
    /// Compressors that were negotiated.
    pub compressors: Compressors,
    /// Whether every document is checked completely, as mongod does with what it receives. Reading raw BSON is safe
    /// without it; the check costs one pass over the message.
    pub check_bson: bool,
}

impl Accept {
    /// Accepts requests as mongod does: these compressors, every document checked.
    pub const fn checked(compressors: Compressors) -> Self {
        Self { compressors, check_bson: true }
    }

    /// Accepts replies as a client does: documents are not checked as a whole, since the client validates what it
    /// reads.
    pub const fn unchecked(compressors: Compressors) -> Self {
        Self { compressors, check_bson: false }
    }
}

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The sender's id for the message.
    pub request_id: i32,
    /// The id of the message that this one answers, 0 for a request.
    pub response_to: i32,
    /// The content.
    pub op: Op,
    /// The compressor of its envelope, received or to be sent.
    pub compressor: Option<Compressor>,
}

impl Message {
    /// A request in an OP_MSG.
    pub fn request(request_id: i32, msg: OpMsg) -> Self {
        Self { request_id, response_to: 0, op: Op::Msg(msg), compressor: None }
    }

    /// The reply to this request (M2).
    pub fn reply(&self, request_id: i32, body: impl Into<RawDoc>) -> Self {
        let body = body.into();
        let op = match &self.op {
            Op::Query(_) | Op::Reply(_) => Op::Reply(OpReply::command(&body)),
            Op::Msg(request) => {
                let checksum =
                    request.flags.contains(MsgFlags::CHECKSUM_PRESENT) && self.compressor.is_none();
                let flags = MsgFlags::NONE.with(MsgFlags::CHECKSUM_PRESENT, checksum);
                Op::Msg(OpMsg::new(body).with_flags(flags))
            }
        };
        Self { request_id, response_to: self.request_id, op, compressor: self.compressor }
    }

    /// Parses a frame; decompresses it first if necessary.
    pub fn parse(frame: Frame, accept: &Accept) -> Result<Self, ParseError> {
        let header = frame.header();
        let (frame, compressor) = match header.op_code {
            op_code::COMPRESSED => {
                let (inner, compressor) = op_compressed::open(&frame, accept.compressors)?;
                (inner, Some(compressor))
            }
            _ => (frame, None),
        };
        let op = match frame.header().op_code {
            op_code::MSG => Op::Msg(OpMsg::parse(&frame)?),
            op_code::QUERY => Op::Query(OpQuery::parse(&frame)?),
            op_code::REPLY => Op::Reply(OpReply::parse(&frame)?),
            other => return Err(ParseError::OpCode(other)),
        };
        if accept.check_bson {
            op.check_bson()?;
        }
        let (request_id, response_to) = (header.request_id, header.response_to);
        Ok(Self { request_id, response_to, op, compressor })
    }

    /// The command, or the first document of the reply.
    pub fn body(&self) -> Option<RawDoc> {
        match &self.op {
            Op::Msg(msg) => Some(msg.body.clone()),
            Op::Query(query) => Some(query.query.clone()),
            Op::Reply(reply) => reply.docs.iter().next(),
        }
    }

    /// The flags of an OP_MSG; none for other kinds.
    pub fn flags(&self) -> MsgFlags {
        match &self.op {
            Op::Msg(msg) => msg.flags,
            Op::Query(_) | Op::Reply(_) => MsgFlags::NONE,
        }
    }

    /// Length of the message if it is sent uncompressed.
    pub fn uncompressed_len(&self) -> usize {
        HEADER_LEN + self.op.wire_len()
    }

    /// Appends the message to `dst`, copying each document once.
    pub fn encode(&self, dst: &mut BytesMut) -> Result<(), EncodeError> {
        match self.compressor {
            None => {
                let header = self.header()?;
                dst.reserve(header.len);
                self.write(header, dst);
            }
            Some(compressor) => self.write_compressed(compressor, dst)?,
        }
        Ok(())
    }

    /// Encodes for a vectored write. Large documents are shared, not copied.
    pub fn into_buf(self) -> Result<MessageBuf, EncodeError> {
        if self.compressor.is_some() {
            let mut bytes = BytesMut::new();
            self.encode(&mut bytes)?;
            return Ok(MessageBuf { parts: VecDeque::from([bytes.freeze()]) });
        }
        let header = self.header()?;
        let mut parts = Parts::default();
        self.write(header, &mut parts);
        Ok(MessageBuf { parts: parts.finish().into() })
    }

    /// The header of the uncompressed message.
    fn header(&self) -> Result<Header, EncodeError> {
        let len = self.uncompressed_len();
        if len > MESSAGE_LEN_MAX {
            return Err(EncodeError::TooLong { len });
        }
        let (request_id, response_to) = (self.request_id, self.response_to);
        Ok(Header { len, request_id, response_to, op_code: self.op.op_code() })
    }

    fn write(&self, header: Header, sink: &mut impl Sink) {
        if !self.flags().contains(MsgFlags::CHECKSUM_PRESENT) {
            sink.put(&header.to_bytes());
            return self.op.write(sink);
        }
        let mut checksummed = Checksummed { inner: sink, crc: 0 };
        checksummed.put(&header.to_bytes());
        self.op.write(&mut checksummed);
        let crc = checksummed.crc;
        sink.put(&crc.to_le_bytes());
    }

    fn write_compressed(&self, with: Compressor, dst: &mut BytesMut) -> Result<(), EncodeError> {
        let inner = self.header()?;
        let mut plain = BytesMut::with_capacity(inner.len);
        self.write(inner, &mut plain);
        plain.advance(HEADER_LEN);
        let packed = op_compressed::compress(with, &plain).ok_or(EncodeError::Compress(with))?;
        let len = HEADER_LEN + 9 + packed.len();
        if len > MESSAGE_LEN_MAX {
            return Err(EncodeError::TooLong { len });
        }
        let plain_len = i32::try_from(plain.len()).unwrap_or(i32::MAX);
        dst.reserve(len);
        dst.put(&Header { len, op_code: op_code::COMPRESSED, ..inner }.to_bytes());
        dst.put(&inner.op_code.to_le_bytes());
        dst.put(&plain_len.to_le_bytes());
        dst.put(&[with.id()]);
        dst.put(&packed);
        Ok(())
    }
}

impl Op {
    fn op_code(&self) -> i32 {
        match self {
            Self::Msg(_) => op_code::MSG,
            Self::Query(_) => op_code::QUERY,
            Self::Reply(_) => op_code::REPLY,
        }
    }

    fn wire_len(&self) -> usize {
        match self {
            Self::Msg(msg) => msg.wire_len(),
            Self::Query(query) => query.wire_len(),
            Self::Reply(reply) => reply.wire_len(),
        }
    }

    fn write(&self, sink: &mut impl Sink) {
        match self {
            Self::Msg(msg) => msg.write(sink),
            Self::Query(query) => query.write(sink),
            Self::Reply(reply) => reply.write(sink),
        }
    }

    fn check_bson(&self) -> Result<(), ParseError> {
        let run = |docs: &DocRun| docs.iter().try_for_each(|doc| bson_check::check(doc.as_bytes()));
        match self {
            Self::Msg(msg) => {
                bson_check::check(msg.body.as_bytes())?;
                msg.sequences.iter().try_for_each(|sequence| run(sequence.docs()))?;
            }
            Self::Query(query) => {
                let docs = [Some(&query.query), query.fields.as_ref()].into_iter().flatten();
                let mut docs = docs.map(|doc| bson_check::check(doc.as_bytes()));
                docs.try_for_each(|checked| checked.map_err(ParseError::QueryBson))?;
            }
            Self::Reply(reply) => run(&reply.docs)?,
        }
        Ok(())
    }
}

/// An encoded message in pieces; a [`Buf`] for `AsyncWriteExt::write_all_buf`.
#[derive(Clone, Debug)]
pub struct MessageBuf {
    parts: VecDeque<Bytes>,
}

impl Buf for MessageBuf {
    fn remaining(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }

    fn chunk(&self) -> &[u8] {
        self.parts.front().map_or(&[], |part| part)
    }

    fn advance(&mut self, mut n: usize) {
        while n > 0 {
            let part = self.parts.front_mut().expect("advanced past the end of the message");
            let step = n.min(part.len());
            part.advance(step);
            n -= step;
            if part.is_empty() {
                self.parts.pop_front();
            }
        }
    }

    fn chunks_vectored<'a>(&'a self, dst: &mut [IoSlice<'a>]) -> usize {
        let pairs = dst.iter_mut().zip(&self.parts);
        pairs.map(|(slot, part)| *slot = IoSlice::new(part)).count()
    }
}

#[cfg(test)]
mod tests;
