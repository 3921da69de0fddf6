//! Reading and writing the parts of a message: a cursor over shared bytes, and sinks.

use bytes::{Buf, Bytes, BytesMut};

use crate::{
    ParseError, RawDoc,
    bson_check::{InvalidBson, document_len},
};

/// Reads from the front of a shared buffer; returned parts share the buffer.
pub(crate) struct Cursor(Bytes);

impl Cursor {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All remaining bytes.
    pub(crate) fn rest(self) -> Bytes {
        self.0
    }

    pub(crate) fn drop_last(&mut self, n: usize) -> Result<(), ParseError> {
        let keep = self.0.len().checked_sub(n).ok_or(ParseError::TooShort)?;
        self.0.truncate(keep);
        Ok(())
    }

    pub(crate) fn u8(&mut self) -> Result<u8, ParseError> {
        self.0.try_get_u8().map_err(|_| ParseError::TooShort)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, ParseError> {
        self.0.try_get_u32_le().map_err(|_| ParseError::TooShort)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, ParseError> {
        self.0.try_get_i32_le().map_err(|_| ParseError::TooShort)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, ParseError> {
        self.0.try_get_i64_le().map_err(|_| ParseError::TooShort)
    }

    /// The text up to the next zero byte.
    pub(crate) fn cstring(&mut self) -> Result<Bytes, ParseError> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let text = self.0.split_to(end.ok_or(ParseError::Unterminated { left: self.0.len() })?);
        self.0.advance(1);
        Ok(text)
    }

    /// A part that begins with its length; the length includes itself.
    pub(crate) fn length_prefixed(&mut self) -> Result<Self, ParseError> {
        // A length below four wraps around, as in mongod, and is then refused as far too long.
        let by = self.u32().map_err(|_| ParseError::Overrun { by: 4, left: self.0.len() })?;
        let by = by.wrapping_sub(4);
        let len = usize::try_from(by).ok().filter(|len| *len <= self.0.len());
        let len = len.ok_or(ParseError::Overrun { by, left: self.0.len() })?;
        Ok(Self(self.0.split_to(len)))
    }

    /// The next document; its length and terminator are checked.
    pub(crate) fn doc(&mut self) -> Result<RawDoc, InvalidBson> {
        let len = document_len(&self.0).map_err(InvalidBson::outermost)?;
        Ok(RawDoc::from_checked(self.0.split_to(len)))
    }

    /// Skips a document; its length and terminator are checked.
    pub(crate) fn skip_doc(&mut self) -> Result<(), InvalidBson> {
        let len = document_len(&self.0).map_err(InvalidBson::outermost)?;
        self.0.advance(len);
        Ok(())
    }
}

/// Destination of an encoded message.
pub(crate) trait Sink {
    /// Copies a few bytes.
    fn put(&mut self, bytes: &[u8]);
    /// Takes one or more documents: copied once, or shared.
    fn share(&mut self, bytes: &Bytes);
}

impl Sink for BytesMut {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn share(&mut self, bytes: &Bytes) {
        self.extend_from_slice(bytes);
    }
}

/// Forwards everything to `inner` and computes its CRC-32C.
pub(crate) struct Checksummed<'a, S> {
    pub(crate) inner: &'a mut S,
    pub(crate) crc: u32,
}

impl<S: Sink> Sink for Checksummed<'_, S> {
    fn put(&mut self, bytes: &[u8]) {
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        self.inner.put(bytes);
    }

    fn share(&mut self, bytes: &Bytes) {
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        self.inner.share(bytes);
    }
}

/// Collects the parts of a message without copying large ones.
#[derive(Default)]
pub(crate) struct Parts {
    done: Vec<Bytes>,
    small: BytesMut,
}

/// Smaller parts are copied: that is cheaper than another entry in a vectored write.
const SHARE_LEN_MIN: usize = 4 * 1024;

impl Parts {
    pub(crate) fn finish(mut self) -> Vec<Bytes> {
        self.flush();
        self.done
    }

    fn flush(&mut self) {
        if !self.small.is_empty() {
            self.done.push(self.small.split().freeze());
        }
    }
}

impl Sink for Parts {
    fn put(&mut self, bytes: &[u8]) {
        self.small.extend_from_slice(bytes);
    }

    fn share(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARE_LEN_MIN {
            return self.put(bytes);
        }
        self.flush();
        self.done.push(bytes.clone());
    }
}
