//! Whether a document answers a search.

use std::collections::BTreeSet;

use super::{
    Language, Sensitivity, TextQuery, Version,
    folding::{BYTE_ORDER_MARK, fold, without_marks},
    tokens::Terms,
};

impl TextQuery {
    /// Whether a document to which the index led by one of the terms is meant.
    pub fn accepts(&self, doc: &[u8]) -> bool {
        (!self.sensitivity.any() || self.has_any(doc, &self.terms))
            && !self.has_any(doc, &self.negated_terms)
            && self.phrases.iter().all(|phrase| self.has_phrase(doc, phrase))
            && !self.negated_phrases.iter().any(|phrase| self.has_phrase(doc, phrase))
    }

    /// Whether any document is meant, by whatever way it was found.
    pub fn matches(&self, doc: &[u8]) -> bool {
        let version = self.spec.version();
        self.any_term(doc, &self.bounds, |language| Terms::indexed(language, version))
            && self.accepts(doc)
    }

    /// Whether the document has one of the terms, be it a common word.
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

    /// A text as the search sees it.
    fn seen(&self, text: &str, language: Language) -> String {
        let Sensitivity { case, diacritics } = self.sensitivity;
        if self.spec.version() < Version::V3 {
            return if case { text.to_owned() } else { text.to_ascii_lowercase() };
        }
        // In Turkish mongod compares phrases without case, whatever is asked for.
        let case = case && !language.is_turkish();
        text.chars()
            .filter(|c| *c != BYTE_ORDER_MARK)
            .map(|c| if case { c } else { fold(c, language) })
            .filter_map(|c| if diacritics { Some(c) } else { without_marks(c) })
            .collect()
    }
}
