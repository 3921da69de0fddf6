//! OP_MSG: flags, one body, any number of document sequences, an optional checksum.
//!
//! ```text
//!  | header | flags | 0 | body document | 1 | length | name\0 | document | document | ... | crc32c |
//! ```
//! Sections may come in any order; mongod writes its sequences before the body, drivers after it. The checksum is
//! CRC-32C of everything before it, including the header.

use bytes::Bytes;

use crate::{ParseError, RawDoc, framing::Frame, wire::Cursor};

/// The flag bits of an OP_MSG. A receiver must understand the low 16 bits and may ignore the high 16.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MsgFlags(u32);

impl MsgFlags {
    /// No flags.
    pub const NONE: Self = Self(0);
    /// A CRC-32C ends the message.
    pub const CHECKSUM_PRESENT: Self = Self(1);
    /// In a request: send no reply. In a reply: another reply follows without a request.
    pub const MORE_TO_COME: Self = Self(1 << 1);
    /// In a request: the reply may have [`Self::MORE_TO_COME`].
    pub const EXHAUST_ALLOWED: Self = Self(1 << 16);

    const REQUIRED: u32 = 0xffff;
    const KNOWN: u32 = Self::CHECKSUM_PRESENT.0 | Self::MORE_TO_COME.0 | Self::EXHAUST_ALLOWED.0;

    /// Parses flag bits; refuses unknown bits among those that must be understood.
    pub fn parse(bits: u32) -> Result<Self, ParseError> {
        match bits & Self::REQUIRED & !Self::KNOWN {
            0 => Ok(Self(bits)),
            _ => Err(ParseError::UnknownFlags(bits)),
        }
    }

    /// All bits, as on the wire.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// True if every bit of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// A copy with the bits of `other` set or cleared.
    pub const fn with(self, other: Self, on: bool) -> Self {
        if on { Self(self.0 | other.0) } else { Self(self.0 & !other.0) }
    }
}

impl std::ops::BitOr for MsgFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A section of kind 1: a named sequence of documents, kept as one byte run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DocSequence {
    name: Bytes,
    docs: DocRun,
}

impl DocSequence {
    /// Makes a sequence; the name must have no zero bytes. The documents are copied into one run.
    pub fn new<'a>(name: &str, docs: impl IntoIterator<Item = &'a bson::RawDocument>) -> Self {
        let name = name.split('\0').next().unwrap_or_default();
        Self { name: Bytes::copy_from_slice(name.as_bytes()), docs: DocRun::new(docs) }
    }

    /// Its name, e.g. `documents`.
    pub fn name(&self) -> &str {
        std::str::from_utf8(&self.name).expect("was checked when it was made")
    }

    /// The documents.
    pub fn docs(&self) -> &DocRun {
        &self.docs
    }

    fn wire_len(&self) -> usize {
        1 + 4 + self.name.len() + 1 + self.docs.bytes().len()
    }
}

/// Consecutive documents in a shared buffer. Length and terminator of each were checked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DocRun {
    bytes: Bytes,
    count: usize,
}

impl DocRun {
    /// Copies documents into one run.
    pub fn new<'a>(docs: impl IntoIterator<Item = &'a bson::RawDocument>) -> Self {
        let mut bytes = Vec::new();
        let mut count = 0;
        for doc in docs {
            bytes.extend_from_slice(doc.as_bytes());
            count += 1;
        }
        Self { bytes: bytes.into(), count }
    }

    /// A single document, shared.
    pub fn one(doc: &RawDoc) -> Self {
        Self { bytes: doc.bytes(), count: 1 }
    }

    /// Parses a buffer that must consist of whole documents.
    pub fn parse(bytes: Bytes) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(bytes.clone());
        let mut count = 0;
        while !cursor.is_empty() {
            cursor.skip_doc()?;
            count += 1;
        }
        Ok(Self { bytes, count })
    }

    /// Number of documents.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if there are no documents.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Iterates over the documents, each sharing the buffer.
    pub fn iter(&self) -> impl Iterator<Item = RawDoc> + use<> {
        let mut cursor = Cursor::new(self.bytes.clone());
        std::iter::from_fn(move || cursor.doc().ok())
    }

    /// The documents as consecutive bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// An OP_MSG without its header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpMsg {
    /// The flag bits. If [`MsgFlags::CHECKSUM_PRESENT`] is set, encoding appends a checksum.
    pub flags: MsgFlags,
    /// The command or the reply.
    pub body: RawDoc,
    /// Arrays of the command that are sent as document sequences.
    pub sequences: Vec<DocSequence>,
    /// How many of the sequences come before the body.
    sequences_first: usize,
}

impl OpMsg {
    /// A message with a body only.
    pub fn new(body: impl Into<RawDoc>) -> Self {
        Self { flags: MsgFlags::NONE, body: body.into(), sequences: Vec::new(), sequences_first: 0 }
    }

    /// Sets the flags.
    #[must_use]
    pub fn with_flags(mut self, flags: MsgFlags) -> Self {
        self.flags = flags;
        self
    }

    /// Adds a document sequence after the body.
    #[must_use]
    pub fn with_sequence(mut self, sequence: DocSequence) -> Self {
        self.sequences.push(sequence);
        self
    }

    /// The documents of the sequence with this name.
    pub fn sequence(&self, name: &str) -> Option<&DocRun> {
        self.sequences.iter().find(|s| s.name() == name).map(|s| &s.docs)
    }

    /// Parses a frame with this opcode. Documents share the frame's buffer.
    pub(crate) fn parse(frame: &Frame) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(frame.body());
        let flags = MsgFlags::parse(cursor.u32()?)?;
        if flags.contains(MsgFlags::CHECKSUM_PRESENT) {
            cursor.drop_last(4).map_err(|_| ParseError::NoChecksum)?;
            check_crc(frame)?;
        }
        let (mut body, mut sequences, mut sequences_first) = (None, Vec::new(), 0);
        while !cursor.is_empty() {
            match cursor.u8()? {
                0 if body.is_some() => return Err(ParseError::TwoBodies),
                0 => {
                    body = Some(cursor.doc()?);
                    sequences_first = sequences.len();
                }
                1 => sequences.push(parse_sequence(&mut cursor, &sequences)?),
                kind => return Err(ParseError::SectionKind(kind)),
            }
        }
        let body = body.ok_or(ParseError::NoBody)?;
        refuse_twins(&body, &sequences)?;
        Ok(Self { flags, body, sequences, sequences_first })
    }

    /// Length on the wire, without the header.
    pub(crate) fn wire_len(&self) -> usize {
        let checksum = if self.flags.contains(MsgFlags::CHECKSUM_PRESENT) { 4 } else { 0 };
        let sequences: usize = self.sequences.iter().map(DocSequence::wire_len).sum();
        4 + sequences + 1 + self.body.len() + checksum
    }

    /// Writes everything after the header except the checksum.
    pub(crate) fn write(&self, sink: &mut impl crate::wire::Sink) {
        sink.put(&self.flags.bits().to_le_bytes());
        let first = self.sequences_first.min(self.sequences.len());
        let (before, after) = self.sequences.split_at(first);
        before.iter().for_each(|sequence| write_sequence(sequence, sink));
        sink.put(&[0]);
        sink.share(&self.body.bytes());
        after.iter().for_each(|sequence| write_sequence(sequence, sink));
    }
}

fn parse_sequence(cursor: &mut Cursor, earlier: &[DocSequence]) -> Result<DocSequence, ParseError> {
    let mut section = cursor.length_prefixed()?;
    let name = section.cstring()?;
    let text = std::str::from_utf8(&name).map_err(|_| ParseError::SequenceName)?;
    if earlier.iter().any(|sequence| sequence.name() == text) {
        return Err(ParseError::DuplicateSequence(text.to_owned()));
    }
    Ok(DocSequence { docs: DocRun::parse(section.rest())?, name })
}

/// A document sequence replaces an array of the body, so a name must not occur in both.
fn refuse_twins(body: &RawDoc, sequences: &[DocSequence]) -> Result<(), ParseError> {
    let twin = sequences.iter().find(|sequence| matches!(body.get(sequence.name()), Ok(Some(_))));
    match twin {
        Some(sequence) => Err(ParseError::SequenceInBody(sequence.name().to_owned())),
        None => Ok(()),
    }
}

fn write_sequence(sequence: &DocSequence, sink: &mut impl crate::wire::Sink) {
    let len = i32::try_from(sequence.wire_len() - 1).unwrap_or(i32::MAX);
    sink.put(&[1]);
    sink.put(&len.to_le_bytes());
    sink.put(&sequence.name);
    sink.put(&[0]);
    sink.share(sequence.docs.bytes());
}

fn check_crc(frame: &Frame) -> Result<(), ParseError> {
    let (covered, crc) = frame.bytes().split_last_chunk::<4>().ok_or(ParseError::Checksum)?;
    let fits = crc32c::crc32c(covered) == u32::from_le_bytes(*crc);
    if fits { Ok(()) } else { Err(ParseError::Checksum) }
}
