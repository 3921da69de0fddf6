//! Dotted paths, with mongod's fan-out over arrays.
//!
//! ```text
//!   path a.b on { a: [ {b: 1}, 7, {c: 2}, {b: [3, 4]} ] }
//!     yields  1,  (nothing for 7),  missing,  3, 4, [3, 4]
//! ```
//! P1 An array element that is a document without the field yields a missing value; an element that is not a document
//!    yields nothing; an empty array yields nothing.
//! P2 A numeric part means a field of that name in documents and an index in arrays; in an array of documents it
//!    means both.
//! P3 An array at the end of the path yields its elements, then itself, or only itself with [`LeafArrays::Closed`].

use super::{Elements, Value};

/// A path, split into parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    dotted: Box<[u8]>,
    parts: Box<[Box<[u8]>]>,
}

/// How an array at the end of the path is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeafArrays {
    /// Its elements first, then the array.
    Open,
    /// The array only.
    Closed,
}

impl Path {
    /// Splits a dotted path.
    pub fn new(dotted: &[u8]) -> Self {
        let parts = dotted.split(|&b| b == b'.').map(Box::from).collect();
        Self { dotted: dotted.into(), parts }
    }

    /// The path as written.
    pub fn dotted(&self) -> &[u8] {
        &self.dotted
    }

    /// The parts between the dots; at least one.
    pub fn parts(&self) -> &[Box<[u8]>] {
        &self.parts
    }

    /// Calls `f` with the values at the path until it returns true; returns whether it did.
    pub fn any<'a>(
        &self,
        doc: &'a [u8],
        leaf: LeafArrays,
        mut f: impl FnMut(Value<'a>) -> bool,
    ) -> bool {
        visit_document(doc, &self.parts, leaf, &mut f)
    }
}

fn visit_document<'a, F: FnMut(Value<'a>) -> bool>(
    doc: &'a [u8],
    parts: &[Box<[u8]>],
    leaf: LeafArrays,
    f: &mut F,
) -> bool {
    let Some((first, rest)) = parts.split_first() else { return false };
    let value = Elements::of_bytes(doc).find(first).map_or(Value::Missing, |e| e.value());
    if rest.is_empty() {
        return visit_leaf(value, leaf, f);
    }
    match value {
        Value::Document(inner) => visit_document(inner, rest, leaf, f),
        // After an array mongod continues with the rest of the path's text, which is empty if the path ends in a dot.
        Value::Array(_) if matches!(rest, [last] if last.is_empty()) => visit_leaf(value, leaf, f),
        Value::Array(inner) => visit_array(inner, rest, leaf, f),
        _ => f(Value::Missing),
    }
}

fn visit_leaf<'a, F: FnMut(Value<'a>) -> bool>(
    value: Value<'a>,
    leaf: LeafArrays,
    f: &mut F,
) -> bool {
    if let (Value::Array(_), LeafArrays::Open) = (value, leaf) {
        for element in value.elements() {
            if f(element.value()) {
                return true;
            }
        }
    }
    f(value)
}

/// Visits the elements of an array before the end of the path.
fn visit_array<'a, F: FnMut(Value<'a>) -> bool>(
    array: &'a [u8],
    parts: &[Box<[u8]>],
    leaf: LeafArrays,
    f: &mut F,
) -> bool {
    let Some((first, rest)) = parts.split_first() else { return false };
    for element in Elements::of_bytes(array) {
        let value = element.value();
        if let Value::Document(inner) = value
            && visit_document(inner, parts, leaf, f)
        {
            return true;
        }
        if element.key == &**first && visit_indexed(value, rest, leaf, f) {
            return true;
        }
    }
    false
}

/// Visits the element that a numeric part selects.
fn visit_indexed<'a, F: FnMut(Value<'a>) -> bool>(
    value: Value<'a>,
    rest: &[Box<[u8]>],
    leaf: LeafArrays,
    f: &mut F,
) -> bool {
    if rest.is_empty() {
        return f(value);
    }
    match value {
        Value::Document(inner) => visit_document(inner, rest, leaf, f),
        Value::Array(inner) => visit_array(inner, rest, leaf, f),
        _ => false,
    }
}
