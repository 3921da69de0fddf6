//! A cursor over the documents of a planned query.

use protocol::{Profile, RawDoc};
use query::{
    QueryError,
    context::Context,
    exec::{Input, Pipeline},
    source::Source,
    value::{Elements, Shown},
};

use super::{
    batch::BatchWriter,
    cursors::{Filled, Reading, Remarks},
    moment::ReadTime,
    opened::{Opened, Subject},
    surroundings::Surroundings,
};
use crate::{context::Call, error::Failure};

/// Maximum size of a document in a reply: mongod's limit, plus its internal allowance.
const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024 + 16 * 1024;

/// The error for a document from a stage that exceeds the limit.
fn too_large(doc: &[u8], profile: &Profile) -> QueryError {
    let len = doc.len();
    let text = if profile.executor_errors_name_collection {
        format!(
            "Serializing Document failed :: caused by :: Size {len} exceeds maximum \
             {DOCUMENT_BYTES_MAX}"
        )
    } else {
        let first = Elements::of_bytes(doc).next().map(|first| {
            format!("{}: {}", String::from_utf8_lossy(first.key), Shown(first.value()))
        });
        format!(
            "BSONObj size: {len} (0x{len:X}) is invalid. Size must be between 0 and \
             {DOCUMENT_BYTES_MAX}(16MB) First element: {}",
            first.unwrap_or_default()
        )
    };
    QueryError::location(10_334, text)
}

/// Whether a document was accepted.
pub(crate) enum Taken {
    /// It was accepted.
    Yes,
    /// It was accepted as the last one.
    AsLast,
    /// There was no room for it.
    No,
}

/// The cursor.
pub(crate) struct QueryReading {
    subject: Subject,
    time: ReadTime,
    pipeline: Pipeline,
    surroundings: Surroundings,
    /// A document that did not fit into the last batch.
    held: Option<RawDoc>,
}

impl QueryReading {
    /// A cursor at its start.
    pub(crate) fn new(
        subject: Subject,
        time: ReadTime,
        pipeline: Pipeline,
        surroundings: Surroundings,
    ) -> Self {
        Self { subject, time, pipeline, surroundings, held: None }
    }

    /// Passes documents to `take` until there are no more or one is not accepted, which comes first the next time.
    /// True if there may be more.
    pub(crate) fn each(
        &mut self,
        call: &Call,
        take: impl FnMut(&[u8], &Context) -> Result<Taken, Failure>,
    ) -> Result<bool, Failure> {
        let opened = Opened::again(call, self.time.at, self.subject.clone())?;
        let context = opened.context(call, &self.surroundings);
        self.each_from(opened.source(), &context, take)
    }

    fn each_from(
        &mut self,
        source: &dyn Source,
        context: &Context,
        mut take: impl FnMut(&[u8], &Context) -> Result<Taken, Failure>,
    ) -> Result<bool, Failure> {
        if let Some(doc) = self.held.take() {
            match take(doc.as_bytes(), context)? {
                Taken::Yes => {}
                Taken::AsLast => return Ok(true),
                Taken::No => {
                    self.held = Some(doc);
                    return Ok(true);
                }
            }
        }
        let mut input = Input::new(source, context);
        // Accepted documents are passed on without making an owned copy.
        let mut last = Ok(Taken::Yes);
        let ended = self.pipeline.next_where(&mut input, &mut |doc| {
            last = take(doc, context);
            Ok(!matches!(last, Ok(Taken::Yes)))
        })?;
        match (last?, ended) {
            (Taken::Yes, _) => Ok(false),
            (Taken::AsLast, _) => Ok(true),
            (Taken::No, doc) => {
                self.held = doc;
                Ok(true)
            }
        }
    }

    /// Fills a batch from an open view.
    pub(crate) fn fill_from(
        &mut self,
        call: &Call,
        (source, context): (&dyn Source, &Context),
        batch: &mut BatchWriter,
        limit: usize,
    ) -> Result<Filled, Failure> {
        if limit == 0 {
            return Ok(Filled::More);
        }
        let profile = call.profile();
        let more = self.each_from(source, context, |doc, _| {
            if doc.len() > DOCUMENT_BYTES_MAX {
                return Err(Failure::Query(too_large(doc, profile)));
            }
            Ok(match batch.push_bytes(doc) {
                false => Taken::No,
                true if batch.count() >= limit => Taken::AsLast,
                true => Taken::Yes,
            })
        })?;
        Ok(if more { Filled::More } else { Filled::Exhausted })
    }
}

impl Reading for QueryReading {
    fn fill(
        &mut self,
        call: &Call,
        batch: &mut BatchWriter,
        limit: usize,
    ) -> Result<Filled, Failure> {
        let opened = Opened::again(call, self.time.at, self.subject.clone())?;
        let context = opened.context(call, &self.surroundings);
        self.fill_from(call, (opened.source(), &context), batch, limit)
    }

    fn remarks(&self) -> Remarks {
        Remarks { resume_token: None, at_cluster_time: self.time.snapshot }
    }
}
