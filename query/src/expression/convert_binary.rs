//! `$convert` from and to binary data, with its formats and byte orders.

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};

use super::{Env, Evaluated, convert::failed};
use crate::{
    error::QueryError,
    value::{Shown, Value},
};

/// base64url is written without padding and read with or without it.
const URL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A text format for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Base64,
    Base64Url,
    Hex,
    Utf8,
    Uuid,
    Auto,
}

impl Format {
    /// Parses the argument; `None` if it was omitted.
    pub(super) fn parse(given: Option<Value<'_>>) -> Result<Option<Self>, QueryError> {
        let Some(value) = given.filter(|value| !value.is_nullish()) else { return Ok(None) };
        Ok(Some(match value {
            Value::String(b"base64") => Self::Base64,
            Value::String(b"base64url") => Self::Base64Url,
            Value::String(b"hex") => Self::Hex,
            Value::String(b"utf8") => Self::Utf8,
            Value::String(b"uuid") => Self::Uuid,
            Value::String(b"auto") => Self::Auto,
            Value::String(other) => {
                return Err(QueryError::location(
                    4_341_125,
                    format!(
                        "Invalid 'format' argument for $convert: {}",
                        String::from_utf8_lossy(other)
                    ),
                ));
            }
            other => {
                return Err(QueryError::location(
                    4_341_114,
                    format!(
                        "$convert requires that 'format' be a string, found: {} with value {}",
                        other.type_name(),
                        Shown(other)
                    ),
                ));
            }
        }))
    }
}

/// True if the highest byte comes first.
pub(super) fn is_big_endian(given: Option<Value<'_>>) -> Result<bool, QueryError> {
    let Some(value) = given.filter(|value| !value.is_nullish()) else { return Ok(false) };
    match value {
        Value::String(b"little") => Ok(false),
        Value::String(b"big") => Ok(true),
        Value::String(other) => Err(QueryError::location(
            9_130_002,
            format!(
                "Invalid 'byteOrder' argument for $convert: {}",
                String::from_utf8_lossy(other)
            ),
        )),
        other => Err(QueryError::location(
            9_130_001,
            format!(
                "$convert requires that 'byteOrder' be a string, found: {} with value {}",
                other.type_name(),
                Shown(other)
            ),
        )),
    }
}

/// Parses the binary subtype in `to`.
pub(super) fn subtype(value: Value<'_>) -> Result<u8, QueryError> {
    if !value.is_number() {
        return Err(QueryError::location(
            4_341_108,
            format!(
                "For BinData, $convert's 'subtype' argument must be a number, but is {}",
                value.type_name()
            ),
        ));
    }
    let whole = crate::matcher::operands::integer("", value).map_err(|_| {
        QueryError::location(4_341_106, "In $convert, numeric 'subtype' argument is not an integer")
    })?;
    u8::try_from(whole).ok().filter(|n| matches!(n, 0..=9 | 128..)).ok_or_else(|| {
        QueryError::location(
            4_341_107,
            format!(
                "In $convert, numeric value for 'subtype' does not correspond to a BinData type: \
                 {whole}"
            ),
        )
    })
}

fn format_missing(from: &str, to: &str) -> QueryError {
    QueryError::location(
        4_341_115,
        format!("Format must be speficied when converting from '{from}' to '{to}'"),
    )
}

/// Converts text or a number to binary data; `None` for unsupported types.
pub(super) fn to_binary<'a>(
    env: &Env<'a>,
    value: Value<'a>,
    subtype: u8,
    format: Option<Format>,
    big: bool,
) -> Result<Option<Value<'a>>, QueryError> {
    let ordered = |mut bytes: Vec<u8>| {
        if big {
            bytes.reverse();
        }
        bytes
    };
    let bytes = match value {
        Value::Binary { subtype: own, .. } => {
            if own != subtype {
                return Err(failed(
                    "Conversions between different BinData subtypes are not supported",
                ));
            }
            return Ok(Some(value));
        }
        Value::String(text) => {
            let format = format.ok_or_else(|| format_missing("string", "binData"))?;
            from_text(text, format, subtype).map_err(|why| {
                failed(format!(
                    "Failed to parse BinData '{}' in $convert with no onError value: {why}",
                    String::from_utf8_lossy(text)
                ))
            })?
        }
        Value::Int32(n) => ordered(n.to_le_bytes().to_vec()),
        Value::Int64(n) => ordered(n.to_le_bytes().to_vec()),
        Value::Double(n) => ordered(n.to_le_bytes().to_vec()),
        _ => return Ok(None),
    };
    Ok(Some(Value::Binary { subtype, bytes: env.keep(&bytes) }))
}

fn from_text(text: &[u8], format: Format, subtype: u8) -> Result<Vec<u8>, String> {
    if (format == Format::Uuid) != (subtype == 4) {
        return Err("Only the 'uuid' format is allowed with the UUID subtype".into());
    }
    match format {
        Format::Utf8 => Ok(text.to_vec()),
        Format::Base64 => STANDARD.decode(text).map_err(|_| "invalid base64".into()),
        Format::Base64Url => URL.decode(text).map_err(|_| "invalid base64".into()),
        Format::Hex => {
            if text.len() % 2 == 1 {
                return Err("Hex blob with odd digit count".into());
            }
            hex_decoded(text).ok_or_else(|| {
                let bad = text.iter().find(|b| !b.is_ascii_hexdigit()).copied().unwrap_or(0);
                format!("The character \\x{bad:02x} failed to parse from hex.")
            })
        }
        Format::Uuid => uuid_decoded(text)
            .ok_or_else(|| format!("Invalid UUID string: {}", String::from_utf8_lossy(text))),
        Format::Auto => Err("Invalid format 'auto'".into()),
    }
}

/// Binary data as text.
pub(super) fn to_text<'a>(
    env: &Env<'a>,
    subtype: u8,
    bytes: &'a [u8],
    format: Option<Format>,
) -> Evaluated<'a> {
    let format = format.ok_or_else(|| format_missing("binData", "string"))?;
    let refused = |why: &str| {
        failed(format!(
            "Failed to convert '{}' to string in $convert with no onError value: {why}",
            shown(subtype, bytes)
        ))
    };
    let is_uuid = subtype == 4 && bytes.len() == 16;
    let text = match format {
        Format::Utf8 => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return Err(refused("BinData does not represent a valid UTF-8 string")),
        },
        Format::Uuid if !is_uuid => {
            return Err(refused("BinData does not represent a valid UUID"));
        }
        Format::Uuid => uuid_text(bytes),
        Format::Auto if is_uuid => uuid_text(bytes),
        Format::Base64 | Format::Auto => STANDARD.encode(bytes),
        Format::Base64Url => URL.encode(bytes),
        Format::Hex => hex_text(bytes),
    };
    Ok(env.text(&text))
}

/// Converts binary data to a signed integer of 1, 2, 4 or 8 bytes.
pub(super) fn to_whole(
    subtype: u8,
    bytes: &[u8],
    len_max: usize,
    big: bool,
) -> Result<i64, QueryError> {
    if !matches!(bytes.len(), 1 | 2 | 4 | 8) || bytes.len() > len_max {
        return Err(wrong_length(subtype, bytes));
    }
    let highest = if big { bytes.first() } else { bytes.last() };
    let negative = highest.is_some_and(|byte| *byte >= 0x80);
    let mut wide = [if negative { 0xff } else { 0 }; 8];
    let ordered: Vec<u8> = if big { bytes.iter().rev().copied().collect() } else { bytes.to_vec() };
    wide.iter_mut().zip(ordered).for_each(|(place, byte)| *place = byte);
    Ok(i64::from_le_bytes(wide))
}

/// Converts binary data to a double of 4 or 8 bytes.
pub(super) fn to_double(subtype: u8, bytes: &[u8], big: bool) -> Result<f64, QueryError> {
    let ordered: Vec<u8> = if big { bytes.iter().rev().copied().collect() } else { bytes.to_vec() };
    match (ordered.len(), ordered.first_chunk::<4>(), ordered.first_chunk::<8>()) {
        (4, Some(four), _) => Ok(f64::from(f32::from_le_bytes(*four))),
        (8, _, Some(eight)) => Ok(f64::from_le_bytes(*eight)),
        _ => Err(wrong_length(subtype, bytes)),
    }
}

fn shown(subtype: u8, bytes: &[u8]) -> String {
    format!("BinData({subtype}, \"{}\")", hex_text(bytes))
}

fn wrong_length(subtype: u8, bytes: &[u8]) -> QueryError {
    failed(format!(
        "Failed to convert '{}' to number in $convert because of invalid length: {}",
        shown(subtype, bytes),
        bytes.len()
    ))
}

fn hex_decoded(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|n| u8::try_from(n).ok());
    text.chunks(2)
        .map(|pair| match *pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        })
        .collect()
}

fn hex_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

fn uuid_decoded(text: &[u8]) -> Option<Vec<u8>> {
    let dashes = [8, 13, 18, 23];
    let right = text.len() == 36
        && text.iter().enumerate().all(|(at, b)| (*b == b'-') == dashes.contains(&at));
    if !right {
        return None;
    }
    hex_decoded(&text.iter().copied().filter(|b| *b != b'-').collect::<Vec<_>>())
}

fn uuid_text(bytes: &[u8]) -> String {
    let mut text = hex_text(bytes).to_lowercase();
    for at in [20, 16, 12, 8] {
        text.insert(at, '-');
    }
    text
}
