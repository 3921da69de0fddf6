//! `$text` within a filter.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::{Search, TextQuery, TextSpec};
use crate::error::QueryError;

/// A search that documents are tested by. What it means is known once an index was found for it.
#[derive(Debug, Clone)]
pub struct TextNode {
    /// What was written.
    pub search: Search,
    /// What it means.
    query: Option<Arc<TextQuery>>,
    /// Whether only documents are tested that the index led to.
    by_index: bool,
    /// Whether anybody asks for scores. Clones share it: whoever reads `$meta` is parsed after the filter.
    score_wanted: Arc<AtomicBool>,
}

impl TextNode {
    /// As the filter has it.
    pub fn new(search: Search) -> Self {
        Self { search, query: None, by_index: false, score_wanted: Arc::default() }
    }

    /// The same for an index. `by_index`: no other documents are tested than those with one of its terms.
    #[must_use]
    pub(crate) fn settled(&self, query: Arc<TextQuery>, by_index: bool) -> Self {
        Self { query: Some(query), by_index, ..self.clone() }
    }

    /// Somebody asks for scores.
    pub(crate) fn score_wish(&self) -> ScoreWish {
        ScoreWish(Arc::clone(&self.score_wanted))
    }

    /// Whether anybody asked for scores.
    pub fn wants_score(&self) -> bool {
        self.score_wanted.load(Ordering::Relaxed)
    }

    /// Refuses what no index like this one can look for.
    pub fn check(&self, spec: &TextSpec) -> Result<(), QueryError> {
        self.search.language(spec).map(|_| ())
    }

    /// What it means to its index.
    pub fn query(&self) -> Option<&Arc<TextQuery>> {
        self.query.as_ref()
    }

    pub(crate) fn matches(&self, doc: &[u8]) -> bool {
        self.query.as_ref().is_some_and(|query| {
            if self.by_index { query.accepts(doc) } else { query.matches(doc) }
        })
    }
}

/// Where those who are parsed after a search say that they need its scores.
#[derive(Debug, Clone)]
pub struct ScoreWish(Arc<AtomicBool>);

impl ScoreWish {
    /// Scores are needed.
    pub(crate) fn wish(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
