//! A BSON document that shares the buffer it lies in.

use std::{fmt, ops::Deref};

use bson::{RawDocument, RawDocumentBuf};
use bytes::Bytes;
use byteview::ByteView;

/// A document in a shared buffer: cloning and slicing share the message or the stored value that it came from.
///
/// Its length prefix and terminator are checked once, at construction. Elements are checked when they are read.
#[derive(Clone)]
pub struct RawDoc(Buffer);

/// The buffer that holds the bytes.
#[derive(Clone)]
enum Buffer {
    /// A network message, or memory allocated for the document.
    Message(Bytes),
    /// A block of the storage engine. Converting to `Bytes` would cost an allocation for each document of a scan.
    Block(ByteView),
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Message(bytes) => bytes,
            Self::Block(view) => view,
        }
    }
}

impl RawDoc {
    /// Makes a document from exactly its bytes.
    pub fn new(bytes: Bytes) -> Result<Self, bson::error::Error> {
        RawDocument::from_bytes(&bytes)?;
        Ok(Self(Buffer::Message(bytes)))
    }

    /// Makes a document from exactly its bytes in a block of the storage engine.
    pub fn stored(view: ByteView) -> Result<Self, bson::error::Error> {
        RawDocument::from_bytes(&view)?;
        Ok(Self(Buffer::Block(view)))
    }

    /// Makes a document from bytes that [`crate::bson_check`] has accepted.
    pub(crate) fn from_checked(bytes: Bytes) -> Self {
        debug_assert!(RawDocument::from_bytes(&bytes).is_ok());
        Self(Buffer::Message(bytes))
    }

    /// The bytes, sharing the buffer.
    pub fn bytes(&self) -> Bytes {
        match &self.0 {
            Buffer::Message(bytes) => bytes.clone(),
            Buffer::Block(view) => Bytes::from_owner(view.clone()),
        }
    }

    /// Length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "five at least")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The document, borrowed.
    pub fn as_raw(&self) -> &RawDocument {
        RawDocument::from_bytes(&*self.0).expect("shape was checked at construction")
    }

    /// Returns a document that shares this document's buffer; `part` must borrow from it.
    ///
    /// # Panics
    /// If `part` does not lie within this document.
    pub fn share(&self, part: &RawDocument) -> Self {
        match &self.0 {
            Buffer::Message(bytes) => Self(Buffer::Message(bytes.slice_ref(part.as_bytes()))),
            Buffer::Block(view) => {
                let part = part.as_bytes();
                let at = (part.as_ptr() as usize).wrapping_sub(view.as_ptr() as usize);
                Self(Buffer::Block(view.slice(at..at + part.len())))
            }
        }
    }
}

impl Deref for RawDoc {
    type Target = RawDocument;

    fn deref(&self) -> &RawDocument {
        self.as_raw()
    }
}

impl AsRef<RawDocument> for RawDoc {
    fn as_ref(&self) -> &RawDocument {
        self
    }
}

impl From<RawDocumentBuf> for RawDoc {
    fn from(doc: RawDocumentBuf) -> Self {
        Self(Buffer::Message(doc.into_bytes().into()))
    }
}

impl From<&RawDocument> for RawDoc {
    fn from(doc: &RawDocument) -> Self {
        Self(Buffer::Message(Bytes::copy_from_slice(doc.as_bytes())))
    }
}

impl PartialEq for RawDoc {
    fn eq(&self, other: &Self) -> bool {
        *self.0 == *other.0
    }
}

impl Eq for RawDoc {}

impl fmt::Debug for RawDoc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_raw(), f)
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn a_shared_part_points_into_the_same_buffer() {
        let inner = rawdoc! { "b": "long enough not to be kept in place" };
        let sent = RawDoc::from(rawdoc! { "a": inner });
        let stored = RawDoc::stored(ByteView::from(sent.as_bytes())).unwrap();
        assert_eq!(sent, stored);
        for doc in [sent, stored] {
            let part = doc.share(doc.get_document("a").unwrap());
            assert!(part.get_str("b").unwrap().starts_with("long"));
            assert!(doc.as_bytes().as_ptr_range().contains(&part.as_bytes().as_ptr()));
            assert!(doc.as_bytes().as_ptr_range().contains(&part.bytes().as_ptr()));
        }
    }

    #[test]
    fn a_wrong_shape_is_refused() {
        assert!(RawDoc::new(Bytes::from_static(&[6, 0, 0, 0, 0])).is_err());
        assert!(RawDoc::new(Bytes::from_static(&[5, 0, 0, 0, 0])).is_ok());
    }
}
