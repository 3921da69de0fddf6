//! The check that mongod runs over every document it receives: is this BSON all the way down?
//!
//! One pass, no recursion, no allocation: the ends of the open containers lie on a stack whose depth
//! is the nesting limit. Values are not judged, only their shape: types that exist, lengths that fit,
//! strings that end in a zero byte, booleans that are 0 or 1.
//!
//! B1 After `check` says yes, walking the document by its lengths never leaves it.
//! B2 The work is linear in the length of the document.

use crate::ErrorCode;

/// How deep documents and arrays may be nested, the outermost not counted, as in mongod.
pub const DEPTH_MAX: usize = 200;

/// Why bytes are no document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBson {
    /// The shape is broken.
    #[error("invalid bson: {what} at byte {at}")]
    Shape {
        /// What is wrong.
        what: &'static str,
        /// Where, counted from the start of the outermost document.
        at: usize,
    },
    /// Nested too deep.
    #[error("BSONObj exceeded maximum nested object depth: {DEPTH_MAX}")]
    TooDeep,
}

impl InvalidBson {
    /// The code of mongod's answer.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Shape { .. } => ErrorCode::InvalidBSON,
            Self::TooDeep => ErrorCode::Overflow,
        }
    }
}

/// Says whether `bytes` are exactly one well-formed document.
pub fn check(bytes: &[u8]) -> Result<(), InvalidBson> {
    let mut walk = Walk { bytes, at: 0, ends: [0; DEPTH_MAX + 1], open: 0 };
    walk.open_document()?;
    if walk.innermost_end() != bytes.len() {
        return Err(walk.broken("document length differs from what is there"));
    }
    while walk.open > 0 {
        walk.element()?;
    }
    Ok(())
}

/// A position in the document, and where the containers around it end.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    ends: [usize; DEPTH_MAX + 1],
    open: usize,
}

/// An empty document: its length and the closing zero.
const DOCUMENT_LEN_MIN: usize = 5;

impl Walk<'_> {
    /// One element of the innermost container, or its end.
    fn element(&mut self) -> Result<(), InvalidBson> {
        let kind = self.u8()?;
        if kind == 0 {
            return self.close();
        }
        self.cstring("field name")?;
        match kind {
            // double, date, timestamp, long
            0x01 | 0x09 | 0x11 | 0x12 => self.skip(8),
            // string, code, symbol
            0x02 | 0x0d | 0x0e => self.string(),
            // document, array
            0x03 | 0x04 => self.open_document(),
            0x05 => self.binary(),
            // undefined, null, MinKey, MaxKey
            0x06 | 0x0a | 0xff | 0x7f => Ok(()),
            0x07 => self.skip(12),
            0x08 => self.boolean(),
            0x0b => {
                self.cstring("regular expression")?;
                self.cstring("regular expression options")
            }
            0x0c => {
                self.string()?;
                self.skip(12)
            }
            0x0f => self.code_with_scope(),
            0x10 => self.skip(4),
            0x13 => self.skip(16),
            _ => Err(self.broken("unknown type")),
        }
    }

    fn innermost_end(&self) -> usize {
        self.open.checked_sub(1).and_then(|top| self.ends.get(top)).copied().unwrap_or(0)
    }

    /// Enters a document or an array that must end within its container.
    fn open_document(&mut self) -> Result<(), InvalidBson> {
        let start = self.at;
        let limit = if self.open == 0 { self.bytes.len() } else { self.innermost_end() };
        let len = self.length(DOCUMENT_LEN_MIN)?;
        let end = start.checked_add(len).filter(|end| *end <= limit);
        let end = end.ok_or(self.broken("document overruns what holds it"))?;
        if self.bytes.get(end - 1) != Some(&0) {
            return Err(self.broken("document is not closed"));
        }
        *self.ends.get_mut(self.open).ok_or(InvalidBson::TooDeep)? = end;
        self.open += 1;
        Ok(())
    }

    fn close(&mut self) -> Result<(), InvalidBson> {
        if self.at != self.innermost_end() {
            return Err(self.broken("document ends before its length"));
        }
        self.open -= 1;
        Ok(())
    }

    fn string(&mut self) -> Result<(), InvalidBson> {
        let len = self.length(1)?;
        self.skip(len)?;
        match self.bytes.get(self.at - 1) {
            Some(0) => Ok(()),
            _ => Err(self.broken("string is not closed")),
        }
    }

    fn binary(&mut self) -> Result<(), InvalidBson> {
        let len = self.length(0)?;
        self.skip(1)?;
        self.skip(len)
    }

    fn boolean(&mut self) -> Result<(), InvalidBson> {
        match self.u8()? {
            0 | 1 => Ok(()),
            _ => Err(self.broken("boolean is neither 0 nor 1")),
        }
    }

    /// Length of the whole, the code, the scope. The scope must end where the whole does.
    fn code_with_scope(&mut self) -> Result<(), InvalidBson> {
        let start = self.at;
        let whole = self.length(4 + 5 + DOCUMENT_LEN_MIN)?;
        self.string()?;
        self.open_document()?;
        if start.checked_add(whole) != Some(self.innermost_end()) {
            return Err(self.broken("length of code with scope is wrong"));
        }
        Ok(())
    }

    /// A length of at least `min`.
    fn length(&mut self, min: usize) -> Result<usize, InvalidBson> {
        let chunk = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<4>());
        let len = chunk.map(|chunk| i32::from_le_bytes(*chunk));
        let len = len.and_then(|len| usize::try_from(len).ok()).filter(|len| *len >= min);
        let len = len.ok_or(self.broken("length is impossible"))?;
        self.at += 4;
        Ok(len)
    }

    /// Steps over bytes that must lie before the closing zero of the innermost container.
    fn skip(&mut self, n: usize) -> Result<(), InvalidBson> {
        let next = self.at.checked_add(n).filter(|next| *next < self.innermost_end());
        self.at = next.ok_or(self.broken("value overruns its document"))?;
        Ok(())
    }

    fn cstring(&mut self, what: &'static str) -> Result<(), InvalidBson> {
        let rest = self.bytes.get(self.at..self.innermost_end());
        let end = rest.and_then(|rest| rest.iter().position(|byte| *byte == 0));
        let end = end.ok_or(self.broken(what))?;
        self.skip(end + 1)
    }

    fn u8(&mut self) -> Result<u8, InvalidBson> {
        let byte = self.bytes.get(self.at).copied().ok_or(self.broken("document is cut off"))?;
        self.at += 1;
        Ok(byte)
    }

    fn broken(&self, what: &'static str) -> InvalidBson {
        InvalidBson::Shape { what, at: self.at }
    }
}
