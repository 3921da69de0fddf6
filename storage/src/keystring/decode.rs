//! Decodes components of a key.

use query::value::{OwnedValue, Value};

use super::{
    component_len,
    marks::{Mark, Marks},
    number, ty,
};

/// Iterates over the components of a key.
pub struct Components<'k> {
    rest: &'k [u8],
    marks: Marks,
    place: usize,
}

/// A decoded component, as far as the key determines it.
#[derive(Debug)]
pub enum Component {
    /// The value.
    Value(OwnedValue),
    /// The key does not determine the value; read the document.
    Unknown,
}

impl<'k> Components<'k> {
    /// For a key without a collation.
    pub fn new(key: &'k [u8], marks: Marks) -> Self {
        Self { rest: key, marks, place: 0 }
    }

    /// The next component; `None` at the end or if the bytes are invalid.
    pub fn next(&mut self, descending: bool) -> Option<Component> {
        let len = component_len(self.rest, descending)?;
        let (own, rest) = self.rest.split_at_checked(len)?;
        let mark = self.marks.at(self.place);
        (self.rest, self.place) = (rest, self.place + 1);
        if !descending {
            return value(own, mark);
        }
        let turned: Vec<u8> = own.iter().map(|byte| !byte).collect();
        value(&turned, mark)
    }
}

/// Decodes an ascending component. `None` if the bytes are invalid.
fn value(bytes: &[u8], mark: Mark) -> Option<Component> {
    let (lead, rest) = bytes.split_first()?;
    let found = match *lead {
        ty::MIN_KEY => Value::MinKey,
        ty::UNDEFINED => Value::Undefined,
        ty::NULL => Value::Null,
        ty::FALSE => Value::Bool(false),
        ty::TRUE => Value::Bool(true),
        ty::MAX_KEY => Value::MaxKey,
        ty::OBJECT_ID => Value::ObjectId(*rest.first_chunk()?),
        ty::DATE => {
            Value::Date((u64::from_be_bytes(*rest.first_chunk()?) ^ (1 << 63)).cast_signed())
        }
        ty::TIMESTAMP => Value::Timestamp(u64::from_be_bytes(*rest.first_chunk()?)),
        ty::STRING if mark == Mark::IntOrString => return text(rest, |text| Value::String(text)),
        ty::CODE => return text(rest, |text| Value::Code(text)),
        ty::BINARY => {
            let (subtype, bytes) = sized(rest)?.split_first()?;
            Value::Binary { subtype: *subtype, bytes }
        }
        ty::DB_POINTER => Value::DbPointer(sized(rest)?),
        ty::REGEX => {
            let mut names = rest.split(|byte| *byte == 0);
            Value::Regex { pattern: names.next()?, options: names.next()? }
        }
        lead if (ty::NUMBER..ty::STRING).contains(&lead) => {
            return match mark {
                Mark::Unknown => Some(Component::Unknown),
                Mark::IntOrString => {
                    let n = i32::try_from(number::read_int(bytes)?).ok()?;
                    Some(Component::Value(Value::Int32(n).into()))
                }
                Mark::Long => Some(Component::Value(Value::Int64(number::read_int(bytes)?).into())),
                Mark::Double => Some(Component::Value(Value::Double(number::read(bytes)?).into())),
            };
        }
        ty::STRING | ty::OBJECT | ty::ARRAY | ty::CODE_WITH_SCOPE => {
            return Some(Component::Unknown);
        }
        _ => return None,
    };
    Some(Component::Value(found.into()))
}

/// The bytes after a length.
fn sized(rest: &[u8]) -> Option<&[u8]> {
    match rest.split_first()? {
        (&u8::MAX, rest) => rest.get(4..),
        (_, rest) => Some(rest),
    }
}

/// Decodes text: 00 FF becomes 00, and 00 01 ends it.
fn text(rest: &[u8], of: fn(&[u8]) -> Value<'_>) -> Option<Component> {
    let rest = rest.strip_suffix(&[0, 1])?;
    if !rest.contains(&0) {
        return Some(Component::Value(of(rest).into()));
    }
    let mut plain = Vec::with_capacity(rest.len());
    let mut bytes = rest.iter();
    while let Some(byte) = bytes.next() {
        plain.push(*byte);
        if *byte == 0 {
            bytes.next().filter(|after| **after == u8::MAX)?;
        }
    }
    Some(Component::Value(of(&plain).into()))
}
