//! OP_COMPRESSED: an envelope around another message, and the negotiated list of compressors.
//!
//! ```text
//!  | header (2012) | original opcode | uncompressed length | compressor (1) | compressed body ... |
//! ```
//! The header's ids are those of the message inside. The uncompressed length does not include a header.
//!
//! C1 Decompression never yields more than [`MESSAGE_LEN_MAX`] bytes, nor more than the envelope says.
//! C2 Memory for the decompressed bytes is allocated by what the input can plausibly hold, never by the claimed
//!    length alone.

use std::{cell::RefCell, fmt, io};

use bytes::{Buf, Bytes};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::{
    ParseError,
    framing::Frame,
    header::{HEADER_LEN, Header, MESSAGE_LEN_MAX, op_code},
};

/// A compression algorithm. The discriminants are the numbers on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Compressor {
    /// No compression; used to test the envelope.
    Noop = 0,
    /// Snappy without framing.
    Snappy = 1,
    /// zlib (RFC 1950).
    Zlib = 2,
    /// Zstandard.
    Zstd = 3,
}

impl Compressor {
    const ALL: [Self; 4] = [Self::Noop, Self::Snappy, Self::Zlib, Self::Zstd];

    /// The compressor with this number.
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|compressor| compressor.id() == id)
    }

    /// The compressor with this name, as used in the handshake and in `networkMessageCompressors`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|compressor| compressor.name() == name)
    }

    /// Its number on the wire.
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// Its name in the handshake.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Compressors in order of preference.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Compressors([Option<Compressor>; 4]);

impl Compressors {
    /// No compression.
    pub const NONE: Self = Self([None; 4]);

    /// mongod's default, `snappy,zstd,zlib`.
    pub const DEFAULT: Self =
        Self([Some(Compressor::Snappy), Some(Compressor::Zstd), Some(Compressor::Zlib), None]);

    /// Makes a list; duplicates are dropped.
    pub fn new(list: impl IntoIterator<Item = Compressor>) -> Self {
        let mut these = Self::NONE;
        for compressor in list {
            if !these.contains(compressor)
                && let Some(slot) = these.0.iter_mut().find(|slot| slot.is_none())
            {
                *slot = Some(compressor);
            }
        }
        these
    }

    /// The compressors that the peer offers and that we support, in the peer's order.
    pub fn negotiate<'a>(self, offered: impl IntoIterator<Item = &'a str>) -> Self {
        let known = offered.into_iter().filter_map(Compressor::from_name);
        Self::new(known.filter(|compressor| self.contains(*compressor)))
    }

    /// Iterates in order of preference.
    pub fn iter(self) -> impl Iterator<Item = Compressor> {
        self.0.into_iter().flatten()
    }

    /// The preferred compressor, used for sending.
    pub fn first(self) -> Option<Compressor> {
        self.iter().next()
    }

    /// True if the list contains it.
    pub fn contains(self, compressor: Compressor) -> bool {
        self.0.contains(&Some(compressor))
    }
}

impl fmt::Debug for Compressors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Decompresses the envelope and returns the frame of the message inside, as if it had been sent uncompressed.
pub(crate) fn open(frame: &Frame, agreed: Compressors) -> Result<(Frame, Compressor), ParseError> {
    let overrun = |_| ParseError::TooShort;
    let mut data = frame.body();
    let inner_op = data.try_get_i32_le().map_err(overrun)?;
    let claimed = data.try_get_i32_le().map_err(overrun)?;
    let id = data.try_get_u8().map_err(overrun)?;
    let compressor = Compressor::from_id(id).ok_or(ParseError::UnknownCompressor(id))?;
    if !agreed.contains(compressor) {
        return Err(ParseError::NotNegotiated(compressor));
    }
    let len = usize::try_from(claimed).ok().filter(|len| *len <= MESSAGE_LEN_MAX - HEADER_LEN);
    let len = len.ok_or(ParseError::DecompressedLength(i64::from(claimed)))?;
    if inner_op == op_code::COMPRESSED {
        return Err(ParseError::OpCode(inner_op));
    }
    let header = Header { len: HEADER_LEN + len, op_code: inner_op, ..frame.header() };
    let bytes = decompress(compressor, &data, header).ok_or(ParseError::Decompress(compressor))?;
    let inner = Frame::new(bytes).map_err(|_| ParseError::Decompress(compressor))?;
    Ok((inner, compressor))
}

/// Compressor and decompressor states are large and slow to set up, so each thread keeps its own.
struct Kept {
    snappy: snap::raw::Encoder,
    deflate: Compress,
    inflate: Decompress,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    unzstd: Option<zstd::bulk::Decompressor<'static>>,
}

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::new(Kept {
        snappy: snap::raw::Encoder::new(),
        deflate: Compress::new(Compression::default(), true),
        inflate: Decompress::new(true),
        zstd: zstd::bulk::Compressor::new(zstd::DEFAULT_COMPRESSION_LEVEL).ok(),
        unzstd: zstd::bulk::Decompressor::new().ok(),
    });
}

/// Compresses a message body. The result follows the nine envelope bytes.
pub(crate) fn compress(compressor: Compressor, body: &[u8]) -> Option<Vec<u8>> {
    KEPT.with_borrow_mut(|kept| match compressor {
        Compressor::Noop => Some(body.to_vec()),
        Compressor::Snappy => kept.snappy.compress_vec(body).ok(),
        Compressor::Zlib => deflate(&mut kept.deflate, body),
        Compressor::Zstd => kept.zstd.as_mut()?.compress(body).ok(),
    })
}

/// Decompresses to a whole message with `header` in front. `None` if the data is damaged or its length differs from
/// the header's.
fn decompress(compressor: Compressor, data: &Bytes, header: Header) -> Option<Bytes> {
    let out = KEPT.with_borrow_mut(|kept| match compressor {
        Compressor::Noop => Some([header.to_bytes().as_slice(), data].concat()),
        Compressor::Snappy => unsnap(data, header),
        Compressor::Zlib => inflate(&mut kept.inflate, data, header),
        Compressor::Zstd => unzstd(kept.unzstd.as_mut()?, data, header),
    })?;
    (out.len() == header.len).then(|| out.into())
}

/// A two-byte snappy copy element yields at most 64 bytes, so a higher ratio cannot be true (C2).
const SNAPPY_RATIO_MAX: usize = 32;

fn unsnap(data: &[u8], header: Header) -> Option<Vec<u8>> {
    let len = snap::raw::decompress_len(data).ok()?;
    if HEADER_LEN + len != header.len || len > data.len() * SNAPPY_RATIO_MAX {
        return None;
    }
    let mut out = vec![0; header.len];
    let (head, body) = out.split_at_mut_checked(HEADER_LEN)?;
    head.copy_from_slice(&header.to_bytes());
    snap::raw::Decoder::new().decompress(data, body).ok()?;
    Some(out)
}

/// First guess of the decompressed length: typical for ordinary documents, never more than claimed.
fn likely_len(data: &[u8], header: Header) -> usize {
    header.len.min(HEADER_LEN + 4096 + data.len() * 16)
}

fn inflate(state: &mut Decompress, data: &[u8], header: Header) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(likely_len(data, header));
    out.extend_from_slice(&header.to_bytes());
    state.reset(true);
    loop {
        let read = usize::try_from(state.total_in()).ok()?;
        let before = out.len();
        let status = state.decompress_vec(data.get(read..)?, &mut out, FlushDecompress::Finish);
        match status.ok()? {
            Status::StreamEnd => return Some(out),
            _ if out.len() > header.len => return None,
            _ if out.len() < out.capacity() && out.len() == before => return None,
            // One byte more than claimed suffices to detect data that is longer than claimed.
            _ => out.reserve_exact(out.len().min(header.len + 1 - out.len()).max(1)),
        }
    }
}

fn deflate(state: &mut Compress, body: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(body.len() / 2 + 64);
    state.reset();
    loop {
        let read = usize::try_from(state.total_in()).ok()?;
        let rest = body.get(read..)?;
        match state.compress_vec(rest, &mut out, FlushCompress::Finish).ok()? {
            Status::StreamEnd => return Some(out),
            _ => out.reserve(rest.len() / 2 + 64),
        }
    }
}

/// The bulk decompressor cannot stop halfway, so a small buffer is tried first. A larger one is used only after the
/// data has filled it.
fn unzstd(
    decompressor: &mut zstd::bulk::Decompressor<'static>,
    data: &[u8],
    header: Header,
) -> Option<Vec<u8>> {
    let mut room = likely_len(data, header);
    loop {
        let mut out = Vec::with_capacity(room);
        out.extend_from_slice(&header.to_bytes());
        let mut out = io::Cursor::new(out);
        out.set_position(HEADER_LEN as u64);
        match decompressor.decompress_to_buffer(data, &mut out) {
            Ok(_) => return Some(out.into_inner()),
            Err(error) if room < header.len && is_too_small(&error) => {
                room = header.len.min(room * 8);
            }
            Err(_) => return None,
        }
    }
}

/// The library identifies this error only by its text.
fn is_too_small(error: &io::Error) -> bool {
    error.to_string() == "Destination buffer is too small"
}
