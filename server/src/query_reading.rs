//! A cursor over a collection.

use protocol::{ErrorCode, Profile, RawDoc};
use query::{
    QueryError,
    context::Context,
    exec::{Input, Pipeline},
    source::Source,
    value::{Elements, Shown},
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

/// The longest document that a reply may hold: mongod's own limit, and what it allows for internal use.
const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024 + 16 * 1024;

/// A stage may make a document that is too large; nobody could read it.
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
        mut take: impl FnMut(&[u8], &Context) -> Result<Taken, Failure>,
    ) -> Result<bool, Failure> {
        let view = call.node().store()?.view(self.time.at)?;
        let mut context = self.surroundings.context(call, None);
        source::with_others(&mut context, &view);
        let source = self.source(view)?;
        if let Some(doc) = self.held.take() {
            match take(doc.as_bytes(), &context)? {
                Taken::Yes => {}
                Taken::AsLast => return Ok(true),
                Taken::No => {
                    self.held = Some(doc);
                    return Ok(true);
                }
            }
        }
        let mut input = Input::new(source.as_ref(), &context);
        // What is taken need not become a document of its own.
        let mut last = Ok(Taken::Yes);
        let ended = self.pipeline.next_where(&mut input, &mut |doc| {
            last = take(doc, &context);
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
        let profile = call.profile();
        let more = self.each(call, |doc, _| {
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

    fn remarks(&self) -> Remarks {
        Remarks { resume_token: None, at_cluster_time: self.time.snapshot }
    }
}
