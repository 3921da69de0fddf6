//! Shows index scans in mongod's format.

use bson::RawDocumentBuf;

use super::{Ran, direction_text, examined, filter_doc, finish, progress};
use crate::{
    exec::IndexScan,
    expression::{DocBuilder, array_bytes},
    planner::Interval,
    source::{Direction, Edge, IndexInfo, IndexKind, KeyRange},
    value::{OwnedValue, Shown, Value},
};

/// `returned` is the number of keys it returned, if known.
pub(super) fn index_scan(
    scan: &IndexScan,
    indexes: &[IndexInfo],
    ran: Option<&Ran>,
    returned: Option<u64>,
) -> RawDocumentBuf {
    let filter = scan.key_filter.as_ref().map(|filter| filter_doc(filter.root()));
    filtered_scan(scan, indexes, ran, filter.as_ref(), returned)
}

pub(super) fn filtered_scan(
    scan: &IndexScan,
    indexes: &[IndexInfo],
    ran: Option<&Ran>,
    filter: Option<&RawDocumentBuf>,
    returned: Option<u64>,
) -> RawDocumentBuf {
    let mut doc = DocBuilder::new();
    let distinct = scan.distinct.is_some();
    doc.push(b"stage", Value::String(if distinct { b"DISTINCT_SCAN" } else { b"IXSCAN" }));
    if let Some(filter) = filter {
        doc.push(b"filter", Value::from(&**filter));
    }
    if let Some(ran) = ran {
        let all = if scan.key_filter.is_some() { ran.examined.given } else { ran.examined.keys };
        progress(&mut doc, returned.unwrap_or(all), ran);
    }
    let Some(index) = indexes.get(scan.index) else { return finish(doc) };
    let fields = key_fields(index, scan);
    describe_index(&mut doc, index, scan);
    if distinct {
        doc.push(b"isShardFiltering", Value::Bool(false));
        doc.push(b"isFetching", Value::Bool(index.collation.is_some()));
    }
    doc.push(b"direction", direction_text(scan.direction));
    let bounds = match index.kind {
        IndexKind::Text if !scan.ranges.iter().any(is_whole) => RawDocumentBuf::new(),
        _ => bounds(&fields, scan),
    };
    doc.push(b"indexBounds", Value::from(&*bounds));
    examined(&mut doc, ran, true, distinct);
    finish(doc)
}

fn is_whole(range: &KeyRange) -> bool {
    range.prefix.is_empty() && range.edges.is_none()
}

/// A COUNT_SCAN: counts the keys of one range without examining them.
pub(super) fn count_scan(
    scan: &IndexScan,
    indexes: &[IndexInfo],
    ran: Option<&Ran>,
) -> RawDocumentBuf {
    let plain = scan.is_plain() && scan.key_filter.is_none();
    let (Some(index), [range], true) = (indexes.get(scan.index), scan.ranges.as_slice(), plain)
    else {
        return index_scan(scan, indexes, ran, None);
    };
    let mut doc = DocBuilder::new();
    doc.push(b"stage", Value::String(b"COUNT_SCAN"));
    if let Some(ran) = ran {
        progress(&mut doc, ran.examined.keys, ran);
    }
    describe_index(&mut doc, index, scan);
    let (mut from, mut to) = (DocBuilder::new(), DocBuilder::new());
    let (mut from_in, mut to_in) = (true, true);
    for (at, field) in index.fields.iter().enumerate() {
        let edges = match (range.prefix.get(at), &range.edges) {
            (Some(value), _) => (value.get(), value.get()),
            (None, Some((low, high))) if at == range.prefix.len() => {
                (from_in, to_in) = if field.ascending {
                    (low.inclusive, high.inclusive)
                } else {
                    (high.inclusive, low.inclusive)
                };
                (low.value.get(), high.value.get())
            }
            // An excluded edge excludes all keys that begin with it.
            _ => (
                if from_in { Value::MinKey } else { Value::MaxKey },
                if to_in { Value::MaxKey } else { Value::MinKey },
            ),
        };
        let (first, last) = if field.ascending { edges } else { (edges.1, edges.0) };
        from.push(field.path.dotted(), first);
        to.push(field.path.dotted(), last);
    }
    let mut bounds = DocBuilder::new();
    bounds.push(b"startKey", Value::Document(&from.finish()));
    bounds.push(b"startKeyInclusive", Value::Bool(from_in));
    bounds.push(b"endKey", Value::Document(&to.finish()));
    bounds.push(b"endKeyInclusive", Value::Bool(to_in));
    doc.push(b"indexBounds", Value::Document(&bounds.finish()));
    examined(&mut doc, ran, true, false);
    finish(doc)
}

/// Adds the description of an index.
fn describe_index(doc: &mut DocBuilder, index: &IndexInfo, scan: &IndexScan) {
    if index.kind == IndexKind::Wildcard {
        let mut pattern = DocBuilder::new();
        key_fields(index, scan).iter().for_each(|(name, _)| pattern.push(name, Value::Int32(1)));
        doc.push(b"keyPattern", Value::Document(&pattern.finish()));
    } else if let Ok(key) = index.spec.get_document("key") {
        doc.push(b"keyPattern", Value::from(key));
    }
    doc.push(b"indexName", Value::String(index.name.as_bytes()));
    if let Ok(collation) = index.spec.get_document("collation") {
        doc.push(b"collation", Value::from(collation));
    }
    doc.push(b"isMultiKey", Value::Bool(index.is_multikey()));
    if index.name != "_id_" && !matches!(index.kind, IndexKind::Text | IndexKind::Hashed) {
        doc.push(b"multiKeyPaths", Value::from(&*multikey_paths(index)));
    }
    doc.push(b"isUnique", Value::Bool(index.unique));
    doc.push(b"isSparse", Value::Bool(index.sparse));
    doc.push(b"isPartial", Value::Bool(index.partial.is_some()));
    doc.push(b"indexVersion", Value::Int32(index.spec.get_i32("v").unwrap_or(2)));
}

fn multikey_paths(index: &IndexInfo) -> RawDocumentBuf {
    let mut doc = DocBuilder::new();
    for field in &index.fields {
        let paths: Vec<Vec<u8>> = field
            .multikey
            .iter()
            .map(|at| {
                field.path.parts().iter().take(at + 1).cloned().collect::<Vec<_>>().join(&b'.')
            })
            .collect();
        let list = array_bytes(paths.iter().map(|path| Value::String(path)));
        doc.push(field.path.dotted(), Value::Array(&list));
    }
    finish(doc)
}

/// The fields of the index's keys and whether they ascend. A wildcard index has the path and its value.
fn key_fields(index: &IndexInfo, scan: &IndexScan) -> Vec<(Vec<u8>, bool)> {
    let path = scan.ranges.first().and_then(|range| range.prefix.first()).map(OwnedValue::get);
    match path {
        Some(Value::String(path)) if index.kind == IndexKind::Wildcard => {
            vec![(b"$_path".to_vec(), true), (path.to_vec(), true)]
        }
        _ => index.fields.iter().map(|f| (f.path.dotted().to_vec(), f.ascending)).collect(),
    }
}

/// For each field the intervals that the ranges cover.
fn bounds(fields: &[(Vec<u8>, bool)], scan: &IndexScan) -> RawDocumentBuf {
    let mut doc = DocBuilder::new();
    for (at, (name, ascending)) in fields.iter().enumerate() {
        let forward = *ascending == (scan.direction == Direction::Forward);
        if let Some(intervals) = scan.bounds.get(at) {
            let mut texts: Vec<_> = intervals.iter().map(|i| within(i, forward)).collect();
            if !forward {
                texts.reverse();
            }
            let list = array_bytes(texts.iter().map(|text| Value::String(text.as_bytes())));
            doc.push(name, Value::Array(&list));
            continue;
        }
        let mut texts: Vec<String> = Vec::new();
        for range in &scan.ranges {
            let text = interval(range, at, forward);
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        if scan.direction == Direction::Backward {
            texts.reverse();
        }
        let list = array_bytes(texts.iter().map(|text| Value::String(text.as_bytes())));
        doc.push(name, Value::Array(&list));
    }
    finish(doc)
}

fn within(interval: &Interval, forward: bool) -> String {
    edges(&interval.low, &interval.high, forward)
}

fn edges(low: &Edge, high: &Edge, forward: bool) -> String {
    let (first, last) = if forward { (low, high) } else { (high, low) };
    format!(
        "{}{}, {}{}",
        if first.inclusive { '[' } else { '(' },
        Shown(first.value.get()),
        Shown(last.value.get()),
        if last.inclusive { ']' } else { ')' }
    )
}

fn interval(range: &KeyRange, at: usize, forward: bool) -> String {
    if let Some(value) = range.prefix.get(at) {
        return format!("[{0}, {0}]", Shown(value.get()));
    }
    match &range.edges {
        Some((low, high)) if at == range.prefix.len() => edges(low, high, forward),
        _ if forward => "[MinKey, MaxKey]".into(),
        _ => "[MaxKey, MinKey]".into(),
    }
}
