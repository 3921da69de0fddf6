//! Evaluates a parsed filter on a document's bytes.

use super::{ArrayLeaf, ArrayPredicate, Leaf, Node};
use crate::{
    context::Context,
    error::QueryError,
    exec::Seen,
    expression::{Bump, Env, Expr},
    value::{
        Elements, Value,
        path::{LeafArrays, Path},
    },
};

type Outcome = Result<bool, QueryError>;

/// True if the document matches.
pub(super) fn document(node: &Node, row: Seen<'_>, cx: &Context) -> Outcome {
    on(node, Subject::Document(row), cx)
}

/// What a node is evaluated on: a document, or an array element within `$elemMatch`.
#[derive(Clone, Copy)]
enum Subject<'a> {
    Document(Seen<'a>),
    Element(Value<'a>),
}

fn on(node: &Node, subject: Subject<'_>, cx: &Context) -> Outcome {
    match node {
        Node::And(children) => all(children, subject, cx),
        Node::Or(children) => any(children, subject, cx),
        Node::Nor(children) => any(children, subject, cx).map(|found| !found),
        Node::Not(child) => on(child, subject, cx).map(|matched| !matched),
        Node::Constant(value) => Ok(*value),
        Node::Leaf(leaf) => Ok(on_leaf(leaf, subject)),
        Node::Array(leaf) => on_array(leaf, subject, cx),
        Node::Expr(expr) => on_expr(expr, subject, cx),
        Node::Schema(schema) => Ok(schema.matches(match subject {
            Subject::Document(row) => Value::Document(row.doc),
            Subject::Element(value) => value,
        })),
        Node::Text(text) => Ok(match subject {
            Subject::Document(row) => text.matches(row.doc),
            Subject::Element(_) => false,
        }),
        Node::SampleRate(rate) => Ok(cx.random() < *rate),
        Node::Near(by) => Ok(match subject {
            Subject::Document(row) => by.measure(row.doc).is_some(),
            Subject::Element(_) => false,
        }),
    }
}

fn all(children: &[Node], subject: Subject<'_>, cx: &Context) -> Outcome {
    for child in children {
        if !on(child, subject, cx)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn any(children: &[Node], subject: Subject<'_>, cx: &Context) -> Outcome {
    for child in children {
        if on(child, subject, cx)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn on_expr(expr: &Expr, subject: Subject<'_>, cx: &Context) -> Outcome {
    let Subject::Document(row) = subject else { return Ok(false) };
    let arena = Bump::new();
    let mut env = Env::over(&arena, cx, row);
    expr.eval(&mut env).map(super::operands::is_true)
}

fn on_leaf(leaf: &Leaf, subject: Subject<'_>) -> bool {
    match (subject, &leaf.path) {
        (Subject::Document(row), Some(path)) => {
            path.any(row.doc, LeafArrays::Open, |value| leaf.predicate.test(value))
        }
        (Subject::Element(value), _) => leaf.predicate.test(value),
        (Subject::Document(row), None) => leaf.predicate.test(Value::Document(row.doc)),
    }
}

fn on_array(leaf: &ArrayLeaf, subject: Subject<'_>, cx: &Context) -> Outcome {
    let (doc, path) = match (subject, &leaf.path) {
        (Subject::Document(row), Some(path)) => (row.doc, path),
        (Subject::Element(Value::Array(array)), _) => return test_array(leaf, array, cx),
        _ => return Ok(false),
    };
    let mut outcome = Ok(false);
    path.any(doc, LeafArrays::Closed, |value| {
        let Value::Array(array) = value else { return false };
        outcome = test_array(leaf, array, cx);
        !matches!(outcome, Ok(false))
    });
    outcome
}

fn test_array(leaf: &ArrayLeaf, array: &[u8], cx: &Context) -> Outcome {
    let mut elements = Value::Array(array).elements();
    match &leaf.predicate {
        ArrayPredicate::Size(size) => {
            Ok(i64::try_from(elements.count()).is_ok_and(|count| count == *size))
        }
        ArrayPredicate::ElemMatchObject(child) => {
            // A nested array is matched as a document whose field names are indexes.
            for element in elements {
                if let Value::Document(bytes) | Value::Array(bytes) = element.value()
                    && on(child, Subject::Document(Seen::plain(bytes)), cx)?
                {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        ArrayPredicate::ElemMatchValue(children) => {
            for element in elements.by_ref() {
                if all(children, Subject::Element(element.value()), cx)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
    }
}

/// The index of the array element that made the document match, for the positional operator: in the outermost array
/// that the last matching conjunct looked into.
pub(super) fn matched_index(node: &Node, doc: &[u8], cx: &Context) -> Option<usize> {
    match node {
        Node::And(children) => {
            children.iter().rev().find_map(|child| matched_index(child, doc, cx))
        }
        Node::Or(children) => children.iter().find_map(|child| {
            let row = Seen::plain(doc);
            document(child, row, cx).unwrap_or(false).then(|| matched_index(child, doc, cx))?
        }),
        Node::Leaf(Leaf { path: Some(path), predicate }) => {
            index_on_path(doc, path, &|value, rest| match rest {
                None => predicate.test(value),
                Some(rest) => match value {
                    Value::Document(inner) => {
                        rest.any(inner, LeafArrays::Open, |v| predicate.test(v))
                    }
                    _ => false,
                },
            })
        }
        Node::Array(ArrayLeaf { path: Some(path), predicate }) => {
            index_on_path(doc, path, &|value, rest| match (predicate, rest, value) {
                (
                    ArrayPredicate::ElemMatchObject(child),
                    None,
                    Value::Document(bytes) | Value::Array(bytes),
                ) => on(child, Subject::Document(Seen::plain(bytes)), cx).unwrap_or(false),
                (ArrayPredicate::ElemMatchValue(children), None, value) => {
                    all(children, Subject::Element(value), cx).unwrap_or(false)
                }
                _ => false,
            })
        }
        _ => None,
    }
}

type ElementTest<'t> = dyn Fn(Value<'_>, Option<&Path>) -> bool + 't;

fn index_on_path(doc: &[u8], path: &Path, test: &ElementTest<'_>) -> Option<usize> {
    let mut value = Value::Document(doc);
    for (at, name) in path.parts().iter().enumerate() {
        let Value::Document(inner) = value else { return None };
        value = Elements::of_bytes(inner).find(name)?.value();
        if let Value::Array(_) = value {
            let rest = path.parts().get(at + 1..).filter(|rest| !rest.is_empty());
            let rest = rest.map(|rest| Path::new(&rest.join(&b'.')));
            return value.elements().position(|e| test(e.value(), rest.as_ref()));
        }
    }
    None
}
