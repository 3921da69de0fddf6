//! Plans with wildcard indexes: `{"$**": 1}`, `{"a.$**": 1}`.
//!
//! Their keys are pairs of a path and a value, for every value in a document: a predicate on a covered path is a
//! range after that path.

use super::{
    Candidate, Interval, Request,
    bounds::{conjuncts, intervals_of},
    candidates::{joined, operands_fit},
    canonical::all_by_path,
    partial,
    tightness::is_exact,
};
use crate::{
    exec::{Access, IndexScan},
    matcher::{CompareOp, Leaf, Node, Predicate},
    source::{IndexInfo, IndexKind, KeyRange},
    value::{OwnedValue, Value},
};

/// A plan for every predicate that a wildcard index can answer.
pub(super) fn candidates(root: &Node, request: &Request, indexes: &[IndexInfo]) -> Vec<Candidate> {
    let mut found = Vec::new();
    for (at, index) in indexes.iter().enumerate() {
        let usable = match request.hint {
            Some(hint) => hint == at,
            None => {
                !index.hidden && index.partial.as_ref().is_none_or(|p| partial::implies(root, p))
            }
        };
        let usable = usable && request.allows(at);
        if index.kind != IndexKind::Wildcard || !usable || !is_plain(index) {
            continue;
        }
        let parts = conjuncts(root);
        for part in &parts {
            found.extend(ranges(index, part).map(|(ranges, bounds)| {
                let scan = IndexScan::new(at, index.spec.clone(), ranges);
                let scan = IndexScan { bounds, ..scan };
                let checked = !is_exact(part);
                let rest = parts.iter().filter(|other| checked || !std::ptr::eq(**other, *part));
                let rest: Vec<Node> = rest.map(|node| (*node).clone()).collect();
                let rest = joined(all_by_path(&rest));
                Candidate { rest, ..Candidate::of(Access::Indexes(vec![scan]), false) }
            }));
        }
    }
    found
}

/// True for a single ascending field and no `wildcardProjection`.
fn is_plain(index: &IndexInfo) -> bool {
    matches!(index.fields.as_slice(), [only] if only.ascending)
        && index.spec.get("wildcardProjection").is_ok_and(|projection| projection.is_none())
}

fn ranges(index: &IndexInfo, part: &Node) -> Option<(Vec<KeyRange>, Vec<Vec<Interval>>)> {
    let Node::Leaf(Leaf { path: Some(path), predicate }) = part else { return None };
    if !covers(index, path.dotted()) || !answers(predicate) || !operands_fit(index, part) {
        return None;
    }
    let numeric = |name: &[u8]| name.iter().all(u8::is_ascii_digit);
    // A number may be an array index, which keys do not contain.
    if path.parts().iter().any(|name| numeric(name)) {
        return None;
    }
    let intervals = intervals_of(part, path.dotted())?;
    let behind = OwnedValue::from(Value::String(path.dotted()));
    let ranges = intervals.iter().map(|interval| behind_path(&behind, interval)).collect();
    Some((ranges, vec![vec![Interval::point(behind.get())], intervals]))
}

fn behind_path(path: &OwnedValue, interval: &Interval) -> KeyRange {
    let mut range = KeyRange { prefix: vec![path.clone()], ..KeyRange::default() };
    match interval.as_point() {
        Some(point) => range.prefix.push(point.clone()),
        None => range.edges = Some((interval.low.clone(), interval.high.clone())),
    }
    range
}

/// True if values at the path have keys.
fn covers(index: &IndexInfo, path: &[u8]) -> bool {
    let Some(field) = index.fields.first() else { return false };
    match field.path.dotted().strip_suffix(b"$**") {
        Some(b"") => path != b"_id" && !path.starts_with(b"_id."),
        Some(prefix) => {
            path.starts_with(prefix) || prefix.strip_suffix(b".").is_some_and(|own| own == path)
        }
        None => false,
    }
}

/// True if every document that satisfies the predicate has a key in its intervals: missing fields have no keys, and
/// documents and arrays are only indexed by their parts.
fn answers(predicate: &Predicate) -> bool {
    let scalar = |value: Value<'_>| {
        !matches!(
            value,
            Value::Null
                | Value::Undefined
                | Value::Missing
                | Value::Document(_)
                | Value::Array(_)
                | Value::MinKey
                | Value::MaxKey
        )
    };
    match predicate {
        Predicate::Compare { op, operand, .. } => {
            scalar(operand.get())
                && matches!(
                    op,
                    CompareOp::Eq | CompareOp::Lt | CompareOp::Lte | CompareOp::Gt | CompareOp::Gte
                )
        }
        Predicate::In(list) => !list.has_null && list.values.iter().all(|v| scalar(v.get())),
        Predicate::Regex(_) => true,
        Predicate::Exists
        | Predicate::Type(_)
        | Predicate::Mod { .. }
        | Predicate::Bits(_)
        | Predicate::Geo(_) => false,
    }
}
