//! A value that owns its bytes: operands of parsed queries, sort and group keys, accumulator states.

use super::{Decimal, Value, elements::decode};

/// An owned value. Up to sixteen bytes are stored inline; more take one allocation.
#[derive(Debug, Clone)]
pub struct OwnedValue {
    /// 0 for a missing value.
    type_byte: u8,
    held: Held,
}

#[derive(Debug, Clone)]
enum Held {
    Inline([u8; INLINE]),
    Boxed(Box<[u8]>),
}

/// Length of the longest scalar, a decimal.
const INLINE: usize = 16;

impl OwnedValue {
    /// The value, borrowed.
    pub fn get(&self) -> Value<'_> {
        let bytes = match &self.held {
            Held::Inline(bytes) => bytes.as_slice(),
            Held::Boxed(bytes) => bytes,
        };
        decode(self.type_byte, bytes).unwrap_or(Value::Missing)
    }

    /// Memory used, for limits.
    pub fn size(&self) -> usize {
        let boxed = match &self.held {
            Held::Inline(_) => 0,
            Held::Boxed(bytes) => bytes.len(),
        };
        size_of::<Self>() + boxed
    }
}

impl From<Value<'_>> for OwnedValue {
    fn from(value: Value<'_>) -> Self {
        let type_byte = value.type_byte();
        let mut inline = [0; INLINE];
        let mut put = |bytes: &[u8]| {
            inline.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
        };
        match value {
            Value::Missing | Value::MinKey | Value::Undefined | Value::Null | Value::MaxKey => {}
            Value::Int32(n) => put(&n.to_le_bytes()),
            Value::Int64(n) | Value::Date(n) => put(&n.to_le_bytes()),
            Value::Timestamp(n) => put(&n.to_le_bytes()),
            Value::Double(n) => put(&n.to_le_bytes()),
            Value::Decimal(n) => put(&n.bytes()),
            Value::ObjectId(id) => put(&id),
            Value::Bool(b) => put(&[u8::from(b)]),
            _ => {
                let mut bytes = Vec::new();
                value.append_to(&mut bytes);
                return Self { type_byte, held: Held::Boxed(bytes.into()) };
            }
        }
        Self { type_byte, held: Held::Inline(inline) }
    }
}

impl From<Decimal> for OwnedValue {
    fn from(value: Decimal) -> Self {
        Value::Decimal(value).into()
    }
}
