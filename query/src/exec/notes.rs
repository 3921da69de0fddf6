//! Adds notes (metadata) to documents: where each was found, and its sort key.
//!
//! ```text
//!   scan -> filter -> [Annotate] -> sort -> skip -> limit -> [Reveal]
//!                      doc | notes .......................... projection reads the notes by $meta
//! ```

use protocol::RawDoc;

use super::{Noted, Notes, Stage, Upstream};
use crate::{
    error::QueryError,
    expression::DocBuilder,
    projection::Projection,
    sort::SortPattern,
    stage::to_doc,
    value::{Elements, Value},
};

/// The names of the notes, as in `$meta`.
pub(crate) const RECORD_ID: &[u8] = b"recordId";
pub(crate) const INDEX_KEY: &[u8] = b"indexKey";
pub(crate) const SORT_KEY: &[u8] = b"sortKey";
pub(crate) const TEXT_SCORE: &[u8] = b"textScore";

/// Records where each document was found. It must come right after the filter, while the scan is still at the
/// document.
#[derive(Debug)]
pub struct Annotate {
    /// The pattern of the `sortKey` note.
    pub sort: Option<SortPattern>,
}

impl Stage for Annotate {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        let Some(row) = up.pull()? else { return Ok(None) };
        let mut notes = DocBuilder::new();
        for note in Elements::of_bytes(row.notes.bytes()) {
            notes.push_raw(note.bytes);
        }
        if let Some(record) = up.record_id() {
            notes.push(RECORD_ID, record.get());
        }
        if let Some(key) = up.index_key(&row)? {
            notes.push(INDEX_KEY, Value::from(&*key));
        }
        if let Some(sort) = &self.sort {
            let key = sort.key_of(row.seen())?;
            let values = crate::expression::array_bytes(key.values());
            notes.push(SORT_KEY, Value::Array(&values));
        }
        Ok(Some(Noted { doc: row.doc, notes: Notes::new(notes) }))
    }
}

/// A document with its text search score as a note.
pub(super) fn with_score(doc: RawDoc, score: f64) -> Noted {
    let mut notes = DocBuilder::new();
    notes.push(TEXT_SCORE, Value::Double(score));
    Noted { doc, notes: Notes::new(notes) }
}

/// Builds the result from a document and its notes.
#[derive(Debug)]
pub struct Reveal {
    /// The projection, which may use the notes.
    pub projection: Option<Projection>,
    /// `showRecordId`.
    pub record_id: bool,
    /// `returnKey`: return the index key instead of the document, and the sort key in each of these fields.
    pub key: Option<Vec<Box<[u8]>>>,
}

impl Stage for Reveal {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        let Some(Noted { doc, notes }) = up.pull()? else { return Ok(None) };
        let mut shown = DocBuilder::new();
        if let Some(sort_keys) = &self.key {
            for field in notes.get(INDEX_KEY).into_iter().flat_map(Value::elements) {
                shown.push_raw(field.bytes);
            }
            for name in sort_keys {
                shown.push(name, notes.get(SORT_KEY).unwrap_or(Value::Missing));
            }
            return Ok(Some(to_doc(shown.finish())?.into()));
        }
        let doc = match &self.projection {
            Some(projection) => projection.apply_noted(&doc, notes.bytes(), up.context())?.into(),
            None => doc,
        };
        if !self.record_id {
            return Ok(Some(doc.into()));
        }
        for field in Elements::new(&doc) {
            shown.push_raw(field.bytes);
        }
        shown.push(b"$recordId", notes.get(RECORD_ID).unwrap_or(Value::Missing));
        Ok(Some(to_doc(shown.finish())?.into()))
    }
}
