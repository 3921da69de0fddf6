//! Sorting: patterns, sort keys of documents, and a bounded sorter.
//!
//! An array sorts by its least element ascending and by its greatest descending. So a document's sort key is the
//! least of all keys that its arrays produce, in the order of the pattern. A missing field counts as null, an empty
//! array as undefined.

use std::{cmp::Ordering, collections::BinaryHeap, sync::Arc};

use bson::RawDocument;

use crate::{
    collation::Collator,
    error::QueryError,
    exec::{Seen, TEXT_SCORE},
    expression::no_scores,
    field_path,
    matcher::Matcher,
    value::{Elements, OwnedValue, Shown, Value, compare_values, path::Path},
};

/// Memory limit of a sort, above which it must spill or fail.
pub(crate) const MEMORY_MAX: usize = 100 * 1024 * 1024;

/// One part of a sort pattern.
#[derive(Debug, Clone)]
pub struct SortPart {
    /// The field.
    pub path: Path,
    /// False for -1.
    pub ascending: bool,
    /// The note to sort by, if this is not a field.
    pub note: Option<&'static [u8]>,
}

/// A sort pattern.
#[derive(Debug, Clone)]
pub struct SortPattern {
    /// The parts in order.
    pub parts: Vec<SortPart>,
    /// The collation.
    pub collator: Option<Arc<Collator>>,
}

/// The sort key of a document.
#[derive(Debug, Clone)]
pub struct SortKey(Box<[OwnedValue]>);

impl SortKey {
    /// Memory used.
    pub fn size(&self) -> usize {
        self.0.iter().map(OwnedValue::size).sum()
    }

    /// The values in the order of the pattern.
    pub fn values(&self) -> impl Iterator<Item = Value<'_>> {
        self.0.iter().map(OwnedValue::get)
    }
}

impl SortPattern {
    /// Parses a sort document. The caller handles `$natural`.
    pub fn parse(doc: &RawDocument, collator: Option<Arc<Collator>>) -> Result<Self, QueryError> {
        Self::parse_scored(doc, collator, &|| Err(no_scores()))
    }

    /// Like [`Self::parse`], for documents that may carry scores: `wish` requests them.
    pub(crate) fn parse_scored(
        doc: &RawDocument,
        collator: Option<Arc<Collator>>,
        wish: &dyn Fn() -> Result<(), QueryError>,
    ) -> Result<Self, QueryError> {
        let parts: Result<Vec<_>, QueryError> = Elements::new(doc)
            .map(|part| {
                if let Value::Document(spec) = part.value() {
                    meta_sort(spec)?;
                    wish()?;
                    let (path, note) = (Path::new(NO_FIELD), Some(TEXT_SCORE));
                    return Ok(SortPart { path, ascending: false, note });
                }
                let ascending = direction(part.key, part.value())?;
                field_path::check(part.key)?;
                Ok(SortPart { path: Path::new(part.key), ascending, note: None })
            })
            .collect();
        Ok(Self { parts: parts?, collator })
    }

    /// Parses the sort of a find, whose filter may have a text search.
    pub fn parse_find(
        doc: &RawDocument,
        collator: Option<Arc<Collator>>,
        filter: &Matcher,
    ) -> Result<Self, QueryError> {
        Self::parse_scored(doc, collator, &|| match filter.text() {
            None => Err(no_scores()),
            Some(text) => {
                text.score_wish().wish();
                Ok(())
            }
        })
    }

    /// The sort key of a document with its notes.
    pub fn key_of(&self, row: Seen<'_>) -> Result<SortKey, QueryError> {
        let mut key = self.key(row.doc)?;
        for (part, value) in self.parts.iter().zip(&mut key.0) {
            if let Some(name) = part.note {
                let note = Elements::of_bytes(row.notes).find(name);
                *value = note.map_or(Value::Null, |note| note.value()).into();
            }
        }
        Ok(key)
    }

    fn has_notes(&self) -> bool {
        self.parts.iter().any(|part| part.note.is_some())
    }

    /// The sort key of a document.
    pub fn key(&self, doc: &[u8]) -> Result<SortKey, QueryError> {
        if let Some(simple) = self.simple_key(doc) {
            return Ok(simple);
        }
        let mut best: Option<Vec<Value<'_>>> = None;
        let mut fixed = vec![Value::Null; self.parts.len()];
        let doc = Value::Document(doc);
        let parts = self.parts.iter().enumerate();
        let pending: Vec<_> = parts.map(|(at, part)| (at, doc, part.path.parts())).collect();
        expand(&pending, &mut fixed, &mut |key| {
            let better = best.as_ref().is_none_or(|best| {
                self.compare_values(key.iter().copied(), best.iter().copied()) == Ordering::Less
            });
            if better {
                best = Some(key.to_vec());
            }
        })?;
        let key = best.unwrap_or(fixed);
        Ok(SortKey(key.into_iter().map(OwnedValue::from).collect()))
    }

    /// The sort key of a document without arrays on any of the paths.
    fn simple_key(&self, doc: &[u8]) -> Option<SortKey> {
        let mut values = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            values.push(OwnedValue::from(plain_value(part, doc)?));
        }
        Some(SortKey(values.into()))
    }

    /// Compares a document without arrays on the paths with a key.
    fn compare_plain(&self, doc: &[u8], key: &SortKey) -> Option<Ordering> {
        let mut order = Ordering::Equal;
        for (part, bound) in self.parts.iter().zip(key.values()) {
            // All parts are examined, because an array further on may be an error.
            let value = plain_value(part, doc)?;
            if order == Ordering::Equal {
                order = compare_values(value, bound, self.collator.as_deref());
                order = if part.ascending { order } else { order.reverse() };
            }
        }
        Some(order)
    }

    /// Orders two keys.
    pub fn compare(&self, a: &SortKey, b: &SortKey) -> Ordering {
        self.compare_values(a.values(), b.values())
    }

    pub(crate) fn compare_values<'v>(
        &self,
        a: impl Iterator<Item = Value<'v>>,
        b: impl Iterator<Item = Value<'v>>,
    ) -> Ordering {
        for ((part, a), b) in self.parts.iter().zip(a).zip(b) {
            let order = compare_values(a, b, self.collator.as_deref());
            let order = if part.ascending { order } else { order.reverse() };
            if order != Ordering::Equal {
                return order;
            }
        }
        Ordering::Equal
    }
}

/// The value at a path; `None` if the path leads through an array.
fn plain_value<'d>(part: &SortPart, doc: &'d [u8]) -> Option<Value<'d>> {
    let mut value = Value::Document(doc);
    for name in part.path.parts() {
        value = match value {
            Value::Document(inner) => {
                Elements::of_bytes(inner).find(name).map_or(Value::Null, |e| e.value())
            }
            Value::Array(_) => return None,
            _ => Value::Null,
        };
    }
    (!matches!(value, Value::Array(_))).then_some(value)
}

fn direction(key: &[u8], value: Value<'_>) -> Result<bool, QueryError> {
    let whole = match value {
        Value::Int32(n) => Some(i64::from(n)),
        Value::Int64(n) => Some(n),
        Value::Double(n) => crate::matcher::truncate(n),
        Value::Decimal(n) => n.truncate_to_i64(),
        other => {
            return Err(QueryError::location(
                15_974,
                format!(
                    "Illegal key in $sort specification: {}: {}",
                    String::from_utf8_lossy(key),
                    Shown(other)
                ),
            ));
        }
    };
    match whole {
        Some(1) => Ok(true),
        Some(-1) => Ok(false),
        _ => Err(QueryError::location(
            15_975,
            "$sort key ordering must be 1 (for ascending) or -1 (for descending)",
        )),
    }
}

/// A name that no field has: it is not UTF-8.
const NO_FIELD: &[u8] = b"\xff";

/// Checks `{$meta: "textScore"}`, the only sort criterion besides fields.
fn meta_sort(doc: &[u8]) -> Result<(), QueryError> {
    let mut fields = Elements::of_bytes(doc);
    let Some(meta) = fields.next().filter(|f| f.key == b"$meta") else {
        return Err(QueryError::location(
            17_312,
            "$meta is the only expression supported by $sort right now",
        ));
    };
    if fields.next().is_some() {
        return Err(QueryError::failed_to_parse(
            "Cannot have additional keys in a $meta sort specification",
        ));
    }
    match meta.value().as_str() {
        Some("textScore") => Ok(()),
        _ => Err(QueryError::location(
            31_138,
            format!("Illegal $meta sort: $meta: {}", Shown(meta.value())),
        )),
    }
}

impl SortPart {
    /// True for the score of a text search.
    pub(crate) fn is_score(&self) -> bool {
        self.note == Some(TEXT_SCORE)
    }
}

/// All keys of a document at the paths: one for each element of an array on them.
pub fn keys_at(paths: &[&Path], doc: &[u8]) -> Result<Vec<Vec<OwnedValue>>, QueryError> {
    let doc = Value::Document(doc);
    let pending: Vec<_> =
        paths.iter().enumerate().map(|(at, path)| (at, doc, path.parts())).collect();
    let mut fixed = vec![Value::Null; paths.len()];
    let mut keys = Vec::new();
    expand(&pending, &mut fixed, &mut |key| {
        keys.push(key.iter().copied().map(OwnedValue::from).collect());
    })?;
    Ok(keys)
}

/// A part of the pattern whose value is not found yet: its index, where to look, and the rest of its path.
pub(crate) type Pending<'d, 'p> = (usize, Value<'d>, &'p [Box<[u8]>]);

/// Calls `emit` with every key that the arrays on the paths produce.
pub(crate) fn expand<'d>(
    pending: &[Pending<'d, '_>],
    fixed: &mut Vec<Value<'d>>,
    emit: &mut dyn FnMut(&[Value<'d>]),
) -> Result<(), QueryError> {
    let mut array: Option<&'d [u8]> = None;
    let mut through: Vec<(usize, &[Box<[u8]>])> = Vec::new();
    for &(at, start, path) in pending {
        match walk(start, path) {
            Walked::Value(value) => set(fixed, at, value),
            Walked::Array(found, rest) => {
                if array.is_some_and(|array| !std::ptr::eq(array, found)) {
                    return Err(QueryError::bad_value(
                        "cannot sort with keys that are parallel arrays",
                    ));
                }
                array = Some(found);
                through.push((at, rest));
            }
        }
    }
    let Some(array) = array else {
        emit(fixed);
        return Ok(());
    };
    // An array index selects one element, independently of the elements that the other paths are at.
    let mut below = Vec::new();
    let mut by_element = Vec::new();
    for (at, rest) in through {
        match position(array, rest)? {
            None => by_element.push((at, rest)),
            Some((value, [])) => set(fixed, at, whole(value)),
            Some((value @ (Value::Document(_) | Value::Array(_)), rest)) => {
                below.push((at, value, rest));
            }
            Some(_) => set(fixed, at, Value::Null),
        }
    }
    if by_element.is_empty() {
        return expand(&below, fixed, emit);
    }
    let positions = below.len();
    let mut empty = true;
    for element in Elements::of_bytes(array) {
        empty = false;
        below.truncate(positions);
        for &(at, rest) in &by_element {
            match element.value() {
                value if rest.is_empty() => set(fixed, at, value),
                value @ Value::Document(_) => below.push((at, value, rest)),
                _ => set(fixed, at, Value::Null),
            }
        }
        expand(&below, fixed, emit)?;
    }
    if empty {
        for &(at, rest) in &by_element {
            set(fixed, at, if rest.is_empty() { Value::Undefined } else { Value::Null });
        }
        emit(fixed);
    }
    Ok(())
}

/// An element selected by index is a key as it is, even an array; an empty array is undefined.
fn whole(value: Value<'_>) -> Value<'_> {
    let empty = matches!(value, Value::Array(_)) && value.elements().next().is_none();
    if empty { Value::Undefined } else { value }
}

fn set<'d>(fixed: &mut [Value<'d>], at: usize, value: Value<'d>) {
    if let Some(place) = fixed.get_mut(at) {
        *place = value;
    }
}

enum Walked<'d, 'p> {
    Value(Value<'d>),
    Array(&'d [u8], &'p [Box<[u8]>]),
}

/// Follows a path through documents, up to an array.
fn walk<'d, 'p>(start: Value<'d>, path: &'p [Box<[u8]>]) -> Walked<'d, 'p> {
    let mut value = start;
    let mut rest = path;
    loop {
        match (value, rest.split_first()) {
            (Value::Array(array), _) => return Walked::Array(array, rest),
            (Value::Missing, _) => return Walked::Value(Value::Null),
            (value, None) => return Walked::Value(value),
            (Value::Document(inner), Some((name, after))) => {
                value = Elements::of_bytes(inner).find(name).map_or(Value::Missing, |e| e.value());
                rest = after;
            }
            _ => return Walked::Value(Value::Null),
        }
    }
}

/// An element of an array, and the rest of the path after its index.
type Positioned<'d, 'p> = (Value<'d>, &'p [Box<[u8]>]);

/// The element that the first path component selects, if it is an index.
fn position<'d, 'p>(
    array: &'d [u8],
    path: &'p [Box<[u8]>],
) -> Result<Option<Positioned<'d, 'p>>, QueryError> {
    let Some((name, rest)) = path.split_first().filter(|(name, _)| is_index(name)) else {
        return Ok(None);
    };
    let Some(element) = Elements::of_bytes(array).find(name) else { return Ok(None) };
    // The number could also be a field name in one of the elements, which is ambiguous.
    let has_field = |value: Value<'_>| match value {
        Value::Document(inner) => Elements::of_bytes(inner).find(name).is_some(),
        _ => false,
    };
    if Elements::of_bytes(array).any(|e| has_field(e.value())) {
        return Err(QueryError::location(
            16_746,
            format!(
                "Ambiguous field name found in array (do not use numeric field names in embedded \
                 elements in an array), field: '{}' for array: {}",
                String::from_utf8_lossy(name),
                Shown(Value::Document(array))
            ),
        ));
    }
    Ok(Some((element.value(), rest)))
}

fn is_index(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(u8::is_ascii_digit)
}

/// An item to sort, with its key and arrival number.
#[derive(Debug)]
struct Entry<T> {
    key: SortKey,
    /// Equal keys keep their order of arrival.
    arrival: u64,
    item: T,
    pattern: Arc<SortPattern>,
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.pattern.compare(&self.key, &other.key).then(self.arrival.cmp(&other.arrival))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

/// Sorts items; with a limit it keeps no more than that many.
#[derive(Debug)]
pub struct Sorter<T> {
    pattern: Arc<SortPattern>,
    limit: Option<usize>,
    /// The greatest item is on top, so that a limit can drop it.
    heap: BinaryHeap<Entry<T>>,
    arrivals: u64,
    bytes: usize,
    memory_max: usize,
    bytes_of: fn(&T) -> usize,
}

impl<T> Sorter<T> {
    /// Creates a sorter. `bytes_of` is an item's size towards the memory limit.
    pub fn new(pattern: SortPattern, limit: Option<usize>, bytes_of: fn(&T) -> usize) -> Self {
        Self {
            pattern: Arc::new(pattern),
            limit,
            heap: BinaryHeap::new(),
            arrivals: 0,
            bytes: 0,
            memory_max: MEMORY_MAX,
            bytes_of,
        }
    }

    /// The pattern.
    pub fn pattern(&self) -> &SortPattern {
        &self.pattern
    }

    /// Adds an item.
    pub fn push(&mut self, key: SortKey, item: T) {
        let entry = Entry { key, arrival: self.arrivals, item, pattern: Arc::clone(&self.pattern) };
        self.arrivals += 1;
        let full = self.limit.is_some_and(|limit| self.heap.len() >= limit);
        if full && self.heap.peek().is_none_or(|greatest| *greatest <= entry) {
            return;
        }
        self.bytes += entry.key.size() + (self.bytes_of)(&entry.item);
        self.heap.push(entry);
        if full && let Some(dropped) = self.heap.pop() {
            self.bytes -= dropped.key.size() + (self.bytes_of)(&dropped.item);
        }
    }

    /// The key of a document, unless the limit would drop the document at once.
    pub(crate) fn key_if_kept(&self, row: Seen<'_>) -> Result<Option<SortKey>, QueryError> {
        let full = self.limit.is_some_and(|limit| self.heap.len() >= limit);
        let Some(greatest) = self.heap.peek().filter(|_| full) else {
            let none = self.limit == Some(0);
            return if none { Ok(None) } else { self.pattern.key_of(row).map(Some) };
        };
        if !self.pattern.has_notes()
            && let Some(Ordering::Equal | Ordering::Greater) =
                self.pattern.compare_plain(row.doc, &greatest.key)
        {
            return Ok(None);
        }
        let key = self.pattern.key_of(row)?;
        Ok((self.pattern.compare(&key, &greatest.key) == Ordering::Less).then_some(key))
    }

    /// The memory limit.
    pub(crate) fn memory_max(&self) -> usize {
        self.memory_max
    }

    /// Sets a memory limit other than [`MEMORY_MAX`].
    pub fn set_memory_max(&mut self, bytes: usize) {
        self.memory_max = bytes;
    }

    /// Memory used. Above [`Sorter::memory_max`] the caller takes a sorted run with [`Sorter::take_run`] and spills
    /// it, or fails with [`memory_exceeded`].
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes all items, sorted; the sorter is empty afterwards.
    pub(crate) fn take_run(&mut self) -> impl Iterator<Item = (SortKey, T)> + use<T> {
        self.bytes = 0;
        let sorted = std::mem::take(&mut self.heap).into_sorted_vec();
        sorted.into_iter().map(|entry| (entry.key, entry.item))
    }
}

/// mongod's error for a sort that exceeds the memory limit.
pub(crate) fn memory_exceeded() -> QueryError {
    QueryError::location(
        292,
        format!(
            "Sort exceeded memory limit of {MEMORY_MAX} bytes, but did not opt in to external \
             sorting."
        ),
    )
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    /// The expected keys are those that mongod's `$meta: "sortKey"` returned for the same documents.
    #[test]
    fn positions_of_arrays_are_keys_as_they_are() {
        let key = |pattern: &RawDocument, doc: &RawDocument| {
            let pattern = SortPattern::parse(pattern, None).unwrap();
            pattern.key(doc.as_bytes()).map(|key| {
                key.values().map(|value| Shown(value).to_string()).collect::<Vec<_>>().join(" ")
            })
        };
        for (pattern, doc, want) in [
            (rawdoc! { "a.0": 1 }, rawdoc! { "a": [[3, 0], 1] }, "[ 3, 0 ]"),
            (rawdoc! { "a.0": 1 }, rawdoc! { "a": [[]] }, "undefined"),
            (rawdoc! { "a.0": 1 }, rawdoc! { "a": [] }, "null"),
            (rawdoc! { "a.0": 1 }, rawdoc! { "a": { "0": [8, 2] } }, "2"),
            (rawdoc! { "a.0.x": 1 }, rawdoc! { "a": [[{ "x": 0 }]] }, "0"),
            (rawdoc! { "a.0.0": 1 }, rawdoc! { "a": [[[1]]] }, "[ 1 ]"),
            (rawdoc! { "a.5": 1 }, rawdoc! { "a": [{ "5": 1 }] }, "1"),
            (rawdoc! { "a": 1, "a.1.1": 1 }, rawdoc! { "a": [1, [7, 8]] }, "1 8"),
            (rawdoc! { "a.0": 1, "a": 1 }, rawdoc! { "a": [2, 1] }, "2 1"),
        ] {
            assert_eq!(key(&pattern, &doc).unwrap(), want, "{pattern:?} of {doc:?}");
        }
        let code = |pattern: &RawDocument, doc: &RawDocument| {
            key(pattern, doc).map_err(|error| error.code.code())
        };
        let parallel = code(&rawdoc! { "a.0": 1, "b": 1 }, &rawdoc! { "a": [1], "b": [2] });
        assert_eq!(parallel, Err(2));
        assert_eq!(code(&rawdoc! { "a.1": 1 }, &rawdoc! { "a": [{ "1": 3 }, 1] }), Err(16_746));
    }
}
