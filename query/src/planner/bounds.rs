//! Converts predicates to intervals of values.
//!
//! Comparisons are limited to the type of their operand: `{$gt: 5}` is (5, inf], not (5, MaxKey].

use std::cmp::Ordering;

use crate::{
    matcher::{ArrayLeaf, ArrayPredicate, CompareOp, Leaf, Node, Predicate, Regex, TypeSet},
    source::Edge,
    value::{OwnedValue, Value, compare_values, hash64},
};

/// Values between two edges.
#[derive(Debug, Clone)]
pub struct Interval {
    /// The lower edge.
    pub low: Edge,
    /// The upper edge.
    pub high: Edge,
}

impl Interval {
    fn new(low: Value<'_>, low_in: bool, high: Value<'_>, high_in: bool) -> Self {
        Self {
            low: Edge { value: low.into(), inclusive: low_in },
            high: Edge { value: high.into(), inclusive: high_in },
        }
    }

    pub(crate) fn point(value: Value<'_>) -> Self {
        Self::new(value, true, value, true)
    }

    /// All values.
    pub fn all() -> Self {
        Self::new(Value::MinKey, true, Value::MaxKey, true)
    }

    /// True if the interval contains all values.
    pub(crate) fn is_all(&self) -> bool {
        let ends = (self.low.value.get(), self.high.value.get());
        matches!(ends, (Value::MinKey, Value::MaxKey)) && self.low.inclusive && self.high.inclusive
    }

    /// The single value of the interval, if it has only one.
    pub(crate) fn as_point(&self) -> Option<&OwnedValue> {
        let same = compare_values(self.low.value.get(), self.high.value.get(), None);
        (same == Ordering::Equal && self.low.inclusive && self.high.inclusive)
            .then_some(&self.low.value)
    }

    /// True if this interval and `next`, which starts no earlier, overlap or touch.
    fn meets(&self, next: &Self) -> bool {
        match compare_values(self.high.value.get(), next.low.value.get(), None) {
            Ordering::Less => false,
            Ordering::Equal => self.high.inclusive || next.low.inclusive,
            Ordering::Greater => true,
        }
    }

    /// The intersection.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        let low = pick(&self.low, &other.low, Ordering::Greater);
        let high = pick(&self.high, &other.high, Ordering::Less);
        let order = compare_values(low.value.get(), high.value.get(), None);
        let empty = order == Ordering::Greater
            || order == Ordering::Equal && !(low.inclusive && high.inclusive);
        (!empty).then(|| Self { low: low.clone(), high: high.clone() })
    }
}

/// The tighter of two edges.
fn pick<'e>(a: &'e Edge, b: &'e Edge, tighter: Ordering) -> &'e Edge {
    match compare_values(a.value.get(), b.value.get(), None) {
        order if order == tighter => a,
        Ordering::Equal if !a.inclusive => a,
        _ => b,
    }
}

/// Intervals that contain every value satisfying the node, if the node restricts the path. `None`: it has nothing
/// that an index can use.
pub fn intervals_of(node: &Node, path: &[u8]) -> Option<Vec<Interval>> {
    match node {
        Node::Leaf(Leaf { path: Some(own), predicate }) if own.dotted() == path => {
            of_predicate(predicate)
        }
        Node::Array(ArrayLeaf {
            path: Some(own),
            predicate: ArrayPredicate::ElemMatchValue(children),
        }) if own.dotted() == path => children.iter().find_map(|child| match child {
            Node::Leaf(leaf) => of_predicate(&leaf.predicate),
            _ => None,
        }),
        Node::Array(ArrayLeaf {
            path: Some(own),
            predicate: ArrayPredicate::ElemMatchObject(child),
        }) => {
            let below = path.strip_prefix(own.dotted())?.strip_prefix(b".")?;
            conjuncts(child).iter().find_map(|child| intervals_of(child, below))
        }
        _ => None,
    }
}

/// Intervals that contain every value satisfying the negation of a predicate, if the node is one. Not for fields with
/// arrays: an empty array on the path has the same key as null, but no value that is null.
pub(super) fn intervals_of_negation(node: &Node, path: &[u8]) -> Option<Vec<Interval>> {
    let Node::Not(child) = node else { return None };
    let Node::Leaf(Leaf { path: Some(own), predicate }) = &**child else { return None };
    let exact = match predicate {
        Predicate::Compare { operand, .. } => !matches!(
            operand.get(),
            Value::Array(_) | Value::MinKey | Value::MaxKey | Value::Undefined
        ),
        // An empty list excludes nothing, so an index would not help.
        Predicate::In(list) => {
            list.regexes.is_empty()
                && !list.values.is_empty()
                && !list.values.iter().any(|v| matches!(v.get(), Value::Array(_)))
        }
        Predicate::Exists => {
            return (own.dotted() == path).then(|| vec![Interval::point(Value::Null)]);
        }
        _ => false,
    };
    (exact && own.dotted() == path).then(|| of_predicate(predicate).map(complement)).flatten()
}

/// All values outside of the intervals.
fn complement(intervals: Vec<Interval>) -> Vec<Interval> {
    let mut low = Edge { value: Value::MinKey.into(), inclusive: true };
    let mut outside = Vec::new();
    let mut add = |low: &Edge, high: Edge| {
        let order = compare_values(low.value.get(), high.value.get(), None);
        if order.is_lt() || order.is_eq() && low.inclusive && high.inclusive {
            outside.push(Interval { low: low.clone(), high });
        }
    };
    for interval in union(intervals) {
        add(&low, Edge { inclusive: !interval.low.inclusive, ..interval.low });
        low = Edge { inclusive: !interval.high.inclusive, ..interval.high };
    }
    add(&low, Edge { value: Value::MaxKey.into(), inclusive: true });
    outside
}

/// The conjuncts of a node.
pub(super) fn conjuncts(node: &Node) -> Vec<&Node> {
    match node {
        Node::And(children) => children.iter().flat_map(conjuncts).collect(),
        other => vec![other],
    }
}

fn of_predicate(predicate: &Predicate) -> Option<Vec<Interval>> {
    match predicate {
        Predicate::Compare { op, operand, .. } => of_compare(*op, operand.get()),
        // Under a collation, the strings that a pattern matches can be anywhere in the index order.
        Predicate::In(list) if list.collator.is_some() && !list.regexes.is_empty() => {
            let mut all = of_regex(&[], &[])?;
            for value in &list.values {
                all.extend(of_compare(CompareOp::Eq, value.get())?);
            }
            for regex in &list.regexes {
                let (pattern, options) = (regex.pattern(), regex.options());
                all.push(Interval::point(Value::Regex { pattern, options }));
            }
            all.retain(|one| one.as_point().is_none_or(|at| !matches!(at.get(), Value::String(_))));
            Some(union(all))
        }
        Predicate::In(list) => {
            let mut all = Vec::new();
            for value in &list.values {
                all.extend(of_compare(CompareOp::Eq, value.get())?);
            }
            for regex in &list.regexes {
                all.extend(of_regex_or_itself(regex)?);
            }
            Some(union(all))
        }
        Predicate::Regex(regex) => of_regex_or_itself(regex),
        // A missing field has the key null, like a null value.
        Predicate::Exists => Some(vec![Interval::all()]),
        Predicate::Mod { .. } => {
            let (nan, inf) = (Value::Double(f64::NAN), Value::Double(f64::INFINITY));
            Some(vec![Interval::new(nan, true, inf, true)])
        }
        Predicate::Type(types) => of_types(types),
        Predicate::Bits(_) | Predicate::Geo(_) => None,
    }
}

/// The intervals of some types. `None` for arrays, which are indexed by their elements.
fn of_types(types: &TypeSet) -> Option<Vec<Interval>> {
    let mut all = Vec::new();
    for code in types.codes() {
        let first = match code {
            -1 => Value::MinKey,
            1 | 16 | 18 | 19 => {
                let (nan, inf) = (Value::Double(f64::NAN), Value::Double(f64::INFINITY));
                all.push(Interval::new(nan, true, inf, true));
                continue;
            }
            2 | 14 => Value::String(&[]),
            3 => Value::Document(EMPTY_DOC),
            4 => return Some(vec![Interval::all()]),
            5 => Value::Binary { subtype: 0, bytes: &[] },
            6 => {
                all.push(Interval::point(Value::Undefined));
                continue;
            }
            7 => Value::ObjectId([0; 12]),
            8 => Value::Bool(false),
            9 => Value::Date(0),
            10 => Value::Null,
            11 => Value::Regex { pattern: &[], options: &[] },
            12 => Value::DbPointer(EMPTY_DB_POINTER),
            13 => Value::Code(&[]),
            15 => Value::CodeWithScope { code: &[], scope: EMPTY_DOC },
            17 => Value::Timestamp(0),
            127 => Value::MaxKey,
            _ => return None,
        };
        let (low, high, high_in) = bracket(first)?;
        all.push(Interval::new(low, true, high, high_in));
    }
    Some(union(all))
}

/// Sorts the intervals and merges overlapping ones, so that no key is scanned twice.
pub(super) fn union(mut all: Vec<Interval>) -> Vec<Interval> {
    all.sort_by(|a, b| {
        let order = compare_values(a.low.value.get(), b.low.value.get(), None);
        order.then(b.low.inclusive.cmp(&a.low.inclusive))
    });
    let mut merged: Vec<Interval> = Vec::with_capacity(all.len());
    for next in all {
        let Some(last) = merged.last_mut().filter(|last| last.meets(&next)) else {
            merged.push(next);
            continue;
        };
        match compare_values(last.high.value.get(), next.high.value.get(), None) {
            Ordering::Less => last.high = next.high,
            Ordering::Equal => last.high.inclusive |= next.high.inclusive,
            Ordering::Greater => {}
        }
        let same = compare_values(last.low.value.get(), next.low.value.get(), None);
        last.low.inclusive |= same == Ordering::Equal && next.low.inclusive;
    }
    merged
}

/// The hashes of point intervals; other intervals cannot be used with hashes.
pub(super) fn hashed(intervals: &[Interval]) -> Option<Vec<Interval>> {
    let hash = |interval: &Interval| interval.as_point().map(|point| hash64(point.get()));
    let mut hashes = intervals.iter().map(hash).collect::<Option<Vec<_>>>()?;
    hashes.sort_unstable();
    hashes.dedup();
    Some(hashes.into_iter().map(|hash| Interval::point(Value::Int64(hash))).collect())
}

fn of_regex_or_itself(regex: &Regex) -> Option<Vec<Interval>> {
    let mut intervals = of_regex(regex.pattern(), regex.options())?;
    let itself = Value::Regex { pattern: regex.pattern(), options: regex.options() };
    intervals.push(Interval::point(itself));
    Some(intervals)
}

fn of_compare(op: CompareOp, value: Value<'_>) -> Option<Vec<Interval>> {
    let (first, last, last_in) = bracket(value)?;
    let nan = matches!(value, Value::Double(n) if n.is_nan())
        || matches!(value, Value::Decimal(n) if n.is_nan());
    Some(match op {
        CompareOp::Eq | CompareOp::Lte | CompareOp::Gte if matches!(value, Value::Null) => {
            // In an index a missing field is null, and an empty array is undefined.
            vec![Interval::point(Value::Undefined), Interval::point(Value::Null)]
        }
        CompareOp::Eq => match value {
            // Equality with an array also matches an array that contains it as an element, so both keys are searched:
            // its first element and the array itself.
            Value::Array(bytes) => {
                let first = Value::Array(bytes).elements().next();
                let first = first.map_or(Value::Undefined, |e| e.value());
                let mut points = vec![Interval::point(first), Interval::point(value)];
                points.sort_by(|a, b| compare_values(a.low.value.get(), b.low.value.get(), None));
                points
            }
            value => vec![Interval::point(value)],
        },
        // Ranges over arrays compare whole arrays, but the keys are elements: any key may belong to a matching one.
        _ if matches!(value, Value::Array(_)) => vec![Interval::all()],
        // Nothing lies beyond MinKey and MaxKey; everything else lies between them.
        _ if matches!(value, Value::MinKey | Value::MaxKey) => of_end(op, value),
        CompareOp::Lt | CompareOp::Gt if nan => vec![],
        CompareOp::Lte | CompareOp::Gte if nan => vec![Interval::point(value)],
        CompareOp::Lt => vec![Interval::new(first, true, value, false)],
        CompareOp::Lte => vec![Interval::new(first, true, value, true)],
        CompareOp::Gt => vec![Interval::new(value, false, last, last_in)],
        CompareOp::Gte => vec![Interval::new(value, true, last, last_in)],
    })
}

fn of_end(op: CompareOp, end: Value<'_>) -> Vec<Interval> {
    let (low, high) = match op {
        CompareOp::Gt | CompareOp::Gte => (end, Value::MaxKey),
        _ => (Value::MinKey, end),
    };
    let inclusive = matches!(op, CompareOp::Gte | CompareOp::Lte | CompareOp::Eq);
    let interval = match op {
        CompareOp::Gt | CompareOp::Gte => Interval::new(low, inclusive, high, true),
        _ => Interval::new(low, true, high, inclusive),
    };
    let same = compare_values(low, high, None).is_eq();
    if same && !inclusive { Vec::new() } else { vec![interval] }
}

const EMPTY_DOC: &[u8] = &[5, 0, 0, 0, 0];
const EMPTY_DB_POINTER: &[u8] = &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// The first value of the operand's type, the end of the type, and whether that end is included.
fn bracket(value: Value<'_>) -> Option<(Value<'static>, Value<'static>, bool)> {
    let empty_binary = Value::Binary { subtype: 0, bytes: &[] };
    let code_with_scope = Value::CodeWithScope { code: &[], scope: EMPTY_DOC };
    Some(match value {
        Value::Int32(_) | Value::Int64(_) | Value::Double(_) | Value::Decimal(_) => {
            (Value::Double(f64::NEG_INFINITY), Value::Double(f64::INFINITY), true)
        }
        Value::String(_) | Value::Symbol(_) => {
            (Value::String(&[]), Value::Document(EMPTY_DOC), false)
        }
        Value::Document(_) => (Value::Document(EMPTY_DOC), Value::Array(EMPTY_DOC), false),
        Value::Array(_) => (Value::Array(EMPTY_DOC), empty_binary, false),
        Value::Binary { .. } => (empty_binary, Value::ObjectId([0; 12]), false),
        Value::ObjectId(_) => (Value::ObjectId([0; 12]), Value::ObjectId([0xff; 12]), true),
        Value::Bool(_) => (Value::Bool(false), Value::Bool(true), true),
        Value::Date(_) => (Value::Date(i64::MIN), Value::Date(i64::MAX), true),
        Value::Timestamp(_) => (Value::Timestamp(0), Value::Timestamp(u64::MAX), true),
        Value::Null => (Value::Null, Value::Null, true),
        Value::Regex { .. } => {
            (Value::Regex { pattern: &[], options: &[] }, Value::DbPointer(EMPTY_DB_POINTER), false)
        }
        Value::DbPointer(_) => (Value::DbPointer(EMPTY_DB_POINTER), Value::Code(&[]), false),
        Value::Code(_) => (Value::Code(&[]), code_with_scope, false),
        Value::CodeWithScope { .. } => (code_with_scope, Value::MaxKey, false),
        Value::MinKey => (Value::MinKey, Value::MinKey, true),
        Value::MaxKey => (Value::MaxKey, Value::MaxKey, true),
        Value::Undefined | Value::Missing => return None,
    })
}

/// Strings that begin with the literal prefix of an anchored pattern; otherwise all strings.
fn of_regex(pattern: &[u8], options: &[u8]) -> Option<Vec<Interval>> {
    let all = || vec![Interval::new(Value::String(&[]), true, Value::Document(EMPTY_DOC), false)];
    let Some(prefix) = literal_prefix(pattern, options) else { return Some(all()) };
    let mut after = prefix.clone();
    // UTF-8 has no byte 0xff, so the last byte can always be incremented.
    *after.last_mut()? += 1;
    Some(vec![Interval::new(Value::String(&prefix), true, Value::String(&after), false)])
}

/// True if a pattern matches exactly the strings that begin with its literal prefix.
pub(super) fn is_prefix(pattern: &[u8], options: &[u8]) -> bool {
    let rest = pattern.strip_prefix(b"^").or_else(|| pattern.strip_prefix(b"\\A"));
    literal_prefix(pattern, options).is_some_and(|prefix| {
        let rest = rest.and_then(|rest| rest.strip_prefix(prefix.as_slice()));
        matches!(rest, Some(b"" | b".*"))
    })
}

fn literal_prefix(pattern: &[u8], options: &[u8]) -> Option<Vec<u8>> {
    if !options.is_empty() && options != b"s" || pattern.contains(&b'|') {
        return None;
    }
    let rest = pattern.strip_prefix(b"^").or_else(|| pattern.strip_prefix(b"\\A"))?;
    let special = |b: &u8| b"\\^$.[]()?*+{}".contains(b);
    let end = rest.iter().position(special).unwrap_or(rest.len());
    let mut prefix = rest.get(..end)?.to_vec();
    // A quantifier after the last character makes that character optional.
    if rest.get(end).is_some_and(|b| b"?*{".contains(b)) {
        prefix.pop();
    }
    let whole = std::str::from_utf8(&prefix).is_ok();
    (whole && !prefix.is_empty()).then_some(prefix)
}
