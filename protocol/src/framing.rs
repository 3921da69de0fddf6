//! Splits a stream of bytes into whole messages. Owns a buffer, never a socket.
//!
//! ```text
//!  socket --read--> buffer: | header | body ........ | header | bo      next_frame()
//!                             `--- one Frame, shares the buffer ---'    None: read more
//! ```
//! F1 Bytes leave the buffer only as a whole frame.
//! F2 A length out of bounds is refused as soon as its four bytes have arrived.
//! F3 The buffer grows with the data that has arrived (at most doubling), never by the length that a header claims.

use bytes::{Bytes, BytesMut};

use crate::{
    FrameError,
    header::{HEADER_LEN, Header},
};

/// One message as received, including its header, not parsed yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    header: Header,
    bytes: Bytes,
}

impl Frame {
    /// Makes a frame from the bytes of exactly one message.
    pub fn new(bytes: Bytes) -> Result<Self, FrameError> {
        let head = bytes.first_chunk().ok_or(FrameError::Truncated { have: bytes.len() })?;
        let header = Header::parse(head)?;
        if header.len != bytes.len() {
            return Err(FrameError::Truncated { have: bytes.len() });
        }
        Ok(Self { header, bytes })
    }

    /// The header.
    pub fn header(&self) -> Header {
        self.header
    }

    /// The whole message, header included.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The bytes after the header.
    pub fn body(&self) -> Bytes {
        self.bytes.slice(HEADER_LEN..)
    }
}

/// Splits a stream of bytes into frames.
#[derive(Debug, Default)]
pub struct Framing {
    buf: BytesMut,
}

/// Growth of the buffer when no header has arrived yet; most requests fit into it.
const READ_LEN: usize = 4 * 1024;

/// Minimum growth of the buffer while a long message arrives; beyond this the buffer doubles.
const READ_LONG_LEN: usize = 64 * 1024;

impl Framing {
    /// An empty buffer, which allocates nothing until data arrives.
    pub fn new() -> Self {
        Self::default()
    }

    /// The buffer to read into, with spare capacity reserved.
    pub fn read_buf(&mut self) -> &mut BytesMut {
        let want = room_wanted(&self.buf);
        self.buf.reserve(want);
        &mut self.buf
    }

    /// The next whole frame, or `None` if more bytes are needed.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        take_frame(&mut self.buf)
    }

    /// True if no byte of a further message has arrived.
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// Frees the buffer while the connection is idle. Does nothing in the middle of a message.
    pub fn release(&mut self) {
        if self.buf.is_empty() {
            self.buf = BytesMut::new();
        }
    }
}

/// The next whole frame of `buf`, or `None` if it is incomplete (F1, F2).
pub(crate) fn take_frame(buf: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
    check_length_early(buf)?;
    let Some(head) = buf.first_chunk() else { return Ok(None) };
    let header = Header::parse(head)?;
    if buf.len() < header.len {
        return Ok(None);
    }
    Ok(Some(Frame { header, bytes: buf.split_to(header.len).freeze() }))
}

/// Bytes to reserve before the next read (F3).
pub(crate) fn room_wanted(buf: &BytesMut) -> usize {
    let missing = buf
        .first_chunk()
        .and_then(|head| Header::parse(head).ok())
        .map_or(READ_LEN, |header| header.len.saturating_sub(buf.len()).max(1));
    missing.min(buf.len().max(READ_LONG_LEN))
}

/// Checks the length before the rest of the header has arrived.
fn check_length_early(buf: &BytesMut) -> Result<(), FrameError> {
    let Some(length) = buf.first_chunk::<4>() else { return Ok(()) };
    let mut head = [0; HEADER_LEN];
    for (slot, byte) in head.iter_mut().zip(length) {
        *slot = *byte;
    }
    Header::parse(&head).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{MESSAGE_LEN_MAX, op_code};

    fn frame(body: &[u8]) -> Vec<u8> {
        let len = HEADER_LEN + body.len();
        let header = Header { len, request_id: 1, response_to: 0, op_code: op_code::MSG };
        [header.to_bytes().as_slice(), body].concat()
    }

    #[test]
    fn frames_come_out_whole_however_the_bytes_arrive() {
        let stream = [frame(b"one"), frame(b""), frame(b"three")].concat();
        for step in 1..stream.len() {
            let mut framing = Framing::new();
            let mut bodies = Vec::new();
            for piece in stream.chunks(step) {
                framing.read_buf().extend_from_slice(piece);
                while let Some(frame) = framing.next_frame().unwrap() {
                    bodies.push(frame.body());
                }
            }
            assert_eq!(bodies, [&b"one"[..], b"", b"three"], "step {step}");
            assert!(framing.is_empty());
        }
    }

    #[test]
    fn a_bad_length_is_refused_after_four_bytes() {
        let mut framing = Framing::new();
        framing.read_buf().extend_from_slice(&[0xff, 0xff, 0xff]);
        assert_eq!(framing.next_frame(), Ok(None));
        framing.read_buf().extend_from_slice(&[0x7f]);
        assert_eq!(framing.next_frame(), Err(FrameError::Length { len: i32::MAX }));
    }

    #[test]
    fn a_claimed_length_allocates_nothing_by_itself() {
        let claim =
            Header { len: MESSAGE_LEN_MAX, request_id: 1, response_to: 0, op_code: op_code::MSG };
        let mut framing = Framing::new();
        framing.read_buf().extend_from_slice(&claim.to_bytes());
        assert_eq!(framing.next_frame(), Ok(None));
        assert!(framing.read_buf().capacity() < 3 * READ_LONG_LEN);
    }

    #[test]
    fn an_idle_buffer_is_given_back() {
        let mut framing = Framing::new();
        framing.read_buf().extend_from_slice(&frame(b"x"));
        framing.release();
        assert!(framing.next_frame().unwrap().is_some());
        framing.release();
        assert_eq!(framing.buf.capacity(), 0);
    }
}
