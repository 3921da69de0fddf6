use bson::{RawDocument, RawDocumentBuf};
use bytes::Bytes;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;
use crate::{
    context::Context,
    exec::{Input, Pipeline},
    matcher::{Matcher, ParseContext},
    source::memory::MemorySource,
    stage::{self, StageContext},
    testdata,
    value::Shown,
};

fn of_case(case: &RawDocument, time: &str) -> Unpacking {
    Unpacking {
        time: time.as_bytes().into(),
        meta: case.get_str("meta").ok().map(|name| name.as_bytes().into()),
        fields: Fields::Exclude(Vec::new()),
    }
}

fn docs(case: &RawDocument, name: &str) -> Vec<RawDocumentBuf> {
    Elements::of_bytes(case.get_array(name).unwrap().as_bytes())
        .map(|e| RawDocument::from_bytes(e.value_bytes).unwrap().to_owned())
        .collect()
}

fn unpack(bucket: RawDoc, unpacking: &Unpacking) -> Result<Vec<Vec<u8>>, QueryError> {
    let mut bucket = Bucket::open(bucket, unpacking)?;
    let mut found = Vec::new();
    while let Some(doc) = bucket.next(unpacking)? {
        found.push(doc);
    }
    Ok(found)
}

fn check_buckets(fixture: &str, least: usize) {
    let (mut wrong, mut buckets) = (Vec::new(), 0);
    for case in testdata::read(fixture) {
        let Ok(bucket) = case.get_document("bucket") else { continue };
        buckets += 1;
        let got = unpack(RawDoc::from(bucket), &of_case(&case, case.get_str("time").unwrap()));
        let want: Vec<_> = docs(&case, "docs").into_iter().map(|doc| doc.into_bytes()).collect();
        match got {
            Ok(got) if got == want => {}
            Ok(got) => {
                let at = got.iter().zip(&want).position(|(a, b)| a != b);
                let show = |docs: &[Vec<u8>]| {
                    let doc = at.and_then(|at| docs.get(at)).map(|d| Shown(Value::Document(d)));
                    doc.map(|d| d.to_string())
                };
                wrong.push(format!(
                    "bucket {buckets}: {} for {} measurements, first at {at:?}\n  got  {:?}\n  want {:?}",
                    got.len(),
                    want.len(),
                    show(&got),
                    show(&want)
                ));
            }
            Err(error) => wrong.push(format!("bucket {buckets}: {error}")),
        }
    }
    let shown = wrong.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} of {buckets} wrong\n{shown}", wrong.len());
    assert!(buckets >= least, "only {buckets} buckets");
}

#[test]
fn compressed_buckets_of_8_2_give_their_measurements() {
    check_buckets("timeseries_8.2.bson", 100);
}

#[test]
fn plain_buckets_of_5_0_give_their_measurements() {
    check_buckets("timeseries_5.0.bson", 40);
}

/// Buckets that the derived filter excludes contain no match, and it does exclude some.
#[test]
fn filters_on_measurements_give_what_mongod_gives() {
    let cases = testdata::read("timeseries_8.2.bson");
    let all: Vec<_> = cases.iter().filter(|case| case.get("bucket").unwrap().is_some()).collect();
    let (mut queries, mut left_out) = (0, 0);
    for case in &cases {
        let Ok(filter) = case.get_document("filter") else { continue };
        let of = case.get_str("coll").unwrap();
        let buckets: Vec<_> = all
            .iter()
            .filter(|bucket| bucket.get_str("coll").unwrap() == of)
            .map(|bucket| bucket.get_document("bucket").unwrap().to_owned())
            .collect();
        let source = MemorySource::new(buckets.clone(), &[]);
        let mut unpack = bson::rawdoc! { "timeField": "t", "bucketMaxSpanSeconds": 3600 };
        if let Ok(meta) = case.get_str("meta") {
            unpack.append(bson::raw::cstr!("metaField"), meta);
        }
        let stages = bson::rawdoc! { "p": [
            { "$_internalUnpackBucket": unpack }, { "$match": filter.to_owned() }, { "$sort": { "_id": 1 } },
            { "$project": { "_id": 1 } },
        ] };
        let cx = StageContext::default();
        let context = Context::default();
        let pipeline = Elements::new(&stages).next().unwrap().value();
        let parsed = stage::parse(pipeline, &cx).unwrap();
        let mut pipeline: Pipeline = stage::plan(parsed, &source, &context, &cx).unwrap();
        let mut input = Input::new(&source, &context);
        let mut found = Vec::new();
        while let Some(doc) = pipeline.next(&mut input).unwrap() {
            found.push(doc.get_i32("_id").unwrap());
        }
        let want: Vec<i32> = Elements::of_bytes(case.get_array("ids").unwrap().as_bytes())
            .map(|e| match e.value() {
                Value::Int32(n) => n,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(found, want, "{filter:?}");
        queries += 1;
        let parsed = Matcher::parse(filter, &ParseContext::default()).unwrap();
        let on_buckets = on_buckets(&parsed, &of_case(case, "t"));
        left_out += buckets.iter().filter(|bucket| !on_buckets.matches(bucket)).count();
    }
    assert!(queries >= 100, "{queries} queries");
    assert!(left_out >= 200, "only {left_out} buckets left out");
}

/// Columns with random damage give an error or other values, never a panic or an endless loop.
#[test]
fn damaged_columns_do_no_harm() {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(11);
    println!("SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let columns: Vec<Vec<u8>> = testdata::read("timeseries_8.2.bson")
        .iter()
        .filter_map(|case| case.get_document("bucket").ok())
        .flat_map(|bucket| {
            let data = Elements::new(bucket).find(b"data").unwrap().value();
            data.elements().map(|e| e.value_bytes.get(5..).unwrap().to_vec()).collect::<Vec<_>>()
        })
        .collect();
    for _ in 0..20_000 {
        let mut bytes = columns[rng.random_range(0..columns.len())].clone();
        for _ in 0..rng.random_range(1..4) {
            match rng.random_range(0..4) {
                0 => bytes.truncate(rng.random_range(0..=bytes.len())),
                1 => {
                    let at = rng.random_range(0..=bytes.len());
                    bytes.insert(at, rng.random());
                }
                _ if !bytes.is_empty() => {
                    let at = rng.random_range(0..bytes.len());
                    bytes[at] = rng.random();
                }
                _ => {}
            }
        }
        let most = 1920 * (bytes.len() + 1);
        let mut column = Column::new(Bytes::from(bytes));
        let mut count = 0;
        while let Ok(Some(_)) = column.advance() {
            count += 1;
            assert!(count <= most, "more values than the bytes can hold");
            if count > 5000 {
                break;
            }
        }
    }
}
