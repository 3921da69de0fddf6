//! The stages that find and aggregation share.

use std::collections::HashSet;

use protocol::RawDoc;

use super::{Stage, Upstream};
use crate::{
    error::QueryError,
    matcher::Matcher,
    projection::Projection,
    sort::{self, SortPattern, Sorter},
};

/// Lets matching documents through.
#[derive(Debug)]
pub struct Filter(pub Matcher);

impl Stage for Filter {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<RawDoc>, QueryError> {
        while let Some(doc) = up.pull()? {
            if self.0.check(&doc, up.context())? {
                return Ok(Some(doc));
            }
        }
        Ok(None)
    }
}

/// Shows what a projection shows.
#[derive(Debug)]
pub struct Project(pub Projection);

impl Stage for Project {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<RawDoc>, QueryError> {
        let Some(doc) = up.pull()? else { return Ok(None) };
        self.0.apply(&doc, up.context()).map(|doc| Some(doc.into()))
    }
}

/// Drops the first documents.
#[derive(Debug)]
pub struct Skip(pub u64);

impl Stage for Skip {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<RawDoc>, QueryError> {
        while self.0 > 0 {
            self.0 -= 1;
            if up.pull()?.is_none() {
                self.0 = 0;
                return Ok(None);
            }
        }
        up.pull()
    }
}

/// Ends after so many documents, without asking for one more.
#[derive(Debug)]
pub struct Limit(pub u64);

impl Stage for Limit {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<RawDoc>, QueryError> {
        let Some(left) = self.0.checked_sub(1) else { return Ok(None) };
        self.0 = left;
        up.pull()
    }
}

/// Lets each document through once, by its bytes.
#[derive(Debug, Default)]
pub struct Distinct(HashSet<RawDocBytes>);

type RawDocBytes = Vec<u8>;

impl Stage for Distinct {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<RawDoc>, QueryError> {
        while let Some(doc) = up.pull()? {
            if self.0.insert(doc.as_bytes().to_vec()) {
                return Ok(Some(doc));
            }
        }
        Ok(None)
    }
}

/// Sorts all documents, or keeps the first ones of the order.
#[derive(Debug)]
pub struct Sort {
    sorter: Sorter<RawDoc>,
    sorted: Option<std::vec::IntoIter<RawDoc>>,
}

impl Sort {
    /// With a limit it holds no more documents than that.
    pub fn new(pattern: SortPattern, limit: Option<usize>) -> Self {
        Self { sorter: Sorter::new(pattern, limit, |doc| doc.as_bytes().len()), sorted: None }
    }

    fn fill(&mut self, up: &mut Upstream<'_, '_>) -> Result<Vec<RawDoc>, QueryError> {
        while let Some(doc) = up.pull()? {
            let key = self.sorter.pattern().key(doc.as_bytes())?;
            self.sorter.push(key, doc);
            if self.sorter.bytes() > sort::MEMORY_MAX {
                return Err(sort::memory_exceeded());
            }
        }
        Ok(self.sorter.take_run().map(|(_, doc)| doc).collect())
    }
}

impl Stage for Sort {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<RawDoc>, QueryError> {
        if self.sorted.is_none() {
            self.sorted = Some(self.fill(up)?.into_iter());
        }
        Ok(self.sorted.as_mut().and_then(Iterator::next))
    }
}
