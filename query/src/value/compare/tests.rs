use super::*;
use crate::{testdata, value::Elements};

/// Every pair of some 200 values compares as mongod's sort ordered them.
#[test]
fn values_are_ordered_as_mongod_sorts_them() {
    let docs = testdata::read("compare.bson");
    let ranked: Vec<(i32, Value<'_>)> = docs
        .iter()
        .map(|doc| (doc.get_i32("rank").unwrap(), Elements::new(doc).find(b"v").unwrap().value()))
        .collect();
    let mut wrong = Vec::new();
    for (rank_a, a) in &ranked {
        for (rank_b, b) in &ranked {
            if compare_values(*a, *b, None) != rank_a.cmp(rank_b) {
                wrong.push(format!("{a:?} ({rank_a}) with {b:?} ({rank_b})"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong: {:#?}",
        wrong.len(),
        wrong.iter().take(20).collect::<Vec<_>>()
    );
}

#[test]
fn references_of_the_driver_compare_like_values() {
    for doc in testdata::read("compare.bson") {
        let Ok(Some(value)) = doc.get("v") else { continue };
        assert_eq!(compare(value, value), Ordering::Equal);
        assert_ne!(compare(value, RawBsonRef::String("no such text")), Ordering::Equal);
    }
}

#[test]
fn documents_compare_type_then_name_then_value() {
    let order = |a: bson::RawDocumentBuf, b: bson::RawDocumentBuf| compare_docs(&a, &b);
    use bson::rawdoc;
    assert_eq!(order(rawdoc! { "b": 1 }, rawdoc! { "a": "x" }), Ordering::Less);
    assert_eq!(order(rawdoc! { "b": 1 }, rawdoc! { "a": 2 }), Ordering::Greater);
    assert_eq!(order(rawdoc! { "a": 1 }, rawdoc! { "a": 1, "b": 1 }), Ordering::Less);
    assert_eq!(order(rawdoc! {}, rawdoc! {}), Ordering::Equal);
}
