//! A cursor over a collection.

use protocol::{ErrorCode, RawDoc};
use query::{
    context::Context,
    exec::{Input, Pipeline},
    source::Source,
};
use storage::View;
use uuid::Uuid;

use crate::{
    batch::BatchWriter,
    blocking::Surroundings,
    context::Call,
    cursors::{Filled, Reading, Remarks},
    error::Failure,
    read_time::ReadTime,
    source::{self, CollectionSource, NoDocuments},
};

/// What became of a document.
pub enum Taken {
    /// It was taken.
    Yes,
    /// It was taken, and no other will be.
    AsLast,
    /// There was no room for it.
    No,
}

/// The cursor.
pub struct QueryReading {
    /// `None`: a collection that is not there.
    uuid: Option<Uuid>,
    time: ReadTime,
    pipeline: Pipeline,
    surroundings: Surroundings,
    /// A document that did not fit into the last batch.
    held: Option<RawDoc>,
}

impl QueryReading {
    /// At its beginning.
    pub fn new(
        uuid: Option<Uuid>,
        time: ReadTime,
        pipeline: Pipeline,
        surroundings: Surroundings,
    ) -> Self {
        Self { uuid, time, pipeline, surroundings, held: None }
    }

    /// Gives documents until there are no more or one is not taken, which comes first the next time. True if there may
    /// be more.
    pub fn each(
        &mut self,
        call: &Call,
        mut take: impl FnMut(&RawDoc, &Context) -> Result<Taken, Failure>,
    ) -> Result<bool, Failure> {
        let view = call.node().store()?.view(self.time.at)?;
        let mut context = self.surroundings.context(call, None);
        source::with_others(&mut context, &view);
        let source = self.source(view)?;
        let mut input = Input::new(source.as_ref(), &context);
        loop {
            let next = match self.held.take() {
                Some(doc) => Some(doc),
                None => self.pipeline.next(&mut input)?,
            };
            let Some(doc) = next else { return Ok(false) };
            match take(&doc, &context)? {
                Taken::Yes => {}
                Taken::AsLast => return Ok(true),
                Taken::No => {
                    self.held = Some(doc);
                    return Ok(true);
                }
            }
        }
    }

    fn source(&self, view: View) -> Result<Box<dyn Source>, Failure> {
        let Some(uuid) = self.uuid else { return Ok(Box::new(NoDocuments)) };
        let Some(collection) = view.catalog().by_uuid(uuid) else {
            let text = "collection dropped or its UUID changed between batches";
            return Err(Failure::said(ErrorCode::QueryPlanKilled, text));
        };
        Ok(Box::new(CollectionSource::new(view, collection)?))
    }
}

impl Reading for QueryReading {
    fn fill(
        &mut self,
        call: &Call,
        batch: &mut BatchWriter,
        limit: usize,
    ) -> Result<Filled, Failure> {
        if limit == 0 {
            return Ok(Filled::More);
        }
        let more = self.each(call, |doc, _| {
            Ok(match batch.push(doc) {
                false => Taken::No,
                true if batch.count() >= limit => Taken::AsLast,
                true => Taken::Yes,
            })
        })?;
        Ok(if more { Filled::More } else { Filled::Exhausted })
    }

    fn remarks(&self) -> Remarks {
        Remarks { resume_token: None, at_cluster_time: self.time.snapshot }
    }
}
