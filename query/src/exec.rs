//! Runs a plan: a scan at the bottom, stages above it, documents one by one.
//!
//! ```text
//!   Pipeline:   [scan] -> stage -> stage -> stage -> next()
//!                 |
//!                 `- opened at its position for each batch, closed at the batch's end
//! ```
//! E1 Between batches a pipeline holds positions and stage states, never a snapshot or an iterator.
//! E2 No stage reads more of the scan than it needs; only sorts and groups read all of it.

mod keys;
mod notes;
mod row;
mod scan;
mod stages;
mod text;

pub use keys::Fetch;
pub use notes::{Annotate, Reveal};
pub(crate) use notes::{INDEX_KEY, RECORD_ID, SORT_KEY, TEXT_SCORE};
pub(crate) use row::SpilledNoted;
pub use row::{Noted, Notes, Seen};
pub use scan::{Access, IndexScan, Scan};
pub use stages::{Distinct, Filter, Limit, Project, Skip, Sort};
pub use text::TextScan;

use bson::RawDocumentBuf;
use protocol::RawDoc;

use crate::{
    context::Context,
    error::QueryError,
    matcher::Matcher,
    source::{RecordKey, Source},
    value::OwnedValue,
};

/// A step that transforms a stream of documents.
pub trait Stage: Send + std::fmt::Debug {
    /// The next document, `None` at the end.
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError>;

    /// The paths that it reads, if neither it nor the stages above need the rest of a document.
    fn needs(&self) -> Option<Vec<Vec<u8>>> {
        None
    }

    /// The path whose distinct values are all that it needs.
    fn values_of(&self) -> Option<Vec<u8>> {
        None
    }

    /// The next document that the test accepts. The test sees every document; rejected ones need not be built.
    fn next_where(
        &mut self,
        up: &mut Upstream<'_, '_>,
        test: Test<'_>,
    ) -> Result<Option<Noted>, QueryError> {
        while let Some(doc) = self.next(up)? {
            if test(doc.seen())? {
                return Ok(Some(doc));
            }
        }
        Ok(None)
    }
}

/// How often long operations check for interruption. A single document can take long: a filter may reach the limit of
/// a regular expression on each.
const CHECK_EVERY: u64 = 16;

/// A test on the bytes of a document.
pub type Test<'t> = &'t mut dyn FnMut(Seen<'_>) -> Result<bool, QueryError>;

/// The input of a stage: the stages below it and the scan at the bottom.
pub struct Upstream<'p, 'v> {
    stages: &'p mut [Step],
    scan: &'p mut Scan,
    input: &'p mut Input<'v>,
}

impl<'v> Upstream<'_, 'v> {
    /// The next document from below.
    pub fn pull(&mut self) -> Result<Option<Noted>, QueryError> {
        match self.stages.split_last_mut() {
            None => self.scan.next(self.input),
            Some((last, below)) => {
                // A stage can produce a billion documents from one that the scan returned, so it checks for
                // interruption, too.
                if last.returned.is_multiple_of(CHECK_EVERY) {
                    self.input.context.check()?;
                }
                let mut up = Upstream { stages: below, scan: self.scan, input: self.input };
                let doc = last.stage.next(&mut up)?;
                last.returned += u64::from(doc.is_some());
                Ok(doc)
            }
        }
    }

    /// The next document from below that the test accepts. See [`Stage::next_where`].
    pub(crate) fn pull_where(&mut self, test: Test<'_>) -> Result<Option<Noted>, QueryError> {
        match self.stages.split_last_mut() {
            None => self.scan.next_where(self.input, test),
            Some((last, below)) => {
                let context = self.input.context;
                let mut up = Upstream { stages: below, scan: self.scan, input: self.input };
                let returned = &mut last.returned;
                last.stage.next_where(&mut up, &mut |doc| {
                    *returned += 1;
                    if returned.is_multiple_of(CHECK_EVERY) {
                        context.check()?;
                    }
                    test(doc)
                })
            }
        }
    }

    /// The document of a record, if it exists.
    fn fetch(&mut self, record: &RecordKey) -> Result<Option<RawDoc>, QueryError> {
        let doc = self.input.source.fetch(record)?;
        self.scan.count_fetched(u64::from(doc.is_some()));
        Ok(doc)
    }

    /// True if the scan was used in this batch.
    fn has_scanned(&self) -> bool {
        self.input.scanned
    }

    /// The record id of the last document that the scan returned.
    fn record_id(&self) -> Option<OwnedValue> {
        self.scan.record().map(|record| self.input.source.record_id(record))
    }

    /// The index key by which the scan found the document.
    fn index_key(&self, doc: &RawDoc) -> Result<Option<RawDocumentBuf>, QueryError> {
        self.scan.index_key(doc, self.input.source)
    }

    /// The context: time, randomness, variables, other collections.
    pub fn context(&self) -> &'v Context {
        self.input.context
    }
}

/// The environment of one batch: the collection at a timestamp and the open iterator over it.
pub struct Input<'v> {
    source: &'v dyn Source,
    context: &'v Context,
    open: Option<scan::Open<'v>>,
    /// The scan was used in this batch.
    scanned: bool,
    /// Whether the indexes are as they were at planning; `None` until checked.
    as_planned: Option<bool>,
}

impl<'v> Input<'v> {
    /// The input for one batch.
    pub fn new(source: &'v dyn Source, context: &'v Context) -> Self {
        Self { source, context, open: None, scanned: false, as_planned: None }
    }
}

/// A stage and the number of documents it returned.
#[derive(Debug)]
struct Step {
    stage: Box<dyn Stage>,
    returned: u64,
}

/// A running query.
#[derive(Debug)]
pub struct Pipeline {
    scan: Scan,
    stages: Vec<Step>,
}

impl Pipeline {
    /// A scan and the stages above it.
    pub fn new(access: Access, stages: Vec<Box<dyn Stage>>) -> Self {
        let mut pipeline = Self { scan: Scan::new(access), stages: Vec::new() };
        stages.into_iter().for_each(|stage| pipeline.push(stage));
        pipeline
    }

    /// A scan of index keys only, which returns empty documents to be counted.
    pub(crate) fn of_keys(access: Access) -> Self {
        Self { scan: Scan::of_keys(access), stages: Vec::new() }
    }

    /// Makes the scan return documents built from index keys.
    #[must_use]
    pub fn covered(mut self) -> Self {
        self.scan.cover();
        self
    }

    /// Like [`Self::covered`], with each document's record as metadata.
    #[must_use]
    pub(crate) fn with_records(mut self) -> Self {
        self.scan.cover();
        self.scan.note_records();
        self
    }

    /// Adds the complete filter, which is checked if the index becomes multikey at more paths after planning.
    #[must_use]
    pub(crate) fn wary(mut self, filter: Matcher) -> Self {
        self.scan.be_wary(filter);
        self
    }

    /// Skips the first entries of the index.
    #[must_use]
    pub fn after(mut self, skip: u64) -> Self {
        self.scan.skip(skip);
        self
    }

    /// Adds a stage on top.
    pub fn push(&mut self, stage: Box<dyn Stage>) {
        self.stages.push(Step { stage, returned: 0 });
    }

    /// Adds a stage on top, if given.
    pub fn extend<S: Stage + 'static>(&mut self, stage: Option<S>) {
        if let Some(stage) = stage {
            self.push(Box::new(stage));
        }
    }

    /// The next document, `None` at the end. All calls of a batch share one `input`.
    pub fn next(&mut self, input: &mut Input<'_>) -> Result<Option<RawDoc>, QueryError> {
        let mut up = Upstream { stages: &mut self.stages, scan: &mut self.scan, input };
        Ok(up.pull()?.map(|row| row.doc))
    }

    /// The next document that passes the test. See [`Stage::next_where`].
    pub fn next_where(
        &mut self,
        input: &mut Input<'_>,
        test: &mut dyn FnMut(&[u8]) -> Result<bool, QueryError>,
    ) -> Result<Option<RawDoc>, QueryError> {
        let mut up = Upstream { stages: &mut self.stages, scan: &mut self.scan, input };
        Ok(up.pull_where(&mut |row| test(row.doc))?.map(|row| row.doc))
    }

    /// Number of documents that each stage returned so far, lowest stage first.
    pub fn returned(&self) -> Vec<u64> {
        self.stages.iter().map(|step| step.returned).collect()
    }

    /// Keys and documents examined so far.
    pub fn examined(&self) -> Examined {
        self.scan.examined()
    }
}

/// What a scan has examined, for explain and profiling.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Examined {
    /// Index keys.
    pub keys: u64,
    /// Documents.
    pub docs: u64,
    /// Index entries that passed the key filter.
    pub given: u64,
}

#[cfg(test)]
mod tests;
