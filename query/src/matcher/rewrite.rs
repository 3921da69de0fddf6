//! What mongod makes of an `$expr` beside the expression itself.
//!
//! It adds predicates of the match language that indexes can answer. An `{$in: ["$path", [constants]]}` becomes an `$in`
//! without the collation of the query, and the filter is both together: text that is equal by the collation alone is not
//! found. Without a collation the predicates change nothing, and are left out here.

use super::{InList, Leaf, Node, Predicate};
use crate::{
    expression::{Expr, Special},
    value::{OwnedValue, Value, path::Path},
};

/// The predicate that an expression implies, as far as it says less under a collation.
pub(super) fn uncollated(expr: &Expr) -> Option<Node> {
    if let Some((path, list)) = expr.as_membership() {
        return membership(&path, list);
    }
    match expr.as_special()? {
        Special::And(parts) => {
            let found: Vec<_> = parts.iter().filter_map(uncollated).collect();
            (!found.is_empty()).then_some(Node::And(found))
        }
        Special::Or(parts) => {
            let found: Vec<_> = parts.iter().filter_map(uncollated).collect();
            (found.len() == parts.len()).then_some(Node::Or(found))
        }
        _ => None,
    }
}

fn membership(path: &[u8], list: Value<'_>) -> Option<Node> {
    let plain = |value: Value<'_>| {
        !matches!(value, Value::Array(_) | Value::Regex { .. }) && !value.is_nullish()
    };
    if !list.elements().all(|element| plain(element.value())) {
        return None;
    }
    let values = list.elements().map(|element| OwnedValue::from(element.value())).collect();
    let predicate = Predicate::In(InList::new(values, Vec::new(), None));
    Some(Node::Leaf(Leaf { path: Some(Path::new(path)), predicate }))
}
