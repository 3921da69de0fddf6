//! Key generation and hashing against what a mongod 8.2 answered: `testdata/` holds its words.
//!
//! `keygen.json` was made by inserting each document alone under each index and asking for the number of keys
//! (`validate`), the first and the last key (`returnKey`, which shows undefined as null) and `multiKeyPaths`
//! (`explain`); `hash.json` by `$toHashedIndexKey`.

use bson::{Bson, Document, RawDocumentBuf, doc};
use query::value::{Elements, Value};

use super::{hash::hash64, keygen::KeyGen};
use crate::keystring;

fn cases(text: &str) -> Vec<Document> {
    serde_json::from_str(text).unwrap()
}

fn raw(doc: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(doc).unwrap()
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
            assert!(wanted.contains(found.unwrap()), "{name} of {case}");
        }
        if let Ok(paths) = case.get_document("multikey") {
            let wanted: Vec<Vec<u32>> = paths.values().map(components).collect();
            let none = vec![Vec::new(); wanted.len()];
            let found = if keys.multikey.is_empty() { &none } else { &keys.multikey };
            // To know of more arrays than mongod does costs a plan, to know of fewer an answer.
            for (wanted, found) in wanted.iter().zip(found) {
                assert!(wanted.iter().all(|at| found.contains(at)), "{found:?} for {case}");
            }
        }
        checked += 1;
    }
    assert!(checked > 500, "{checked}");
}

/// "a.b" is the second component: 1.
fn components(paths: &Bson) -> Vec<u32> {
    let paths = paths.as_array().unwrap().iter();
    paths.map(|path| u32::try_from(path.as_str().unwrap().matches('.').count()).unwrap()).collect()
}

/// The key of these values, with every null also as undefined.
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
