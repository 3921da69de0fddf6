//! Reads documents by the terms of a text search.
//!
//! ```text
//!   without scores:  scan term after term, each document once
//!   with scores:     read the entries of all terms first; a document's score is the sum of its entries' scores
//! ```

use std::{collections::BTreeMap, sync::Arc};

use protocol::RawDoc;

use super::{CHECK_EVERY, Examined, IndexScan, Input, Noted, notes, scan};
use crate::{
    context::Context, error::QueryError, matcher::Matcher, source::RecordKey, text::TextQuery,
    value::OwnedValue,
};

/// The scans of a text search.
#[derive(Debug, Clone)]
pub struct TextScan {
    /// The resolved search.
    pub query: Arc<TextQuery>,
    /// The position of the text index.
    pub index: usize,
    /// The values of the fields before the terms.
    pub prefix: Vec<OwnedValue>,
    /// One scan per term.
    pub terms: Vec<IndexScan>,
    /// The scans of an `$or`'s other branches.
    pub others: Vec<IndexScan>,
    /// The scans that are read document by document: without scores all of them, otherwise only the other branches.
    pub(super) walked: Vec<IndexScan>,
    /// Whether documents carry their scores.
    pub scored: bool,
    /// The whole filter, with the resolved search.
    pub filter: Matcher,
    /// The branch of an `$or` that contains the search.
    pub branch: Option<Matcher>,
}

impl TextScan {
    /// From the scans of the terms and of other `$or` branches.
    pub fn new(
        query: Arc<TextQuery>,
        (index, prefix): (usize, Vec<OwnedValue>),
        (terms, others): (Vec<IndexScan>, Vec<IndexScan>),
        scored: bool,
        filter: Matcher,
    ) -> Self {
        let by_term = if scored { Vec::new() } else { terms.clone() };
        let walked = by_term.into_iter().chain(others.iter().cloned()).collect();
        Self { query, index, prefix, terms, others, walked, scored, filter, branch: None }
    }

    /// All records of the terms with their scores, in natural order.
    pub(super) fn read(
        &self,
        input: &Input<'_>,
        examined: &mut Examined,
    ) -> Result<Vec<(RecordKey, f64)>, QueryError> {
        let mut scores: BTreeMap<RecordKey, f64> = BTreeMap::new();
        for term in &self.terms {
            let index = scan::place(term, input.source)?;
            for range in &term.ranges {
                for found in input.source.scores(index, range)? {
                    let (record, score) = found?;
                    examined.keys += 1;
                    if examined.keys.is_multiple_of(CHECK_EVERY) {
                        input.context.check()?;
                    }
                    *scores.entry(record).or_insert(0.0) += score;
                }
            }
        }
        Ok(scores.into_iter().collect())
    }

    /// A document with its score. A document that only another branch of an `$or` matches has none.
    pub(super) fn noted(
        &self,
        doc: RawDoc,
        score: f64,
        context: &Context,
    ) -> Result<Noted, QueryError> {
        match &self.branch {
            Some(branch) if !branch.check(&doc, context)? => Ok(doc.into()),
            _ => Ok(notes::with_score(doc, score)),
        }
    }
}
