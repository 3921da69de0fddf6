//! Keys of a text index.
//!
//! ```text
//!   { p: 1, _fts: "text", _ftsx: 1, s: 1 }      key: p ++ term ++ score ++ s, one for each term of the document
//! ```
//! The fields before and after the terms must not be arrays: such a document gets no keys, since mongod refuses it
//! (code 201).

use bson::RawDocument;
use query::{
    text::{TextSpec, key_term},
    value::{Elements, Value},
};

use super::keygen::{Field, Key, Keys};
use crate::{StorageError, keystring};

/// The configuration of a text index.
#[derive(Debug)]
pub(super) struct Text {
    spec: TextSpec,
    /// Position of the terms among the fields; the score follows.
    at: usize,
}

impl Text {
    /// Parses the spec of a text index, if it is a supported one.
    pub(super) fn new(spec: &RawDocument) -> Option<Self> {
        let key = spec.get_document("key").ok()?;
        let at = Elements::new(key).position(|field| field.key == b"_fts")?;
        Some(Self { spec: TextSpec::of(spec)?, at })
    }

    /// The keys of a document.
    pub(super) fn keys(&self, fields: &[Field], doc: &RawDocument) -> Result<Keys, StorageError> {
        let (before, rest) = fields.split_at_checked(self.at).unwrap_or((fields, &[]));
        let after = rest.get(2..).unwrap_or_default();
        let (Some(before), Some(after)) = (plain(before, doc)?, plain(after, doc)?) else {
            return Ok(Keys::default());
        };
        let mut keys = Vec::new();
        for (term, score) in self.spec.scores(doc.as_bytes()) {
            let mut key = before.clone();
            let term = key_term(&term, self.spec.version());
            keystring::append(&mut key, Value::String(&term), false, None)?;
            keystring::append(&mut key, Value::Double(score), false, None)?;
            key.extend_from_slice(&after);
            keys.push(key);
        }
        keys.sort();
        let mut multikey = Vec::new();
        if keys.len() > 1 {
            multikey = vec![Vec::new(); fields.len()];
            multikey.get_mut(self.at).into_iter().for_each(|paths| paths.push(0));
        }
        Ok(Keys { keys: keys.into_iter().map(Key::closed).collect(), multikey })
    }
}

/// The concatenated values of fields; `None` if one of them is an array.
fn plain(fields: &[Field], doc: &RawDocument) -> Result<Option<Vec<u8>>, StorageError> {
    let mut key = Vec::new();
    for field in fields {
        let value = field.plain(doc).unwrap_or(Value::Null);
        if matches!(value, Value::Array(_)) {
            return Ok(None);
        }
        keystring::append(&mut key, value, field.descending, None)?;
    }
    Ok(Some(key))
}
