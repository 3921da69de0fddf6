//! Generates the candidate plans for the trial.

use super::{
    Request,
    bounds::{Interval, conjuncts, hashed, intervals_of, intervals_of_negation},
    by_or,
    canonical::{all_by_path, canonical},
    distinct, partial,
    tightness::{Tightness, is_exact, tightness},
    wildcard,
};
use crate::{
    exec::{Access, IndexScan},
    matcher::{ArrayLeaf, ArrayPredicate, CompareOp, Leaf, Matcher, Node, Predicate},
    sort::{SortPart, SortPattern},
    source::{Direction, IndexField, IndexInfo, IndexKind, KeyRange},
    value::{OwnedValue, Value, compare_values},
};

/// Maximum number of ranges in a scan; further bounds are checked by the filter instead.
const RANGES_MAX: usize = 4_000;

/// A candidate plan.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// How documents are reached.
    pub access: Access,
    /// Documents come in the order of the sort.
    pub gives_order: bool,
    /// Every key within the bounds belongs to a matching document, so no filter is needed.
    pub settled: bool,
    /// The keys hold all requested fields, so no document is fetched.
    pub covers: bool,
    /// The keys hold the sort fields, so keys are sorted before documents are fetched.
    pub sorts_keys: bool,
    /// The part of the filter that the bounds do not decide.
    pub rest: Option<Node>,
    /// `rest` is complete: nothing else of the filter needs to be checked.
    pub tight: bool,
    /// The branches of an `$or` were planned separately, or an attempt to do so failed.
    pub subplan: bool,
}

impl Candidate {
    /// A scan of the whole collection.
    pub fn collection(direction: Direction) -> Self {
        Self::of(Access::Collection(direction), false)
    }

    /// True if skipped results can be skipped before they are fetched, because nothing is filtered or sorted
    /// afterwards.
    pub(super) fn skips_keys(&self, sorts: bool) -> bool {
        let by_keys = matches!(&self.access, Access::Indexes(scans) if scans.iter().all(|s| s.rest.is_none()));
        by_keys && self.rest.is_none() && !self.covers && !sorts
    }

    /// True if all matches can be counted by a scan of one key range.
    pub fn counts_keys(&self) -> bool {
        let one = |scan: &IndexScan| {
            scan.is_plain() && scan.ranges.len() == 1 && scan.key_filter.is_none()
        };
        self.settled
            && matches!(&self.access, Access::Indexes(scans) if matches!(scans.as_slice(), [only] if one(only)))
    }

    pub(super) fn of(access: Access, gives_order: bool) -> Self {
        let (settled, covers, sorts_keys, tight, subplan) = (false, false, false, false, false);
        Self { access, gives_order, settled, covers, sorts_keys, rest: None, tight, subplan }
    }
}

/// All plans for the trial; at least one.
pub fn candidates(request: &Request, indexes: &[IndexInfo]) -> Vec<Candidate> {
    let root = canonical(request.filter.root());
    let rest = || Some(root.clone()).filter(|root| !is_empty(root));
    if let Some(direction) = request.natural {
        let gives_order = request.sort.is_none();
        let rest = rest();
        return vec![Candidate { gives_order, rest, ..Candidate::collection(direction) }];
    }
    if let Some(found) = by_id(request, &root, indexes) {
        return vec![found];
    }
    if let Some(found) = distinct::of_all(request, indexes) {
        return vec![found];
    }
    let mut found = indexed(&root, request, indexes);
    if request.sort.is_some() && !found.iter().any(|candidate| candidate.gives_order) {
        found.extend(by_order(&root, request, indexes));
    }
    if found.is_empty() {
        found.push(Candidate { rest: rest(), ..Candidate::collection(Direction::Forward) });
    }
    let subplan = by_or::is_subplanned(request, &root);
    found.iter_mut().for_each(|candidate| candidate.subplan = subplan);
    match request.distinct {
        Some(_) => found.into_iter().map(|plan| distinct::turned(plan, request, indexes)).collect(),
        None => found,
    }
}

fn is_empty(root: &Node) -> bool {
    matches!(root, Node::And(parts) if parts.is_empty())
}

/// Plans that use predicates on indexed fields.
pub(super) fn indexed(root: &Node, request: &Request, indexes: &[IndexInfo]) -> Vec<Candidate> {
    if let Some(only) = by_unique(root, request, indexes) {
        return vec![only];
    }
    let usable = |(at, index): &(usize, &IndexInfo)| {
        if !request.allows(*at) {
            return false;
        }
        match request.hint {
            // A hinted index is used even if it is partial or sparse and lacks matching documents.
            Some(hint) => hint == *at && (has_ranges(index) || index.kind == IndexKind::Text),
            None => !index.hidden && fits(index, root),
        }
    };
    let mut found: Vec<Candidate> = indexes
        .iter()
        .enumerate()
        .filter(usable)
        .flat_map(|(at, index)| by_index(at, index, root, request))
        .collect();
    found.extend(wildcard::candidates(root, request, indexes));
    found.extend(by_or::contained(root, request, indexes));
    found
}

/// With an equality on `_id` no other plan is considered.
fn by_unique(root: &Node, request: &Request, indexes: &[IndexInfo]) -> Option<Candidate> {
    let (at, index) = indexes.iter().enumerate().find(|(_, index)| index.name == "_id_")?;
    let usable = request.allows(at) && request.hint.is_none_or(|hint| hint == at);
    // With a projection, mongod lets the other plans compete.
    let (_, projection) = &request.written;
    if !usable || request.ends.is_some() || index.hidden || projection.is_some() {
        return None;
    }
    let parts = conjuncts(root);
    let is_equality = |part: &&&Node| {
        let Node::Leaf(Leaf { path: Some(path), predicate }) = part else { return false };
        let equal = matches!(predicate, Predicate::Compare { op: CompareOp::Eq, operand, .. } if is_plain(operand.get()));
        equal && path.dotted() == b"_id" && operands_fit(index, part)
    };
    let equality = parts.iter().find(is_equality)?;
    let assigned = Assigned::new(index, std::slice::from_ref(equality), 0, false);
    Some(bounded(at, index, assigned, &parts, request))
}

/// An equality on `_id` alone under the simple collation needs no index scan (IDHACK). In a clustered collection,
/// which has no `_id` index, neither does an equality among other predicates.
fn by_id(request: &Request, root: &Node, indexes: &[IndexInfo]) -> Option<Candidate> {
    if request.hint.is_some() || request.skip > 0 {
        return None;
    }
    let value = |node: &Node| match node {
        Node::Leaf(Leaf {
            path: Some(path),
            predicate: Predicate::Compare { op: CompareOp::Eq, operand, collator: None },
        }) if path.dotted() == b"_id" && is_plain(operand.get()) => Some(operand.clone()),
        _ => None,
    };
    let parts = conjuncts(root);
    let clustered = !indexes.iter().any(|index| index.name == "_id_");
    if parts.len() > 1 && !clustered {
        return None;
    }
    let (at, id) = parts.iter().enumerate().find_map(|(at, part)| Some((at, value(part)?)))?;
    let others = parts.iter().enumerate().filter(|(other, _)| *other != at);
    let rest = joined(others.map(|(_, part)| (*part).clone()).collect());
    Some(Candidate { rest, ..Candidate::of(Access::ById(vec![id]), true) })
}

/// True for a value that only equal values match: not an array (which is never an `_id`), null or a regex.
fn is_plain(value: Value<'_>) -> bool {
    !matches!(value, Value::Array(_) | Value::Null | Value::Undefined | Value::Regex { .. })
}

/// True if the index contains every document that the filter can match, in an order that we support.
fn fits(index: &IndexInfo, root: &Node) -> bool {
    has_ranges(index) && index.partial.as_ref().is_none_or(|p| partial::implies(root, p))
}

fn has_ranges(index: &IndexInfo) -> bool {
    matches!(index.kind, IndexKind::Ordered | IndexKind::Hashed)
}

/// Plans for an index. If its first field has arrays, only one of several predicates on it can bound the scan, so
/// there is a plan for each of them.
fn by_index(at: usize, index: &IndexInfo, root: &Node, request: &Request) -> Vec<Candidate> {
    let parts = conjuncts(root);
    let arrays = index.fields.first().is_some_and(|field| !field.multikey.is_empty());
    let first = index
        .fields
        .first()
        .map_or(0, |_| parts.iter().filter(|part| intervals(index, 0, part).is_some()).count());
    let picks = if arrays { first } else { first.min(1) };
    if picks == 0 {
        let hinted = request.hint == Some(at);
        return hinted.then(|| whole(at, index, root, request)).into_iter().collect();
    }
    (0..picks)
        .map(|pick| {
            let assigned = Assigned::new(index, &parts, pick, request.only_counts());
            bounded(at, index, assigned, &parts, request)
        })
        .collect()
}

/// A scan of a whole index, in the order of the sort if the index provides it.
fn whole(at: usize, index: &IndexInfo, root: &Node, request: &Request) -> Candidate {
    bounded(at, index, Assigned::none(index), &conjuncts(root), request)
}

/// A scan of a whole index without a filter.
pub(super) fn whole_of(at: usize, index: &IndexInfo, request: &Request) -> Candidate {
    bounded(at, index, Assigned::none(index), &[], request)
}

/// A scan of the first index that provides the order of the sort.
fn by_order(root: &Node, request: &Request, indexes: &[IndexInfo]) -> Option<Candidate> {
    let ordered = |(at, index): &(usize, &IndexInfo)| {
        let usable = request.allows(*at) && request.hint.is_none() && !index.hidden;
        let arrays = index.is_multikey() && by_or::is_subplanned(request, root);
        // A sparse index may lack documents.
        usable && !index.sparse && !arrays && fits(index, root)
    };
    indexes
        .iter()
        .enumerate()
        .filter(ordered)
        .map(|(at, index)| whole(at, index, root, request))
        .find(|candidate| candidate.gives_order)
}

fn bounded(
    at: usize,
    index: &IndexInfo,
    mut assigned: Assigned<'_>,
    parts: &[&Node],
    request: &Request,
) -> Candidate {
    let by_key = assigned.take_by_key(index, request.ends.is_none());
    let (bounds, mut exact, mut inexact) = (assigned.bounds, assigned.exact, assigned.inexact);
    let mut order = request.sort.as_ref().and_then(|sort| order_by(index, sort, &bounds));
    if request.ends.is_some() {
        // `min` and `max` replace the bounds, so the filter must be checked completely. They may also exclude the key
        // by which an array sorts.
        inexact.append(&mut exact);
        order = order.filter(|_| !index.is_multikey());
    }
    let ranges = match &request.ends {
        Some(ends) => vec![KeyRange { whole: ends.clone(), ..KeyRange::default() }],
        None => ranges(index, &bounds),
    };
    let direction = order.unwrap_or(Direction::Forward);
    let bounds = if request.ends.is_some() { Vec::new() } else { bounds };
    let key_filter = joined(by_key.iter().map(|node| (*node).clone()).collect());
    let key_filter = key_filter.map(Matcher::from_root);
    let scan = IndexScan::new(at, index.spec.clone(), ranges);
    let scan = IndexScan { bounds, direction, key_filter, arrays: index.arrays(), ..scan };
    // Predicates that were assigned to the index come first.
    let is_in = |list: &[&Node], node: &Node| list.iter().any(|other| std::ptr::eq(*other, node));
    let left = parts.iter().filter(|node| !is_in(&exact, node) && !is_in(&by_key, node));
    let left = left.filter(|node| !is_in(&inexact, node) && !is_empty(node));
    let open: Vec<&Node> = inexact.iter().chain(left).copied().collect();
    let settled = open.is_empty() && index.kind == IndexKind::Ordered;
    let named = !(exact.is_empty() && inexact.is_empty() && by_key.is_empty());
    let covers = open.is_empty() && covers(index, request, order.is_some());
    let sorts_keys = open.is_empty() && !covers && order.is_none() && sorts_keys(index, request);
    let rest = match named {
        true => {
            let (first, others) = open.split_at(inexact.len());
            let others: Vec<Node> = others.iter().map(|node| (*node).clone()).collect();
            let first = first.iter().map(|node| (*node).clone());
            joined(first.chain(all_by_path(&others)).collect())
        }
        false => joined(open.into_iter().cloned().collect()),
    };
    let access = Access::Indexes(vec![scan]);
    let tight = index.kind == IndexKind::Ordered;
    Candidate { settled, covers, sorts_keys, rest, tight, ..Candidate::of(access, order.is_some()) }
}

/// The conjunction of the parts, if there are any.
pub(super) fn joined(mut parts: Vec<Node>) -> Option<Node> {
    match parts.len() {
        0 => None,
        1 => parts.pop(),
        _ => Some(Node::And(parts)),
    }
}

/// The predicates that restrict the fields of an index.
struct Assigned<'n> {
    bounds: Bounds,
    /// Predicates that the bounds express completely.
    exact: Vec<&'n Node>,
    /// Predicates that must be checked again.
    inexact: Vec<&'n Node>,
}

impl<'n> Assigned<'n> {
    fn none(index: &IndexInfo) -> Self {
        let bounds = index.fields.iter().map(|_| vec![Interval::all()]).collect();
        Self { bounds, exact: Vec::new(), inexact: Vec::new() }
    }

    /// Removes the predicates that can be checked on the key. Not possible for multikey indexes or with `min` and
    /// `max`.
    fn take_by_key(&mut self, index: &IndexInfo, bounded: bool) -> Vec<&'n Node> {
        if index.is_multikey() || index.kind != IndexKind::Ordered || !bounded {
            return Vec::new();
        }
        let by_key = |part: &&Node| tightness(part) == Tightness::ByKey;
        let (taken, left) = std::mem::take(&mut self.inexact).into_iter().partition(by_key);
        self.inexact = left;
        taken
    }

    /// `pick` selects which of several predicates bounds a first field with arrays.
    fn new(index: &IndexInfo, parts: &[&'n Node], pick: usize, counts: bool) -> Self {
        let mut assigned = Self { bounds: Vec::new(), exact: Vec::new(), inexact: Vec::new() };
        let mut bounded_roots: Vec<&[u8]> = Vec::new();
        for (at, field) in index.fields.iter().enumerate() {
            let first_name = field.path.parts().first().map_or(&b""[..], |p| p);
            // Two fields below one array may be satisfied by different elements, so only one of them is bounded.
            if index.is_multikey() && bounded_roots.contains(&first_name) {
                assigned.bounds.push(vec![Interval::all()]);
                continue;
            }
            let all = parts.iter().filter_map(|part| Some((*part, intervals(index, at, part)?)));
            let mut all: Vec<_> = all.collect();
            let apart = !field.multikey.is_empty() || index.collation.is_some();
            if apart && !all.is_empty() {
                // Different elements of an array may satisfy different predicates, and text under a collation has its
                // own order, so intervals cannot be intersected.
                let pick = if at == 0 { pick.min(all.len() - 1) } else { 0 };
                all = vec![all.swap_remove(pick)];
            }
            if !all.is_empty() {
                bounded_roots.push(first_name);
            }
            let mut bounds = vec![Interval::all()];
            for (part, found) in all {
                bounds = intersect(&bounds, &found);
                // A count need not distinguish null from missing.
                let null = counts
                    && is_null(part)
                    && field.multikey.is_empty()
                    && field.path.parts().len() == 1;
                // A sparse index on a single field has keys exactly for documents in which the field exists.
                let exists = requires(part) && index.sparse && index.fields.len() == 1;
                match null || exists || is_settled(index, at, part) {
                    true => assigned.exact.push(part),
                    false => assigned.inexact.push(part),
                }
            }
            assigned.bounds.push(bounds);
        }
        assigned
    }
}

/// The intervals of an index field that a predicate allows, if it restricts the field.
fn intervals(index: &IndexInfo, at: usize, part: &Node) -> Option<Vec<Interval>> {
    let field = index.fields.get(at)?;
    if !operands_fit(index, part) {
        return None;
    }
    let path = field.path.dotted();
    let negation = || intervals_of_negation(part, path);
    let found =
        intervals_of(part, path).or_else(|| field.multikey.is_empty().then(negation).flatten())?;
    // Only an empty array has the key undefined.
    let top = field.multikey.is_empty() || field.path.parts().len() == 1;
    let found = match top && is_null(part) {
        true => vec![Interval::point(Value::Null)],
        false => found,
    };
    // A sparse index has no keys for missing fields.
    if index.sparse && !requires(part) && !fits_sparse(part) && found.iter().any(holds_null) {
        return None;
    }
    if index.hashed_field() == Some(at) && !requires(part) { hashed(&found) } else { Some(found) }
}

fn is_null(part: &Node) -> bool {
    matches!(
        part,
        Node::Leaf(Leaf { predicate: Predicate::Compare { op: CompareOp::Eq, operand, .. }, .. })
            if matches!(operand.get(), Value::Null)
    )
}

/// True if the bounds of a field express a predicate completely.
fn is_settled(index: &IndexInfo, at: usize, part: &Node) -> bool {
    index.hashed_field() != Some(at) && is_exact(part)
}

/// True if the index's keys hold everything that is needed of the documents.
fn covers(index: &IndexInfo, request: &Request, gives_order: bool) -> bool {
    let Some(needed) = &request.needed else { return false };
    let sorted = gives_order || request.sort.is_none() || sorts_keys(index, request);
    let shown = index.kind == IndexKind::Ordered && index.collation.is_none();
    shown && sorted && needed.iter().all(|path| holds(index, path))
}

/// True if the index's keys hold the sort fields.
fn sorts_keys(index: &IndexInfo, request: &Request) -> bool {
    let Some(sort) = &request.sort else { return false };
    index.kind == IndexKind::Ordered
        && index.collation.is_none()
        && sort.parts.iter().all(|part| holds(index, part.path.dotted()))
}

/// True if the index's keys hold the value at the path.
fn holds(index: &IndexInfo, path: &[u8]) -> bool {
    index.fields.iter().any(|field| field.path.dotted() == path && field.multikey.is_empty())
}

/// The intervals for each field of an index.
type Bounds = Vec<Vec<Interval>>;

fn holds_null(interval: &Interval) -> bool {
    let null = Interval::point(Value::Null);
    let undefined = Interval::point(Value::Undefined);
    interval.intersect(&null).is_some() || interval.intersect(&undefined).is_some()
}

/// `$exists` matches no missing field, although its intervals contain null.
fn requires(node: &Node) -> bool {
    matches!(node, Node::Leaf(Leaf { predicate: Predicate::Exists, .. }))
}

/// A missing field has no type. For comparisons with MinKey and MaxKey mongod also uses a sparse index.
fn fits_sparse(node: &Node) -> bool {
    let Node::Leaf(Leaf { predicate, .. }) = node else { return false };
    match predicate {
        Predicate::Type(_) => true,
        Predicate::Compare { operand, .. } => {
            matches!(operand.get(), Value::MinKey | Value::MaxKey)
        }
        _ => false,
    }
}

/// Text in a different collation than the index's has a different order, so such operands cannot bound it.
pub(super) fn operands_fit(index: &IndexInfo, node: &Node) -> bool {
    let text = |value: &OwnedValue| {
        matches!(
            value.get(),
            Value::String(_) | Value::Symbol(_) | Value::Document(_) | Value::Array(_)
        )
    };
    match node {
        Node::Leaf(Leaf { predicate: Predicate::Compare { operand, collator, .. }, .. }) => {
            // A hashed index with a collation hashes collation keys.
            let hashed = index.kind == IndexKind::Hashed && index.collation.is_some();
            let same = collator.as_ref().map(|c| c.spec()) == index.collation.as_ref();
            same && !hashed || !text(operand)
        }
        Node::Leaf(Leaf { predicate: Predicate::In(list), .. }) => {
            let hashed = index.kind == IndexKind::Hashed && index.collation.is_some();
            let same = list.collator.as_ref().map(|c| c.spec()) == index.collation.as_ref();
            let plain = list.regexes.is_empty() || index.collation.is_none();
            same && !hashed || plain && !list.values.iter().any(text)
        }
        Node::Array(ArrayLeaf { predicate, .. }) => {
            let parts = match predicate {
                ArrayPredicate::Size(_) => Vec::new(),
                ArrayPredicate::ElemMatchValue(children) => children.iter().collect(),
                ArrayPredicate::ElemMatchObject(child) => conjuncts(child),
            };
            index.collation.is_none() && parts.into_iter().all(|part| operands_fit(index, part))
        }
        Node::Not(child) => index.collation.is_none() && operands_fit(index, child),
        _ => index.collation.is_none(),
    }
}

fn intersect(a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    a.iter().flat_map(|a| b.iter().filter_map(move |b| a.intersect(b))).collect()
}

/// The scan direction in which the index provides the order of the sort, if it does.
fn order_by(index: &IndexInfo, sort: &SortPattern, bounds: &Bounds) -> Option<Direction> {
    if index.kind == IndexKind::Wildcard {
        return None;
    }
    let fixed = |at: usize| {
        bounds.get(at).is_some_and(|b| matches!(b.as_slice(), [only] if only.as_point().is_some()))
    };
    if sort.collator.as_ref().map(|c| c.spec()) != index.collation.as_ref() {
        // If all sort fields have a single value, every order is right.
        let place = |part: &SortPart| index.fields.iter().position(|f| f.path == part.path);
        let all = sort.parts.iter().all(|part| place(part).is_some_and(fixed));
        return (all && !index.is_multikey()).then_some(Direction::Forward);
    }
    let whole =
        |at: usize| bounds.get(at).is_some_and(|b| matches!(b.as_slice(), [all] if all.is_all()));
    let hashed_at = index.hashed_field();
    let mut wanted = sort.parts.iter().peekable();
    let mut direction = None;
    for (at, field) in index.fields.iter().enumerate() {
        let Some(part) = wanted.peek() else { break };
        if hashed_at == Some(at) && part.path == field.path {
            return None;
        }
        // An array sorts by its least or greatest element. That key must be within the scan, so other fields of the
        // same elements must not be bounded.
        let root = field.path.parts().first();
        let disturbs = |(other, info): (usize, &IndexField)| {
            info.path.parts().first() == root && !whole(other)
        };
        if !field.multikey.is_empty() && index.fields.iter().enumerate().any(disturbs) {
            return None;
        }
        if part.path != field.path {
            // A field with a single value does not affect the order.
            if fixed(at) {
                continue;
            }
            return None;
        }
        let this = if part.ascending == field.ascending {
            Direction::Forward
        } else {
            Direction::Backward
        };
        if !fixed(at) && *direction.get_or_insert(this) != this {
            return None;
        }
        wanted.next();
    }
    wanted.peek().is_none().then(|| direction.unwrap_or(Direction::Forward))
}

/// Converts the bounds to ranges in key order: all combinations of points of the leading fields, then one interval.
fn ranges(index: &IndexInfo, bounds: &Bounds) -> Vec<KeyRange> {
    let mut ranges = vec![KeyRange::default()];
    for (field, bound) in index.fields.iter().zip(bounds) {
        if matches!(bound.as_slice(), [all] if all.is_all()) {
            break;
        }
        let mut intervals = bound.clone();
        intervals.sort_by(|a, b| {
            let order = compare_values(a.low.value.get(), b.low.value.get(), None);
            if field.ascending { order } else { order.reverse() }
        });
        let all_points = intervals.iter().all(|interval| interval.as_point().is_some());
        if ranges.len().saturating_mul(intervals.len()) > RANGES_MAX {
            break;
        }
        ranges = ranges
            .iter()
            .flat_map(|range| {
                intervals.iter().map(move |interval| extend(range, interval, all_points))
            })
            .collect();
        if !all_points {
            break;
        }
    }
    ranges
}

fn extend(range: &KeyRange, interval: &Interval, as_prefix: bool) -> KeyRange {
    let mut range = range.clone();
    if as_prefix {
        range.prefix.push(interval.low.value.clone());
    } else {
        range.edges = Some((interval.low.clone(), interval.high.clone()));
    }
    range
}

/// An index scan that covers everything a branch of an `$or` can match.
pub(super) fn by_branch(
    branch: &Node,
    request: &Request,
    indexes: &[IndexInfo],
) -> Option<IndexScan> {
    let alone = Request { sort: None, ends: None, ..request.clone() };
    let found = indexed(&canonical(branch), &alone, indexes);
    found.into_iter().find_map(|candidate| match candidate.access {
        Access::Indexes(mut scans) if scans.len() == 1 => scans.pop(),
        _ => None,
    })
}
