//! Metadata of documents: where a document was found, its sort key, its text score.
//!
//! ```text
//!   scan -> filter -> [Annotate] -> sort -> skip -> limit -> [Reveal]
//!                      doc + notes .......................... projection sees them as $meta
//! ```
//! Within a pipeline the metadata (notes) is stored in the document's last field, whose name no client can write
//! because it is not UTF-8.

use bson::RawDocument;
use protocol::RawDoc;

use super::{Stage, Upstream};
use crate::{
    error::QueryError,
    expression::DocBuilder,
    projection::Projection,
    sort::SortPattern,
    stage::to_doc,
    value::{Elements, Value},
};

/// The field that holds the notes.
pub(crate) const NOTES: &[u8] = b"\xff";
/// The names of the notes, as in `$meta`.
pub(crate) const RECORD_ID: &[u8] = b"recordId";
pub(crate) const INDEX_KEY: &[u8] = b"indexKey";
pub(crate) const SORT_KEY: &[u8] = b"sortKey";
pub(crate) const TEXT_SCORE: &[u8] = b"textScore";

/// Records where each document was found. It must be directly above the filter, while the scan is still at that
/// document.
#[derive(Debug)]
pub struct Annotate {
    /// The sort whose key becomes `sortKey`.
    pub sort: Option<SortPattern>,
}

impl Stage for Annotate {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<RawDoc>, QueryError> {
        let Some(doc) = up.pull()? else { return Ok(None) };
        let mut notes = DocBuilder::new();
        let (plain, scored) = if up.carries_scores() { split(&doc)? } else { (doc.clone(), EMPTY) };
        for note in Elements::of_bytes(scored) {
            notes.push_raw(note.bytes);
        }
        if let Some(record) = up.record_id() {
            notes.push(RECORD_ID, record.get());
        }
        if let Some(key) = up.index_key(&doc)? {
            notes.push(INDEX_KEY, Value::from(&*key));
        }
        if let Some(sort) = &self.sort {
            let key = sort.key(doc.as_bytes())?;
            let values = crate::expression::array_bytes(key.values());
            notes.push(SORT_KEY, Value::Array(&values));
        }
        with_notes(&plain, &notes.finish()).map(Some)
    }
}

pub(super) fn with_notes(doc: &RawDocument, notes: &[u8]) -> Result<RawDoc, QueryError> {
    let mut noted = DocBuilder::new();
    for field in Elements::new(doc) {
        noted.push_raw(field.bytes);
    }
    noted.push(NOTES, Value::Document(notes));
    to_doc(noted.finish())
}

/// The document with its text score.
pub(super) fn with_score(doc: &RawDocument, score: f64) -> Result<RawDoc, QueryError> {
    let mut notes = DocBuilder::new();
    notes.push(TEXT_SCORE, Value::Double(score));
    with_notes(doc, &notes.finish())
}

/// The document without its notes.
pub(crate) fn without_notes(doc: &[u8]) -> Vec<u8> {
    let mut plain = DocBuilder::new();
    for field in Elements::of_bytes(doc).filter(|field| field.key != NOTES) {
        plain.push_raw(field.bytes);
    }
    plain.finish()
}

/// `new`, which replaces `old`, with the notes of `old`.
pub(crate) fn with_notes_of(new: Vec<u8>, old: &[u8]) -> Vec<u8> {
    let Some(notes) = Elements::of_bytes(old).find(NOTES) else { return new };
    let mut noted = DocBuilder::new();
    for field in Elements::of_bytes(&new).filter(|field| field.key != NOTES) {
        noted.push_raw(field.bytes);
    }
    noted.push_raw(notes.bytes);
    noted.finish()
}

/// Removes the notes when they are no longer needed.
#[derive(Debug)]
pub struct Forget;

impl Stage for Forget {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<RawDoc>, QueryError> {
        let Some(doc) = up.pull()? else { return Ok(None) };
        to_doc(without_notes(doc.as_bytes())).map(Some)
    }
}

/// Splits a document into its fields and its notes.
fn split(doc: &RawDoc) -> Result<(RawDoc, &[u8]), QueryError> {
    let mut plain = DocBuilder::new();
    let mut notes = EMPTY;
    for field in Elements::new(doc) {
        match (field.key, field.value()) {
            (NOTES, Value::Document(found)) => notes = found,
            _ => plain.push_raw(field.bytes),
        }
    }
    Ok((to_doc(plain.finish())?, notes))
}

const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

/// Produces the result from a document and its notes.
#[derive(Debug)]
pub struct Reveal {
    /// The projection, which may use notes.
    pub projection: Option<Projection>,
    /// `showRecordId`.
    pub record_id: bool,
    /// `returnKey`: return the index key instead of the document, and the sort key in the named fields.
    pub key: Option<Vec<Box<[u8]>>>,
}

impl Stage for Reveal {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<RawDoc>, QueryError> {
        let Some(doc) = up.pull()? else { return Ok(None) };
        let (plain, notes) = split(&doc)?;
        let noted = |name: &[u8]| Elements::of_bytes(notes).find(name).map(|note| note.value());
        let mut shown = DocBuilder::new();
        if let Some(sort_keys) = &self.key {
            for field in noted(INDEX_KEY).into_iter().flat_map(Value::elements) {
                shown.push_raw(field.bytes);
            }
            for name in sort_keys {
                shown.push(name, noted(SORT_KEY).unwrap_or(Value::Missing));
            }
            return to_doc(shown.finish()).map(Some);
        }
        let plain = match &self.projection {
            Some(projection) => projection.apply_noted(&plain, notes, up.context())?.into(),
            None => plain,
        };
        if !self.record_id {
            return Ok(Some(plain));
        }
        for field in Elements::new(&plain) {
            shown.push_raw(field.bytes);
        }
        shown.push(b"$recordId", noted(RECORD_ID).unwrap_or(Value::Missing));
        to_doc(shown.finish()).map(Some)
    }
}
