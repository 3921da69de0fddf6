//! The supported languages.

use std::{collections::HashSet, sync::LazyLock};

use rust_stemmers::Algorithm;

use super::{stem, stop_words};

/// A language: its stemmer and its stop words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Language(Option<&'static Known>);

struct Known {
    name: &'static str,
    code: &'static str,
    algorithm: Algorithm,
    stop_words: LazyLock<HashSet<&'static str>>,
}

impl PartialEq for Known {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Known {}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Language {
    /// No stemming and no stop words.
    pub const NONE: Self = Self(None);

    /// The language with this name or code.
    pub fn named(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("none") {
            return Some(Self::NONE);
        }
        let known = KNOWN.iter().find(|known| {
            known.name.eq_ignore_ascii_case(name) || known.code.eq_ignore_ascii_case(name)
        })?;
        Some(Self(Some(known)))
    }

    /// Its full name.
    pub fn name(self) -> &'static str {
        self.0.map_or("none", |known| known.name)
    }

    pub(super) fn is_english(self) -> bool {
        self.name() == "english"
    }

    pub(super) fn is_turkish(self) -> bool {
        self.name() == "turkish"
    }

    /// True if the word, in lower case, is a stop word.
    pub(super) fn drops(self, word: &str) -> bool {
        self.0.is_some_and(|known| known.stop_words.contains(word))
    }

    /// The word's stem.
    pub(super) fn stem(self, word: &str) -> String {
        match self.0 {
            Some(known) => stem::stem(known.algorithm, word),
            None => word.to_owned(),
        }
    }
}

macro_rules! known {
    ($name:literal, $code:literal, $algorithm:ident, $words:ident) => {
        Known {
            name: $name,
            code: $code,
            algorithm: Algorithm::$algorithm,
            stop_words: LazyLock::new(|| stop_words::$words.split(' ').collect()),
        }
    };
}

static KNOWN: [Known; 15] = [
    known!("danish", "da", Danish, DANISH),
    known!("dutch", "nl", Dutch, DUTCH),
    known!("english", "en", English, ENGLISH),
    known!("finnish", "fi", Finnish, FINNISH),
    known!("french", "fr", French, FRENCH),
    known!("german", "de", German, GERMAN),
    known!("hungarian", "hu", Hungarian, HUNGARIAN),
    known!("italian", "it", Italian, ITALIAN),
    known!("norwegian", "nb", Norwegian, NORWEGIAN),
    known!("portuguese", "pt", Portuguese, PORTUGUESE),
    known!("romanian", "ro", Romanian, ROMANIAN),
    known!("russian", "ru", Russian, RUSSIAN),
    known!("spanish", "es", Spanish, SPANISH),
    known!("swedish", "sv", Swedish, SWEDISH),
    known!("turkish", "tr", Turkish, TURKISH),
];
