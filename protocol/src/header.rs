//! The 16-byte header of every message, and the limits that can be checked on it alone.
//!
//! ```text
//!  0          4            8            12        16
//!  | length   | request id | response to | opcode | body ...
//! ```
//! All four are little-endian 32-bit integers; the length includes the header itself.

use crate::FrameError;

/// Bytes of a header.
pub const HEADER_LEN: usize = 16;

/// The longest message that mongod reads or writes, header included (`maxMessageSizeBytes`).
pub const MESSAGE_LEN_MAX: usize = 48_000_000;

/// The opcodes.
pub mod op_code {
    /// OP_REPLY, the reply to OP_QUERY.
    pub const REPLY: i32 = 1;
    /// OP_UPDATE, removed in 5.1.
    pub const UPDATE: i32 = 2001;
    /// OP_QUERY, used today only for the first hello.
    pub const QUERY: i32 = 2004;
    /// OP_KILL_CURSORS, removed in 5.1.
    pub const KILL_CURSORS: i32 = 2007;
    /// OP_COMPRESSED, an envelope around another message.
    pub const COMPRESSED: i32 = 2012;
    /// OP_MSG, used for all commands and replies today.
    pub const MSG: i32 = 2013;
}

/// A header whose length is within bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Length of the whole message, between [`HEADER_LEN`] and [`MESSAGE_LEN_MAX`].
    pub len: usize,
    /// The sender's id for this message.
    pub request_id: i32,
    /// The id of the message that this one answers, 0 for a request.
    pub response_to: i32,
    /// One of [`op_code`], or an unknown number.
    pub op_code: i32,
}

impl Header {
    /// Parses a header and refuses a length out of bounds.
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Self, FrameError> {
        let [len, request_id, response_to, op_code] = words(bytes);
        let checked = usize::try_from(len).ok();
        let len = checked
            .filter(|len| (HEADER_LEN..=MESSAGE_LEN_MAX).contains(len))
            .ok_or(FrameError::Length { len })?;
        Ok(Self { len, request_id, response_to, op_code })
    }

    /// The header as it goes on the wire.
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let len = i32::try_from(self.len).unwrap_or(i32::MAX);
        let mut bytes = [0; HEADER_LEN];
        let words = [len, self.request_id, self.response_to, self.op_code];
        for (slot, word) in bytes.chunks_exact_mut(4).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

fn words(bytes: &[u8; HEADER_LEN]) -> [i32; 4] {
    let [a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3] = *bytes;
    [
        i32::from_le_bytes([a0, a1, a2, a3]),
        i32::from_le_bytes([b0, b1, b2, b3]),
        i32::from_le_bytes([c0, c1, c2, c3]),
        i32::from_le_bytes([d0, d1, d2, d3]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_wire() {
        let header = Header { len: 21, request_id: -3, response_to: 7, op_code: op_code::MSG };
        assert_eq!(Header::parse(&header.to_bytes()), Ok(header));
    }

    #[test]
    fn lengths_out_of_bounds_are_refused() {
        for len in [i32::MIN, -1, 0, 15, 48_000_001, i32::MAX] {
            let mut bytes = [0; HEADER_LEN];
            bytes[..4].copy_from_slice(&len.to_le_bytes());
            assert_eq!(Header::parse(&bytes), Err(FrameError::Length { len }));
        }
    }
}
