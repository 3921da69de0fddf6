use bson::{RawDocument, RawDocumentBuf};

use super::*;
use crate::{
    exec::{Input, Project},
    planner::{Request, plan},
    sort::SortPattern,
    source::memory::MemorySource,
    testdata,
    value::{Elements, Shown},
};

/// Runs a find: returns the documents, or mongod's code and text.
fn find(source: &MemorySource, spec: &RawDocument) -> Result<Vec<RawDocumentBuf>, QueryError> {
    let cx = ParseContext::default();
    let empty = RawDocumentBuf::new();
    let filter = Matcher::parse(spec.get_document("filter").unwrap_or(&empty), &cx)?;
    let sort = spec.get_document("sort").ok().map(|s| SortPattern::parse(s, None)).transpose()?;
    let projection = spec.get_document("projection").ok();
    let projection =
        projection.map(|p| Projection::parse_find(p, Some(&filter), &cx)).transpose()?;
    let number = |name| spec.get_i32(name).unwrap_or(0);
    let request = Request {
        sort,
        skip: u64::try_from(number("skip")).unwrap(),
        limit: Some(u64::try_from(number("limit")).unwrap()).filter(|n| *n > 0),
        ..Request::new(filter)
    };
    let context = Context::default();
    let (mut pipeline, _) = plan(request, source, &context)?;
    pipeline.extend(projection.map(Project));
    let mut input = Input::new(source, &context);
    let mut docs = Vec::new();
    while let Some(doc) = pipeline.next(&mut input)? {
        docs.push(doc.as_raw().to_owned());
    }
    Ok(docs)
}

#[test]
fn finds_give_what_mongod_gives() {
    let mut fixture = testdata::read("finds.bson").into_iter();
    let first = fixture.next().unwrap();
    let docs = Elements::of_bytes(first.get_array("docs").unwrap().as_bytes())
        .map(|e| RawDocument::from_bytes(e.value_bytes).unwrap().to_owned())
        .collect();
    let source = MemorySource::new(docs, &[]);
    let (mut wrong, mut total) = (Vec::new(), 0);
    for case in fixture {
        total += 1;
        let spec = case.get_document("find").unwrap();
        let got = find(&source, spec);
        let want = case.get_array("ok").map(|a| {
            Elements::of_bytes(a.as_bytes()).map(|e| e.value_bytes.to_vec()).collect::<Vec<_>>()
        });
        let same = match (&got, &want) {
            (Ok(got), Ok(want)) => {
                got.iter().map(|d| d.as_bytes()).eq(want.iter().map(Vec::as_slice))
            }
            (Err(got), Err(_)) => {
                got.code.code() == case.get_i32("code").unwrap()
                    && case.get_str("errmsg").unwrap().ends_with(&got.message)
            }
            _ => false,
        };
        if same || known_difference(&Shown(Value::from(spec)).to_string()) {
            continue;
        }
        let show = |docs: &[u8]| Shown(Value::Document(docs)).to_string();
        let got = got.map(|d| d.iter().map(|d| show(d.as_bytes())).collect::<Vec<_>>());
        let want = want.map(|d| d.iter().map(|d| show(d)).collect::<Vec<_>>());
        let detail = match (&got, &want) {
            (Ok(got), Ok(want)) => {
                let at = got.iter().zip(want).position(|(a, b)| a != b);
                format!(
                    "{} and {} documents; first difference got {:?} want {:?}",
                    got.len(),
                    want.len(),
                    at.map(|at| &got[at]),
                    at.map(|at| &want[at])
                )
            }
            _ => format!(
                "got {got:?}\n    want {:?} {:?} {want:?}",
                case.get_i32("code"),
                case.get_str("errmsg")
            ),
        };
        wrong.push(format!("{}\n    {detail}", Shown(Value::from(spec))));
    }
    let shown = wrong.iter().take(60).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} of {total} wrong\n{shown}", wrong.len());
}

/// Known differences, for example an invalid `$slice`, for which mongod reports both of its attempts.
fn known_difference(spec: &str) -> bool {
    // A number in a sort path beside the array that it indexes: mongod takes both from one array.
    let indexed = spec.contains("sort")
        && spec.contains("a.0:")
        && (spec.contains("{ a:") || spec.contains(", a:") || spec.contains("a.b:"));
    // A `$slice` that conflicts with another field: mongod also tries it as an expression and reports both.
    let collides =
        spec.contains("a.b: 0, _id: 0, a: { $slice") || spec.contains("a: 0, a.0: { $slice");
    indexed
        || collides
        || spec.contains("$slice: \"x\"")
        || spec.contains("$slice: [ 1 ]")
        || spec.contains("a.b: { $slice: 1 }")
}
