//! `$v: 2`: applies a diff to a document.
//!
//! ```text
//!   document diff   { d: {f: false}, u: {f: new}, i: {f: new}, b: {f: {o, d}}, sf: {diff of f}, ... }
//!   array diff      { a: true, l: new length, u3: new, s4: {diff of element 4}, ... }
//! ```
//! An updated field keeps its position. An inserted field is appended, in the order of the diff, even if it existed.
//! An updated field that did not exist is appended before the inserted ones. A sub-diff on a value of another type
//! sets null, one on a missing field does nothing: in both cases a later entry was already applied (U1).

use std::collections::HashMap;

use bson::{RawDocument, RawDocumentBuf};

use super::{UpdateError, writer::DocWriter};
use crate::value::{Element, Elements, Value};

const ARRAY_DIFF_MARK: &[u8] = b"a";

/// The document after the diff.
pub fn apply_diff(pre: &RawDocument, diff: &RawDocument) -> Result<RawDocumentBuf, UpdateError> {
    let mut out = DocWriter::with_capacity(pre.as_bytes().len() + diff.as_bytes().len());
    apply_to_document(pre.as_bytes(), diff.as_bytes(), &mut out)?;
    Ok(out.finish()?)
}

#[derive(Clone, Copy)]
enum Change<'a> {
    Delete,
    Update(Element<'a>),
    Insert(Element<'a>),
    Splice(Splice<'a>),
    SubDiff(&'a [u8]),
}

/// The binary section: the old bytes up to `offset`, then `tail`.
#[derive(Clone, Copy)]
struct Splice<'a> {
    offset: usize,
    tail: &'a [u8],
}

struct FieldChange<'a> {
    name: &'a [u8],
    change: Change<'a>,
    /// The document has the field, and the change was written at its position.
    in_place: bool,
}

fn apply_to_document(pre: &[u8], diff: &[u8], out: &mut DocWriter) -> Result<(), UpdateError> {
    let mut changes = field_changes(diff)?;
    let open = out.open();
    let mut fields = Elements::of_bytes(pre);
    while let Some(field) = fields.next_checked()? {
        match changes.get_mut(field.key) {
            None => out.element(&field),
            Some(found) => apply_to_field(&field, found, out)?,
        }
    }
    for change in changes.list.iter().filter(|c| !c.in_place) {
        if let Change::Update(new) | Change::Insert(new) = &change.change {
            out.element(new);
        }
    }
    out.close(open);
    Ok(())
}

fn apply_to_field(
    field: &Element<'_>,
    found: &mut FieldChange<'_>,
    out: &mut DocWriter,
) -> Result<(), UpdateError> {
    match found.change {
        // An inserted field that exists already is moved to the end.
        Change::Delete | Change::Insert(_) => {}
        Change::Update(new) => {
            out.element(&new);
            found.in_place = true;
        }
        Change::Splice(splice) => apply_splice(field, splice, out),
        Change::SubDiff(diff) => {
            let target = SubDiffTarget::of(field.value(), diff);
            out.key(target.type_byte(), field.key);
            target.apply(diff, out)?;
        }
    }
    Ok(())
}

fn apply_splice(field: &Element<'_>, splice: Splice<'_>, out: &mut DocWriter) {
    let kept = match field.value() {
        Value::Binary { subtype, bytes } => bytes.get(..splice.offset).map(|kept| (subtype, kept)),
        _ => None,
    };
    let Some((subtype, kept)) = kept else { return out.element(field) };
    out.key(field.type_byte, field.key);
    let len = i32::try_from(kept.len() + splice.tail.len()).unwrap_or(i32::MAX);
    out.value_bytes(&len.to_le_bytes());
    out.value_bytes(&[subtype]);
    out.value_bytes(kept);
    out.value_bytes(splice.tail);
}

/// What a sub-diff applies to in the old document.
enum SubDiffTarget<'a> {
    Document(&'a [u8]),
    Array(&'a [u8]),
    OtherType,
}

impl<'a> SubDiffTarget<'a> {
    fn of(old: Value<'a>, diff: &[u8]) -> Self {
        match (old, is_array_diff(diff)) {
            (Value::Document(bytes), false) => Self::Document(bytes),
            (Value::Array(bytes), true) => Self::Array(bytes),
            _ => Self::OtherType,
        }
    }

    fn type_byte(&self) -> u8 {
        match self {
            Self::Document(_) => Value::Document(&[]).type_byte(),
            Self::Array(_) => Value::Array(&[]).type_byte(),
            Self::OtherType => Value::Null.type_byte(),
        }
    }

    fn apply(&self, diff: &[u8], out: &mut DocWriter) -> Result<(), UpdateError> {
        match self {
            Self::Document(bytes) => apply_to_document(bytes, diff, out),
            Self::Array(bytes) => apply_to_array(bytes, diff, out),
            Self::OtherType => Ok(()),
        }
    }
}

fn is_array_diff(diff: &[u8]) -> bool {
    Elements::of_bytes(diff).next().is_some_and(|first| first.key == ARRAY_DIFF_MARK)
}

/// The changes of a diff in order; lookup by name takes constant time.
#[derive(Default)]
struct Changes<'a> {
    list: Vec<FieldChange<'a>>,
    /// Filled if the list is long; short lists are searched linearly.
    by_name: HashMap<&'a [u8], usize>,
}

impl<'a> Changes<'a> {
    const SHORT: usize = 8;

    fn position(&self, name: &[u8]) -> Option<usize> {
        if self.list.len() <= Self::SHORT {
            return self.list.iter().position(|c| c.name == name);
        }
        self.by_name.get(name).copied()
    }

    fn get_mut(&mut self, name: &[u8]) -> Option<&mut FieldChange<'a>> {
        self.position(name).and_then(|at| self.list.get_mut(at))
    }

    fn push(&mut self, name: &'a [u8], change: Change<'a>) -> Result<(), UpdateError> {
        if self.position(name).is_some() {
            return Err(UpdateError::DuplicateField { field: lossy(name) });
        }
        self.list.push(FieldChange { name, change, in_place: false });
        match self.list.len() {
            len if len <= Self::SHORT => {}
            len if len == Self::SHORT + 1 => {
                self.by_name = self.list.iter().enumerate().map(|(at, c)| (c.name, at)).collect();
            }
            len => {
                self.by_name.insert(name, len - 1);
            }
        }
        Ok(())
    }
}

/// The sections of a document diff as one list: deletes, updates, inserts, splices, sub-diffs.
fn field_changes(diff: &[u8]) -> Result<Changes<'_>, UpdateError> {
    let mut changes = Changes::default();
    let mut sections = Elements::of_bytes(diff);
    let mut empty = true;
    while let Some(section) = sections.next_checked()? {
        empty = false;
        let name = section.key;
        let body = section_body(&section)?;
        if let Some(field) = name.strip_prefix(b"s") {
            changes.push(field, Change::SubDiff(body))?;
            continue;
        }
        if !matches!(name, b"d" | b"u" | b"i" | b"b") {
            return Err(unknown_section(name));
        }
        let mut fields = Elements::of_bytes(body);
        while let Some(field) = fields.next_checked()? {
            let change = match name {
                b"d" => Change::Delete,
                b"u" => Change::Update(field),
                b"i" => Change::Insert(field),
                _ => Change::Splice(splice(&field)?),
            };
            changes.push(field.key, change)?;
        }
    }
    if empty { Err(UpdateError::EmptyDiff) } else { Ok(changes) }
}

fn section_body<'a>(section: &Element<'a>) -> Result<&'a [u8], UpdateError> {
    match section.value() {
        Value::Document(body) => Ok(body),
        other => Err(wrong_type(section.key, "an object", other)),
    }
}

fn splice<'a>(field: &Element<'a>) -> Result<Splice<'a>, UpdateError> {
    let Value::Document(body) = field.value() else {
        return Err(wrong_type(field.key, "an object", field.value()));
    };
    let part = |name| Elements::of_bytes(body).find(name).map_or(Value::Missing, |e| e.value());
    let offset = match part(b"o") {
        Value::Int32(n) => usize::try_from(n).ok(),
        Value::Int64(n) => usize::try_from(n).ok(),
        _ => None,
    };
    let Some(offset) = offset else { return Err(wrong_type(b"o", "an offset", part(b"o"))) };
    let Value::Binary { bytes: tail, .. } = part(b"d") else {
        return Err(wrong_type(b"d", "binData", part(b"d")));
    };
    Ok(Splice { offset, tail })
}

#[derive(Clone, Copy)]
enum ArrayChange<'a> {
    Update(Element<'a>),
    SubDiff(&'a [u8]),
}

fn apply_to_array(pre: &[u8], diff: &[u8], out: &mut DocWriter) -> Result<(), UpdateError> {
    let (new_len, changes) = array_changes(diff)?;
    let mut changes = changes.into_iter().peekable();
    let open = out.open();
    let mut old = Elements::of_bytes(pre);
    let mut index = 0usize;
    loop {
        let element =
            if new_len.is_none_or(|len| index < len) { old.next_checked()? } else { None };
        let change = changes.next_if(|(at, _)| *at == index).map(|(_, change)| change);
        let padding_left = changes.peek().is_some() || new_len.is_some_and(|len| index < len);
        match (element, change) {
            (_, Some(ArrayChange::Update(new))) => {
                out.index(new.type_byte, index);
                out.value_bytes(new.value_bytes);
            }
            (Some(element), Some(ArrayChange::SubDiff(diff))) => {
                let target = SubDiffTarget::of(element.value(), diff);
                out.index(target.type_byte(), index);
                target.apply(diff, out)?;
            }
            (Some(element), None) => {
                out.index(element.type_byte, index);
                out.value_bytes(element.value_bytes);
            }
            // Beyond the old array a sub-diff has nothing to change, and gaps are filled with null.
            (None, Some(ArrayChange::SubDiff(_))) => out.index(Value::Null.type_byte(), index),
            (None, None) if padding_left => out.index(Value::Null.type_byte(), index),
            (None, None) => break,
        }
        index += 1;
    }
    out.close(open);
    Ok(())
}

type ArrayChanges<'a> = (Option<usize>, Vec<(usize, ArrayChange<'a>)>);

fn array_changes(diff: &[u8]) -> Result<ArrayChanges<'_>, UpdateError> {
    let mut new_len = None;
    let mut changes: Vec<(usize, ArrayChange<'_>)> = Vec::new();
    let mut sections = Elements::of_bytes(diff);
    while let Some(section) = sections.next_checked()? {
        match (section.key, section.value()) {
            (ARRAY_DIFF_MARK, Value::Bool(true)) => {}
            (b"l", Value::Int32(len)) if usize::try_from(len).is_ok() => {
                new_len = usize::try_from(len).ok();
            }
            (b"l", other) => return Err(wrong_type(b"l", "an int", other)),
            (key, _) => changes.push(array_change(key, &section)?),
        }
    }
    let rising = changes.windows(2).all(|pair| matches!(pair, [a, b] if a.0 < b.0));
    let last = changes.last().map(|(at, _)| *at);
    if !rising || last.is_some_and(|at| new_len.is_some_and(|len| at >= len)) {
        return Err(UpdateError::BadIndex { field: last.unwrap_or(0).to_string() });
    }
    Ok((new_len, changes))
}

fn array_change<'a>(
    key: &[u8],
    section: &Element<'a>,
) -> Result<(usize, ArrayChange<'a>), UpdateError> {
    let (&kind, index) = key.split_first().ok_or_else(|| unknown_section(key))?;
    let at = array_index(index).ok_or_else(|| UpdateError::BadIndex { field: lossy(key) })?;
    match kind {
        b'u' => Ok((at, ArrayChange::Update(*section))),
        b's' => Ok((at, ArrayChange::SubDiff(section_body(section)?))),
        _ => Err(unknown_section(key)),
    }
}

/// An array index in mongod's notation. The limit prevents a wrong entry from allocating gigabytes of nulls: a
/// document of 16 MiB has at most this many elements.
pub(super) fn array_index(text: &[u8]) -> Option<usize> {
    const INDEX_MAX: usize = 16 * 1024 * 1024 / 3;
    let plain = !text.is_empty() && (text == b"0" || !text.starts_with(b"0"));
    let digits = plain && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| digits)?;
    text.parse().ok().filter(|&n| n <= INDEX_MAX)
}

fn unknown_section(name: &[u8]) -> UpdateError {
    UpdateError::UnknownSection { section: lossy(name) }
}

fn wrong_type(field: &[u8], expected: &'static str, found: Value<'_>) -> UpdateError {
    UpdateError::WrongType { field: lossy(field), expected, found: found.type_name() }
}

pub(super) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
