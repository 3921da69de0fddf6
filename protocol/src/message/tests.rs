use bson::rawdoc;

use super::*;
use crate::{DocSequence, FrameError, Reason};

const EVERY: [Compressor; 4] =
    [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];

fn accept() -> Accept {
    Accept::checked(Compressors::new(EVERY))
}

fn encoded(message: &Message) -> Bytes {
    let mut out = BytesMut::new();
    message.encode(&mut out).unwrap();
    out.freeze()
}

fn parsed(bytes: impl Into<Bytes>) -> Result<Message, ParseError> {
    Message::parse(Frame::new(bytes.into()).unwrap(), &accept())
}

/// An OP_MSG from the bytes after its header.
fn op_msg(body: &[u8]) -> Vec<u8> {
    let len = HEADER_LEN + body.len();
    let header = Header { len, request_id: 1, response_to: 0, op_code: op_code::MSG };
    [header.to_bytes().as_slice(), body].concat()
}

fn insert() -> Message {
    let docs = [rawdoc! { "_id": 1 }, rawdoc! { "_id": 2, "s": "x".repeat(5000) }];
    let body = rawdoc! { "insert": "c", "$db": "test" };
    let docs = DocSequence::new("documents", docs.iter().map(|doc| &**doc));
    Message::request(9, OpMsg::new(body).with_sequence(docs))
}

#[test]
fn requests_survive_the_wire_in_every_envelope() {
    for compressor in [None].into_iter().chain(EVERY.map(Some)) {
        for flags in [MsgFlags::NONE, MsgFlags::CHECKSUM_PRESENT | MsgFlags::EXHAUST_ALLOWED] {
            let mut message = insert();
            message.compressor = compressor;
            let Op::Msg(msg) = &mut message.op else { unreachable!() };
            msg.flags = flags;
            let bytes = encoded(&message);
            assert_eq!(parsed(bytes.clone()).unwrap(), message);
            let mut vectored = message.into_buf().unwrap();
            assert_eq!(vectored.copy_to_bytes(bytes.len()), bytes);
        }
    }
}

#[test]
fn large_documents_are_shared_both_ways() {
    let body = RawDoc::from(rawdoc! { "s": "x".repeat(1 << 20) });
    let message = Message::request(1, OpMsg::new(body.clone()));
    let buf = message.clone().into_buf().unwrap();
    assert!(buf.parts.iter().any(|part| part.as_ptr() == body.bytes().as_ptr()));
    let bytes = encoded(&message);
    let within = bytes.as_ptr() as usize..bytes.as_ptr() as usize + bytes.len();
    let Op::Msg(msg) = parsed(bytes).unwrap().op else { unreachable!() };
    assert!(within.contains(&(msg.body.bytes().as_ptr() as usize)));
}

#[test]
fn sequences_before_the_body_stay_there() {
    let doc = rawdoc! { "_id": 1 };
    let mut body = vec![0, 0, 0, 0, 1];
    body.extend_from_slice(&(4 + 2 + i32::try_from(doc.as_bytes().len()).unwrap()).to_le_bytes());
    body.extend_from_slice(b"d\0");
    body.extend_from_slice(doc.as_bytes());
    body.push(0);
    body.extend_from_slice(rawdoc! { "insert": "c" }.as_bytes());
    let bytes = op_msg(&body);
    let message = parsed(bytes.clone()).unwrap();
    let Op::Msg(msg) = &message.op else { unreachable!() };
    assert_eq!(msg.sequence("d").unwrap().iter().next().unwrap().get_i32("_id").unwrap(), 1);
    assert_eq!(encoded(&message), bytes);
}

#[test]
fn broken_messages_are_named() {
    let doc = rawdoc! { "ping": 1 };
    let doc = doc.as_bytes();
    let with =
        |flags: u32, rest: &[&[u8]]| op_msg(&[&flags.to_le_bytes()[..], &rest.concat()].concat());
    let cases = [
        (with(4, &[&[0], doc]), ParseError::UnknownFlags(4)),
        (with(1, &[&[0], doc, &[1, 2, 3, 4]]), ParseError::Checksum),
        (with(1, &[]), ParseError::NoChecksum),
        (with(0, &[]), ParseError::NoBody),
        (with(0, &[&[0], doc, &[0], doc]), ParseError::TwoBodies),
        (with(0, &[&[2], doc]), ParseError::SectionKind(2)),
        (with(0, &[&[0], doc, &[1, 99, 0, 0, 0, 1, 2]]), overrun(95, 2)),
        (with(0, &[&[0], doc, &[1, 3, 0, 0, 0, 1, 2]]), overrun(u32::MAX, 2)),
        (with(0, &[&[0], doc, &[1, 5, 0, 0, 0, b'a']]), ParseError::Unterminated { left: 1 }),
        (with(0, &[&[1, 6, 0, 0, 0, b'a', 0, 1, 6, 0, 0, 0, b'a', 0]]), duplicate("a")),
        (
            with(0, &[&[0], doc, &[1, 9, 0, 0, 0], b"ping\0"]),
            ParseError::SequenceInBody("ping".to_owned()),
        ),
        (op_msg(&[0, 0]), ParseError::TooShort),
    ];
    for (bytes, want) in cases {
        assert_eq!(parsed(bytes), Err(want));
    }
    // Unknown optional flag bits are ignored, and encoding returns them unchanged.
    let optional = with(1 << 20, &[&[0], doc]);
    assert_eq!(encoded(&parsed(optional.clone()).unwrap()), optional);
    // A document that is longer than its section, and a document that is malformed inside.
    let reason = |bytes: Vec<u8>| match parsed(bytes) {
        Err(ParseError::Bson(fault)) => fault.reason,
        other => panic!("{other:?}"),
    };
    let overrun = Reason::Overrun { len: 99, have: 5 };
    assert_eq!(reason(with(0, &[&[0, 99, 0, 0, 0, 0]])), overrun);
    assert_eq!(reason(with(0, &[&[0, 7, 0, 0, 0, 0x20, 0, 0]])), Reason::UnknownType(0x20));
}

fn overrun(by: u32, left: usize) -> ParseError {
    ParseError::Overrun { by, left }
}

fn duplicate(name: &str) -> ParseError {
    ParseError::DuplicateSequence(name.to_owned())
}

#[test]
fn other_opcodes_are_refused() {
    let mut bytes = op_msg(&[0; 20]);
    bytes[12..16].copy_from_slice(&op_code::KILL_CURSORS.to_le_bytes());
    assert_eq!(parsed(bytes), Err(ParseError::OpCode(op_code::KILL_CURSORS)));
    assert_eq!(Frame::new(Bytes::from_static(b"abc")), Err(FrameError::Truncated { have: 3 }));
}

#[test]
fn a_reply_travels_as_its_request_did() {
    let mut request = insert();
    let Op::Msg(msg) = &mut request.op else { unreachable!() };
    msg.flags = MsgFlags::CHECKSUM_PRESENT;
    let reply = request.reply(77, rawdoc! { "ok": 1.0 });
    assert_eq!((reply.request_id, reply.response_to), (77, 9));
    assert_eq!(reply.flags(), MsgFlags::CHECKSUM_PRESENT);
    request.compressor = Some(Compressor::Zstd);
    let reply = request.reply(78, rawdoc! { "ok": 1.0 });
    assert_eq!(reply.compressor, Some(Compressor::Zstd));
    assert_eq!(reply.flags(), MsgFlags::NONE);
    request.op = Op::Query(OpQuery::command("admin", rawdoc! { "isMaster": 1 }));
    assert!(matches!(request.reply(79, rawdoc! { "ok": 1.0 }).op, Op::Reply(_)));
}

#[test]
fn what_no_peer_would_read_is_not_sent() {
    let docs = vec![rawdoc! { "s": "x".repeat(16 << 20) }; 3];
    let docs = DocSequence::new("documents", docs.iter().map(|doc| &**doc));
    let message = Message::request(1, OpMsg::new(rawdoc! { "insert": "c" }).with_sequence(docs));
    let len = message.uncompressed_len();
    assert_eq!(message.encode(&mut BytesMut::new()), Err(EncodeError::TooLong { len }));
}
