//! Words reduced to their stems, by the Snowball algorithms of the year that mongod has them from.
//!
//! The crate's are the same but for two: later revisions taught Hungarian its own letters and Portuguese its own
//! suffix. What they know too much is hidden from them.

use rust_stemmers::{Algorithm, Stemmer};

/// The stem of a word.
pub(super) fn stem(algorithm: Algorithm, word: &str) -> String {
    match algorithm {
        Algorithm::Hungarian => hungarian(word),
        Algorithm::Portuguese => portuguese(word),
        _ => Stemmer::create(algorithm).stem(word).into_owned(),
    }
}

/// The old rules have õ and û where the language has ő and ű.
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

/// The old rules have the Spanish -ución and -uciones where the language has -ução and -uções.
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
    // No rule knows this consonant.
    let hidden: String =
        word.char_indices().map(|(at, c)| if at == start.len() + 1 { 'k' } else { c }).collect();
    let stem = stemmer.stem(&hidden);
    stem.char_indices().map(|(at, c)| if at == start.len() + 1 { 'ç' } else { c }).collect()
}

/// Where the second region begins: after a consonant after a vowel, twice.
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
