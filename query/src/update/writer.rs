//! The output buffer of an update: nested documents, whose lengths are patched when they are closed.

use bson::RawDocumentBuf;

use crate::value::{Element, Malformed};

/// Writes nested documents into one buffer.
#[derive(Debug, Default)]
pub(crate) struct DocWriter {
    out: Vec<u8>,
}

/// An open document: the offset of its length.
#[derive(Debug)]
#[must_use = "a document that is opened must be closed"]
pub(crate) struct OpenDoc(usize);

impl DocWriter {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { out: Vec::with_capacity(bytes) }
    }

    /// Opens a document whose type and key, if it is nested, are already written.
    pub(crate) fn open(&mut self) -> OpenDoc {
        let start = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        OpenDoc(start)
    }

    pub(crate) fn close(&mut self, doc: OpenDoc) {
        self.out.push(0);
        let len = i32::try_from(self.out.len() - doc.0).unwrap_or(i32::MAX);
        if let Some(place) = self.out.get_mut(doc.0..doc.0 + 4) {
            place.copy_from_slice(&len.to_le_bytes());
        }
    }

    pub(crate) fn key(&mut self, type_byte: u8, key: &[u8]) {
        self.out.push(type_byte);
        self.out.extend_from_slice(key);
        self.out.push(0);
    }

    /// Writes a key that is an array index.
    pub(crate) fn index(&mut self, type_byte: u8, index: usize) {
        self.out.push(type_byte);
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        let mut rest = index;
        loop {
            at -= 1;
            if let Some(place) = digits.get_mut(at) {
                *place = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            }
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.out.extend_from_slice(digits.get(at..).unwrap_or_default());
        self.out.push(0);
    }

    /// Writes the bytes of a value, after its key.
    pub(crate) fn value_bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Writes a whole element unchanged.
    pub(crate) fn element(&mut self, element: &Element<'_>) {
        self.out.extend_from_slice(element.bytes);
    }

    pub(crate) fn finish(self) -> Result<RawDocumentBuf, Malformed> {
        RawDocumentBuf::from_bytes(self.out).map_err(|_| Malformed { offset: 0 })
    }
}
