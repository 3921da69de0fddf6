//! The check that mongod runs over every document it receives: is it well-formed BSON at every level?
//!
//! Only the structure is checked, not the values: types must exist, lengths must fit, strings must end in a zero
//! byte, booleans must be 0 or 1. Names and strings need not be UTF-8: mongod accepts and stores such text, and so do
//! we.
//!
//! B1 After `check` succeeds, walking the document by its lengths never reads outside of it.
//! B2 The work is linear in the length of the document; memory is allocated only to describe an error.
//! B3 The recursion is as deep as the nesting, and never deeper than [`DEPTH_MAX`].

use std::fmt;

use bson::{RawBsonRef, RawDocument};

use crate::ErrorCode;

/// How deep documents and arrays may be nested, not counting the outermost. mongod has the same limit.
pub const DEPTH_MAX: usize = 200;

/// Length of an empty document: its length field and the closing zero byte.
const DOCUMENT_LEN_MIN: usize = 5;

/// Why bytes are not a valid document. Displays as mongod's `errmsg`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidBson {
    /// What is wrong.
    pub reason: Reason,
    /// Where the fault is: the field names from the outermost inwards. Empty if no field was reached.
    pub path: Vec<String>,
    /// The `_id` of the outermost document, if it was read before the fault and is a short value.
    pub id: Option<String>,
}

/// What is wrong with a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Too short to be a document at all.
    #[error("BSON data has to be at least {DOCUMENT_LEN_MIN} bytes")]
    TooShort,
    /// The length field exceeds the available bytes.
    #[error("Incorrect BSON length {len} should be less or equal to {have}")]
    Overrun {
        /// Length that the document claims.
        len: i32,
        /// Bytes that are available.
        have: usize,
    },
    /// The last byte is not zero.
    #[error("BSON object not terminated with EOO")]
    NotClosed,
    /// The document, or one nested in it, ends before or after the place its length gives.
    #[error("incorrect BSON length")]
    WrongLength,
    /// A nested document is too short to be one.
    #[error("Nested BSON object has to be at least {DOCUMENT_LEN_MIN} bytes (decoded length: {0})")]
    NestedTooShort(i32),
    /// A type that BSON does not have.
    #[error("Unrecognized BSON type {0}")]
    UnknownType(u8),
    /// A boolean that is neither 0 nor 1.
    #[error("BSON bool is neither false nor true")]
    Bool,
    /// A string without its closing zero byte.
    #[error("Not null terminated string")]
    String,
    /// A value that extends beyond its document.
    #[error("BSON size is larger than buffer size")]
    ValueOverrun,
    /// Nested too deep.
    #[error("BSONObj exceeds maximum nested object depth")]
    TooDeep,
}

impl InvalidBson {
    /// A fault before any field was found.
    pub(crate) fn outermost(reason: Reason) -> Self {
        Self { reason, path: Vec::new(), id: None }
    }

    /// The code of mongod's answer.
    pub fn code(&self) -> ErrorCode {
        match self.reason {
            Reason::TooDeep => ErrorCode::Overflow,
            _ => ErrorCode::InvalidBSON,
        }
    }
}

impl std::error::Error for InvalidBson {}

impl fmt::Display for InvalidBson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "?".to_owned() } else { self.path.join(".") };
        write!(f, "{} in element with field name '{path}' in object with ", self.reason)?;
        match &self.id {
            Some(id) => write!(f, "_id: {id}"),
            None => f.write_str("unknown _id"),
        }
    }
}

/// Says whether `bytes` are exactly one well-formed document.
pub fn check(bytes: &[u8]) -> Result<(), InvalidBson> {
    let len = document_len(bytes).map_err(InvalidBson::outermost)?;
    if len != bytes.len() {
        return Err(InvalidBson::outermost(Reason::WrongLength));
    }
    Walk { bytes, at: 4 }.elements(len, 0).map_err(|mut fault| {
        fault.path.reverse();
        InvalidBson { reason: fault.reason, path: fault.path, id: short_id(bytes) }
    })
}

/// Length of the document at the start of `bytes`, after checking its length field and closing byte.
pub(crate) fn document_len(bytes: &[u8]) -> Result<usize, Reason> {
    let len = bytes.first_chunk().map(|len| i32::from_le_bytes(*len)).ok_or(Reason::TooShort)?;
    let have = bytes.len();
    let long_enough = usize::try_from(len).ok().filter(|len| *len >= DOCUMENT_LEN_MIN);
    let checked = long_enough.ok_or(Reason::TooShort)?;
    match bytes.get(checked - 1) {
        None => Err(Reason::Overrun { len, have }),
        Some(0) => Ok(checked),
        Some(_) => Err(Reason::NotClosed),
    }
}

/// A fault on its way up the call stack. Each level of nesting prepends the name of the field it was in.
struct Fault {
    reason: Reason,
    path: Vec<String>,
}

impl From<Reason> for Fault {
    fn from(reason: Reason) -> Self {
        Self { reason, path: Vec::new() }
    }
}

/// A position in the outermost document.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Walk<'_> {
    /// Checks the elements of a container that ends at `end`, and its closing zero byte.
    fn elements(&mut self, end: usize, depth: usize) -> Result<(), Fault> {
        loop {
            let kind = *self.bytes.get(self.at).ok_or(Reason::WrongLength)?;
            self.at += 1;
            if kind == 0 {
                let closed = self.at == end;
                return if closed { Ok(()) } else { Err(Reason::WrongLength.into()) };
            }
            let name_at = self.at;
            let outcome = self.cstring(end).map_err(Fault::from);
            if let Err(mut fault) = outcome.and_then(|()| self.value(kind, end, depth)) {
                fault.path.push(self.name(name_at));
                return Err(fault);
            }
        }
    }

    fn value(&mut self, kind: u8, end: usize, depth: usize) -> Result<(), Fault> {
        match kind {
            // double, date, timestamp, long
            0x01 | 0x09 | 0x11 | 0x12 => self.skip(8, end)?,
            0x10 => self.skip(4, end)?,
            // string, code, symbol
            0x02 | 0x0d | 0x0e => self.string(end)?,
            // document, array
            0x03 | 0x04 => self.document(end, depth)?,
            0x07 => self.skip(12, end)?,
            0x08 => self.boolean(end)?,
            // undefined, null, MinKey, MaxKey
            0x06 | 0x0a | 0xff | 0x7f => {}
            0x05 => {
                let len = self.length(end)?;
                self.skip(len.checked_add(1).ok_or(Reason::ValueOverrun)?, end)?;
            }
            0x13 => self.skip(16, end)?,
            // regular expression
            0x0b => {
                self.cstring(end)?;
                self.cstring(end)?;
            }
            // DBPointer
            0x0c => {
                self.string(end)?;
                self.skip(12, end)?;
            }
            0x0f => self.code_with_scope(end, depth)?,
            other => return Err(Reason::UnknownType(other).into()),
        }
        Ok(())
    }

    /// Checks a document or array, which must end before the closing zero of its container.
    fn document(&mut self, end: usize, depth: usize) -> Result<(), Fault> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let len = rest.first_chunk().map(|len| i32::from_le_bytes(*len));
        let len = len.ok_or(Reason::ValueOverrun)?;
        let checked = usize::try_from(len).ok().filter(|len| *len >= DOCUMENT_LEN_MIN);
        let own_end = self.at + checked.ok_or(Reason::NestedTooShort(len))?;
        if own_end >= end {
            return Err(Reason::WrongLength.into());
        }
        if depth == DEPTH_MAX {
            return Err(Reason::TooDeep.into());
        }
        self.at += 4;
        self.elements(own_end, depth + 1)
    }

    /// Checks code with scope: total length, code, scope document. The scope must end where the total length says.
    fn code_with_scope(&mut self, end: usize, depth: usize) -> Result<(), Fault> {
        let start = self.at;
        let whole = self.length(end)?;
        self.string(end)?;
        self.document(end, depth)?;
        if self.at - start == whole { Ok(()) } else { Err(Reason::WrongLength.into()) }
    }

    fn string(&mut self, end: usize) -> Result<(), Reason> {
        match self.length(end)? {
            0 => Err(Reason::String),
            len => {
                self.skip(len, end)?;
                let closed = self.bytes.get(self.at - 1) == Some(&0);
                if closed { Ok(()) } else { Err(Reason::String) }
            }
        }
    }

    fn boolean(&mut self, end: usize) -> Result<(), Reason> {
        self.skip(1, end)?;
        match self.bytes.get(self.at - 1) {
            Some(0 | 1) => Ok(()),
            _ => Err(Reason::Bool),
        }
    }

    fn length(&mut self, end: usize) -> Result<usize, Reason> {
        let rest = self.bytes.get(self.at..end).ok_or(Reason::ValueOverrun)?;
        let len = rest.first_chunk().map(|len| i32::from_le_bytes(*len));
        self.at += 4;
        len.and_then(|len| usize::try_from(len).ok()).ok_or(Reason::ValueOverrun)
    }

    /// Skips bytes, which must lie before the closing zero of the container.
    #[inline]
    fn skip(&mut self, n: usize, end: usize) -> Result<(), Reason> {
        let next = self.at.checked_add(n).filter(|next| *next < end);
        self.at = next.ok_or(Reason::ValueOverrun)?;
        Ok(())
    }

    /// Skips text that ends in a zero byte.
    #[inline]
    fn cstring(&mut self, end: usize) -> Result<(), Reason> {
        let rest = self.bytes.get(self.at..end).unwrap_or_default();
        // Most names are shorter than eight bytes, so eight bytes are tested at once.
        let len = rest.first_chunk().and_then(zero_in_word);
        match len.or_else(|| rest.iter().position(|byte| *byte == 0)) {
            Some(len) => self.skip(len + 1, end),
            None => Err(Reason::ValueOverrun),
        }
    }

    fn name(&self, at: usize) -> String {
        let rest = self.bytes.get(at..).unwrap_or_default();
        let name = rest.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }
}

/// Position of the first zero byte among eight.
#[inline]
pub(crate) fn zero_in_word(bytes: &[u8; 8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    let word = u64::from_le_bytes(*bytes);
    // `zeros` has a byte's top bit set if that byte is zero. Bits above the first such byte may be wrong because of
    // borrows; only the lowest is used.
    let zeros = word.wrapping_sub(ONES) & !word & TOPS;
    usize::try_from(zeros.trailing_zeros() / 8).ok().filter(|at| *at < 8)
}

/// The `_id` as mongod prints it, if it is readable. An `_id` that is a document is not printed.
fn short_id(bytes: &[u8]) -> Option<String> {
    let doc = RawDocument::from_bytes(bytes).ok()?;
    let id = doc.iter_elements().map_while(Result::ok).find(|e| e.key().as_str() == "_id")?;
    match id.value().ok()? {
        RawBsonRef::Int32(id) => Some(id.to_string()),
        RawBsonRef::Int64(id) => Some(id.to_string()),
        RawBsonRef::String(id) => Some(format!("\"{id}\"")),
        RawBsonRef::ObjectId(id) => Some(format!("ObjectId('{id}')")),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
