//! A document on its way through a pipeline, and beside it what is known of it that is not one of its fields.

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
    /// What is known of it besides.
    pub notes: Notes,
}

impl Noted {
    /// Another document in the place of this one, with the same notes.
    #[must_use]
    pub fn with(&self, doc: RawDoc) -> Self {
        Self { doc, notes: self.notes.clone() }
    }

    /// The row, to be looked at.
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

/// What is known of a document besides its fields: a BSON document with the names of `$meta`. Most have none.
#[derive(Debug, Clone, Default)]
pub struct Notes(Option<Arc<[u8]>>);

const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

impl Notes {
    /// These notes.
    pub(super) fn new(notes: DocBuilder) -> Self {
        Self(Some(notes.finish().into()))
    }

    /// As a document, empty if there are none.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or(EMPTY)
    }

    /// A note by its name.
    pub fn get(&self, name: &[u8]) -> Option<Value<'_>> {
        Elements::of_bytes(self.0.as_deref()?).find(name).map(|note| note.value())
    }
}

/// A row that is looked at where it lies.
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

/// Rows that were spilled: each document is followed by its notes.
#[derive(Debug)]
pub(crate) struct SpilledNoted(Box<dyn SpilledRun>);

impl SpilledNoted {
    /// Spills rows.
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
