//! The planner: selects how to reach the documents for a filter and a sort.
//!
//! ```text
//!   filter --bounds--> ranges of each usable index --candidates--> plans --trial--> the best plan
//! ```
//! Q1 Bounds may be too wide, never too narrow: what they do not express is checked on keys or documents.
//! Q2 A plan that claims to provide the sort order provides exactly that order.

mod bounds;
mod by_or;
mod candidates;
mod canonical;
mod distinct;
pub mod explain;
mod partial;
mod refused;
mod shape;
mod text;
mod tightness;
mod wildcard;

pub use bounds::{Interval, intervals_of};
pub use candidates::{Candidate, candidates};
pub use distinct::held_by_keys;
pub use refused::{frame as refused_frame, refused};
pub use shape::shape;
pub use text::{
    check as check_text, check_request as check_text_request, not_found as no_text_index,
};

use bson::RawDocument;
use protocol::RawDoc;

use crate::{
    collation::CollationSpec,
    context::Context,
    error::QueryError,
    exec::{Access, Annotate, Fetch, Filter, Input, Limit, Pipeline, Skip, Sort},
    geo::{NearBy, geo_field},
    matcher::{Matcher, Node, ParseContext},
    sort::SortPattern,
    source::{Direction, IndexInfo, Source, WholeKeys},
    stage::NearSort,
    value::{Elements, Shown, Value},
};

/// A query to plan.
#[derive(Debug, Clone)]
pub struct Request {
    /// The filter.
    pub filter: Matcher,
    /// The sort.
    pub sort: Option<SortPattern>,
    /// `$natural` in the sort or the hint.
    pub natural: Option<Direction>,
    /// The hinted index, by its position in the source's list.
    pub hint: Option<usize>,
    /// If an index filter is set for the query's shape: the only indexes that may be used, whatever the hint.
    pub allowed: Option<Vec<usize>>,
    /// Number of results to skip.
    pub skip: u64,
    /// Maximum number of results.
    pub limit: Option<u64>,
    /// `min` and `max`; they require a hint.
    pub ends: Option<WholeKeys>,
    /// The needed paths, if not the whole document.
    pub needed: Option<Vec<Vec<u8>>>,
    /// Whether documents carry metadata (scores, record ids).
    pub noted: bool,
    /// Only the number of results is needed.
    pub counts: bool,
    /// Only the distinct values of a field are needed.
    pub distinct: Option<Values>,
    /// Sort and projection of a find as written, for error texts.
    pub written: (Option<RawDoc>, Option<RawDoc>),
}

/// The distinct values of a field; each may occur several times unless `once` is set.
#[derive(Debug, Clone)]
pub struct Values {
    /// The field.
    pub path: Vec<u8>,
    /// Each value exactly once, with arrays as values: for `$group`.
    pub once: bool,
    /// The values of all documents, with an empty filter as written.
    pub of_all: bool,
    /// The collation by which values are compared.
    pub collation: Option<CollationSpec>,
}

impl Request {
    /// A request for all matching documents, in any order.
    pub fn new(filter: Matcher) -> Self {
        Self {
            filter,
            sort: None,
            natural: None,
            hint: None,
            allowed: None,
            skip: 0,
            limit: None,
            ends: None,
            needed: None,
            noted: false,
            counts: false,
            distinct: None,
            written: (None, None),
        }
    }

    /// True if the index at this position may be used.
    pub fn allows(&self, index: usize) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.contains(&index))
    }

    /// True if only the number of documents is needed.
    pub(crate) fn only_counts(&self) -> bool {
        let none = self.needed.as_ref().is_some_and(Vec::is_empty);
        self.counts || none
    }

    /// How many documents a sort must keep.
    fn sort_limit(&self) -> Option<usize> {
        self.limit.and_then(|limit| usize::try_from(limit.saturating_add(self.skip)).ok())
    }
}

/// The index that a hint names, by name or by key pattern.
pub fn resolve_hint(hint: Value<'_>, indexes: &[IndexInfo]) -> Option<usize> {
    indexes.iter().position(|index| match hint {
        // A hidden index cannot be hinted.
        _ if index.hidden => false,
        Value::String(name) => index.name.as_bytes() == name,
        Value::Document(pattern) => {
            index.spec.get_document("key").is_ok_and(|key| same_pattern(key, pattern))
        }
        _ => false,
    })
}

fn same_pattern(key: &RawDocument, hint: &[u8]) -> bool {
    RawDocument::from_bytes(hint)
        .is_ok_and(|hint| crate::value::compare_docs(key, hint) == std::cmp::Ordering::Equal)
}

/// Selects a plan and builds its pipeline, without the projection.
pub fn plan(
    mut request: Request,
    source: &dyn Source,
    context: &Context,
) -> Result<(Pipeline, Candidate), QueryError> {
    if let Some(by) = request.filter.near().cloned() {
        by.check_index(source)?;
        if request.sort.is_none() {
            return Ok(by_distance(&by, &mut request));
        }
    }
    hold_to_geo_hint(&mut request, source)?;
    let (chosen, _) = choose(&request, source, context)?;
    Ok((build(&chosen, request), chosen))
}

/// A geo index has no entry for a document without its field, and a hint of it leaves that document out.
fn hold_to_geo_hint(request: &mut Request, source: &dyn Source) -> Result<(), QueryError> {
    let hinted = request.hint.and_then(|hint| source.indexes().get(hint));
    let Some((field, _)) = hinted.and_then(geo_field) else { return Ok(()) };
    let mut there = bson::RawDocumentBuf::new();
    let Ok(name) = bson::raw::CString::try_from(field) else { return Ok(()) };
    there.append(name, bson::rawdoc! { "$ne": null });
    let there = Matcher::parse(&there, &ParseContext::default())?;
    let both = vec![request.filter.root().clone(), there.root().clone()];
    request.filter = Matcher::from_root(Node::And(both));
    Ok(())
}

/// A plan that sorts all documents by distance; skip and limit are applied afterwards.
fn by_distance(by: &NearBy, request: &mut Request) -> (Pipeline, Candidate) {
    let (skip, limit) = (std::mem::take(&mut request.skip), request.limit.take());
    let chosen = Candidate::collection(Direction::Forward);
    let filter = std::mem::replace(&mut request.filter, Matcher::everything());
    let mut pipeline = build(&chosen, Request::new(filter));
    pipeline.push(Box::new(NearSort::new(by.clone())));
    pipeline.extend((skip > 0).then_some(Skip(skip)));
    pipeline.extend(limit.map(Limit));
    (pipeline, chosen)
}

/// The selected plan, and the rejected ones.
pub fn choose(
    request: &Request,
    source: &dyn Source,
    context: &Context,
) -> Result<(Candidate, Vec<Candidate>), QueryError> {
    if let Some(search) = request.filter.text() {
        return Ok((text::candidate(request, search, source)?, Vec::new()));
    }
    if let Some(found) = by_or::subplans(request, source, context)? {
        return Ok((found, Vec::new()));
    }
    let mut found = candidates(request, source.indexes());
    if found.len() <= 1 {
        let only = found.pop().unwrap_or_else(|| Candidate::collection(Direction::Forward));
        return Ok((only, Vec::new()));
    }
    trial(found, request, source, context).map_err(|error| QueryError {
        message: format!(
            "error while multiplanner was selecting best plan :: caused by :: {}",
            error.message
        ),
        ..error
    })
}

/// True if a plan skips from value to value of a field.
pub fn is_by_values(candidate: &Candidate) -> bool {
    candidate.access.branches().iter().any(|scan| scan.distinct.is_some())
}

/// True if the query reads a single document by its `_id`.
pub fn is_by_id(request: &Request, source: &dyn Source) -> bool {
    let found = candidates(request, source.indexes());
    matches!(found.as_slice(), [Candidate { access: Access::ById(_), .. }])
}

/// Maximum work of each plan in the trial, and the number of results that ends it, as in mongod.
const TRIAL_WORKS: u64 = 10_000;
const TRIAL_RESULTS: u64 = 101;

/// Runs the candidates for a short time; the one with the most results for its work comes first.
fn trial(
    mut found: Vec<Candidate>,
    request: &Request,
    source: &dyn Source,
    context: &Context,
) -> Result<(Candidate, Vec<Candidate>), QueryError> {
    let works_max = TRIAL_WORKS.max(source.count()? * 3 / 10);
    let mut scores = Vec::with_capacity(found.len());
    let mut budget = works_max;
    for candidate in &found {
        let score = score(candidate, request, source, context, budget)?;
        // In mongod the plans take turns, and all stop when the first is done.
        if score.done {
            budget = budget.min(score.works.max(1));
        }
        scores.push(score);
    }
    let mut best: Option<(Score, usize)> = None;
    for (at, (candidate, known)) in found.iter().zip(scores).enumerate() {
        let score = match known.works > budget {
            true => score(candidate, request, source, context, budget)?,
            false => known,
        };
        if best.as_ref().is_none_or(|(s, _)| score.better_than(s)) {
            best = Some((score, at));
        }
    }
    let chosen = found.remove(best.map_or(0, |(_, at)| at));
    Ok((chosen, found))
}

#[derive(Debug, Clone, Copy)]
struct Score {
    results: u64,
    works: u64,
    /// It returned everything, or enough to end the trial.
    done: bool,
    /// It returned everything.
    finished: bool,
    sorts: bool,
    fetches: bool,
}

impl Score {
    fn better_than(&self, other: &Self) -> bool {
        let productivity = |s: &Self| {
            #[allow(clippy::cast_precision_loss, reason = "a ratio, not a count")]
            let (results, works) = (s.results as f64, s.works.max(1) as f64);
            // Small enough to only break ties, as in mongod.
            let epsilon = (1.0 / (10.0 * works)).min(1e-4);
            let bonus = |given: bool| if given { epsilon } else { 0.0 };
            let finished = if s.finished { 1.0 } else { 0.0 };
            results / works + finished + bonus(!s.sorts) + bonus(!s.fetches)
        };
        productivity(self) > productivity(other)
    }
}

fn score(
    candidate: &Candidate,
    request: &Request,
    source: &dyn Source,
    context: &Context,
    works_max: u64,
) -> Result<Score, QueryError> {
    let mut pipeline = reading(candidate, &request.filter, true);
    let mut input = Input::new(source, context);
    let sorts = request.sort.is_some() && !candidate.gives_order;
    let wanted = request.limit.map_or(TRIAL_RESULTS, |n| (n + request.skip).min(TRIAL_RESULTS));
    let (mut results, mut works, mut ended) = (0, 0, false);
    // A sort returns nothing before it has read everything.
    while (sorts || results < wanted) && works < works_max {
        ended = pipeline.next(&mut input)?.is_none();
        results += u64::from(!ended);
        let examined = pipeline.examined();
        works = examined.keys.max(examined.docs) + u64::from(ended);
        if ended {
            break;
        }
    }
    // The last step may have exceeded the budget.
    if works > works_max {
        results = results.saturating_sub(u64::from(!ended));
        ended = false;
    }
    if sorts {
        results = if ended { results.min(wanted).min(works_max.saturating_sub(works)) } else { 0 };
        works += results;
    }
    let finished = ended && (!sorts || works < works_max);
    let done = finished || results >= wanted;
    let fetches = !candidate.covers;
    Ok(Score { results, works: works.min(works_max), done, finished, sorts, fetches })
}

/// Builds the pipeline of a plan, without the projection.
pub fn build(candidate: &Candidate, request: Request) -> Pipeline {
    let sort_limit = request.sort_limit();
    let ordered = request.sort.is_none() || candidate.gives_order;
    if request.only_counts() && candidate.settled && ordered {
        let mut pipeline = Pipeline::of_keys(candidate.access.clone());
        pipeline.extend((request.skip > 0).then_some(Skip(request.skip)));
        pipeline.extend(request.limit.map(Limit));
        return pipeline;
    }
    let keys = candidate.sorts_keys && !request.noted;
    let mut pipeline = match keys {
        true => Pipeline::new(candidate.access.clone(), Vec::new())
            .with_records()
            .wary(request.filter.clone()),
        false => reading(candidate, &request.filter, !request.noted),
    };
    let sorts = request.sort.is_some() && !candidate.gives_order;
    let skips_keys = candidate.skips_keys(sorts);
    if skips_keys {
        pipeline = pipeline.after(request.skip);
    }
    if request.noted {
        pipeline.push(Box::new(Annotate { sort: request.sort.clone() }));
    }
    if let Some(pattern) = request.sort.filter(|_| sorts) {
        pipeline.push(Box::new(Sort::new(pattern, sort_limit)));
    }
    pipeline.extend((request.skip > 0 && !skips_keys).then_some(Skip(request.skip)));
    pipeline.extend(request.limit.map(Limit));
    pipeline.extend(keys.then_some(Fetch(request.filter)));
    pipeline
}

/// Reads matching documents or, if `by_keys` allows it, documents built from index keys.
fn reading(candidate: &Candidate, filter: &Matcher, by_keys: bool) -> Pipeline {
    let mut pipeline = Pipeline::new(candidate.access.clone(), Vec::new());
    if candidate.covers && by_keys {
        return pipeline.covered().wary(filter.clone());
    }
    let filter = match &candidate.access {
        Access::Text(text) => text.filter.clone(),
        Access::Indexes(_) if candidate.tight => {
            pipeline = pipeline.wary(filter.clone());
            candidate.rest.clone().map_or_else(Matcher::everything, Matcher::from_root)
        }
        _ => filter.clone(),
    };
    if !filter.is_trivial() {
        pipeline.push(Box::new(Filter(filter)));
    }
    pipeline
}

/// Parses `{$natural: ±1}` in a sort or a hint (`what`).
pub fn natural(doc: &RawDocument, what: &str) -> Result<Option<Direction>, QueryError> {
    let mut fields = Elements::new(doc);
    if fields.clone().find(b"$natural").is_none() {
        return Ok(None);
    }
    let refused = || {
        let text = format!("$natural {what} cannot be set to a value other than -1 or 1.");
        QueryError::bad_value(text)
    };
    let first = fields.next().filter(|_| fields.next().is_none()).ok_or_else(refused)?;
    match crate::matcher::operands::integer("", first.value()) {
        Ok(1) => Ok(Some(Direction::Forward)),
        Ok(-1) => Ok(Some(Direction::Backward)),
        _ => Err(refused()),
    }
}

/// A short description of an access, for logs and tests.
pub fn describe(access: &Access, indexes: &[IndexInfo]) -> String {
    match access {
        Access::Nothing => "EOF".into(),
        Access::Collection(_) => "COLLSCAN".into(),
        Access::ById(_) => "IDHACK".into(),
        Access::Given(_) => "QUEUED_DATA".into(),
        Access::Indexes(_) | Access::Text(_) => access
            .branches()
            .iter()
            .map(|scan| {
                let name = indexes.get(scan.index).map_or("?", |index| &index.name);
                let ranges: Vec<_> = scan.ranges.iter().map(describe_range).collect();
                format!("IXSCAN {name} {}", ranges.join(" "))
            })
            .collect::<Vec<_>>()
            .join(" OR "),
    }
}

fn describe_range(range: &crate::source::KeyRange) -> String {
    let prefix: Vec<_> = range.prefix.iter().map(|v| Shown(v.get()).to_string()).collect();
    let edges = range.edges.as_ref().map_or(String::new(), |(low, high)| {
        format!(
            "{}{}, {}{}",
            if low.inclusive { '[' } else { '(' },
            Shown(low.value.get()),
            Shown(high.value.get()),
            if high.inclusive { ']' } else { ')' }
        )
    });
    format!("<{}{}{edges}>", prefix.join(","), if prefix.is_empty() { "" } else { ";" })
}

#[cfg(test)]
mod tests;
