//! aggregate: runs a pipeline over a collection or a view.
//!
//! For a view, its own pipeline comes before the client's, over the underlying collection.

use bson::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, raw::cstr};
use protocol::{ErrorCode, Fields, Namespace, Profile, RawDoc, Timestamp};
use query::{
    collation::Collator,
    context::Context,
    matcher::ParseContext,
    planner,
    stage::{self, Over, Parsed, STAGES_MAX, Split, StageContext, Write},
    value::Value,
};
use storage::View;

use super::{Auth, Command, Run, explain, find, metadata, variables::Variables};
use crate::{
    auth::pipeline,
    context::{Call, Outcome},
    error::Failure,
    read::{
        blocking, collation,
        first_batch::{FIRST_BATCH, First, while_running},
        moment::ReadTime,
        opened::{Opened, Planned},
        query_cursor::QueryReading,
        surroundings::{self, Surroundings},
        target::Target,
        views::{self, Resolved},
    },
    writing::Writing,
};

pub(super) const COMMAND: Command = Command {
    name: "aggregate",
    help: "Runs a pipeline over a collection.",
    auth: Auth::Body("`find` on each collection, and what its stages need", pipeline::check),
    run: Run::Waiting(|call| blocking::reading_documents(call, is_held, run)),
    ..Command::READ
};

/// The parsed arguments.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) pipeline: RawArrayBuf,
    pub(super) collation: Option<RawDoc>,
    pub(super) variables: Variables,
    pub(super) hint: Option<RawDoc>,
    pub(super) disk_use: Option<bool>,
    pub(super) first: First,
}

const KNOWN: &[&str] = &[
    "aggregate",
    "pipeline",
    "explain",
    "allowDiskUse",
    "cursor",
    "bypassDocumentValidation",
    "hint",
    "collation",
    "let",
    "needsMerge",
    "fromRouter",
    "fromMongos",
    "querySettings",
    "includeQueryStatsMetrics",
    "collectionUUID",
    "requestReshardingResumeToken",
    "exchange",
    "isMapReduceCommand",
    "encryptionInformation",
    "legacyRuntimeConstants",
    "$queryOptions",
    "requestResumeToken",
    "resumeAfter",
    "startAt",
    "passthroughToShard",
    "isClusterQueryWithoutShardKeyCmd",
    "isHybridSearch",
];

/// A pipeline may read any collection, so any prepared transaction matters; one without a collection shows only the
/// server.
fn is_held(call: &Call, view: &View, until: Timestamp) -> Result<bool, Failure> {
    let over_collection = matches!(call.body.get("aggregate"), Ok(Some(RawBsonRef::String(_))));
    Ok(over_collection && call.db != "local" && view.holds(None, until)?)
}

fn run(call: &Call, time: ReadTime) -> Outcome {
    let asked = Asked::parse(call)?;
    let target = target(call)?;
    let fields = Fields::idl("aggregate", &call.body);
    if explains(&fields)? {
        let view = call.node().store()?.view(time.at)?;
        return explain::aggregation(call, view, &target, asked, explain::Verbosity::QueryPlanner);
    }
    if fields.optional("cursor")?.is_none() {
        let text =
            "The 'cursor' option is required, except for aggregate with the explain argument";
        return Err(Failure::said(ErrorCode::FailedToParse, text));
    }
    open(call, call.node().store()?.view(time.at)?, time, &target, asked)
}

fn batch_size(call: &Call, cursor: &bson::RawDocument) -> Result<Option<u64>, Failure> {
    let fields = Fields::idl("cursor", cursor);
    let known = fields.only(&["batchSize"]);
    if !call.profile().typed_reads && known.is_err() {
        let text = "cursor object can't contain fields other than batchSize";
        return Err(Failure::said(ErrorCode::BadValue, text));
    }
    known?;
    Ok(fields.optional("batchSize")?.map(|size| size.non_negative()).transpose()?)
}

fn explains(fields: &Fields<'_>) -> Result<bool, Failure> {
    match fields.get("explain")?.map(|value| value.raw()) {
        None => Ok(false),
        Some(RawBsonRef::Boolean(explains)) => Ok(explains),
        Some(_) => Err(Failure::said(ErrorCode::TypeMismatch, "explain must be a boolean")),
    }
}

/// The collection, or `$cmd.aggregate` for a pipeline without a collection.
pub(super) fn target(call: &Call) -> Result<Target, Failure> {
    match call.body.get(&call.name) {
        Ok(Some(RawBsonRef::String(_) | RawBsonRef::Binary(_))) => Target::parse(call),
        _ => Ok(Target::Name(Namespace::new(&call.db, COLLECTIONLESS))),
    }
}

/// What the stages need to know about the target.
pub(super) fn over(ns: &Namespace) -> Over {
    match ns.coll() {
        COLLECTIONLESS => Over::Nothing,
        name => Over::Collection(name.to_owned()),
    }
}

/// The collection name of a pipeline without a collection.
const COLLECTIONLESS: &str = "$cmd.aggregate";

fn check_length(stages: &RawArray, profile: &Profile) -> Result<(), Failure> {
    if !profile.pipelines_are_bounded || stages.into_iter().count() <= STAGES_MAX {
        return Ok(());
    }
    let text = format!("Pipeline length must be no longer than {STAGES_MAX} stages");
    Err(match profile.executor_errors_name_collection {
        true => Failure::said(ErrorCode::from_code(7_749_501), format!("{text}.")),
        false => Failure::said(ErrorCode::FailedToParse, text),
    })
}

impl Asked {
    /// A filter over a view, for count and distinct.
    pub(super) fn of_filter(
        filter: &RawDocument,
        collation: Option<&RawDoc>,
        hint: Option<&RawDoc>,
    ) -> Self {
        let mut pipeline = RawArrayBuf::new();
        if !filter.is_empty() {
            pipeline.push(find::stage_of(cstr!("$match"), RawBsonRef::Document(filter)));
        }
        Self {
            pipeline,
            collation: collation.cloned(),
            variables: Variables::default(),
            hint: hint.cloned(),
            disk_use: None,
            first: First::default(),
        }
    }

    pub(super) fn parse(call: &Call) -> Result<Self, Failure> {
        let fields = Fields::idl("aggregate", &call.body);
        fields.only(KNOWN)?;
        if !call.profile().takes_let && fields.get("let")?.is_some() {
            return Err(Failure::said(ErrorCode::FailedToParse, "unrecognized field 'let'"));
        }
        let RawBsonRef::Array(stages) = fields.required("pipeline")?.raw() else {
            let text = "A pipeline must be an array of objects";
            return Err(Failure::said(ErrorCode::TypeMismatch, text));
        };
        check_length(stages, call.profile())?;
        let size = match fields.get("cursor")?.map(|cursor| cursor.raw()) {
            None => None,
            Some(RawBsonRef::Document(cursor)) => batch_size(call, cursor)?,
            Some(_) => {
                let text = "cursor field must be missing or an object";
                return Err(Failure::said(ErrorCode::TypeMismatch, text));
            }
        };
        let collation = fields.optional("collation")?.map(|spec| spec.document()).transpose()?;
        fields.optional("bypassDocumentValidation")?.map(|flag| flag.safe_bool()).transpose()?;
        let mut pipeline = RawArrayBuf::new();
        for stage in stages.into_iter().flatten() {
            if !matches!(stage, RawBsonRef::Document(_)) {
                let text = "Each element of the 'pipeline' array must be an object";
                return Err(Failure::said(ErrorCode::TypeMismatch, text));
            }
            pipeline.push(bson::RawBson::from(stage));
        }
        let disk_use = find::flag(call, "allowDiskUse")?;
        Ok(Self {
            pipeline,
            collation: collation.filter(|spec| !spec.is_empty()).map(RawDoc::from),
            variables: Variables::parse(&fields, &surroundings::query_context(call))?,
            hint: find::hint(&fields)?,
            disk_use,
            first: First {
                size: size.map_or(FIRST_BATCH, |size| usize::try_from(size).unwrap_or(usize::MAX)),
                aggregates: true,
                ..First::default()
            },
        })
    }

    fn surroundings(&self, call: &Call) -> Surroundings {
        let spills = self.disk_use.unwrap_or(call.profile().disk_use_by_default);
        Surroundings::new(call, self.variables.values.clone(), spills)
    }
}

/// An aggregation whose pipeline was parsed.
pub(super) struct Prepared {
    /// The requested namespace.
    pub(super) ns: Namespace,
    /// The opened source.
    pub(super) opened: Opened,
    /// The whole pipeline, including that of the view.
    pub(super) pipeline: RawArrayBuf,
    pub(super) stages: Vec<Parsed>,
    pub(super) context: StageContext,
}

impl Prepared {
    /// The parts of the context that all batches of the cursor share.
    pub(super) fn surroundings(&self, asked: &Asked, call: &Call) -> Surroundings {
        asked.surroundings(call).with_collator(self.context.parse.collator.clone())
    }

    /// Removes the writing stage from the end.
    fn take_write(&mut self) -> Option<Box<Write>> {
        match self.stages.pop()? {
            Parsed::Write(write) => Some(write),
            other => {
                self.stages.push(other);
                None
            }
        }
    }

    pub(super) fn new(
        call: &Call,
        view: View,
        target: &Target,
        asked: &Asked,
    ) -> Result<Self, Failure> {
        Self::of(call, view, target, asked, (asked.pipeline.clone(), false))
    }

    /// `given` is set if the first stage was removed and its documents are already known.
    fn of(
        call: &Call,
        view: View,
        target: &Target,
        asked: &Asked,
        (pipeline, given): (RawArrayBuf, bool),
    ) -> Result<Self, Failure> {
        let (ns, resolved) = match target {
            Target::Name(on) if given => {
                (on.clone(), Resolved { on: on.clone(), pipeline, view: None })
            }
            Target::Name(ns) => (ns.clone(), views::resolve(&view, ns, pipeline)?),
            Target::Uuid { .. } => {
                let collection = target.collection(&view)?;
                let on =
                    collection.map_or_else(|| target.name().cloned(), |c| Ok(c.ns().clone()))?;
                (on.clone(), Resolved { on, pipeline, view: None })
            }
        };
        let opened = match given {
            true => Opened::nothing(view),
            false => {
                let filter = first_match(&resolved.pipeline);
                Opened::named(call, view, &resolved.on, filter)?
            }
        };
        let collection = opened.view.catalog().collection(&resolved.on);
        let collator = match &resolved.view {
            Some(own) => collation::of_view(asked.collation.as_ref(), own.as_ref())?,
            None => collation::of_collection(asked.collation.as_ref(), collection.as_deref())?,
        };
        let whole = Value::Array(resolved.pipeline.as_bytes());
        let context = StageContext {
            parse: ParseContext { collator },
            scope: asked.variables.scope.clone(),
            database: ns.db().to_owned(),
            over: if given { Over::Part } else { over(&ns) },
            depth: 0,
            pushed: false,
        };
        let stages = stage::parse(whole, &context)?;
        let collator = context.parse.collator.as_deref();
        collation::check_joined(&opened.view, ns.db(), whole, collator)?;
        Ok(Self { ns, opened, pipeline: resolved.pipeline, stages, context })
    }

    /// Plans the pipeline; consumes its stages.
    fn plan(&mut self, call: &Call, asked: &Asked, context: &Context) -> Result<Planned, Failure> {
        let (opened, stages) = (&self.opened, std::mem::take(&mut self.stages));
        if let Some(Parsed::Match(filter)) = stages.first()
            && filter.text().is_some()
        {
            planner::check_text_request(filter, false, asked.hint.is_some(), false)?;
            if opened.collection.is_none() {
                return Err(find::no_text_index(&self.ns, opened));
            }
        }
        let brings_its_own = |stage: &Parsed| {
            matches!(stage, Parsed::Documents(_) | Parsed::GeoNear(_) | Parsed::Outside(_))
        };
        if opened.is_absent() || stages.first().is_some_and(brings_its_own) {
            return Ok(stage::plan(stages, opened.source(), context, &self.context)?.into());
        }
        let Split { mut request, rest, .. } = stage::split(stages, &self.context)?;
        let collator = self.context.parse.collator.as_deref();
        opened.restrict_or_hint(call.node(), &mut request, asked.hint.as_ref(), collator)?;
        let mut planned = opened.plan(request, context)?;
        stage::extend(&mut planned.pipeline, rest);
        Ok(planned)
    }
}

/// The filter at the beginning of a pipeline.
fn first_match(pipeline: &RawArray) -> Option<&RawDocument> {
    pipeline.get_document(0).ok()?.get_document("$match").ok()
}

/// Opens a cursor over a pipeline and fills its first batch.
pub(super) fn open(
    call: &Call,
    view: View,
    time: ReadTime,
    target: &Target,
    asked: Asked,
) -> Outcome {
    let (given, pipeline) = metadata::take(call, &view, target, &asked)?;
    let mut prepared = Prepared::of(call, view, target, &asked, (pipeline, given.is_some()))?;
    let write = prepared.take_write();
    let surroundings = prepared.surroundings(&asked, call);
    let context = prepared.opened.context(call, &surroundings);
    let mut planned = match given {
        Some(docs) => stage::over_docs(docs, std::mem::take(&mut prepared.stages)).into(),
        None => prepared.plan(call, &asked, &context)?,
    };
    let Prepared { ns, opened, context: parsed, .. } = prepared;
    let Some(write) = write else {
        return opened.cursor(call, (ns, time), planned, (surroundings, &context), &asked.first);
    };
    let variables = asked.variables.settled();
    let writing = Writing {
        call,
        view: &opened.view,
        collator: parsed.parse.collator.as_deref(),
        variables: variables.as_deref(),
        write: &write,
    };
    writing.check()?;
    planned.note(call);
    let reading = QueryReading::new(opened.subject.clone(), time, planned.pipeline, surroundings);
    writing.run(&ns, reading).map_err(|failure| while_running(failure, call, &ns))
}

/// Runs a pipeline to its end, for count and distinct of a view, which have no cursor.
pub(super) fn each(
    call: &Call,
    view: View,
    target: &Target,
    asked: &Asked,
    mut take: impl FnMut(&RawDoc, Option<&Collator>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut prepared = Prepared::new(call, view, target, asked)?;
    let surroundings = prepared.surroundings(asked, call);
    let context = prepared.opened.context(call, &surroundings);
    let planned = prepared.plan(call, asked, &context)?;
    let collator = prepared.context.parse.collator.as_deref();
    prepared.opened.each(call, planned, &context, |doc| take(doc, collator))
}
