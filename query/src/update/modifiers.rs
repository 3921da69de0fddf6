//! `$v: 1`: applies `$set` and `$unset` with dotted paths, as 4.4 logs them.
//!
//! The paths form a tree whose children are visited in the byte order of their names; new fields are added in that
//! order. A path that leads through a scalar is skipped without an error, since a later entry put the scalar there
//! (U1). Unsetting an array element sets it to null, and setting one beyond the end pads with nulls.

use std::collections::BTreeMap;

use bson::{RawDocument, RawDocumentBuf};

use super::{
    UpdateError,
    delta::{array_index, lossy},
    writer::DocWriter,
};
use crate::value::{Element, Elements, Value};

/// Maximum number of nulls that mongod adds before a new array element.
const PADDING_MAX: usize = 1_500_000;

/// The document after `{$set: {...}, $unset: {...}}`.
pub fn apply_modifiers(
    pre: &RawDocument,
    modifiers: &RawDocument,
) -> Result<RawDocumentBuf, UpdateError> {
    let tree = parse(modifiers)?;
    let mut out = DocWriter::with_capacity(pre.as_bytes().len() + modifiers.as_bytes().len());
    apply_to_document(pre.as_bytes(), &tree, &mut out)?;
    Ok(out.finish()?)
}

/// The part of the tree below one name.
enum Node<'a> {
    Set(Element<'a>),
    Unset,
    Below(Tree<'a>),
}

type Tree<'a> = BTreeMap<&'a [u8], Node<'a>>;

fn parse(modifiers: &RawDocument) -> Result<Tree<'_>, UpdateError> {
    let mut tree = Tree::new();
    let mut operators = Elements::new(modifiers);
    while let Some(operator) = operators.next_checked()? {
        let body = match (operator.key, operator.value()) {
            (b"$v", _) => continue,
            (b"$set" | b"$unset", Value::Document(body)) => body,
            (b"$set" | b"$unset", other) => {
                return Err(UpdateError::WrongType {
                    field: lossy(operator.key),
                    expected: "an object",
                    found: other.type_name(),
                });
            }
            (name, _) => return Err(UpdateError::UnknownModifier { name: lossy(name) }),
        };
        let mut fields = Elements::of_bytes(body);
        while let Some(field) = fields.next_checked()? {
            let leaf = if operator.key == b"$set" { Node::Set(field) } else { Node::Unset };
            insert(&mut tree, field.key, leaf)?;
        }
    }
    Ok(tree)
}

fn insert<'a>(tree: &mut Tree<'a>, path: &'a [u8], leaf: Node<'a>) -> Result<(), UpdateError> {
    let conflict = || UpdateError::Conflict { path: lossy(path) };
    let mut tree = tree;
    let mut parts = path.split(|&b| b == b'.').peekable();
    while let Some(part) = parts.next() {
        if part.is_empty() {
            return Err(UpdateError::EmptyFieldName { path: lossy(path) });
        }
        if parts.peek().is_none() {
            if tree.contains_key(part) {
                return Err(conflict());
            }
            tree.insert(part, leaf);
            return Ok(());
        }
        match tree.entry(part).or_insert_with(|| Node::Below(Tree::new())) {
            Node::Below(below) => tree = below,
            Node::Set(_) | Node::Unset => return Err(conflict()),
        }
    }
    Ok(())
}

fn apply_to_document(pre: &[u8], tree: &Tree<'_>, out: &mut DocWriter) -> Result<(), UpdateError> {
    let open = out.open();
    let mut met: Vec<&[u8]> = Vec::new();
    let mut fields = Elements::of_bytes(pre);
    while let Some(field) = fields.next_checked()? {
        // Of two fields with the same name only the first is changed.
        let node = tree.get(field.key).filter(|_| !met.contains(&field.key));
        match node {
            None => out.element(&field),
            Some(node) => {
                met.push(field.key);
                if !matches!(node, Node::Unset) {
                    apply_to_value(&field, Key::Name(field.key), node, out)?;
                }
            }
        }
    }
    for (name, node) in tree.iter().filter(|(name, _)| !met.contains(name)) {
        create(Key::Name(name), node, out);
    }
    out.close(open);
    Ok(())
}

#[derive(Clone, Copy)]
enum Key<'a> {
    Name(&'a [u8]),
    Index(usize),
}

impl Key<'_> {
    fn write(self, type_byte: u8, out: &mut DocWriter) {
        match self {
            Self::Name(name) => out.key(type_byte, name),
            Self::Index(index) => out.index(type_byte, index),
        }
    }
}

/// Writes an existing value after its modification.
fn apply_to_value(
    old: &Element<'_>,
    key: Key<'_>,
    node: &Node<'_>,
    out: &mut DocWriter,
) -> Result<(), UpdateError> {
    match (node, old.value()) {
        (Node::Set(new), _) => {
            key.write(new.type_byte, out);
            out.value_bytes(new.value_bytes);
            Ok(())
        }
        (Node::Unset, _) => {
            key.write(Value::Null.type_byte(), out);
            Ok(())
        }
        (Node::Below(tree), Value::Document(bytes)) => {
            key.write(old.type_byte, out);
            apply_to_document(bytes, tree, out)
        }
        (Node::Below(tree), Value::Array(bytes)) => {
            key.write(old.type_byte, out);
            apply_to_array(bytes, tree, out)
        }
        (Node::Below(_), _) => {
            key.write(old.type_byte, out);
            out.value_bytes(old.value_bytes);
            Ok(())
        }
    }
}

fn sets_something(node: &Node<'_>) -> bool {
    match node {
        Node::Set(_) => true,
        Node::Unset => false,
        Node::Below(tree) => tree.values().any(sets_something),
    }
}

/// Writes a new field; only documents are created below it.
fn create(key: Key<'_>, node: &Node<'_>, out: &mut DocWriter) {
    match node {
        Node::Set(new) => {
            key.write(new.type_byte, out);
            out.value_bytes(new.value_bytes);
        }
        Node::Below(tree) if sets_something(node) => {
            key.write(Value::Document(&[]).type_byte(), out);
            let open = out.open();
            for (name, node) in tree {
                create(Key::Name(name), node, out);
            }
            out.close(open);
        }
        Node::Unset | Node::Below(_) => {}
    }
}

fn apply_to_array(pre: &[u8], tree: &Tree<'_>, out: &mut DocWriter) -> Result<(), UpdateError> {
    let old_len = Elements::of_bytes(pre).count();
    let (new_len, by_index) = plan_array(old_len, tree)?;
    let open = out.open();
    let mut old = Elements::of_bytes(pre);
    for index in 0..new_len {
        let element = old.next_checked()?;
        match (element, by_index.get(&index)) {
            (Some(element), Some(node)) => {
                apply_to_value(&element, Key::Index(index), node, out)?;
            }
            (Some(element), None) => {
                out.index(element.type_byte, index);
                out.value_bytes(element.value_bytes);
            }
            (None, Some(node)) => create(Key::Index(index), node, out),
            (None, None) => out.index(Value::Null.type_byte(), index),
        }
    }
    out.close(open);
    Ok(())
}

type ArrayPlan<'t, 'a> = (usize, BTreeMap<usize, &'t Node<'a>>);

/// Determines which node applies to which index, and the array's new length. Nodes come in the byte order of their
/// names, "10" before "2": an element that an earlier node padded is already null, so a path below it leads nowhere.
fn plan_array<'t, 'a>(
    old_len: usize,
    tree: &'t Tree<'a>,
) -> Result<ArrayPlan<'t, 'a>, UpdateError> {
    let mut len = old_len;
    let mut by_index = BTreeMap::new();
    for (name, node) in tree {
        let Some(index) = array_index(name) else { continue };
        let padded_already = index >= old_len && index < len;
        if index >= len {
            if !sets_something(node) {
                continue;
            }
            if index - len > PADDING_MAX {
                return Err(UpdateError::CannotBackfillArray { limit: PADDING_MAX });
            }
            len = index + 1;
        } else if padded_already && !matches!(node, Node::Set(_)) {
            continue;
        }
        by_index.insert(index, node);
    }
    Ok((len, by_index))
}
