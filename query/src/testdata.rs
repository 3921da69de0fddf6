//! Reads test fixtures: BSON documents with recorded answers of a real mongod.

use bson::{RawDocument, RawDocumentBuf};

/// The documents of `testdata/NAME`.
pub(crate) fn read(name: &str) -> Vec<RawDocumentBuf> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut rest = bytes.as_slice();
    let mut docs = Vec::new();
    while let Some(len) = rest.first_chunk().map(|b| i32::from_le_bytes(*b)) {
        let (doc, after) = rest.split_at(usize::try_from(len).unwrap());
        docs.push(RawDocument::from_bytes(doc).unwrap().to_owned());
        rest = after;
    }
    assert!(!docs.is_empty(), "{name} is empty");
    docs
}
