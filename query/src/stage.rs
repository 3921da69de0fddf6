//! Aggregation: a pipeline of stages over a collection.
//!
//! ```text
//!   [ {$match}, {$sort}, {$limit}, ... ]        the leading stages go to the planner, which can use indexes
//!     '---------- planner ---------'  [ stage -> stage -> stage ]
//! ```

mod accumulator;
mod bucket;
mod densify;
mod facet;
mod fill;
mod geo_near;
mod granularity;
mod graph;
mod group;
mod hash_key;
mod join;
mod outside;
mod plain;
mod pushed;
mod row;
mod simple;
mod spec;
mod table;
mod unpack;
mod unwind;
mod window;
mod write;

pub use geo_near::GeoNear;
pub(crate) use geo_near::NearSort;
pub use outside::Over;
pub use row::{Needs, Reads, Shows, StageRow};
pub use unpack::Unpack;
pub use write::{Merge, Write, WriteKind, prepend_id};

use bson::RawDocument;
use row::Pushed;

use crate::{
    Release,
    context::Context,
    error::QueryError,
    exec::{self, Access, Examined, Limit, Pipeline, Skip, Sort, Stage},
    expression::Scope,
    matcher::{Matcher, Node, ParseContext},
    planner::{self, Request, Values},
    sort::SortPattern,
    source::Source,
    timeseries,
    value::{Element, Elements, Value},
};
use protocol::RawDoc;

/// A parsed stage: the kinds that the planner understands, and the rest.
#[derive(Debug)]
pub enum Parsed {
    /// `$match`.
    Match(Matcher),
    /// `$sort`.
    Sort(SortPattern),
    /// `$limit`.
    Limit(u64),
    /// `$skip`.
    Skip(u64),
    /// Unpacks time-series buckets.
    Unpack(Box<Unpack>),
    /// Documents sorted by distance.
    GeoNear(Box<GeoNear>),
    /// A stage with the server's own documents. The caller of the pipeline removes it.
    Outside(&'static str),
    /// A stage that writes the results. The caller of the pipeline removes it.
    Write(Box<Write>),
    /// `$documents`: documents given in the pipeline.
    Documents(Box<dyn Stage>),
    /// Any other stage, translated to one or more stages.
    Other(Vec<Box<dyn Stage>>),
}

/// The environment of a pipeline's parser.
#[derive(Debug, Clone, Default)]
pub struct StageContext {
    /// The collation.
    pub parse: ParseContext,
    /// The variables that expressions may use.
    pub scope: Scope,
    /// The database name.
    pub database: String,
    /// What the pipeline runs over.
    pub over: Over,
    /// Nesting depth of the pipeline.
    pub depth: usize,
    /// mongod's second execution engine (SBE) runs the stages parsed next, with its own error texts.
    pub pushed: bool,
}

impl StageContext {
    /// A copy with its own error slot, for stages and their sub-pipelines.
    fn apart(&self) -> Self {
        let scope = self.scope.apart(self.parse.collator.as_ref());
        Self { scope, over: Over::Part, pushed: false, ..self.clone() }
    }

    /// The context of a sub-pipeline over another collection, or over none.
    fn inner(&self) -> Result<Self, QueryError> {
        if self.depth >= DEPTH_MAX {
            return Err(QueryError::location(
                232,
                format!("Maximum number of nested sub-pipelines exceeded. Limit is {DEPTH_MAX}"),
            ));
        }
        // Other documents do not carry these scores.
        let scope = self.scope.clone().without_scores();
        Ok(Self { depth: self.depth + 1, scope, ..self.clone() })
    }
}

/// Maximum nesting of pipelines, as in mongod.
const DEPTH_MAX: usize = 20;

/// Maximum number of stages in a pipeline, as in mongod since 5.0.
pub const STAGES_MAX: usize = 1000;

/// Parses a pipeline.
pub fn parse(pipeline: Value<'_>, cx: &StageContext) -> Result<Vec<Parsed>, QueryError> {
    let own = StageContext { pushed: cx.over != Over::Part, ..cx.apart() };
    let parsed = parse_over(pipeline, &own, &cx.over)?;
    // mongod optimises a pipeline that unpacks buckets twice, so its error has two prefixes.
    let twice = matches!(parsed.first(), Some(Parsed::Unpack(_)));
    let refused =
        |fault| if twice { not_optimized(not_optimized(fault)) } else { not_optimized(fault) };
    own.scope.settle().map_err(refused)?;
    Ok(parsed)
}

/// Checks a sub-pipeline: an error in a constant makes the whole pipeline fail.
pub(crate) fn check_part(
    pipeline: Value<'_>,
    cx: &StageContext,
    over: &Over,
) -> Result<(), QueryError> {
    let own = cx.apart();
    parse_inner(pipeline, &own, over)?;
    if let Err(fault) = own.scope.settle() {
        cx.scope.note(not_optimized(fault));
    }
    Ok(())
}

fn not_optimized(fault: QueryError) -> QueryError {
    let message = format!("Failed to optimize pipeline :: caused by :: {}", fault.message);
    QueryError { message, ..fault }
}

/// Parses a sub-pipeline; errors of constants are recorded in the scope. The length of the outermost pipeline is
/// checked by the command, since releases differ.
fn parse_inner(
    pipeline: Value<'_>,
    cx: &StageContext,
    over: &Over,
) -> Result<Vec<Parsed>, QueryError> {
    if named(pipeline, cx.scope.release)?.len() > STAGES_MAX {
        return Err(QueryError::location(
            7_749_501,
            format!("Pipeline length must be no longer than {STAGES_MAX} stages."),
        ));
    }
    parse_over(pipeline, cx, over)
}

fn parse_over(
    pipeline: Value<'_>,
    cx: &StageContext,
    over: &Over,
) -> Result<Vec<Parsed>, QueryError> {
    let stages = named(pipeline, cx.scope.release)?;
    let mut parsed = Vec::with_capacity(stages.len());
    let (mut after, mut above) = (None::<StageContext>, false);
    let mut cx = std::borrow::Cow::Borrowed(cx);
    for (row, field) in &stages {
        let stage = row.parse(field.value(), after.as_ref().unwrap_or(&cx))?;
        if *over != Over::Part {
            (row.home)(row, &cx.database, over)?;
        }
        if let Parsed::Match(filter) = &stage
            && let Some(text) = filter.text()
        {
            planner::check_text(filter)?;
            if !parsed.is_empty() {
                let text = "$match with $text is only allowed as the first pipeline stage";
                return Err(QueryError::location(17_313, text));
            }
            let scope = cx.scope.clone().with_scores(text);
            cx.to_mut().scope = scope;
        }
        parsed.push(stage);
        let pushed = match row.pushed {
            Pushed::Never => false,
            Pushed::Below(takes) => !above && takes(field.value()),
            Pushed::Above(takes) => takes(field.value()),
        };
        if after.is_none() && cx.pushed && !pushed {
            after = Some(StageContext { pushed: false, ..cx.as_ref().clone() });
        }
        above |= matches!(row.pushed, Pushed::Above(_));
    }
    outside::check_places(stages.iter().map(|(row, _)| *row))?;
    outside::check_first(stages.first().map(|(row, _)| *row), over)?;
    Ok(parsed)
}

/// Looks up the stages by name: unknown names are reported before any stage is parsed, also those in sub-pipelines.
fn named(
    pipeline: Value<'_>,
    release: Release,
) -> Result<Vec<(&'static StageRow, Element<'_>)>, QueryError> {
    let mut stages = Vec::new();
    for element in pipeline.elements() {
        let Value::Document(doc) = element.value() else {
            return Err(QueryError::type_mismatch(
                "Each element of the 'pipeline' array must be an object",
            ));
        };
        let mut fields = Elements::of_bytes(doc);
        let (Some(field), None) = (fields.next(), fields.next()) else {
            return Err(QueryError::location(
                40_323,
                "A pipeline stage specification object must contain exactly one field.",
            ));
        };
        let row = StageRow::usable(field.key, release)?;
        (row.inner)(field.value(), release)?;
        stages.push((row, field));
    }
    Ok(stages)
}

/// A pipeline in two parts: what the planner does, and the stages above it.
#[derive(Debug)]
pub struct Split {
    /// The leading stages as a query.
    pub request: Request,
    /// Number of stages that became part of the query.
    pub absorbed: usize,
    /// The remaining stages.
    pub rest: Vec<Parsed>,
}

/// Moves the leading stages that can use indexes to a query.
pub fn split(parsed: Vec<Parsed>, cx: &StageContext) -> Result<Split, QueryError> {
    let all = parsed.len();
    let mut stages = parsed.into_iter().peekable();
    if let Some(Parsed::Unpack(unpack)) = stages.next_if(|s| matches!(s, Parsed::Unpack(_))) {
        // For a time-series collection, the filter on buckets goes to the planner.
        let filter = match stages.peek() {
            Some(Parsed::Match(filter)) => timeseries::on_buckets(filter, &unpack.unpacking),
            _ => Matcher::from_root(Node::And(Vec::new())),
        };
        let rest = std::iter::once(Parsed::Unpack(unpack)).chain(stages).collect();
        return Ok(Split { request: Request::new(filter), absorbed: 0, rest });
    }
    if let Some(Parsed::GeoNear(_) | Parsed::Outside(_)) = stages.peek() {
        let request = Request::new(Matcher::everything());
        return Ok(Split { request, absorbed: 0, rest: stages.collect() });
    }
    let first = stages.next_if(|stage| matches!(stage, Parsed::Match(_)));
    let filter = match first {
        Some(Parsed::Match(filter)) => filter,
        _ => Matcher::parse(&bson::RawDocumentBuf::new(), &cx.parse)?,
    };
    let mut request = Request::new(filter);
    if let Some(Parsed::Sort(pattern)) = stages.next_if(|s| matches!(s, Parsed::Sort(_))) {
        request.sort = Some(pattern);
    }
    if let Some(Parsed::Limit(limit)) = stages.next_if(|s| matches!(s, Parsed::Limit(_))) {
        request.limit = Some(limit);
    }
    let rest: Vec<_> = stages.collect();
    if let Some(Parsed::Other(steps)) = rest.first() {
        request.needed = steps.first().and_then(|step| step.needs());
        let whole = request.sort.is_none() && request.limit.is_none();
        let values = steps.first().and_then(|step| step.values_of()).filter(|_| whole);
        let collation = cx.parse.collator.as_ref().map(|collator| collator.spec().clone());
        let of_all = request.filter.is_trivial();
        request.distinct = values.map(|path| Values { path, once: true, of_all, collation });
    }
    Ok(Split { request, absorbed: all - rest.len(), rest })
}

/// Builds the executable pipeline for a collection.
pub fn plan(
    parsed: Vec<Parsed>,
    source: &dyn Source,
    context: &Context,
    cx: &StageContext,
) -> Result<Pipeline, QueryError> {
    let Split { request, rest, .. } = split(parsed, cx)?;
    match rest.first() {
        Some(Parsed::Documents(_)) => return Ok(over_given(rest.into_iter())),
        Some(Parsed::GeoNear(_) | Parsed::Outside(_)) => {
            return over_first(rest.into_iter(), source, context);
        }
        _ => {}
    }
    let (mut pipeline, _) = planner::plan(request, source, context)?;
    extend(&mut pipeline, rest);
    Ok(pipeline)
}

/// Builds a pipeline whose first stage provides the documents itself.
fn over_first(
    mut stages: impl Iterator<Item = Parsed>,
    source: &dyn Source,
    context: &Context,
) -> Result<Pipeline, QueryError> {
    let mut pipeline = match stages.next() {
        Some(Parsed::GeoNear(near)) => {
            let request = Request::new(near.filter.clone());
            let (mut pipeline, _) = planner::plan(request, source, context)?;
            pipeline.push(Box::new(near.over(source)?));
            pipeline
        }
        Some(Parsed::Outside(name)) => return Err(outside::not_supported(name)),
        _ => Pipeline::new(Access::Nothing, Vec::new()),
    };
    push_all(&mut pipeline, stages);
    Ok(pipeline)
}

/// Adds stages on top of a pipeline.
pub fn extend(pipeline: &mut Pipeline, stages: Vec<Parsed>) {
    push_all(pipeline, stages.into_iter());
}

/// Adds stages. A limit directly after a sort becomes the sort's limit.
fn push_all(pipeline: &mut Pipeline, stages: impl Iterator<Item = Parsed>) {
    let mut stages = stages.peekable();
    while let Some(stage) = stages.next() {
        match (stage, stages.peek()) {
            (Parsed::Sort(pattern), Some(Parsed::Limit(n))) => {
                let n = usize::try_from(*n).ok();
                pipeline.push(Box::new(Sort::new(pattern, n)));
            }
            (stage, _) => push(pipeline, stage),
        }
    }
}

/// Runs a parsed pipeline over given documents.
pub fn over_docs(docs: Vec<RawDoc>, parsed: Vec<Parsed>) -> Pipeline {
    let mut pipeline = Pipeline::new(Access::Given(docs), Vec::new());
    push_all(&mut pipeline, parsed.into_iter());
    pipeline
}

/// Runs a parsed pipeline over a stage's output.
fn over(stage: impl Stage + 'static, parsed: Vec<Parsed>) -> Pipeline {
    let mut pipeline = Pipeline::new(Access::Nothing, vec![Box::new(stage)]);
    push_all(&mut pipeline, parsed.into_iter());
    pipeline
}

fn over_given(mut stages: impl Iterator<Item = Parsed>) -> Pipeline {
    match stages.next() {
        Some(Parsed::Documents(docs)) => {
            let mut pipeline = Pipeline::new(Access::Nothing, vec![docs]);
            push_all(&mut pipeline, stages);
            pipeline
        }
        _ => Pipeline::new(Access::Nothing, Vec::new()),
    }
}

fn push(pipeline: &mut Pipeline, stage: Parsed) {
    match stage {
        Parsed::Match(filter) => pipeline.push(Box::new(exec::Filter(filter))),
        Parsed::Sort(pattern) => pipeline.push(Box::new(Sort::new(pattern, None))),
        Parsed::Limit(n) => pipeline.push(Box::new(Limit(n))),
        Parsed::Skip(n) => pipeline.push(Box::new(Skip(n))),
        Parsed::Unpack(unpack) => pipeline.push(unpack),
        Parsed::GeoNear(_) => pipeline.push(Box::new(outside::Refused("$geoNear"))),
        Parsed::Outside(name) => pipeline.push(Box::new(outside::Refused(name))),
        Parsed::Write(write) => pipeline.push(Box::new(outside::Refused(write.name()))),
        Parsed::Documents(_) => {}
        Parsed::Other(stages) => stages.into_iter().for_each(|stage| pipeline.push(stage)),
    }
}

/// An empty collection, for pipelines over given documents.
#[derive(Debug)]
pub(crate) struct NoSource;

impl Source for NoSource {
    fn namespace(&self) -> String {
        String::new()
    }

    fn indexes(&self) -> &[crate::source::IndexInfo] {
        &[]
    }

    fn count(&self) -> Result<u64, QueryError> {
        Ok(0)
    }

    fn scan<'s>(
        &'s self,
        _: Option<&crate::source::RecordKey>,
        _: crate::source::Direction,
    ) -> crate::source::Records<'s> {
        Box::new(crate::source::AtHand(std::iter::empty()))
    }

    fn index_scan<'s>(
        &'s self,
        _: usize,
        _: &crate::source::KeyRange,
        _: Option<&crate::source::IndexEntry>,
        _: crate::source::Direction,
    ) -> crate::source::IndexEntries<'s> {
        Box::new(std::iter::empty())
    }

    fn fetch(&self, _: &crate::source::RecordKey) -> Result<Option<RawDoc>, QueryError> {
        Ok(None)
    }

    fn by_id(&self, _: Value<'_>) -> Result<Option<crate::source::Record>, QueryError> {
        Ok(None)
    }
}

/// All documents of a pipeline at once.
pub(crate) fn drain(
    pipeline: &mut Pipeline,
    source: &dyn Source,
    context: &Context,
) -> Result<(Vec<RawDoc>, Examined), QueryError> {
    let mut input = exec::Input::new(source, context);
    let mut docs = Vec::new();
    while let Some(doc) = pipeline.next(&mut input)? {
        docs.push(doc);
    }
    Ok((docs, pipeline.examined()))
}

pub(crate) fn raw(doc: &[u8]) -> Result<&RawDocument, QueryError> {
    RawDocument::from_bytes(doc)
        .map_err(|_| QueryError::new(protocol::ErrorCode::InvalidBSON, "malformed document"))
}

pub(crate) fn to_doc(bytes: Vec<u8>) -> Result<RawDoc, QueryError> {
    RawDoc::new(bytes.into())
        .map_err(|_| QueryError::new(protocol::ErrorCode::InvalidBSON, "malformed document"))
}

#[cfg(test)]
mod tests;
