//! Parses stage specifications. A stage declares its fields; names and types are checked here, in the order in which
//! the fields are given, with mongod's codes and texts.

use crate::{
    error::QueryError,
    value::{Elements, Shown, Value},
};

/// An error code and text. In texts `{stage}` stands for the stage, `{field}` for the field's name, `{type}` for the
/// type of the given value and `{shown}` for the value.
type Said = (i32, &'static str);

/// The fields of a specification.
#[derive(Debug)]
pub(super) struct Spec {
    /// The stage, or the path of a document within its specification, such as `$merge.into`.
    name: &'static str,
    fields: &'static [Field],
    not_object: Said,
    unknown: Said,
    /// Whether a duplicate field is refused.
    once: bool,
}

/// One field.
#[derive(Debug)]
pub(super) struct Field {
    name: &'static str,
    takes: Takes,
    /// The error for a value of another type, if it differs from that of mongod's generated parsers.
    otherwise: Option<Said>,
    /// Whether null counts as absent, as in mongod's generated parsers.
    null_is_absent: bool,
}

/// The types that a field accepts.
#[derive(Debug, Clone, Copy)]
pub(super) enum Takes {
    Any,
    Array,
    Bool,
    Number,
    Object,
    ObjectOrString,
    String,
    Strings,
    /// An object with these fields.
    Spec(&'static Spec),
}

const UNKNOWN: Said = (40_415, "BSON field '{stage}.{field}' is an unknown field.");
const NOT_OBJECT: Said =
    (14, "BSON field '{stage}' is the wrong type '{type}', expected type 'object'");

impl Spec {
    /// A specification with the errors of mongod's generated parsers.
    pub(super) const fn new(name: &'static str, fields: &'static [Field]) -> Self {
        Self { name, fields, not_object: NOT_OBJECT, unknown: UNKNOWN, once: false }
    }

    pub(super) const fn not_object(mut self, code: i32, text: &'static str) -> Self {
        self.not_object = (code, text);
        self
    }

    pub(super) const fn unknown(mut self, code: i32, text: &'static str) -> Self {
        self.unknown = (code, text);
        self
    }

    pub(super) const fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// The fields by their positions in the declaration; the last one of duplicates.
    pub(super) fn read<'v, const N: usize>(
        &self,
        spec: Value<'v>,
    ) -> Result<[Option<Value<'v>>; N], QueryError> {
        let mut found = [None; N];
        self.each(spec, |name, value| {
            let place = self.fields.iter().position(|field| field.name == name);
            if let Some(place) = place.and_then(|place| found.get_mut(place)) {
                *place = Some(value);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Only checks the fields.
    pub(super) fn check(&self, spec: Value<'_>) -> Result<(), QueryError> {
        self.each(spec, |_, _| Ok(()))
    }

    /// Passes the fields in order, each after it was checked.
    pub(super) fn each<'v>(
        &self,
        spec: Value<'v>,
        mut take: impl FnMut(&'static str, Value<'v>) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let Value::Document(doc) = spec else {
            return Err(self.said(self.not_object, "", spec));
        };
        if self.once {
            self.check_once(doc)?;
        }
        for given in Elements::of_bytes(doc) {
            let value = given.value();
            let known = self.fields.iter().find(|field| field.name.as_bytes() == given.key);
            let Some(field) = known else {
                return Err(self.said(self.unknown, &String::from_utf8_lossy(given.key), value));
            };
            if field.null_is_absent && value.is_nullish() {
                continue;
            }
            self.check_type(field, value)?;
            take(field.name, value)?;
        }
        Ok(())
    }

    fn check_once(&self, doc: &[u8]) -> Result<(), QueryError> {
        let mut fields = Elements::of_bytes(doc);
        while let Some(field) = fields.next() {
            if fields.clone().find(field.key).is_some() {
                let name = String::from_utf8_lossy(field.key);
                let text = format!("BSON field '{}.{name}' is a duplicate field", self.name);
                return Err(QueryError::location(40_413, text));
            }
        }
        Ok(())
    }

    fn check_type(&self, field: &Field, value: Value<'_>) -> Result<(), QueryError> {
        let (fits, expected) = match field.takes {
            Takes::Any => (true, ""),
            Takes::Array => (matches!(value, Value::Array(_)), "type 'array'"),
            Takes::Bool => (matches!(value, Value::Bool(_)), "type 'bool'"),
            Takes::Number => (value.is_number(), "types '[decimal, long, int, double]'"),
            Takes::Object => (matches!(value, Value::Document(_)), "type 'object'"),
            Takes::ObjectOrString => {
                (matches!(value, Value::Document(_) | Value::String(_)), "types '[object, string]'")
            }
            Takes::String => (matches!(value, Value::String(_)), "type 'string'"),
            Takes::Strings => {
                let inner = || format!("{}.{}", self.name, field.name);
                if matches!(value, Value::Array(_))
                    && let Some(other) =
                        Iterator::find(&mut value.elements(), |e| e.type_byte != 0x02)
                {
                    return Err(wrong_type(&inner(), other.key, other.value(), "type 'string'"));
                }
                (matches!(value, Value::Array(_)), "type 'array'")
            }
            Takes::Spec(inner) => {
                if let Value::Document(_) = value {
                    inner.check(value)?;
                }
                (matches!(value, Value::Document(_)), "type 'object'")
            }
        };
        match field.otherwise {
            _ if fits => Ok(()),
            Some(said) => Err(self.said(said, field.name, value)),
            None => Err(wrong_type(self.name, field.name.as_bytes(), value, expected)),
        }
    }

    fn said(&self, (code, text): Said, field: &str, value: Value<'_>) -> QueryError {
        let mut text = text.replace("{stage}", self.name).replace("{type}", value.type_name());
        if text.contains("{shown}") {
            text = text.replace("{shown}", &Shown(value).to_string());
        }
        QueryError::location(code, text.replace("{field}", field))
    }

    /// The error for a missing required field.
    pub(super) fn missing(&self, field: &str) -> QueryError {
        let text = format!("BSON field '{}.{field}' is missing but a required field", self.name);
        QueryError::location(40_414, text)
    }
}

pub(super) fn wrong_type(stage: &str, field: &[u8], got: Value<'_>, expected: &str) -> QueryError {
    QueryError::type_mismatch(format!(
        "BSON field '{stage}.{}' is the wrong type '{}', expected {expected}",
        String::from_utf8_lossy(field),
        got.type_name()
    ))
}

/// Declares a field.
pub(super) const fn field(name: &'static str, takes: Takes) -> Field {
    Field { name, takes, otherwise: None, null_is_absent: false }
}

impl Field {
    /// Sets the error for a value of another type.
    pub(super) const fn otherwise(mut self, code: i32, text: &'static str) -> Self {
        self.otherwise = Some((code, text));
        self
    }

    pub(super) const fn or_null(mut self) -> Self {
        self.null_is_absent = true;
        self
    }
}

/// The bytes of an object field.
pub(super) fn object(value: Option<Value<'_>>) -> Option<&[u8]> {
    match value {
        Some(Value::Document(doc)) => Some(doc),
        _ => None,
    }
}

/// The text of a string field.
pub(super) fn string(value: Option<Value<'_>>) -> Option<&[u8]> {
    match value {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// The texts of a field that is a list of strings.
pub(super) fn strings(value: Value<'_>) -> Vec<Box<[u8]>> {
    value.elements().filter_map(|e| string(Some(e.value())).map(Box::from)).collect()
}
