//! Formats values as mongod does in its messages.

use std::fmt;

use super::{Elements, Value};

/// mongod's text of a value: `{ a: 1, b: [ "x" ] }`.
#[derive(Clone, Copy)]
pub struct Shown<'a>(pub Value<'a>);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Missing => f.write_str("EOO"),
            Value::MinKey => f.write_str("MinKey"),
            Value::MaxKey => f.write_str("MaxKey"),
            Value::Undefined => f.write_str("undefined"),
            Value::Null => f.write_str("null"),
            Value::Int32(n) => write!(f, "{n}"),
            Value::Int64(n) => write!(f, "{n}"),
            Value::Double(n) => f.write_str(&double(n)),
            Value::Decimal(n) => write!(f, "{n:?}"),
            Value::String(s) | Value::Symbol(s) => write!(f, "\"{}\"", String::from_utf8_lossy(s)),
            Value::Document(bytes) => fields(f, bytes),
            Value::Array(bytes) => items(f, bytes),
            Value::Binary { subtype: UUID, bytes } if bytes.len() == 16 => uuid(f, bytes),
            Value::Binary { subtype, bytes } => {
                write!(f, "BinData({subtype}, {})", hex(bytes))
            }
            Value::ObjectId(id) => write!(f, "ObjectId('{}')", hex(&id).to_lowercase()),
            Value::Bool(b) => write!(f, "{b}"),
            Value::Date(ms) => write!(f, "new Date({ms})"),
            Value::Timestamp(n) => write!(f, "Timestamp({}, {})", n >> 32, n & 0xffff_ffff),
            Value::Regex { pattern, options } => write!(
                f,
                "/{}/{}",
                String::from_utf8_lossy(pattern),
                String::from_utf8_lossy(options)
            ),
            Value::DbPointer(_) => f.write_str("DBRef"),
            Value::Code(code) => write!(f, "{}", String::from_utf8_lossy(code)),
            Value::CodeWithScope { code, scope } => write!(
                f,
                "CodeWScope( {}, {})",
                String::from_utf8_lossy(code),
                Shown(Value::Document(scope))
            ),
        }
    }
}

/// mongod's text of a value in errors of expressions, which is formatted differently.
#[derive(Clone, Copy)]
pub struct Spelled<'a>(pub Value<'a>);

impl fmt::Display for Spelled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lossy = |bytes| String::from_utf8_lossy(bytes);
        let list = |f: &mut fmt::Formatter<'_>, bytes, named: bool| {
            for (i, element) in Elements::of_bytes(bytes).enumerate() {
                f.write_str(if i == 0 { "" } else { ", " })?;
                if named {
                    write!(f, "{}: ", lossy(element.key))?;
                }
                write!(f, "{}", Spelled(element.value()))?;
            }
            Ok(())
        };
        match self.0 {
            Value::Missing => f.write_str("MISSING"),
            Value::Double(n) if n.is_finite() => f.write_str(&general(n, 6)),
            Value::Symbol(s) => write!(f, "Symbol(\"{}\")", lossy(s)),
            Value::Document(bytes) => {
                f.write_str("{")?;
                list(f, bytes, true)?;
                f.write_str("}")
            }
            Value::Array(bytes) => {
                f.write_str("[")?;
                list(f, bytes, false)?;
                f.write_str("]")
            }
            Value::Binary { subtype, bytes } => {
                write!(f, "BinData({subtype}, \"{}\")", hex(bytes))
            }
            Value::ObjectId(id) => f.write_str(&hex(&id).to_lowercase()),
            Value::Date(ms) => f.write_str(&crate::expression::iso(ms)),
            Value::Code(code) => write!(f, "Code(\"{}\")", lossy(code)),
            Value::CodeWithScope { code, scope } => {
                write!(f, "CodeWScope(\"{}\", {})", lossy(code), Shown(Value::Document(scope)))
            }
            other => Shown(other).fmt(f),
        }
    }
}

fn fields(f: &mut fmt::Formatter<'_>, doc: &[u8]) -> fmt::Result {
    let mut elements = Elements::of_bytes(doc).peekable();
    if elements.peek().is_none() {
        return f.write_str("{}");
    }
    for (i, element) in elements.enumerate() {
        f.write_str(if i == 0 { "{ " } else { ", " })?;
        write!(f, "{}: {}", String::from_utf8_lossy(element.key), Shown(element.value()))?;
    }
    f.write_str(" }")
}

fn items(f: &mut fmt::Formatter<'_>, array: &[u8]) -> fmt::Result {
    let mut elements = Elements::of_bytes(array).peekable();
    if elements.peek().is_none() {
        return f.write_str("[]");
    }
    for (i, element) in elements.enumerate() {
        write!(f, "{}{}", if i == 0 { "[ " } else { ", " }, Shown(element.value()))?;
    }
    f.write_str(" ]")
}

/// The subtype of UUIDs.
const UUID: u8 = 4;

fn uuid(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    let hex = hex(bytes).to_lowercase();
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    let parts = [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)];
    write!(f, "UUID(\"{}\")", parts.join("-"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02X}")).collect()
}

/// C's `%.16g`, with ".0" appended to an integer.
pub fn double(n: f64) -> String {
    if n.is_nan() {
        return "nan".into();
    }
    if n.is_infinite() {
        return if n > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let text = general(n, 16);
    if text.contains(['.', 'e']) { text } else { format!("{text}.0") }
}

/// C's `%.<precision>g`.
pub fn general(n: f64, precision: usize) -> String {
    if n == 0.0 {
        return if n.is_sign_negative() { "-0".into() } else { "0".into() };
    }
    let scientific = format!("{n:.*e}", precision - 1);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let in_plain = exponent >= -4 && usize::try_from(exponent).is_ok_and(|e| e < precision)
        || (-4..0).contains(&exponent);
    if in_plain {
        let after_point = i32::try_from(precision).unwrap_or(i32::MAX) - 1 - exponent;
        let text = format!("{n:.*}", usize::try_from(after_point).unwrap_or(0));
        return trim_zeros(&text).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim_zeros(digits), exponent.unsigned_abs())
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_look_as_in_c() {
        for (n, text) in [
            (1.5, "1.5"),
            (2.0, "2.0"),
            (1e30, "1e+30"),
            (0.1, "0.1"),
            (1e-5, "1e-05"),
            (1234567.0, "1234567.0"),
            (-0.0, "-0.0"),
            (1e16, "1e+16"),
            (1.0 / 3.0, "0.3333333333333333"),
        ] {
            assert_eq!(double(n), text);
        }
    }
}
