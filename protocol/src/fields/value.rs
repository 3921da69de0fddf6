//! Conversions of a field's value to the type that a command expects.

use super::{
    BinarySubtype, FieldError, Fields, ObjectId, OpTime, RawArray, RawBsonRef, RawDocument, Style,
    Timestamp, Value, join,
};

/// mongod's name for the type of a value, as used in its error texts.
pub fn type_name(value: &RawBsonRef<'_>) -> &'static str {
    match value {
        RawBsonRef::Double(_) => "double",
        RawBsonRef::String(_) => "string",
        RawBsonRef::Document(_) => "object",
        RawBsonRef::Array(_) => "array",
        RawBsonRef::Binary(_) => "binData",
        RawBsonRef::Undefined => "undefined",
        RawBsonRef::ObjectId(_) => "objectId",
        RawBsonRef::Boolean(_) => "bool",
        RawBsonRef::DateTime(_) => "date",
        RawBsonRef::Null => "null",
        RawBsonRef::RegularExpression(_) => "regex",
        RawBsonRef::DbPointer(_) => "dbPointer",
        RawBsonRef::JavaScriptCode(_) => "javascript",
        RawBsonRef::Symbol(_) => "symbol",
        RawBsonRef::JavaScriptCodeWithScope(_) => "javascriptWithScope",
        RawBsonRef::Int32(_) => "int",
        RawBsonRef::Timestamp(_) => "timestamp",
        RawBsonRef::Int64(_) => "long",
        RawBsonRef::Decimal128(_) => "decimal",
        RawBsonRef::MinKey => "minKey",
        RawBsonRef::MaxKey => "maxKey",
    }
}

/// `type 'long'`, or `types '[long, int]'`.
pub(super) fn list(expected: &[&'static str]) -> String {
    match expected {
        [one] => format!("type '{one}'"),
        several => format!("types '[{}]'", several.join(", ")),
    }
}

const NUMBER: &[&str] = &["long", "int", "decimal", "double"];
const BOOL_OR_NUMBER: &[&str] = &["bool", "long", "int", "decimal", "double"];

impl<'a> Value<'a> {
    /// A value found while walking a document, with the error texts of mongod's generated parsers.
    pub fn new(context: &'a str, name: &'a str, raw: RawBsonRef<'a>) -> Self {
        let path = super::Path { context: context.into(), name: name.into() };
        Self { raw, path, style: Style::Idl }
    }

    /// The field name.
    pub fn name(&self) -> &str {
        &self.path.name
    }

    /// The undecoded value.
    pub fn raw(&self) -> RawBsonRef<'a> {
        self.raw
    }

    /// Command and field name, joined by dots.
    pub fn path(&self) -> String {
        join(&self.path.context, &self.path.name)
    }

    /// A string.
    pub fn str(&self) -> Result<&'a str, FieldError> {
        self.raw.as_str().ok_or_else(|| self.mistyped(&["string"]))
    }

    /// A document.
    pub fn document(&self) -> Result<&'a RawDocument, FieldError> {
        self.raw.as_document().ok_or_else(|| self.mistyped(&["object"]))
    }

    /// The fields of a nested document.
    pub fn fields(&self) -> Result<Fields<'a>, FieldError> {
        let context = match self.style {
            Style::Idl => self.path().into(),
            Style::Extract => self.path.context.clone(),
        };
        Ok(Fields { doc: self.document()?, context, style: self.style })
    }

    /// An array.
    pub fn array(&self) -> Result<&'a RawArray, FieldError> {
        self.raw.as_array().ok_or_else(|| self.mistyped(&["array"]))
    }

    /// The elements of an array, each a value with its own path.
    pub fn elements(
        &self,
    ) -> Result<impl Iterator<Item = Result<Value<'a>, FieldError>>, FieldError> {
        let (path, style) = (self.path(), self.style);
        let elements = self.array()?.into_iter().enumerate();
        Ok(elements.map(move |(i, element)| {
            let at = super::Path { context: path.clone().into(), name: i.to_string().into() };
            let raw = element.map_err(|_| FieldError::Bson { path: join(&path, &at.name) })?;
            Ok(Value { raw, path: at, style })
        }))
    }

    /// A boolean; other types are refused.
    pub fn bool(&self) -> Result<bool, FieldError> {
        self.raw.as_bool().ok_or_else(|| self.mistyped(&["bool"]))
    }

    /// A boolean, or a number that counts as true unless it is zero (mongod's `safeBool`).
    pub fn safe_bool(&self) -> Result<bool, FieldError> {
        match self.raw {
            RawBsonRef::Boolean(value) => Ok(value),
            RawBsonRef::Double(value) => Ok(value != 0.0),
            _ => match self.number() {
                Some(number) => Ok(number != 0),
                None => Err(self.mistyped(BOOL_OR_NUMBER)),
            },
        }
    }

    /// A long; other types are refused.
    pub fn long(&self) -> Result<i64, FieldError> {
        match self.raw {
            RawBsonRef::Int64(value) => Ok(value),
            _ => Err(self.mistyped(&["long"])),
        }
    }

    /// An int; other types are refused.
    pub fn int(&self) -> Result<i32, FieldError> {
        self.raw.as_i32().ok_or_else(|| self.mistyped(&["int"]))
    }

    /// Any number, converted to an integer as mongod does: fractions are cut off, too large values saturate, NaN
    /// becomes 0 (mongod's `safeInt64`).
    pub fn safe_i64(&self) -> Result<i64, FieldError> {
        self.number().ok_or_else(|| match self.style {
            Style::Idl => self.mistyped(NUMBER),
            Style::Extract => FieldError::ExtractNotNumeric {
                name: self.path.name.to_string(),
                found: type_name(&self.raw),
            },
        })
    }

    /// [`Self::safe_i64`], saturating at the bounds of an int.
    pub fn safe_i32(&self) -> Result<i32, FieldError> {
        let number = self.safe_i64()?;
        Ok(i32::try_from(number).unwrap_or(if number < 0 { i32::MIN } else { i32::MAX }))
    }

    /// [`Self::safe_i64`] that must not be negative.
    pub fn non_negative(&self) -> Result<u64, FieldError> {
        let actual = self.safe_i64()?;
        u64::try_from(actual).map_err(|_| FieldError::OutOfBounds {
            name: self.path.name.to_string(),
            bound: ">= 0",
            actual,
        })
    }

    /// A timestamp.
    pub fn timestamp(&self) -> Result<Timestamp, FieldError> {
        self.raw.as_timestamp().map(Timestamp::from).ok_or_else(|| self.mistyped(&["timestamp"]))
    }

    /// A date.
    pub fn date(&self) -> Result<bson::DateTime, FieldError> {
        self.raw.as_datetime().ok_or_else(|| self.mistyped(&["date"]))
    }

    /// An object id.
    pub fn object_id(&self) -> Result<ObjectId, FieldError> {
        self.raw.as_object_id().ok_or_else(|| self.mistyped(&["objectId"]))
    }

    /// A UUID: binary of subtype 4 and 16 bytes.
    pub fn uuid(&self) -> Result<bson::Uuid, FieldError> {
        match self.raw {
            RawBsonRef::Binary(binary) if binary.subtype == BinarySubtype::Uuid => {
                let bytes = <[u8; 16]>::try_from(binary.bytes);
                bytes.map(bson::Uuid::from_bytes).map_err(|_| self.mistyped(&["binData"]))
            }
            _ => Err(self.mistyped(&["binData"])),
        }
    }

    /// An optime, `{ts, t}`.
    pub fn op_time(&self) -> Result<OpTime, FieldError> {
        let fields = self.fields()?;
        let ts = fields.required("ts")?.timestamp()?;
        let t = fields.required("t")?.safe_i64()?;
        Ok(OpTime::new(ts, t))
    }

    /// The error for a text that is not one of the allowed words.
    pub fn not_in_enumeration(&self) -> FieldError {
        let actual = self.raw.as_str().unwrap_or_default().to_owned();
        FieldError::Enumeration { path: self.path(), actual }
    }

    fn mistyped(&self, expected: &'static [&'static str]) -> FieldError {
        let found = type_name(&self.raw);
        match (self.style, expected.first()) {
            (Style::Extract, Some(expected)) => {
                FieldError::ExtractType { name: self.path.name.to_string(), expected, found }
            }
            _ => FieldError::Type { path: self.path(), found, expected },
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "saturation is what mongod does")]
    fn number(&self) -> Option<i64> {
        match self.raw {
            RawBsonRef::Int32(value) => Some(i64::from(value)),
            RawBsonRef::Int64(value) => Some(value),
            RawBsonRef::Double(value) => Some(value as i64),
            RawBsonRef::Decimal128(value) => {
                let text = value.to_string();
                let whole = text.parse::<i64>().ok();
                whole.or_else(|| text.parse::<f64>().ok().map(|value| value as i64))
            }
            _ => None,
        }
    }
}
