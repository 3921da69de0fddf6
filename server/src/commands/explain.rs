//! explain: the plan of a find, count, distinct or aggregate, and its execution statistics.
//!
//! ```text
//!   queryPlanner        the winning plan and the rejected plans
//!   executionStats      also the statistics of running the winning plan to its end
//!   allPlansExecution   also the statistics of the other plans
//! ```

mod hash;
mod pipeline;

use std::time::Instant;

use bson::{RawArrayBuf, RawDocumentBuf, raw::cstr, rawdoc};
use protocol::{ErrorCode, Fields, RawDoc};
use query::{
    context::Context,
    exec::{Input, Project},
    planner::{
        self, Candidate, Request,
        explain::{Ran, Shape},
    },
    projection::Projection,
    source::Source,
    stage::{self, Split},
};
use storage::View;

use self::{
    hash::{indexes_hash, shape_hash},
    pipeline::Above,
};
use super::{Auth, Command, Run, aggregate, count, distinct, find, sizes};
use crate::{
    context::{Call, Outcome},
    error::Failure,
    read::{
        blocking,
        moment::ReadTime,
        opened::{Named, Opened},
        surroundings,
        target::Target,
    },
};

pub(super) const COMMAND: Command = Command {
    name: "explain",
    help: "Shows how a query is answered.",
    auth: Auth::Body("what the explained command needs", allowed),
    run: Run::Waiting(|call| blocking::reading(call, run)),
    ..Command::READ
};

/// The verbosity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verbosity {
    QueryPlanner,
    ExecutionStats,
    AllPlansExecution,
}

/// The explained command, as if it had been sent alone.
fn explained(call: &Call) -> Result<Call, Failure> {
    let inner = Fields::idl("explain", &call.body).required("explain")?.document()?;
    let name = match inner.iter().next() {
        Some(Ok((name, _))) => name.as_str().to_owned(),
        _ => String::new(),
    };
    let mut body = inner.to_owned();
    if matches!(body.get("$db"), Ok(None)) {
        body.append(cstr!("$db"), call.db.as_str());
    }
    Ok(Call { body: body.into(), name, ..call.clone() })
}

/// Explaining a command requires the privileges to run it.
fn allowed(call: &Call) -> Result<(), Failure> {
    let inner = explained(call)?;
    let checked =
        super::find(&inner.name).map_or(Ok(()), |(_, command)| command.auth.check(&inner));
    checked.map_err(|failure| match failure {
        Failure::Unauthorized { .. } => call.unauthorized(),
        other => other,
    })
}

fn run(call: &Call, time: ReadTime) -> Outcome {
    let fields = Fields::idl("explain", &call.body);
    let verbosity = match fields.optional("verbosity")? {
        None => Verbosity::AllPlansExecution,
        Some(value) => match value.str()? {
            "queryPlanner" => Verbosity::QueryPlanner,
            "executionStats" => Verbosity::ExecutionStats,
            "allPlansExecution" => Verbosity::AllPlansExecution,
            _ => return Err(value.not_in_enumeration().into()),
        },
    };
    let inner = explained(call)?;
    let name = inner.name.clone();
    match name.as_str() {
        "find" => of_find(&inner, time, verbosity),
        "count" => of_count(&inner, time, verbosity),
        "distinct" => of_distinct(&inner, time, verbosity),
        "aggregate" => {
            let asked = aggregate::Asked::parse(&inner)?;
            let view = inner.node().store()?.view(time.at)?;
            aggregation(&inner, view, &aggregate::target(&inner)?, asked, verbosity)
        }
        known
            if super::find(known).is_some_and(|(_, found)| found.on == super::On::Primary)
                && call.node().repl().is_some() =>
        {
            let text = "Explain's child command cannot run on this node. Are you explaining a \
                        write command on a secondary?";
            Err(Failure::said(ErrorCode::from_code(50_746), text))
        }
        known if super::find(known).is_some() => {
            let text = format!("Cannot explain cmd: {known}");
            Err(Failure::said(ErrorCode::IllegalOperation, text))
        }
        other => {
            let text = format!("Explain failed due to unknown command: {other}");
            Err(Failure::said(ErrorCode::CommandNotFound, text))
        }
    }
}

fn of_find(call: &Call, time: ReadTime, verbosity: Verbosity) -> Outcome {
    let asked = find::Asked::parse(call)?;
    let target = Target::parse(call)?;
    let opened = match Opened::target(call, time, &target, Some(asked.filter()))? {
        Named::Here(opened) => opened,
        Named::View(view) => {
            return aggregation(call, view, &target, asked.aggregation()?, verbosity);
        }
    };
    if opened.is_absent() {
        return absent(call, target.name()?.as_str(), asked.filter(), verbosity);
    }
    let mut prepared = find::Prepared::new(&asked, opened.namespace(&target)?, &opened)?;
    let context = opened.context(call, &prepared.surroundings(&asked, call));
    prepared.hold_to_hint(&asked, call.node(), &opened)?;
    // The documents and their metadata are not returned.
    prepared.request.noted = false;
    let mut query = Query::new(&opened, &context);
    if let (Some(shown), Some(parsed)) = (asked.shown_projection(), prepared.projection) {
        query.top = Top::Projection(Box::new((shown, parsed)));
    }
    let mut body = rawdoc! { "explainVersion": "1" };
    query.explain(prepared.request, verbosity, &mut body)?;
    finish(call, body)
}

fn of_count(call: &Call, time: ReadTime, verbosity: Verbosity) -> Outcome {
    let asked = count::Asked::parse(call)?;
    let target = Target::parse(call)?;
    let opened = match Opened::target(call, time, &target, asked.query.as_deref())? {
        Named::Here(opened) => opened,
        Named::View(view) => {
            return aggregation(call, view, &target, asked.pipeline(), verbosity);
        }
    };
    if opened.is_absent() {
        let query = asked.query.clone().unwrap_or_else(|| RawDoc::from(rawdoc! {}));
        return absent(call, target.name()?.as_str(), &query, verbosity);
    }
    let context = surroundings::query_context(call);
    let mut body = rawdoc! { "explainVersion": "1" };
    if asked.query.is_none() && asked.hint.is_none() {
        fast_count(opened.source(), opened.source().count()?, verbosity, &mut body);
        return finish(call, body);
    }
    let query = Query { top: Top::Count, ..Query::new(&opened, &context) };
    let request = asked.request(call.node(), &opened, asked.collator(&opened)?)?;
    query.explain(request, verbosity, &mut body)?;
    finish(call, body)
}

/// A count of all documents reads nothing.
fn fast_count(source: &dyn Source, all: u64, verbosity: Verbosity, body: &mut RawDocumentBuf) {
    let plan = rawdoc! { "isCached": false, "stage": "RECORD_STORE_FAST_COUNT" };
    let mut planner = rawdoc! { "namespace": source.namespace() };
    append_bounds(&mut planner, 0);
    planner.append(cstr!("winningPlan"), plan.clone());
    planner.append(cstr!("rejectedPlans"), RawArrayBuf::new());
    body.append(cstr!("queryPlanner"), planner);
    if verbosity >= Verbosity::ExecutionStats {
        let mut stages = plan;
        stages.append(cstr!("nReturned"), 0);
        stages.append(cstr!("nCounted"), sizes::number(all));
        stages.append(cstr!("nSkipped"), 0);
        body.append(
            cstr!("executionStats"),
            rawdoc! {
                "executionSuccess": true, "nReturned": 0, "executionTimeMillis": 0,
                "totalKeysExamined": 0, "totalDocsExamined": 0, "executionStages": stages,
            },
        );
    }
}

fn of_distinct(call: &Call, time: ReadTime, verbosity: Verbosity) -> Outcome {
    let asked = distinct::Asked::parse(call)?;
    let target = Target::parse(call)?;
    let opened = match Opened::target(call, time, &target, Some(&asked.query))? {
        Named::Here(opened) => opened,
        Named::View(view) => {
            return aggregation(call, view, &target, asked.pipeline(), verbosity);
        }
    };
    if opened.is_absent() {
        return absent(call, target.name()?.as_str(), &asked.query, verbosity);
    }
    let context = surroundings::query_context(call);
    let mut body = rawdoc! { "explainVersion": "1" };
    let query = Query::new(&opened, &context);
    query.explain(asked.request(call.node(), &opened)?.0, verbosity, &mut body)?;
    finish(call, body)
}

/// A pipeline that the planner handles completely is shown as a query; otherwise the part that it handles is shown as
/// `$cursor`.
pub(super) fn aggregation(
    call: &Call,
    view: View,
    target: &Target,
    asked: aggregate::Asked,
    verbosity: Verbosity,
) -> Outcome {
    let prepared = aggregate::Prepared::new(call, view, target, &asked)?;
    let opened = &prepared.opened;
    if opened.is_absent() {
        return absent(call, prepared.ns.as_str(), &RawDoc::from(rawdoc! {}), verbosity);
    }
    let context = opened.context(call, &prepared.surroundings(&asked, call));
    let source = opened.source();
    let Split { mut request, absorbed, rest } = stage::split(prepared.stages, &prepared.context)?;
    let (hint, collator) = (asked.hint.as_ref(), prepared.context.parse.collator.as_deref());
    opened.restrict_or_hint(call.node(), &mut request, hint, collator)?;
    let stages = prepared.pipeline.into_iter().flatten().skip(absorbed);
    let stages: Vec<_> = stages.filter_map(|stage| stage.as_document()).collect();
    // Some stages are translated to several or split; then none of them is shown as part of the plan.
    let by_values = request.distinct.is_some()
        && planner::is_by_values(&planner::choose(&request, source, &context)?.0);
    let above = match rest.len() == stages.len() {
        true if by_values => Above::of_values(&stages),
        true => Above::of(&stages, !planner::is_by_id(&request, source), request.sort.is_some()),
        false => Above {
            told: stages.iter().map(|s| s.to_owned().to_owned()).collect(),
            ..Above::default()
        },
    };
    let mut body = rawdoc! { "explainVersion": "1" };
    let top = Top::Stages { projection: above.projection.clone(), groups: above.groups };
    let optimized = above.told.is_empty();
    let query = Query { source, context: &context, top, optimized, pushed: above.pushed };
    if optimized {
        query.explain_below(request, rest, verbosity, &mut body)?;
        return finish(call, body);
    }
    let mut cursor = RawDocumentBuf::new();
    let ran = query.explain_below(request, rest, verbosity, &mut cursor)?;
    let mut first = rawdoc! { "$cursor": cursor };
    let told = |stage: &mut RawDocumentBuf, n: u64, ran: &Ran| {
        stage.append(cstr!("nReturned"), sizes::long(n));
        stage.append(cstr!("executionTimeMillisEstimate"), sizes::long(ran.millis));
    };
    if let Some(ran) = &ran {
        told(&mut first, ran.rows(), ran);
    }
    let mut shown = RawArrayBuf::new();
    shown.push(first);
    let shared = usize::from(above.shared);
    for (at, mut stage) in above.told.into_iter().enumerate() {
        if let Some(ran) = &ran {
            let counted = match at.checked_sub(shared) {
                None => ran.returned.last(),
                Some(at) => ran.above.get(at),
            };
            if let Some(n) = counted {
                told(&mut stage, *n, ran);
            }
        }
        shown.push(stage);
    }
    body.append(cstr!("stages"), shown);
    finish(call, body)
}

/// What is above the planner's stages.
enum Top {
    Nothing,
    Projection(Box<(RawDocumentBuf, Projection)>),
    Count,
    /// Stages of a pipeline: a projection, and the number of groupings.
    Stages {
        projection: Option<RawDocumentBuf>,
        groups: usize,
    },
}

/// A query to explain.
struct Query<'a> {
    source: &'a dyn Source,
    context: &'a Context,
    top: Top,
    optimized: bool,
    /// How many of the stages above are part of the plan.
    pushed: usize,
}

impl<'a> Query<'a> {
    fn new(opened: &'a Opened, context: &'a Context) -> Self {
        let source = opened.source();
        Self { source, context, top: Top::Nothing, optimized: false, pushed: 0 }
    }

    fn explain(
        self,
        request: Request,
        verbosity: Verbosity,
        body: &mut RawDocumentBuf,
    ) -> Result<(), Failure> {
        self.explain_below(request, Vec::new(), verbosity, body).map(drop)
    }

    /// Appends `queryPlanner` and, if the query runs, `executionStats`.
    fn explain_below(
        self,
        request: Request,
        above: Vec<stage::Parsed>,
        verbosity: Verbosity,
        body: &mut RawDocumentBuf,
    ) -> Result<Option<Ran>, Failure> {
        let started = Instant::now();
        let mut shape = Shape::of(&request);
        shape.ends_above = matches!(self.top, Top::Count);
        if let Top::Projection(projection) = &self.top {
            shape.projection = Some(projection.0.clone());
        }
        if let Top::Stages { projection, .. } = &self.top {
            shape.projection.clone_from(projection);
        }
        let (mut chosen, rejected) = planner::choose(&request, self.source, self.context)?;
        shape.settle(&chosen);
        if matches!(self.top, Top::Stages { groups: 1.., .. }) {
            // mongod's second execution engine (SBE) does not show subplans.
            chosen.subplan = false;
            shape.below_grouping(&chosen, &request);
        }
        let planned = millis(started);
        let filtered = request.allowed.is_some();
        let shown = self.planner(&shape, (&chosen, &rejected), filtered, planned);
        body.append(cstr!("queryPlanner"), shown);
        if verbosity == Verbosity::QueryPlanner {
            return Ok(None);
        }
        let others: Vec<_> = match verbosity {
            Verbosity::AllPlansExecution => rejected.iter().map(|c| (c, request.clone())).collect(),
            _ => Vec::new(),
        };
        let mut all = RawArrayBuf::new();
        for (candidate, request) in others {
            let ran = self.execute(candidate, request, None, Vec::new())?;
            all.push(self.trial(&shape, candidate, &ran));
        }
        let projection = match &self.top {
            Top::Projection(projection) => Some(projection.1.clone()),
            _ => None,
        };
        let ran = self.execute(&chosen, request, projection, above)?;
        let returned = match &self.top {
            Top::Count => 0,
            _ => ran.rows(),
        };
        let mut stats = rawdoc! { "executionSuccess": true };
        stats.append(cstr!("nReturned"), sizes::number(returned));
        stats.append(cstr!("executionTimeMillis"), sizes::number(millis(started)));
        stats.append(cstr!("totalKeysExamined"), sizes::number(ran.examined.keys));
        stats.append(cstr!("totalDocsExamined"), sizes::number(ran.examined.docs));
        stats.append(cstr!("executionStages"), self.tree(&shape, (&chosen, false), Some(&ran)));
        if verbosity == Verbosity::AllPlansExecution {
            stats.append(cstr!("allPlansExecution"), all);
        }
        body.append(cstr!("executionStats"), stats);
        Ok(Some(ran))
    }

    fn planner(
        &self,
        shape: &Shape,
        (chosen, rejected): (&Candidate, &[Candidate]),
        filtered: bool,
        planned: u64,
    ) -> RawDocumentBuf {
        let mut doc = rawdoc! { "namespace": self.source.namespace() };
        doc.append(cstr!("parsedQuery"), shape.parsed_query().clone());
        doc.append(cstr!("indexFilterSet"), filtered);
        let hash = shape_hash(shape);
        let key = format!("{:08X}", hash ^ indexes_hash(self.source));
        let hash = format!("{hash:08X}");
        doc.append(cstr!("queryHash"), hash.as_str());
        doc.append(cstr!("planCacheShapeHash"), hash.as_str());
        doc.append(cstr!("planCacheKey"), key);
        if self.optimized {
            doc.append(cstr!("optimizationTimeMillis"), sizes::number(planned));
            doc.append(cstr!("optimizedPipeline"), true);
            append_limits(&mut doc);
        } else {
            append_bounds(&mut doc, planned);
        }
        doc.append(cstr!("winningPlan"), self.tree(shape, (chosen, false), None));
        let rejected: RawArrayBuf =
            rejected.iter().map(|c| self.tree(shape, (c, true), None)).collect();
        doc.append(cstr!("rejectedPlans"), rejected);
        doc
    }

    fn tree(
        &self,
        shape: &Shape,
        (candidate, rejected): (&Candidate, bool),
        ran: Option<&Ran>,
    ) -> RawDocumentBuf {
        let below = shape.plan(candidate, self.source.indexes(), ran);
        let mut tree = rawdoc! { "isCached": false };
        if matches!(self.top, Top::Count) {
            tree.append(cstr!("stage"), "COUNT");
            if let Some(ran) = ran {
                let counted = ran.rows();
                tree.append(cstr!("nReturned"), 0);
                tree.append(cstr!("executionTimeMillisEstimate"), sizes::number(ran.millis));
                tree.append(cstr!("nCounted"), sizes::number(counted));
                tree.append(cstr!("nSkipped"), 0);
            }
            tree.append(cstr!("inputStage"), below);
            return tree;
        }
        let groups = match self.top {
            Top::Stages { groups, .. } if !rejected => groups,
            _ => 0,
        };
        let mut below = below;
        for at in (0..groups).rev() {
            let mut group = rawdoc! { "stage": "GROUP" };
            if let Some(ran) = ran {
                let place = ran.returned.len().checked_sub(at + 1);
                let n = place.and_then(|place| ran.returned.get(place)).copied().unwrap_or(0);
                group.append(cstr!("nReturned"), sizes::number(n));
                group.append(cstr!("executionTimeMillisEstimate"), sizes::number(ran.millis));
            }
            group.append(cstr!("inputStage"), below);
            below = group;
        }
        for (name, value) in below.iter().flatten() {
            tree.append(name, value);
        }
        tree
    }

    fn trial(&self, shape: &Shape, candidate: &Candidate, ran: &Ran) -> RawDocumentBuf {
        let mut doc = RawDocumentBuf::new();
        let returned = ran.rows();
        doc.append(cstr!("nReturned"), sizes::number(returned));
        doc.append(cstr!("executionTimeMillisEstimate"), sizes::number(ran.millis));
        doc.append(cstr!("totalKeysExamined"), sizes::number(ran.examined.keys));
        doc.append(cstr!("totalDocsExamined"), sizes::number(ran.examined.docs));
        doc.append(cstr!("executionStages"), self.tree(shape, (candidate, true), Some(ran)));
        doc
    }

    /// Runs a plan to its end and keeps only the counts.
    fn execute(
        &self,
        candidate: &Candidate,
        request: Request,
        projection: Option<Projection>,
        above: Vec<stage::Parsed>,
    ) -> Result<Ran, Failure> {
        let started = Instant::now();
        let limit = request.limit;
        let mut pipeline = planner::build(candidate, request);
        pipeline.extend(projection.map(Project));
        let planned = pipeline.returned().len() + self.pushed.min(above.len());
        stage::extend(&mut pipeline, above);
        let mut input = Input::new(self.source, self.context);
        while pipeline.next(&mut input)?.is_some() {}
        let mut returned = pipeline.returned();
        let above = returned.split_off(planned.min(returned.len()));
        let examined = pipeline.examined();
        let mut ran = Ran { returned, above, millis: millis(started), examined };
        // As in mongod, reaching the end of the keys counts as one examined key.
        let ended = limit.is_none_or(|limit| ran.rows() < limit);
        let counts = matches!(self.top, Top::Count) && candidate.counts_keys();
        ran.examined.keys += u64::from(counts && ended);
        Ok(ran)
    }
}

fn append_bounds(doc: &mut RawDocumentBuf, planned: u64) {
    doc.append(cstr!("optimizationTimeMillis"), sizes::number(planned));
    append_limits(doc);
}

/// None of the planner's limits was reached, since it has none that would change a plan.
fn append_limits(doc: &mut RawDocumentBuf) {
    for name in [
        cstr!("maxIndexedOrSolutionsReached"),
        cstr!("maxIndexedAndSolutionsReached"),
        cstr!("maxScansToExplodeReached"),
        cstr!("prunedSimilarIndexes"),
    ] {
        doc.append(name, false);
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The explanation for a missing collection.
fn absent(call: &Call, ns: &str, filter: &RawDoc, verbosity: Verbosity) -> Outcome {
    let matcher = query::matcher::Matcher::parse(filter, &query::matcher::ParseContext::default())?;
    let shape = Shape::of(&Request::new(matcher));
    let plan = rawdoc! { "isCached": false, "stage": "EOF", "type": "nonExistentNamespace" };
    let mut planner = rawdoc! { "namespace": ns };
    planner.append(cstr!("parsedQuery"), shape.parsed_query().clone());
    planner.append(cstr!("indexFilterSet"), false);
    append_bounds(&mut planner, 0);
    planner.append(cstr!("winningPlan"), plan.clone());
    planner.append(cstr!("rejectedPlans"), RawArrayBuf::new());
    let mut body = rawdoc! { "explainVersion": "1", "queryPlanner": planner };
    if verbosity >= Verbosity::ExecutionStats {
        let stages = rawdoc! {
            "isCached": false, "stage": "EOF", "nReturned": 0, "executionTimeMillisEstimate": 0,
            "works": 1, "advanced": 0, "needTime": 0, "needYield": 0, "saveState": 0,
            "restoreState": 0, "isEOF": 1, "type": "nonExistentNamespace",
        };
        body.append(
            cstr!("executionStats"),
            rawdoc! {
                "executionSuccess": true, "nReturned": 0, "executionTimeMillis": 0,
                "totalKeysExamined": 0, "totalDocsExamined": 0, "executionStages": stages,
            },
        );
    }
    finish(call, body)
}

/// Appends the fields at the end of every explanation: the command and the server.
fn finish(call: &Call, mut body: RawDocumentBuf) -> Outcome {
    let node = call.node();
    let profile = call.profile();
    body.append(cstr!("command"), call.body.as_raw().to_owned());
    let host = node.host.rsplit_once(':').map_or(node.host.as_str(), |(host, _)| host);
    body.append(
        cstr!("serverInfo"),
        rawdoc! {
            "host": host,
            "port": i32::from(node.settings.port),
            "version": profile.version,
            "gitVersion": profile.git_version,
        },
    );
    body.append(
        cstr!("serverParameters"),
        rawdoc! {
            "internalQueryMaxBlockingSortMemoryUsageBytes": 104_857_600,
            "internalDocumentSourceGroupMaxMemoryBytes": 104_857_600,
        },
    );
    Ok(body.into())
}
