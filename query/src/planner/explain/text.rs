//! The stages of a text search.
//!
//! ```text
//!   FETCH {the rest of the filter} <- TEXT_MATCH <- FETCH <- OR   <- IXSCAN for each term
//!                        with scores: TEXT_MATCH <- TEXT_OR       <- IXSCAN for each term
//!   FETCH <- OR <- TEXT_MATCH ..., IXSCAN of another branch
//! ```

use bson::RawDocumentBuf;

use super::{Counts, above, examined, filter_doc, filtered_scan, finish, index_scan, progress};
use crate::{
    exec::TextScan,
    expression::{DocBuilder, array_bytes},
    matcher::Node,
    planner::{bounds::conjuncts, text::equality},
    source::IndexInfo,
    value::Value,
};

/// The stages of a text search.
pub(super) fn stage(
    text: &TextScan,
    indexes: &[IndexInfo],
    counts: &mut Counts<'_>,
) -> RawDocumentBuf {
    let returned = counts.next();
    if !text.others.is_empty() {
        let mut inputs = vec![text_match(text, None, indexes, counts, None)];
        let others = text.others.iter();
        inputs.extend(others.map(|scan| index_scan(scan, indexes, counts.ran, None)));
        let or = many("OR", inputs, counts);
        let parts: Vec<Node> = conjuncts(text.filter.root())
            .into_iter()
            .filter(|part| crate::matcher::text_nodes(part).is_empty())
            .cloned()
            .collect();
        return above(fetch(all_of(parts).as_ref(), returned, counts), &or);
    }
    let (after, rest) = rest_of(text, indexes);
    let below = text_match(text, after.as_ref(), indexes, counts, returned);
    match rest {
        Some(rest) => above(fetch(Some(&rest), returned, counts), &below),
        None => below,
    }
}

/// The parts of the filter that can be tested on keys, and those that need the document. The scan itself tests the
/// fields before the terms.
fn rest_of(
    text: &TextScan,
    indexes: &[IndexInfo],
) -> (Option<RawDocumentBuf>, Option<RawDocumentBuf>) {
    let index = indexes.get(text.index);
    let fields: Vec<&[u8]> =
        index.map_or(Vec::new(), |index| index.fields.iter().map(|f| f.path.dotted()).collect());
    let place = |node: &Node| match node {
        Node::Leaf(leaf) => {
            let path = leaf.path.as_ref()?.dotted();
            fields.iter().position(|field| *field == path)
        }
        _ => None,
    };
    let before = text.prefix.len();
    let (mut after, mut rest) = (Vec::new(), Vec::new());
    for part in conjuncts(text.filter.root()) {
        match (part, place(part)) {
            (Node::Text(_), _) => {}
            (_, Some(at)) if at < before && equality(part).is_some() => {}
            (_, Some(at)) if at > before + 1 => after.push(part.clone()),
            _ => rest.push(part.clone()),
        }
    }
    (all_of(after), all_of(rest))
}

fn all_of(mut parts: Vec<Node>) -> Option<RawDocumentBuf> {
    match parts.len() {
        0 => None,
        1 => parts.pop().map(|only| filter_doc(&only)),
        _ => Some(filter_doc(&Node::And(parts))),
    }
}

fn text_match(
    text: &TextScan,
    after: Option<&RawDocumentBuf>,
    indexes: &[IndexInfo],
    counts: &Counts<'_>,
    returned: Option<u64>,
) -> RawDocumentBuf {
    let by_scan = after.filter(|_| !text.scored);
    let mut scans: Vec<_> = text
        .terms
        .iter()
        .map(|scan| filtered_scan(scan, indexes, counts.ran, by_scan, None))
        .collect();
    let below = if text.scored {
        let mut doc = begun("TEXT_OR", None, counts);
        if let Some(filter) = after {
            doc.push(b"filter", Value::from(&**filter));
        }
        examined(&mut doc, counts.ran, false, true);
        match (scans.pop(), scans.is_empty()) {
            (None, _) => above(doc, &nothing()),
            (Some(only), true) => above(doc, &only),
            (Some(last), false) => {
                scans.push(last);
                listed(doc, &scans)
            }
        }
    } else {
        let walk = match (scans.pop(), scans.is_empty()) {
            (None, _) => nothing(),
            (Some(only), true) => only,
            (Some(last), false) => {
                scans.push(last);
                many("OR", scans, counts)
            }
        };
        above(fetch(None, None, counts), &walk)
    };
    let mut doc = begun("TEXT_MATCH", returned, counts);
    let index = indexes.get(text.index);
    let mut prefix = DocBuilder::new();
    let fields = index.into_iter().flat_map(|index| &index.fields);
    for (field, value) in fields.zip(&text.prefix) {
        prefix.push(field.path.dotted(), value.get());
    }
    doc.push(b"indexPrefix", Value::Document(&prefix.finish()));
    let name = index.map_or("", |index| &index.name);
    doc.push(b"indexName", Value::String(name.as_bytes()));
    let mut parsed = DocBuilder::new();
    for (name, texts) in text.query.parts() {
        let list = array_bytes(texts.iter().map(|text| Value::String(text.as_bytes())));
        parsed.push(name.as_bytes(), Value::Array(&list));
    }
    doc.push(b"parsedTextQuery", Value::Document(&parsed.finish()));
    doc.push(b"textIndexVersion", Value::Int32(text.query.spec().version().number()));
    if let (Some(ran), Some(returned)) = (counts.ran, returned) {
        let rejected = ran.examined.docs.saturating_sub(returned);
        doc.push(b"docsRejected", super::number(rejected));
    }
    above(doc, &below)
}

fn nothing() -> RawDocumentBuf {
    let mut doc = DocBuilder::new();
    doc.push(b"stage", Value::String(b"EOF"));
    doc.push(b"type", Value::String(b"predicateEvalsToFalse"));
    finish(doc)
}

fn begun(stage: &str, returned: Option<u64>, counts: &Counts<'_>) -> DocBuilder {
    let mut doc = DocBuilder::new();
    doc.push(b"stage", Value::String(stage.as_bytes()));
    if let Some(ran) = counts.ran {
        progress(&mut doc, returned.unwrap_or(ran.examined.docs), ran);
    }
    doc
}

fn fetch(
    filter: Option<&RawDocumentBuf>,
    returned: Option<u64>,
    counts: &Counts<'_>,
) -> DocBuilder {
    let mut doc = DocBuilder::new();
    doc.push(b"stage", Value::String(b"FETCH"));
    if let Some(filter) = filter {
        doc.push(b"filter", Value::from(&**filter));
    }
    if let Some(ran) = counts.ran {
        progress(&mut doc, returned.unwrap_or(ran.examined.docs), ran);
    }
    examined(&mut doc, counts.ran, false, true);
    doc
}

fn many(stage: &str, inputs: Vec<RawDocumentBuf>, counts: &Counts<'_>) -> RawDocumentBuf {
    listed(begun(stage, None, counts), &inputs)
}

fn listed(mut doc: DocBuilder, inputs: &[RawDocumentBuf]) -> RawDocumentBuf {
    let list = array_bytes(inputs.iter().map(|stage| Value::from(&**stage)));
    doc.push(b"inputStages", Value::Array(&list));
    finish(doc)
}
