//! Parses a text search.
//!
//! ```text
//!   $search: 'big dogs -cats "red house" -"old car"'
//!            '------'  '---'  '-------'    '-----'
//!             terms  negated    phrase    negated phrase       the words of a phrase are terms, too
//! ```

use std::{collections::BTreeSet, sync::Arc};

use super::{Language, Sensitivity, TextSpec, tokens::Terms};
use crate::{
    error::QueryError,
    value::{Elements, Value},
};

/// `$text` as written; its meaning depends on the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// `$search`.
    pub search: String,
    /// `$language`.
    pub language: Option<String>,
    /// `$caseSensitive` and `$diacriticSensitive`.
    pub sensitivity: Sensitivity,
}

impl Search {
    /// Parses the operand of `$text`.
    pub fn parse(value: Value<'_>) -> Result<Self, QueryError> {
        let Value::Document(spec) = value else {
            return Err(QueryError::bad_value("$text expects an object"));
        };
        let find = |name: &[u8]| Elements::of_bytes(spec).find(name).map(|field| field.value());
        let text = |name: &str| match find(name.as_bytes()) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(String::from_utf8_lossy(text).into_owned())),
            Some(other) => Err(wrong_type(name, "string", other)),
        };
        let flag = |name: &str| match find(name.as_bytes()) {
            None => Ok(false),
            Some(Value::Bool(set)) => Ok(set),
            Some(other) => Err(wrong_type(name, "bool", other)),
        };
        let missing = || {
            QueryError::new(protocol::ErrorCode::NoSuchKey, "Missing expected field \"$search\"")
        };
        let search = text("$search")?.ok_or_else(missing)?;
        let language = text("$language")?;
        let case = flag("$caseSensitive")?;
        let diacritics = flag("$diacriticSensitive")?;
        const NAMES: [&[u8]; 4] =
            [b"$search", b"$language", b"$caseSensitive", b"$diacriticSensitive"];
        if Elements::of_bytes(spec).any(|field| !NAMES.contains(&field.key)) {
            return Err(QueryError::bad_value("extra fields in $text"));
        }
        Ok(Self { search, language, sensitivity: Sensitivity { case, diacritics } })
    }

    /// The language of the search for this index.
    pub fn language(&self, spec: &TextSpec) -> Result<Language, QueryError> {
        let Some(name) = self.language.as_deref().filter(|name| !name.is_empty()) else {
            return Ok(spec.language());
        };
        Language::named(name).ok_or_else(|| {
            let version = spec.version().number();
            QueryError::bad_value(format!(
                "unsupported language: \"{name}\" for text index version {version}"
            ))
        })
    }
}

fn wrong_type(name: &str, wanted: &str, found: Value<'_>) -> QueryError {
    let found = found.type_name();
    QueryError::type_mismatch(format!(
        "\"{name}\" had the wrong type. Expected {wanted}, found {found}"
    ))
}

/// A search resolved with an index.
#[derive(Debug, Clone, PartialEq)]
pub struct TextQuery {
    pub(super) spec: Arc<TextSpec>,
    pub(super) sensitivity: Sensitivity,
    /// The terms to look up in the index.
    pub(super) bounds: BTreeSet<String>,
    pub(super) terms: BTreeSet<String>,
    pub(super) negated_terms: BTreeSet<String>,
    pub(super) phrases: Vec<String>,
    pub(super) negated_phrases: Vec<String>,
}

impl TextQuery {
    /// Resolves a search.
    pub fn new(search: &Search, spec: Arc<TextSpec>) -> Result<Self, QueryError> {
        let language = search.language(&spec)?;
        let parts = Parts::of(&search.search);
        let version = spec.version();
        let set = |text: &str, sensitivity| {
            let mut terms = BTreeSet::new();
            Terms { sensitivity, ..Terms::indexed(language, version) }.each(text, |term| {
                terms.insert(term);
            });
            terms
        };
        Ok(Self {
            bounds: set(&parts.text, Sensitivity::NONE),
            terms: set(&parts.text, search.sensitivity),
            negated_terms: set(&parts.negated, search.sensitivity),
            phrases: parts.phrases,
            negated_phrases: parts.negated_phrases,
            sensitivity: search.sensitivity,
            spec,
        })
    }

    /// The terms to look up in the index, sorted by bytes.
    pub fn bounds(&self) -> impl Iterator<Item = &str> {
        self.bounds.iter().map(String::as_str)
    }

    /// The index that it was resolved with.
    pub fn spec(&self) -> &TextSpec {
        &self.spec
    }

    /// `terms`, `negatedTerms`, `phrases` and `negatedPhrases`, as explain shows them.
    pub fn parts(&self) -> [(&'static str, Vec<&str>); 4] {
        fn shown<'t>(texts: impl IntoIterator<Item = &'t String>) -> Vec<&'t str> {
            texts.into_iter().map(String::as_str).collect()
        }
        [
            ("terms", shown(&self.terms)),
            ("negatedTerms", shown(&self.negated_terms)),
            ("phrases", shown(&self.phrases)),
            ("negatedPhrases", shown(&self.negated_phrases)),
        ]
    }
}

/// Characters that separate the parts of a search; a tab is not one of them.
const SPACES: [char; 5] = [' ', '\n', '\r', '\u{b}', '\u{c}'];

/// The words and phrases of a search.
#[derive(Debug, Default)]
struct Parts {
    text: String,
    negated: String,
    phrases: Vec<String>,
    negated_phrases: Vec<String>,
}

impl Parts {
    fn of(search: &str) -> Self {
        let mut parts = Self::default();
        let mut negated = false;
        let mut phrase: Option<usize> = None;
        let mut after_space = true;
        let mut rest = search;
        while let Some(first) = rest.chars().next() {
            if SPACES.contains(&first) {
                after_space = true;
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            // A negation ends at a space: in "-a-b" it applies to both, in "- a" to nothing.
            negated &= phrase.is_some() || !after_space;
            let at = search.len() - rest.len();
            let len = match (first, phrase) {
                ('-', _) => {
                    negated |= phrase.is_none() && after_space;
                    1
                }
                ('"', None) => {
                    phrase = Some(at + 1);
                    1
                }
                ('"', Some(start)) => {
                    let text = search.get(start..at).unwrap_or_default().to_owned();
                    let list =
                        if negated { &mut parts.negated_phrases } else { &mut parts.phrases };
                    list.push(text);
                    phrase = None;
                    1
                }
                _ => {
                    let len = rest
                        .find(|c| matches!(c, '-' | '"') || SPACES.contains(&c))
                        .unwrap_or(rest.len());
                    let words = rest.get(..len).unwrap_or_default();
                    if !(negated && phrase.is_some()) {
                        let text = if negated { &mut parts.negated } else { &mut parts.text };
                        text.push_str(words);
                        text.push(' ');
                    }
                    len
                }
            };
            after_space = false;
            rest = rest.get(len..).unwrap_or_default();
        }
        parts
    }
}
