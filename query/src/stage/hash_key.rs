//! Converts a value to bytes that are equal exactly if the values compare equal, for grouping.

use crate::{
    collation::Collator,
    matcher::truncate,
    value::{DecimalClass, Value, compare_values},
};

/// Appends the key of a value.
pub(super) fn append(value: Value<'_>, collator: Option<&Collator>, out: &mut Vec<u8>) {
    if value.is_number() {
        return append_number(value, out);
    }
    out.push(value.type_rank());
    match value {
        Value::String(text) | Value::Symbol(text) => match collator {
            None => append_bytes(text, out),
            Some(collator) => {
                let mut key = Vec::new();
                collator.sort_key(text, &mut key);
                append_bytes(&key, out);
            }
        },
        Value::Document(_) | Value::Array(_) => {
            let names = matches!(value, Value::Document(_));
            for element in value.elements() {
                out.push(1);
                if names {
                    append_bytes(element.key, out);
                }
                append(element.value(), collator, out);
            }
            out.push(0);
        }
        other => {
            let mut bytes = Vec::new();
            other.append_to(&mut bytes);
            append_bytes(&bytes, out);
        }
    }
}

fn append_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// A canonical form of each number, independent of its type: integer, else double, else decimal.
fn append_number(value: Value<'_>, out: &mut Vec<u8>) {
    let whole = match value {
        Value::Int32(n) => Some(i64::from(n)),
        Value::Int64(n) => Some(n),
        Value::Double(n) if n.fract() == 0.0 => truncate(n),
        Value::Decimal(n) if n.is_whole() => n.truncate_to_i64(),
        _ => None,
    };
    if let Some(n) = whole {
        out.push(b'i');
        out.extend_from_slice(&n.to_le_bytes());
        return;
    }
    match value {
        Value::Double(n) => append_double(n, out),
        Value::Decimal(n) => {
            let double = n.to_string().parse().unwrap_or(f64::NAN);
            if compare_values(Value::Double(double), value, None).is_eq() {
                return append_double(double, out);
            }
            out.push(b'm');
            if let DecimalClass::Finite { mut coefficient, mut exponent } = n.class() {
                while coefficient != 0 && coefficient % 10 == 0 {
                    coefficient /= 10;
                    exponent += 1;
                }
                out.push(u8::from(n.is_negative()));
                out.extend_from_slice(&coefficient.to_le_bytes());
                out.extend_from_slice(&exponent.to_le_bytes());
            }
        }
        _ => {}
    }
}

fn append_double(n: f64, out: &mut Vec<u8>) {
    out.push(b'd');
    let canonical = if n.is_nan() { f64::NAN } else { n };
    out.extend_from_slice(&canonical.to_bits().to_le_bytes());
}

/// The key of a value.
pub(super) fn of(value: Value<'_>, collator: Option<&Collator>) -> Vec<u8> {
    let mut out = Vec::new();
    append(value, collator, &mut out);
    out
}
