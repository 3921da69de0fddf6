//! Compares key generation and hashing with a mongod 8.2, whose answers are in `testdata/`.
//!
//! `keygen.json` was made by inserting each document alone under each index and asking for the number of keys
//! (`validate`), the first and the last key (`returnKey`, which shows undefined as null) and `multiKeyPaths`
//! (`explain`); `hash.json` by `$toHashedIndexKey`.

use bson::{Bson, Document, RawDocumentBuf, doc};
use query::value::{Elements, Value, hash64};

use super::keygen::{Key, KeyGen};
use crate::keystring;

fn cases(text: &str) -> Vec<Document> {
    serde_json::from_str(text).unwrap()
}

fn raw(doc: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(doc).unwrap()
}

fn bytes(keys: Vec<Key>) -> Vec<Vec<u8>> {
    keys.into_iter().map(|key| key.bytes).collect()
}

#[test]
fn keys_are_those_of_a_mongod() {
    let mut checked = 0;
    for case in cases(include_str!("testdata/keygen.json")) {
        let pattern = case.get_document("pattern").unwrap();
        let sparse = case.get_bool("sparse").unwrap();
        let doc = raw(case.get_document("doc").unwrap());
        let spec = raw(&doc! { "key": pattern.clone(), "name": "x", "sparse": sparse });
        let keys = KeyGen::new(&spec, None).keys(&doc).unwrap();
        if case.contains_key("error") {
            assert!(keys.keys.is_empty(), "mongod refuses {case}");
            continue;
        }
        let count =
            case.get("count").and_then(|n| n.as_i64().or(n.as_i32().map(i64::from))).unwrap();
        assert_eq!(keys.keys.len() as i64, count, "{case}");
        for (name, found) in [("low", keys.keys.first()), ("high", keys.keys.last())] {
            let Some(Bson::Array(values)) = case.get(name) else { continue };
            let wanted = possible(pattern, values);
            assert!(wanted.contains(&found.unwrap().bytes), "{name} of {case}");
        }
        if let Ok(paths) = case.get_document("multikey") {
            let wanted: Vec<Vec<u32>> = paths.values().map(components).collect();
            let none = vec![Vec::new(); wanted.len()];
            let found = if keys.multikey.is_empty() { &none } else { &keys.multikey };
            // A superset of mongod's multikey paths is acceptable: too many paths only cost a plan, too few give
            // wrong results.
            for (wanted, found) in wanted.iter().zip(found) {
                assert!(wanted.iter().all(|at| found.contains(at)), "{found:?} for {case}");
            }
        }
        checked += 1;
    }
    assert!(checked > 500, "{checked}");
}

/// `wildcard.json` was made in the same way, by `validate` alone, which also counts the keys for multikey paths.
#[test]
fn wildcard_keys_are_as_many_as_a_mongod_has() {
    for case in cases(include_str!("testdata/wildcard.json")) {
        let mut spec = doc! { "key": case.get_document("pattern").unwrap().clone(), "name": "w" };
        if let Some(projection) = case.get("projection") {
            spec.insert("wildcardProjection", projection.clone());
        }
        let doc = raw(case.get_document("doc").unwrap());
        let keys = KeyGen::new(&raw(&spec), None).keys(&doc).unwrap();
        let count = case.get_i32("count").unwrap_or(0);
        assert_eq!(keys.keys.len(), usize::try_from(count).unwrap(), "{case}");
    }
}

#[test]
fn wildcard_keys_hold_path_and_value() {
    let keys = |spec: Document, of: Document| {
        bytes(KeyGen::new(&raw(&spec), None).keys(&raw(&of)).unwrap().keys)
    };
    let key = |values: &[(Bson, bool)]| {
        let mut out = Vec::new();
        for (value, descending) in values {
            let holder = raw(&doc! { "": value.clone() });
            let value = Elements::new(&holder).next().unwrap().value();
            keystring::append(&mut out, value, *descending, None).unwrap();
        }
        out
    };
    let up = |value: Bson| (value, false);
    let found = keys(doc! { "key": { "$**": -1 } }, doc! { "_id": 1, "a": { "b": 5 }, "c.d": 1 });
    assert_eq!(found, [key(&[up("a.b".into()), (5.into(), true)])]);
    let found = keys(
        doc! { "key": { "t": 1, "$**": 1 }, "wildcardProjection": { "t": 0 } },
        doc! { "_id": 1, "t": 7, "a": [3] },
    );
    let array = key(&[up(Bson::MinKey), up(1.into()), up("a".into())]);
    assert_eq!(found, [array, key(&[up(7.into()), up("a".into()), up(3.into())])]);
}

/// A path's last component as an index: for "a.b" it is 1.
fn components(paths: &Bson) -> Vec<u32> {
    let paths = paths.as_array().unwrap().iter();
    paths.map(|path| u32::try_from(path.as_str().unwrap().matches('.').count()).unwrap()).collect()
}

/// The possible keys of these values: each null may also be undefined.
fn possible(pattern: &Document, values: &[Bson]) -> Vec<Vec<u8>> {
    let mut out = vec![Vec::new()];
    for (direction, value) in pattern.values().zip(values) {
        let descending = !matches!(direction, Bson::Int32(1..) | Bson::Int64(1..));
        let holder = raw(&doc! { "": value.clone() });
        let value = Elements::new(&holder).next().unwrap().value();
        let mut choices = vec![value];
        if matches!(value, Value::Null) {
            choices.push(Value::Undefined);
        }
        out = out
            .iter()
            .flat_map(|key| choices.iter().map(move |choice| (key.clone(), *choice)))
            .map(|(mut key, choice)| {
                keystring::append(&mut key, choice, descending, None).unwrap();
                key
            })
            .collect();
    }
    out
}

#[test]
fn hashes_are_those_of_a_mongod() {
    for case in cases(include_str!("testdata/hash.json")) {
        let holder = raw(&doc! { "": case.get("v").unwrap().clone() });
        let value = Elements::new(&holder).next().unwrap().value();
        let wanted = case.get("h").unwrap();
        let wanted = wanted.as_i64().or(wanted.as_i32().map(i64::from)).unwrap();
        assert_eq!(hash64(value), wanted, "{case}");
    }
}

#[test]
fn a_text_index_has_a_key_for_each_term_between_its_plain_fields() {
    let spec = raw(&doc! {
        "v": 2, "name": "t", "key": { "p": -1, "_fts": "text", "_ftsx": 1, "s.x": 1 },
        "weights": { "a": 2, "b": 1 }, "default_language": "english", "language_override": "language",
        "textIndexVersion": 3,
    });
    let keygen = KeyGen::new(&spec, None);
    let keys = |of: Document| keygen.keys(&raw(&of)).unwrap();
    let key = |values: &[Value<'_>]| {
        let mut out = Vec::new();
        for (at, value) in values.iter().enumerate() {
            keystring::append(&mut out, *value, at == 0, None).unwrap();
        }
        out
    };
    let (p, s) = (Value::Int32(7), Value::String(b"q"));
    let mut wanted = vec![
        // The term occurs twice in one field, once in the other.
        key(&[
            p,
            Value::String(b"dog"),
            Value::Double(2.0 * 1.5 * (0.5 * 2.0 / 3.0 + 0.5) + 1.1),
            s,
        ]),
        key(&[p, Value::String(b"run"), Value::Double(2.0 * (0.5 / 3.0 + 0.5)), s]),
    ];
    wanted.sort();
    let found =
        keys(doc! { "p": 7, "s": { "x": "q" }, "a": "The dogs are running, dog!", "b": "Dog" });
    assert_eq!(bytes(found.keys), wanted);
    assert_eq!(found.multikey, [vec![], vec![0], vec![], vec![]]);
    let (null, one) = (Value::Null, Value::Double(1.1 * 2.0));
    let found = keys(doc! { "a": "x" });
    assert_eq!(bytes(found.keys), [key(&[null, Value::String(b"x"), one, null])]);
    assert!(found.multikey.is_empty());
    assert!(keys(doc! { "p": [1], "a": "x" }).keys.is_empty());
    assert!(keys(doc! { "p": 1, "a": 5, "c": "x" }).keys.is_empty());
}
