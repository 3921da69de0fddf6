//! Compares the byte order of keys with the comparison of values.

use std::{cmp::Ordering, str::FromStr};

use bson::{Bson, RawDocument, doc};
use query::value::{Elements, compare_values};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;

fn first(doc: &RawDocument) -> Value<'_> {
    Elements::new(doc).next().unwrap().value()
}

fn raw(value: impl Into<Bson>) -> bson::RawDocumentBuf {
    bson::RawDocumentBuf::try_from(&doc! { "": value.into() }).unwrap()
}

fn key(value: impl Into<Bson>) -> Vec<u8> {
    encode(first(&raw(value))).unwrap()
}

fn decimal(text: &str) -> Bson {
    Bson::Decimal128(bson::Decimal128::from_str(text).unwrap())
}

/// Values in ascending order; those of one line are equal.
fn ladder() -> Vec<Vec<Bson>> {
    let two_53 = 9_007_199_254_740_992i64;
    vec![
        vec![Bson::MinKey],
        vec![Bson::Undefined],
        vec![Bson::Null],
        vec![Bson::Double(f64::NAN), Bson::Double(-f64::NAN), decimal("NaN")],
        vec![Bson::Double(f64::NEG_INFINITY), decimal("-Infinity")],
        vec![decimal("-9.999999999999999999999999999999999E+6144")],
        vec![Bson::Double(f64::MIN)],
        vec![decimal("-18446744073709551616"), Bson::Double(-18_446_744_073_709_551_616.0)],
        vec![decimal("-18446744073709551615")],
        vec![Bson::Int64(i64::MIN), Bson::Double(-9_223_372_036_854_775_808.0)],
        vec![Bson::Int64(i64::MIN + 1)],
        vec![Bson::Int64(-two_53 - 1)],
        vec![Bson::Int64(-two_53), Bson::Double(-9_007_199_254_740_992.0)],
        vec![Bson::Int32(-256), Bson::Double(-256.0)],
        vec![Bson::Int32(-255)],
        vec![Bson::Double(-1.5), decimal("-1.50")],
        vec![Bson::Int32(-1), Bson::Int64(-1), decimal("-1.000")],
        vec![decimal("-0.1000000000000000055511151231257828")],
        vec![Bson::Double(-0.1)],
        vec![decimal("-0.1000000000000000055511151231257827")],
        vec![decimal("-0.1")],
        vec![Bson::Double(-f64::from_bits(1))],
        vec![decimal("-1E-6176")],
        vec![
            Bson::Int32(0),
            Bson::Double(-0.0),
            Bson::Double(0.0),
            decimal("0E+500"),
            decimal("-0"),
        ],
        vec![decimal("1E-6176")],
        vec![decimal("1E-400")],
        vec![Bson::Double(f64::from_bits(1))],
        vec![decimal("5E-324")],
        vec![decimal("0.1")],
        vec![decimal("0.1000000000000000055511151231257827")],
        vec![Bson::Double(0.1)],
        vec![decimal("0.1000000000000000055511151231257828")],
        vec![Bson::Double(0.5), decimal("0.5")],
        vec![decimal("0.9999999999999999999999999999999999")],
        vec![Bson::Int32(1), Bson::Double(1.0), decimal("1E0"), decimal("1.000000")],
        vec![decimal("1.000000000000000000000000000000001")],
        vec![Bson::Double(1.5)],
        vec![Bson::Int32(255)],
        vec![Bson::Int32(256)],
        vec![decimal("256.1")],
        vec![Bson::Int64(two_53), Bson::Double(9_007_199_254_740_992.0)],
        vec![Bson::Int64(two_53 + 1), decimal("9007199254740993")],
        vec![decimal("9007199254740993.5")],
        vec![Bson::Int64(two_53 + 2), Bson::Double(9_007_199_254_740_994.0)],
        vec![Bson::Int64(i64::MAX)],
        vec![Bson::Double(9_223_372_036_854_775_808.0)],
        vec![decimal("18446744073709551615.5")],
        vec![Bson::Double(18_446_744_073_709_551_616.0)],
        vec![Bson::Double(1e23)],
        vec![decimal("1E23")],
        vec![Bson::Double(f64::MAX)],
        vec![decimal("9E+6144")],
        vec![Bson::Double(f64::INFINITY), decimal("Infinity")],
        vec![Bson::String(String::new())],
        vec![Bson::String("\0".into())],
        vec![Bson::String("\0\0".into())],
        vec![Bson::String("\0a".into())],
        vec![Bson::String("a".into()), Bson::Symbol("a".into())],
        vec![Bson::String("a\0".into())],
        vec![Bson::String("a\0b".into())],
        vec![Bson::String("aa".into())],
        vec![Bson::String("ä".into())],
        vec![Bson::Document(doc! {})],
        vec![Bson::Document(doc! { "b": 1 })],
        vec![Bson::Document(doc! { "b": 1, "a": 1 }), Bson::Document(doc! { "b": 1.0, "a": 1i64 })],
        vec![Bson::Document(doc! { "b": 2 })],
        vec![Bson::Document(doc! { "c": 0 })],
        vec![Bson::Document(doc! { "a": "x" })],
        vec![Bson::Array(vec![])],
        vec![Bson::Array(vec![Bson::Int32(1)])],
        vec![Bson::Array(vec![Bson::Int32(1), Bson::Null])],
        vec![Bson::Array(vec![Bson::Int32(2)])],
        vec![Bson::Binary(bson::Binary { subtype: 0x80.into(), bytes: vec![] })],
        vec![Bson::Binary(bson::Binary { subtype: 0.into(), bytes: vec![9] })],
        vec![Bson::Binary(bson::Binary { subtype: 5.into(), bytes: vec![1] })],
        vec![Bson::Binary(bson::Binary { subtype: 0.into(), bytes: vec![0, 0] })],
        vec![Bson::Binary(bson::Binary { subtype: 0.into(), bytes: vec![0; 254] })],
        vec![Bson::Binary(bson::Binary { subtype: 0.into(), bytes: vec![0; 255] })],
        vec![Bson::ObjectId(bson::oid::ObjectId::from_bytes([0; 12]))],
        vec![Bson::ObjectId(bson::oid::ObjectId::from_bytes([1; 12]))],
        vec![Bson::Boolean(false)],
        vec![Bson::Boolean(true)],
        vec![Bson::DateTime(bson::DateTime::from_millis(i64::MIN))],
        vec![Bson::DateTime(bson::DateTime::from_millis(-1))],
        vec![Bson::DateTime(bson::DateTime::from_millis(0))],
        vec![Bson::Timestamp(bson::Timestamp { time: 0, increment: 5 })],
        vec![Bson::Timestamp(bson::Timestamp { time: 1, increment: 0 })],
        vec![regex("a", "")],
        vec![regex("a", "i")],
        vec![regex("b", "")],
        vec![Bson::JavaScriptCode("f".into())],
        vec![Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope {
            code: "a".into(),
            scope: doc! { "z": 1 },
        })],
        vec![Bson::MaxKey],
    ]
}

fn regex(pattern: &str, options: &str) -> Bson {
    Bson::RegularExpression(bson::Regex {
        pattern: pattern.to_owned().try_into().unwrap(),
        options: options.to_owned().try_into().unwrap(),
    })
}

#[test]
fn the_ladder_stands_in_memory_order() {
    let rungs = ladder();
    for (i, low) in rungs.iter().enumerate() {
        for (j, high) in rungs.iter().enumerate() {
            for (a, b) in low.iter().flat_map(|a| high.iter().map(move |b| (a, b))) {
                assert_eq!(key(a.clone()).cmp(&key(b.clone())), i.cmp(&j), "{a:?} against {b:?}");
            }
        }
    }
}

#[test]
fn keys_agree_with_the_comparison_of_query() {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random);
    println!("SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let values: Vec<_> = (0..600).map(|_| raw(any_value(&mut rng, 3))).collect();
    for a in &values {
        for b in &values {
            let (a, b) = (first(a), first(b));
            let want = compare_values(a, b, None);
            let (ka, kb) = (encode(a).unwrap(), encode(b).unwrap());
            assert_eq!(ka.cmp(&kb), want, "{a:?} against {b:?}, SEED={seed}");
            if want != Ordering::Equal {
                assert!(!ka.starts_with(&kb) && !kb.starts_with(&ka), "K2: {a:?}, {b:?}");
                let (mut da, mut db) = (Vec::new(), Vec::new());
                append(&mut da, a, true, None).unwrap();
                append(&mut db, b, true, None).unwrap();
                assert_eq!(da.cmp(&db), want.reverse(), "K3: {a:?} against {b:?}, SEED={seed}");
            }
        }
    }
}

/// Compound keys sort correctly, whatever follows the end of a string.
#[test]
fn components_do_not_run_into_each_other() {
    let texts = ["", "\0", "a", "a\0", "a\0\u{1}", "ab", "b"];
    for (a, b) in texts.iter().flat_map(|a| texts.iter().map(move |b| (a, b))) {
        for (desc_a, desc_b) in [(false, true), (true, false), (true, true), (false, false)] {
            for tail in [Value::MinKey, Value::MaxKey, Value::Int32(-1)] {
                let build = |text: &str, tail| {
                    let mut out = Vec::new();
                    append(&mut out, Value::String(text.as_bytes()), desc_a, None).unwrap();
                    append(&mut out, tail, desc_b, None).unwrap();
                    out
                };
                let want = if desc_a { b.cmp(a) } else { a.cmp(b) };
                for other in [Value::MinKey, Value::MaxKey] {
                    let got = build(a, tail).cmp(&build(b, other));
                    if want != Ordering::Equal {
                        assert_eq!(got, want, "{a:?} {b:?} {desc_a} {desc_b}");
                    }
                }
            }
        }
    }
}

/// The end of a component is found, whatever follows it.
#[test]
fn the_end_of_a_component_is_found() {
    let mut rng = StdRng::seed_from_u64(7);
    let random = (0..2_000).map(|_| any_value(&mut rng, 3));
    let values: Vec<Bson> = ladder().into_iter().flatten().chain(random).collect();
    for value in values {
        let doc = raw(value.clone());
        for descending in [false, true] {
            let mut key = Vec::new();
            append(&mut key, first(&doc), descending, None).unwrap();
            let len = key.len();
            key.extend_from_slice(&[0, 0xFF, 7]);
            assert_eq!(component_len(&key, descending), Some(len), "{value:?} {descending}");
        }
    }
}

#[test]
fn common_keys_are_short() {
    assert_eq!(key(7).len(), 3);
    assert_eq!(key(1_700_000_000_000i64).len(), 8);
    assert_eq!(key(bson::oid::ObjectId::new()).len(), 13);
    assert_eq!(key("abc").len(), 6);
}

#[test]
fn a_bottomless_document_is_refused() {
    let mut deep = doc! {};
    for _ in 0..DEPTH_MAX + 5 {
        deep = doc! { "a": deep };
    }
    let deep = bson::RawDocumentBuf::try_from(&deep).unwrap();
    assert!(matches!(
        encode(Value::Document(deep.as_bytes())),
        Err(StorageError::BadDocument { .. })
    ));
}

fn any_value(rng: &mut StdRng, depth: u32) -> Bson {
    match rng.random_range(0..if depth == 0 { 12 } else { 15 }) {
        0..=4 => any_number(rng),
        5 | 6 => Bson::String(any_text(rng)),
        7 => Bson::Null,
        8 => Bson::Boolean(rng.random()),
        9 => Bson::DateTime(bson::DateTime::from_millis(rng.random())),
        10 => Bson::ObjectId(bson::oid::ObjectId::from_bytes([rng.random_range(0..3); 12])),
        11 => Bson::Binary(bson::Binary {
            subtype: rng.random_range(0..3u8).into(),
            bytes: vec![rng.random(); rng.random_range(0..4)],
        }),
        12 | 13 => Bson::Document(
            (0..rng.random_range(0..3))
                .map(|_| (any_name(rng), any_value(rng, depth - 1)))
                .collect(),
        ),
        _ => Bson::Array((0..rng.random_range(0..3)).map(|_| any_value(rng, depth - 1)).collect()),
    }
}

fn any_name(rng: &mut StdRng) -> String {
    ["", "a", "b", "ab"][rng.random_range(0..4)].to_owned()
}

fn any_text(rng: &mut StdRng) -> String {
    (0..rng.random_range(0..4)).map(|_| ['\0', 'a', 'b', 'ß'][rng.random_range(0..4)]).collect()
}

/// Numbers that are likely to be equal or close: small ones, powers of two and ten in every type, and their
/// neighbours.
fn any_number(rng: &mut StdRng) -> Bson {
    match rng.random_range(0..6) {
        0 => Bson::Int32(rng.random_range(-300..300)),
        1 => Bson::Int64((1i64 << rng.random_range(0..63)) + rng.random_range(-2..=2)),
        2 => Bson::Double(f64::from_bits(rng.random())),
        3 => {
            let base = 2f64.powi(rng.random_range(-60..70));
            Bson::Double([base, base.next_up(), base.next_down(), -base][rng.random_range(0..4)])
        }
        4 => {
            let base: f64 = format!("{}e{}", rng.random_range(1..200), rng.random_range(-30..30))
                .parse()
                .unwrap();
            decimal_near(base, rng.random_range(-1..=1))
        }
        _ => {
            let limit = 10u128.pow(rng.random_range(1..34));
            let sign = if rng.random() { "-" } else { "" };
            decimal(&format!("{sign}{}E{}", rng.random_range(0..limit), rng.random_range(-40..40)))
        }
    }
}

/// A decimal equal to, just below or just above a double.
fn decimal_near(base: f64, step: i128) -> Bson {
    let text = format!("{base:.33e}");
    let (digits, exponent) = text.split_once('e').unwrap();
    let digits: i128 = digits.replace('.', "").parse().unwrap();
    let exponent: i32 = exponent.parse::<i32>().unwrap() - 33;
    decimal(&format!("{}E{exponent}", (digits + step).min(10i128.pow(34) - 1)))
}

#[test]
fn numbers_can_be_read_back() {
    let mut rng = StdRng::seed_from_u64(11);
    let mut numbers =
        vec![0.0, 1.0, 0.75, 1.1, 0.666_666_666_666_666_6, 255.0, 256.5, 99_999.3, 1e19, 1e300];
    numbers.extend((0..2000).map(|_| rng.random::<f64>() * 10f64.powi(rng.random_range(-5..22))));
    for n in numbers.into_iter().flat_map(|n| [n, -n]) {
        let mut key = encode(Value::Double(n)).unwrap();
        key.extend_from_slice(b"\x70after");
        assert_eq!(read_number(&key), Some(n), "{n}");
    }
    assert_eq!(read_number(&encode(Value::Double(f64::NAN)).unwrap()), None);
    assert_eq!(read_number(&encode(Value::Null).unwrap()), None);
    assert_eq!(read_number(&[0x2F, 1]), None);
}

/// Components decode to the same value and type, bit for bit, or to `Unknown` where that is expected.
#[test]
fn components_give_back_their_values() {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random);
    println!("SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let random = (0..5_000).map(|_| any_value(&mut rng, 2));
    let values: Vec<_> = ladder().into_iter().flatten().chain(random).map(raw).collect();
    for three in values.windows(3) {
        let descending: [bool; 3] = rng.random();
        let (mut key, mut marks) = (Vec::new(), Marks::NONE);
        for (at, (value, descending)) in three.iter().zip(descending).enumerate() {
            append(&mut key, first(value), descending, None).unwrap();
            marks.note(at, first(value));
        }
        let stored: Vec<u8> = marks.bytes().collect();
        assert!(stored.len() <= 1);
        key.extend_from_slice(b"record");
        let mut known = Components::new(&key, Marks::parse(&stored));
        let mut unknown = Components::new(&key, Marks::NONE);
        for (value, descending) in three.iter().zip(descending) {
            check(first(value), &known.next(descending).unwrap(), false);
            check(first(value), &unknown.next(descending).unwrap(), true);
        }
    }
}

fn check(value: Value<'_>, component: &Component, by_older_program: bool) {
    let looks = match value {
        Value::Decimal(_)
        | Value::Symbol(_)
        | Value::Document(_)
        | Value::Array(_)
        | Value::CodeWithScope { .. } => true,
        Value::Double(n) => n.is_nan() || n == 0.0 && n.is_sign_negative() || by_older_program,
        Value::Int32(_) | Value::Int64(_) | Value::String(_) => by_older_program,
        _ => false,
    };
    match component {
        Component::Unknown => assert!(looks, "{value:?} is not known"),
        Component::Value(found) => {
            assert!(!looks, "{value:?} was read as {found:?}");
            let bytes = |value: Value<'_>| {
                let mut out = vec![value.type_byte()];
                value.append_to(&mut out);
                out
            };
            assert_eq!(bytes(found.get()), bytes(value), "{value:?} became {found:?}");
        }
    }
}

/// An index has up to 32 fields.
#[test]
fn marks_of_the_last_of_many_fields_are_kept() {
    let mut marks = Marks::NONE;
    marks.note(31, Value::Int64(1));
    marks.note(32, Value::Int64(1));
    let bytes: Vec<u8> = marks.bytes().collect();
    assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 0x80]);
    assert_eq!(Marks::parse(&bytes), marks);
    assert_eq!(Marks::NONE.bytes().count(), 0);
}
