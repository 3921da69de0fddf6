//! Decodes recorded traffic between real mongods and encodes it again.
//!
//! `captures/VERSION/*.raw` holds every message of a mongod joining a set. Each record is one byte for the direction,
//! four for the connection, then the message as it was on the wire.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test: a panic is its answer")]

use std::{collections::BTreeMap, fs, path::PathBuf};

use bson::{RawDocument, RawDocumentBuf};
use bytes::{Bytes, BytesMut};
use protocol::{
    Accept, ClusterTime, Compressor, Compressors, Frame, Framing, Message, MsgFlags, Op,
    OplogQueryMetadata, ReplSetMetadata,
    oplog_entry::{Command, OpKind, OplogEntry},
};

struct Captured {
    connection: (u8, u32),
    bytes: Bytes,
}

fn capture(name: &str) -> Vec<Captured> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/captures").join(name);
    let mut rest = Bytes::from(fs::read(&path).unwrap());
    let mut messages = Vec::new();
    while !rest.is_empty() {
        let head = rest.split_to(5);
        let connection = (head[0], u32::from_le_bytes(head[1..].try_into().unwrap()));
        let len = u32::from_le_bytes(rest[..4].try_into().unwrap()) as usize;
        messages.push(Captured { connection, bytes: rest.split_to(len) });
    }
    messages
}

const PLAIN: [&str; 3] = ["4.4.10/join.raw", "5.0.3/join.raw", "8.2.0/join.raw"];
const COMPRESSED: [(&str, Compressor); 3] = [
    ("8.2.0/join-snappy.raw", Compressor::Snappy),
    ("8.2.0/join-zlib.raw", Compressor::Zlib),
    ("8.2.0/join-zstd.raw", Compressor::Zstd),
];

fn parse(bytes: &Bytes, compressors: Compressors) -> Message {
    Message::parse(Frame::new(bytes.clone()).unwrap(), &Accept::checked(compressors)).unwrap()
}

fn encode(message: &Message) -> Bytes {
    let mut out = BytesMut::new();
    message.encode(&mut out).unwrap();
    out.freeze()
}

#[test]
fn plain_messages_come_back_byte_for_byte() {
    for name in PLAIN {
        let messages = capture(name);
        assert!(messages.len() > 200, "{name} has only {} messages", messages.len());
        for (i, captured) in messages.iter().enumerate() {
            let message = parse(&captured.bytes, Compressors::NONE);
            assert_eq!(encode(&message), captured.bytes, "{name} message {i}");
            let mut vectored = message.into_buf().unwrap();
            let joined = bytes::Buf::copy_to_bytes(&mut vectored, captured.bytes.len());
            assert_eq!(joined, captured.bytes, "{name} message {i}, vectored");
        }
    }
}

#[test]
fn compressed_messages_come_back_with_equal_content() {
    for (name, compressor) in COMPRESSED {
        let mut packed = 0;
        for (i, captured) in capture(name).iter().enumerate() {
            let message = parse(&captured.bytes, Compressors::new([compressor]));
            let again = encode(&message);
            match message.compressor {
                None => assert_eq!(again, captured.bytes, "{name} message {i}"),
                Some(used) => {
                    packed += 1;
                    assert_eq!(used, compressor);
                    assert_eq!(parse(&again, Compressors::DEFAULT), message, "{name} message {i}");
                }
            }
        }
        assert!(packed > 200, "{name}: only {packed} compressed messages");
    }
}

#[test]
fn streams_are_cut_where_the_messages_end() {
    for name in PLAIN.into_iter().chain(COMPRESSED.map(|(name, _)| name)) {
        let mut streams: BTreeMap<_, Vec<Bytes>> = BTreeMap::new();
        for captured in capture(name) {
            streams.entry(captured.connection).or_default().push(captured.bytes);
        }
        for (connection, messages) in streams {
            let mut framing = Framing::new();
            let mut cut = Vec::new();
            for piece in messages.concat().chunks(1460) {
                framing.read_buf().extend_from_slice(piece);
                while let Some(frame) = framing.next_frame().unwrap() {
                    cut.push(frame.bytes().clone());
                }
            }
            assert_eq!(cut, messages, "{name} {connection:?}");
        }
    }
}

#[test]
fn every_kind_of_message_is_there() {
    let (mut queries, mut replies, mut exhaust, mut more) = (0, 0, 0, 0);
    for captured in PLAIN.into_iter().flat_map(capture) {
        let message = parse(&captured.bytes, Compressors::NONE);
        exhaust += usize::from(message.flags().contains(MsgFlags::EXHAUST_ALLOWED));
        more += usize::from(message.flags().contains(MsgFlags::MORE_TO_COME));
        match message.op {
            Op::Msg(msg) => assert!(msg.flags.contains(MsgFlags::CHECKSUM_PRESENT)),
            Op::Query(query) => {
                assert_eq!(query.command_db(), Some("admin"));
                queries += 1;
            }
            Op::Reply(reply) => {
                assert_eq!(reply.docs.len(), 1);
                replies += 1;
            }
        }
    }
    assert_eq!((queries, replies), (29, 29));
    assert_eq!((exhaust, more), (8, 7));
}

/// Replication metadata of the recordings is encoded again with the same bytes.
#[test]
fn metadata_comes_back_byte_for_byte() {
    let (mut repl, mut oplog, mut time) = (0, 0, 0);
    for captured in PLAIN.into_iter().flat_map(capture) {
        let body = parse(&captured.bytes, Compressors::NONE).body().unwrap();
        let part = |name: &str| body.get_document(name).map(RawDocument::to_owned).unwrap();
        let rewritten = |name: &str, append: &dyn Fn(&mut RawDocumentBuf)| {
            let mut doc = RawDocumentBuf::new();
            append(&mut doc);
            doc.get_document(name).map(RawDocument::to_owned).unwrap()
        };
        if let Some(data) = ReplSetMetadata::from_message(&body).unwrap() {
            repl += 1;
            assert_eq!(rewritten("$replData", &|doc| data.append_to(doc)), part("$replData"));
        }
        if let Some(data) = OplogQueryMetadata::from_message(&body).unwrap() {
            oplog += 1;
            let name = "$oplogQueryData";
            assert_eq!(rewritten(name, &|doc| data.append_to(doc)), part(name));
        }
        if let Some(data) = ClusterTime::from_message(&body).unwrap() {
            time += 1;
            assert_eq!(rewritten("$clusterTime", &|doc| data.append_to(doc)), part("$clusterTime"));
        }
    }
    assert!(repl > 20 && oplog > 10 && time > 300, "{repl} {oplog} {time}");
}

#[test]
fn every_oplog_entry_is_understood() {
    for version in ["4.4.10", "5.0.3", "8.2.0"] {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/captures").join(version);
        let lines = fs::read_to_string(path.join("oplog.jsonl")).unwrap();
        let (mut entries, mut commands, mut inner) = (0, 0, 0);
        for line in lines.lines() {
            let document: bson::Document = serde_json::from_str(line).unwrap();
            let raw = RawDocumentBuf::try_from(&document).unwrap();
            let entry = OplogEntry::parse(&raw).unwrap_or_else(|e| panic!("{version} {line}: {e}"));
            entries += 1;
            assert_eq!(entry.version, 2);
            if let OpKind::Command(command) = &entry.op.kind {
                commands += 1;
                if let Command::ApplyOps(apply_ops) = command {
                    inner += apply_ops.iter().map(Result::unwrap).count();
                }
            }
        }
        assert!(
            entries > 400 && commands > 20 && inner > 2,
            "{version}: {entries} {commands} {inner}"
        );
    }
}
