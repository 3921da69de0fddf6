//! Field access as in mongod's parsers: numbers of any type, defaults for absent fields.

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, raw::CStr};

/// An integer of any numeric type; fractions are truncated, as in mongod.
pub(crate) fn number(doc: &RawDocument, key: &str) -> Option<i64> {
    match doc.get(key).ok()?? {
        RawBsonRef::Int32(value) => Some(i64::from(value)),
        RawBsonRef::Int64(value) => Some(value),
        #[allow(
            clippy::cast_possible_truncation,
            reason = "`as` saturates, which is what is wanted"
        )]
        RawBsonRef::Double(value) => Some(value as i64),
        _ => None,
    }
}

/// Like [`number`], with a default.
pub(crate) fn int_or(doc: &RawDocument, key: &str, default: i64) -> i64 {
    number(doc, key).unwrap_or(default)
}

/// A boolean, or a number converted to one, with a default.
pub(crate) fn bool_or(doc: &RawDocument, key: &str, default: bool) -> bool {
    match doc.get(key) {
        Ok(Some(RawBsonRef::Boolean(value))) => value,
        Ok(Some(_)) => number(doc, key).map_or(default, |value| value != 0),
        _ => default,
    }
}

/// Appends an int32 if the value fits, otherwise an int64, as mongod does for mostly small numbers.
pub(crate) fn append_number(doc: &mut RawDocumentBuf, key: &CStr, value: i64) {
    match i32::try_from(value) {
        Ok(value) => doc.append(key, value),
        Err(_) => doc.append(key, value),
    }
}
