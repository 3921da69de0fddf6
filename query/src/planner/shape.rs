//! The shape of a query: equal for queries that differ only in their values.

use bson::RawDocument;

use super::Request;
use crate::{
    collation::CollationSpec,
    matcher::{ArrayLeaf, ArrayPredicate, Leaf, Node, Predicate},
    value::{Elements, Value, path::Path},
};

/// Bytes that identify the shape. Names, operators and the sort order matter; values do not.
pub fn shape(
    request: &Request,
    projection: Option<&RawDocument>,
    collation: Option<&CollationSpec>,
) -> Vec<u8> {
    let mut out = of_node(request.filter.root());
    if let Some(sort) = &request.sort {
        for part in &sort.parts {
            out.extend_from_slice(if part.ascending { b"|a" } else { b"|d" });
            out.extend_from_slice(part.path.dotted());
        }
    }
    out.push(b'|');
    match (projection, &request.needed) {
        (Some(projection), _) => of_projection(Value::from(projection), &mut out),
        (None, Some(needed)) => needed.iter().for_each(|path| {
            out.extend_from_slice(path);
            out.push(0);
        }),
        (None, None) => {}
    }
    if let Some(collation) = collation {
        out.extend_from_slice(format!("|{collation:?}").as_bytes());
    }
    out
}

fn of_node(node: &Node) -> Vec<u8> {
    match node {
        // A single branch needs no enclosing node.
        Node::And(children) | Node::Or(children) if children.len() == 1 => {
            children.iter().flat_map(of_node).collect()
        }
        Node::And(children) => of_children(b"and", children),
        Node::Or(children) => of_children(b"or", children),
        Node::Nor(children) => of_children(b"nor", children),
        Node::Not(child) => of_children(b"not", std::slice::from_ref(child)),
        Node::Leaf(Leaf { path, predicate }) => named(&operator(predicate), path.as_ref()),
        Node::Array(ArrayLeaf { path, predicate }) => of_array(path.as_ref(), predicate),
        other => format!("{:?}", std::mem::discriminant(other)).into_bytes(),
    }
}

/// Independent of the order in which the children were written.
fn of_children(name: &[u8], children: &[Node]) -> Vec<u8> {
    let mut parts: Vec<_> = children.iter().map(of_node).collect();
    parts.sort_unstable();
    [name, b"[", &parts.join(&b','), b"]"].concat()
}

fn of_array(path: Option<&Path>, predicate: &ArrayPredicate) -> Vec<u8> {
    match predicate {
        ArrayPredicate::Size(_) => named("size", path),
        ArrayPredicate::ElemMatchObject(inner) => {
            [named("elemMatch", path), of_node(inner)].concat()
        }
        ArrayPredicate::ElemMatchValue(inner) => {
            [named("elemMatchValue", path), of_children(b"", inner)].concat()
        }
    }
}

fn named(operator: &str, path: Option<&Path>) -> Vec<u8> {
    [operator.as_bytes(), b" ", path.map_or(b"", Path::dotted)].concat()
}

fn operator(predicate: &Predicate) -> String {
    match predicate {
        Predicate::Compare { op, .. } => format!("{op:?}"),
        // A list of one is an equality.
        Predicate::In(list) if list.values.len() == 1 && list.regexes.is_empty() => "Eq".into(),
        other => format!("{:?}", std::mem::discriminant(other)),
    }
}

/// Numbers and booleans mean inclusion or exclusion, whatever their type.
fn of_projection(projection: Value<'_>, out: &mut Vec<u8>) {
    let Value::Document(doc) = projection else { return };
    for field in Elements::of_bytes(doc) {
        out.extend_from_slice(field.key);
        out.push(0);
        match field.value() {
            value if value.is_number() || matches!(value, Value::Bool(_)) => {
                out.push(if crate::matcher::operands::is_true(value) { 1 } else { 2 });
            }
            value => value.append_to(out),
        }
    }
}
