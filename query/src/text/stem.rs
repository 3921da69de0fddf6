//! Reduces words to their stems with the Snowball algorithms in the version that mongod uses.
//!
//! The crate's algorithms are the same except for two, which were revised later for Hungarian letters and a
//! Portuguese suffix. The input is changed so that the revised rules do not apply.

use rust_stemmers::{Algorithm, Stemmer};

/// The stem of a word.
pub(super) fn stem(algorithm: Algorithm, word: &str) -> String {
    match algorithm {
        Algorithm::Hungarian => hungarian(word),
        Algorithm::Portuguese => portuguese(word),
        _ => Stemmer::create(algorithm).stem(word).into_owned(),
    }
}

/// The old rules use õ and û instead of ő and ű.
fn hungarian(word: &str) -> String {
    let swapped = |text: &str| -> String {
        text.chars()
            .map(|c| match c {
                'ő' => 'õ',
                'õ' => 'ő',
                'ű' => 'û',
                'û' => 'ű',
                other => other,
            })
            .collect()
    };
    swapped(&Stemmer::create(Algorithm::Hungarian).stem(&swapped(word)))
}

/// The old rules have the Spanish suffixes -ución and -uciones instead of -ução and -uções.
fn portuguese(word: &str) -> String {
    let stemmer = Stemmer::create(Algorithm::Portuguese);
    if let Some(start) = ["ución", "uciones"].iter().find_map(|suffix| word.strip_suffix(suffix)) {
        let ours = second_region(word).is_some_and(|region| region <= start.len());
        let word = if ours { format!("{start}ução") } else { word.to_owned() };
        return stemmer.stem(&word).into_owned();
    }
    let Some(start) = ["ução", "uções"].iter().find_map(|suffix| word.strip_suffix(suffix))
    else {
        return stemmer.stem(word).into_owned();
    };
    // No rule applies to this consonant, so it hides the suffix.
    let hidden: String =
        word.char_indices().map(|(at, c)| if at == start.len() + 1 { 'k' } else { c }).collect();
    let stem = stemmer.stem(&hidden);
    stem.char_indices().map(|(at, c)| if at == start.len() + 1 { 'ç' } else { c }).collect()
}

/// Start of the second region (R2): after a consonant that follows a vowel, twice.
fn second_region(word: &str) -> Option<usize> {
    let vowel = |c: char| "aeiouáéíóúâêô".contains(c);
    let mut chars = word.char_indices();
    let mut begin = None;
    for _ in 0..2 {
        chars.by_ref().find(|&(_, c)| vowel(c))?;
        let (at, c) = chars.by_ref().find(|&(_, c)| !vowel(c))?;
        begin = Some(at + c.len_utf8());
    }
    begin
}
