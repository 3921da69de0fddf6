//! Iterates over the elements of a document's bytes.

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, raw::cstr, spec::BinarySubtype};

use super::{Decimal, Value};

/// One field of a document: key, value, and all of its bytes for copying.
#[derive(Clone, Copy, Debug)]
pub struct Element<'a> {
    /// The type byte.
    pub type_byte: u8,
    /// The key without its terminator.
    pub key: &'a [u8],
    /// The value's bytes.
    pub value_bytes: &'a [u8],
    /// Type, key and value as stored in the document.
    pub bytes: &'a [u8],
}

impl<'a> Element<'a> {
    /// The decoded value. The iterator has checked its size, so decoding cannot fail; it never returns an element of
    /// an unknown type.
    #[inline]
    pub fn value(&self) -> Value<'a> {
        // The most common types are decoded inline and returned in registers; a call would return them in memory.
        match (self.type_byte, self.value_bytes) {
            (0x01, bytes) if let Some(bytes) = bytes.first_chunk() => {
                Value::Double(f64::from_le_bytes(*bytes))
            }
            (0x02, [_, _, _, _, text @ .., 0]) => Value::String(text),
            (0x10, bytes) if let Some(bytes) = bytes.first_chunk() => {
                Value::Int32(i32::from_le_bytes(*bytes))
            }
            (0x12, bytes) if let Some(bytes) = bytes.first_chunk() => {
                Value::Int64(i64::from_le_bytes(*bytes))
            }
            (type_byte, bytes) => decode(type_byte, bytes).unwrap_or(Value::Missing),
        }
    }
}

/// The bytes are not valid BSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the document's bytes are not valid BSON near offset {offset}")]
pub struct Malformed {
    /// Where the iteration stopped.
    pub offset: usize,
}

/// Iterates over the elements of a document or array.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    doc: &'a [u8],
    at: usize,
}

impl<'a> Elements<'a> {
    /// Offset of the first element, for [`Elements::resume`].
    pub const START: usize = 4;

    /// The elements of `doc`.
    pub fn new(doc: &'a RawDocument) -> Self {
        Self::of_bytes(doc.as_bytes())
    }

    /// The elements of a document given as bytes, including its length prefix.
    pub fn of_bytes(doc: &'a [u8]) -> Self {
        Self { doc, at: Self::START }
    }

    /// Continues at an offset from [`Elements::at`].
    pub fn resume(doc: &'a [u8], at: usize) -> Self {
        Self { doc, at }
    }

    /// The current offset.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The next element, `None` at the terminator, an error if the bytes are malformed.
    pub fn next_checked(&mut self) -> Result<Option<Element<'a>>, Malformed> {
        let malformed = Malformed { offset: self.at };
        let rest = self.doc.get(self.at..).ok_or(malformed)?;
        let (&type_byte, after_type) = rest.split_first().ok_or(malformed)?;
        if type_byte == 0 {
            return if after_type.is_empty() { Ok(None) } else { Err(malformed) };
        }
        let key_len = after_type.iter().position(|&b| b == 0).ok_or(malformed)?;
        let (key, after_key) = after_type.split_at_checked(key_len).ok_or(malformed)?;
        let value_start = after_key.get(1..).ok_or(malformed)?;
        let size = value_size(type_byte, value_start).ok_or(malformed)?;
        let value_bytes = value_start.get(..size).ok_or(malformed)?;
        let total = 2 + key_len + size;
        let bytes = rest.get(..total).ok_or(malformed)?;
        self.at += total;
        Ok(Some(Element { type_byte, key, value_bytes, bytes }))
    }

    /// The first element with this key. Elements before it are skipped without decoding.
    pub fn find(mut self, key: &[u8]) -> Option<Element<'a>> {
        self.find_chosen(|named| is_named(named, key).then_some(())).map(|(_, element)| element)
    }

    /// Next element accepted by a predicate on its bytes, starting at the field name. See [`is_named`].
    #[inline]
    pub(crate) fn find_chosen<T>(
        &mut self,
        mut choose: impl FnMut(&[u8]) -> Option<T>,
    ) -> Option<(T, Element<'a>)> {
        loop {
            let rest = self.doc.get(self.at..)?;
            let (&type_byte, named) = rest.split_first()?;
            if type_byte == 0 {
                return None;
            }
            if let Some(chosen) = choose(named) {
                return self.next().map(|element| (chosen, element));
            }
            let key_len = named.iter().position(|&b| b == 0)?;
            self.at += 2 + key_len + step_size(type_byte, named.get(key_len + 1..)?)?;
        }
    }
}

/// True if bytes begin with a name and its terminator. Most names differ in their first byte, which is compared
/// without a call.
#[inline]
pub(crate) fn is_named(bytes: &[u8], name: &[u8]) -> bool {
    bytes.first() == name.first().or(Some(&0))
        && bytes.strip_prefix(name).is_some_and(|after| after.first() == Some(&0))
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        self.next_checked().ok().flatten()
    }
}

/// Checks the whole document, including nested ones. `Err` says where it is malformed.
pub fn validate(doc: &[u8]) -> Result<(), Malformed> {
    let claimed = doc.first_chunk().map(|b| i32::from_le_bytes(*b));
    if claimed.and_then(|n| usize::try_from(n).ok()) != Some(doc.len()) || doc.len() < 5 {
        return Err(Malformed { offset: 0 });
    }
    // The depth is bounded by the length, since each level takes at least seven bytes, and the stack is explicit.
    let mut stack = vec![Elements::of_bytes(doc)];
    while let Some(top) = stack.last_mut() {
        match top.next_checked()? {
            None => {
                stack.pop();
            }
            Some(element) => match element.value() {
                Value::Document(bytes) | Value::Array(bytes) => {
                    stack.push(Elements::of_bytes(bytes));
                }
                Value::CodeWithScope { scope, .. } => stack.push(Elements::of_bytes(scope)),
                _ => {}
            },
        }
    }
    Ok(())
}

/// Number of bytes that the value claims.
fn step_size(type_byte: u8, bytes: &[u8]) -> Option<usize> {
    let prefix = || bytes.first_chunk().and_then(|b| usize::try_from(i32::from_le_bytes(*b)).ok());
    match type_byte {
        0x02 | 0x0d | 0x0e => prefix()?.checked_add(4),
        0x03 | 0x04 => prefix().filter(|&size| size >= 5),
        0x05 => prefix()?.checked_add(5),
        _ => value_size(type_byte, bytes),
    }
}

/// Number of bytes of the value, checked against the available bytes, including terminators.
pub(crate) fn value_size(type_byte: u8, bytes: &[u8]) -> Option<usize> {
    let prefix = || bytes.first_chunk().and_then(|b| usize::try_from(i32::from_le_bytes(*b)).ok());
    let ends_with_zero =
        |size: usize| (bytes.get(size.checked_sub(1)?) == Some(&0)).then_some(size);
    match type_byte {
        0x01 | 0x09 | 0x11 | 0x12 => Some(8),
        0x02 | 0x0d | 0x0e => {
            let size = prefix().filter(|&n| n >= 1)?.checked_add(4)?;
            ends_with_zero(size)
        }
        0x03 | 0x04 => ends_with_zero(prefix().filter(|&n| n >= 5)?),
        0x05 => prefix()?.checked_add(5),
        0x06 | 0x0a | 0x7f | 0xff => Some(0),
        0x07 => Some(12),
        0x08 => (*bytes.first()? <= 1).then_some(1),
        0x0b => {
            let pattern = bytes.iter().position(|&b| b == 0)? + 1;
            let options = bytes.get(pattern..)?.iter().position(|&b| b == 0)? + 1;
            pattern.checked_add(options)
        }
        0x0c => {
            let name = prefix().filter(|&n| n >= 1)?.checked_add(4)?;
            ends_with_zero(name)?.checked_add(12)
        }
        0x0f => {
            let size = prefix()?;
            code_with_scope(bytes.get(..size)?).map(|_| size)
        }
        0x10 => Some(4),
        0x13 => Some(16),
        _ => None,
    }
}

fn code_with_scope(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let after_len = bytes.get(4..)?;
    let code_len = usize::try_from(i32::from_le_bytes(*after_len.first_chunk()?)).ok()?;
    let (code, scope) = after_len.get(4..)?.split_at_checked(code_len)?;
    let code = code.strip_suffix(&[0])?;
    let scope_len = usize::try_from(i32::from_le_bytes(*scope.first_chunk()?)).ok()?;
    (scope_len == scope.len() && scope_len >= 5 && scope.last() == Some(&0))
        .then_some((code, scope))
}

pub(super) fn decode(type_byte: u8, bytes: &[u8]) -> Option<Value<'_>> {
    let text = || bytes.get(4..).and_then(|b| b.strip_suffix(&[0]));
    Some(match type_byte {
        0x01 => Value::Double(f64::from_le_bytes(*bytes.first_chunk()?)),
        0x02 => Value::String(text()?),
        0x03 => Value::Document(bytes),
        0x04 => Value::Array(bytes),
        0x05 => Value::Binary { subtype: *bytes.get(4)?, bytes: bytes.get(5..)? },
        0x06 => Value::Undefined,
        0x07 => Value::ObjectId(*bytes.first_chunk()?),
        0x08 => Value::Bool(*bytes.first()? != 0),
        0x09 => Value::Date(i64::from_le_bytes(*bytes.first_chunk()?)),
        0x0a => Value::Null,
        0x0b => {
            let mut parts = bytes.split(|&b| b == 0);
            Value::Regex { pattern: parts.next()?, options: parts.next()? }
        }
        0x0c => Value::DbPointer(bytes),
        0x0d => Value::Code(text()?),
        0x0e => Value::Symbol(text()?),
        0x0f => {
            let (code, scope) = code_with_scope(bytes)?;
            Value::CodeWithScope { code, scope }
        }
        0x10 => Value::Int32(i32::from_le_bytes(*bytes.first_chunk()?)),
        0x11 => Value::Timestamp(u64::from_le_bytes(*bytes.first_chunk()?)),
        0x12 => Value::Int64(i64::from_le_bytes(*bytes.first_chunk()?)),
        0x13 => Value::Decimal(Decimal::from_bytes(*bytes.first_chunk()?)),
        0x7f => Value::MaxKey,
        0xff => Value::MinKey,
        _ => return None,
    })
}

fn len_i32(len: usize) -> i32 {
    // A document never exceeds 16 MiB and a few bytes; saturating leaves the detection of errors to the iterator.
    i32::try_from(len).unwrap_or(i32::MAX)
}

pub(super) fn append_value(value: Value<'_>, out: &mut Vec<u8>) {
    let text = |out: &mut Vec<u8>, bytes: &[u8]| {
        out.extend_from_slice(&len_i32(bytes.len() + 1).to_le_bytes());
        out.extend_from_slice(bytes);
        out.push(0);
    };
    match value {
        Value::Missing | Value::MinKey | Value::Undefined | Value::Null | Value::MaxKey => {}
        Value::Int32(n) => out.extend_from_slice(&n.to_le_bytes()),
        Value::Int64(n) | Value::Date(n) => out.extend_from_slice(&n.to_le_bytes()),
        Value::Double(n) => out.extend_from_slice(&n.to_le_bytes()),
        Value::Decimal(n) => out.extend_from_slice(&n.bytes()),
        Value::String(bytes) | Value::Symbol(bytes) | Value::Code(bytes) => text(out, bytes),
        Value::Document(bytes) | Value::Array(bytes) | Value::DbPointer(bytes) => {
            out.extend_from_slice(bytes);
        }
        Value::Binary { subtype, bytes } => {
            out.extend_from_slice(&len_i32(bytes.len()).to_le_bytes());
            out.push(subtype);
            out.extend_from_slice(bytes);
        }
        Value::ObjectId(bytes) => out.extend_from_slice(&bytes),
        Value::Bool(b) => out.push(u8::from(b)),
        Value::Timestamp(n) => out.extend_from_slice(&n.to_le_bytes()),
        Value::Regex { pattern, options } => {
            out.extend_from_slice(pattern);
            out.push(0);
            out.extend_from_slice(options);
            out.push(0);
        }
        Value::CodeWithScope { code, scope } => {
            out.extend_from_slice(&len_i32(4 + 4 + code.len() + 1 + scope.len()).to_le_bytes());
            text(out, code);
            out.extend_from_slice(scope);
        }
    }
}

/// Converts a driver's value reference. `None` for the two kinds whose stored bytes it does not expose: a DBPointer,
/// and binary data of subtype 2.
pub(super) fn from_raw(value: RawBsonRef<'_>) -> Option<Value<'_>> {
    Some(match value {
        RawBsonRef::Double(n) => Value::Double(n),
        RawBsonRef::String(s) => Value::String(s.as_bytes()),
        RawBsonRef::Array(a) => Value::Array(a.as_bytes()),
        RawBsonRef::Document(d) => Value::Document(d.as_bytes()),
        RawBsonRef::Boolean(b) => Value::Bool(b),
        RawBsonRef::Null => Value::Null,
        RawBsonRef::RegularExpression(re) => Value::Regex {
            pattern: re.pattern.as_str().as_bytes(),
            options: re.options.as_str().as_bytes(),
        },
        RawBsonRef::JavaScriptCode(s) => Value::Code(s.as_bytes()),
        RawBsonRef::JavaScriptCodeWithScope(c) => {
            Value::CodeWithScope { code: c.code.as_bytes(), scope: c.scope.as_bytes() }
        }
        RawBsonRef::Int32(n) => Value::Int32(n),
        RawBsonRef::Int64(n) => Value::Int64(n),
        RawBsonRef::Timestamp(ts) => {
            Value::Timestamp((u64::from(ts.time) << 32) | u64::from(ts.increment))
        }
        RawBsonRef::Binary(b) if b.subtype != BinarySubtype::BinaryOld => {
            Value::Binary { subtype: b.subtype.into(), bytes: b.bytes }
        }
        RawBsonRef::Binary(_) | RawBsonRef::DbPointer(_) => return None,
        RawBsonRef::ObjectId(id) => Value::ObjectId(id.bytes()),
        RawBsonRef::DateTime(d) => Value::Date(d.timestamp_millis()),
        RawBsonRef::Symbol(s) => Value::Symbol(s.as_bytes()),
        RawBsonRef::Decimal128(d) => Value::Decimal(Decimal::from_bytes(d.bytes())),
        RawBsonRef::Undefined => Value::Undefined,
        RawBsonRef::MaxKey => Value::MaxKey,
        RawBsonRef::MinKey => Value::MinKey,
    })
}

/// Calls `f` with the value of a driver's reference of any kind.
pub(super) fn with_raw<R>(value: RawBsonRef<'_>, f: impl FnOnce(Value<'_>) -> R) -> R {
    if let Some(value) = from_raw(value) {
        return f(value);
    }
    let mut doc = RawDocumentBuf::new();
    doc.append(cstr!(""), value);
    f(Elements::new(&doc).next().map_or(Value::Missing, |element| element.value()))
}
