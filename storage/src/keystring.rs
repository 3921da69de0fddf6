//! KeyString: encodes any BSON value as bytes whose byte order is MongoDB's comparison order.
//!
//! ```text
//!   type  what follows
//!   0A    MinKey            0F undefined       14 null
//!   20    NaN    21 -inf    22..2B negative    2C zero    2D..36 positive    37 +inf     see `number`
//!   70    string (symbol)   74 object          78 array          7C binary     80 ObjectId
//!   84    false  85 true    88 date            8C timestamp      90 regex      94 DBPointer
//!   98    code   9C code with scope            E0 MaxKey
//! ```
//! K1 `a < b` by comparison if and only if `key(a) < key(b)` by bytes; equal values have equal keys and vice versa.
//! K2 No key is a prefix of another, so keys can be concatenated.
//! K3 A descending component has all its bytes inverted.
//!
//! Text: 00 is encoded as 00 FF, the end as 00 01. With a collation, text is replaced by its sort key. Names and
//! patterns contain no zeros; they end with 00.

mod decode;
mod marks;
mod number;
mod split;

pub use decode::{Component, Components};
pub use marks::Marks;
pub use split::component_len;

use bson::RawBsonRef;
use query::{
    collation::Collator,
    value::{Elements, Value},
};

use crate::StorageError;

/// Documents nested deeper are refused, as in mongod.
const DEPTH_MAX: usize = 200;

mod ty {
    pub(super) const MIN_KEY: u8 = 0x0A;
    pub(super) const UNDEFINED: u8 = 0x0F;
    pub(super) const NULL: u8 = 0x14;
    pub(super) const NUMBER: u8 = 0x20;
    pub(super) const STRING: u8 = 0x70;
    pub(super) const OBJECT: u8 = 0x74;
    pub(super) const ARRAY: u8 = 0x78;
    pub(super) const BINARY: u8 = 0x7C;
    pub(super) const OBJECT_ID: u8 = 0x80;
    pub(super) const FALSE: u8 = 0x84;
    pub(super) const TRUE: u8 = 0x85;
    pub(super) const DATE: u8 = 0x88;
    pub(super) const TIMESTAMP: u8 = 0x8C;
    pub(super) const REGEX: u8 = 0x90;
    pub(super) const DB_POINTER: u8 = 0x94;
    pub(super) const CODE: u8 = 0x98;
    pub(super) const CODE_WITH_SCOPE: u8 = 0x9C;
    pub(super) const MAX_KEY: u8 = 0xE0;
}

/// The key of one value, ascending and without a collation; it identifies an `_id`.
pub fn encode(value: Value<'_>) -> Result<Vec<u8>, StorageError> {
    let mut out = Vec::with_capacity(24);
    append(&mut out, value, false, None)?;
    Ok(out)
}

/// Like [`encode`], for a value of the BSON library.
pub fn encode_raw(value: RawBsonRef<'_>) -> Result<Vec<u8>, StorageError> {
    if let Some(value) = Value::from_raw(value) {
        return encode(value);
    }
    // The library does not expose the bytes of a DBPointer or old binary value; inside a document they are
    // accessible.
    let mut holder = bson::RawDocumentBuf::new();
    holder.append(bson::raw::cstr!(""), value);
    let element = Elements::new(&holder).next();
    element.map_or_else(
        || Err(StorageError::bad_document("a value of no type")),
        |e| encode(e.value()),
    )
}

/// Appends one component.
pub fn append(
    out: &mut Vec<u8>,
    value: Value<'_>,
    descending: bool,
    collator: Option<&Collator>,
) -> Result<(), StorageError> {
    let start = out.len();
    append_value(out, value, collator, DEPTH_MAX)?;
    if descending {
        for byte in out.get_mut(start..).unwrap_or_default() {
            *byte = !*byte;
        }
    }
    Ok(())
}

/// Decodes the number at the start of a key, unless it is NaN or was made from a decimal.
pub(crate) fn read_number(key: &[u8]) -> Option<f64> {
    number::read(key)
}

/// The first byte, shared by all values that compare as one type. Objects order their fields by it before their
/// names.
fn type_of(value: Value<'_>) -> u8 {
    match value {
        Value::MinKey => ty::MIN_KEY,
        Value::Undefined => ty::UNDEFINED,
        Value::Null | Value::Missing => ty::NULL,
        Value::Int32(_) | Value::Int64(_) | Value::Double(_) | Value::Decimal(_) => ty::NUMBER,
        Value::String(_) | Value::Symbol(_) => ty::STRING,
        Value::Document(_) => ty::OBJECT,
        Value::Array(_) => ty::ARRAY,
        Value::Binary { .. } => ty::BINARY,
        Value::ObjectId(_) => ty::OBJECT_ID,
        Value::Bool(_) => ty::FALSE,
        Value::Date(_) => ty::DATE,
        Value::Timestamp(_) => ty::TIMESTAMP,
        Value::Regex { .. } => ty::REGEX,
        Value::DbPointer(_) => ty::DB_POINTER,
        Value::Code(_) => ty::CODE,
        Value::CodeWithScope { .. } => ty::CODE_WITH_SCOPE,
        Value::MaxKey => ty::MAX_KEY,
    }
}

fn append_value(
    out: &mut Vec<u8>,
    value: Value<'_>,
    collator: Option<&Collator>,
    depth: usize,
) -> Result<(), StorageError> {
    match value {
        Value::Int32(n) => number::append_int(out, i64::from(n)),
        Value::Int64(n) => number::append_int(out, n),
        Value::Double(n) => number::append_double(out, n),
        Value::Decimal(n) => number::append_decimal(out, n),
        Value::Bool(b) => {
            out.push(if b { ty::TRUE } else { ty::FALSE });
        }
        _ => {
            out.push(type_of(value));
            append_content(out, value, collator, depth)?;
        }
    }
    Ok(())
}

/// Appends the content after the type byte, for all types but numbers and booleans.
fn append_content(
    out: &mut Vec<u8>,
    value: Value<'_>,
    collator: Option<&Collator>,
    depth: usize,
) -> Result<(), StorageError> {
    match value {
        Value::String(text) | Value::Symbol(text) => match collator {
            None => append_text(out, text),
            Some(collator) => {
                let mut key = Vec::with_capacity(text.len() * 2);
                collator.sort_key(text, &mut key);
                append_text(out, &key);
            }
        },
        Value::Code(text) => append_text(out, text),
        Value::Document(bytes) => append_elements(out, bytes, collator, depth, true)?,
        Value::Array(bytes) => append_elements(out, bytes, collator, depth, false)?,
        Value::Binary { subtype, bytes } => {
            append_len(out, bytes.len());
            out.push(subtype);
            out.extend_from_slice(bytes);
        }
        Value::ObjectId(id) => out.extend_from_slice(&id),
        Value::Date(ms) => out.extend_from_slice(&(ms.cast_unsigned() ^ (1 << 63)).to_be_bytes()),
        Value::Timestamp(ts) => out.extend_from_slice(&ts.to_be_bytes()),
        Value::Regex { pattern, options } => {
            append_name(out, pattern);
            append_name(out, options);
        }
        Value::DbPointer(bytes) => {
            append_len(out, bytes.len());
            out.extend_from_slice(bytes);
        }
        Value::CodeWithScope { code, scope } => {
            append_text(out, code);
            append_elements(out, scope, collator, depth, true)?;
        }
        _ => {}
    }
    Ok(())
}

/// Appends fields one after the other: type, name, value; ends with 00, which is below every type byte.
fn append_elements(
    out: &mut Vec<u8>,
    doc: &[u8],
    collator: Option<&Collator>,
    depth: usize,
    names: bool,
) -> Result<(), StorageError> {
    let depth = depth
        .checked_sub(1)
        .ok_or_else(|| StorageError::bad_document(format!("nested deeper than {DEPTH_MAX}")))?;
    let mut elements = Elements::of_bytes(doc);
    while let Some(element) = elements.next_checked().map_err(StorageError::bad_document)? {
        let value = element.value();
        if names {
            out.push(type_of(value));
            append_name(out, element.key);
        }
        append_value(out, value, collator, depth)?;
    }
    out.push(0);
    Ok(())
}

fn append_text(out: &mut Vec<u8>, text: &[u8]) {
    let mut rest = text;
    while let Some(zero) = rest.iter().position(|&b| b == 0) {
        let (before, after) = rest.split_at(zero);
        out.extend_from_slice(before);
        out.extend_from_slice(&[0, 0xFF]);
        rest = after.get(1..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&[0, 1]);
}

fn append_name(out: &mut Vec<u8>, name: &[u8]) {
    out.extend_from_slice(name);
    out.push(0);
}

/// Appends a length: shorter ones sort first, and common ones take one byte.
fn append_len(out: &mut Vec<u8>, len: usize) {
    match u8::try_from(len) {
        Ok(len) if len < u8::MAX => out.push(len),
        _ => {
            out.push(u8::MAX);
            out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
