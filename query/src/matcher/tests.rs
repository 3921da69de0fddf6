use std::collections::BTreeMap;

use bson::{RawArray, RawDocument};

use super::*;
use crate::testdata;

/// The ids of the matching documents, or mongod's code and text.
fn run(docs: &RawArray, filter: &RawDocument) -> Result<Vec<i32>, (i32, String)> {
    let matcher =
        Matcher::parse(filter, &ParseContext::default()).map_err(|e| (e.code.code(), e.message))?;
    let ids = Elements::of_bytes(docs.as_bytes()).filter_map(|element| {
        let Value::Document(bytes) = element.value() else { return None };
        let doc = RawDocument::from_bytes(bytes).unwrap();
        matcher.matches(doc).then(|| doc.get_i32("_id").unwrap())
    });
    Ok(ids.collect())
}

use crate::value::{Elements, Value};

#[test]
fn filters_match_what_mongod_matches() {
    check("filters.bson");
}

#[test]
fn places_lie_where_mongod_sees_them() {
    check("geo.bson");
}

fn check(fixture: &str) {
    let mut fixture = testdata::read(fixture).into_iter();
    let first = fixture.next().unwrap();
    let docs = first.get_array("docs").unwrap();
    let mut wrong: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut total = 0;
    for case in fixture {
        total += 1;
        let filter = case.get_document("filter").unwrap();
        let want = match case.get_array("ok") {
            Ok(ids) => Ok(ids.into_iter().map(|id| id.unwrap().as_i32().unwrap()).collect()),
            Err(_) => {
                Err((case.get_i32("code").unwrap(), case.get_str("errmsg").unwrap().to_owned()))
            }
        };
        let got = run(docs, filter);
        if unsupported(&got) || got == want {
            continue;
        }
        let text = crate::value::Shown(Value::from(filter)).to_string();
        let why = match (&got, &want) {
            (Ok(got), Ok(want)) => {
                let more: Vec<_> = got.iter().filter(|id| !want.contains(id)).take(5).collect();
                let less: Vec<_> = want.iter().filter(|id| !got.contains(id)).take(5).collect();
                let show = |id: &&i32| {
                    let at = usize::try_from(**id).unwrap();
                    let doc = Elements::of_bytes(docs.as_bytes()).nth(at).unwrap().value();
                    crate::value::Shown(doc).to_string()
                };
                format!(
                    "too many {:?} too few {:?}",
                    more.iter().map(show).collect::<Vec<_>>(),
                    less.iter().map(show).collect::<Vec<_>>()
                )
            }
            _ => format!("got {got:?} want {want:?}"),
        };
        wrong.entry("filter".into()).or_default().push(format!("{text}\n      {why}"));
    }
    let count: usize = wrong.values().map(Vec::len).sum();
    let shown: Vec<_> = wrong.values().flatten().take(25).cloned().collect();
    assert!(wrong.is_empty(), "{count} of {total} wrong\n{}", shown.join("\n"));
}

fn unsupported(got: &Result<Vec<i32>, (i32, String)>) -> bool {
    matches!(got, Err((115, _)))
}
