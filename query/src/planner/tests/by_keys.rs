//! Covered plans return the same results for every batch size.

use super::*;
use crate::{exec::Examined, planner::Values};

/// Numbers of three types in two fields, some missing, and one field that is not indexed.
fn source() -> MemorySource {
    let docs = (0..60).map(|n| match n % 4 {
        0 => rawdoc! { "_id": n, "a": n % 3, "b": n % 5, "z": n },
        1 => rawdoc! { "_id": n, "a": i64::from(n % 3), "b": f64::from(n % 5), "z": n },
        2 => rawdoc! { "_id": n, "a": n % 3, "z": n },
        _ => rawdoc! { "_id": n, "a": f64::from(n % 3), "b": "text", "z": n },
    });
    MemorySource::new(docs.collect(), &[rawdoc! { "a": 1, "b": -1 }])
}

fn request(filter: RawDocumentBuf) -> Request {
    Request::new(Matcher::parse(&filter, &ParseContext::default()).unwrap())
}

/// All rows, in batches of this size, and what was examined.
fn rows(request: &Request, batch: usize) -> (Vec<String>, Examined) {
    let (source, context) = (source(), Context::default());
    let (mut pipeline, _) = plan(request.clone(), &source, &context).unwrap();
    let mut rows = Vec::new();
    loop {
        let mut input = Input::new(&source, &context);
        for _ in 0..batch {
            match pipeline.next(&mut input).unwrap() {
                Some(doc) => rows.push(Shown(Value::from(&*doc)).to_string()),
                None => return (rows, pipeline.examined()),
            }
        }
    }
}

/// Checks that batches of any size give the same rows.
fn in_any_batches(request: &Request) -> (Vec<String>, Examined) {
    let whole = rows(request, usize::MAX);
    for batch in [1, 2, 7] {
        assert_eq!(rows(request, batch), whole, "in batches of {batch}");
    }
    whole
}

#[test]
fn covered_rows_are_made_of_keys() {
    let mut request = request(rawdoc! { "a": { "$gte": 1 } });
    request.needed = Some(vec![b"b".to_vec()]);
    let (found, examined) = in_any_batches(&request);
    assert_eq!(examined, Examined { keys: 40, docs: 0, given: 40 });
    assert!(found.iter().any(|row| row.contains("b: null")), "{found:?}");
}

#[test]
fn a_key_that_does_not_match_leaves_its_document_alone() {
    let (found, examined) = in_any_batches(&request(rawdoc! { "a": 1, "b": { "$mod": [5, 2] } }));
    let wanted = found.len() as u64;
    assert!(wanted > 0 && examined.keys > wanted);
    assert_eq!((examined.docs, examined.given), (wanted, wanted));
}

#[test]
fn values_are_found_from_key_to_key() {
    let mut request = request(rawdoc! { "a": { "$lt": 2 } });
    request.needed = Some(vec![b"a".to_vec()]);
    let values = Values { path: b"a".to_vec(), once: false, of_all: false, collation: None };
    request.distinct = Some(values);
    let (found, examined) = in_any_batches(&request);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(examined.docs, 0);
    // After a range, each value of the second field may occur once for each value of the first.
    request.needed = Some(vec![b"b".to_vec()]);
    let values = Values { path: b"b".to_vec(), once: false, of_all: false, collation: None };
    request.distinct = Some(values.clone());
    let twice = in_any_batches(&request).0.len();
    request.distinct = Some(Values { once: true, ..values });
    assert!(twice < in_any_batches(&request).0.len());
}

#[test]
fn keys_are_sorted_before_documents_are_fetched() {
    let mut request = request(rawdoc! { "a": { "$gte": 1 } });
    request.sort = Some(SortPattern::parse(&rawdoc! { "b": 1 }, None).unwrap());
    (request.skip, request.limit) = (2, Some(5));
    let (found, examined) = in_any_batches(&request);
    assert_eq!((found.len(), examined.docs), (5, 5));
    // The same without an index.
    request.natural = Some(Direction::Forward);
    let b = |rows: &[String]| {
        let value = |row: &String| row.split("b: ").nth(1).map(|b| b[..1].to_owned());
        rows.iter().map(value).collect::<Vec<_>>()
    };
    assert_eq!(b(&found), b(&in_any_batches(&request).0));
}

/// An array inserted between two batches has keys for its elements, which must not be returned as values.
#[test]
fn documents_stand_for_keys_with_arrays_that_came_later() {
    let index = [rawdoc! { "a": 1 }];
    let of = |first: i32| (first..6).map(|n| rawdoc! { "_id": n, "a": n });
    let before = MemorySource::new(of(0).collect(), &index);
    let array = rawdoc! { "_id": 0, "a": [0, 100] };
    let after = MemorySource::new([array].into_iter().chain(of(1)).collect(), &index);
    let mut request = request(rawdoc! { "a": { "$gte": 0 } });
    request.needed = Some(vec![b"a".to_vec()]);
    let context = Context::default();
    let (mut pipeline, chosen) = plan(request, &before, &context).unwrap();
    assert!(chosen.covers);
    let mut input = Input::new(&after, &context);
    let doc = pipeline.next(&mut input).unwrap().unwrap();
    assert_eq!(Shown(Value::from(&*doc)).to_string(), "{ _id: 0, a: [ 0, 100 ] }");
    assert_eq!(pipeline.examined().docs, 1);
}

/// The rows of a plan that was made before the collection changed.
fn rows_after(request: Request, before: &MemorySource, after: &MemorySource) -> Vec<String> {
    let context = Context::default();
    let (mut pipeline, chosen) = plan(request, before, &context).unwrap();
    assert!(matches!(chosen.access, Access::Indexes(_)));
    let mut input = Input::new(after, &context);
    let rows = std::iter::from_fn(|| pipeline.next(&mut input).unwrap());
    rows.map(|doc| Shown(Value::from(&*doc)).to_string()).collect()
}

/// If an array appears on the path, the filter on keys is applied to the document instead.
#[test]
fn a_document_is_not_lost_by_an_array_above_its_value() {
    let index = [rawdoc! { "a.b": 1 }];
    let plain = rawdoc! { "_id": 1, "a": { "b": "2x" } };
    let array = rawdoc! { "_id": 1, "a": [{ "b": "2x" }] };
    let before = MemorySource::new(vec![plain], &index);
    let after = MemorySource::new(vec![array], &index);
    let inner = rawdoc! { "a.b": { "$regex": "x" } };
    assert_eq!(rows_after(request(inner), &before, &after).len(), 1);
}

/// Bounds that decided the filter without arrays no longer do so with arrays.
#[test]
fn a_document_that_never_matched_is_not_given() {
    let index = [rawdoc! { "a": 1 }];
    let docs = |x: RawDocumentBuf| vec![rawdoc! { "_id": 0, "a": 1 }, x];
    let before = MemorySource::new(docs(rawdoc! { "_id": 1, "a": 5 }), &index);
    let after = MemorySource::new(docs(rawdoc! { "_id": 1, "a": [5, 7] }), &index);
    for needed in [None, Some(vec![b"a".to_vec()])] {
        for skip in [0, 1] {
            let needed = needed.clone();
            let request = Request { needed, skip, ..request(rawdoc! { "a": { "$ne": 5 } }) };
            let rows = rows_after(request, &before, &after);
            assert_eq!(rows.len(), usize::from(skip == 0), "{rows:?}");
        }
    }
}

/// The same for keys that are sorted before documents are fetched.
#[test]
fn a_document_that_never_matched_is_not_sorted_in() {
    let index = [rawdoc! { "a": 1, "b": 1 }];
    let docs = |x: RawDocumentBuf| vec![rawdoc! { "_id": 0, "a": 1, "b": 2 }, x];
    let before = MemorySource::new(docs(rawdoc! { "_id": 1, "a": 5, "b": 1 }), &index);
    let after = MemorySource::new(docs(rawdoc! { "_id": 1, "a": [5, 7], "b": 1 }), &index);
    let mut request = request(rawdoc! { "a": { "$ne": 5 } });
    request.sort = Some(crate::sort::SortPattern::parse(&rawdoc! { "b": 1 }, None).unwrap());
    let rows = rows_after(request, &before, &after);
    assert_eq!(rows.len(), 1, "{rows:?}");
}

/// An index may contain both a path and its parent.
#[test]
fn a_value_is_not_hidden_by_what_is_below_it() {
    let docs = vec![
        rawdoc! { "_id": 1, "a": { "b": 1, "c": 2 } },
        rawdoc! { "_id": 2, "a": { "b": 1, "c": 9 } },
        rawdoc! { "_id": 3, "a": "xyz" },
    ];
    let source = MemorySource::new(docs, &[rawdoc! { "a.b": 1, "a": 1 }]);
    let context = Context::default();
    let rows = |request: Request| {
        let (mut pipeline, _) = plan(request, &source, &context).unwrap();
        let mut input = Input::new(&source, &context);
        let rows = std::iter::from_fn(|| pipeline.next(&mut input).unwrap());
        rows.map(|doc| Shown(Value::from(&*doc)).to_string()).collect::<Vec<_>>()
    };
    let mut sorted = request(rawdoc! { "a.b": { "$gte": 1 } });
    sorted.sort = Some(crate::sort::SortPattern::parse(&rawdoc! { "a": -1 }, None).unwrap());
    let found = rows(sorted);
    assert!(found.first().is_some_and(|row| row.contains("_id: 2")), "{found:?}");
    let pattern = rawdoc! { "a.b": { "$exists": false }, "a": { "$regex": "y" } };
    assert_eq!(rows(request(pattern)).len(), 1);
    let shown = Request { needed: Some(vec![b"a".to_vec()]), ..request(rawdoc! { "a.b": 1 }) };
    assert!(rows(shown).iter().all(|row| row.contains("c: ")));
}

/// An interval that excludes MinKey or MaxKey is not "all values".
#[test]
fn an_end_that_is_left_out_is_left_out() {
    let values = [bson::RawBson::MinKey, bson::RawBson::Int32(1), bson::RawBson::MaxKey];
    let docs = values.into_iter().enumerate().map(|(n, a)| {
        let mut doc = rawdoc! { "_id": i32::try_from(n).unwrap() };
        doc.append(bson::raw::cstr!("a"), a);
        doc
    });
    let source = MemorySource::new(docs.collect(), &[rawdoc! { "a": 1 }]);
    let count = |filter: RawDocumentBuf| {
        let request = Request { counts: true, ..request(filter) };
        let context = Context::default();
        let (mut pipeline, chosen) = plan(request, &source, &context).unwrap();
        assert!(chosen.settled);
        let mut input = Input::new(&source, &context);
        std::iter::from_fn(|| pipeline.next(&mut input).unwrap()).count()
    };
    assert_eq!(count(rawdoc! { "a": { "$gt": bson::RawBson::MinKey } }), 2);
    assert_eq!(count(rawdoc! { "a": { "$lt": bson::RawBson::MaxKey } }), 2);
    assert_eq!(count(rawdoc! { "a": { "$gte": bson::RawBson::MinKey } }), 3);
    assert_eq!(count(rawdoc! { "a": { "$gt": bson::RawBson::MaxKey } }), 0);
}
