use bson::{RawDocumentBuf, cstr, rawdoc};

use super::*;

fn doc(parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let len = i32::try_from(body.len() + DOCUMENT_LEN_MIN).unwrap();
    [&len.to_le_bytes()[..], &body, &[0]].concat()
}

fn told(bytes: &[u8]) -> String {
    check(bytes).unwrap_err().to_string()
}

const PING: &[u8] = b"\x10ping\0\x01\0\0\0";
const DB: &[u8] = b"\x02$db\0\x06\0\0\0admin\0";

/// The expected texts were recorded from a mongod 8.2.
#[test]
fn faults_are_in_the_words_of_mongod() {
    let comment = |kind: u8, value: &[u8]| told(&doc(&[PING, &[kind], b"comment\0", value, DB]));
    let here = |reason: &str| {
        format!("{reason} in element with field name 'comment' in object with unknown _id")
    };
    assert_eq!(comment(0x20, b""), here("Unrecognized BSON type 32"));
    assert_eq!(comment(0x08, &[2]), here("BSON bool is neither false nor true"));
    assert_eq!(comment(0x02, &[0, 0, 0, 0]), here("Not null terminated string"));
    assert_eq!(comment(0x02, b"\x02\0\0\0ab"), here("Not null terminated string"));
    assert_eq!(
        comment(0x02, b"\xff\xff\xff\xffab\0"),
        here("BSON size is larger than buffer size")
    );
    assert_eq!(comment(0x05, b"\xff\xff\xff\xff\0"), here("BSON size is larger than buffer size"));
    assert_eq!(
        comment(0x03, &doc(&[b"\x03b\0", &doc(&[b"\x20a\0"])])),
        "Unrecognized BSON type 32 in element with field name 'comment.b.a' in object with unknown _id"
    );
    assert_eq!(
        told(&doc(&[PING, b"\x10_id\0\x05\0\0\0", b"\x20y\0", DB])),
        "Unrecognized BSON type 32 in element with field name 'y' in object with _id: 5"
    );
    let nowhere = |reason: &str| {
        format!("{reason} in element with field name '?' in object with unknown _id")
    };
    assert_eq!(told(&[4, 0, 0, 0, 0]), nowhere("BSON data has to be at least 5 bytes"));
    assert_eq!(told(&[255, 255, 255, 255, 0]), nowhere("BSON data has to be at least 5 bytes"));
    assert_eq!(
        told(&[99, 0, 0, 0, 0]),
        nowhere("Incorrect BSON length 99 should be less or equal to 5")
    );
    assert_eq!(told(&[5, 0, 0, 0, 1]), nowhere("BSON object not terminated with EOO"));
}

#[test]
fn documents_that_end_elsewhere_are_refused() {
    let wrong = |bytes: &[u8]| check(bytes).unwrap_err().reason == Reason::WrongLength;
    assert!(wrong(&doc(&[PING, &[0], DB])));
    assert!(wrong(&doc(&[b"\x03a\0\x63\0\0\0\0"])));
    assert!(wrong(&doc(&[b"\x03a\0\x08\0\0\0\0\0\0\0"])));
    assert!(wrong(&[doc(&[]), doc(&[])].concat()));
    // Code with scope whose length is one too many.
    assert!(wrong(&doc(&[b"\x0fc\0\x10\0\0\0\x02\0\0\0a\0\x05\0\0\0\0", DB])));
    assert!(check(&doc(&[b"\x0fc\0\x0f\0\0\0\x02\0\0\0a\0\x05\0\0\0\0", DB])).is_ok());
}

/// mongod accepts keys and strings that are not UTF-8, binary data with a wrong inner structure, and arrays whose
/// keys are not consecutive numbers.
#[test]
fn only_the_shape_is_judged() {
    for value in [
        &b"\x10\xff\xfe\0\x01\0\0\0"[..],
        b"\x02s\0\x03\0\0\0\xff\xfe\0",
        b"\x05b\0\x06\0\0\0\x02\x09\0\0\0ab",
        b"\x05u\0\x03\0\0\0\x04abc",
        b"\x0cp\0\x02\0\0\0a\0abcdefghijkl",
        b"\x04a\0\x0c\0\0\0\x10x\0\x01\0\0\0\0",
    ] {
        assert_eq!(check(&doc(&[PING, value])), Ok(()), "{value:?}");
    }
}

fn nested(levels: usize) -> RawDocumentBuf {
    let mut inner = RawDocumentBuf::new();
    for _ in 0..levels {
        let mut outer = RawDocumentBuf::new();
        outer.append(cstr!("a"), inner);
        inner = outer;
    }
    inner
}

#[test]
fn two_hundred_levels_and_not_one_more() {
    assert_eq!(check(nested(DEPTH_MAX).as_bytes()), Ok(()));
    let fault = check(nested(DEPTH_MAX + 1).as_bytes()).unwrap_err();
    assert_eq!((fault.reason, fault.code()), (Reason::TooDeep, ErrorCode::Overflow));
    assert!(check(nested(2_000).as_bytes()).is_err());
}

/// A document with every BSON type passes the check; every truncation of it fails.
#[test]
fn every_type_passes() {
    let all = rawdoc! {
        "double": 1.5, "string": "x", "document": { "a": [1, { "b": null }] }, "bool": true,
        "binary": bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1, 2] },
        "oid": bson::oid::ObjectId::new(), "date": bson::DateTime::now(), "null": null,
        "regex": bson::Regex { pattern: cstr!("a").into(), options: cstr!("i").into() },
        "code": bson::RawBson::JavaScriptCode("f".into()),
        "scoped": bson::RawJavaScriptCodeWithScope { code: "f".into(), scope: rawdoc! { "x": 1 } },
        "symbol": bson::RawBson::Symbol("s".into()), "int": 1, "long": 1_i64,
        "timestamp": bson::Timestamp { time: 1, increment: 2 },
        "decimal": "1.5".parse::<bson::Decimal128>().unwrap(),
        "undefined": bson::RawBson::Undefined, "min": bson::RawBson::MinKey, "max": bson::RawBson::MaxKey,
    };
    assert_eq!(check(all.as_bytes()), Ok(()));
    // Every truncation is refused.
    for len in 0..all.as_bytes().len() {
        assert!(check(&all.as_bytes()[..len]).is_err());
    }
}
