use std::sync::Arc;

use bson::{RawBsonRef, RawDocument};

use super::*;
use crate::{
    testdata,
    value::{Shown, Value},
};

fn texts(value: RawBsonRef<'_>) -> Vec<String> {
    let list = value.as_array().unwrap().into_iter();
    list.map(|item| item.unwrap().as_str().unwrap().to_owned()).collect()
}

fn cases(kind: &str) -> Vec<bson::RawDocumentBuf> {
    let all = testdata::read("text.bson").into_iter();
    all.filter(|case| case.get_str("kind").unwrap() == kind).collect()
}

/// Collects all differences before failing, since a single one seldom shows the rule.
struct Differences(Vec<String>, usize);

impl Differences {
    fn check<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, want: &T, got: &T) {
        self.1 += 1;
        if want != got {
            self.0.push(format!("{what}\n    mongod {want:?}\n    ours   {got:?}"));
        }
    }

    fn done(self) {
        let shown = self.0.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
        assert!(self.0.is_empty(), "{} of {} differ:\n{shown}", self.0.len(), self.1);
    }
}

#[test]
fn words_become_the_terms_that_they_become_in_mongod() {
    let mut differences = Differences(Vec::new(), 0);
    for case in cases("words") {
        let name = case.get_str("language").unwrap();
        let language = Language::named(name).unwrap();
        let words = texts(case.get("words").unwrap().unwrap());
        let terms = case.get_array("terms").unwrap();
        for (word, want) in words.iter().zip(terms) {
            let want = want.unwrap();
            if want.as_array().is_none() {
                continue;
            }
            let mut got = std::collections::BTreeSet::new();
            tokens::Terms::indexed(language, Version::V3).each(word, |term| {
                got.insert(term);
            });
            let got: Vec<_> = got.into_iter().collect();
            differences.check(&format!("{name} {word:?}"), &texts(want), &got);
        }
    }
    differences.done();
}

fn query(case: &RawDocument, spec: &Arc<TextSpec>) -> Result<TextQuery, crate::QueryError> {
    let search = Search::parse(Value::from(case.get_document("query").unwrap()))?;
    TextQuery::new(&search, spec.clone())
}

#[test]
fn searches_are_understood_as_mongod_understands_them() {
    let mut differences = Differences(Vec::new(), 0);
    for case in cases("parsed") {
        let spec = Arc::new(TextSpec::of(case.get_document("spec").unwrap()).unwrap());
        let shown = format!(
            "v{} {:?}",
            spec.version().number(),
            Shown(Value::from(case.get_document("query").unwrap())).to_string()
        );
        match (query(&case, &spec), case.get_document("ok")) {
            (Ok(got), Ok(want)) => {
                for (name, got) in got.parts() {
                    let want = texts(want.get(name).unwrap().unwrap());
                    let got: Vec<_> = got.into_iter().map(str::to_owned).collect();
                    differences.check(&format!("{shown} {name}"), &want, &got);
                }
            }
            (Err(got), Err(_)) => {
                let want = case.get_str("errmsg").unwrap().to_owned();
                differences.check(&shown, &want, &got.message);
            }
            (got, want) => differences.check(&shown, &want.is_ok(), &got.is_ok()),
        }
    }
    differences.done();
}

#[test]
fn documents_are_found_with_the_scores_that_mongod_gives_them() {
    let mut differences = Differences(Vec::new(), 0);
    for case in cases("found") {
        let shown = case.get_document("spec").unwrap();
        let spec = Arc::new(TextSpec::of(shown).unwrap());
        let docs: Vec<_> = case
            .get_array("docs")
            .unwrap()
            .into_iter()
            .map(|doc| doc.unwrap().as_document().unwrap().to_owned())
            .collect();
        let keys: usize = docs.iter().map(|doc| spec.scores(doc.as_bytes()).len()).sum();
        let want = case.get_i64("keys").or(case.get_i32("keys").map(i64::from)).unwrap();
        differences.check(
            &format!("keys of {}", Shown(Value::from(shown))),
            &want,
            &i64::try_from(keys).unwrap(),
        );
        for asked in case.get_array("queries").unwrap() {
            let asked = asked.unwrap().as_document().unwrap();
            let Ok(want) = asked.get_array("ok") else { continue };
            let query = query(asked, &spec).unwrap();
            let mut got: Vec<(String, f64)> = Vec::new();
            for doc in &docs {
                let scores = spec.scores(doc.as_bytes());
                let found: Vec<f64> =
                    query.bounds().filter_map(|term| scores.get(term).copied()).collect();
                assert_eq!(
                    query.matches(doc.as_bytes()),
                    !found.is_empty() && query.accepts(doc.as_bytes())
                );
                if !found.is_empty() && query.accepts(doc.as_bytes()) {
                    let id = doc.get("_id").unwrap().unwrap();
                    let id = id
                        .as_str()
                        .map_or_else(|| format!("{}", id.as_i32().unwrap()), str::to_owned);
                    got.push((id, found.iter().sum()));
                }
            }
            got.sort_by(|a, b| a.0.cmp(&b.0));
            let want: Vec<(String, f64)> = want
                .into_iter()
                .map(|row| {
                    let row: Vec<_> =
                        row.unwrap().as_array().unwrap().into_iter().flatten().collect();
                    let id = row[0]
                        .as_str()
                        .map_or_else(|| format!("{}", row[0].as_i32().unwrap()), str::to_owned);
                    (id, row[1].as_f64().unwrap())
                })
                .collect();
            differences.check(
                &format!(
                    "{} {}",
                    Shown(Value::from(asked.get_document("query").unwrap())),
                    Shown(Value::from(shown))
                ),
                &want,
                &got,
            );
        }
    }
    differences.done();
}

/// The expected results are those of a real mongod 8.2.
#[test]
fn phrases_in_turkish_have_no_case() {
    let spec = |language: &str| {
        let spec = bson::rawdoc! {
            "key": { "_fts": "text", "_ftsx": 1 }, "weights": { "a": 1 },
            "default_language": language, "textIndexVersion": 3,
        };
        Arc::new(TextSpec::of(&spec).unwrap())
    };
    let found = |language: &str, phrase: &str, text: &str| {
        let search = Search {
            search: format!("dog \"{phrase}\""),
            language: None,
            sensitivity: Sensitivity { case: true, diacritics: true },
        };
        let query = TextQuery::new(&search, spec(language)).unwrap();
        query.accepts(bson::rawdoc! { "a": text }.as_bytes())
    };
    assert!(found("turkish", "Running", "dog running"));
    assert!(found("turkish", "ISI", "dog ısı"));
    assert!(!found("turkish", "ISI", "dog isi"));
    assert!(!found("english", "Running", "dog running"));
}
