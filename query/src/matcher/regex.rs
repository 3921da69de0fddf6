//! Regular expressions: PCRE as in mongod, with a limit on the work of a match.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use pcre2::bytes::{Regex as Pcre, RegexBuilder};

use crate::{error::QueryError, value::Value};

/// Maximum steps of one match, after which it counts as no match: about a second at worst.
const MATCH_LIMIT: u32 = 10_000_000;
/// Longer patterns are refused, as in mongod.
const PATTERN_LEN_MAX: usize = 16_384;

/// A compiled regular expression.
#[derive(Clone)]
pub struct Regex {
    pattern: Box<[u8]>,
    options: Box<[u8]>,
    compiled: Arc<Pcre>,
    /// The same for text that is ASCII, where a search need not check the text's encoding from end to end: a search for
    /// all matches would take time by the square of the text's length.
    for_ascii: Arc<OnceLock<Option<Pcre>>>,
}

impl fmt::Debug for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes| String::from_utf8_lossy(bytes);
        write!(f, "/{}/{}", text(&self.pattern), text(&self.options))
    }
}

impl Regex {
    /// Compiles a pattern. The options are mongod's: i, m, s, x, u.
    pub fn new(pattern: &[u8], options: &[u8]) -> Result<Self, RegexFault> {
        if pattern.contains(&0) {
            return Err(RegexFault::NullInPattern);
        }
        if options.contains(&0) {
            return Err(RegexFault::NullInOptions);
        }
        let compiled = Arc::new(compile(pattern, options, true)?);
        let for_ascii = Arc::default();
        Ok(Self { pattern: pattern.into(), options: options.into(), compiled, for_ascii })
    }

    /// The pattern as written.
    pub fn pattern(&self) -> &[u8] {
        &self.pattern
    }

    /// The options as written.
    pub fn options(&self) -> &[u8] {
        &self.options
    }

    /// True if the pattern occurs in the text.
    pub fn matches(&self, text: &[u8]) -> bool {
        self.compiled.is_match(text).unwrap_or(false)
    }

    /// The compiled expression, for `$regexFind` and similar operators.
    pub fn compiled(&self) -> &Pcre {
        &self.compiled
    }

    /// The compiled expression for many searches in one text.
    pub(crate) fn compiled_for(&self, text: &[u8]) -> &Pcre {
        if !text.is_ascii() {
            return &self.compiled;
        }
        let for_ascii = self.for_ascii.get_or_init(|| {
            let means_bytes = self.pattern.is_ascii()
                && !ONLY_UTF.iter().any(|word| contains(&self.pattern, word));
            if means_bytes { compile(&self.pattern, &self.options, false).ok() } else { None }
        });
        for_ascii.as_ref().unwrap_or(&self.compiled)
    }

    /// Text matches by search, a regex by being the same.
    pub(crate) fn matches_value(&self, value: Value<'_>) -> bool {
        match value {
            Value::String(text) | Value::Symbol(text) => self.matches(text),
            Value::Regex { pattern, options } => {
                *pattern == *self.pattern && *options == *self.options
            }
            _ => false,
        }
    }
}

/// Why a regular expression is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegexFault {
    /// The pattern holds a null byte.
    NullInPattern,
    /// The options hold a null byte.
    NullInOptions,
    /// An unknown option.
    UnknownOption(char),
    /// The pattern does not compile; the text says why.
    Invalid(String),
}

impl From<RegexFault> for QueryError {
    fn from(fault: RegexFault) -> Self {
        match fault {
            RegexFault::NullInPattern => {
                Self::bad_value("Regular expression cannot contain an embedded null byte")
            }
            RegexFault::NullInOptions => Self::bad_value(
                "Regular expression options string cannot contain an embedded null byte",
            ),
            RegexFault::UnknownOption(option) => {
                Self::location(51_108, format!(" invalid flag in regex options: {option}"))
            }
            RegexFault::Invalid(why) => {
                Self::location(51_091, format!("Regular expression is invalid: {why}"))
            }
        }
    }
}

/// What means another thing, or nothing, where text is bytes.
const ONLY_UTF: [&[u8]; 8] = [b"\\p", b"\\P", b"\\X", b"\\x", b"\\N", b"\\C", b"\\o", b"(*"];

fn contains(pattern: &[u8], word: &[u8]) -> bool {
    pattern.windows(word.len()).any(|window| window == word)
}

fn compile(pattern: &[u8], options: &[u8], utf: bool) -> Result<Pcre, RegexFault> {
    let invalid = |why: &str| RegexFault::Invalid(why.to_owned());
    let mut builder = RegexBuilder::new();
    builder.utf(utf).jit_if_available(true);
    for &option in options {
        match option {
            b'i' => builder.caseless(true),
            b'm' => builder.multi_line(true),
            b's' => builder.dotall(true),
            b'x' => builder.extended(true),
            b'u' => &mut builder,
            other => return Err(RegexFault::UnknownOption(char::from(other))),
        };
    }
    if pattern.len() > PATTERN_LEN_MAX {
        return Err(invalid("pattern string is longer than the limit set by the application"));
    }
    let text = std::str::from_utf8(pattern).map_err(|_| invalid("invalid UTF-8"))?;
    let text = without_open_quantifiers(text);
    let bounded = format!("(*LIMIT_MATCH={MATCH_LIMIT}){text}");
    builder.build(&bounded).map_err(|error| {
        let text = error.to_string();
        let why = text.rsplit_once(": ").map_or(text.as_str(), |(_, why)| why);
        invalid(match why {
            // Our library supports more lookbehind patterns than mongod's.
            "length of lookbehind assertion is not limited" => {
                "lookbehind assertion is not fixed length"
            }
            other => other,
        })
    })
}

/// Escapes `{,3}`, which is a quantifier in newer libraries but plain text in mongod's.
fn without_open_quantifiers(pattern: &str) -> std::borrow::Cow<'_, str> {
    if !pattern.contains("{,") || pattern.contains("\\Q") {
        return pattern.into();
    }
    let mut out = String::with_capacity(pattern.len() + 4);
    let mut escaped = false;
    for (at, letter) in pattern.char_indices() {
        if letter == '{' && !escaped && pattern.get(at..at + 2) == Some("{,") {
            out.push('\\');
        }
        out.push(letter);
        escaped = letter == '\\' && !escaped;
    }
    out.into()
}
