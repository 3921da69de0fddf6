//! Reads entries of text indexes.

use bson::RawDocumentBuf;
use protocol::{ErrorCode, RawDoc};
use query::{
    QueryError,
    source::{IndexEntry, IndexInfo, RecordKey},
    text::{TextSpec, key_term},
    value::{OwnedValue, Value, path::LeafArrays},
};

use super::{whole_key, with_name};
use crate::keystring;

/// The record of an entry, and the score after the first `before` bytes of its key.
pub(super) fn score(entry: IndexEntry, before: usize) -> Result<(RecordKey, f64), QueryError> {
    let score = entry.key.get(before..).and_then(keystring::read_number);
    let score = score.ok_or_else(|| {
        let text = "an entry of a text index has no score: validate its collection";
        QueryError::new(ErrorCode::InternalError, text)
    })?;
    Ok((entry.record, score))
}

/// The key of an entry as clients see it. The document has several keys; the entry tells which one.
pub(super) fn key_of(
    info: &IndexInfo,
    entry: &IndexEntry,
    doc: &RawDoc,
) -> Result<RawDocumentBuf, QueryError> {
    let mut shown = RawDocumentBuf::new();
    let Some(spec) = TextSpec::of(&info.spec) else { return Ok(shown) };
    let descending = |at: usize| info.fields.get(at).is_some_and(|field| !field.ascending);
    for (term, score) in spec.scores(doc.as_bytes()) {
        let term = key_term(&term, spec.version());
        let value = |path: &[u8]| -> Option<OwnedValue> {
            match path {
                b"_fts" => Some(Value::String(&term).into()),
                b"_ftsx" => Some(Value::Double(score).into()),
                _ => None,
            }
        };
        let values: Vec<OwnedValue> = info
            .fields
            .iter()
            .map(|field| {
                value(field.path.dotted()).unwrap_or_else(|| {
                    let mut found = OwnedValue::from(Value::Null);
                    field.path.any(doc.as_bytes(), LeafArrays::Closed, |value| {
                        if !matches!(value, Value::Missing) {
                            found = value.into();
                        }
                        true
                    });
                    found
                })
            })
            .collect();
        if *whole_key(&values, descending, None)? == *entry.key {
            for (field, value) in info.fields.iter().zip(&values) {
                with_name(&mut shown, field.path.dotted(), value.get());
            }
            break;
        }
    }
    Ok(shown)
}
