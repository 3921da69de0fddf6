//! A BSON document that shares the buffer it arrived in.

use std::{fmt, ops::Deref};

use bson::{RawDocument, RawDocumentBuf};
use bytes::Bytes;

/// A document backed by [`Bytes`]: cloning and slicing share the message or stored value it came from.
///
/// Its outer shape (length prefix and terminator) is checked once, at construction. Elements are
/// checked where they are read.
#[derive(Clone, PartialEq, Eq)]
pub struct RawDoc(Bytes);

impl RawDoc {
    /// Takes exactly one document.
    pub fn new(bytes: Bytes) -> Result<Self, bson::error::Error> {
        RawDocument::from_bytes(&bytes)?;
        Ok(Self(bytes))
    }

    /// Takes what [`crate::bson_check`] has found to be shaped as a document.
    pub(crate) fn from_checked(bytes: Bytes) -> Self {
        debug_assert!(RawDocument::from_bytes(&bytes).is_ok());
        Self(bytes)
    }

    /// The bytes, shared.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The bytes, given away.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// The document, borrowed.
    pub fn as_raw(&self) -> &RawDocument {
        RawDocument::from_bytes(&self.0).expect("shape was checked at construction")
    }

    /// Shares the part of this document's buffer that `part` borrows from it.
    ///
    /// # Panics
    /// If `part` does not lie within this document.
    pub fn share(&self, part: &RawDocument) -> Self {
        Self(self.0.slice_ref(part.as_bytes()))
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
        Self(doc.into_bytes().into())
    }
}

impl From<&RawDocument> for RawDoc {
    fn from(doc: &RawDocument) -> Self {
        Self(Bytes::copy_from_slice(doc.as_bytes()))
    }
}

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
        let doc = RawDoc::from(rawdoc! { "a": { "b": 1 } });
        let part = doc.share(doc.get_document("a").unwrap());
        assert_eq!(part.get_i32("b").unwrap(), 1);
        let outer =
            doc.bytes().as_ptr() as usize..doc.bytes().as_ptr() as usize + doc.bytes().len();
        assert!(outer.contains(&(part.bytes().as_ptr() as usize)));
    }

    #[test]
    fn a_wrong_shape_is_refused() {
        assert!(RawDoc::new(Bytes::from_static(&[6, 0, 0, 0, 0])).is_err());
        assert!(RawDoc::new(Bytes::from_static(&[5, 0, 0, 0, 0])).is_ok());
    }
}
