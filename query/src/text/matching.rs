//! Tests documents against a text search.

use std::collections::BTreeSet;

use super::{
    Language, Sensitivity, TextQuery, Version,
    folding::{BYTE_ORDER_MARK, fold, without_marks},
    tokens::Terms,
};

impl TextQuery {
    /// True if a document that the index found by one of the terms matches.
    pub fn accepts(&self, doc: &[u8]) -> bool {
        (!self.sensitivity.any() || self.has_any(doc, &self.terms))
            && !self.has_any(doc, &self.negated_terms)
            && self.phrases.iter().all(|phrase| self.has_phrase(doc, phrase))
            && !self.negated_phrases.iter().any(|phrase| self.has_phrase(doc, phrase))
    }

    /// True if a document matches, however it was found.
    pub fn matches(&self, doc: &[u8]) -> bool {
        let version = self.spec.version();
        self.any_term(doc, &self.bounds, |language| Terms::indexed(language, version))
            && self.accepts(doc)
    }

    /// True if the document contains one of the terms, including stop words.
    fn has_any(&self, doc: &[u8], terms: &BTreeSet<String>) -> bool {
        let (version, sensitivity) = (self.spec.version(), self.sensitivity);
        self.any_term(doc, terms, |language| Terms { language, version, sensitivity, drops: false })
    }

    fn any_term(
        &self,
        doc: &[u8],
        wanted: &BTreeSet<String>,
        terms: impl Fn(Language) -> Terms,
    ) -> bool {
        !wanted.is_empty()
            && !self.spec.each_field(doc, &mut |field| {
                let mut found = false;
                terms(field.language).each(field.text, |term| found |= wanted.contains(&term));
                !found
            })
    }

    fn has_phrase(&self, doc: &[u8], phrase: &str) -> bool {
        !self.spec.each_field(doc, &mut |field| {
            let seen = |text: &str| self.seen(text, field.language);
            !seen(field.text).contains(&seen(phrase))
        })
    }

    /// A text after the folding that the search asks for.
    fn seen(&self, text: &str, language: Language) -> String {
        let Sensitivity { case, diacritics } = self.sensitivity;
        if self.spec.version() < Version::V3 {
            return if case { text.to_owned() } else { text.to_ascii_lowercase() };
        }
        // In Turkish mongod always compares phrases case-insensitively.
        let case = case && !language.is_turkish();
        text.chars()
            .filter(|c| *c != BYTE_ORDER_MARK)
            .map(|c| if case { c } else { fold(c, language) })
            .filter_map(|c| if diacritics { Some(c) } else { without_marks(c) })
            .collect()
    }
}
