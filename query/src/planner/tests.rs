use std::sync::Arc;

use bson::{RawDocumentBuf, rawdoc};

use super::*;
use crate::{
    collation::{CollationSpec, Collator},
    matcher::ParseContext,
    source::memory::{MemorySource, has_array},
    testdata,
    value::Elements,
};

mod by_keys;

fn fixture() -> (Vec<RawDocumentBuf>, Vec<RawDocumentBuf>) {
    let mut fixture = testdata::read("filters.bson").into_iter();
    let first = fixture.next().unwrap();
    let docs = Elements::of_bytes(first.get_array("docs").unwrap().as_bytes())
        .map(|e| RawDocument::from_bytes(e.value_bytes).unwrap().to_owned())
        .collect();
    let filters = fixture.map(|case| case.get_document("filter").unwrap().to_owned()).collect();
    (docs, filters)
}

fn run(request: Request, source: &MemorySource) -> (Vec<i32>, String) {
    let context = Context::default();
    let (mut pipeline, chosen) = plan(request, source, &context).unwrap();
    let mut input = Input::new(source, &context);
    let mut ids = Vec::new();
    while let Some(doc) = pipeline.next(&mut input).unwrap() {
        ids.push(doc.get_i32("_id").unwrap());
    }
    (ids, describe(&chosen.access, source.indexes()))
}

/// Q1: every plan returns the documents of a collection scan.
#[test]
fn every_plan_finds_what_a_collection_scan_finds() {
    let (docs, filters) = fixture();
    let patterns = [
        rawdoc! { "a": 1 },
        rawdoc! { "a.b": -1 },
        rawdoc! { "c": 1, "a": -1 },
        rawdoc! { "b": 1 },
    ];
    // Without parallel arrays, which cannot be indexed together.
    let docs: Vec<_> = docs
        .into_iter()
        .filter(|d| !(d.get_array("c").is_ok() && d.get_array("a").is_ok()))
        .collect();
    let plain = MemorySource::new(docs.clone(), &[]);
    let indexed = MemorySource::new(docs, &patterns);
    let mut by_index = 0;
    for filter in filters {
        let Ok(matcher) = Matcher::parse(&filter, &ParseContext::default()) else { continue };
        let (mut want, _) = run(
            Request { natural: Some(Direction::Forward), ..Request::new(matcher.clone()) },
            &plain,
        );
        let (mut got, how) = run(Request::new(matcher), &indexed);
        by_index += usize::from(how.starts_with("IXSCAN"));
        want.sort_unstable();
        got.sort_unstable();
        assert_eq!(got, want, "{} by {how}", Shown(Value::from(&*filter)));
    }
    assert!(by_index > 300, "only {by_index} filters used an index");
}

/// An index without a collation does not bound a query with one, neither within arrays nor negated.
#[test]
fn text_of_another_collation_does_not_bound_an_index() {
    let docs = [
        rawdoc! { "_id": 1, "a": ["Z"], "b": [{ "c": "Z" }], "d": "Z" },
        rawdoc! { "_id": 2, "a": ["a"], "b": [{ "c": "a" }], "d": "a" },
    ];
    let source = MemorySource::new(
        docs.to_vec(),
        &[rawdoc! { "a": 1 }, rawdoc! { "b.c": 1 }, rawdoc! { "d": 1 }],
    );
    let spec = CollationSpec::parse(&rawdoc! { "locale": "en" }).unwrap().unwrap();
    let parsing = ParseContext { collator: Some(Arc::new(Collator::new(spec).unwrap())) };
    for filter in [
        rawdoc! { "a": { "$elemMatch": { "$gt": "b" } } },
        rawdoc! { "b": { "$elemMatch": { "c": { "$gt": "b" } } } },
        rawdoc! { "d": { "$not": { "$lt": "b" } } },
    ] {
        let request = Request::new(Matcher::parse(&filter, &parsing).unwrap());
        let (got, how) = run(request, &source);
        assert_eq!(got, [1], "{} by {how}", Shown(Value::from(&*filter)));
    }
}

/// Counting keys without their documents gives the same result as a collection scan.
#[test]
fn counts_by_keys_are_those_of_a_collection_scan() {
    let (docs, filters) = fixture();
    let docs: Vec<_> = docs.into_iter().filter(|d| !has_array(d.as_bytes())).collect();
    let plain = MemorySource::new(docs.clone(), &[]);
    let indexed = MemorySource::new(
        docs,
        &[rawdoc! { "a": 1, "c": 1 }, rawdoc! { "c": -1 }, rawdoc! { "b": 1 }],
    );
    let context = Context::default();
    let count = |request: Request, source: &MemorySource| {
        let (mut pipeline, chosen) = plan(request, source, &context).unwrap();
        let mut input = Input::new(source, &context);
        let mut n = 0;
        while pipeline.next(&mut input).unwrap().is_some() {
            n += 1;
        }
        (n, chosen.settled)
    };
    let mut by_keys = 0;
    for filter in filters {
        let Ok(matcher) = Matcher::parse(&filter, &ParseContext::default()) else { continue };
        let (want, _) = count(Request::new(matcher.clone()), &plain);
        let (got, settled) = count(Request { counts: true, ..Request::new(matcher) }, &indexed);
        by_keys += usize::from(settled);
        assert_eq!(got, want, "{}", Shown(Value::from(&*filter)));
    }
    assert!(by_keys > 20, "only {by_keys} filters were settled by keys");
}

#[test]
fn an_index_that_holds_all_that_is_shown_gives_null_for_what_is_missing() {
    let docs = vec![rawdoc! { "_id": 1, "a": 1, "o": { "x": 2 } }, rawdoc! { "_id": 2, "a": 1 }];
    let source = MemorySource::new(docs, &[rawdoc! { "a": 1, "o.x": 1 }]);
    let context = Context::default();
    let filter = Matcher::parse(&rawdoc! { "a": 1 }, &ParseContext::default()).unwrap();
    let needed = Some(vec![b"o.x".to_vec()]);
    let request = Request { needed, ..Request::new(filter.clone()) };
    let (mut pipeline, _) = plan(request, &source, &context).unwrap();
    let mut input = Input::new(&source, &context);
    let mut shown = Vec::new();
    while let Some(doc) = pipeline.next(&mut input).unwrap() {
        shown.push(Shown(Value::from(&*doc)).to_string());
    }
    assert_eq!(shown, ["{ a: 1, o: { x: null } }", "{ a: 1, o: { x: 2 } }"]);
    assert_eq!(pipeline.examined(), crate::exec::Examined { keys: 2, docs: 0, given: 2 });
    // The index does not contain `_id`.
    let request = Request { needed: Some(vec![b"_id".to_vec()]), ..Request::new(filter) };
    assert!(!plan(request, &source, &context).unwrap().1.covers);
}

fn scalars(count: i32) -> MemorySource {
    let docs = (0..count)
        .map(|n| rawdoc! { "_id": n, "a": n * 7 % 11, "b": n % 5, "c": format!("s{}", n % 13) })
        .collect();
    MemorySource::new(docs, &[rawdoc! { "a": 1, "b": -1 }, rawdoc! { "c": 1 }])
}

fn request(filter: RawDocumentBuf, sort: RawDocumentBuf) -> Request {
    let filter = Matcher::parse(&filter, &ParseContext::default()).unwrap();
    Request { sort: Some(SortPattern::parse(&sort, None).unwrap()), ..Request::new(filter) }
}

/// Q2: an index that claims to provide an order returns what a sort would.
#[test]
fn an_index_gives_the_order_it_claims() {
    let source = scalars(200);
    let plain = MemorySource::new(
        (0..200)
            .map(|n| rawdoc! { "_id": n, "a": n * 7 % 11, "b": n % 5, "c": format!("s{}", n % 13) })
            .collect(),
        &[],
    );
    for (filter, sort, ordered) in [
        (rawdoc! {}, rawdoc! { "a": 1 }, true),
        (rawdoc! {}, rawdoc! { "a": -1, "b": 1 }, true),
        (rawdoc! {}, rawdoc! { "a": 1, "b": 1 }, false),
        (rawdoc! { "a": 3 }, rawdoc! { "b": 1 }, true),
        (rawdoc! { "a": { "$in": [3, 5] } }, rawdoc! { "a": 1, "b": -1 }, true),
        (rawdoc! { "a": { "$gt": 3 } }, rawdoc! { "b": 1 }, false),
        (rawdoc! { "c": { "$regex": "^s1" } }, rawdoc! { "c": -1 }, true),
    ] {
        let chosen = candidates(&request(filter.clone(), sort.clone()), source.indexes());
        assert_eq!(chosen.iter().any(|c| c.gives_order), ordered, "{filter:?} {sort:?}");
        let keys =
            |ids: Vec<i32>| ids.iter().map(|n| (n * 7 % 11, n % 5, n % 13)).collect::<Vec<_>>();
        let (got, _) = run(request(filter.clone(), sort.clone()), &source);
        let (want, _) = run(request(filter, sort.clone()), &plain);
        let parts: Vec<_> =
            sort.iter_elements().map(|e| e.unwrap().key().as_str().to_owned()).collect();
        let on = |k: &(i32, i32, i32)| {
            parts
                .iter()
                .map(|p| match p.as_str() {
                    "a" => k.0,
                    "b" => k.1,
                    _ => k.2,
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(
            keys(got).iter().map(on).collect::<Vec<_>>(),
            keys(want).iter().map(on).collect::<Vec<_>>()
        );
    }
}

#[test]
fn ranges_are_as_narrow_as_the_filter_allows() {
    let source = scalars(100);
    let shown = |filter: RawDocumentBuf| {
        let filter = Matcher::parse(&filter, &ParseContext::default()).unwrap();
        run(Request::new(filter), &source).1
    };
    assert_eq!(shown(rawdoc! { "_id": 5 }), "IDHACK");
    assert_eq!(shown(rawdoc! { "d": 5 }), "COLLSCAN");
    assert_eq!(shown(rawdoc! { "a": { "$gt": 3, "$lte": 5 } }), "IXSCAN { a: 1, b: -1 } <(3, 5]>");
    assert_eq!(
        shown(rawdoc! { "a": 3, "b": { "$gte": 2 } }),
        "IXSCAN { a: 1, b: -1 } <3;[2, inf]>"
    );
    assert_eq!(
        shown(rawdoc! { "c": { "$regex": "^s1.*" } }),
        "IXSCAN { c: 1 } <[\"s1\", \"s2\")> <[/^s1.*/, /^s1.*/]>"
    );
    assert_eq!(
        shown(rawdoc! { "$or": [{ "a": 1 }, { "c": "s3" }] }),
        "IXSCAN { a: 1, b: -1 } <1;> OR IXSCAN { c: 1 } <\"s3\";>"
    );
}

#[test]
fn explain_shows_what_mongod_shows() {
    let source = scalars(100);
    let shown = |filter: RawDocumentBuf, sort: Option<RawDocumentBuf>| {
        let filter = Matcher::parse(&filter, &ParseContext::default()).unwrap();
        let sort = sort.map(|s| SortPattern::parse(&s, None).unwrap());
        let request = Request { sort, ..Request::new(filter) };
        let shape = explain::Shape::of(&request);
        let (_, chosen) = plan(request, &source, &Context::default()).unwrap();
        Shown(Value::from(&*shape.plan(&chosen, source.indexes(), None))).to_string()
    };
    assert_eq!(
        shown(rawdoc! { "a": { "$gt": 3 }, "d": 1 }, None),
        "{ stage: \"FETCH\", filter: { d: { $eq: 1 } }, inputStage: { stage: \"IXSCAN\", keyPattern: \
         { a: 1, b: -1 }, indexName: \"{ a: 1, b: -1 }\", isMultiKey: false, multiKeyPaths: { a: [], \
         b: [] }, isUnique: false, isSparse: false, isPartial: false, indexVersion: 2, direction: \
         \"forward\", indexBounds: { a: [ \"(3, inf]\" ], b: [ \"[MaxKey, MinKey]\" ] } } }"
    );
    assert_eq!(
        shown(rawdoc! { "d": { "$ne": 1 } }, Some(rawdoc! { "d": 1 })),
        "{ stage: \"SORT\", sortPattern: { d: 1 }, memLimit: 104857600, type: \"simple\", inputStage: \
         { stage: \"COLLSCAN\", filter: { d: { $not: { $eq: 1 } } }, direction: \"forward\" } }"
    );
    assert_eq!(
        shown(rawdoc! { "_id": 3 }, None),
        "{ stage: \"EXPRESS_IXSCAN\", keyPattern: \"{ _id: 1 }\", indexName: \"_id_\" }"
    );
}
