//! Stages that find and aggregation share.

use std::collections::HashSet;

use bson::RawDocument;
use protocol::ErrorCode;

use super::{Noted, Seen, SpilledNoted, Stage, Test, Upstream};
use crate::{
    error::QueryError,
    matcher::Matcher,
    projection::Projection,
    sort::{self, SortKey, SortPattern, Sorter},
};

/// Passes matching documents.
#[derive(Debug)]
pub struct Filter(pub Matcher);

impl Stage for Filter {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        self.next_where(up, &mut |_| Ok(true))
    }

    fn next_where(
        &mut self,
        up: &mut Upstream<'_, '_>,
        test: Test<'_>,
    ) -> Result<Option<Noted>, QueryError> {
        let context = up.context();
        up.pull_where(&mut |row| Ok(self.0.check_seen(row, context)? && test(row)?))
    }
}

/// Applies a projection.
#[derive(Debug)]
pub struct Project(pub Projection);

impl Stage for Project {
    fn needs(&self) -> Option<Vec<Vec<u8>>> {
        self.0.included_paths()
    }

    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        self.next_where(up, &mut |_| Ok(true))
    }

    fn next_where(
        &mut self,
        up: &mut Upstream<'_, '_>,
        test: Test<'_>,
    ) -> Result<Option<Noted>, QueryError> {
        let context = up.context();
        let mut shown = None;
        let row = up.pull_where(&mut |row| {
            let doc = RawDocument::from_bytes(row.doc)
                .map_err(|_| QueryError::new(ErrorCode::InvalidBSON, "malformed document"))?;
            let projected = self.0.apply_noted(doc, row.notes, context)?;
            let passes = test(Seen { doc: projected.as_bytes(), ..row })?;
            shown = passes.then(|| projected.into());
            Ok(passes)
        })?;
        Ok(shown.zip(row).map(|(doc, row)| Noted { doc, notes: row.notes }))
    }
}

/// Skips the first documents.
#[derive(Debug)]
pub struct Skip(pub u64);

impl Skip {
    /// Skips the documents. True if there are no more.
    fn is_over(&mut self, up: &mut Upstream<'_, '_>) -> Result<bool, QueryError> {
        if self.0 == 0 {
            return Ok(false);
        }
        let left = &mut self.0;
        let last = up.pull_where(&mut |_| {
            *left -= 1;
            Ok(*left == 0)
        })?;
        self.0 = 0;
        Ok(last.is_none())
    }
}

impl Stage for Skip {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        if self.is_over(up)? { Ok(None) } else { up.pull() }
    }

    fn next_where(
        &mut self,
        up: &mut Upstream<'_, '_>,
        test: Test<'_>,
    ) -> Result<Option<Noted>, QueryError> {
        if self.is_over(up)? { Ok(None) } else { up.pull_where(test) }
    }
}

/// Ends after this many documents, without reading one more.
#[derive(Debug)]
pub struct Limit(pub u64);

impl Stage for Limit {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        let Some(left) = self.0.checked_sub(1) else { return Ok(None) };
        self.0 = left;
        up.pull()
    }

    fn next_where(
        &mut self,
        up: &mut Upstream<'_, '_>,
        test: Test<'_>,
    ) -> Result<Option<Noted>, QueryError> {
        let left = &mut self.0;
        if *left == 0 {
            return Ok(None);
        }
        let mut passed = false;
        let last = up.pull_where(&mut |doc| {
            *left -= 1;
            passed = test(doc)?;
            Ok(passed || *left == 0)
        })?;
        Ok(last.filter(|_| passed))
    }
}

/// Passes each document once, compared by its bytes.
#[derive(Debug, Default)]
pub struct Distinct(HashSet<RawDocBytes>);

type RawDocBytes = Vec<u8>;

impl Stage for Distinct {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        while let Some(doc) = up.pull()? {
            if self.0.insert(doc.as_bytes().to_vec()) {
                return Ok(Some(doc));
            }
        }
        Ok(None)
    }
}

/// Sorts all documents, or keeps only the first ones.
///
/// Above the memory limit sorted runs are spilled and merged at the end.
#[derive(Debug)]
pub struct Sort {
    sorter: Sorter<Noted>,
    sorted: Option<Merge>,
}

impl Sort {
    /// With a limit it keeps no more documents than that.
    pub fn new(pattern: SortPattern, limit: Option<usize>) -> Self {
        Self { sorter: Sorter::new(pattern, limit, |doc| doc.as_bytes().len()), sorted: None }
    }

    /// Sets the memory limit above which it spills or fails, for tests.
    #[cfg(test)]
    pub(crate) fn with_memory(mut self, bytes: usize) -> Self {
        self.sorter.set_memory_max(bytes);
        self
    }

    fn fill(&mut self, up: &mut Upstream<'_, '_>) -> Result<Merge, QueryError> {
        let mut spilled = Vec::new();
        loop {
            let mut key = None;
            let sorter = &self.sorter;
            let found = up.pull_where(&mut |doc| {
                key = sorter.key_if_kept(doc)?;
                Ok(key.is_some())
            })?;
            let (Some(doc), Some(key)) = (found, key) else { break };
            self.sorter.push(key, doc);
            if self.sorter.bytes() > self.sorter.memory_max() {
                let Some(spill) = &up.context().spill else { return Err(sort::memory_exceeded()) };
                let mut run = self.sorter.take_run().map(|(_, row)| row);
                spilled.push(SpilledNoted::write(&**spill, &mut run)?);
            }
        }
        let rest: Vec<_> = self.sorter.take_run().map(|(_, doc)| doc).collect();
        Ok(Merge { spilled, rest: rest.into_iter(), heads: Vec::new(), begun: false })
    }
}

impl Stage for Sort {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        if self.sorted.is_none() {
            self.sorted = Some(self.fill(up)?);
        }
        match &mut self.sorted {
            Some(merge) => merge.next(self.sorter.pattern()),
            None => Ok(None),
        }
    }
}

/// Merges sorted runs: the spilled ones in the order they were written, memory last.
#[derive(Debug)]
struct Merge {
    spilled: Vec<SpilledNoted>,
    rest: std::vec::IntoIter<Noted>,
    heads: Vec<Option<(SortKey, Noted)>>,
    begun: bool,
}

impl Merge {
    fn next(&mut self, pattern: &SortPattern) -> Result<Option<Noted>, QueryError> {
        if self.spilled.is_empty() {
            return Ok(self.rest.next());
        }
        if !self.begun {
            self.begun = true;
            for run in 0..=self.spilled.len() {
                let head = self.read(run, pattern)?;
                self.heads.push(head);
            }
        }
        // Of equal keys, the one that arrived first is in the earlier run.
        let mut least: Option<(usize, &SortKey)> = None;
        for (run, head) in self.heads.iter().enumerate() {
            let Some((key, _)) = head else { continue };
            if least.is_none_or(|(_, best)| pattern.compare(key, best).is_lt()) {
                least = Some((run, key));
            }
        }
        let Some((run, _)) = least else { return Ok(None) };
        let next = self.read(run, pattern)?;
        let taken = self.heads.get_mut(run).and_then(|head| std::mem::replace(head, next));
        Ok(taken.map(|(_, doc)| doc))
    }

    fn read(
        &mut self,
        run: usize,
        pattern: &SortPattern,
    ) -> Result<Option<(SortKey, Noted)>, QueryError> {
        let doc = match self.spilled.get_mut(run) {
            Some(spilled) => spilled.next()?,
            None => self.rest.next(),
        };
        doc.map(|row| Ok((pattern.key_of(row.seen())?, row))).transpose()
    }
}
