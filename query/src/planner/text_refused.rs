//! mongod's words where a text search can't be planned: they show the query as a tree.

use std::cmp::Ordering;

use bson::RawDocument;

use super::{Request, explain::filter_doc};
use crate::{
    error::QueryError,
    matcher::{ArrayPredicate, CompareOp, Leaf, Node, Predicate},
    value::{OwnedValue, Shown, Value},
};

/// The error, with its reason at the end.
pub(super) fn refused(request: &Request, ns: &str, language: &str, why: &str) -> QueryError {
    let mut tree = String::new();
    show(&canonical(request.filter.root()), language, 0, &mut tree);
    let doc = |doc: Option<&RawDocument>| {
        doc.map_or("{}".to_owned(), |doc| Shown(Value::from(doc)).to_string())
    };
    let sort = doc(request.written.0.as_deref());
    let projection = doc(request.written.1.as_deref());
    QueryError::location(
        291,
        format!(
            "error processing query: ns={ns}Tree: {tree}Sort: {sort}\nProj: {projection}\n planner \
             returned error :: caused by :: {why}"
        ),
    )
}

fn show(node: &Node, language: &str, depth: usize, out: &mut String) {
    let line = |text: &str, out: &mut String| {
        out.push_str(&"    ".repeat(depth));
        out.push_str(text);
        out.push('\n');
    };
    let below = |children: &[&Node], out: &mut String| {
        children.iter().for_each(|child| show(child, language, depth + 1, out));
    };
    match node {
        Node::And(children) => {
            line("$and", out);
            below(&in_order(flat(children)), out);
        }
        Node::Or(children) => {
            line("$or", out);
            below(&in_order(children.iter().collect()), out);
        }
        Node::Nor(children) => match children.as_slice() {
            [only] => {
                line("$not", out);
                below(&[only], out);
            }
            _ => {
                line("$nor", out);
                below(&in_order(children.iter().collect()), out);
            }
        },
        Node::Not(child) => {
            line("$not", out);
            below(&[child], out);
        }
        Node::Text(text) => {
            let search = &text.search;
            let (case, diacritics) = (search.sensitivity.case, search.sensitivity.diacritics);
            let (case, diacritics) = (u8::from(case), u8::from(diacritics));
            line(
                &format!(
                    "TEXT : query={}, language={language}, caseSensitive={case}, \
                     diacriticSensitive={diacritics}",
                    search.search
                ),
                out,
            );
        }
        Node::Leaf(leaf) => {
            let path = leaf.path.as_ref().map_or(&b""[..], |path| path.dotted());
            let path = String::from_utf8_lossy(path);
            line(&format!("{path} {}", predicate(&leaf.predicate)), out);
        }
        Node::Array(leaf) => {
            let path = leaf.path.as_ref().map_or(&b""[..], |path| path.dotted());
            let path = String::from_utf8_lossy(path);
            match &leaf.predicate {
                ArrayPredicate::Size(size) => line(&format!("{path} $size : {size}"), out),
                ArrayPredicate::ElemMatchObject(child) => {
                    line(&format!("{path} $elemMatch (obj)"), out);
                    below(&[child], out);
                }
                ArrayPredicate::ElemMatchValue(children) => {
                    line(&format!("{path} $elemMatch (value)"), out);
                    below(&in_order(children.iter().collect()), out);
                }
            }
        }
        other => line(&Shown(Value::from(&*filter_doc(other))).to_string(), out),
    }
}

fn predicate(predicate: &Predicate) -> String {
    let shown = |value: &OwnedValue| Shown(value.get()).to_string();
    match predicate {
        Predicate::Compare { op, operand, .. } => {
            format!("{} {}", op.name(), shown(operand))
        }
        Predicate::In(list) => {
            let values: Vec<_> = list.values.iter().map(shown).collect();
            format!("$in [ {}]", values.join(" "))
        }
        Predicate::Regex(regex) => format!(
            "regex /{}/{}",
            String::from_utf8_lossy(regex.pattern()),
            String::from_utf8_lossy(regex.options())
        ),
        Predicate::Exists => "exists".into(),
        Predicate::Mod { divisor, remainder } => format!("mod {divisor} % x == {remainder}"),
        other => format!("{other:?}"),
    }
}

/// A filter with its parts in mongod's order.
pub(super) fn canonical(node: &Node) -> Node {
    let all = |parts: Vec<&Node>| {
        let mut parts: Vec<Node> = parts.into_iter().map(canonical).collect();
        parts.sort_by(order);
        parts
    };
    match node {
        Node::And(children) => Node::And(all(flat(children))),
        Node::Or(children) => Node::Or(all(children.iter().collect())),
        Node::Leaf(Leaf { path, predicate: Predicate::In(list) }) if list.regexes.is_empty() => {
            let [only] = list.values.as_slice() else { return node.clone() };
            let (operand, collator) = (only.clone(), list.collator.clone());
            let predicate = Predicate::Compare { op: CompareOp::Eq, operand, collator };
            Node::Leaf(Leaf { path: path.clone(), predicate })
        }
        other => other.clone(),
    }
}

/// Conjunctions within a conjunction are part of it.
fn flat<'n>(children: &'n [Node]) -> Vec<&'n Node> {
    let inner = |child: &'n Node| match child {
        Node::And(inner) => flat(inner),
        other => vec![other],
    };
    children.iter().flat_map(inner).collect()
}

/// mongod sorts the parts of a filter by their kinds, then by their paths.
fn in_order(mut children: Vec<&Node>) -> Vec<&Node> {
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
