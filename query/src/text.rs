//! Text search: the terms of a text, the parts of a search, and scores.
//!
//! ```text
//!   document --fields--> texts with weight and language --tokens--> terms --score--> keys of the text index
//!   $search  --parse---> terms, negated terms, phrases  --matching--> does this document match?
//! ```
//! T1 A term in the index is folded, stemmed and without diacritics. Case and diacritic sensitivity is checked on the
//!    document that the index found.
//! T2 Scores are sums of doubles in mongod's order: fields in document order, then terms by their bytes.

mod folding;
mod language;
mod matching;
mod node;
mod search;
mod spec;
mod stem;
mod stop_words;
mod tables;
mod tokens;

pub use language::Language;
pub use node::{ScoreWish, TextNode};
pub use search::{Search, TextQuery};
pub use spec::TextSpec;
pub use tokens::Sensitivity;

/// The `textIndexVersion` of an index. Version 1, which only MongoDB 2.4 created, is not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Case folding and delimiters are limited to ASCII.
    V2,
    /// All characters are folded and lose their diacritics.
    V3,
}

impl Version {
    fn of(number: i64) -> Option<Self> {
        match number {
            2 => Some(Self::V2),
            3 => Some(Self::V3),
            _ => None,
        }
    }

    /// The number in index specs.
    pub fn number(self) -> i32 {
        match self {
            Self::V2 => 2,
            Self::V3 => 3,
        }
    }
}

/// A term as stored in index keys: a long one is truncated and followed by a hash of the whole.
pub fn key_term(term: &str, version: Version) -> std::borrow::Cow<'_, [u8]> {
    use md5::Digest;
    let bytes = term.as_bytes();
    match (version, bytes.get(..LONG_TERM_KEPT)) {
        (Version::V3, Some(kept)) if bytes.len() >= LONG_TERM => {
            let mut key = kept.to_vec();
            for byte in md5::Md5::digest(bytes) {
                key.extend_from_slice(format!("{byte:02x}").as_bytes());
            }
            key.into()
        }
        _ => bytes.into(),
    }
}

/// Minimum length of a long term.
const LONG_TERM: usize = 256;
/// Number of bytes of a long term before the hash.
const LONG_TERM_KEPT: usize = 224;

#[cfg(test)]
mod tests;
