//! Iterates over the fields of one document and reads only names and lengths.
//!
//! The BSON library validates each name and value as it passes. When only a few of many fields are needed, as in an
//! oplog entry, most of that work is wasted. Here a value is decoded only on request.

use bson::{RawBsonRef, RawDocument, Uuid};

use crate::{Timestamp, bson_check::zero_in_word};

/// The document is malformed at this field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken;

/// A field whose value is not decoded yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element<'a> {
    doc: &'a RawDocument,
    kind: u8,
    name: &'a [u8],
    value: &'a [u8],
}

/// The fields of a document.
pub(crate) struct Elements<'a> {
    doc: &'a RawDocument,
    rest: &'a [u8],
}

impl<'a> Elements<'a> {
    pub(crate) fn of(doc: &'a RawDocument) -> Self {
        // The length prefix and the closing zero byte were checked when the reference was made.
        let fields = doc.as_bytes().get(4..).and_then(|fields| fields.split_last());
        Self { doc, rest: fields.map_or(&[], |(_, fields)| fields) }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, Broken>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (kind, after) = self.rest.split_first()?;
        let element = split_name(after).and_then(|(name, after)| {
            let (value, rest) = after.split_at_checked(value_len(*kind, after)?)?;
            self.rest = rest;
            Some(Element { doc: self.doc, kind: *kind, name, value })
        });
        if element.is_none() {
            self.rest = &[];
        }
        Some(element.ok_or(Broken))
    }
}

impl<'a> Element<'a> {
    /// The field name, which need not be UTF-8.
    pub(crate) fn name(&self) -> &'a [u8] {
        self.name
    }

    /// The value, decoded by the BSON library.
    pub(crate) fn value(&self) -> Result<RawBsonRef<'a>, Broken> {
        let name = str::from_utf8(self.name).map_err(|_| Broken)?;
        self.doc.get(name).ok().flatten().ok_or(Broken)
    }

    /// The value, if it is a string.
    #[inline]
    pub(crate) fn str(&self) -> Option<&'a str> {
        let (_, text) = self.of_kind(0x02)?.get(4..)?.split_last()?;
        str::from_utf8(text).ok()
    }

    /// The value, if it is a document.
    #[inline]
    pub(crate) fn document(&self) -> Option<&'a RawDocument> {
        RawDocument::from_bytes(self.of_kind(0x03)?).ok()
    }

    /// The value, if it is a timestamp.
    #[inline]
    pub(crate) fn timestamp(&self) -> Option<Timestamp> {
        let packed = self.of_kind(0x11)?.first_chunk()?;
        Some(Timestamp::from_u64(u64::from_le_bytes(*packed)))
    }

    /// The value, if it is a date.
    #[inline]
    pub(crate) fn date(&self) -> Option<bson::DateTime> {
        let millis = self.of_kind(0x09)?.first_chunk()?;
        Some(bson::DateTime::from_millis(i64::from_le_bytes(*millis)))
    }

    /// The value, if it is a long or an int.
    #[inline]
    pub(crate) fn integer(&self) -> Option<i64> {
        match self.kind {
            0x12 => Some(i64::from_le_bytes(*self.value.first_chunk()?)),
            0x10 => Some(i64::from(i32::from_le_bytes(*self.value.first_chunk()?))),
            _ => None,
        }
    }

    /// The value, if it is a UUID.
    #[inline]
    pub(crate) fn uuid(&self) -> Option<Uuid> {
        let (subtype, bytes) = self.of_kind(0x05)?.get(4..)?.split_first()?;
        let bytes = <[u8; 16]>::try_from(bytes).ok()?;
        (*subtype == UUID_SUBTYPE).then(|| Uuid::from_bytes(bytes))
    }

    fn of_kind(&self, kind: u8) -> Option<&'a [u8]> {
        (self.kind == kind).then_some(self.value)
    }
}

/// The binary subtype of today's UUIDs.
const UUID_SUBTYPE: u8 = 4;

/// Splits at the next zero byte: the name before it and the bytes after it.
#[inline]
fn split_name(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let quick = bytes.first_chunk().and_then(zero_in_word);
    let len = quick.or_else(|| bytes.iter().position(|byte| *byte == 0))?;
    let (name, after) = bytes.split_at_checked(len)?;
    Some((name, after.get(1..)?))
}

/// Length of a value, from its type and its length prefix.
#[inline]
fn value_len(kind: u8, rest: &[u8]) -> Option<usize> {
    let prefix = || {
        let len = i32::from_le_bytes(*rest.first_chunk()?);
        usize::try_from(len).ok()
    };
    Some(match kind {
        0x01 | 0x09 | 0x11 | 0x12 => 8,
        0x02 | 0x0d | 0x0e => prefix()?.checked_add(4)?,
        0x03 | 0x04 | 0x0f => prefix()?,
        0x05 => prefix()?.checked_add(5)?,
        0x06 | 0x0a | 0x7f | 0xff => 0,
        0x07 => 12,
        0x08 => 1,
        0x0b => {
            let (pattern, after) = split_name(rest)?;
            let (options, _) = split_name(after)?;
            pattern.len() + options.len() + 2
        }
        0x0c => prefix()?.checked_add(16)?,
        0x10 => 4,
        0x13 => 16,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use bson::{cstr, rawdoc, spec::BinarySubtype};

    use super::*;

    #[test]
    fn every_kind_of_value_is_as_the_library_has_it() {
        let uuid = Uuid::new();
        let doc = rawdoc! {
            "uuid": bson::Binary::from(uuid), "double": 1.5, "string": "x", "a long name": { "a": [1, { "b": null }] }, "bool": true,
            "binary": bson::Binary { subtype: BinarySubtype::Generic, bytes: vec![1, 2] },
            "old": bson::Binary { subtype: BinarySubtype::BinaryOld, bytes: vec![1, 2] },
            "oid": bson::oid::ObjectId::new(), "date": bson::DateTime::now(), "null": null,
            "regex": bson::Regex { pattern: cstr!("a").into(), options: cstr!("i").into() },
            "code": bson::RawBson::JavaScriptCode("f".into()), "array": [1, 2],
            "scoped": bson::RawJavaScriptCodeWithScope { code: "f".into(), scope: rawdoc! { "x": 1 } },
            "symbol": bson::RawBson::Symbol("s".into()), "int": 1, "long": -1_i64,
            "timestamp": bson::Timestamp { time: 1, increment: 2 }, "": "nameless",
            "decimal": "1.5".parse::<bson::Decimal128>().unwrap(),
            "undefined": bson::RawBson::Undefined, "min": bson::RawBson::MinKey,
            "max": bson::RawBson::MaxKey,
        };
        let ours = Elements::of(&doc).map(Result::unwrap);
        for (ours, theirs) in ours.zip(doc.iter().map(Result::unwrap)) {
            assert_eq!(ours.name(), theirs.0.as_str().as_bytes());
            assert_eq!(ours.value(), Ok(theirs.1));
            assert_eq!(ours.str(), theirs.1.as_str());
            assert_eq!(ours.document(), theirs.1.as_document());
            assert_eq!(ours.date(), theirs.1.as_datetime());
            assert_eq!(ours.timestamp(), theirs.1.as_timestamp().map(Timestamp::from));
            let integer = theirs.1.as_i64().or(theirs.1.as_i32().map(i64::from));
            assert_eq!(ours.integer(), integer);
            assert_eq!(ours.uuid(), (ours.name() == b"uuid").then_some(uuid));
        }
        assert_eq!(Elements::of(&doc).count(), doc.iter().count());
    }

    #[test]
    fn a_broken_document_ends_in_an_error() {
        for fields in [&b"\x10a\0\x01"[..], b"\x02a\0\xff\xff\xff\x7f", b"\x20a\0", b"\x10abc"] {
            let len = i32::try_from(fields.len() + 5).unwrap();
            let bytes = [&len.to_le_bytes()[..], fields, &[0]].concat();
            let doc = RawDocument::from_bytes(&bytes).unwrap();
            let mut elements = Elements::of(doc);
            assert!(matches!(elements.next(), Some(Err(Broken))), "{fields:?}");
            assert!(elements.next().is_none());
        }
    }
}
