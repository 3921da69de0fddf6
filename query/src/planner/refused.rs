//! mongod's error for a query that cannot be planned, which shows the query as a tree.

use bson::RawDocument;

use super::{
    Request,
    canonical::{canonical, flat, in_order},
    explain::filter_doc,
};
use crate::{
    error::QueryError,
    matcher::{ArrayPredicate, Node, Predicate},
    value::{OwnedValue, Shown, Value},
};

/// The error for a text search, with its reason.
pub(super) fn refused_text(request: &Request, ns: &str, language: &str, why: &str) -> QueryError {
    let frame = frame_in(request, ns, None, language);
    QueryError::location(291, format!("{frame} planner returned error :: caused by :: {why}"))
}

/// The error for a query, with its reason.
pub fn refused(
    code: i32,
    request: &Request,
    ns: &str,
    collation: Option<&RawDocument>,
    why: &str,
) -> QueryError {
    let frame = frame(request, ns, collation);
    QueryError::location(code, format!("{frame} planner returned error :: caused by :: {why}"))
}

/// The part of the error before the reason.
pub fn frame(request: &Request, ns: &str, collation: Option<&RawDocument>) -> String {
    frame_in(request, ns, collation, "")
}

fn frame_in(
    request: &Request,
    ns: &str,
    collation: Option<&RawDocument>,
    language: &str,
) -> String {
    let mut tree = String::new();
    show(&canonical(request.filter.root()), language, 0, &mut tree);
    let shown = |doc: &RawDocument| Shown(Value::from(doc)).to_string();
    let doc = |doc: Option<&RawDocument>| doc.map_or("{}".to_owned(), shown);
    let sort = doc(request.written.0.as_deref());
    let projection = doc(request.written.1.as_deref());
    let collation = collation.map_or(String::new(), |doc| format!("Collation: {}\n", shown(doc)));
    format!(
        "error processing query: ns={ns}Tree: {tree}Sort: {sort}\nProj: {projection}\n{collation}"
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
