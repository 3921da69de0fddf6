//! Typed access to the fields of a raw document, with mongod's error texts for missing and mistyped fields.
//!
//! mongod has two kinds of command parsers, and their errors differ:
//! ```text
//!  Fields::idl("find", doc)  most commands     BSON field 'find.limit' is the wrong type 'string', expected ...
//!  Fields::extract(doc)      replSet commands  "optimes" had the wrong type. Expected array, found int
//! ```
//! Null counts as absent where a field is optional, as in mongod.

use std::borrow::Cow;

use bson::{RawArray, RawBsonRef, RawDocument, oid::ObjectId, spec::BinarySubtype};

use crate::{ErrorCode, OpTime, Timestamp};

mod value;

pub use value::type_name;

/// Why a field could not be read. Displays as mongod's `errmsg`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// A required field is missing.
    #[error("BSON field '{path}' is missing but a required field")]
    Missing {
        /// Command and field name, joined by dots.
        path: String,
    },
    /// A field has the wrong type.
    #[error("BSON field '{path}' is the wrong type '{found}', expected {}", value::list(expected))]
    Type {
        /// Command and field name, joined by dots.
        path: String,
        /// The actual type.
        found: &'static str,
        /// The allowed types.
        expected: &'static [&'static str],
    },
    /// A field that the command does not have.
    #[error("BSON field '{path}' is an unknown field.")]
    Unknown {
        /// Command and field name, joined by dots.
        path: String,
    },
    /// A field occurs twice.
    #[error("BSON field '{path}' is a duplicate field")]
    Duplicate {
        /// Command and field name, joined by dots.
        path: String,
    },
    /// A number is out of bounds.
    #[error("BSON field '{name}' value must be {bound}, actual value '{actual}'")]
    OutOfBounds {
        /// The field name.
        name: String,
        /// The violated bound, for instance `>= 0`.
        bound: &'static str,
        /// The number.
        actual: i64,
    },
    /// A text that is not one of the allowed words.
    #[error("Enumeration value '{actual}' for field '{path}' is not a valid value.")]
    Enumeration {
        /// Command and field name, joined by dots.
        path: String,
        /// The text.
        actual: String,
    },
    /// A required field is missing, with the error text of the replSet commands.
    #[error("Missing expected field \"{name}\"")]
    ExtractMissing {
        /// The field name.
        name: String,
    },
    /// A field has the wrong type, with the error text of the replSet commands.
    #[error("\"{name}\" had the wrong type. Expected {expected}, found {found}")]
    ExtractType {
        /// The field name.
        name: String,
        /// The expected type.
        expected: &'static str,
        /// The actual type.
        found: &'static str,
    },
    /// A field should be a number, with the error text of the replSet commands.
    #[error("Expected field \"{name}\" to have numeric type, but found {found}")]
    ExtractNotNumeric {
        /// The field name.
        name: String,
        /// The actual type.
        found: &'static str,
    },
    /// The document is malformed before the field is found.
    #[error("invalid bson in field '{path}'")]
    Bson {
        /// Command and field name, joined by dots.
        path: String,
    },
}

impl FieldError {
    /// The error code that mongod replies with.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Missing { .. } => ErrorCode::IDLFailedToParse,
            Self::Unknown { .. } => ErrorCode::IDLUnknownField,
            Self::Duplicate { .. } => ErrorCode::IDLDuplicateField,
            Self::Type { .. } | Self::ExtractType { .. } | Self::ExtractNotNumeric { .. } => {
                ErrorCode::TypeMismatch
            }
            Self::OutOfBounds { .. } | Self::Enumeration { .. } => ErrorCode::BadValue,
            Self::ExtractMissing { .. } => ErrorCode::NoSuchKey,
            Self::Bson { .. } => ErrorCode::InvalidBSON,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Style {
    Idl,
    Extract,
}

/// The fields of one document.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    doc: &'a RawDocument,
    context: Cow<'a, str>,
    style: Style,
}

impl<'a> Fields<'a> {
    /// Reads with the error texts of mongod's generated parsers. `context` is the command's name in them: mostly the
    /// command itself, but `FindCommandRequest` for find.
    pub fn idl(context: &'a str, doc: &'a RawDocument) -> Self {
        Self { doc, context: context.into(), style: Style::Idl }
    }

    /// Reads with the error texts of mongod's hand-written parsers.
    pub fn extract(doc: &'a RawDocument) -> Self {
        Self { doc, context: Cow::Borrowed(""), style: Style::Extract }
    }

    /// The document itself.
    pub fn doc(&self) -> &'a RawDocument {
        self.doc
    }

    /// The field with this name, also if it is null.
    pub fn get(&self, name: &'a str) -> Result<Option<Value<'a>>, FieldError> {
        let found = self.doc.get(name).map_err(|_| FieldError::Bson { path: self.path(name) })?;
        Ok(found.map(|raw| Value { raw, path: self.path_of(name), style: self.style }))
    }

    /// A field that may be absent or null.
    pub fn optional(&self, name: &'a str) -> Result<Option<Value<'a>>, FieldError> {
        Ok(self.get(name)?.filter(|value| value.raw != RawBsonRef::Null))
    }

    /// A field that must be present.
    pub fn required(&self, name: &'a str) -> Result<Value<'a>, FieldError> {
        self.get(name)?.ok_or_else(|| match self.style {
            Style::Idl => FieldError::Missing { path: self.path(name) },
            Style::Extract => FieldError::ExtractMissing { name: name.to_owned() },
        })
    }

    /// Refuses fields that are neither in `known` nor generic arguments, and fields that occur twice.
    pub fn only(&self, known: &[&str]) -> Result<(), FieldError> {
        for (at, element) in self.doc.iter_elements().enumerate() {
            let element = element.map_err(|_| FieldError::Bson { path: self.path("?") })?;
            let name = element.key().as_str();
            let earlier = self.doc.iter_elements().take(at).flatten();
            if earlier.map(|e| e.key().as_str()).any(|e| e == name) {
                return Err(FieldError::Duplicate { path: self.path(name) });
            }
            if !known.contains(&name)
                && !GENERIC_ARGUMENTS.contains(&name)
                && !name.starts_with('$')
            {
                return Err(FieldError::Unknown { path: self.path(name) });
            }
        }
        Ok(())
    }

    fn path(&self, name: &str) -> String {
        join(&self.context, name)
    }

    fn path_of(&self, name: &'a str) -> Path<'a> {
        Path { context: self.context.clone(), name: name.into() }
    }
}

/// Arguments that every command accepts (mongod's generic arguments). Names that begin with `$` are accepted, too.
const GENERIC_ARGUMENTS: [&str; 22] = [
    "apiDeprecationErrors",
    "apiStrict",
    "apiVersion",
    "autocommit",
    "clientOperationKey",
    "collectionUUID",
    "comment",
    "coordinator",
    "databaseVersion",
    "help",
    "lsid",
    "maxTimeMS",
    "maxTimeMSOpOnly",
    "mayBypassWriteBlocking",
    "rawData",
    "readConcern",
    "shardVersion",
    "startOrContinueTransaction",
    "startTransaction",
    "stmtId",
    "txnNumber",
    "writeConcern",
];

#[derive(Clone, Debug)]
struct Path<'a> {
    context: Cow<'a, str>,
    name: Cow<'a, str>,
}

fn join(context: &str, name: &str) -> String {
    if context.is_empty() { name.to_owned() } else { format!("{context}.{name}") }
}

/// A field's value with its path, for error texts.
#[derive(Clone, Debug)]
pub struct Value<'a> {
    raw: RawBsonRef<'a>,
    path: Path<'a>,
    style: Style,
}

#[cfg(test)]
mod tests;
