//! Parses a million random and mutated messages. None may panic or allocate more than the maximum message length, and
//! whatever parses must encode to the same bytes.
//!
//! `SEED=n` replays a run, `MESSAGES=n` changes its length.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test: a panic is its answer, and random numbers may be cut"
)]

use std::{alloc::System, collections::BTreeMap, env, fs, path::PathBuf, sync::Mutex};

use bson::{RawBsonRef, RawDocument, rawdoc};
use bytes::{Bytes, BytesMut};
use cap::Cap;
use protocol::{
    Accept, BadMessage, ClusterTime, Compressor, Compressors, Frame, Framing, Header, Message,
    MsgFlags, Op, OplogEntry, OplogQueryMetadata, ParseError, ReplSetMetadata,
    header::{HEADER_LEN, MESSAGE_LEN_MAX, op_code},
};

/// An allocator that aborts the test if more is allocated than [`within_limit`] allows.
#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// Allocation allowed beyond the message length: error texts, the list of sections, decoder tables.
const SLACK: usize = 4 << 20;

/// The allocation limit applies to the whole process, so tests run one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const EVERY: [Compressor; 4] =
    [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];

fn within_limit<T>(run: impl FnOnce() -> T) -> T {
    MEMORY.set_limit(MEMORY.allocated() + MESSAGE_LEN_MAX + SLACK).unwrap();
    let outcome = run();
    MEMORY.set_limit(usize::MAX).unwrap();
    outcome
}

/// SplitMix64: small, fast without optimisation, the same on every platform.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Messages of real mongods, without checksums, so that a mutated message is still parsed.
fn corpus() -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/captures");
    let mut messages = Vec::new();
    for name in ["4.4.10/join.raw", "8.2.0/join.raw"] {
        let mut rest = Bytes::from(fs::read(folder.join(name)).unwrap());
        while !rest.is_empty() {
            let _ = rest.split_to(5);
            let len = u32::from_le_bytes(rest[..4].try_into().unwrap()) as usize;
            let frame = Frame::new(rest.split_to(len)).unwrap();
            // Short messages are faster and fail in as many ways.
            if len > 500 {
                continue;
            }
            let mut message = Message::parse(frame, &Accept::checked(Compressors::NONE)).unwrap();
            if let Op::Msg(msg) = &mut message.op {
                msg.flags = msg.flags.with(MsgFlags::CHECKSUM_PRESENT, false);
            }
            let mut bytes = BytesMut::new();
            message.encode(&mut bytes).unwrap();
            messages.push(bytes.to_vec());
        }
    }
    assert!(messages.len() > 200);
    for _ in 0..20 {
        messages.push(insert(false));
        messages.push(insert(true));
    }
    messages
}

/// An insert with document sequences. The recordings have none; drivers send them after the body, mongods before it.
fn insert(sequences_first: bool) -> Vec<u8> {
    let docs = [rawdoc! { "_id": 1, "a": "x" }, rawdoc! { "_id": 2 }].map(|doc| doc.into_bytes());
    let section = |name: &str| {
        let len = 4 + name.len() + 1 + docs.concat().len();
        let len = (len as i32).to_le_bytes();
        [&[1][..], &len, name.as_bytes(), &[0], &docs.concat()].concat()
    };
    let sequences = [section("documents"), section("other")].concat();
    let command = rawdoc! { "insert": "c", "$db": "test" };
    let body = [&[0][..], command.as_bytes()].concat();
    let parts = if sequences_first { [sequences, body] } else { [body, sequences] };
    let header = Header { len: 0x10, request_id: 1, response_to: 0, op_code: op_code::MSG };
    let mut message = [&header.to_bytes()[..], &[0; 4], &parts.concat()].concat();
    set_len(&mut message);
    message
}

const NUMBERS: [i32; 14] =
    [0, 1, -1, 4, 5, 16, 200, 255, 65_536, 16_777_216, 48_000_000, 48_000_001, i32::MAX, i32::MIN];

/// Changes a few bytes or the length. The header's length is adjusted unless it is mutated itself.
fn mutate(random: &mut Random, message: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=random.below(3) {
        let at = HEADER_LEN + random.below(message.len().saturating_sub(HEADER_LEN));
        match random.below(8) {
            0..=2 if at < message.len() => message[at] ^= 1 << random.below(8),
            3 if at < message.len() => message[at] = random.next() as u8,
            4 => {
                let number = random.pick(&NUMBERS).to_le_bytes();
                let end = (at + 4).min(message.len());
                let at = at.min(end);
                message[at..end].copy_from_slice(&number[..end - at]);
            }
            5 => message.truncate(at.max(HEADER_LEN)),
            6 => {
                let from = random.below(other.len());
                let len = random.below(40).min(other.len() - from);
                let at = at.min(message.len());
                message.splice(at..at, other[from..from + len].iter().copied());
            }
            _ => {
                let end = (at + random.below(20)).min(message.len());
                message.drain(at.min(end)..end);
            }
        }
        if message.len() < HEADER_LEN {
            message.resize(HEADER_LEN, 0);
        }
    }
    set_len(message);
}

fn set_len(message: &mut [u8]) {
    let len = message.len() as i32;
    message[..4].copy_from_slice(&len.to_le_bytes());
}

/// Wraps a message, however broken, in an OP_COMPRESSED envelope that may be broken, too.
fn envelope(random: &mut Random, message: &[u8]) -> Vec<u8> {
    let body = &message[HEADER_LEN..];
    let compressor = random.pick(&EVERY);
    let mut packed = match compressor {
        Compressor::Noop => body.to_vec(),
        Compressor::Snappy => snap::raw::Encoder::new().compress_vec(body).unwrap(),
        Compressor::Zlib => {
            let mut out = Vec::with_capacity(body.len() + 100);
            let mut state = flate2::Compress::new(flate2::Compression::fast(), true);
            state.compress_vec(body, &mut out, flate2::FlushCompress::Finish).unwrap();
            out
        }
        Compressor::Zstd => zstd::bulk::compress(body, 1).unwrap(),
    };
    if random.one_in(3) && !packed.is_empty() {
        let at = random.below(packed.len());
        packed[at] ^= 1 << random.below(8);
    }
    let claimed = if random.one_in(6) { random.pick(&NUMBERS) } else { body.len() as i32 };
    let id = if random.one_in(20) { random.next() as u8 } else { compressor.id() };
    let mut out = message[..HEADER_LEN].to_vec();
    out[12..16].copy_from_slice(&op_code::COMPRESSED.to_le_bytes());
    out.extend_from_slice(&message[12..16]);
    out.extend_from_slice(&claimed.to_le_bytes());
    out.push(id);
    out.extend_from_slice(&packed);
    set_len(&mut out);
    out
}

fn random_bytes(random: &mut Random) -> Vec<u8> {
    let len = HEADER_LEN + random.below(120);
    let mut message: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
    let op_codes = [op_code::MSG, op_code::QUERY, op_code::REPLY, op_code::COMPRESSED, 2005];
    message[12..16].copy_from_slice(&random.pick(&op_codes).to_le_bytes());
    if random.one_in(2) && len >= HEADER_LEN + 4 {
        message[16..20].copy_from_slice(&[0; 4]);
    }
    set_len(&mut message);
    message
}

fn next_message(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    if random.one_in(10) {
        return random_bytes(random);
    }
    let mut message = corpus[random.below(corpus.len())].clone();
    if !random.one_in(10) {
        let other = &corpus[random.below(corpus.len())];
        mutate(random, &mut message, other);
    }
    if random.one_in(30) {
        message[..16][random.below(16)] = random.next() as u8;
    }
    if random.one_in(3) { envelope(random, &message) } else { message }
}

/// Parses the bytes, checks every invariant, and returns the name of the outcome.
fn examine(bytes: &[u8]) -> &'static str {
    let mut framing = Framing::new();
    framing.read_buf().extend_from_slice(bytes);
    let frame = match framing.next_frame() {
        Err(_) => return "cannot be cut",
        Ok(None) => return "more is needed",
        Ok(Some(frame)) => frame,
    };
    let header = frame.header();
    match Message::parse(frame.clone(), &Accept::checked(Compressors::new(EVERY))) {
        Ok(message) => understood(&frame, &message),
        Err(error) => {
            look_into_broken(frame);
            refused(header, error)
        }
    }
}

/// A client may skip the BSON check; reading an unchecked document must not panic either.
fn look_into_broken(frame: Frame) {
    let unchecked = Accept::unchecked(Compressors::new(EVERY));
    let message = Message::parse(frame, &unchecked);
    if let Some(body) = message.ok().and_then(|message| message.body()) {
        walk(&body);
        let _ = OplogEntry::parse(&body);
        let _ = ReplSetMetadata::from_message(&body);
        let _ = OplogQueryMetadata::from_message(&body);
        let _ = ClusterTime::from_message(&body);
    }
}

fn walk(doc: &RawDocument) {
    for element in doc.iter().flatten() {
        match element.1 {
            RawBsonRef::Document(inner) => walk(inner),
            RawBsonRef::Array(inner) => inner.into_iter().for_each(drop),
            _ => {}
        }
    }
}

fn understood(frame: &Frame, message: &Message) -> &'static str {
    if let Some(body) = message.body() {
        // Walking and parsing a document that passed the check must not panic.
        walk(&body);
        let _ = OplogEntry::parse(&body);
    }
    if message.compressor.is_some() {
        return "understood in an envelope";
    }
    let mut again = BytesMut::new();
    message.encode(&mut again).unwrap();
    assert_eq!(&again, frame.bytes(), "M1");
    "understood"
}

fn refused(header: Header, error: ParseError) -> &'static str {
    let name = match &error {
        ParseError::OpCode(_) => "opcode",
        ParseError::UnknownFlags(_) => "flags",
        ParseError::Checksum => "checksum",
        ParseError::NoChecksum => "no checksum",
        ParseError::SectionKind(_) => "section kind",
        ParseError::TwoBodies => "two bodies",
        ParseError::NoBody => "no body",
        ParseError::DuplicateSequence(_) => "two sequences of one name",
        ParseError::SequenceInBody(_) => "sequence also in body",
        ParseError::SequenceName => "sequence name",
        ParseError::TooShort => "too short",
        ParseError::Overrun { .. } => "overrun",
        ParseError::Unterminated { .. } => "unterminated",
        ParseError::Remainder => "remainder",
        ParseError::Bson(_) => "bson",
        ParseError::QueryBson(_) => "bson in OP_QUERY",
        ParseError::UnknownCompressor(_) => "unknown compressor",
        ParseError::NotNegotiated(_) => "not negotiated",
        ParseError::DecompressedLength(_) => "decompressed length",
        ParseError::Decompress(_) => "damaged envelope",
    };
    let fatal = error.is_fatal();
    let reply = BadMessage { header, error }.reply(1);
    assert_eq!(reply.is_none(), fatal);
    if let Some(reply) = reply {
        reply.encode(&mut BytesMut::new()).unwrap();
    }
    name
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn a_million_messages_do_no_harm() {
    let _alone = ONE_AT_A_TIME.lock();
    let seed = number("SEED", 20_261_116);
    let count = number("MESSAGES", 1_000_000);
    println!("SEED={seed} MESSAGES={count}");
    let corpus = corpus();
    let mut random = Random(seed);
    let mut outcomes: BTreeMap<&str, u64> = BTreeMap::new();
    for _ in 0..count {
        let message = next_message(&mut random, &corpus);
        let outcome = within_limit(|| examine(&message));
        *outcomes.entry(outcome).or_default() += 1;
    }
    println!("{outcomes:#?}");
    println!("most memory in use at once: {} bytes", MEMORY.max_allocated());
    if count >= 100_000 {
        // Every kind of failure occurred, and so did success.
        assert!(outcomes["understood"] > count / 20 && outcomes["bson"] > count / 50);
        assert!(outcomes["understood in an envelope"] > count / 50);
        assert!(outcomes.len() >= 20, "only {} outcomes", outcomes.len());
    }
}

/// Small envelopes that claim or contain far too much data.
#[test]
fn zip_bombs_get_no_room() {
    let _alone = ONE_AT_A_TIME.lock();
    let zeros = vec![0; MESSAGE_LEN_MAX + 1000];
    let bomb = |claimed: usize, id: u8, packed: &[u8]| {
        let len = HEADER_LEN + 9 + packed.len();
        let header = Header { len, request_id: 1, response_to: 0, op_code: op_code::COMPRESSED };
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend_from_slice(&op_code::MSG.to_le_bytes());
        bytes.extend_from_slice(&(claimed as i32).to_le_bytes());
        bytes.push(id);
        bytes.extend_from_slice(packed);
        bytes
    };
    let zlib = {
        let mut out = Vec::with_capacity(1 << 20);
        let mut state = flate2::Compress::new(flate2::Compression::best(), true);
        state.compress_vec(&zeros, &mut out, flate2::FlushCompress::Finish).unwrap();
        out
    };
    let zstd = zstd::bulk::compress(&zeros, 19).unwrap();
    let snappy = snap::raw::Encoder::new().compress_vec(&zeros).unwrap();
    let most = MESSAGE_LEN_MAX - HEADER_LEN;
    for claimed in [100, 1_000_000, most, most + 1, zeros.len()] {
        for (id, packed) in [(1, &snappy), (2, &zlib), (3, &zstd)] {
            let outcome = within_limit(|| examine(&bomb(claimed, id, packed)));
            assert!(matches!(outcome, "damaged envelope" | "decompressed length"), "{outcome}");
        }
    }
    // A huge claimed length over a few bytes must not cause a large allocation.
    for (id, packed) in [(1, &snappy[..20]), (2, &zlib[..20]), (3, &zstd[..20])] {
        MEMORY.set_limit(MEMORY.allocated() + SLACK).unwrap();
        let outcome = examine(&bomb(most, id, packed));
        MEMORY.set_limit(usize::MAX).unwrap();
        assert_eq!(outcome, "damaged envelope");
    }
}
