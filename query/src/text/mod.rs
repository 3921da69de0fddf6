//! Text search: what words a text has, what a search asks for, and how well a document answers.
//!
//! ```text
//!   document --fields--> texts with weight and language --tokens--> terms --score--> keys of the text index
//!   $search  --parse---> terms, negated terms, phrases  --matching--> does this document answer?
//! ```
//! T1 A term of the index is folded, stemmed and without marks. What is asked for with case or marks is checked on
//!    the document that the index led to.
//! T2 Scores are sums of doubles in mongod's order: fields as the document has them, then terms by their bytes.

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

/// How an index was made: its `textIndexVersion`. The first version, made by MongoDB 2.4 alone, is not known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Only ASCII has cases and delimiters.
    V2,
    /// Characters beyond ASCII are folded, and lose their marks.
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

    /// As specs have it.
    pub fn number(self) -> i32 {
        match self {
            Self::V2 => 2,
            Self::V3 => 3,
        }
    }
}

/// A term as the keys of an index have it: of a long one the beginning, and a hash of the whole.
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

/// From this many bytes on a term is long.
const LONG_TERM: usize = 256;
/// How many bytes of it stand before the hash.
const LONG_TERM_KEPT: usize = 224;

#[cfg(test)]
mod tests;
