//! Messages: a message that parses is encoded to the same bytes, and a false length field causes no large allocation.

use bytes::{Bytes, BytesMut};
use protocol::{
    Accept, BadMessage, Compressor, Compressors, Frame, Framing, Header, Message,
    header::{HEADER_LEN, MESSAGE_LEN_MAX, op_code},
};

const EVERY: [Compressor; 4] =
    [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];

/// Parses `body` as a message of the given opcode.
pub(crate) fn message(op_code: i32, body: &[u8]) {
    if let Some(frame) = frame(op_code, body) {
        examine(frame);
    }
}

/// Passes a byte stream to the framing in pieces. The first input byte gives their length.
pub(crate) fn stream(data: &[u8]) {
    let Some((step, stream)) = data.split_first() else { return };
    let mut framing = Framing::new();
    for piece in stream.chunks(usize::from(*step) + 1) {
        framing.read_buf().extend_from_slice(piece);
        loop {
            match framing.next_frame() {
                Ok(Some(frame)) => examine(frame),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

/// Parses a compressed message. The first three input bytes are the length that it claims.
pub(crate) fn packed(compressor: Compressor, data: &[u8]) {
    let Some(([a, b, c], packed)) = data.split_first_chunk() else { return };
    envelope(compressor, i32::from_le_bytes([*a, *b, *c, 0]), packed);
}

/// Parses an OP_MSG whose body is `data`, compressed, in an envelope that claims `claimed` bytes.
fn envelope(compressor: Compressor, claimed: i32, data: &[u8]) {
    let mut body = op_code::MSG.to_le_bytes().to_vec();
    body.extend_from_slice(&claimed.to_le_bytes());
    body.push(compressor.id());
    body.extend_from_slice(data);
    message(op_code::COMPRESSED, &body);
}

/// Invariants of every frame: an uncompressed message that parses is encoded to the same bytes; one that does not
/// parse gets an error reply or closes the connection.
fn examine(frame: Frame) {
    let accept = Accept::checked(Compressors::new(EVERY));
    match Message::parse(frame.clone(), &accept) {
        Ok(message) => {
            let mut again = BytesMut::new();
            let encoded = message.encode(&mut again);
            if message.compressor.is_none() {
                encoded.expect("what was read can be written");
                assert_eq!(again, frame.bytes());
            }
        }
        Err(error) => {
            let fatal = error.is_fatal();
            let reply = BadMessage { header: frame.header(), error }.reply(1);
            assert_eq!(reply.is_none(), fatal);
        }
    }
}

fn frame(op_code: i32, body: &[u8]) -> Option<Frame> {
    let len = HEADER_LEN + body.len();
    if len > MESSAGE_LEN_MAX {
        return None;
    }
    let header = Header { len, request_id: 1, response_to: 0, op_code };
    let bytes = [header.to_bytes().as_slice(), body].concat();
    Frame::new(Bytes::from(bytes)).ok()
}
