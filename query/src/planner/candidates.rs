//! The plans worth a trial.

use super::{
    Request,
    bounds::{Interval, conjuncts, hashed, intervals_of, intervals_of_negation},
    partial, wildcard,
};
use crate::{
    exec::{Access, IndexScan},
    matcher::{ArrayLeaf, ArrayPredicate, CompareOp, Leaf, Node, Predicate},
    sort::SortPattern,
    source::{Direction, IndexInfo, IndexKind, KeyRange},
    value::{OwnedValue, Value, compare_values},
};

/// How many ranges one scan may have before the rest of the bounds is left to the filter.
const RANGES_MAX: usize = 4_000;

/// A way of reaching the documents.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The way.
    pub access: Access,
    /// Documents come in the order of the sort.
    pub gives_order: bool,
    /// Every key within the bounds belongs to a document that matches.
    pub settled: bool,
    /// The keys hold all that is asked for: the paths of their fields.
    pub covers: Option<Vec<Vec<Box<[u8]>>>>,
}

impl Candidate {
    /// A scan of the whole collection.
    pub fn collection(direction: Direction) -> Self {
        Self::of(Access::Collection(direction), false)
    }

    pub(super) fn of(access: Access, gives_order: bool) -> Self {
        Self { access, gives_order, settled: false, covers: None }
    }
}

/// All plans worth a trial; never none.
pub fn candidates(request: &Request, indexes: &[IndexInfo]) -> Vec<Candidate> {
    if let Some(direction) = request.natural {
        let gives_order = request.sort.is_none();
        return vec![Candidate { gives_order, ..Candidate::collection(direction) }];
    }
    let root = request.filter.root();
    if let Some(found) = by_id(request) {
        return vec![found];
    }
    let usable = |(at, index): &(usize, &IndexInfo)| {
        if !request.allows(*at) {
            return false;
        }
        match request.hint {
            // Who names an index takes what it holds, be it partial or sparse.
            Some(hint) => hint == *at && (has_ranges(index) || index.kind == IndexKind::Text),
            None => !index.hidden && fits(index, request),
        }
    };
    let mut found: Vec<Candidate> = indexes
        .iter()
        .enumerate()
        .filter(usable)
        .filter_map(|(at, index)| by_index(at, index, root, request))
        .collect();
    found.extend(wildcard::candidates(request, indexes));
    if found.is_empty() {
        found.extend(by_or(root, request, indexes));
    }
    if found.is_empty() {
        found.push(Candidate::collection(Direction::Forward));
    }
    found
}

/// An equality on `_id` under the simple collation needs no index scan at all.
fn by_id(request: &Request) -> Option<Candidate> {
    if request.hint.is_some() {
        return None;
    }
    let value = conjuncts(request.filter.root()).into_iter().find_map(|node| match node {
        Node::Leaf(Leaf {
            path: Some(path),
            predicate: Predicate::Compare { op: CompareOp::Eq, operand, collator: None },
        }) if path.dotted() == b"_id" && is_plain(operand.get()) => Some(operand.clone()),
        _ => None,
    })?;
    Some(Candidate::of(Access::ById(vec![value]), true))
}

/// A value that only equal values match: not an array (which is never an `_id`), null or a regex.
fn is_plain(value: Value<'_>) -> bool {
    !matches!(value, Value::Array(_) | Value::Null | Value::Undefined | Value::Regex { .. })
}

/// Whether the index holds every document that the filter can match, in an order we understand.
fn fits(index: &IndexInfo, request: &Request) -> bool {
    has_ranges(index)
        && index.partial.as_ref().is_none_or(|p| partial::implies(request.filter.root(), p))
}

fn has_ranges(index: &IndexInfo) -> bool {
    matches!(index.kind, IndexKind::Ordered | IndexKind::Hashed)
}

fn by_index(at: usize, index: &IndexInfo, root: &Node, request: &Request) -> Option<Candidate> {
    let bounds = bounds_of(index, root);
    let bounded = bounds.first().is_some_and(Option::is_some);
    let order = request.sort.as_ref().and_then(|sort| order_by(index, sort, &bounds));
    let hinted = request.hint == Some(at);
    // A sparse index leaves documents out: only bounds that miss them anyway may use it.
    if !bounded && !hinted && (index.sparse || order.is_none()) {
        return None;
    }
    let ranges = match &request.ends {
        Some(ends) => vec![KeyRange { whole: ends.clone(), ..KeyRange::default() }],
        None => ranges(index, &bounds),
    };
    let direction = order.unwrap_or(Direction::Forward);
    let scan = IndexScan { index: at, planned: index.spec.clone(), ranges, direction };
    let open = unsettled(root, &scan, index);
    let settled = open.is_empty() && is_plain_index(index);
    let covers = covers(index, request, &open, bounded, order.is_some());
    let access = Access::Indexes(vec![scan]);
    Some(Candidate { settled, covers, ..Candidate::of(access, order.is_some()) })
}

/// One key for each document, and values that can be told from it.
fn is_plain_index(index: &IndexInfo) -> bool {
    index.kind == IndexKind::Ordered && !index.is_multikey()
}

/// The parts of the filter that the bounds of the index don't settle.
pub(super) fn unsettled<'n>(root: &'n Node, scan: &IndexScan, index: &IndexInfo) -> Vec<&'n Node> {
    let bounded = scan
        .ranges
        .iter()
        .map(|range| range.prefix.len() + usize::from(range.edges.is_some()))
        .min()
        .unwrap_or(0);
    let parts = conjuncts(root);
    let settles = |node: &&Node| {
        let (leaf, negated) = match node {
            Node::Not(child) => (&**child, true),
            other => (*other, false),
        };
        let Node::Leaf(Leaf { path: Some(path), predicate }) = leaf else { return false };
        let exact = is_exact(predicate) && operands_fit(index, leaf);
        let field = index.fields.iter().take(bounded).find(|field| field.path == *path);
        let on_path = || {
            let same = |other: &&&Node| matches!(other, Node::Leaf(Leaf { path: Some(p), .. }) if p == path);
            parts.iter().filter(same).count()
        };
        exact
            && field.is_some_and(|f| f.multikey.is_empty() || !negated && on_path() == 1)
            && !(negated && index.kind == IndexKind::Hashed)
    };
    parts.iter().filter(|node| !settles(node)).copied().collect()
}

/// Whether the intervals of a predicate hold what matches and nothing else.
fn is_exact(predicate: &Predicate) -> bool {
    let plain = |value: &OwnedValue| {
        !matches!(
            value.get(),
            Value::Null
                | Value::Array(_)
                | Value::Undefined
                | Value::MinKey
                | Value::MaxKey
                | Value::Regex { .. }
        )
    };
    match predicate {
        Predicate::Compare { operand, .. } => plain(operand),
        Predicate::In(list) => {
            list.regexes.is_empty() && !list.has_null && list.values.iter().all(plain)
        }
        _ => false,
    }
}

/// The fields of the index's keys, if nothing else is needed of the documents.
fn covers(
    index: &IndexInfo,
    request: &Request,
    open: &[&Node],
    bounded: bool,
    gives_order: bool,
) -> Option<Vec<Vec<Box<[u8]>>>> {
    let needed = request.needed.as_ref()?;
    let holds =
        |path: &[u8]| index.fields.iter().any(|f| f.path.dotted() == path && f.multikey.is_empty());
    // What can be tested by a key.
    let testable = |node: &&Node| {
        let Node::Leaf(Leaf { path: Some(path), predicate }) = node else { return false };
        let by_key =
            matches!(predicate, Predicate::Regex(_) | Predicate::Mod { .. } | Predicate::Type(_));
        bounded && by_key && holds(path.dotted())
    };
    let sorted = gives_order
        || request.sort.iter().flat_map(|sort| &sort.parts).all(|part| holds(part.path.dotted()));
    let all = index.kind == IndexKind::Ordered
        && index.collation.is_none()
        && sorted
        && open.iter().all(testable)
        && needed.iter().all(|path| holds(path));
    all.then(|| index.fields.iter().map(|field| field.path.parts().to_vec()).collect())
}

type Bounds = Vec<Option<Vec<Interval>>>;

/// The intervals of each field of the index, as far as the filter gives any.
fn bounds_of(index: &IndexInfo, root: &Node) -> Bounds {
    let parts = conjuncts(root);
    let mut bounded_roots: Vec<&[u8]> = Vec::new();
    let hashed_at = index.hashed_field();
    index
        .fields
        .iter()
        .enumerate()
        .map(|(at, field)| {
            let first_name = field.path.parts().first().map_or(&b""[..], |p| p);
            // Two fields below one array may be satisfied by different elements: bound only one of them.
            if index.is_multikey() && bounded_roots.contains(&first_name) {
                return None;
            }
            let mut all =
                parts.iter().filter(|part| operands_fit(index, part)).filter_map(|part| {
                    let path = field.path.dotted();
                    let negation = || intervals_of_negation(part, path);
                    let found = intervals_of(part, path)
                        .or_else(|| field.multikey.is_empty().then(negation).flatten())?;
                    // A sparse index has no keys for what is missing.
                    let missing = !requires(part) && found.iter().any(holds_null);
                    (!index.sparse || !missing).then_some(found)
                });
            let first = all.next()?;
            if hashed_at == Some(at) {
                return hashed(&first);
            }
            bounded_roots.push(first_name);
            // In an array different elements may satisfy different predicates: no intersection.
            Some(if field.multikey.is_empty() {
                all.fold(first, |a, b| intersect(&a, &b))
            } else {
                first
            })
        })
        .collect()
}

fn holds_null(interval: &Interval) -> bool {
    let null = Interval::point(Value::Null);
    let undefined = Interval::point(Value::Undefined);
    interval.intersect(&null).is_some() || interval.intersect(&undefined).is_some()
}

/// `$exists` matches nothing that is missing, whatever its intervals hold.
fn requires(node: &Node) -> bool {
    matches!(node, Node::Leaf(Leaf { predicate: Predicate::Exists, .. }))
}

/// Text in another collation than the index's has another order: such operands can't bound it.
pub(super) fn operands_fit(index: &IndexInfo, node: &Node) -> bool {
    let text = |value: &OwnedValue| {
        matches!(
            value.get(),
            Value::String(_) | Value::Symbol(_) | Value::Document(_) | Value::Array(_)
        )
    };
    match node {
        Node::Leaf(Leaf { predicate: Predicate::Compare { operand, collator, .. }, .. }) => {
            // Hashes of text are those of its collation keys.
            let hashed = index.kind == IndexKind::Hashed && index.collation.is_some();
            let same = collator.as_ref().map(|c| c.spec()) == index.collation.as_ref();
            same && !hashed || !text(operand)
        }
        Node::Leaf(Leaf { predicate: Predicate::In(list), .. }) => {
            let hashed = index.kind == IndexKind::Hashed && index.collation.is_some();
            let same = list.collator.as_ref().map(|c| c.spec()) == index.collation.as_ref();
            (list.regexes.is_empty() || index.collation.is_none())
                && (same && !hashed || !list.values.iter().any(text))
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

/// The direction in which the index gives the order of the sort, if it does.
fn order_by(index: &IndexInfo, sort: &SortPattern, bounds: &Bounds) -> Option<Direction> {
    if sort.collator.as_ref().map(|c| c.spec()) != index.collation.as_ref() || index.is_multikey() {
        return None;
    }
    let fixed = |at: usize| {
        bounds
            .get(at)
            .is_some_and(|b| matches!(b.as_deref(), Some([only]) if only.as_point().is_some()))
    };
    let hashed_at = index.hashed_field();
    let mut wanted = sort.parts.iter().peekable();
    let mut direction = None;
    for (at, field) in index.fields.iter().enumerate() {
        let Some(part) = wanted.peek() else { break };
        if hashed_at == Some(at) && part.path == field.path {
            return None;
        }
        if part.path != field.path {
            // A field that can only have one value does not disturb the order.
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

/// The bounds as ranges in key order: points of leading fields multiplied out, then one interval.
fn ranges(index: &IndexInfo, bounds: &Bounds) -> Vec<KeyRange> {
    let mut ranges = vec![KeyRange::default()];
    for (field, bound) in index.fields.iter().zip(bounds) {
        let Some(intervals) = bound else { break };
        let mut intervals = intervals.clone();
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

/// An `$or` whose branches all have an index of their own.
fn by_or(root: &Node, request: &Request, indexes: &[IndexInfo]) -> Option<Candidate> {
    let branches = conjuncts(root).into_iter().find_map(|node| match node {
        Node::Or(branches) => Some(branches),
        _ => None,
    })?;
    let mut scans = Vec::new();
    for branch in branches {
        scans.push(by_branch(branch, request, indexes)?);
    }
    Some(Candidate::of(Access::Indexes(scans), false))
}

/// An index that bounds what a branch of an `$or` can match.
pub(super) fn by_branch(
    branch: &Node,
    request: &Request,
    indexes: &[IndexInfo],
) -> Option<IndexScan> {
    indexes.iter().enumerate().find_map(|(at, index)| {
        let usable = !index.hidden
            && request.allows(at)
            && request.hint.is_none_or(|hint| hint == at)
            && has_ranges(index)
            && index.partial.as_ref().is_none_or(|p| partial::implies(branch, p));
        let bounds = bounds_of(index, branch);
        let bounded = usable && bounds.first().is_some_and(Option::is_some);
        bounded.then(|| IndexScan {
            index: at,
            planned: index.spec.clone(),
            ranges: ranges(index, &bounds),
            direction: Direction::Forward,
        })
    })
}
