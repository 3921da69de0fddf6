//! What a command reads from: a view of the store, and in it a collection, the oplog, node documents, or nothing.

use std::{ops::Bound, sync::Arc};

use bson::{RawBsonRef, RawDocument, rawdoc};
use protocol::{ErrorCode, Namespace, RawDoc, Timestamp};
use query::{
    QueryError,
    collation::Collator,
    context::Context,
    exec::{Access, Input, Pipeline},
    planner::{self, Request},
    source::{Listed, Source},
    value::Value,
};
use storage::{
    Collection, ReadAt, View,
    source::{CollectionSource, OplogSource},
};
use uuid::Uuid;

use super::{
    first_batch::{First, first_batch},
    moment::ReadTime,
    oplog,
    query_cursor::QueryReading,
    surroundings::Surroundings,
    target::{Target, is_oplog},
    views,
};
use crate::{
    context::{Call, Node, Outcome},
    error::Failure,
    index_use, local,
};

/// What a cursor reads, kept between its batches.
#[derive(Debug, Clone)]
pub(crate) enum Subject {
    /// A collection. If it is dropped, the cursor ends.
    Collection(Uuid),
    /// The oplog, within bounds on `ts`.
    Oplog(Bound<Timestamp>, Bound<Timestamp>),
    /// Documents that were in memory when the cursor was opened; none for a collection that does not exist.
    Documents(Listed),
}

/// A subject at one timestamp.
pub(crate) struct Opened {
    pub(crate) view: View,
    pub(crate) subject: Subject,
    /// The collection, if the subject is one.
    pub(crate) collection: Option<Arc<Collection>>,
    source: Box<dyn Source>,
}

/// What a command names.
pub(crate) enum Named {
    /// A source that can be read directly.
    Here(Opened),
    /// A MongoDB view, to be read through its pipeline in the opened store view.
    View(View),
}

impl Opened {
    /// Opens the store at a timestamp, and in it what a command names, by name or by UUID. `filter` bounds what is
    /// read of the oplog.
    pub(crate) fn target(
        call: &Call,
        time: ReadTime,
        target: &Target,
        filter: Option<&RawDocument>,
    ) -> Result<Named, Failure> {
        let view = call.node().store()?.view(time.at)?;
        Ok(match target.collection(&view)? {
            Some(collection) => Named::Here(Self::collection(view, collection)?),
            None if views::exists(&view, target.name()?)? => Named::View(view),
            None => Named::Here(Self::named(call, view, target.name()?, filter)?),
        })
    }

    /// Opens what has this name. Views must be resolved before.
    pub(crate) fn named(
        call: &Call,
        view: View,
        ns: &Namespace,
        filter: Option<&RawDocument>,
    ) -> Result<Self, Failure> {
        if let Some(collection) = view.catalog().collection(ns) {
            return Self::collection(view, collection);
        }
        let subject = if is_oplog(ns) {
            let (low, high) = filter.map_or(oplog::ALL, oplog::range_of_ts);
            Subject::Oplog(low, high)
        } else {
            let docs = match ns.db() {
                "local" => local::documents(call.node().store()?, ns.coll(), call.profile())?,
                _ => Vec::new(),
            };
            Subject::Documents(Listed::new(ns.as_str(), docs.into()))
        };
        Self::of(call, view, subject)
    }

    /// Opens a collection of the view.
    pub(crate) fn collection(view: View, collection: Arc<Collection>) -> Result<Self, Failure> {
        let source = Box::new(CollectionSource::new(view.clone(), Arc::clone(&collection))?);
        let subject = Subject::Collection(collection.uuid());
        Ok(Self { view, subject, collection: Some(collection), source })
    }

    /// No collection and no documents, in a view.
    pub(crate) fn nothing(view: View) -> Self {
        let docs = Listed::nothing();
        let source = Box::new(docs.clone());
        Self { view, subject: Subject::Documents(docs), collection: None, source }
    }

    /// Opens the same subject for a later batch.
    pub(crate) fn again(call: &Call, at: ReadAt, subject: Subject) -> Result<Self, Failure> {
        let view = call.node().store()?.view(at)?;
        Self::of(call, view, subject)
    }

    fn of(call: &Call, view: View, subject: Subject) -> Result<Self, Failure> {
        let source: Box<dyn Source> = match &subject {
            Subject::Collection(uuid) => {
                let Some(collection) = view.catalog().by_uuid(*uuid) else {
                    let text = "collection dropped or its UUID changed between batches";
                    return Err(Failure::said(ErrorCode::QueryPlanKilled, text));
                };
                return Self::collection(view, collection);
            }
            Subject::Oplog(low, high) => {
                oplog::refuse_in_startup(call)?;
                let oplog = call.node().store()?.oplog();
                Box::new(OplogSource::new(oplog, (*low, *high), view.ts()))
            }
            Subject::Documents(docs) => Box::new(docs.clone()),
        };
        Ok(Self { view, subject, collection: None, source })
    }

    /// The namespace of a target: a collection named by UUID may have been renamed.
    pub(crate) fn namespace<'a>(&'a self, target: &'a Target) -> Result<&'a Namespace, Failure> {
        match &self.collection {
            Some(collection) => Ok(collection.ns()),
            None => target.name(),
        }
    }

    /// The source for the query language.
    pub(crate) fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// Only the source.
    pub(super) fn into_source(self) -> Box<dyn Source> {
        self.source
    }

    /// True if there is neither a collection nor any document.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(&self.subject, Subject::Documents(docs) if docs.is_empty())
    }

    /// True for the oplog and capped collections, whose oldest records are removed automatically.
    pub(crate) fn is_capped(&self) -> bool {
        match &self.subject {
            Subject::Collection(_) => {
                self.collection.as_ref().is_some_and(|own| own.capped().is_some())
            }
            Subject::Oplog(..) => true,
            Subject::Documents(_) => local::is_capped(&self.source.namespace()),
        }
    }

    /// The context of one batch of a query over this view.
    pub(crate) fn context(&self, call: &Call, surroundings: &Surroundings) -> Context {
        surroundings.context_over(call, &self.view)
    }

    /// Restricts a request to the indexes of its shape's index filter. True if there is one: then hints are ignored.
    pub(crate) fn restrict(
        &self,
        node: &Node,
        request: &mut Request,
        projection: Option<&RawDocument>,
        collator: Option<&Collator>,
    ) -> bool {
        self.collection.as_ref().is_some_and(|own| {
            let indexes = self.source.indexes();
            node.index_filters.restrict(own.uuid(), request, projection, collator, indexes)
        })
    }

    /// Restricts a request to the hinted index or natural order. Ignored if there can be no index.
    pub(crate) fn hint(
        &self,
        request: &mut Request,
        hint: Option<RawBsonRef<'_>>,
        collator: Option<&Collator>,
    ) -> Result<(), Failure> {
        let Some(hint) = hint else { return Ok(()) };
        if let RawBsonRef::Document(doc) = hint
            && let Some(direction) = planner::natural(doc, "hint")?
        {
            request.natural = Some(direction);
            return Ok(());
        }
        // These documents have no real index, but a hint on `_id` is valid.
        let of_id = match hint {
            RawBsonRef::String(name) => name == "_id_",
            RawBsonRef::Document(pattern) => pattern == &*rawdoc! { "_id": 1 },
            _ => false,
        };
        if self.is_absent() || of_id && matches!(self.subject, Subject::Documents(_)) {
            return Ok(());
        }
        if let Some(hint) = Value::from_raw(hint) {
            let index = planner::resolve_hint(hint, self.source.indexes());
            let text = "hint provided does not correspond to an existing index";
            let refused = || self.refused(ErrorCode::BadValue.code(), request, collator, text);
            request.hint = Some(index.ok_or_else(refused)?);
        }
        Ok(())
    }

    /// mongod's error for a query that cannot be planned.
    pub(crate) fn refused(
        &self,
        code: i32,
        request: &Request,
        collator: Option<&Collator>,
        why: &str,
    ) -> QueryError {
        let collation = collator.map(|collator| collator.spec().document());
        planner::refused(code, request, &self.source.namespace(), collation.as_deref(), why)
    }

    /// Applies [`Self::restrict`], or else [`Self::hint`].
    pub(crate) fn restrict_or_hint(
        &self,
        node: &Node,
        request: &mut Request,
        hint: Option<&RawDoc>,
        collator: Option<&Collator>,
    ) -> Result<(), Failure> {
        if self.restrict(node, request, None, collator) {
            return Ok(());
        }
        self.hint(request, hint.and_then(|hint| hint.get("").ok().flatten()), collator)
    }

    /// Plans a query.
    pub(crate) fn plan(&self, request: Request, context: &Context) -> Result<Planned, QueryError> {
        if self.is_absent() {
            return Ok(Planned::from(Pipeline::new(Access::Nothing, Vec::new())));
        }
        let (pipeline, chosen) = planner::plan(request, self.source(), context)?;
        let names = index_use::names(&chosen.access, self.source.indexes());
        let used = self.collection.as_ref().map(|own| (own.uuid(), names));
        Ok(Planned { pipeline, used })
    }

    /// Runs a query to its end, for commands without a cursor.
    pub(crate) fn each(
        &self,
        call: &Call,
        mut planned: Planned,
        context: &Context,
        mut take: impl FnMut(&RawDoc) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        planned.note(call);
        let mut input = Input::new(self.source(), context);
        while let Some(doc) = planned.pipeline.next(&mut input)? {
            take(&doc)?;
        }
        Ok(())
    }

    /// Fills the first batch of a query from this view, and stores a cursor if there is more.
    pub(crate) fn cursor(
        &self,
        call: &Call,
        (ns, time): (Namespace, ReadTime),
        mut planned: Planned,
        (surroundings, context): (Surroundings, &Context),
        first: &First,
    ) -> Outcome {
        let used = planned.used.take();
        let reading = QueryReading::new(self.subject.clone(), time, planned.pipeline, surroundings);
        let filled = first_batch(call, ns, reading, first, |reading, batch, limit| {
            reading.fill_from(call, (self.source(), context), batch, limit)
        });
        note(call, used);
        filled
    }
}

/// A planned query, with the indexes that it uses.
pub(crate) struct Planned {
    pub(crate) pipeline: Pipeline,
    used: Option<(Uuid, Vec<String>)>,
}

impl From<Pipeline> for Planned {
    /// A query that uses no index.
    fn from(pipeline: Pipeline) -> Self {
        Self { pipeline, used: None }
    }
}

impl Planned {
    /// Counts the use of the indexes.
    pub(crate) fn note(&mut self, call: &Call) {
        note(call, self.used.take());
    }
}

/// A query that is restarted on another thread is counted only once.
fn note(call: &Call, used: Option<(Uuid, Vec<String>)>) {
    if let Some((collection, names)) = used
        && !call.leash.as_ref().is_some_and(|leash| leash.is_broken())
    {
        call.node().index_use.note(collection, names);
    }
}
