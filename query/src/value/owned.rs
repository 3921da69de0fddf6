//! A value that owns its bytes: operands of parsed queries, group keys, accumulator states.

use super::{Decimal, Elements, Value};

/// An owned value. Scalars are kept decoded; the rest is one allocation.
#[derive(Debug, Clone)]
pub struct OwnedValue {
    /// A document with the value as its only element, under the empty key.
    doc: Box<[u8]>,
}

impl OwnedValue {
    /// The value, borrowed.
    pub fn get(&self) -> Value<'_> {
        Elements::of_bytes(&self.doc).next().map_or(Value::Missing, |e| e.value())
    }

    /// How much memory it takes, for limits.
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.doc.len()
    }
}

impl From<Value<'_>> for OwnedValue {
    fn from(value: Value<'_>) -> Self {
        if matches!(value, Value::Missing) {
            return Self { doc: Box::new([5, 0, 0, 0, 0]) };
        }
        let mut doc = vec![0, 0, 0, 0, value.type_byte(), 0];
        value.append_to(&mut doc);
        doc.push(0);
        Self { doc: doc.into() }
    }
}

impl From<Decimal> for OwnedValue {
    fn from(value: Decimal) -> Self {
        Value::Decimal(value).into()
    }
}
