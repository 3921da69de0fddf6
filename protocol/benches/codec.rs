//! Measures how fast messages are parsed and encoded, compared with copying the same bytes.
//!
//! `cargo bench -p protocol` prints one line per case: the best and the median of many rounds. On a busy machine,
//! compare the best. `cargo bench -p protocol -- oplog` runs only the cases whose name contains `oplog`.

#![expect(clippy::disallowed_methods, reason = "a benchmark looks at the clock")]
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a benchmark")]

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};
use bytes::{Bytes, BytesMut};
use protocol::{
    Accept, Compressor, Compressors, Frame, Framing, Message, MsgFlags, OpMsg, OplogEntry, RawDoc,
    check_bson,
};

/// Each case runs about this long.
const CASE: Duration = Duration::from_millis(400);

fn main() {
    // cargo passes options of its own; the first argument that is not an option selects the cases.
    let chosen = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    for (name, body) in
        [("1 KiB find request", find_request()), ("16 MiB exhaust batch", exhaust_batch())]
    {
        if name.contains(&chosen) {
            bench_message(name, &body);
        }
    }
    if "oplog entries".contains(&chosen) {
        bench_oplog_entries();
    }
}

fn bench_message(name: &str, body: &RawDoc) {
    let plain = Message::request(7, OpMsg::new(body.clone()));
    let flags = MsgFlags::CHECKSUM_PRESENT;
    let summed = Message::request(7, OpMsg::new(body.clone()).with_flags(flags));
    let bytes = encoded(&plain);
    let len = bytes.len();
    println!("{name}: {len} bytes");

    let mut copy = vec![0_u8; len];
    report("memcpy", len, || copy.copy_from_slice(black_box(&bytes)));
    let unchecked = Accept::unchecked(Compressors::DEFAULT);
    let checked = Accept::checked(Compressors::DEFAULT);
    for (label, message) in [("", &plain), (" with checksum", &summed)] {
        let bytes = encoded(message);
        report(&format!("decode{label}"), len, || parse(&bytes, &unchecked));
        report(&format!("decode{label}, every document checked"), len, || parse(&bytes, &checked));
        let mut out = BytesMut::with_capacity(len + 16);
        report(&format!("encode{label} into a buffer"), len, || {
            out.clear();
            black_box(message).encode(&mut out).unwrap();
        });
        report(&format!("encode{label} for a vectored write"), len, || {
            black_box(message.clone().into_buf().unwrap());
        });
    }
    report("read from a stream in pieces of 64 KiB", len, || {
        let mut framing = Framing::new();
        for piece in bytes.chunks(64 * 1024) {
            framing.read_buf().extend_from_slice(piece);
        }
        black_box(framing.next_frame().unwrap().unwrap());
    });
    for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        let mut packed = plain.clone();
        packed.compressor = Some(compressor);
        let bytes = encoded(&packed);
        let percent = 100 * bytes.len() / len;
        report(&format!("decode {compressor} ({percent}%)"), len, || parse(&bytes, &unchecked));
        report(&format!("encode {compressor}"), len, || drop(black_box(encoded(&packed))));
    }
}

fn bench_oplog_entries() {
    let batch = exhaust_batch();
    let docs = batch.get_document("cursor").unwrap().get_array("nextBatch").unwrap();
    let entries: Vec<_> = docs.into_iter().map(|doc| doc.unwrap().as_document().unwrap()).collect();
    let bytes: usize = entries.iter().map(|entry| entry.as_bytes().len()).sum();
    println!("{} oplog entries: {bytes} bytes", entries.len());
    report("parse", bytes, || {
        for entry in &entries {
            black_box(OplogEntry::parse(entry).unwrap());
        }
    });
    report("walk by the library", bytes, || {
        for entry in &entries {
            black_box(entry.iter_elements().flatten().count());
        }
    });
    report("check", bytes, || {
        for entry in &entries {
            check_bson(entry.as_bytes()).unwrap();
        }
    });
}

fn parse(bytes: &Bytes, accept: &Accept) {
    let frame = Frame::new(black_box(bytes).clone()).unwrap();
    black_box(Message::parse(frame, accept).unwrap());
}

fn encoded(message: &Message) -> Bytes {
    let mut out = BytesMut::new();
    message.encode(&mut out).unwrap();
    out.freeze()
}

/// Runs a case again and again and prints the best and the median.
fn report(case: &str, bytes: usize, mut run: impl FnMut()) {
    // Small cases are timed many at once, so that reading the clock does not distort the result.
    let per_round = (64 * 1024 / bytes).max(1);
    let mut rounds = Vec::new();
    let began = Instant::now();
    while began.elapsed() < CASE || rounds.len() < 5 {
        let start = Instant::now();
        for _ in 0..per_round {
            run();
        }
        rounds.push(start.elapsed());
    }
    rounds.sort();
    let micros = |at: usize| {
        let round = rounds.get(at).copied().unwrap_or_default();
        round.as_secs_f64() * 1e6 / per_round as f64
    };
    let (best, median) = (micros(0), micros(rounds.len() / 2));
    let speed = |micros: f64| bytes as f64 / micros / 1e3;
    println!(
        "  {case:<45} {:>11.2} {:>11.2} GB/s {best:>12.3} {median:>12.3} µs",
        speed(best),
        speed(median),
    );
}

/// A find with a filter of many fields, as a driver sends it.
fn find_request() -> RawDoc {
    let values: RawArrayBuf = (0..60).map(|i| i * 7).collect();
    let mut find = rawdoc! {
        "find": "items",
        "filter": { "name": { "$regex": "^a.*z$" }, "n": { "$in": values } },
        "sort": { "created": -1 }, "projection": { "name": 1, "n": 1 }, "limit": 100,
        "lsid": { "id": bson::Binary::from(bson::Uuid::new()) }, "$db": "shop",
        "$clusterTime": { "clusterTime": bson::Timestamp { time: 1, increment: 1 } },
    };
    let missing = 1024_usize.saturating_sub(find.as_bytes().len() + 30);
    find.append(bson::cstr!("comment"), "x".repeat(missing));
    find.into()
}

/// What an exhaust cursor on the oplog sends: inserts of small documents.
fn exhaust_batch() -> RawDoc {
    let uuid = bson::Uuid::new();
    let mut entries = RawArrayBuf::new();
    let mut len = 0;
    let mut i = 0;
    while len < 16 * 1024 * 1024 {
        let entry = oplog_entry(i, uuid);
        len += entry.as_bytes().len() + 8;
        entries.push(entry);
        i += 1;
    }
    rawdoc! {
        "cursor": { "nextBatch": entries, "id": 5_i64, "ns": "local.oplog.rs" }, "ok": 1.0,
    }
    .into()
}

fn oplog_entry(i: i32, uuid: bson::Uuid) -> RawDocumentBuf {
    let name = format!("customer number {i}");
    rawdoc! {
        "op": "i", "ns": "shop.items", "ui": bson::Binary::from(uuid),
        "o": {
            "_id": bson::oid::ObjectId::new(), "n": i, "name": name, "price": f64::from(i) * 1.5,
            "tags": ["red", "green", "blue"], "address": { "city": "Vienna", "zip": "1010" },
        },
        "o2": { "_id": i }, "ts": bson::Timestamp { time: 1, increment: 1 }, "t": 1_i64,
        "v": 2_i64, "wall": bson::DateTime::from_millis(1),
    }
}
