//! Normalises a filter as mongod does before planning: flattened, sorted, equalities on one path joined.

use std::cmp::Ordering;

use super::explain::filter_doc;
use crate::matcher::{
    ArrayPredicate, CompareOp, Leaf, Node, Predicate, equalities::joined as joined_equalities,
};

/// The filter with its parts in mongod's order.
pub(super) fn canonical(node: &Node) -> Node {
    let all = |parts: Vec<&Node>| parts.into_iter().map(canonical).collect::<Vec<_>>();
    match node {
        Node::And(children) => {
            let children = all(flat(children));
            joined(flat(&children).into_iter().cloned().collect(), Node::And)
        }
        Node::Or(children) => joined(equalities(all(children.iter().collect())), Node::Or),
        Node::Leaf(Leaf { path, predicate: Predicate::In(list) }) if list.regexes.is_empty() => {
            let [only] = list.values.as_slice() else { return node.clone() };
            let (operand, collator) = (only.clone(), list.collator.clone());
            let predicate = Predicate::Compare { op: CompareOp::Eq, operand, collator };
            Node::Leaf(Leaf { path: path.clone(), predicate })
        }
        other => other.clone(),
    }
}

/// Sorts and deduplicates the parts; a single part needs no enclosing node.
fn joined(mut parts: Vec<Node>, by: fn(Vec<Node>) -> Node) -> Node {
    parts.sort_by(order);
    parts.dedup_by(|a, b| is_same(a, b));
    if parts.len() == 1
        && let Some(only) = parts.pop()
    {
        return only;
    }
    by(parts)
}

/// True if two predicates are equal. Only predicates whose displayed form is complete are compared.
fn is_same(a: &Node, b: &Node) -> bool {
    let plain = |node: &Node| match node {
        Node::Leaf(leaf) => !matches!(leaf.predicate, Predicate::Geo(_)),
        _ => false,
    };
    plain(a) && plain(b) && filter_doc(a) == filter_doc(b)
}

/// Joins equalities on one path in an `$or` to a list.
fn equalities(branches: Vec<Node>) -> Vec<Node> {
    // An explicit `$in` stays separate.
    let (lists, branches): (Vec<Node>, Vec<Node>) = branches
        .into_iter()
        .partition(|node| matches!(node, Node::Leaf(Leaf { predicate: Predicate::In(_), .. })));
    joined_equalities(branches).iter().map(canonical_leaf).chain(lists).collect()
}

/// Normalises a list of one to an equality.
fn canonical_leaf(node: &Node) -> Node {
    if matches!(node, Node::Leaf(_)) { canonical(node) } else { node.clone() }
}

/// Flattens nested conjunctions.
pub(super) fn flat<'n>(children: &'n [Node]) -> Vec<&'n Node> {
    let inner = |child: &'n Node| match child {
        Node::And(inner) => flat(inner),
        other => vec![other],
    };
    children.iter().flat_map(inner).collect()
}

/// Sorts the parts of a filter as mongod does: by kind, then by path.
pub(super) fn in_order(mut children: Vec<&Node>) -> Vec<&Node> {
    children.sort_by(|a, b| order(a, b));
    children
}

fn order(a: &Node, b: &Node) -> Ordering {
    let inner = |node: &Node| match node {
        Node::Not(child) => Some((**child).clone()),
        Node::Nor(children) => children.first().cloned(),
        _ => None,
    };
    rank(a).cmp(&rank(b)).then_with(|| path(a).cmp(path(b))).then_with(|| {
        match (inner(a), inner(b)) {
            (Some(a), Some(b)) => order(&a, &b),
            _ => Ordering::Equal,
        }
    })
}

fn path(node: &Node) -> &[u8] {
    let path = match node {
        Node::Leaf(leaf) => leaf.path.as_ref(),
        Node::Array(leaf) => leaf.path.as_ref(),
        _ => None,
    };
    path.map_or(b"", |path| path.dotted())
}

fn rank(node: &Node) -> u8 {
    match node {
        Node::And(_) => 0,
        Node::Or(_) => 1,
        Node::Array(leaf) => match leaf.predicate {
            ArrayPredicate::ElemMatchObject(_) => 2,
            ArrayPredicate::ElemMatchValue(_) => 3,
            ArrayPredicate::Size(_) => 4,
        },
        Node::Leaf(leaf) => match &leaf.predicate {
            Predicate::Compare { op, .. } => match op {
                CompareOp::Eq => 5,
                CompareOp::Lte => 6,
                CompareOp::Lt => 7,
                CompareOp::Gt => 8,
                CompareOp::Gte => 9,
            },
            Predicate::Regex(_) => 10,
            Predicate::Mod { .. } => 11,
            Predicate::Exists => 12,
            Predicate::In(_) => 13,
            Predicate::Type(_) => 20,
            _ => 14,
        },
        Node::Not(_) | Node::Nor(_) => 19,
        Node::Text(_) => 30,
        _ => 25,
    }
}

/// Sorts the remaining filter by path, as mongod does after it has selected indexes; parts without a path come first.
pub(super) fn by_path(node: &Node) -> Node {
    match node {
        Node::And(children) => Node::And(all_by_path(children)),
        Node::Or(children) => Node::Or(all_by_path(children)),
        other => other.clone(),
    }
}

/// Sorts parts by path.
pub(super) fn all_by_path(parts: &[Node]) -> Vec<Node> {
    let mut parts: Vec<Node> = parts.iter().map(by_path).collect();
    parts.sort_by(|a, b| path(a).cmp(path(b)));
    parts
}
