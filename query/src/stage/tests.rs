use std::rc::Rc;

use bson::RawDocumentBuf;

use super::*;
use crate::{context::Collections, source::memory::MemorySource, testdata, value::Shown};

struct Two {
    docs: MemorySource,
    other: MemorySource,
}

impl Collections for Two {
    fn open<'s>(&'s self, namespace: &str) -> Result<Option<Box<dyn Source + 's>>, QueryError> {
        Ok(match namespace {
            "test.pipelines" => Some(Box::new(&self.docs)),
            "test.other" => Some(Box::new(&self.other)),
            _ => None,
        })
    }
}

fn docs_of(fixture: &RawDocument, name: &str) -> Vec<RawDocumentBuf> {
    Elements::of_bytes(fixture.get_array(name).unwrap().as_bytes())
        .map(|e| RawDocument::from_bytes(e.value_bytes).unwrap().to_owned())
        .collect()
}

fn run(pipeline: Value<'_>, two: &Rc<Two>) -> Result<Vec<Vec<u8>>, QueryError> {
    let over = Over::Collection("c".into());
    let cx = StageContext { database: "test".into(), over, ..StageContext::default() };
    let mut context = Context::default();
    context.collections = Some(Rc::clone(two) as Rc<dyn Collections>);
    let parsed = parse(pipeline, &cx)?;
    let mut pipeline = plan(parsed, &two.docs, &context, &cx)?;
    let (docs, _) = drain(&mut pipeline, &two.docs, &context)?;
    Ok(docs.iter().map(|doc| doc.as_bytes().to_vec()).collect())
}

#[test]
fn pipelines_give_what_mongod_gives() {
    // Groups and sets come in any order.
    check("pipelines.bson", |text| {
        text.contains("$sort:") && !text.contains("$group") || text.contains("$skip: 1 }")
    });
}

#[test]
fn windows_give_what_mongod_gives() {
    // Documents with equal sort keys come in any order.
    check("windows.bson", |text| {
        !["ank: {}", "sortBy: { g: 1 }", "$densify"].iter().any(|open| text.contains(open))
    });
}

fn check(fixture: &str, is_ordered: fn(&str) -> bool) {
    let mut fixture = testdata::read(fixture).into_iter();
    let first = fixture.next().unwrap();
    let two = Rc::new(Two {
        docs: MemorySource::new(docs_of(&first, "docs"), &[]),
        other: MemorySource::new(docs_of(&first, "other"), &[bson::rawdoc! { "n": 1 }]),
    });
    let (mut wrong, mut total) = (Vec::new(), 0);
    for case in fixture {
        total += 1;
        let pipeline = Elements::new(&case).find(b"pipeline").unwrap().value();
        let text = Shown(pipeline).to_string();
        let mut got = run(pipeline, &two);
        let mut want = case.get_array("ok").map(|a| {
            Elements::of_bytes(a.as_bytes()).map(|e| e.value_bytes.to_vec()).collect::<Vec<_>>()
        });
        if let (false, Ok(got), Ok(want)) = (is_ordered(&text), &mut got, &mut want) {
            got.sort();
            want.sort();
        }
        let same = match (&got, &want) {
            (Ok(got), Ok(want)) => got == want || is_sliding(&text) && alike(got, want),
            (Err(got), Err(_)) => {
                got.code.code() == case.get_i32("code").unwrap()
                    && case.get_str("errmsg").unwrap().ends_with(&got.message)
            }
            _ => false,
        };
        if same || known_difference(&text) {
            continue;
        }
        let at = match (&got, &want) {
            (Ok(got), Ok(want)) => got.iter().zip(want).position(|(a, b)| a != b).unwrap_or(0),
            _ => 0,
        };
        let show = |docs: &Vec<Vec<u8>>| {
            docs.iter()
                .skip(at)
                .take(4)
                .map(|d| Shown(Value::Document(d)).to_string())
                .collect::<Vec<_>>()
        };
        wrong.push(format!(
            "{text}\n    got  {:?}\n    want {:?} {:?} {:?}",
            got.as_ref().map(show),
            want.as_ref().ok().map(show),
            case.get_i32("code").ok(),
            case.get_str("errmsg").ok()
        ));
    }
    let shown = wrong.iter().take(90).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} of {total} wrong\n{shown}", wrong.len());
}

/// Functions that remove values from a running sum: mongod's rounding differs from ours.
fn is_sliding(pipeline: &str) -> bool {
    let functions = ["$sum: ", "$avg: ", "$stdDev", "$covariance", "$integral"];
    pipeline.contains("$setWindowFields") && functions.iter().any(|name| pipeline.contains(name))
}

/// True if the documents' numbers differ by less than a billionth.
fn alike(got: &[Vec<u8>], want: &[Vec<u8>]) -> bool {
    let number = |value: Value<'_>| value.is_number().then(|| crate::expression::as_f64(value));
    fn same(a: Value<'_>, b: Value<'_>, number: &dyn Fn(Value<'_>) -> Option<f64>) -> bool {
        match (number(a), number(b)) {
            (Some(a), Some(b)) => (a - b).abs() <= 1e-7 * a.abs().max(b.abs()).max(1.0),
            (None, None) => match (a, b) {
                (Value::Document(_), Value::Document(_)) => {
                    a.elements().count() == b.elements().count()
                        && a.elements()
                            .zip(b.elements())
                            .all(|(x, y)| x.key == y.key && same(x.value(), y.value(), number))
                }
                _ => crate::value::compare_values(a, b, None).is_eq(),
            },
            _ => false,
        }
    }
    got.len() == want.len()
        && got.iter().zip(want).all(|(a, b)| same(Value::Document(a), Value::Document(b), &number))
}

fn known_difference(pipeline: &str) -> bool {
    // A set has no order.
    pipeline.contains("$addToSet")
        // mongod shows only the fields that the expression needs, not the whole document.
        || pipeline.contains("newRoot: \"$price\"") || pipeline.contains("\"$nope\"")
}

/// Keeps spilled documents in memory and counts them.
#[derive(Default)]
struct Kept(std::cell::Cell<usize>);

#[derive(Debug)]
struct Run(std::vec::IntoIter<RawDoc>);

impl crate::context::SpilledRun for Run {
    fn next(&mut self) -> Result<Option<RawDoc>, QueryError> {
        Ok(self.0.next())
    }
}

impl crate::context::Spill for Kept {
    fn write(
        &self,
        docs: &mut dyn Iterator<Item = RawDoc>,
    ) -> Result<Box<dyn crate::context::SpilledRun>, QueryError> {
        self.0.set(self.0.get() + 1);
        Ok(Box::new(Run(docs.collect::<Vec<_>>().into_iter())))
    }
}

fn groups(spill: Option<Rc<Kept>>) -> Result<Vec<(i32, i32)>, QueryError> {
    let docs: Vec<_> = (0..500).map(|i| bson::rawdoc! { "k": i % 100, "n": i }).collect();
    let docs: Vec<RawDoc> = docs.into_iter().map(RawDoc::from).collect();
    let cx = StageContext::default();
    let mut scope = cx.scope.clone();
    let id = crate::expression::Expr::parse(Value::String(b"$k"), &mut scope)?;
    let last = bson::rawdoc! { "$last": "$n" };
    let spec = accumulator::Spec::parse(b"n", Value::from(&*last), &mut scope)?;
    let group = group::Group::new(id, vec![spec], &cx).with_memory(5_000);
    let mut context = Context::default();
    context.spill = spill.map(|kept| kept as Rc<dyn crate::context::Spill>);
    let mut pipeline = Pipeline::new(Access::Given(docs), vec![Box::new(group)]);
    let (found, _) = drain(&mut pipeline, &NoSource, &context)?;
    Ok(found.iter().map(|d| (d.get_i32("_id").unwrap(), d.get_i32("n").unwrap())).collect())
}

#[test]
fn groups_beyond_memory_take_more_rounds_or_fail() {
    let kept = Rc::new(Kept::default());
    let mut found = groups(Some(Rc::clone(&kept))).unwrap();
    found.sort_unstable();
    let want: Vec<_> = (0..100).map(|k| (k, 400 + k)).collect();
    assert_eq!(found, want);
    assert!(kept.0.get() > 2, "only {} runs", kept.0.get());
    assert_eq!(groups(None).unwrap_err().code.code(), 292);
}

fn facets(spill: Option<Rc<Kept>>, bytes_max: usize) -> Result<(i32, i32, usize), QueryError> {
    let docs: Vec<_> = (0..500).map(|i| bson::rawdoc! { "k": i % 100, "n": i }).collect();
    let docs: Vec<RawDoc> = docs.into_iter().map(RawDoc::from).collect();
    let spec = bson::rawdoc! {
        "sum": [{ "$group": { "_id": null, "n": { "$sum": "$n" } } }],
        "last": [{ "$skip": 499 }],
        "some": [{ "$match": { "k": 7 } }],
    };
    let facet = facet::facet(Value::from(&*spec), &StageContext::default())?.with_memory(bytes_max);
    let mut context = Context::default();
    context.spill = spill.map(|kept| kept as Rc<dyn crate::context::Spill>);
    let mut pipeline = Pipeline::new(Access::Given(docs), vec![Box::new(facet)]);
    let (found, _) = drain(&mut pipeline, &NoSource, &context)?;
    let found: bson::Document = found.first().unwrap().as_raw().try_into().unwrap();
    let only = |name: &str| {
        let rows = found.get_array(name).unwrap();
        rows.first().unwrap().as_document().unwrap().get_i32("n").unwrap()
    };
    Ok((only("sum"), only("last"), found.get_array("some").unwrap().len()))
}

#[test]
fn facets_beyond_memory_read_what_was_written_away_or_fail() {
    let kept = Rc::new(Kept::default());
    let want = (499 * 500 / 2, 499, 5);
    assert_eq!(facets(None, 1 << 20).unwrap(), want);
    assert_eq!(facets(Some(Rc::clone(&kept)), 3_000).unwrap(), want);
    assert!(kept.0.get() > 6, "only {} runs", kept.0.get());
    assert_eq!(facets(None, 3_000).unwrap_err().code.code(), 292);
    assert_eq!(facets(Some(kept), 100).unwrap_err().code.code(), 4_031_700);
}

/// The two collections of near.bson: places on the sphere and on the plane.
fn near_source(first: &RawDocument, name: &str) -> MemorySource {
    let kind = if name == "sphere" { "2dsphere" } else { "2d" };
    MemorySource::new(docs_of(first, name), &[bson::rawdoc! { "loc": kind }])
}

fn ids(docs: &[Vec<u8>]) -> Vec<i32> {
    let mut ids: Vec<_> =
        docs.iter().map(|d| RawDocument::from_bytes(d).unwrap().get_i32("_id").unwrap()).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn distances_are_those_of_mongod() {
    let mut fixture = testdata::read("near.bson").into_iter();
    let first = fixture.next().unwrap();
    let sources = ["sphere", "flat"].map(|name| (name, near_source(&first, name)));
    let (mut wrong, mut total) = (Vec::new(), 0);
    for case in fixture {
        total += 1;
        let name = case.get_str("coll").unwrap();
        let source = &sources.iter().find(|(known, _)| *known == name).unwrap().1;
        let (stage, spec) = match case.get_document("find") {
            Ok(find) => ("$match", Value::from(find)),
            Err(_) => ("$geoNear", Elements::new(&case).find(b"geoNear").unwrap().value()),
        };
        let mut doc = crate::expression::DocBuilder::new();
        doc.push(stage.as_bytes(), spec);
        let doc = doc.finish();
        let pipeline = crate::expression::array_bytes([Value::Document(&doc)]);
        let cx = StageContext::default();
        let context = Context::default();
        let run = || {
            let mut pipeline = match case.get_document("find") {
                Ok(find) => {
                    let filter = Matcher::parse(find, &ParseContext::default())?;
                    planner::plan(Request::new(filter), source, &context)?.0
                }
                Err(_) => plan(parse(Value::Array(&pipeline), &cx)?, source, &context, &cx)?,
            };
            let (docs, _) = drain(&mut pipeline, source, &context)?;
            Ok(docs.iter().map(|doc| doc.as_bytes().to_vec()).collect::<Vec<_>>())
        };
        let got: Result<_, QueryError> = run();
        let same = match (&got, case.get_array("ok")) {
            // Places at the same distance come in any order.
            (Ok(got), Ok(want)) if stage == "$match" => {
                let mut want: Vec<_> =
                    want.into_iter().map(|id| id.unwrap().as_i32().unwrap()).collect();
                want.sort_unstable();
                ids(got) == want
            }
            (Ok(got), Ok(want)) => {
                let mut want: Vec<_> =
                    Elements::of_bytes(want.as_bytes()).map(|e| e.value_bytes.to_vec()).collect();
                let mut got = got.clone();
                let id = |d: &Vec<u8>| RawDocument::from_bytes(d).unwrap().get_i32("_id").unwrap();
                got.sort_by_key(id);
                want.sort_by_key(id);
                alike(&got, &want)
            }
            (Err(got), Err(_)) => {
                let text = case.get_str("errmsg").unwrap();
                got.code.code() == case.get_i32("code").unwrap()
                    && (text.ends_with(&got.message) || got.code.code() == 291)
            }
            _ => false,
        };
        if !same {
            wrong.push(format!(
                "{name} {} got {:?} want {:?} {:?}",
                Shown(Value::Document(&doc)),
                got.as_ref().map(|docs| ids(docs)),
                case.get_array("ok").ok().map(|a| a.into_iter().count()),
                case.get_str("errmsg").ok()
            ));
        }
    }
    let shown = wrong.iter().take(30).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} of {total} wrong\n{shown}", wrong.len());
}
