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
    let cx = StageContext { database: "test".into(), ..StageContext::default() };
    let mut context = Context::default();
    context.collections = Some(Rc::clone(two) as Rc<dyn Collections>);
    let parsed = parse(pipeline, &cx)?;
    let mut pipeline = plan(parsed, &two.docs, &context, &cx)?;
    let (docs, _) = drain(&mut pipeline, &two.docs, &context)?;
    Ok(docs.iter().map(|doc| doc.as_bytes().to_vec()).collect())
}

#[test]
fn pipelines_give_what_mongod_gives() {
    let mut fixture = testdata::read("pipelines.bson").into_iter();
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
        // Groups come in any order, and so does a set.
        let ordered =
            text.contains("$sort:") && !text.contains("$group") || text.contains("$skip: 1 }");
        if let (false, Ok(got), Ok(want)) = (ordered, &mut got, &mut want) {
            got.sort();
            want.sort();
        }
        let same = match (&got, &want) {
            (Ok(got), Ok(want)) => got == want,
            (Err(got), Err(_)) => {
                got.code.code() == case.get_i32("code").unwrap()
                    && case.get_str("errmsg").unwrap().ends_with(&got.message)
            }
            _ => false,
        };
        if same || known_difference(&text) {
            continue;
        }
        let show = |docs: &Vec<Vec<u8>>| {
            docs.iter().take(6).map(|d| Shown(Value::Document(d)).to_string()).collect::<Vec<_>>()
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

fn known_difference(pipeline: &str) -> bool {
    // A set has no order.
    pipeline.contains("$addToSet")
        // mongod shows the fields that the expression needs, not the document.
        || pipeline.contains("newRoot: \"$price\"") || pipeline.contains("\"$nope\"")
}
