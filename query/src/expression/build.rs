//! Builds documents and arrays.

use super::Env;
use crate::value::Value;

/// Builds a document.
#[derive(Debug)]
pub(crate) struct DocBuilder {
    out: Vec<u8>,
}

impl DocBuilder {
    pub(crate) fn new() -> Self {
        Self { out: vec![0; 4] }
    }

    /// Appends a field; a missing value is skipped.
    pub(crate) fn push(&mut self, key: &[u8], value: Value<'_>) {
        if matches!(value, Value::Missing) {
            return;
        }
        self.out.push(value.type_byte());
        self.out.extend_from_slice(key);
        self.out.push(0);
        value.append_to(&mut self.out);
    }

    /// Appends an element of another document unchanged.
    pub(crate) fn push_raw(&mut self, element: &[u8]) {
        self.out.extend_from_slice(element);
    }

    /// Appends a field given by type and value bytes.
    pub(crate) fn push_bytes(&mut self, key: &[u8], type_byte: u8, value: &[u8]) {
        self.out.push(type_byte);
        self.out.extend_from_slice(key);
        self.out.push(0);
        self.out.extend_from_slice(value);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.out.push(0);
        let len = i32::try_from(self.out.len()).unwrap_or(i32::MAX);
        if let Some(place) = self.out.first_chunk_mut() {
            *place = len.to_le_bytes();
        }
        self.out
    }
}

/// Builds an array in the arena. A missing value becomes null.
pub(crate) fn array<'a>(env: &Env<'a>, values: impl IntoIterator<Item = Value<'a>>) -> Value<'a> {
    Value::Array(env.keep(&array_bytes(values)))
}

/// The bytes of an array of these values.
pub(crate) fn array_bytes<'a>(values: impl IntoIterator<Item = Value<'a>>) -> Vec<u8> {
    let mut doc = DocBuilder::new();
    let mut key = String::new();
    for (at, value) in values.into_iter().enumerate() {
        use std::fmt::Write;
        key.clear();
        let written = write!(key, "{at}");
        debug_assert!(written.is_ok(), "writing to a String does not fail");
        let value = if matches!(value, Value::Missing) { Value::Null } else { value };
        doc.push(key.as_bytes(), value);
    }
    doc.finish()
}
