//! MongoDB's hash of a value, for hashed indexes and `$toHashedIndexKey`: MD5 of seed, canonical type and canonical
//! form.

use md5::{Digest, Md5};

use super::{Decimal, Elements, Value, compare_values};

/// The hash that a hashed index stores for a value.
pub fn hash64(value: Value<'_>) -> i64 {
    let mut md5 = Md5::new();
    md5.update(0i32.to_le_bytes());
    add(&mut md5, value, None);
    let digest = md5.finalize();
    digest.first_chunk().map_or(0, |first| i64::from_le_bytes(*first))
}

fn add(md5: &mut Md5, value: Value<'_>, name: Option<&[u8]>) {
    md5.update(canonical_type(value).to_le_bytes());
    if let Some(name) = name {
        md5.update(name);
        md5.update([0]);
    }
    match value {
        Value::Int32(_) | Value::Int64(_) | Value::Double(_) | Value::Decimal(_) => {
            md5.update(as_long(value).to_le_bytes());
        }
        Value::Document(bytes) | Value::Array(bytes) => add_elements(md5, bytes),
        Value::CodeWithScope { code, scope } => {
            md5.update(code);
            md5.update([0]);
            add_elements(md5, scope);
        }
        other => {
            let mut bytes = Vec::new();
            other.append_to(&mut bytes);
            md5.update(&bytes);
        }
    }
}

/// Adds the fields, and the end as a field without a name.
fn add_elements(md5: &mut Md5, doc: &[u8]) {
    for element in Elements::of_bytes(doc) {
        add(md5, element.value(), Some(element.key));
    }
    md5.update(0i32.to_le_bytes());
}

/// Numbers are hashed as a clamped int64: doubles truncated, decimals rounded to even. As in mongod, 2^63 as a double
/// becomes the smallest int64.
#[allow(clippy::cast_possible_truncation, reason = "the cast saturates, and NaN becomes 0")]
fn as_long(value: Value<'_>) -> i64 {
    match value {
        Value::Int32(n) => i64::from(n),
        Value::Int64(n) => n,
        Value::Double(9_223_372_036_854_775_808.0) => i64::MIN,
        Value::Double(n) => n as i64,
        Value::Decimal(n) => decimal_as_long(n),
        _ => 0,
    }
}

/// Rounded half to even, clamped.
fn decimal_as_long(n: Decimal) -> i64 {
    let bits = u128::from_le_bytes(n.bytes());
    let negative = bits >> 127 == 1;
    let limit = if negative { i64::MIN } else { i64::MAX };
    match (bits >> 122) & 0b1_1111 {
        0b1_1111 => return 0,
        0b1_1110 => return limit,
        _ => {}
    }
    let over = compare_values(Value::Decimal(n), Value::Int64(limit), None);
    if (negative && over.is_le()) || (!negative && over.is_ge()) {
        return limit;
    }
    let coefficient = bits & ((1 << 113) - 1);
    let exponent = i64::try_from((bits >> 113) & 0x3FFF).unwrap_or(0) - 6176;
    let scale = u32::try_from(exponent.unsigned_abs()).ok().and_then(|e| 10u128.checked_pow(e));
    let size = match scale {
        Some(scale) if exponent < 0 => round_half_even(coefficient, scale),
        None if exponent < 0 => 0,
        Some(scale) => coefficient.saturating_mul(scale),
        None => 0, // Zero with a large exponent; anything else exceeds the limit.
    };
    let size = i64::try_from(size).unwrap_or(limit);
    if negative { -size } else { size }
}

fn round_half_even(n: u128, by: u128) -> u128 {
    let (whole, rest) = (n / by, n % by);
    match (rest.saturating_mul(2)).cmp(&by) {
        std::cmp::Ordering::Greater => whole + 1,
        std::cmp::Ordering::Equal => whole + whole % 2,
        std::cmp::Ordering::Less => whole,
    }
}

fn canonical_type(value: Value<'_>) -> i32 {
    match value {
        Value::MinKey => -1,
        Value::Undefined => 0,
        Value::Null | Value::Missing => 5,
        Value::Int32(_) | Value::Int64(_) | Value::Double(_) | Value::Decimal(_) => 10,
        Value::String(_) | Value::Symbol(_) => 15,
        Value::Document(_) => 20,
        Value::Array(_) => 25,
        Value::Binary { .. } => 30,
        Value::ObjectId(_) => 35,
        Value::Bool(_) => 40,
        Value::Date(_) => 45,
        Value::Timestamp(_) => 47,
        Value::Regex { .. } => 50,
        Value::DbPointer(_) => 55,
        Value::Code(_) => 60,
        Value::CodeWithScope { .. } => 65,
        Value::MaxKey => 127,
    }
}
