//! `explain`: shows a plan in mongod's format.
//!
//! ```text
//!   LIMIT <- SKIP <- PROJECTION <- SORT <- FETCH {filter} <- IXSCAN {bounds}
//!                                       or COLLSCAN {filter}
//! ```

mod filter;
mod projection;
mod scan;
mod text;

pub(crate) use filter::filter_doc;
use filter::one;
use projection::{keeps, projection_stage};
use scan::{count_scan, filtered_scan, index_scan};

use bson::RawDocumentBuf;

use super::{Candidate, Request, canonical::canonical};
use crate::{
    exec::{Access, Examined, IndexScan},
    expression::{DocBuilder, array_bytes},
    matcher::{Matcher, Node},
    source::{Direction, IndexInfo},
    value::{Elements, Value},
};

/// Statistics of the execution, for the verbosities that run the query.
#[derive(Debug, Clone, Default)]
pub struct Ran {
    /// Documents that each stage returned, lowest stage first: filter, sort, skip, limit, projection.
    pub returned: Vec<u64>,
    /// Documents returned by each stage outside of the plan.
    pub above: Vec<u64>,
    /// Execution time in milliseconds.
    pub millis: u64,
    /// Keys and documents examined by the scan.
    pub examined: Examined,
}

impl Ran {
    /// Number of results of the plan.
    pub fn rows(&self) -> u64 {
        let by_scan = self.examined.given.max(self.examined.docs);
        self.returned.last().copied().unwrap_or(by_scan)
    }
}

/// The parts of a request that a plan shows.
#[derive(Debug, Clone)]
pub struct Shape {
    filter: RawDocumentBuf,
    root: Node,
    sort: Option<RawDocumentBuf>,
    skip: u64,
    limit: Option<u64>,
    counts: bool,
    /// Skip and limit are shown by a stage above.
    pub ends_above: bool,
    /// The projection as written.
    pub projection: Option<RawDocumentBuf>,
    /// The projection builds documents from index keys.
    of_keys: bool,
    /// The projection of a covered plan that only needs the values of a field.
    of_values: Option<RawDocumentBuf>,
    /// A grouping is part of the plan.
    grouped: bool,
}

/// The counts of the stages, consumed while the tree is built.
struct Counts<'r> {
    ran: Option<&'r Ran>,
    stages: std::slice::Iter<'r, u64>,
    last: u64,
}

impl Counts<'_> {
    /// A copy, for a stage that is shown below the one it runs above.
    fn twice(&self) -> Self {
        Self { ran: self.ran, stages: self.stages.clone(), last: self.last }
    }

    /// Number of results of the next stage.
    fn next(&mut self) -> Option<u64> {
        self.ran?;
        self.last = self.stages.next().copied().unwrap_or(self.last);
        Some(self.last)
    }
}

impl Shape {
    /// Taken before the request is planned, since planning consumes it.
    pub fn of(request: &Request) -> Self {
        let sort = request.sort.as_ref().map(|sort| {
            let mut doc = DocBuilder::new();
            for (at, part) in sort.parts.iter().enumerate() {
                if part.is_score() {
                    let meta = one("$meta", Value::String(b"textScore"));
                    doc.push(format!("$computed{at}").as_bytes(), Value::from(&*meta));
                    continue;
                }
                doc.push(part.path.dotted(), Value::Int32(if part.ascending { 1 } else { -1 }));
            }
            finish(doc)
        });
        let root = canonical(request.filter.root());
        Self {
            filter: filter_doc(&root),
            root,
            sort,
            skip: request.skip,
            limit: request.limit,
            counts: request.only_counts(),
            ends_above: false,
            projection: None,
            of_keys: false,
            of_values: request.distinct.as_ref().map(|values| values_of(&values.path)),
            grouped: false,
        }
    }

    /// The parsed filter in mongod's format.
    pub fn parsed_query(&self) -> &RawDocumentBuf {
        &self.filter
    }

    /// The sort, if there is one.
    pub fn sort(&self) -> Option<&RawDocumentBuf> {
        self.sort.as_ref()
    }

    /// The tree of stages, with counts if the query ran.
    pub fn plan(
        &self,
        candidate: &Candidate,
        indexes: &[IndexInfo],
        ran: Option<&Ran>,
    ) -> RawDocumentBuf {
        let mut counts =
            Counts { ran, stages: ran.map_or(&[][..], |ran| &ran.returned).iter(), last: 0 };
        counts.last = ran.map_or(0, |ran| ran.examined.docs);
        let mut stage = self.access(candidate, indexes, &mut counts);
        let sorts = self.sort.as_ref().filter(|_| !candidate.gives_order);
        // For a single document by `_id`, the IDHACK stage itself applies the projection.
        let by_id = matches!(candidate.access, Access::ById(_)) && self.is_alone();
        let of_values = self.of_values.as_ref().filter(|_| candidate.covers);
        let projection = self.projection.as_ref().or(of_values).filter(|_| !by_id);
        let early = projection
            .filter(|projection| sorts.is_some() && self.sorts_shown(candidate, projection));
        if let Some(projection) = early {
            stage = above(self.projected(projection, candidate, &mut counts.twice()), &stage);
        }
        if let Some(sort) = sorts {
            stage = above(self.sorted(sort, candidate, &mut counts), &stage);
        }
        if self.skip > 0 && !self.skips_keys(candidate) {
            let mut doc = node("SKIP", &mut counts);
            doc.push(b"skipAmount", number(self.skip));
            if !self.ends_above {
                stage = above(doc, &stage);
            }
        }
        // A sort with a limit needs no separate limit stage.
        let limit = self.limit.filter(|_| sorts.is_none() && !self.ends_above && !by_id);
        let limited = self.limit.and_then(|_| counts.next());
        if candidate.sorts_keys {
            let mut doc = node("FETCH", &mut counts);
            examined(&mut doc, ran, false, true);
            stage = above(doc, &stage);
        }
        if let Some(projection) = projection.filter(|_| early.is_none()) {
            stage = above(self.projected(projection, candidate, &mut counts), &stage);
        }
        if let Some(limit) = limit {
            counts.last = limited.unwrap_or(counts.last);
            counts.stages = [].iter();
            let mut doc = node("LIMIT", &mut counts);
            doc.push(b"limitAmount", number(limit));
            stage = above(doc, &stage);
        }
        let searched = matches!((&candidate.access, &self.root), (Access::Text(_), Node::Or(_)));
        if searched || candidate.subplan {
            stage = above(node("SUBPLAN", &mut counts), &stage);
        }
        stage
    }

    /// True if mongod sorts after the projection: without a limit, and if all sort fields are kept.
    fn sorts_shown(&self, candidate: &Candidate, projection: &RawDocumentBuf) -> bool {
        let mut sorted = self.sort.iter().flat_map(|sort| Elements::new(sort));
        self.limit.is_none()
            && !candidate.sorts_keys
            && sorted.all(|part| keeps(projection, part.key))
    }

    fn sorted(
        &self,
        sort: &RawDocumentBuf,
        candidate: &Candidate,
        counts: &mut Counts<'_>,
    ) -> DocBuilder {
        let mut doc = node("SORT", counts);
        doc.push(b"sortPattern", Value::from(&**sort));
        doc.push(b"memLimit", Value::Int32(104_857_600));
        if let Some(limit) = self.limit {
            doc.push(b"limitAmount", number(limit + self.skip));
        }
        let scored = matches!(&candidate.access, Access::Text(text) if text.scored);
        let keys = candidate.covers || candidate.sorts_keys;
        doc.push(b"type", Value::String(if scored || keys { b"default" } else { b"simple" }));
        doc
    }

    fn projected(
        &self,
        projection: &RawDocumentBuf,
        candidate: &Candidate,
        counts: &mut Counts<'_>,
    ) -> DocBuilder {
        let name = match projection_stage(projection) {
            "PROJECTION_SIMPLE" if candidate.covers => "PROJECTION_COVERED",
            other => other,
        };
        let mut doc = match self.of_keys || self.projection.is_none() {
            true => again(name, counts),
            false => node(name, counts),
        };
        doc.push(b"transformBy", Value::from(&**projection));
        doc
    }

    /// Below a grouping, a covered read or the input of a sort is shown as a projection.
    pub fn below_grouping(&mut self, candidate: &Candidate, request: &Request) {
        self.grouped = true;
        let (Some(needed), None) = (&request.needed, &self.projection) else { return };
        let sorts =
            request.sort.as_ref().filter(|_| !candidate.gives_order && !candidate.sorts_keys);
        let needs = |path: &[u8]| needed.iter().any(|needed| needed == path);
        let shown = sorts.is_some_and(|sort| {
            request.limit.is_none() && sort.parts.iter().all(|part| needs(part.path.dotted()))
        });
        let counts = request.only_counts() && candidate.settled;
        if counts || !(candidate.covers || shown) {
            return;
        }
        let mut doc = DocBuilder::new();
        doc.push(b"_id", Value::Bool(needs(b"_id")));
        for path in needed.iter().filter(|path| *path != b"_id") {
            doc.push(path, Value::Bool(true));
        }
        self.projection = Some(finish(doc));
        self.of_keys = true;
    }

    /// For a text search, replaces the filter by the one that was resolved with its index.
    pub fn settle(&mut self, candidate: &Candidate) {
        if let Access::Text(text) = &candidate.access {
            self.filter = filter_doc(&canonical(text.filter.root()));
            self.root = text.filter.root().clone();
        }
    }

    fn access(
        &self,
        candidate: &Candidate,
        indexes: &[IndexInfo],
        counts: &mut Counts<'_>,
    ) -> RawDocumentBuf {
        let ran = counts.ran;
        let filters = !self.filter.is_empty();
        match &candidate.access {
            Access::Nothing | Access::Given(_) => finish(node("EOF", counts)),
            Access::ById(_) => {
                let alone = self.is_alone();
                let returned = counts.next();
                let mut doc = DocBuilder::new();
                if alone {
                    doc.push(b"stage", Value::String(b"EXPRESS_IXSCAN"));
                    doc.push(b"keyPattern", Value::String(b"{ _id: 1 }"));
                    doc.push(b"indexName", Value::String(b"_id_"));
                } else {
                    doc.push(b"stage", Value::String(b"IDHACK"));
                }
                examined(&mut doc, ran, true, true);
                if let Some(returned) = returned {
                    doc.push(b"nReturned", number(returned));
                }
                finish(doc)
            }
            Access::Collection(direction) => {
                let rest = candidate.rest.as_ref().map(filter_doc);
                // Below a grouping mongod shows an empty filter.
                let rest = rest.or_else(|| self.grouped.then(RawDocumentBuf::new));
                let mut doc = filtering("COLLSCAN", rest.as_ref(), filters, counts);
                doc.push(b"direction", direction_text(*direction));
                examined(&mut doc, ran, false, true);
                finish(doc)
            }
            Access::Text(text) => text::stage(text, indexes, counts),
            Access::Indexes(scans) => self.index_access(candidate, scans, indexes, counts),
        }
    }

    /// True if the request has nothing besides the filter and a simple projection.
    fn is_alone(&self) -> bool {
        // A single document needs no sort and no limit.
        self.skip == 0
            && !self.ends_above
            && self.projection.as_ref().is_none_or(|p| projection_stage(p) == "PROJECTION_SIMPLE")
    }

    /// True if skipped results are skipped as index entries, before anything is fetched.
    fn skips_keys(&self, candidate: &Candidate) -> bool {
        !self.ends_above
            && self.skip > 0
            && candidate.skips_keys(self.sort.is_some() && !candidate.gives_order)
    }

    fn index_access(
        &self,
        candidate: &Candidate,
        scans: &[IndexScan],
        indexes: &[IndexInfo],
        counts: &mut Counts<'_>,
    ) -> RawDocumentBuf {
        let ran = counts.ran;
        let rest = candidate.rest.as_ref().map(filter_doc);
        let filters = if candidate.tight { rest.is_some() } else { !self.filter.is_empty() };
        if self.counts && candidate.settled && (self.sort.is_none() || candidate.gives_order) {
            return match scans {
                [only] => count_scan(only, indexes, ran),
                _ => branches(scans, indexes, ran),
            };
        }
        if candidate.covers {
            counts.last = ran.map_or(0, |ran| ran.examined.given);
            let returned = Some(counts.last);
            return scans
                .first()
                .map_or_else(RawDocumentBuf::new, |scan| index_scan(scan, indexes, ran, returned));
        }
        if let ([only], true) = (scans, candidate.sorts_keys) {
            counts.last = ran.map_or(0, |ran| ran.examined.given);
            return index_scan(only, indexes, ran, Some(counts.last));
        }
        if let [only @ IndexScan { distinct: Some(_), .. }] = scans {
            return index_scan(only, indexes, ran, Some(ran.map_or(0, |ran| ran.examined.given)));
        }
        let mut below = match scans {
            [only] => index_scan(only, indexes, ran, None),
            _ => branches(scans, indexes, ran),
        };
        if self.skips_keys(candidate) {
            let mut doc = DocBuilder::new();
            doc.push(b"stage", Value::String(b"SKIP"));
            if let Some(ran) = ran {
                progress(&mut doc, ran.examined.docs, ran);
            }
            doc.push(b"skipAmount", number(self.skip));
            below = above(doc, &below);
        }
        let mut doc = filtering("FETCH", rest.as_ref(), filters, counts);
        // If every branch has fetched its documents, no further fetch is shown.
        if rest.is_none() && scans.iter().all(|scan| scan.rest.is_some()) && !scans.is_empty() {
            return below;
        }
        examined(&mut doc, ran, false, true);
        above(doc, &below)
    }
}

/// The projection for the distinct values of a field.
fn values_of(key: &[u8]) -> RawDocumentBuf {
    let mut doc = DocBuilder::new();
    if key != b"_id" {
        doc.push(b"_id", Value::Int32(0));
    }
    doc.push(key, Value::Int32(1));
    finish(doc)
}

/// The scans of an `$or`'s branches.
fn branches(scans: &[IndexScan], indexes: &[IndexInfo], ran: Option<&Ran>) -> RawDocumentBuf {
    let branch = |scan: &IndexScan| {
        let mut scan = scan.clone();
        let around = |filter: Matcher| Matcher::from_root(in_branch(filter.root()));
        scan.key_filter = scan.key_filter.map(around);
        let keys = index_scan(&scan, indexes, ran, None);
        let Some(rest) = &scan.rest else { return keys };
        let shown = filter_doc(&in_branch(rest));
        let mut doc = DocBuilder::new();
        doc.push(b"stage", Value::String(b"FETCH"));
        doc.push(b"filter", Value::from(&*shown));
        if let Some(ran) = ran {
            progress(&mut doc, ran.examined.docs, ran);
        }
        above(doc, &keys)
    };
    let inputs: Vec<_> = scans.iter().map(branch).collect();
    let mut or = DocBuilder::new();
    or.push(b"stage", Value::String(b"OR"));
    if let Some(ran) = ran {
        progress(&mut or, ran.examined.docs, ran);
    }
    let list = array_bytes(inputs.iter().map(|stage| Value::from(&**stage)));
    or.push(b"inputStages", Value::Array(&list));
    finish(or)
}

/// mongod keeps the `$or` around a branch that is a single predicate.
fn in_branch(rest: &Node) -> Node {
    match rest {
        Node::Leaf(_) => Node::Or(vec![rest.clone()]),
        _ => rest.clone(),
    }
}

/// A stage with a filter; `counted` is true if the filter has a count of its own.
fn filtering(
    stage: &str,
    filter: Option<&RawDocumentBuf>,
    counted: bool,
    counts: &mut Counts<'_>,
) -> DocBuilder {
    let mut doc = DocBuilder::new();
    doc.push(b"stage", Value::String(stage.as_bytes()));
    if let Some(filter) = filter {
        doc.push(b"filter", Value::from(&**filter));
    }
    if let Some(ran) = counts.ran {
        let returned = if counted { counts.next() } else { None };
        progress(&mut doc, returned.unwrap_or(ran.examined.docs), ran);
    }
    doc
}

fn finish(doc: DocBuilder) -> RawDocumentBuf {
    RawDocumentBuf::from_bytes(doc.finish()).unwrap_or_default()
}

fn number<'a>(n: u64) -> Value<'a> {
    match i32::try_from(n) {
        Ok(n) => Value::Int32(n),
        Err(_) => Value::Int64(i64::try_from(n).unwrap_or(i64::MAX)),
    }
}

fn node(stage: &str, counts: &mut Counts<'_>) -> DocBuilder {
    let mut doc = DocBuilder::new();
    doc.push(b"stage", Value::String(stage.as_bytes()));
    if let (Some(ran), Some(returned)) = (counts.ran, counts.next()) {
        progress(&mut doc, returned, ran);
    }
    doc
}

/// A stage that returns as many results as the one below it.
fn again(stage: &str, counts: &Counts<'_>) -> DocBuilder {
    let mut doc = DocBuilder::new();
    doc.push(b"stage", Value::String(stage.as_bytes()));
    if let Some(ran) = counts.ran {
        progress(&mut doc, counts.last, ran);
    }
    doc
}

/// The statistics that mongod shows for every stage that ran. A work unit is one examined key or document, plus one
/// for the end.
fn progress(doc: &mut DocBuilder, returned: u64, ran: &Ran) {
    let works = ran.examined.keys.max(ran.examined.docs).max(returned) + 1;
    doc.push(b"nReturned", number(returned));
    doc.push(b"executionTimeMillisEstimate", number(ran.millis));
    doc.push(b"works", number(works));
    doc.push(b"advanced", number(returned));
    doc.push(b"needTime", number(works - 1 - returned));
    for name in [&b"needYield"[..], b"saveState", b"restoreState"] {
        doc.push(name, Value::Int32(0));
    }
    doc.push(b"isEOF", Value::Int32(1));
}

fn examined(doc: &mut DocBuilder, ran: Option<&Ran>, keys: bool, docs: bool) {
    let Some(ran) = ran else { return };
    if keys {
        doc.push(b"keysExamined", number(ran.examined.keys));
    }
    if docs {
        doc.push(b"docsExamined", number(ran.examined.docs));
    }
}

fn above(mut doc: DocBuilder, below: &RawDocumentBuf) -> RawDocumentBuf {
    doc.push(b"inputStage", Value::from(&**below));
    finish(doc)
}

fn direction_text(direction: Direction) -> Value<'static> {
    Value::String(match direction {
        Direction::Forward => b"forward",
        Direction::Backward => b"backward",
    })
}
