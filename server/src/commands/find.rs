//! find: documents of a collection, the first batch of them.

use std::sync::Arc;

use bson::{RawArrayBuf, RawBsonRef, RawDocumentBuf, raw::cstr};
use protocol::{ErrorCode, Fields, Namespace, RawDoc};
use query::{
    collation::{CollationSpec, Collator},
    exec::{Input, Pipeline, Project},
    matcher::{Matcher, ParseContext},
    planner::{self, Request},
    projection::Projection,
    sort::SortPattern,
    source::{Direction, Source},
    value::Value,
};
use storage::{Collection, View};
use uuid::Uuid;

use super::{Api, Auth, Command, On, OpClass, Run, Waiting, aggregate, target::Target, views};
use crate::{
    auth::action::action,
    batch::{BatchEnd, BatchWriter},
    blocking,
    context::{Call, Outcome},
    cursors::{Cursor, Filled, Reading, Remarks},
    error::Failure,
    local,
    natural_reading::{NaturalOptions, NaturalReading},
    oplog_reading::OplogReading,
    read_time::{self, ReadTime},
    source::CollectionSource,
};

pub(super) const COMMAND: Command = Command {
    name: "find",
    help: "Returns documents of a collection.",
    auth: Auth::Collection(action("find")),
    on: On::Readable,
    api: Api::V1,
    takes_concerns: true,
    class: Some(OpClass::Query),
    run: Run::Waiting(run),
    ..Command::DEFAULT
};

/// mongod's size of a first batch that was not asked for.
pub(super) const FIRST_BATCH: usize = 101;

/// What is asked for.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    filter: RawDoc,
    sort: Option<RawDoc>,
    hint: Option<RawDoc>,
    collation: Option<RawDoc>,
    projection: Option<RawDoc>,
    resume_after: Option<RawDoc>,
    skip: u64,
    limit: Option<u64>,
    batch_size: Option<u64>,
    single_batch: bool,
    tailable: bool,
    await_data: bool,
    no_timeout: bool,
    resume_token: bool,
}

const KNOWN: &[&str] = &[
    "find",
    "filter",
    "projection",
    "sort",
    "hint",
    "skip",
    "limit",
    "batchSize",
    "ntoreturn",
    "singleBatch",
    "tailable",
    "awaitData",
    "noCursorTimeout",
    "oplogReplay",
    "allowPartialResults",
    "allowDiskUse",
    "min",
    "max",
    "returnKey",
    "showRecordId",
    "collation",
    "let",
    "term",
    "encryptionInformation",
    "querySettings",
    "includeQueryStatsMetrics",
    "legacyRuntimeConstants",
    "resumeAfter",
    "startAt",
    "requestResumeToken",
];

fn run(call: Call) -> Waiting {
    Box::pin(async move {
        let asked = Asked::parse(&call)?;
        let target = Target::parse(&call)?;
        let time = read_time::resolve(&call, call.node().store()?).await?;
        if asked.is_point_read() {
            return open(&call, &asked, &target, time);
        }
        let inner = call.clone();
        blocking::run(&call, move || open(&inner, &asked, &target, time)).await
    })
}

impl Asked {
    fn parse(call: &Call) -> Result<Self, Failure> {
        let fields = Fields::idl("FindCommandRequest", &call.body);
        fields.only(KNOWN)?;
        for name in ["min", "max", "returnKey", "showRecordId", "let", "$_startAt"] {
            if !matches!(
                fields.optional(name)?.map(|value| value.raw()),
                None | Some(RawBsonRef::Boolean(false))
            ) {
                let text = format!("find with '{name}' is not supported yet");
                return Err(Failure::said(ErrorCode::NotImplemented, text));
            }
        }
        let flag = |name| -> Result<bool, Failure> {
            Ok(fields.optional(name)?.map_or(Ok(false), |value| value.safe_bool())?)
        };
        let number = |name| -> Result<Option<u64>, Failure> {
            Ok(fields.optional(name)?.map(|value| value.non_negative()).transpose()?)
        };
        let doc = |name| document(&fields, name);
        let hint = match fields.optional("hint")?.map(|value| value.raw()) {
            None => None,
            Some(RawBsonRef::Document(hint)) if hint.is_empty() => None,
            Some(RawBsonRef::Document(hint)) => Some(wrapped(RawBsonRef::Document(hint))),
            Some(RawBsonRef::String(name)) => Some(wrapped(RawBsonRef::String(name))),
            Some(other) => {
                return Err(Failure::wrong_type(
                    "FindCommandRequest.hint",
                    other,
                    &["string", "object"],
                ));
            }
        };
        // Members of 4.4 and 5.0 speak of `ntoreturn`: the limit of a single batch, or else the size of the first.
        let single_batch = flag("singleBatch")?;
        let (legacy_limit, legacy_batch) = match number("ntoreturn")? {
            Some(n) if single_batch => (Some(n), None),
            other => (None, other),
        };
        let asked = Self {
            filter: doc("filter")?.unwrap_or_else(|| RawDoc::from(bson::rawdoc! {})),
            sort: doc("sort")?.filter(|sort| !sort.is_empty()),
            hint,
            collation: doc("collation")?.filter(|collation| !collation.is_empty()),
            projection: doc("projection")?.filter(|projection| !projection.is_empty()),
            resume_after: doc("$_resumeAfter")?.filter(|token| !token.is_empty()),
            skip: number("skip")?.unwrap_or(0),
            limit: number("limit")?.or(legacy_limit).filter(|limit| *limit > 0),
            batch_size: number("batchSize")?.or(legacy_batch),
            single_batch,
            tailable: flag("tailable")?,
            await_data: flag("awaitData")?,
            no_timeout: flag("noCursorTimeout")?,
            resume_token: flag("$_requestResumeToken")?,
        };
        asked.check()?;
        Ok(asked)
    }

    fn check(&self) -> Result<(), Failure> {
        if self.await_data && !self.tailable {
            let text = "Cannot set 'awaitData' without also setting 'tailable'";
            return Err(Failure::said(ErrorCode::FailedToParse, text));
        }
        if self.resume_after.is_some() && !self.resume_token {
            let text = "'requestResumeToken' must be true if 'resumeAfter' is specified";
            return Err(Failure::said(ErrorCode::BadValue, text));
        }
        if self.resume_token && self.natural_hint()? != Some(Direction::Forward) {
            let text = "hint must be {$natural:1} if 'requestResumeToken' is enabled";
            return Err(Failure::said(ErrorCode::BadValue, text));
        }
        Ok(())
    }

    fn hint_value(&self) -> Option<RawBsonRef<'_>> {
        self.hint.as_ref().and_then(|hint| hint.get("").ok().flatten())
    }

    fn natural_hint(&self) -> Result<Option<Direction>, Failure> {
        match self.hint_value() {
            Some(RawBsonRef::Document(hint)) => Ok(planner::natural(hint)?),
            _ => Ok(None),
        }
    }

    /// The direction of `$natural`, in the sort or in the hint.
    pub(super) fn natural(&self) -> Result<Option<Direction>, Failure> {
        let sort = match &self.sort {
            Some(sort) => planner::natural(sort)?,
            None => None,
        };
        Ok(sort.or(self.natural_hint()?))
    }

    fn projection(
        &self,
        parsing: &ParseContext,
        filter: Option<&Matcher>,
    ) -> Result<Option<Projection>, Failure> {
        let parse = |spec: &RawDoc| Projection::parse_find(spec, filter, parsing);
        Ok(self.projection.as_ref().map(parse).transpose()?)
    }

    /// The same as a pipeline, to be run over a view.
    fn pipeline(&self) -> RawArrayBuf {
        let mut stages = RawArrayBuf::new();
        stages.push(aggregate::stage_of(cstr!("$match"), RawBsonRef::Document(&self.filter)));
        if let Some(sort) = &self.sort {
            stages.push(aggregate::stage_of(cstr!("$sort"), RawBsonRef::Document(sort)));
        }
        let number = |n: u64| RawBsonRef::Int64(i64::try_from(n).unwrap_or(i64::MAX));
        if self.skip > 0 {
            stages.push(aggregate::stage_of(cstr!("$skip"), number(self.skip)));
        }
        if let Some(limit) = self.limit {
            stages.push(aggregate::stage_of(cstr!("$limit"), number(limit)));
        }
        if let Some(projection) = &self.projection {
            stages.push(aggregate::stage_of(cstr!("$project"), RawBsonRef::Document(projection)));
        }
        stages
    }

    /// By `_id` alone: quick enough to be done at once.
    fn is_point_read(&self) -> bool {
        let mut fields = self.filter.iter();
        let (Some(Ok((name, value))), None) = (fields.next(), fields.next()) else { return false };
        let plain = match value {
            RawBsonRef::Document(doc) => doc
                .iter()
                .next()
                .is_none_or(|first| first.is_ok_and(|(name, _)| !name.as_str().starts_with('$'))),
            RawBsonRef::RegularExpression(_) | RawBsonRef::Array(_) => false,
            _ => true,
        };
        name.as_str() == "_id" && plain && self.hint.is_none() && self.collation.is_none()
    }

    fn first_batch(&self) -> usize {
        let size =
            self.batch_size.and_then(|size| usize::try_from(size).ok()).unwrap_or(FIRST_BATCH);
        let limit = self.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        size.min(limit)
    }
}

/// A document with the value under the empty name.
fn wrapped(value: RawBsonRef<'_>) -> RawDoc {
    let mut doc = RawDocumentBuf::new();
    doc.append(bson::raw::cstr!(""), value);
    doc.into()
}

fn document(fields: &Fields<'_>, name: &'static str) -> Result<Option<RawDoc>, Failure> {
    match fields.optional(name)?.map(|value| value.raw()) {
        None => Ok(None),
        Some(RawBsonRef::Document(doc)) => Ok(Some(RawDoc::from(doc))),
        // mongod's own words, the missing space included.
        Some(_) => {
            let text = format!("Expected field {name}to be of type object");
            Err(Failure::said(ErrorCode::TypeMismatch, text))
        }
    }
}

/// Opens the cursor and fills its first batch.
fn open(call: &Call, asked: &Asked, target: &Target, time: ReadTime) -> Outcome {
    let first = First {
        size: asked.first_batch(),
        limit: asked.limit,
        single: asked.single_batch,
        no_timeout: asked.no_timeout,
        tailable: asked.tailable,
        await_data: asked.await_data,
    };
    if target.is_oplog() {
        let projection = asked.projection(&ParseContext::default(), None)?;
        let natural = asked.natural()?;
        let oplog = OplogReading::open(call, &asked.filter, natural, asked.limit, projection)?;
        return first_batch(call, Namespace::new("local", local::OPLOG), Box::new(oplog), &first);
    }
    if let Target::Name(ns) = target {
        let view = call.node().store()?.view(time.at)?;
        if view.catalog().collection(ns).is_none() && views::exists(&view, ns)? {
            return aggregate::open(
                call,
                time,
                target,
                asked.pipeline(),
                asked.collation.as_ref(),
                &first,
            );
        }
    }
    let (ns, reading) = QueryReading::open(call, asked, target, time)?;
    first_batch(call, ns, reading, &first)
}

/// How a cursor begins.
#[derive(Debug, Default)]
pub(super) struct First {
    /// Documents of the first batch.
    pub(super) size: usize,
    /// Documents in all.
    pub(super) limit: Option<u64>,
    /// There is no second batch.
    pub(super) single: bool,
    /// It does not end of itself when it is idle.
    pub(super) no_timeout: bool,
    /// It waits at the end for more.
    pub(super) tailable: bool,
    /// A getMore at the end waits a while.
    pub(super) await_data: bool,
}

/// Fills the first batch of a cursor, and keeps it if there is more.
pub(super) fn first_batch(
    call: &Call,
    ns: Namespace,
    mut reading: Box<dyn Reading>,
    first: &First,
) -> Outcome {
    let mut batch = BatchWriter::first();
    let mut filled = match first.size {
        0 => Filled::More,
        size => reading.fill(call, &mut batch, size)?,
    };
    let whole = first.limit.is_some_and(|limit| batch.count() as u64 >= limit);
    if whole || first.single || filled == Filled::AtEnd && !first.tailable {
        filled = Filled::Exhausted;
    }
    let remarks = reading.remarks();
    let node = call.node();
    let id = if filled == Filled::Exhausted { 0 } else { node.cursors.new_id() };
    let end = BatchEnd {
        id,
        ns: ns.as_str(),
        resume_token: remarks.resume_token,
        at_cluster_time: remarks.at_cluster_time,
    };
    let returned = batch.count() as u64;
    let body = batch.finish(&end)?;
    if id != 0 {
        let cursor = Cursor {
            id,
            ns,
            session: call.lsid,
            owners: call.who.names(),
            no_timeout: first.no_timeout,
            tailable: first.tailable,
            await_data: first.await_data,
            returned,
            reading,
        };
        node.cursors.keep(Box::new(cursor), std::time::Instant::now());
    }
    Ok(body.into())
}

/// A cursor over a collection.
pub(super) struct QueryReading {
    /// `None`: a collection that is not there.
    uuid: Option<Uuid>,
    time: ReadTime,
    pipeline: Pipeline,
    /// A document that did not fit into the last batch.
    held: Option<RawDoc>,
}

impl QueryReading {
    pub(super) fn new(uuid: Option<Uuid>, time: ReadTime, pipeline: Pipeline) -> Self {
        Self { uuid, time, pipeline, held: None }
    }

    fn open(
        call: &Call,
        asked: &Asked,
        target: &Target,
        time: ReadTime,
    ) -> Result<(Namespace, Box<dyn Reading>), Failure> {
        let store = call.node().store()?;
        let view = store.view(time.at)?;
        let Some(collection) = target.collection(&view)? else {
            return absent(call, asked, target);
        };
        if asked.tailable && collection.capped().is_none() {
            let text = format!(
                "error processing query: ns={} tailable cursor requested on non capped collection",
                collection.ns()
            );
            return Err(Failure::said(ErrorCode::BadValue, text));
        }
        let ns = collection.ns().clone();
        let (request, projection) = request(asked, &collection)?;
        let uuid = collection.uuid();
        if asked.tailable || asked.resume_token {
            let options = NaturalOptions {
                uuid,
                time,
                matcher: request.filter,
                direction: request.natural.unwrap_or(Direction::Forward),
                skip: asked.skip,
                limit: asked.limit,
                tailable: asked.tailable,
                tokens: asked.resume_token,
                after: asked.resume_after.clone(),
                projection,
            };
            return Ok((ns, Box::new(NaturalReading::open(call, options)?)));
        }
        let source = CollectionSource::new(view, collection)?;
        let request = with_hint(request, asked, &source)?;
        let context = blocking::query_context(call, None);
        let (mut pipeline, _) = planner::plan(request, &source, &context)?;
        pipeline.extend(projection.map(Project));
        Ok((ns, Box::new(Self::new(Some(uuid), time, pipeline))))
    }
}

/// A collection that is not there is empty; by UUID it is an error. Node documents are read here too.
fn absent(
    call: &Call,
    asked: &Asked,
    target: &Target,
) -> Result<(Namespace, Box<dyn Reading>), Failure> {
    let ns = target.name()?;
    let matcher = Matcher::parse(&asked.filter, &ParseContext::default())?;
    let docs = match ns.db() {
        "local" => local::documents(call.node().store()?, ns.coll())?,
        _ => Vec::new(),
    };
    let projection = asked.projection(&ParseContext::default(), Some(&matcher))?;
    let context = blocking::query_context(call, None);
    let mut shown = Vec::new();
    for doc in docs.into_iter().filter(|doc| matcher.matches(doc)) {
        shown.push(match &projection {
            Some(projection) => projection.apply(&doc, &context)?.into(),
            None => doc,
        });
    }
    Ok((ns.clone(), Box::new(super::list_cursor::ListReading::new(shown))))
}

fn request(
    asked: &Asked,
    collection: &Collection,
) -> Result<(Request, Option<Projection>), Failure> {
    let own = match &asked.collation {
        Some(spec) => CollationSpec::parse(spec)?.map(Collator::new).transpose()?,
        None => collection.collator().map(|own| Collator::new(own.spec().clone())).transpose()?,
    };
    let collator = own.map(Arc::new);
    let natural = asked.natural()?;
    let sort = asked.sort.as_ref().filter(|_| natural.is_none());
    let sort = sort.map(|sort| SortPattern::parse(sort, collator.clone())).transpose()?;
    let parsing = ParseContext { collator };
    let filter = Matcher::parse(&asked.filter, &parsing)?;
    let projection = asked.projection(&parsing, Some(&filter))?;
    let (skip, limit) = (asked.skip, asked.limit);
    Ok((Request { filter, sort, natural, hint: None, skip, limit }, projection))
}

fn with_hint(
    mut request: Request,
    asked: &Asked,
    source: &CollectionSource,
) -> Result<Request, Failure> {
    if request.natural.is_some() {
        return Ok(request);
    }
    if let Some(hint) = asked.hint_value().and_then(Value::from_raw) {
        let index = planner::resolve_hint(hint, source.indexes());
        let index = index.ok_or_else(|| planner::hint_not_found(&source.namespace()))?;
        request.hint = Some(index);
    }
    Ok(request)
}

impl Reading for QueryReading {
    fn fill(
        &mut self,
        call: &Call,
        batch: &mut BatchWriter,
        limit: usize,
    ) -> Result<Filled, Failure> {
        let view = call.node().store()?.view(self.time.at)?;
        let context = aggregate::context(call, &view);
        let source = self.source(view)?;
        let mut input = Input::new(source.as_ref(), &context);
        while batch.count() < limit {
            let next = match self.held.take() {
                Some(doc) => Some(doc),
                None => self.pipeline.next(&mut input)?,
            };
            let Some(doc) = next else { return Ok(Filled::Exhausted) };
            if !batch.push(&doc) {
                self.held = Some(doc);
                break;
            }
        }
        Ok(Filled::More)
    }

    fn remarks(&self) -> Remarks {
        Remarks { resume_token: None, at_cluster_time: self.time.snapshot }
    }
}

impl QueryReading {
    fn source(&self, view: View) -> Result<Box<dyn Source>, Failure> {
        let Some(uuid) = self.uuid else { return Ok(Box::new(aggregate::NoDocuments)) };
        let Some(collection) = view.catalog().by_uuid(uuid) else {
            let text = "collection dropped or its UUID changed between batches";
            return Err(Failure::said(ErrorCode::QueryPlanKilled, text));
        };
        Ok(Box::new(CollectionSource::new(view, collection)?))
    }
}
