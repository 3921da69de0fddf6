//! Plans for an `$or`: one index scan per branch.
//!
//! If the `$or` is the whole filter, each branch is planned separately, as if it were a query. Within a conjunction
//! an `$or` is one of several predicates that a plan may use.

use super::{
    Candidate, Request,
    bounds::{conjuncts, union},
    candidates::{indexed, joined},
    canonical::{all_by_path, canonical},
    trial,
};
use crate::{
    context::Context,
    error::QueryError,
    exec::{Access, IndexScan},
    matcher::{Matcher, Node},
    source::{IndexInfo, KeyRange, Source},
};

/// True if the branches of the filter are planned separately.
pub(super) fn is_subplanned(request: &Request, root: &Node) -> bool {
    matches!(root, Node::Or(_))
        && request.hint.is_none()
        && request.natural.is_none()
        && request.ends.is_none()
}

/// The plan of an `$or` that is the whole filter, if each of its branches can use an index.
pub(super) fn subplans(
    request: &Request,
    source: &dyn Source,
    context: &Context,
) -> Result<Option<Candidate>, QueryError> {
    let root = canonical(request.filter.root());
    let Node::Or(branches) = &root else { return Ok(None) };
    // With a sort, plans that provide its order compete instead.
    if !is_subplanned(request, &root) || request.sort.is_some() {
        return Ok(None);
    }
    let mut scans = Vec::with_capacity(branches.len());
    for branch in &all_by_path(branches) {
        let alone = Request {
            allowed: request.allowed.clone(),
            ..Request::new(Matcher::from_root(branch.clone()))
        };
        let mut found = indexed(branch, &alone, source.indexes());
        let chosen = match found.len() {
            0 => return Ok(None),
            1 => found.pop(),
            _ => Some(trial(found, &alone, source, context)?.0),
        };
        let Some(chosen) = chosen.and_then(as_branch) else { return Ok(None) };
        scans.push(chosen);
    }
    Ok(Some(Candidate { subplan: true, ..over(scans, None, source.indexes()) }))
}

/// Plans that use an `$or` that is part of the filter, or all of it.
pub(super) fn contained(root: &Node, request: &Request, indexes: &[IndexInfo]) -> Vec<Candidate> {
    // `min` and `max` refer to a single index.
    if request.ends.is_some() {
        return Vec::new();
    }
    let parts = conjuncts(root);
    let mut found = Vec::new();
    for part in &parts {
        let Node::Or(branches) = part else { continue };
        let alone = Request { sort: None, ..request.clone() };
        let first = |branch: &Node| {
            indexed(branch, &alone, indexes).into_iter().filter_map(as_branch).find(is_bounded)
        };
        let scans = all_by_path(branches).iter().map(first).collect::<Option<Vec<_>>>();
        let Some(scans) = scans else { continue };
        let others = parts.iter().filter(|other| !std::ptr::eq(**other, *part));
        let others: Vec<Node> = others.map(|node| (*node).clone()).collect();
        found.push(over(scans, joined(all_by_path(&others)), indexes));
    }
    found
}

/// False for a scan of a whole index, which a hint may produce.
fn is_bounded(scan: &IndexScan) -> bool {
    let whole = |b: &Vec<super::Interval>| matches!(b.as_slice(), [all] if all.is_all());
    !scan.bounds.first().is_some_and(whole)
}

/// Converts a plan with a single scan to a branch.
fn as_branch(candidate: Candidate) -> Option<IndexScan> {
    match candidate.access {
        Access::Indexes(mut scans) if scans.len() == 1 => {
            let scan = scans.pop()?;
            Some(IndexScan { rest: candidate.rest, ..scan })
        }
        _ => None,
    }
}

fn over(scans: Vec<IndexScan>, rest: Option<Node>, indexes: &[IndexInfo]) -> Candidate {
    let scans = match as_one(&scans, indexes) {
        Some(one) => vec![one],
        None => scans,
    };
    let settled = rest.is_none() && scans.iter().all(|scan| scan.rest.is_none());
    Candidate { rest, settled, ..Candidate::of(Access::Indexes(scans), false) }
}

/// Merges scans that differ only in the intervals of the first field. Not for collations, whose intervals cannot be
/// merged here.
fn as_one(scans: &[IndexScan], indexes: &[IndexInfo]) -> Option<IndexScan> {
    let first = scans.first()?;
    if indexes.get(first.index).is_none_or(|index| index.collation.is_some()) {
        return None;
    }
    let alike = |scan: &IndexScan| {
        let others = scan.bounds.iter().skip(1);
        scan.index == first.index
            && scan.rest.is_none()
            && scan.key_filter.is_none()
            && !scan.bounds.is_empty()
            && others.clone().all(|b| matches!(b.as_slice(), [all] if all.is_all()))
    };
    if scans.len() < 2 || !scans.iter().all(alike) {
        return None;
    }
    let all = scans.iter().filter_map(|scan| scan.bounds.first()).flatten().cloned().collect();
    let intervals = union(all);
    let range = |interval: &super::Interval| match interval.as_point() {
        Some(point) => KeyRange { prefix: vec![point.clone()], ..KeyRange::default() },
        None => KeyRange {
            edges: Some((interval.low.clone(), interval.high.clone())),
            ..KeyRange::default()
        },
    };
    let mut one = first.clone();
    one.ranges = intervals.iter().map(range).collect();
    if let Some(bounds) = one.bounds.first_mut() {
        *bounds = intervals;
    }
    Some(one)
}
