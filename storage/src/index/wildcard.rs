//! Keys of wildcard indexes: one for every value at every path, with the path in front.
//!
//! ```text
//!   { "$**": 1 }            {a: {b: 1}, c: [2, 3]}   ->  "a.b" 1    "c" 2    "c" 3    and 1 "c": an array was seen at c
//!   { t: 1, "$**": 1 }      {t: 7, a: 1}             ->  7 "a" 1
//! ```
//! As in mongod: an array is expanded once, its documents under the array's own path; a nested array, an empty
//! document and an empty array (as undefined) are values; names with a dot get no keys; `_id` gets none unless
//! `wildcardProjection` names it. A document that only has the regular fields of a compound index gets one key, with
//! MinKey for path and value. mongod stores the multikey paths once for the whole index; here they are stored with
//! each document, so that they disappear with it.

use std::collections::{BTreeMap, BTreeSet};

use bson::RawDocument;
use query::value::{Elements, Value};

/// The wildcard field of a pattern.
#[derive(Debug)]
pub(crate) struct Wildcard {
    /// Position of the wildcard field in the key pattern.
    pub(crate) at: usize,
    shown: Option<(Node, bool)>,
    with_id: bool,
}

/// The paths that a projection names.
#[derive(Debug)]
enum Node {
    Leaf,
    Tree(BTreeMap<Vec<u8>, Node>),
}

/// The values and arrays found in one document.
#[derive(Default)]
pub(crate) struct Found {
    /// Path and value; the value is a document with that single value.
    pub(crate) values: Vec<(String, Vec<u8>)>,
    /// Paths of arrays.
    pub(crate) arrays: BTreeSet<String>,
}

impl Wildcard {
    /// For the field `name` (`$**` or `a.b.$**`) at position `at` of a spec's key pattern.
    pub(crate) fn new(at: usize, name: &[u8], spec: &RawDocument) -> Option<Self> {
        let path = name.strip_suffix(b"$**")?;
        if !path.is_empty() {
            let mut tree = Node::Tree(BTreeMap::new());
            tree.name(path.strip_suffix(b".")?);
            return Some(Self {
                at,
                shown: Some((tree, true)),
                with_id: path.starts_with(b"_id."),
            });
        }
        let Ok(projection) = spec.get_document("wildcardProjection") else {
            return Some(Self { at, shown: None, with_id: false });
        };
        let mut tree = Node::Tree(BTreeMap::new());
        let (mut include, mut with_id) = (None, false);
        read_projection(projection, &mut Vec::new(), &mut |path, on| {
            if path == b"_id" {
                with_id = on;
                return;
            }
            include = Some(on);
            tree.name(path);
        });
        // If only `_id` is named, its own setting decides.
        let include = include.unwrap_or(with_id);
        Some(Self { at, shown: Some((tree, include)), with_id })
    }

    /// The values and arrays of a document.
    pub(crate) fn find(&self, doc: &[u8]) -> Found {
        let mut top = Vec::with_capacity(doc.len());
        let mut out = Writer::begin(&mut top);
        for element in Elements::of_bytes(doc) {
            if element.key == b"_id" {
                if self.with_id {
                    out.raw(element.bytes);
                }
                continue;
            }
            match &self.shown {
                None => out.raw(element.bytes),
                Some((Node::Tree(tree), include)) => {
                    show(
                        &mut out,
                        element.type_byte,
                        element.key,
                        element.value_bytes,
                        tree.get(element.key),
                        *include,
                    );
                }
                Some((Node::Leaf, _)) => {}
            }
        }
        out.end();
        let mut found = Found::default();
        walk(&top, "", &mut found);
        found
    }
}

impl Node {
    fn name(&mut self, path: &[u8]) {
        let mut node = self;
        for part in path.split(|b| *b == b'.') {
            if let Node::Leaf = node {
                *node = Node::Tree(BTreeMap::new());
            }
            let Node::Tree(tree) = node else { return };
            node = tree.entry(part.to_vec()).or_insert(Node::Leaf);
        }
    }
}

/// Calls `name` with every dotted path and whether it is included; nested documents extend the path.
fn read_projection(doc: &RawDocument, at: &mut Vec<u8>, name: &mut dyn FnMut(&[u8], bool)) {
    for element in Elements::new(doc) {
        let len = at.len();
        if len > 0 {
            at.push(b'.');
        }
        at.extend_from_slice(element.key);
        match element.value() {
            Value::Document(bytes) => {
                if let Ok(inner) = RawDocument::from_bytes(bytes) {
                    read_projection(inner, at, name);
                }
            }
            Value::Bool(on) => name(at, on),
            Value::Int32(n) => name(at, n != 0),
            Value::Int64(n) => name(at, n != 0),
            Value::Double(n) => name(at, n != 0.0),
            _ => {}
        }
        at.truncate(len);
    }
}

/// Writes an element as the projection leaves it.
fn show(
    out: &mut Writer<'_>,
    type_byte: u8,
    key: &[u8],
    value: &[u8],
    node: Option<&Node>,
    include: bool,
) {
    match (node, include) {
        (None, false) | (Some(Node::Leaf), true) => out.element(type_byte, key, value),
        (None, true) | (Some(Node::Leaf), false) => {}
        (Some(Node::Tree(tree)), _) => match type_byte {
            DOCUMENT => out.nested(type_byte, key, |out| {
                for element in Elements::of_bytes(value) {
                    let node = tree.get(element.key);
                    show(out, element.type_byte, element.key, element.value_bytes, node, include);
                }
            }),
            ARRAY => out.nested(type_byte, key, |out| {
                // The projection applies to an array's elements as to the array.
                for element in Elements::of_bytes(value) {
                    show(out, element.type_byte, element.key, element.value_bytes, node, include);
                }
            }),
            // A path below a scalar value does not exist, so an inclusion includes nothing and an exclusion keeps the
            // value.
            _ if include => {}
            _ => out.element(type_byte, key, value),
        },
    }
}

const DOCUMENT: u8 = 3;
const ARRAY: u8 = 4;
const UNDEFINED: u8 = 6;

fn walk(doc: &[u8], at: &str, found: &mut Found) {
    for element in Elements::of_bytes(doc) {
        let Ok(name) = std::str::from_utf8(element.key) else { continue };
        if name.contains('.') {
            continue;
        }
        let path = if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
        match element.type_byte {
            DOCUMENT if !is_empty(element.value_bytes) => walk(element.value_bytes, &path, found),
            ARRAY => {
                let mut any = false;
                for item in Elements::of_bytes(element.value_bytes) {
                    any = true;
                    match item.type_byte {
                        DOCUMENT if !is_empty(item.value_bytes) => {
                            walk(item.value_bytes, &path, found);
                        }
                        _ => found.push(&path, item.type_byte, item.value_bytes),
                    }
                }
                if !any {
                    found.push(&path, UNDEFINED, &[]);
                }
                found.arrays.insert(path);
            }
            _ => found.push(&path, element.type_byte, element.value_bytes),
        }
    }
}

fn is_empty(doc: &[u8]) -> bool {
    doc.len() <= 5
}

impl Found {
    fn push(&mut self, path: &str, type_byte: u8, value: &[u8]) {
        let mut holder = Vec::with_capacity(value.len() + 8);
        let mut out = Writer::begin(&mut holder);
        out.element(type_byte, b"", value);
        out.end();
        self.values.push((path.to_owned(), holder));
    }
}

/// Writes a BSON document into a buffer.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
    begin: usize,
}

impl<'a> Writer<'a> {
    fn begin(out: &'a mut Vec<u8>) -> Self {
        let begin = out.len();
        out.extend_from_slice(&[0; 4]);
        Self { out, begin }
    }

    fn raw(&mut self, element: &[u8]) {
        self.out.extend_from_slice(element);
    }

    fn element(&mut self, type_byte: u8, key: &[u8], value: &[u8]) {
        self.out.push(type_byte);
        self.out.extend_from_slice(key);
        self.out.push(0);
        self.out.extend_from_slice(value);
    }

    fn nested(&mut self, type_byte: u8, key: &[u8], write: impl FnOnce(&mut Writer<'_>)) {
        self.element(type_byte, key, &[]);
        let mut inner = Writer::begin(self.out);
        write(&mut inner);
        inner.end();
    }

    fn end(self) {
        self.out.push(0);
        let len = u32::try_from(self.out.len() - self.begin).unwrap_or(u32::MAX);
        if let Some(slot) = self.out.get_mut(self.begin..self.begin + 4) {
            slot.copy_from_slice(&len.to_le_bytes());
        }
    }
}
