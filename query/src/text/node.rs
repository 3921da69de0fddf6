//! `$text` in a filter.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::{Search, TextQuery, TextSpec};
use crate::error::QueryError;

/// A text search in a filter. It can be resolved only when an index was found.
#[derive(Debug, Clone)]
pub struct TextNode {
    /// The search as written.
    pub search: Search,
    /// The resolved search.
    query: Option<Arc<TextQuery>>,
    /// True if only documents that the index found are tested.
    by_index: bool,
    /// Whether scores are needed. Clones share it, because expressions with `$meta` are parsed after the filter.
    score_wanted: Arc<AtomicBool>,
}

impl TextNode {
    /// An unresolved search.
    pub fn new(search: Search) -> Self {
        Self { search, query: None, by_index: false, score_wanted: Arc::default() }
    }

    /// The search resolved with an index. `by_index` means that only documents found by one of its terms are tested.
    #[must_use]
    pub(crate) fn settled(&self, query: Arc<TextQuery>, by_index: bool) -> Self {
        Self { query: Some(query), by_index, ..self.clone() }
    }

    /// A handle to request scores.
    pub(crate) fn score_wish(&self) -> ScoreWish {
        ScoreWish(Arc::clone(&self.score_wanted))
    }

    /// True if scores were requested.
    pub(crate) fn wants_score(&self) -> bool {
        self.score_wanted.load(Ordering::Relaxed)
    }

    /// Fails if this index does not support the search's language.
    pub fn check(&self, spec: &TextSpec) -> Result<(), QueryError> {
        self.search.language(spec).map(|_| ())
    }

    /// The resolved search.
    pub fn query(&self) -> Option<&Arc<TextQuery>> {
        self.query.as_ref()
    }

    pub(crate) fn matches(&self, doc: &[u8]) -> bool {
        self.query.as_ref().is_some_and(|query| {
            if self.by_index { query.accepts(doc) } else { query.matches(doc) }
        })
    }
}

/// Lets code that is parsed after a search request its scores.
#[derive(Debug, Clone)]
pub struct ScoreWish(Arc<AtomicBool>);

impl ScoreWish {
    /// Requests scores.
    pub(crate) fn wish(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
