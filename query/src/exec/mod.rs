//! Runs a plan: a scan at the bottom, stages above it, documents one by one.
//!
//! ```text
//!   Pipeline:   [scan] -> stage -> stage -> stage -> next()
//!                 |
//!                 `- opened at its position for each batch, closed at the batch's end
//! ```
//! E1 Between batches a pipeline holds positions and stage states, never a snapshot or an iterator.
//! E2 Nothing reads more of the scan than what is asked of it; only sorts and groups drain it.

mod scan;
mod stages;

pub use scan::{Access, IndexScan, Scan};
pub use stages::{Distinct, Filter, Limit, Project, Skip, Sort};

use protocol::RawDoc;

use crate::{context::Context, error::QueryError, source::Source};

/// A step that turns documents into documents.
pub trait Stage: Send + std::fmt::Debug {
    /// The next document, `None` at the end.
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<RawDoc>, QueryError>;
}

/// What a stage pulls from: the stages below it and the scan at the bottom.
pub struct Upstream<'p, 'v> {
    stages: &'p mut [Step],
    scan: &'p mut Scan,
    input: &'p mut Input<'v>,
}

impl<'v> Upstream<'_, 'v> {
    /// The next document from below.
    pub fn pull(&mut self) -> Result<Option<RawDoc>, QueryError> {
        match self.stages.split_last_mut() {
            None => self.scan.next(self.input),
            Some((last, below)) => {
                let mut up = Upstream { stages: below, scan: self.scan, input: self.input };
                let doc = last.stage.next(&mut up)?;
                last.returned += u64::from(doc.is_some());
                Ok(doc)
            }
        }
    }

    /// Time, chance, variables and other collections.
    pub fn context(&self) -> &'v Context {
        self.input.context
    }
}

/// The surroundings of one batch: the moment's collection and the open iterator over it.
pub struct Input<'v> {
    source: &'v dyn Source,
    context: &'v Context,
    open: Option<scan::Open<'v>>,
}

impl<'v> Input<'v> {
    /// For one batch.
    pub fn new(source: &'v dyn Source, context: &'v Context) -> Self {
        Self { source, context, open: None }
    }
}

/// A stage and how many documents it gave.
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

    /// Puts a stage on top.
    pub fn push(&mut self, stage: Box<dyn Stage>) {
        self.stages.push(Step { stage, returned: 0 });
    }

    /// Puts a stage on top, if there is one.
    pub fn extend<S: Stage + 'static>(&mut self, stage: Option<S>) {
        if let Some(stage) = stage {
            self.push(Box::new(stage));
        }
    }

    /// The next document, `None` at the end. All calls of a batch share one `input`.
    pub fn next(&mut self, input: &mut Input<'_>) -> Result<Option<RawDoc>, QueryError> {
        Upstream { stages: &mut self.stages, scan: &mut self.scan, input }.pull()
    }

    /// How many documents each stage gave so far, the lowest first.
    pub fn returned(&self) -> Vec<u64> {
        self.stages.iter().map(|step| step.returned).collect()
    }

    /// Keys and documents looked at so far.
    pub fn examined(&self) -> Examined {
        self.scan.examined()
    }
}

/// What a scan has looked at, for explain and profiling.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Examined {
    /// Index keys.
    pub keys: u64,
    /// Documents.
    pub docs: u64,
}

#[cfg(test)]
mod tests;
