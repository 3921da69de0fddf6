//! A row of a pipeline: a document and its notes, the metadata that `$meta` returns and that is not part of the
//! document.

use std::{ops::Deref, sync::Arc};

use protocol::RawDoc;

use crate::{
    context::{Spill, SpilledRun},
    error::QueryError,
    expression::DocBuilder,
    stage::to_doc,
    value::{Elements, Value},
};

/// A document and its notes.
#[derive(Debug, Clone)]
pub struct Noted {
    /// The document.
    pub doc: RawDoc,
    /// The metadata of the document.
    pub notes: Notes,
}

impl Noted {
    /// Replaces the document and keeps the notes.
    #[must_use]
    pub fn with(&self, doc: RawDoc) -> Self {
        Self { doc, notes: self.notes.clone() }
    }

    /// A borrowed view of the row.
    pub fn seen(&self) -> Seen<'_> {
        Seen { doc: self.doc.as_bytes(), notes: self.notes.bytes() }
    }
}

impl From<RawDoc> for Noted {
    fn from(doc: RawDoc) -> Self {
        Self { doc, notes: Notes::default() }
    }
}

impl Deref for Noted {
    type Target = RawDoc;

    fn deref(&self) -> &RawDoc {
        &self.doc
    }
}

/// The metadata of a document: a BSON document whose field names are those of `$meta`. Most documents have none.
#[derive(Debug, Clone, Default)]
pub struct Notes(Option<Arc<[u8]>>);

const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

impl Notes {
    /// Notes with these fields.
    pub(super) fn new(notes: DocBuilder) -> Self {
        Self(Some(notes.finish().into()))
    }

    /// The notes as a BSON document, which is empty if there are none.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or(EMPTY)
    }

    /// The value of a note.
    pub fn get(&self, name: &[u8]) -> Option<Value<'_>> {
        Elements::of_bytes(self.0.as_deref()?).find(name).map(|note| note.value())
    }
}

/// A borrowed row.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'d> {
    /// The bytes of the document.
    pub doc: &'d [u8],
    /// The bytes of its notes.
    pub notes: &'d [u8],
}

impl<'d> Seen<'d> {
    /// A document without notes.
    pub fn plain(doc: &'d [u8]) -> Self {
        Self { doc, notes: EMPTY }
    }
}

/// Spilled rows. Each document is followed by its notes.
#[derive(Debug)]
pub(crate) struct SpilledNoted(Box<dyn SpilledRun>);

impl SpilledNoted {
    /// Writes rows to a spill file.
    pub(crate) fn write(
        spill: &dyn Spill,
        rows: &mut dyn Iterator<Item = Noted>,
    ) -> Result<Self, QueryError> {
        let mut failed = Ok(());
        let mut docs = rows.flat_map(|row| {
            let notes = to_doc(row.notes.bytes().to_vec());
            [Ok(row.doc), notes].map(|doc| doc.map_err(|error| failed = Err(error)))
        });
        let run = spill.write(&mut docs.by_ref().map_while(Result::ok))?;
        drop(docs);
        failed.map(|()| Self(run))
    }

    /// The next row.
    pub(crate) fn next(&mut self) -> Result<Option<Noted>, QueryError> {
        let Some(doc) = self.0.next()? else { return Ok(None) };
        let notes = self.0.next()?.filter(|notes| !notes.is_empty());
        Ok(Some(Noted { doc, notes: Notes(notes.map(|notes| notes.as_bytes().into())) }))
    }
}
