//! Invariants for arbitrary bytes: the bodies of the fuzz targets, also run by a seeded test without a fuzzer.

use std::cmp::Ordering;

use bson::{RawDocument, rawdoc};
use protocol::{Timestamp, check_bson};
use query::value::{Elements, Value, compare_values};

use crate::{
    catalog::{Collection, collator},
    count_log::CountLog,
    engine::Slice,
    index::{
        entry,
        keygen::{Key, KeyGen},
    },
    keystring::{self, Component, Components, Marks},
    layout::split_history_key,
    mvcc::Version,
    rollback::read_undo,
    store::Counts,
};

/// Decodes arbitrary bytes as each kind of row: accepted or refused, never reading beyond the end.
pub fn rows(data: &[u8]) {
    let _ = split_history_key(data);
    let _ = Counts::parse(data);
    let mut undo = crate::layout::Reader(data);
    while read_undo(&mut undo).is_some() {}
    let Ok(version) = Version::parse(Slice::from(data)) else { return };
    assert!(version.payload().len() < data.len());
    assert!(version.full_key().is_none_or(|key| key.len() < data.len()));
    assert!(version.way_back(Timestamp::NULL) <= version.start());
    let _ = (version.effective(), version.birth());
    let _ = Collection::from_row(&[7; 16], &version);
    let _ = CountLog::parse(&version, version.start());
    let _ = entry::split(&Slice::from(data), &version);
}

/// The KeyStrings of any document's fields sort like the values, and no key is a prefix of another.
pub fn order(data: &[u8]) {
    let Some(doc) = document(data) else { return };
    let values: Vec<_> = Elements::new(doc).take(8).map(|element| element.value()).collect();
    for a in &values {
        for b in &values {
            let (Ok(a_key), Ok(b_key)) = (keystring::encode(*a), keystring::encode(*b)) else {
                continue;
            };
            assert_eq!(a_key.cmp(&b_key), compare_values(*a, *b, None), "{a:?} and {b:?}");
            assert!(a_key == b_key || !b_key.starts_with(&a_key), "{a:?} within {b:?}");
        }
    }
}

/// The keys of any document in an index of any kind are unique and sorted, and decode to the values they were made
/// from.
pub fn index_keys(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let Some(doc) = document(rest) else { return };
    let spec = match kind % 8 {
        0 => rawdoc! { "key": { "a": 1 } },
        1 => rawdoc! { "key": { "a.b": -1, "a.c": 1 } },
        2 => rawdoc! { "key": { "a": "hashed" } },
        3 => rawdoc! { "key": { "$**": 1 } },
        4 => rawdoc! { "key": { "a.$**": 1, "b": -1 } },
        5 => rawdoc! { "key": { "a.0.b": 1 }, "sparse": true },
        6 => rawdoc! { "key": { "a": 1 }, "partialFilterExpression": { "b": { "$gt": 3 } } },
        _ => rawdoc! { "key": { "a": 1, "b": 1 }, "collation": { "locale": "en", "strength": 2 } },
    };
    let Ok(found) = KeyGen::new(&spec, collator(&spec)).keys(doc) else { return };
    let ascending = found.keys.windows(2).all(|pair| match pair {
        [a, b] => a.bytes.cmp(&b.bytes) == Ordering::Less,
        _ => false,
    });
    assert!(ascending, "{:02x?}", found.keys);
    if matches!(kind % 8, 0 | 1 | 5 | 6) {
        found.keys.iter().for_each(|key| gives_back(key, kind % 8 == 1));
    }
    // Bytes that no index contains.
    let mut marks = Marks::NONE;
    marks.note(0, Elements::new(doc).next().map_or(Value::Null, |element| element.value()));
    let mut any = Components::new(rest, marks);
    while any.next(kind % 2 == 0).is_some() {}
}

/// Encoding the decoded values of a key gives the same key, as far as the key can be decoded.
fn gives_back(key: &Key, first_descends: bool) {
    let mut components = Components::new(&key.bytes, key.marks);
    let mut rest = key.bytes.as_slice();
    let mut descending = first_descends;
    while let Some(component) = components.next(descending) {
        let len = keystring::component_len(rest, descending).unwrap_or_default();
        let (own, others) = rest.split_at_checked(len).unwrap_or((rest, &[]));
        if let Component::Value(value) = component {
            let mut again = Vec::new();
            let made = keystring::append(&mut again, value.get(), descending, None);
            assert!(made.is_ok() && again == own, "{value:?} of {own:02x?}");
        }
        (rest, descending) = (others, false);
    }
}

/// A document that passes the check for incoming documents.
fn document(data: &[u8]) -> Option<&RawDocument> {
    check_bson(data).ok()?;
    RawDocument::from_bytes(data).ok()
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    use super::*;

    fn value(rng: &mut StdRng, depth: u32) -> bson::Bson {
        match rng.random_range(0..if depth == 0 { 9 } else { 11 }) {
            0 => bson::Bson::Int32(rng.random_range(-3..3)),
            1 => bson::Bson::Int64(rng.random()),
            2 => bson::Bson::Double(f64::from_bits(rng.random())),
            3 => bson::Bson::Decimal128(bson::Decimal128::from_bytes(rng.random())),
            4 => bson::Bson::String(["", "a", "a\0", "B", "é"][rng.random_range(0..5)].to_owned()),
            5 => bson::Bson::Null,
            6 => bson::Bson::Boolean(rng.random()),
            7 => bson::Bson::DateTime(bson::DateTime::from_millis(rng.random())),
            8 => bson::Bson::ObjectId(bson::oid::ObjectId::from_bytes(rng.random())),
            9 => bson::Bson::Array(
                (0..rng.random_range(0..4)).map(|_| value(rng, depth - 1)).collect(),
            ),
            _ => bson::Bson::Document(fields(rng, depth - 1)),
        }
    }

    fn fields(rng: &mut StdRng, depth: u32) -> bson::Document {
        let len = rng.random_range(0..5);
        let names = ["a", "b", "c", "0", "a.b"];
        (0..len).map(|_| (names[rng.random_range(0..5)].to_owned(), value(rng, depth))).collect()
    }

    /// Decodes valid documents, and the same with a few bytes changed or the end cut off.
    #[test]
    fn any_bytes_are_read_or_refused() {
        let seed = std::env::var("SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
        println!("SEED={seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        for _ in 0..20_000 {
            let doc = fields(&mut rng, 3).to_vec().unwrap();
            let mut data = [&[rng.random()][..], &doc].concat();
            for _ in 0..rng.random_range(0..3) {
                let at = rng.random_range(0..data.len());
                data[at] = rng.random();
            }
            if rng.random_range(0..10) == 0 {
                data.truncate(rng.random_range(0..data.len()));
            }
            rows(&data);
            index_keys(&data);
            order(data.get(1..).unwrap_or_default());
        }
    }
}
