//! A text index: the weights and languages of its fields, and their terms.

use std::collections::BTreeMap;

use bson::RawDocument;

use super::{Language, Version, tokens::Terms};
use crate::{
    matcher::operands,
    value::{Elements, Value},
};

/// A text index.
#[derive(Debug, Clone, PartialEq)]
pub struct TextSpec {
    version: Version,
    language: Language,
    language_field: Vec<u8>,
    weights: BTreeMap<Vec<u8>, f64>,
    wildcard: bool,
}

/// An indexed text of a document.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'d> {
    pub(super) text: &'d str,
    pub(super) language: Language,
    weight: f64,
}

/// Weight of a field that only the wildcard covers.
const DEFAULT_WEIGHT: f64 = 1.0;

impl TextSpec {
    /// Parses the spec of an index, if it is a supported text index.
    pub fn of(spec: &RawDocument) -> Option<Self> {
        let key = spec.get_document("key").ok()?;
        let is_text = Elements::new(key).any(|part| matches!(part.value(), Value::String(b"text")));
        if !is_text {
            return None;
        }
        let find = |name: &[u8]| Elements::new(spec).find(name).map(|field| field.value());
        let version = Version::of(whole(find(b"textIndexVersion")?)?)?;
        let language = match find(b"default_language") {
            Some(Value::String(name)) => std::str::from_utf8(name).ok()?,
            _ => "english",
        };
        let language_field = match find(b"language_override") {
            Some(Value::String(name)) => name.to_vec(),
            _ => b"language".to_vec(),
        };
        let mut weights = BTreeMap::new();
        for field in find(b"weights").into_iter().flat_map(Value::elements) {
            weights.insert(field.key.to_vec(), number(field.value())?);
        }
        let wildcard = weights.remove(&b"$**"[..]).is_some();
        let language = Language::named(language)?;
        Some(Self { version, language, language_field, weights, wildcard })
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The default language.
    pub fn language(&self) -> Language {
        self.language
    }

    /// The terms of a document with their scores, sorted by bytes.
    pub fn scores(&self, doc: &[u8]) -> BTreeMap<String, f64> {
        let mut scores = BTreeMap::new();
        self.each_field(doc, &mut |field| {
            self.add_scores(field, &mut scores);
            true
        });
        scores
    }

    fn add_scores(&self, field: Field<'_>, scores: &mut BTreeMap<String, f64>) {
        let mut found: BTreeMap<String, Seen> = BTreeMap::new();
        let mut total = 0_u32;
        Terms::indexed(field.language, self.version).each(field.text, |term| {
            total += 1;
            found.entry(term).or_default().again();
        });
        for (term, seen) in found {
            let share = 0.5 * f64::from(seen.count) / f64::from(total) + 0.5;
            // A text that consists only of the term scores slightly higher.
            let whole = if field.text.eq_ignore_ascii_case(&term) { 1.1 } else { 1.0 };
            *scores.entry(term).or_insert(0.0) += field.weight * seen.frequency * share * whole;
        }
    }

    /// Calls `each` with every indexed text of the document until it returns false. Returns false if it did.
    pub(super) fn each_field<'d>(
        &self,
        doc: &'d [u8],
        each: &mut dyn FnMut(Field<'d>) -> bool,
    ) -> bool {
        self.walk(
            Elements::of_bytes(doc),
            &Frame { path: Vec::new(), array: false, language: self.language },
            each,
        )
    }

    fn walk<'d>(
        &self,
        elements: Elements<'d>,
        frame: &Frame,
        each: &mut dyn FnMut(Field<'d>) -> bool,
    ) -> bool {
        let own = (!frame.array).then(|| self.language_of(elements.clone())).flatten();
        let language = own.unwrap_or(frame.language);
        for element in elements {
            let value = element.value();
            if !matches!(value, Value::String(_) | Value::Document(_) | Value::Array(_)) {
                continue;
            }
            if self.wildcard && !frame.array && element.key == self.language_field {
                continue;
            }
            let path = frame.below(element.key);
            let exact = self.weights.get(&path);
            if !self.wildcard && exact.is_none() && !self.is_prefix(&path) {
                continue;
            }
            let goes_on = match value {
                Value::String(text) if self.wildcard || exact.is_some() => {
                    let weight = exact.copied().unwrap_or(DEFAULT_WEIGHT);
                    let text = std::str::from_utf8(text).unwrap_or_default();
                    each(Field { text, language, weight })
                }
                Value::Document(inner) => {
                    let frame = Frame { path, array: false, language };
                    self.walk(Elements::of_bytes(inner), &frame, each)
                }
                // Only a wildcard index includes nested arrays.
                Value::Array(inner) if self.wildcard || !frame.array => {
                    let frame = Frame { path, array: true, language };
                    self.walk(Elements::of_bytes(inner), &frame, each)
                }
                _ => true,
            };
            if !goes_on {
                return false;
            }
        }
        true
    }

    fn is_prefix(&self, path: &[u8]) -> bool {
        self.weights.range(path.to_vec()..).next().is_some_and(|(next, _)| next.starts_with(path))
    }

    fn language_of(&self, elements: Elements<'_>) -> Option<Language> {
        match elements.clone().find(&self.language_field)?.value() {
            Value::String(name) => Language::named(std::str::from_utf8(name).ok()?),
            _ => None,
        }
    }
}

fn whole(value: Value<'_>) -> Option<i64> {
    operands::integer("", value).ok()
}

fn number(value: Value<'_>) -> Option<f64> {
    match value {
        Value::Double(n) => Some(n),
        Value::Int32(n) => Some(f64::from(n)),
        #[allow(clippy::cast_precision_loss, reason = "weights are below 100,000")]
        Value::Int64(n) => Some(n as f64),
        _ => None,
    }
}

/// Occurrences of a term in a text: each counts half as much as the one before.
#[derive(Default)]
struct Seen {
    count: u32,
    frequency: f64,
    part: f64,
}

impl Seen {
    fn again(&mut self) {
        self.part = if self.count == 0 { 1.0 } else { self.part * 2.0 };
        self.count += 1;
        self.frequency += 1.0 / self.part;
    }
}

/// The position in a document.
struct Frame {
    path: Vec<u8>,
    array: bool,
    language: Language,
}

impl Frame {
    fn below(&self, name: &[u8]) -> Vec<u8> {
        if self.path.is_empty() {
            return name.to_vec();
        }
        if self.array {
            return self.path.clone();
        }
        [&self.path, &b"."[..], name].concat()
    }
}
