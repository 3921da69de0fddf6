//! aggregate: a pipeline over a collection or a view.
//!
//! A view is its own pipeline put before the client's, over the collection that it is on.

use std::{rc::Rc, sync::Arc};

use bson::{RawArrayBuf, RawBsonRef, RawDocumentBuf, rawdoc};
use protocol::{ErrorCode, Fields, Namespace, RawDoc};
use query::{
    QueryError,
    collation::{CollationSpec, Collator},
    context::{Collections, Context},
    matcher::ParseContext,
    source::{
        Direction, IndexEntries, IndexEntry, IndexInfo, KeyRange, Record, RecordKey, Records,
        Source,
    },
    stage::{self, StageContext},
    value::Value,
};
use storage::View;

use super::{
    Api, Auth, Command, On, OpClass, Run, Waiting,
    find::{FIRST_BATCH, First, QueryReading, first_batch},
    target::{self, Target},
    views,
};
use crate::{
    auth::pipeline,
    blocking,
    context::{Call, Outcome},
    error::Failure,
    read_time::{self, ReadTime},
    source::CollectionSource,
};

pub(super) const COMMAND: Command = Command {
    name: "aggregate",
    help: "Runs a pipeline over a collection.",
    auth: Auth::Body("`find` on each collection, and what its stages need", pipeline::check),
    on: On::Readable,
    api: Api::V1,
    takes_concerns: true,
    class: Some(OpClass::Command),
    run: Run::Waiting(|call| Box::pin(run(call)) as Waiting),
    ..Command::DEFAULT
};

async fn run(call: Call) -> Outcome {
    let time = read_time::resolve(&call, call.node().store()?).await?;
    let inner = call.clone();
    blocking::run(&call, move || aggregate(&inner, time)).await
}

fn aggregate(call: &Call, time: ReadTime) -> Outcome {
    let fields = Fields::idl("aggregate", &call.body);
    let stages = fields.required("pipeline")?.array()?;
    for name in ["explain", "let"] {
        if let Some(value) = fields.optional(name)? {
            let empty = matches!(value.raw(), RawBsonRef::Document(doc) if doc.is_empty());
            if !empty && value.raw() != RawBsonRef::Boolean(false) {
                let text = format!("aggregate with '{name}' is not supported yet");
                return Err(Failure::said(ErrorCode::NotImplemented, text));
            }
        }
    }
    let Some(cursor) = fields.optional("cursor")? else {
        let text =
            "The 'cursor' option is required, except for aggregate with the explain argument";
        return Err(Failure::said(ErrorCode::FailedToParse, text));
    };
    let size = Fields::idl("aggregate.cursor", cursor.document()?)
        .optional("batchSize")?
        .map(|size| size.non_negative())
        .transpose()?;
    let collation = fields.optional("collation")?.map(|spec| spec.document()).transpose()?;
    let collation = collation.map(RawDoc::from);
    let mut pipeline = RawArrayBuf::new();
    for stage in stages.into_iter().flatten() {
        pipeline.push(bson::RawBson::from(stage));
    }
    let without_collection = !matches!(
        call.body.get(&call.name),
        Ok(Some(RawBsonRef::String(_) | RawBsonRef::Binary(_)))
    );
    let target = if without_collection {
        Target::Name(Namespace::new(&call.db, "$cmd.aggregate"))
    } else {
        Target::parse(call)?
    };
    let options = First {
        size: size.map_or(FIRST_BATCH, |size| usize::try_from(size).unwrap_or(usize::MAX)),
        ..First::default()
    };
    open(call, time, &target, pipeline, collation.as_ref(), &options)
}

/// Opens a cursor over a pipeline and fills its first batch.
pub(super) fn open(
    call: &Call,
    time: ReadTime,
    target: &Target,
    pipeline: RawArrayBuf,
    collation: Option<&RawDoc>,
    first: &First,
) -> Outcome {
    let view = call.node().store()?.view(time.at)?;
    let (ns, collection, pipeline) = match target.collection(&view)? {
        Some(collection) => (collection.ns().clone(), Some(collection), pipeline),
        None => {
            let ns = target.name()?.clone();
            let (on, pipeline) = resolve(&view, &ns, pipeline)?;
            let collection = view.catalog().collection(&on);
            (ns, collection, pipeline)
        }
    };
    let collator = match (collation, &collection) {
        (Some(spec), _) => CollationSpec::parse(spec)?.map(Collator::new).transpose()?,
        (None, Some(collection)) => {
            collection.collator().map(|own| Collator::new(own.spec().clone())).transpose()?
        }
        (None, None) => None,
    };
    let parse = ParseContext { collator: collator.map(Arc::new) };
    let stage_context =
        StageContext { parse, database: ns.db().to_owned(), ..StageContext::default() };
    let parsed = stage::parse(Value::Array(pipeline.as_bytes()), &stage_context)?;
    let uuid = collection.as_ref().map(|collection| collection.uuid());
    let context = context(call, &view);
    let pipeline = match collection {
        Some(collection) => {
            let source = CollectionSource::new(view, collection)?;
            stage::plan(parsed, &source, &context, &stage_context)?
        }
        None => stage::plan(parsed, &NoDocuments, &context, &stage_context)?,
    };
    first_batch(call, ns, Box::new(QueryReading::new(uuid, time, pipeline)), first)
}

/// The surroundings of a query that may open other collections.
pub(super) fn context(call: &Call, view: &View) -> Context {
    let mut context = blocking::query_context(call, None);
    context.collections = Some(Rc::new(Others(view.clone())));
    context
}

/// The other collections of a moment.
struct Others(View);

impl Collections for Others {
    fn open<'s>(&'s self, namespace: &str) -> Result<Option<Box<dyn Source + 's>>, QueryError> {
        let Some(ns) = Namespace::parse(namespace) else { return Ok(None) };
        let Some(collection) = self.0.catalog().collection(&ns) else {
            let views = views::all(&self.0, ns.db());
            let view = views.is_ok_and(|all| all.iter().any(|entry| entry.name == ns.coll()));
            if view {
                let text = format!("$lookup and its like over the view {ns} are not supported yet");
                return Err(QueryError::new(ErrorCode::NotImplemented, text));
            }
            return Ok(None);
        };
        Ok(Some(Box::new(CollectionSource::new(self.0.clone(), collection)?)))
    }
}

/// mongod's limit of views upon views.
const VIEW_DEPTH_MAX: usize = 20;

/// The collection under a view, and the pipeline over it.
fn resolve(
    view: &View,
    ns: &Namespace,
    mut pipeline: RawArrayBuf,
) -> Result<(Namespace, RawArrayBuf), Failure> {
    let all = views::all(view, ns.db())?;
    let mut on = ns.clone();
    for _ in 0..VIEW_DEPTH_MAX {
        let Some(entry) = all.iter().find(|entry| entry.name == on.coll()) else {
            return Ok((on, pipeline));
        };
        let mut whole = RawArrayBuf::new();
        let own = entry.definition.get_array("pipeline").ok();
        let stages = own.into_iter().flat_map(|own| own.into_iter().flatten());
        for stage in stages.chain(pipeline.into_iter().flatten()) {
            whole.push(bson::RawBson::from(stage));
        }
        pipeline = whole;
        let below = entry.definition.get_str("viewOn").unwrap_or_default();
        on = target::namespace(ns.db(), below)?;
    }
    let text = format!("View depth too deep: {ns}");
    Err(Failure::said(ErrorCode::ViewDepthLimitExceeded, text))
}

/// A collection that is not there.
pub(super) struct NoDocuments;

impl Source for NoDocuments {
    fn namespace(&self) -> String {
        String::new()
    }

    fn indexes(&self) -> &[IndexInfo] {
        &[]
    }

    fn count(&self) -> Result<u64, QueryError> {
        Ok(0)
    }

    fn scan<'s>(&'s self, _: Option<&RecordKey>, _: Direction) -> Records<'s> {
        Box::new(std::iter::empty())
    }

    fn index_scan<'s>(
        &'s self,
        _: usize,
        _: &KeyRange,
        _: Option<&IndexEntry>,
        _: Direction,
    ) -> IndexEntries<'s> {
        Box::new(std::iter::empty())
    }

    fn fetch(&self, _: &RecordKey) -> Result<Option<RawDoc>, QueryError> {
        Ok(None)
    }

    fn by_id(&self, _: Value<'_>) -> Result<Option<Record>, QueryError> {
        Ok(None)
    }
}

/// A stage with one field.
pub(super) fn stage_of(name: &bson::raw::CStr, value: RawBsonRef<'_>) -> RawDocumentBuf {
    let mut stage = rawdoc! {};
    stage.append(name, value);
    stage
}
