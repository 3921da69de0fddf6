//! Derives a filter on buckets from a filter on measurements, so that most buckets are never unpacked.
//!
//! ```text
//!   t > x        control.max.t > x          some measurement of the bucket may be that late
//!   t < x        control.min.t < x
//!   meta.a = 1   meta.a = 1                 all measurements of a bucket share it
//! ```
//! F1 An excluded bucket has no matching measurement. The original filter is applied to the measurements again.

use super::Unpacking;
use crate::{
    matcher::{ArrayLeaf, ArrayPredicate, CompareOp, Leaf, Matcher, Node, Predicate},
    value::{Value, path::Path},
};

/// A filter that every bucket with a matching measurement satisfies.
pub(crate) fn on_buckets(filter: &Matcher, unpacking: &Unpacking) -> Matcher {
    let mut conjuncts = Vec::new();
    collect(filter.root(), unpacking, &mut conjuncts);
    Matcher::from_root(Node::And(conjuncts))
}

fn collect(node: &Node, unpacking: &Unpacking, out: &mut Vec<Node>) {
    if let Node::And(children) = node {
        children.iter().for_each(|child| collect(child, unpacking, out));
    } else if let Some(meta) = &unpacking.meta
        && let Some(moved) = on_meta(node, meta)
    {
        out.push(moved);
    } else if let Node::Leaf(leaf) = node {
        on_time(leaf, &unpacking.time, out);
    }
}

/// The same node on `meta`, if it refers to nothing else.
fn on_meta(node: &Node, meta: &[u8]) -> Option<Node> {
    let all = |children: &[Node]| -> Option<Vec<Node>> {
        children.iter().map(|child| on_meta(child, meta)).collect()
    };
    Some(match node {
        Node::And(children) => Node::And(all(children)?),
        Node::Or(children) => Node::Or(all(children)?),
        Node::Nor(children) => Node::Nor(all(children)?),
        Node::Not(child) => Node::Not(Box::new(on_meta(child, meta)?)),
        Node::Constant(value) => Node::Constant(*value),
        Node::Leaf(leaf) => {
            let path = Some(moved(leaf.path.as_ref()?, meta)?);
            Node::Leaf(Leaf { path, predicate: leaf.predicate.clone() })
        }
        Node::Array(leaf) => {
            let path = Some(moved(leaf.path.as_ref()?, meta)?);
            let predicate: ArrayPredicate = leaf.predicate.clone();
            Node::Array(ArrayLeaf { path, predicate })
        }
        _ => return None,
    })
}

/// Converts `<meta field>.a` to `meta.a`.
fn moved(path: &Path, meta: &[u8]) -> Option<Path> {
    let (first, rest) = path.parts().split_first()?;
    if **first != *meta {
        return None;
    }
    let mut dotted = b"meta".to_vec();
    for part in rest {
        dotted.push(b'.');
        dotted.extend_from_slice(part);
    }
    Some(Path::new(&dotted))
}

/// The time of every measurement is a date, so only dates bound it.
fn on_time(leaf: &Leaf, time: &[u8], out: &mut Vec<Node>) {
    let (Some(path), Predicate::Compare { op, operand, .. }) = (&leaf.path, &leaf.predicate) else {
        return;
    };
    let is_time = matches!(path.parts(), [only] if **only == *time);
    if !is_time || !matches!(operand.get(), Value::Date(_)) {
        return;
    }
    let mut bound = |side: &[u8], op: CompareOp| {
        let dotted = [b"control.", side, b".", time].concat();
        let predicate = Predicate::Compare { op, operand: operand.clone(), collator: None };
        out.push(Node::Leaf(Leaf { path: Some(Path::new(&dotted)), predicate }));
    };
    match op {
        CompareOp::Gt | CompareOp::Gte => bound(b"max", *op),
        CompareOp::Lt | CompareOp::Lte => bound(b"min", *op),
        CompareOp::Eq => {
            bound(b"max", CompareOp::Gte);
            bound(b"min", CompareOp::Lte);
        }
    }
}
