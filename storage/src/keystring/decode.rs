//! From a component of a key back to its value.

use query::value::{OwnedValue, Value};

use super::{
    component_len,
    marks::{Mark, Marks},
    number, ty,
};

/// The components of a key, one after the other.
pub struct Components<'k> {
    rest: &'k [u8],
    marks: Marks,
    place: usize,
}

/// A component, as far as its key tells it.
#[derive(Debug)]
pub enum Component {
    /// Its value.
    Value(OwnedValue),
    /// The document tells.
    Unknown,
}

impl<'k> Components<'k> {
    /// Of a key without a collation.
    pub fn new(key: &'k [u8], marks: Marks) -> Self {
        Self { rest: key, marks, place: 0 }
    }

    /// The next one; `None` at the end, or if the bytes are none.
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

/// The value of an ascending component. `None` if the bytes are none.
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

/// What stands behind a length.
fn sized(rest: &[u8]) -> Option<&[u8]> {
    match rest.split_first()? {
        (&u8::MAX, rest) => rest.get(4..),
        (_, rest) => Some(rest),
    }
}

/// Text as it was before its zeros were followed by FF; the last zero ends it.
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
