//! Values as the query language uses them: borrowed, with the type in one word, never a tree.
//!
//! ```text
//!   RawDocument bytes:  02 "name\0" 04 00 00 00 "abc\0" ...
//!                       |  |        `- value bytes
//!                       |  `- key         one Element = three slices of the document
//!                       `- type
//! ```
//! [`Value`] is `Copy`: scalars are decoded, everything else is a slice of the document (or of an arena of expression
//! results). Strings are bytes: mongod stores what it is sent, valid UTF-8 or not.
//!
//! V1 Iterating over bytes never panics and never reads past them. [`Elements`] ends at the first malformed element;
//!    [`Elements::next_checked`] distinguishes that from the true end.

mod compare;
pub mod display;
mod elements;
mod fields;
mod hash;
mod number;
mod owned;
pub mod path;

pub use compare::{compare, compare_docs, compare_values};
pub use display::{Shown, Spelled};
pub(crate) use elements::value_size;
pub use elements::{Element, Elements, Malformed, validate};
pub(crate) use fields::{Fields, Found};
pub use hash::hash64;
pub use number::{Decimal, DecimalClass};
pub use owned::OwnedValue;

use bson::{RawArray, RawBsonRef, RawDocument, spec::ElementType};

/// A borrowed BSON value, or the absence of one.
///
/// The discriminant takes a whole word: otherwise the payload would be unaligned, and copying it in parts of
/// different sizes would stall the processor.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub enum Value<'a> {
    /// A missing field.
    Missing,
    /// Sorts below everything else.
    MinKey,
    /// Deprecated; a type of its own that sorts below null.
    Undefined,
    /// Null.
    Null,
    /// 32-bit integer.
    Int32(i32),
    /// 64-bit integer.
    Int64(i64),
    /// Binary floating point.
    Double(f64),
    /// Decimal floating point.
    Decimal(Decimal),
    /// Text, as bytes: it need not be valid UTF-8.
    String(&'a [u8]),
    /// Deprecated text type, sorted with strings.
    Symbol(&'a [u8]),
    /// An embedded document, with its length prefix and terminator.
    Document(&'a [u8]),
    /// An array, encoded like a document.
    Array(&'a [u8]),
    /// Binary data. The bytes of subtype 2 include their inner length, as stored.
    Binary {
        /// What the bytes mean.
        subtype: u8,
        /// The payload as stored.
        bytes: &'a [u8],
    },
    /// The usual identifier.
    ObjectId([u8; 12]),
    /// True or false.
    Bool(bool),
    /// Milliseconds since 1970.
    Date(i64),
    /// Seconds in the high half, increment in the low one.
    Timestamp(u64),
    /// A regular expression.
    Regex {
        /// The pattern, without its terminator.
        pattern: &'a [u8],
        /// The options, without their terminator.
        options: &'a [u8],
    },
    /// Deprecated reference: the whole value as stored (name, then 12 bytes of identifier).
    DbPointer(&'a [u8]),
    /// JavaScript.
    Code(&'a [u8]),
    /// JavaScript and its variables.
    CodeWithScope {
        /// The code.
        code: &'a [u8],
        /// The variables, a document.
        scope: &'a [u8],
    },
    /// Sorts above everything else.
    MaxKey,
}

impl<'a> Value<'a> {
    /// Decodes a value of this type; missing if the bytes are invalid.
    pub(crate) fn stored(type_byte: u8, bytes: &'a [u8]) -> Self {
        elements::decode(type_byte, bytes).unwrap_or(Self::Missing)
    }

    /// Number of bytes that it refers to.
    pub(crate) fn text_len(self) -> usize {
        match self {
            Self::String(bytes)
            | Self::Symbol(bytes)
            | Self::Code(bytes)
            | Self::Document(bytes)
            | Self::Array(bytes)
            | Self::DbPointer(bytes)
            | Self::Binary { bytes, .. } => bytes.len(),
            Self::Regex { pattern, options } => pattern.len() + options.len(),
            Self::CodeWithScope { code, scope } => code.len() + scope.len(),
            _ => 0,
        }
    }

    /// The type byte before the field name; 0 for [`Value::Missing`].
    pub fn type_byte(self) -> u8 {
        match self {
            Self::Missing => 0,
            Self::MinKey => 0xff,
            Self::Undefined => ElementType::Undefined as u8,
            Self::Null => ElementType::Null as u8,
            Self::Int32(_) => ElementType::Int32 as u8,
            Self::Int64(_) => ElementType::Int64 as u8,
            Self::Double(_) => ElementType::Double as u8,
            Self::Decimal(_) => ElementType::Decimal128 as u8,
            Self::String(_) => ElementType::String as u8,
            Self::Symbol(_) => ElementType::Symbol as u8,
            Self::Document(_) => ElementType::EmbeddedDocument as u8,
            Self::Array(_) => ElementType::Array as u8,
            Self::Binary { .. } => ElementType::Binary as u8,
            Self::ObjectId(_) => ElementType::ObjectId as u8,
            Self::Bool(_) => ElementType::Boolean as u8,
            Self::Date(_) => ElementType::DateTime as u8,
            Self::Timestamp(_) => ElementType::Timestamp as u8,
            Self::Regex { .. } => ElementType::RegularExpression as u8,
            Self::DbPointer(_) => ElementType::DbPointer as u8,
            Self::Code(_) => ElementType::JavaScriptCode as u8,
            Self::CodeWithScope { .. } => ElementType::JavaScriptCodeWithScope as u8,
            Self::MaxKey => ElementType::MaxKey as u8,
        }
    }

    /// The type's name in mongod's messages and in `$type`.
    pub fn type_name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::MinKey => "minKey",
            Self::Undefined => "undefined",
            Self::Null => "null",
            Self::Int32(_) => "int",
            Self::Int64(_) => "long",
            Self::Double(_) => "double",
            Self::Decimal(_) => "decimal",
            Self::String(_) => "string",
            Self::Symbol(_) => "symbol",
            Self::Document(_) => "object",
            Self::Array(_) => "array",
            Self::Binary { .. } => "binData",
            Self::ObjectId(_) => "objectId",
            Self::Bool(_) => "bool",
            Self::Date(_) => "date",
            Self::Timestamp(_) => "timestamp",
            Self::Regex { .. } => "regex",
            Self::DbPointer(_) => "dbPointer",
            Self::Code(_) => "javascript",
            Self::CodeWithScope { .. } => "javascriptWithScope",
            Self::MaxKey => "maxKey",
        }
    }

    /// The rank of the type in MongoDB's order across types. Types of the same rank compare by value.
    pub(crate) fn type_rank(self) -> u8 {
        match self {
            Self::MinKey => 0,
            Self::Missing | Self::Undefined => 1,
            Self::Null => 5,
            Self::Int32(_) | Self::Int64(_) | Self::Double(_) | Self::Decimal(_) => 10,
            Self::String(_) | Self::Symbol(_) => 15,
            Self::Document(_) => 20,
            Self::Array(_) => 25,
            Self::Binary { .. } => 30,
            Self::ObjectId(_) => 35,
            Self::Bool(_) => 40,
            Self::Date(_) => 45,
            Self::Timestamp(_) => 47,
            Self::Regex { .. } => 50,
            Self::DbPointer(_) => 55,
            Self::Code(_) => 60,
            Self::CodeWithScope { .. } => 65,
            Self::MaxKey => 127,
        }
    }

    /// True for the four number types.
    pub fn is_number(self) -> bool {
        matches!(self, Self::Int32(_) | Self::Int64(_) | Self::Double(_) | Self::Decimal(_))
    }

    /// True if the value is nullish, as aggregation calls it: missing, null or undefined.
    pub(crate) fn is_nullish(self) -> bool {
        matches!(self, Self::Missing | Self::Null | Self::Undefined)
    }

    /// The same scalar with a static lifetime; [`Value::Missing`] for values with bytes.
    pub(crate) fn detached(self) -> Value<'static> {
        match self {
            Self::MinKey => Value::MinKey,
            Self::Undefined => Value::Undefined,
            Self::Null => Value::Null,
            Self::Int32(n) => Value::Int32(n),
            Self::Int64(n) => Value::Int64(n),
            Self::Double(n) => Value::Double(n),
            Self::Decimal(n) => Value::Decimal(n),
            Self::ObjectId(id) => Value::ObjectId(id),
            Self::Bool(b) => Value::Bool(b),
            Self::Date(ms) => Value::Date(ms),
            Self::Timestamp(n) => Value::Timestamp(n),
            Self::MaxKey => Value::MaxKey,
            _ => Value::Missing,
        }
    }

    /// The elements of a document or array; none for anything else.
    pub fn elements(self) -> Elements<'a> {
        match self {
            Self::Document(bytes) | Self::Array(bytes) => Elements::of_bytes(bytes),
            _ => Elements::of_bytes(&[]),
        }
    }

    /// Text, if this is a string that is valid UTF-8.
    pub fn as_str(self) -> Option<&'a str> {
        match self {
            Self::String(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// Converts a driver's value reference. `None` for the two kinds whose stored bytes it does not expose: a
    /// DBPointer, and binary data of subtype 2.
    pub fn from_raw(value: RawBsonRef<'a>) -> Option<Self> {
        elements::from_raw(value)
    }

    /// Appends the value's bytes as stored in a document.
    pub fn append_to(self, out: &mut Vec<u8>) {
        elements::append_value(self, out);
    }

    /// A document with only this value, under the empty name.
    pub fn alone(self) -> bson::RawDocumentBuf {
        let mut bytes = vec![0; 4];
        bytes.push(self.type_byte());
        bytes.push(0);
        self.append_to(&mut bytes);
        bytes.push(0);
        let len = i32::try_from(bytes.len()).unwrap_or(i32::MAX).to_le_bytes();
        if let Some(slot) = bytes.first_chunk_mut::<4>() {
            *slot = len;
        }
        bson::RawDocumentBuf::from_bytes(bytes).unwrap_or_default()
    }
}

impl<'a> From<&'a RawDocument> for Value<'a> {
    fn from(doc: &'a RawDocument) -> Self {
        Self::Document(doc.as_bytes())
    }
}

impl<'a> From<&'a RawArray> for Value<'a> {
    fn from(array: &'a RawArray) -> Self {
        Self::Array(array.as_bytes())
    }
}
