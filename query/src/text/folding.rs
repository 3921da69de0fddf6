//! Character folding of text indexes of version 3.

use std::{collections::HashMap, sync::LazyLock};

use super::{
    Version,
    language::Language,
    tables::{BASES, DELIMITERS, FOLDS, MARKS},
};

/// Always dropped: it is not text but a mark of the encoding.
pub(super) const BYTE_ORDER_MARK: char = '\u{feff}';

/// True if the character separates words.
pub(super) fn is_delimiter(c: char, language: Language, version: Version) -> bool {
    if c == '\'' {
        return !language.is_english();
    }
    (version == Version::V3 || c.is_ascii()) && within(DELIMITERS, c)
}

/// The character that represents all case variants.
pub(super) fn fold(c: char, language: Language) -> char {
    if c.is_ascii() {
        return if c == 'I' && language.is_turkish() { 'ı' } else { c.to_ascii_lowercase() };
    }
    if c == 'İ' && language.is_turkish() {
        return 'i';
    }
    let code = u32::from(c);
    // Ranges overlap where cases alternate, so the last range that begins before the character is not always the
    // right one.
    let end = FOLDS.partition_point(|&(first, ..)| first <= code);
    let near = FOLDS.get(end.saturating_sub(OVERLAP)..end).unwrap_or_default();
    let found = near
        .iter()
        .find(|&&(first, last, step, _)| code <= last && (code - first).is_multiple_of(step));
    found.and_then(|&(.., delta)| char::from_u32(code.checked_add_signed(delta)?)).unwrap_or(c)
}

/// Number of ranges of [`FOLDS`] that may overlap.
const OVERLAP: usize = 8;

/// The character without diacritics; `None` if it is only a diacritic.
pub(super) fn without_marks(c: char) -> Option<char> {
    static LETTERS: LazyLock<HashMap<char, char>> = LazyLock::new(|| {
        let letters = |(base, marked): &(&'static str, &'static str)| {
            let base = base.chars().next();
            marked.chars().filter_map(move |c| Some((c, base?))).collect::<Vec<_>>()
        };
        BASES.iter().flat_map(letters).collect()
    });
    // '^' and '`' count as diacritics, too.
    if c.is_ascii_alphanumeric() {
        return Some(c);
    }
    match LETTERS.get(&c) {
        Some(base) => Some(*base),
        None if within(MARKS, c) => None,
        None => Some(c),
    }
}

fn within(ranges: &[(u32, u32)], c: char) -> bool {
    let code = u32::from(c);
    let at = ranges.partition_point(|&(_, last)| last < code);
    ranges.get(at).is_some_and(|&(first, _)| first <= code)
}
