//! Generates the keys of a document for an index, as mongod's key generator does.
//!
//! A path is followed until it ends or meets an array. Only one array may be met (several fields may meet the same
//! one); its elements are expanded, and the rest of each path is followed into each element. A missing field counts
//! as null, an empty array at the end of a path as undefined. Two different arrays are refused, as in mongod (code
//! 171); on a secondary such a document can only be a transient state, and it gets no keys.

use std::sync::Arc;

use bson::RawDocument;
use query::{
    collation::Collator,
    matcher::{Matcher, ParseContext},
    value::{Element, Elements, Value, hash64},
};

use super::{text::Text, wildcard::Wildcard};
use crate::{
    IndexKind, StorageError,
    keystring::{self, Marks},
};

/// The properties of an index that determine its keys.
#[derive(Debug)]
pub(crate) struct KeyGen {
    kind: IndexKind,
    fields: Vec<Field>,
    sparse: bool,
    partial: Option<Matcher>,
    collator: Option<Arc<Collator>>,
    wildcard: Option<Wildcard>,
    text: Option<Text>,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) path: Vec<Vec<u8>>,
    pub(super) descending: bool,
    hashed: bool,
}

impl Field {
    /// The value at the field's path, or the array that the path meets.
    pub(super) fn plain<'d>(&'d self, doc: &'d RawDocument) -> Option<Value<'d>> {
        let (first, rest) = self.path.split_first()?;
        let found = extract(Elements::new(doc).find(first)?, rest)?;
        Some(found.value)
    }
}

/// One key of a document.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The concatenated components.
    pub(crate) bytes: Vec<u8>,
    /// The types of the components, see [`Marks`].
    pub(crate) marks: Marks,
}

impl Key {
    /// A key without type marks, which is never decoded.
    pub(super) fn closed(bytes: Vec<u8>) -> Self {
        Self { bytes, marks: Marks::NONE }
    }
}

/// The keys of one document, sorted and without duplicates, and its multikey paths.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) keys: Vec<Key>,
    pub(crate) multikey: Vec<Vec<u32>>,
}

impl Keys {
    /// The key with these bytes.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<&Key> {
        let at = self.keys.binary_search_by(|key| key.bytes.as_slice().cmp(bytes)).ok()?;
        self.keys.get(at)
    }
}

/// Sorts and removes duplicates. If equal array elements have different types, the marks are cleared, since the key
/// then stands for several values.
fn settle(keys: &mut Vec<Key>) {
    keys.sort_unstable();
    keys.dedup_by(|next, kept| {
        let same = next.bytes == kept.bytes;
        if same && next.marks != kept.marks {
            kept.marks = Marks::NONE;
        }
        same
    });
}

impl KeyGen {
    /// Parses a spec.
    pub(crate) fn new(spec: &RawDocument, collator: Option<Arc<Collator>>) -> Self {
        let mut kind = IndexKind::Ordered;
        let mut fields = Vec::new();
        let mut wildcard = None;
        let pattern = spec.get_document("key").ok();
        for element in pattern.into_iter().flat_map(Elements::new) {
            let hashed = matches!(element.value(), Value::String(b"hashed"));
            match element.value() {
                Value::String(_) if hashed => kind = IndexKind::Hashed,
                Value::String(_) => kind = IndexKind::Other,
                _ => {}
            }
            if element.key.ends_with(b"$**") {
                wildcard = Wildcard::new(fields.len(), element.key, spec);
            }
            fields.push(Field {
                path: element.key.split(|&b| b == b'.').map(<[u8]>::to_vec).collect(),
                descending: is_negative(element.value()),
                hashed,
            });
        }
        if kind == IndexKind::Ordered && wildcard.is_some() {
            kind = IndexKind::Wildcard;
        }
        let text = Text::new(spec);
        if text.is_some() {
            kind = IndexKind::Text;
        }
        let filter = spec.get_document("partialFilterExpression").ok();
        let cx = ParseContext { collator: collator.clone() };
        let partial = filter.and_then(|filter| Matcher::parse(filter, &cx).ok());
        // If the filter or the collation cannot be parsed, the keys would be wrong, so none are kept.
        let wants_collation = spec.get("collation").is_ok_and(|found| {
            found
                .and_then(|value| value.as_document())
                .is_some_and(|doc| doc.get_str("locale").is_ok_and(|locale| locale != "simple"))
        });
        let unread = filter.is_some() && partial.is_none();
        if fields.is_empty() || unread || (wants_collation && collator.is_none()) {
            kind = IndexKind::Other;
        }
        let sparse = spec.get("sparse").is_ok_and(|found| found.is_some_and(is_true));
        Self { kind, fields, sparse, partial, collator, wildcard, text }
    }

    pub(crate) fn kind(&self) -> IndexKind {
        self.kind
    }

    pub(crate) fn sparse(&self) -> bool {
        self.sparse
    }

    pub(crate) fn collator(&self) -> Option<&Collator> {
        self.collator.as_deref()
    }

    pub(crate) fn descending(&self) -> Vec<bool> {
        self.fields.iter().map(|field| field.descending).collect()
    }

    /// False for indexes that are stored in the catalog but have no keys.
    pub(crate) fn has_keys(&self) -> bool {
        self.kind != IndexKind::Other
    }

    /// Turns it into an index without keys.
    pub(crate) fn forget(&mut self) {
        self.kind = IndexKind::Other;
    }

    /// The keys of a document.
    pub(crate) fn keys(&self, doc: &RawDocument) -> Result<Keys, StorageError> {
        if !self.has_keys() || self.partial.as_ref().is_some_and(|filter| !filter.matches(doc)) {
            return Ok(Keys::default());
        }
        if let (IndexKind::Wildcard, Some(wildcard)) = (self.kind, &self.wildcard) {
            return self.wildcard_keys(wildcard, doc);
        }
        if let (IndexKind::Text, Some(text)) = (self.kind, &self.text) {
            return text.keys(&self.fields, doc);
        }
        if let Some(keys) = self.plain_keys(doc)? {
            return Ok(keys);
        }
        let start = State {
            rest: self.fields.iter().map(|field| field.path.as_slice()).collect(),
            fixed: vec![Value::Missing; self.fields.len()],
            missing: 0,
            positional: vec![None; self.fields.len()],
        };
        let mut out = Out { keys: Vec::new(), multikey: vec![Vec::new(); self.fields.len()] };
        match self.walk(start, doc.as_bytes(), &mut out) {
            Ok(()) => {}
            Err(Refused::Document(e)) => return Err(e),
            Err(Refused::NoKeys) => return Ok(Keys::default()),
        }
        settle(&mut out.keys);
        for paths in &mut out.multikey {
            paths.sort_unstable();
            paths.dedup();
        }
        Ok(Keys { keys: out.keys, multikey: out.multikey })
    }

    /// The keys of a wildcard index. Its regular fields must not be arrays: such a document gets no keys, since
    /// mongod refuses it (code 7246301).
    fn wildcard_keys(&self, wildcard: &Wildcard, doc: &RawDocument) -> Result<Keys, StorageError> {
        let mut plain = Vec::with_capacity(self.fields.len());
        for field in &self.fields {
            plain.push(field.plain(doc));
        }
        let others = || plain.iter().enumerate().filter(|(at, _)| *at != wildcard.at);
        if others().any(|(_, value)| matches!(value, Some(Value::Array(_)))) {
            return Ok(Keys::default());
        }
        let found = wildcard.find(doc.as_bytes());
        let key = |path: Value<'_>, value: Value<'_>, others_min: bool| {
            let mut key = Vec::with_capacity(32);
            for (at, (field, plain)) in self.fields.iter().zip(&plain).enumerate() {
                if at == wildcard.at {
                    keystring::append(&mut key, path, false, None)?;
                    keystring::append(&mut key, value, field.descending, self.collator())?;
                    continue;
                }
                let plain = if others_min { Value::MinKey } else { plain.unwrap_or(Value::Null) };
                keystring::append(&mut key, plain, field.descending, self.collator())?;
            }
            Ok::<_, StorageError>(key)
        };
        let mut keys = Vec::with_capacity(found.values.len() + found.arrays.len());
        for (path, holder) in &found.values {
            let value = Elements::of_bytes(holder).next().map_or(Value::Missing, |e| e.value());
            keys.push(key(Value::String(path.as_bytes()), value, false)?);
        }
        if keys.is_empty() && others().any(|(_, value)| value.is_some()) {
            keys.push(key(Value::MinKey, Value::MinKey, false)?);
        }
        for path in &found.arrays {
            keys.push(key(Value::Int32(1), Value::String(path.as_bytes()), true)?);
        }
        keys.sort();
        keys.dedup();
        Ok(Keys { keys: keys.into_iter().map(Key::closed).collect(), multikey: Vec::new() })
    }

    /// The single key of a document in which no path meets an array. This is the common case and needs only one
    /// allocation.
    fn plain_keys(&self, doc: &RawDocument) -> Result<Option<Keys>, StorageError> {
        let mut key = self.empty_key();
        let mut missing = 0;
        for (place, field) in self.fields.iter().enumerate() {
            let found = field.path.split_first().and_then(|(first, rest)| {
                extract(Elements::of_bytes(doc.as_bytes()).find(first)?, rest)
            });
            let value = match found.map(|found| found.value) {
                Some(Value::Array(_)) => return Ok(None),
                Some(value) => value,
                None => {
                    missing += 1;
                    Value::Null
                }
            };
            self.append(&mut key, place, field, value)?;
        }
        let none = self.sparse && missing == self.fields.len();
        let keys = if none { Vec::new() } else { vec![key] };
        Ok(Some(Keys { keys, multikey: Vec::new() }))
    }

    fn empty_key(&self) -> Key {
        Key::closed(Vec::with_capacity(16 * self.fields.len()))
    }

    fn append(
        &self,
        key: &mut Key,
        place: usize,
        field: &Field,
        value: Value<'_>,
    ) -> Result<(), StorageError> {
        // Hashes and collation sort keys cannot be decoded, so they need no marks.
        if self.kind == IndexKind::Ordered && self.collator.is_none() {
            key.marks.note(place, value);
        }
        let value = if field.hashed { Value::Int64(hash64(value)) } else { value };
        keystring::append(&mut key.bytes, value, field.descending, self.collator())
    }

    fn walk<'a>(
        &'a self,
        mut state: State<'a>,
        doc: &'a [u8],
        out: &mut Out,
    ) -> Result<(), Refused> {
        let mut array: Option<&'a [u8]> = None;
        let mut in_array = Vec::new();
        let mut open = true;
        for i in 0..self.fields.len() {
            let Some((met, nested)) = state.follow(i, doc)? else { continue };
            open &= !nested;
            if self.fields.get(i).is_some_and(|field| field.hashed) {
                return Err(Refused::NoKeys);
            }
            match array {
                Some(other) if other.as_ptr() != met.as_ptr() => return Err(Refused::NoKeys),
                _ => array = Some(met),
            }
            in_array.push(i);
        }
        let Some(array) = array else { return self.emit(&state, out) };
        for &i in &in_array {
            // The array is at the component before the rest of the path.
            let depth = self.fields.get(i).map_or(0, |field| field.path.len())
                - state.rest.get(i).map_or(0, |rest| rest.len());
            if let Some(paths) = out.multikey.get_mut(i) {
                paths.push(u32::try_from(depth.saturating_sub(1)).unwrap_or(u32::MAX));
            }
        }
        let mut elements = Elements::of_bytes(array).peekable();
        if elements.peek().is_none() {
            let next = state.enter(&in_array, Value::Undefined, array, true);
            return self.walk(next, EMPTY, out);
        }
        for element in elements {
            let value = element.value();
            let next = state.enter(&in_array, value, array, open);
            let inner = if let Value::Document(bytes) = value { bytes } else { EMPTY };
            self.walk(next, inner, out)?;
        }
        Ok(())
    }

    fn emit(&self, state: &State<'_>, out: &mut Out) -> Result<(), Refused> {
        if self.sparse && state.missing == self.fields.len() {
            return Ok(());
        }
        let mut key = self.empty_key();
        for (place, (field, value)) in self.fields.iter().zip(&state.fixed).enumerate() {
            self.append(&mut key, place, field, *value).map_err(Refused::Document)?;
        }
        out.keys.push(key);
        Ok(())
    }
}

/// An empty document.
const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

enum Refused {
    /// Parallel arrays, an array in a hashed field, or an ambiguous numeric path component: mongod would refuse the
    /// document.
    NoKeys,
    Document(StorageError),
}

struct Out {
    keys: Vec<Key>,
    multikey: Vec<Vec<u32>>,
}

/// How far each field's path has been followed.
#[derive(Clone)]
struct State<'a> {
    rest: Vec<&'a [Vec<u8>]>,
    fixed: Vec<Value<'a>>,
    missing: usize,
    /// Inside an array: the value that the next path component finds in the array itself, as an index.
    positional: Vec<Option<Found<'a>>>,
}

/// Where a path led: to its end, or to an array on its way.
#[derive(Clone, Copy)]
struct Found<'a> {
    value: Value<'a>,
    rest: &'a [Vec<u8>],
    /// It was reached by its index in an array and is itself an array: at the end of a path it is not expanded.
    nested: bool,
}

impl<'a> State<'a> {
    /// Follows one field; returns the array at which it stopped, and whether that was reached by index.
    fn follow(&mut self, i: usize, doc: &'a [u8]) -> Result<Option<(&'a [u8], bool)>, Refused> {
        let (Some(rest), Some(fixed)) = (self.rest.get_mut(i), self.fixed.get_mut(i)) else {
            return Ok(None);
        };
        let Some(first) = rest.first() else { return Ok(None) };
        let own = Elements::of_bytes(doc).find(first);
        let by_position = self.positional.get_mut(i).and_then(Option::take);
        let found = match (own, by_position) {
            (Some(_), Some(_)) => return Err(Refused::NoKeys),
            (Some(own), None) => extract(own, rest.get(1..).unwrap_or_default()),
            // An array index whose path leads nowhere counts as a missing field.
            (None, Some(found)) => Some(found).filter(|f| !matches!(f.value, Value::Missing)),
            (None, None) => None,
        };
        let Some(found) = found else {
            *rest = &[];
            *fixed = Value::Null;
            self.missing += 1;
            return Ok(None);
        };
        *rest = found.rest;
        *fixed = found.value;
        Ok(if let Value::Array(bytes) = found.value { Some((bytes, found.nested)) } else { None })
    }

    /// The state for one element of the array at which the fields `in_array` stopped.
    fn enter(&self, in_array: &[usize], element: Value<'a>, array: &'a [u8], open: bool) -> Self {
        let mut next = self.clone();
        for &i in in_array {
            let rest = next.rest.get(i).copied().unwrap_or_default();
            match rest.first() {
                None => {
                    if let Some(fixed) = next.fixed.get_mut(i) {
                        *fixed = if open { element } else { Value::Array(array) };
                    }
                }
                Some(name) => {
                    let at = Elements::of_bytes(array).find(name);
                    let found = at.map(|at| {
                        let nowhere = Found { value: Value::Missing, rest: &[], nested: false };
                        let nested = matches!(at.value(), Value::Array(_));
                        let found = extract(at, rest.get(1..).unwrap_or_default());
                        Found { nested, ..found.unwrap_or(nowhere) }
                    });
                    if let Some(slot) = next.positional.get_mut(i) {
                        *slot = found;
                    }
                }
            }
        }
        next
    }
}

/// Follows `rest` from an element until it ends or meets an array. `None` if it leads nowhere.
fn extract<'a>(element: Element<'a>, rest: &'a [Vec<u8>]) -> Option<Found<'a>> {
    let value = element.value();
    match (value, rest.split_first()) {
        (_, None) | (Value::Array(_), _) => Some(Found { value, rest, nested: false }),
        (Value::Document(bytes), Some((name, rest))) => {
            extract(Elements::of_bytes(bytes).find(name)?, rest)
        }
        _ => None,
    }
}

fn is_negative(value: Value<'_>) -> bool {
    match value {
        Value::Int32(n) => n < 0,
        Value::Int64(n) => n < 0,
        Value::Double(n) => n < 0.0,
        Value::Decimal(n) => n.is_negative(),
        _ => false,
    }
}

fn is_true(value: bson::RawBsonRef<'_>) -> bool {
    match value {
        bson::RawBsonRef::Boolean(b) => b,
        bson::RawBsonRef::Int32(n) => n != 0,
        bson::RawBsonRef::Int64(n) => n != 0,
        bson::RawBsonRef::Double(n) => n != 0.0,
        _ => false,
    }
}
