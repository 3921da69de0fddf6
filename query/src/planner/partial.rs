//! Decides whether a partial index contains every document that a filter matches.

use std::cmp::Ordering;

use super::bounds::conjuncts;
use crate::{
    matcher::{CompareOp, Leaf, Matcher, Node, Predicate},
    value::{OwnedValue, Value, compare_values},
};

/// True if the filter certainly implies the index's filter.
pub(super) fn implies(filter: &Node, partial: &Matcher) -> bool {
    node_implies(filter, partial.root())
}

fn node_implies(filter: &Node, wanted: &Node) -> bool {
    match (filter, wanted) {
        (_, Node::And(parts)) => parts.iter().all(|part| node_implies(filter, part)),
        (Node::Or(branches), _) => branches.iter().all(|branch| node_implies(branch, wanted)),
        (_, Node::Or(choices)) => choices.iter().any(|choice| node_implies(filter, choice)),
        _ => conjuncts(filter).iter().any(|part| leaf_implies(part, wanted)),
    }
}

fn leaf_implies(have: &Node, wanted: &Node) -> bool {
    let (Node::Leaf(have), Node::Leaf(wanted)) = (have, wanted) else { return false };
    let same_path = match (&have.path, &wanted.path) {
        (Some(a), Some(b)) => a.dotted() == b.dotted(),
        _ => false,
    };
    same_path && predicate_implies(have, wanted)
}

fn predicate_implies(have: &Leaf, wanted: &Leaf) -> bool {
    match (&have.predicate, &wanted.predicate) {
        (Predicate::Exists, Predicate::Exists) => true,
        (Predicate::Compare { operand, .. }, Predicate::Exists) => {
            !matches!(operand.get(), Value::Null)
        }
        (Predicate::In(list), Predicate::Exists) => !list.has_null,
        (Predicate::Regex(_) | Predicate::Mod { .. } | Predicate::Bits(_), Predicate::Exists)
        | (Predicate::Type(_), Predicate::Exists) => true,
        (Predicate::Compare { op, operand, .. }, Predicate::Type(types)) => {
            *op == CompareOp::Eq && types.contains(operand.get())
        }
        (Predicate::Type(have), Predicate::Type(wanted)) => have == wanted,
        (
            Predicate::Compare { op: have_op, operand: have, collator: None },
            Predicate::Compare { op: want_op, operand: want, collator: None },
        ) => compare_implies(*have_op, have.get(), *want_op, want.get()),
        (Predicate::In(list), Predicate::Compare { op, operand, collator: None }) => {
            list.regexes.is_empty()
                && list.collator.is_none()
                && list
                    .values
                    .iter()
                    .all(|v| compare_implies(CompareOp::Eq, v.get(), *op, operand.get()))
        }
        (
            Predicate::Compare { op: CompareOp::Eq, operand, collator: None },
            Predicate::In(list),
        ) => {
            let equal =
                |v: &OwnedValue| compare_values(v.get(), operand.get(), None) == Ordering::Equal;
            list.collator.is_none() && list.values.iter().any(equal)
        }
        _ => false,
    }
}

fn compare_implies(
    have_op: CompareOp,
    have: Value<'_>,
    want_op: CompareOp,
    want: Value<'_>,
) -> bool {
    if have.type_rank() != want.type_rank() {
        return false;
    }
    let order = compare_values(have, want, None);
    match want_op {
        CompareOp::Eq => have_op == CompareOp::Eq && order == Ordering::Equal,
        CompareOp::Lt => match have_op {
            CompareOp::Eq | CompareOp::Lte => order == Ordering::Less,
            CompareOp::Lt => order != Ordering::Greater,
            CompareOp::Gt | CompareOp::Gte => false,
        },
        CompareOp::Lte => {
            matches!(have_op, CompareOp::Eq | CompareOp::Lt | CompareOp::Lte)
                && order != Ordering::Greater
        }
        CompareOp::Gt => match have_op {
            CompareOp::Eq | CompareOp::Gte => order == Ordering::Greater,
            CompareOp::Gt => order != Ordering::Less,
            CompareOp::Lt | CompareOp::Lte => false,
        },
        CompareOp::Gte => {
            matches!(have_op, CompareOp::Eq | CompareOp::Gt | CompareOp::Gte)
                && order != Ordering::Less
        }
    }
}
