//! MongoDB's order over all values.
//!
//! The type rank decides first, then the value: numbers by exact mathematical value whatever their type, text by
//! bytes (or by a collation), documents element by element (type, then name, then value), arrays element by element,
//! binary data by length, subtype, bytes.

use std::cmp::Ordering;

use bson::{RawBsonRef, RawDocument};

use super::{
    Elements, Value, elements,
    number::{Number, compare_numbers},
};
use crate::collation::Collator;

/// Orders two values as mongod's simple comparison does.
pub fn compare(a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> Ordering {
    elements::with_raw(a, |a| elements::with_raw(b, |b| compare_values(a, b, None)))
}

/// Orders two documents as mongod's simple comparison does.
pub fn compare_docs(a: &RawDocument, b: &RawDocument) -> Ordering {
    compare_documents(a.as_bytes(), b.as_bytes(), None)
}

/// Compares two values; text by `collator` if given.
pub fn compare_values(a: Value<'_>, b: Value<'_>, collator: Option<&Collator>) -> Ordering {
    if let (Some(a), Some(b)) = (a.as_number(), b.as_number()) {
        return compare_numbers(a, b);
    }
    a.type_rank().cmp(&b.type_rank()).then_with(|| compare_same_rank(a, b, collator))
}

fn compare_same_rank(a: Value<'_>, b: Value<'_>, collator: Option<&Collator>) -> Ordering {
    match (a, b) {
        (Value::String(a) | Value::Symbol(a), Value::String(b) | Value::Symbol(b)) => {
            collator.map_or_else(|| a.cmp(b), |c| c.compare(a, b))
        }
        (Value::Document(a), Value::Document(b)) => compare_documents(a, b, collator),
        (Value::Array(a), Value::Array(b)) => compare_arrays(a, b, collator),
        (Value::Binary { subtype: sa, bytes: a }, Value::Binary { subtype: sb, bytes: b }) => {
            a.len().cmp(&b.len()).then(sa.cmp(&sb)).then_with(|| a.cmp(b))
        }
        (Value::ObjectId(a), Value::ObjectId(b)) => a.cmp(&b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(&b),
        (Value::Date(a), Value::Date(b)) => a.cmp(&b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(&b),
        (Value::Regex { pattern: pa, options: oa }, Value::Regex { pattern: pb, options: ob }) => {
            pa.cmp(pb).then_with(|| oa.cmp(ob))
        }
        (Value::DbPointer(a), Value::DbPointer(b)) => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
        (Value::Code(a), Value::Code(b)) => a.cmp(b),
        (
            Value::CodeWithScope { code: ca, scope: sa },
            Value::CodeWithScope { code: cb, scope: sb },
        ) => ca.cmp(cb).then_with(|| compare_documents(sa, sb, collator)),
        // Types with a single value: MinKey, MaxKey, null, missing and undefined.
        _ => Ordering::Equal,
    }
}

fn compare_documents(a: &[u8], b: &[u8], collator: Option<&Collator>) -> Ordering {
    compare_elements(a, b, collator, true)
}

fn compare_arrays(a: &[u8], b: &[u8], collator: Option<&Collator>) -> Ordering {
    compare_elements(a, b, collator, false)
}

fn compare_elements(a: &[u8], b: &[u8], collator: Option<&Collator>, names: bool) -> Ordering {
    let (mut left, mut right) = (Elements::of_bytes(a), Elements::of_bytes(b));
    loop {
        let (a, b) = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => (a, b),
        };
        let (va, vb) = (a.value(), b.value());
        let order = va
            .type_rank()
            .cmp(&vb.type_rank())
            .then_with(|| if names { a.key.cmp(b.key) } else { Ordering::Equal })
            .then_with(|| compare_values(va, vb, collator));
        if order != Ordering::Equal {
            return order;
        }
    }
}

impl Value<'_> {
    pub(crate) fn as_number(self) -> Option<Number> {
        Some(match self {
            Self::Int32(n) => Number::Int(i64::from(n)),
            Self::Int64(n) => Number::Int(n),
            Self::Double(n) => Number::Double(n),
            Self::Decimal(n) => Number::Decimal(n),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
