//! Collation: compares text by the rules of a language.
//!
//! mongod includes ICU 57; we use current ICU data. Options and their defaults are mongod's; the order of rare
//! characters is the current one. In text that is not UTF-8, invalid bytes compare as U+FFFD.

use std::{cmp::Ordering, fmt};

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use icu_collator::{
    CollatorBorrowed, CollatorPreferences,
    options::{AlternateHandling, CaseLevel, CollatorOptions, MaxVariable, Strength},
    preferences::{CollationCaseFirst, CollationNumericOrdering},
};
use icu_locale_core::Locale;

mod locales;

use locales::LOCALES;

use crate::{
    error::QueryError,
    value::{Elements, Shown, Value},
};

/// The options of a collation, as a user writes them and as `listCollections` shows them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CollationSpec {
    /// ICU's locale name, never "simple".
    pub locale: String,
    /// Compare case on its own level.
    pub case_level: bool,
    /// Which case comes first.
    pub case_first: CaseFirst,
    /// Number of levels that are compared: 1 to 5.
    pub strength: u8,
    /// Compare digit sequences by their numeric value, so that "10" comes after "9".
    pub numeric_ordering: bool,
    /// Ignore spaces and punctuation below level 4.
    pub alternate_shifted: bool,
    /// With `alternate_shifted`: ignore spaces only, not punctuation.
    pub max_variable_space: bool,
    /// Check for text that needs normalizing.
    pub normalization: bool,
    /// Compare accents from the end of the text.
    pub backwards: bool,
}

/// Which case comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CaseFirst {
    /// The language's default.
    Off,
    /// Upper case first.
    Upper,
    /// Lower case first.
    Lower,
}

impl CollationSpec {
    /// Parses a collation document. `None` means the simple collation, which compares bytes.
    pub fn parse(spec: &RawDocument) -> Result<Option<Self>, QueryError> {
        let mut locale = None;
        for field in Elements::new(spec) {
            if field.key == b"locale" {
                locale = Some(expect_string("collation.locale", field.value())?.to_owned());
            } else if !KNOWN_FIELDS.contains(&field.key) {
                return Err(QueryError::location(
                    40_415,
                    format!(
                        "BSON field 'collation.{}' is an unknown field.",
                        String::from_utf8_lossy(field.key)
                    ),
                ));
            }
        }
        let Some(locale) = locale else {
            return Err(QueryError::location(
                40_414,
                "BSON field 'collation.locale' is missing but a required field",
            ));
        };
        let mut parsed = Self::defaults(&locale);
        for field in Elements::new(spec) {
            parsed.set(field.key, field.value())?;
        }
        if locale == "simple" {
            return Ok(None);
        }
        parsed.check(spec)?;
        Ok(Some(parsed))
    }

    /// All options as a document, as mongod stores and shows them.
    pub fn document(&self) -> RawDocumentBuf {
        let case_first = match self.case_first {
            CaseFirst::Off => "off",
            CaseFirst::Upper => "upper",
            CaseFirst::Lower => "lower",
        };
        rawdoc! {
            "locale": self.locale.as_str(),
            "caseLevel": self.case_level,
            "caseFirst": case_first,
            "strength": i32::from(self.strength),
            "numericOrdering": self.numeric_ordering,
            "alternate": if self.alternate_shifted { "shifted" } else { "non-ignorable" },
            "maxVariable": if self.max_variable_space { "space" } else { "punct" },
            "normalization": self.normalization,
            "backwards": self.backwards,
            "version": VERSION,
        }
    }

    fn defaults(locale: &str) -> Self {
        Self {
            locale: locale.to_owned(),
            case_level: false,
            case_first: CaseFirst::Off,
            strength: 3,
            numeric_ordering: false,
            alternate_shifted: false,
            max_variable_space: false,
            normalization: false,
            backwards: locale.starts_with("fr_CA"),
        }
    }

    fn set(&mut self, name: &[u8], value: Value<'_>) -> Result<(), QueryError> {
        match name {
            b"caseLevel" => self.case_level = expect_bool("collation.caseLevel", value)?,
            b"numericOrdering" => {
                self.numeric_ordering = expect_bool("collation.numericOrdering", value)?;
            }
            b"normalization" => {
                self.normalization = expect_bool("collation.normalization", value)?;
            }
            b"backwards" => self.backwards = expect_bool("collation.backwards", value)?,
            b"version" => expect_version(value)?,
            b"strength" => self.strength = expect_strength(value)?,
            b"caseFirst" => {
                self.case_first = match expect_string("collation.caseFirst", value)? {
                    "off" => CaseFirst::Off,
                    "upper" => CaseFirst::Upper,
                    "lower" => CaseFirst::Lower,
                    other => return Err(bad_enum("collation.caseFirst", other)),
                };
            }
            b"alternate" => {
                self.alternate_shifted = match expect_string("collation.alternate", value)? {
                    "non-ignorable" => false,
                    "shifted" => true,
                    other => return Err(bad_enum("collation.alternate", other)),
                };
            }
            b"maxVariable" => {
                self.max_variable_space = match expect_string("collation.maxVariable", value)? {
                    "punct" => false,
                    "space" => true,
                    other => return Err(bad_enum("collation.maxVariable", other)),
                };
            }
            _ => {}
        }
        Ok(())
    }

    fn check(&self, spec: &RawDocument) -> Result<(), QueryError> {
        let spec = Shown(Value::from(spec));
        if self.locale.is_empty() {
            return Err(QueryError::bad_value(format!(
                "Field 'locale' cannot be the empty string in: {spec}"
            )));
        }
        if LOCALES.binary_search(&self.locale.as_str()).is_err() {
            let hint = near_locale(&self.locale)
                .map_or(String::new(), |near| format!(". Did you mean '{near}'?"));
            return Err(QueryError::bad_value(format!(
                "Field 'locale' is invalid in: {spec}{hint}"
            )));
        }
        if self.backwards && self.strength == 1 {
            return Err(QueryError::bad_value(format!(
                "'backwards' is invalid with 'strength' of 1 in: {spec}"
            )));
        }
        if self.case_first != CaseFirst::Off && !self.case_level && self.strength <= 2 {
            return Err(QueryError::bad_value(format!(
                "'caseFirst' is invalid unless 'caseLevel' is on or 'strength' is greater than 2 in: \
                 {spec}"
            )));
        }
        Ok(())
    }
}

/// The known locale closest to an invalid one: with other case or separators, or its language alone.
fn near_locale(wrong: &str) -> Option<&'static str> {
    let plain = wrong.replace('-', "_");
    let find = |name: &str| LOCALES.iter().find(|l| l.eq_ignore_ascii_case(name)).copied();
    find(&plain).or_else(|| find(plain.split(['_', '@']).next().unwrap_or("")))
}

/// The version of ICU that every mongod reports.
const VERSION: &str = "57.1";

const KNOWN_FIELDS: &[&[u8]] = &[
    b"locale",
    b"caseLevel",
    b"caseFirst",
    b"strength",
    b"numericOrdering",
    b"alternate",
    b"maxVariable",
    b"normalization",
    b"backwards",
    b"version",
];

impl fmt::Display for CollationSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let case_first = match self.case_first {
            CaseFirst::Off => "off",
            CaseFirst::Upper => "upper",
            CaseFirst::Lower => "lower",
        };
        write!(
            f,
            "{{ locale: \"{}\", caseLevel: {}, caseFirst: \"{case_first}\", strength: {}, \
             numericOrdering: {}, alternate: \"{}\", maxVariable: \"{}\", normalization: {}, \
             backwards: {}, version: \"57.1\" }}",
            self.locale,
            self.case_level,
            self.strength,
            self.numeric_ordering,
            if self.alternate_shifted { "shifted" } else { "non-ignorable" },
            if self.max_variable_space { "space" } else { "punct" },
            self.normalization,
            self.backwards,
        )
    }
}

fn expect_string<'a>(path: &str, value: Value<'a>) -> Result<&'a str, QueryError> {
    value.as_str().ok_or_else(|| wrong_type(path, value, "expected type 'string'"))
}

fn expect_bool(path: &str, value: Value<'_>) -> Result<bool, QueryError> {
    match value {
        Value::Bool(b) => Ok(b),
        other => Err(wrong_type(path, other, "expected type 'bool'")),
    }
}

fn expect_strength(value: Value<'_>) -> Result<u8, QueryError> {
    let number = match value {
        Value::Int32(n) => Some(i64::from(n)),
        Value::Int64(n) => Some(n),
        #[allow(clippy::cast_possible_truncation, reason = "saturating is what is wanted")]
        Value::Double(n) => Some(n as i64),
        _ => None,
    };
    let Some(number) = number else {
        return Err(wrong_type(
            "collation.strength",
            value,
            "expected types '[double, int, decimal, long]'",
        ));
    };
    if number > 5 {
        return Err(strength_beyond(number, "<= 5"));
    }
    u8::try_from(number).ok().filter(|&n| n >= 1).ok_or_else(|| strength_beyond(number, ">= 1"))
}

fn strength_beyond(number: i64, limit: &str) -> QueryError {
    QueryError::bad_value(format!(
        "BSON field 'strength' value must be {limit}, actual value '{number}'"
    ))
}

fn expect_version(value: Value<'_>) -> Result<(), QueryError> {
    match expect_string("collation.version", value)? {
        VERSION => Ok(()),
        other => Err(QueryError::location(
            161,
            format!(
                "Requested collation version {other} but the only available collator version was {VERSION}."
            ),
        )),
    }
}

fn wrong_type(path: &str, value: Value<'_>, expected: &str) -> QueryError {
    QueryError::type_mismatch(format!(
        "BSON field '{path}' is the wrong type '{}', {expected}",
        value.type_name()
    ))
}

fn bad_enum(path: &str, found: &str) -> QueryError {
    QueryError::bad_value(format!(
        "Enumeration value '{found}' for field '{path}' is not a valid value."
    ))
}

/// Compares text by a collation.
#[derive(Debug)]
pub struct Collator {
    spec: CollationSpec,
    icu: CollatorBorrowed<'static>,
}

impl Collator {
    /// Makes the collator of a spec.
    pub fn new(spec: CollationSpec) -> Result<Self, QueryError> {
        let locale = icu_locale(&spec)?;
        let mut prefs = CollatorPreferences::from(&locale);
        prefs.case_first = Some(match spec.case_first {
            CaseFirst::Off => CollationCaseFirst::False,
            CaseFirst::Upper => CollationCaseFirst::Upper,
            CaseFirst::Lower => CollationCaseFirst::Lower,
        });
        prefs.numeric_ordering = Some(if spec.numeric_ordering {
            CollationNumericOrdering::True
        } else {
            CollationNumericOrdering::False
        });
        let mut options = CollatorOptions::default();
        options.strength = Some(match spec.strength {
            1 => Strength::Primary,
            2 => Strength::Secondary,
            3 => Strength::Tertiary,
            4 => Strength::Quaternary,
            _ => Strength::Identical,
        });
        options.alternate_handling = Some(if spec.alternate_shifted {
            AlternateHandling::Shifted
        } else {
            AlternateHandling::NonIgnorable
        });
        options.max_variable = Some(if spec.max_variable_space {
            MaxVariable::Space
        } else {
            MaxVariable::Punctuation
        });
        options.case_level = Some(if spec.case_level { CaseLevel::On } else { CaseLevel::Off });
        let icu = CollatorBorrowed::try_new(prefs, options).map_err(|_| invalid_locale(&spec))?;
        Ok(Self { spec, icu })
    }

    /// The options.
    pub fn spec(&self) -> &CollationSpec {
        &self.spec
    }

    /// Orders two texts.
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        if a == b { Ordering::Equal } else { self.icu.compare_utf8(a, b) }
    }

    /// Appends a sort key: bytes that sort like the texts.
    pub fn sort_key(&self, text: &[u8], out: &mut Vec<u8>) {
        let Ok(()) = self.icu.write_sort_key_utf8_to(text, out);
    }
}

/// Converts ICU's locale name to BCP 47. The library has no option for comparing accents backwards; it is part of the
/// data of Canadian French, so only French supports it.
fn icu_locale(spec: &CollationSpec) -> Result<Locale, QueryError> {
    let french = spec.locale.split(['_', '-', '@']).next() == Some("fr");
    let (name, keywords) = spec.locale.split_once('@').unwrap_or((&spec.locale, ""));
    let mut tag = match (french, spec.backwards) {
        (true, true) => "fr-CA".to_owned(),
        (true, false) => "fr".to_owned(),
        (false, true) => {
            return Err(QueryError::bad_value(format!(
                "'backwards' is not supported with locale '{}' by this server: use a French locale",
                spec.locale
            )));
        }
        (false, false) => name.replace('_', "-"),
    };
    if let Some(kind) = keywords.split(';').find_map(|k| k.strip_prefix("collation=")) {
        let kind = match kind {
            "phonebook" => "phonebk",
            "dictionary" => "dict",
            "gb2312han" => "gb2312",
            "traditional" => "trad",
            other => other,
        };
        tag = format!("{tag}-u-co-{kind}");
    }
    Locale::try_from_str(&tag).map_err(|_| invalid_locale(spec))
}

fn invalid_locale(spec: &CollationSpec) -> QueryError {
    QueryError::bad_value(format!("Field 'locale' is invalid in: {spec}"))
}

#[cfg(test)]
mod tests;
