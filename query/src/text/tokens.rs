//! Splits a text into terms.

use super::{
    Version,
    folding::{BYTE_ORDER_MARK, fold, is_delimiter, without_marks},
    language::Language,
};

/// The sensitivity of a search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sensitivity {
    /// `$caseSensitive`.
    pub case: bool,
    /// `$diacriticSensitive`.
    pub diacritics: bool,
}

impl Sensitivity {
    /// Insensitive to both.
    pub(super) const NONE: Self = Self { case: false, diacritics: false };

    /// True if the index alone cannot decide.
    pub(super) fn any(self) -> bool {
        self.case || self.diacritics
    }
}

/// How the words of a text become terms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) language: Language,
    pub(super) version: Version,
    pub(super) sensitivity: Sensitivity,
    /// Whether stop words are dropped.
    pub(super) drops: bool,
}

impl Terms {
    /// The settings for terms in an index.
    pub(super) fn indexed(language: Language, version: Version) -> Self {
        Self { language, version, sensitivity: Sensitivity::NONE, drops: true }
    }

    /// Calls `each` with every term of a text, in order.
    pub(super) fn each(self, text: &str, mut each: impl FnMut(String)) {
        for word in text.split(|c| is_delimiter(c, self.language, self.version)) {
            if let Some(term) = self.term(word) {
                each(term);
            }
        }
    }

    /// The term of a word; `None` for a stop word.
    fn term(self, word: &str) -> Option<String> {
        let Self { language, version, sensitivity, drops } = self;
        if word.is_empty() {
            return None;
        }
        let whole = |c: &char| *c != BYTE_ORDER_MARK;
        let lower: String = match version {
            Version::V2 => word.to_ascii_lowercase(),
            Version::V3 => word.chars().filter(whole).map(|c| fold(c, language)).collect(),
        };
        if drops && language.drops(&lower) {
            return None;
        }
        let stem = match (sensitivity.case, version) {
            (false, _) => language.stem(&lower),
            (true, Version::V2) => language.stem(word),
            (true, Version::V3) => language.stem(&word.chars().filter(whole).collect::<String>()),
        };
        let keeps_marks = sensitivity.diacritics || version == Version::V2;
        Some(if keeps_marks { stem } else { stem.chars().filter_map(without_marks).collect() })
    }
}
