//! Shared by the fuzz targets: parses one message from arbitrary bytes and checks what must hold.

pub mod sasl;

use bytes::{Bytes, BytesMut};
use protocol::{
    Accept, BadMessage, Compressor, Compressors, Frame, Header, Message,
    header::{HEADER_LEN, MESSAGE_LEN_MAX, op_code},
};

const EVERY: [Compressor; 4] =
    [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];

/// Parses `body` as a message of the given opcode.
pub fn message(op_code: i32, body: &[u8]) {
    if let Some(frame) = frame(op_code, body) {
        examine(frame);
    }
}

/// Parses an OP_MSG whose body is `data`, compressed, in an envelope that claims `claimed` bytes.
pub fn envelope(compressor: Compressor, claimed: i32, data: &[u8]) {
    let mut body = op_code::MSG.to_le_bytes().to_vec();
    body.extend_from_slice(&claimed.to_le_bytes());
    body.push(compressor.id());
    body.extend_from_slice(data);
    message(op_code::COMPRESSED, &body);
}

/// Invariants of every frame: an uncompressed message that parses is encoded to the same bytes; one that does not
/// parse gets an error reply or closes the connection.
pub fn examine(frame: Frame) {
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
