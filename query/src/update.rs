//! Applies oplog update entries to documents, byte for byte as mongod does.
//!
//! ```text
//!   o: { $v: 2, diff: {...} }        delta.rs       5.0 and later
//!   o: { $v: 1, $set, $unset }       modifiers.rs   4.4, and oplogs that cross an upgrade
//!   o: { _id, ... }                  replacement    the document itself
//! ```
//! All three write one output buffer from slices of the old document and of the entry.
//!
//! U1 Applying an entry to a document that already has its effect gives the same document. Entries are replayed in
//!    order after a crash and during initial sync; if a later entry's change is already there, an earlier one becomes
//!    a partial no-op, never an error.

mod delta;
mod modifiers;
mod writer;

pub use delta::apply_diff;
pub use modifiers::apply_modifiers;

use bson::{RawDocument, RawDocumentBuf};
use protocol::ErrorCode;

use crate::value::{Elements, Malformed, Value};

/// Why an update entry could not be applied. Each has mongod's error code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// The entry or the document is not valid BSON.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// An empty diff.
    #[error("Wrong diff format: empty diff")]
    EmptyDiff,
    /// A section that no release of mongod writes.
    #[error("Expected diff section to be one of d, u, i, b or s<field>, but found: {section}")]
    UnknownSection {
        /// The section's name.
        section: String,
    },
    /// A section or field of the wrong type.
    #[error("Expected {field} field in diff to be {expected}, but found: {found}")]
    WrongType {
        /// The field.
        field: String,
        /// The expected type.
        expected: &'static str,
        /// The actual type.
        found: &'static str,
    },
    /// A field occurs in two sections.
    #[error("duplicate field name in diff: {field}")]
    DuplicateField {
        /// The field.
        field: String,
    },
    /// An array index that is not a number or exceeds the array's new length.
    #[error("Expected an array index in diff, but found: {field}")]
    BadIndex {
        /// The field.
        field: String,
    },
    /// An unknown version of the update language.
    #[error("Unrecognized value for '$v' (UpdateSemantics) field: {version}")]
    UnknownVersion {
        /// The value of `$v`, as text.
        version: String,
    },
    /// An operator other than `$set` and `$unset` in a `$v: 1` entry.
    #[error("Unknown modifier: {name}")]
    UnknownModifier {
        /// The operator.
        name: String,
    },
    /// Two modifiers on the same path, or on a path and its parent.
    #[error("Updating the path '{path}' would create a conflict at '{path}'")]
    Conflict {
        /// The path.
        path: String,
    },
    /// A path with an empty field name.
    #[error("The update path '{path}' contains an empty field name, which is not allowed.")]
    EmptyFieldName {
        /// The path.
        path: String,
    },
    /// A path to an element so far beyond the end of an array that mongod refuses to pad it.
    #[error("can't backfill more than {limit} elements")]
    CannotBackfillArray {
        /// The maximum number of padding elements.
        limit: usize,
    },
}

impl UpdateError {
    /// mongod's error code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Malformed(_) => ErrorCode::InvalidBSON,
            Self::EmptyDiff => ErrorCode::from_code(4_770_500),
            Self::UnknownSection { .. } => ErrorCode::from_code(4_770_503),
            Self::WrongType { .. } => ErrorCode::from_code(4_770_507),
            Self::DuplicateField { .. } => ErrorCode::from_code(4_728_000),
            Self::BadIndex { .. } => ErrorCode::from_code(4_770_512),
            Self::UnknownVersion { .. } => ErrorCode::from_code(4_772_604),
            Self::UnknownModifier { .. } => ErrorCode::FailedToParse,
            Self::Conflict { .. } => ErrorCode::from_code(40),
            Self::EmptyFieldName { .. } => ErrorCode::from_code(56),
            Self::CannotBackfillArray { .. } => ErrorCode::from_code(102),
        }
    }
}

/// The kinds of updates in an entry's `o`.
#[derive(Debug, Clone, Copy)]
pub enum UpdateKind<'a> {
    /// The complete new document.
    Replacement(&'a RawDocument),
    /// `$v: 1`: `$set` and `$unset` on dotted paths.
    Modifiers(&'a RawDocument),
    /// `$v: 2`: a diff.
    Diff(&'a RawDocument),
}

impl<'a> UpdateKind<'a> {
    /// Determines the kind of an entry's `o`.
    pub fn of(o: &'a RawDocument) -> Result<Self, UpdateError> {
        let mut fields = Elements::new(o);
        let Some(first) = fields.next_checked()? else { return Ok(Self::Replacement(o)) };
        if !first.key.starts_with(b"$") {
            return Ok(Self::Replacement(o));
        }
        let version = if first.key == b"$v" { version_number(first.value()) } else { Some(1) };
        match version {
            Some(1) => Ok(Self::Modifiers(o)),
            Some(2) => match Elements::new(o).find(b"diff").map(|e| e.value()) {
                Some(Value::Document(diff)) => RawDocument::from_bytes(diff)
                    .map(Self::Diff)
                    .map_err(|_| Malformed { offset: 0 }.into()),
                other => Err(UpdateError::WrongType {
                    field: "diff".into(),
                    expected: "an object",
                    found: other.unwrap_or(Value::Missing).type_name(),
                }),
            },
            _ => Err(UpdateError::UnknownVersion { version: format!("{:?}", first.value()) }),
        }
    }
}

fn version_number(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Int32(n) => Some(i64::from(n)),
        Value::Int64(n) => Some(n),
        Value::Double(1.0) => Some(1),
        Value::Double(2.0) => Some(2),
        _ => None,
    }
}

/// The document after applying an update entry with this `o`.
///
/// For an upsert (`b: true`) of a missing document, `pre` is the entry's `o2`.
pub fn apply_update(pre: &RawDocument, o: &RawDocument) -> Result<RawDocumentBuf, UpdateError> {
    match UpdateKind::of(o)? {
        UpdateKind::Replacement(doc) => Ok(doc.to_owned()),
        UpdateKind::Modifiers(modifiers) => apply_modifiers(pre, modifiers),
        UpdateKind::Diff(diff) => apply_diff(pre, diff),
    }
}

#[cfg(test)]
mod tests;
