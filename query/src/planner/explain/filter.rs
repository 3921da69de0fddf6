//! Shows a filter in mongod's format.

use bson::{RawDocument, RawDocumentBuf, raw::cstr};

use super::{finish, number};
use crate::{
    expression::{DocBuilder, array_bytes},
    matcher::{ArrayPredicate, Node, Predicate},
    text::TextNode,
    value::{Elements, OwnedValue, Value},
};

/// A filter in mongod's format: every predicate with its operator.
pub(crate) fn filter_doc(node: &Node) -> RawDocumentBuf {
    match node {
        Node::And(children) if children.is_empty() => RawDocumentBuf::new(),
        Node::And(children) => list("$and", children),
        Node::Or(children) => list("$or", children),
        Node::Nor(children) => list("$nor", children),
        Node::Constant(true) => one("$alwaysTrue", Value::Int32(1)),
        Node::Constant(false) => one("$alwaysFalse", Value::Int32(1)),
        Node::SampleRate(rate) => one("$sampleRate", Value::Double(*rate)),
        Node::Text(text) => one("$text", Value::from(&*text_doc(text))),
        Node::Schema(_) => one("$jsonSchema", Value::Bool(true)),
        Node::Expr(_) => one("$expr", Value::Bool(true)),
        Node::Near(by) => one(&String::from_utf8_lossy(by.path.dotted()), by.written.get()),
        Node::Not(child) => negated(child),
        Node::Leaf(leaf) => {
            let path = leaf.path.as_ref().map_or(&b""[..], |p| p.dotted());
            by_path(path, &predicate(&leaf.predicate))
        }
        Node::Array(leaf) => {
            let path = leaf.path.as_ref().map_or(&b""[..], |p| p.dotted());
            by_path(path, &array_predicate(&leaf.predicate))
        }
    }
}

/// A text search with all its options.
fn text_doc(text: &TextNode) -> RawDocumentBuf {
    let search = &text.search;
    let by_index = text.query().map_or("", |query| query.spec().language().name());
    let language = search.language.as_deref().filter(|name| !name.is_empty()).unwrap_or(by_index);
    let mut doc = DocBuilder::new();
    doc.push(b"$search", Value::String(search.search.as_bytes()));
    doc.push(b"$language", Value::String(language.as_bytes()));
    doc.push(b"$caseSensitive", Value::Bool(search.sensitivity.case));
    doc.push(b"$diacriticSensitive", Value::Bool(search.sensitivity.diacritics));
    finish(doc)
}

fn negated(child: &Node) -> RawDocumentBuf {
    let shown = filter_doc(child);
    let Some(field) = Elements::new(&shown).next() else { return list("$nor", &[]) };
    let mut not = DocBuilder::new();
    not.push(b"$not", field.value());
    by_path(field.key, &finish(not))
}

pub(super) fn one(name: &str, value: Value<'_>) -> RawDocumentBuf {
    let mut doc = DocBuilder::new();
    doc.push(name.as_bytes(), value);
    finish(doc)
}

fn list(name: &str, children: &[Node]) -> RawDocumentBuf {
    let shown: Vec<_> = children.iter().map(filter_doc).collect();
    let items = array_bytes(shown.iter().map(|doc| Value::from(&**doc)));
    one(name, Value::Array(&items))
}

fn by_path(path: &[u8], operators: &RawDocumentBuf) -> RawDocumentBuf {
    let mut doc = DocBuilder::new();
    doc.push(path, Value::from(&**operators));
    finish(doc)
}

fn predicate(predicate: &Predicate) -> RawDocumentBuf {
    match predicate {
        Predicate::Compare { op, operand, .. } => one(op.name(), operand.get()),
        Predicate::In(list) => {
            let regexes = list
                .regexes
                .iter()
                .map(|regex| Value::Regex { pattern: regex.pattern(), options: regex.options() });
            let items = array_bytes(list.values.iter().map(OwnedValue::get).chain(regexes));
            one("$in", Value::Array(&items))
        }
        Predicate::Regex(regex) => {
            let mut doc = one("$regex", Value::String(regex.pattern()));
            if !regex.options().is_empty() {
                doc.append(cstr!("$options"), String::from_utf8_lossy(regex.options()).as_ref());
            }
            doc
        }
        Predicate::Exists => one("$exists", Value::Bool(true)),
        Predicate::Type(types) => {
            let items = array_bytes(types.codes().map(Value::Int32));
            one("$type", Value::Array(&items))
        }
        Predicate::Mod { divisor, remainder } => {
            let items = array_bytes([Value::Int64(*divisor), Value::Int64(*remainder)]);
            one("$mod", Value::Array(&items))
        }
        Predicate::Geo(query) => match query.written.get() {
            Value::Document(doc) => {
                RawDocument::from_bytes(doc).map(ToOwned::to_owned).unwrap_or_default()
            }
            _ => RawDocumentBuf::new(),
        },
        Predicate::Bits(test) => {
            let name = match (test.all, test.set) {
                (true, true) => "$bitsAllSet",
                (true, false) => "$bitsAllClear",
                (false, true) => "$bitsAnySet",
                (false, false) => "$bitsAnyClear",
            };
            let positions = test.positions.iter().map(|p| number(u64::from(*p)));
            one(name, Value::Array(&array_bytes(positions)))
        }
    }
}

fn array_predicate(predicate: &ArrayPredicate) -> RawDocumentBuf {
    match predicate {
        ArrayPredicate::Size(size) => one("$size", number(size.unsigned_abs())),
        ArrayPredicate::ElemMatchObject(child) => {
            let shown = filter_doc(child);
            one("$elemMatch", Value::from(&*shown))
        }
        ArrayPredicate::ElemMatchValue(children) => {
            let mut doc = DocBuilder::new();
            for child in children {
                let shown = filter_doc(child);
                for field in Elements::new(&shown) {
                    for operator in field.value().elements() {
                        doc.push_raw(operator.bytes);
                    }
                }
            }
            let inner = finish(doc);
            one("$elemMatch", Value::from(&*inner))
        }
    }
}
