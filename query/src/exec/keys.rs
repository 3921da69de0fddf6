//! What an index key shows of its document.
//!
//! ```text
//!   index { a: 1, "n.x": -1 }    key 5, "k"    ->   { a: 5, n: { x: "k" } }
//! ```
//! A filter on indexed fields is checked on this document, and a covered query returns it instead of the stored one.
//! Missing fields appear as null. Some keys do not determine all of their values, for example those of decimals and
//! documents; then the stored document is read.

use protocol::RawDoc;

use super::{IndexScan, Noted, Notes, Stage, Upstream};
use crate::{
    error::QueryError,
    expression::DocBuilder,
    matcher::Matcher,
    source::{IndexEntry, IndexInfo, RecordKey, Source},
    stage::to_doc,
    value::{Elements, OwnedValue, Value},
};

/// The name of the note that holds a key's record key.
const RECORD: &[u8] = b"record";

/// A key as a document, with its record key as a note.
pub(super) fn with_record(key: Vec<u8>, record: &RecordKey) -> Result<Noted, QueryError> {
    let mut notes = DocBuilder::new();
    notes.push(RECORD, Value::Binary { subtype: 0, bytes: &record.0 });
    Ok(Noted { doc: to_doc(key)?, notes: Notes::new(notes) })
}

/// Fetches the documents of keys. A document that changed since its key was read must still match the filter.
#[derive(Debug)]
pub struct Fetch(pub Matcher);

impl Stage for Fetch {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        while let Some(key) = up.pull()? {
            let Some(Value::Binary { bytes, .. }) = key.notes.get(RECORD) else { continue };
            let Some(doc) = up.fetch(&RecordKey(bytes.into()))? else { continue };
            // Keys from an earlier batch belong to an earlier timestamp.
            if up.has_scanned() || self.0.check_bytes(doc.as_bytes(), up.context())? {
                return Ok(Some(doc.into()));
            }
        }
        Ok(None)
    }
}

/// The result of decoding a key.
pub(super) struct Looked {
    /// The key's fields as a document.
    pub(super) key: Vec<u8>,
    /// The stored document, if it was available or had to be read.
    pub(super) doc: Option<RawDoc>,
    /// The document had to be read.
    pub(super) fetched: bool,
}

/// The key of an entry as a document; `None` if the key does not determine it and its record no longer exists.
pub(super) fn look(
    (scan, index): (&IndexScan, usize),
    entry: &IndexEntry,
    doc: Option<RawDoc>,
    source: &dyn Source,
) -> Result<Option<Looked>, QueryError> {
    let Some(info) = source.indexes().get(index) else { return Ok(None) };
    // If the index became multikey at more paths since planning, keys no longer show the wanted values, so the
    // documents are used.
    if info.arrays() != scan.arrays {
        let fetched = doc.is_none();
        let Some(doc) = doc.map_or_else(|| source.fetch(&entry.record), |doc| Ok(Some(doc)))?
        else {
            return Ok(None);
        };
        return Ok(Some(Looked { key: doc.as_bytes().to_vec(), doc: Some(doc), fetched }));
    }
    let key_of = |doc: &RawDoc| match info.is_multikey() {
        true => of_entry(index, info, entry, doc, source),
        false => Ok(of_document(info, doc)),
    };
    if let Some(doc) = doc {
        return Ok(Some(Looked { key: key_of(&doc)?, doc: Some(doc), fetched: false }));
    }
    if let Some(values) = source.key_values(index, entry) {
        return Ok(Some(Looked { key: with_values(info, &values), doc: None, fetched: false }));
    }
    let Some(doc) = source.fetch(&entry.record)? else { return Ok(None) };
    Ok(Some(Looked { key: key_of(&doc)?, doc: Some(doc), fetched: true }))
}

fn with_values(info: &IndexInfo, values: &[OwnedValue]) -> Vec<u8> {
    let fields = info.fields.iter().zip(values);
    nested(&fields.map(|(field, value)| (field.path.parts(), value.get())).collect::<Vec<_>>())
}

/// The key of an entry, taken from its document. If the document has several keys, the entry tells which one.
fn of_entry(
    index: usize,
    info: &IndexInfo,
    entry: &IndexEntry,
    doc: &RawDoc,
    source: &dyn Source,
) -> Result<Vec<u8>, QueryError> {
    let key = source.key_of(index, entry, doc)?;
    let fields = info.fields.iter().zip(Elements::new(&key).map(|field| field.value()));
    Ok(nested(&fields.map(|(field, value)| (field.path.parts(), value)).collect::<Vec<_>>()))
}

fn of_document(info: &IndexInfo, doc: &RawDoc) -> Vec<u8> {
    let fields = info.fields.iter().map(|field| field.path.parts());
    nested(&fields.map(|path| (path, at(doc.as_bytes(), path))).collect::<Vec<_>>())
}

fn at<'d>(doc: &'d [u8], path: &[Box<[u8]>]) -> Value<'d> {
    path.iter().fold(Value::Document(doc), |value, name| match value {
        Value::Document(inner) => {
            Elements::of_bytes(inner).find(name).map_or(Value::Null, |field| field.value())
        }
        _ => Value::Null,
    })
}

/// A document of fields at paths; fields below the same name are combined.
fn nested(fields: &[(&[Box<[u8]>], Value<'_>)]) -> Vec<u8> {
    let mut doc = DocBuilder::new();
    let mut done: Vec<&[u8]> = Vec::new();
    for (path, _) in fields {
        let Some(name) = path.first() else { continue };
        if done.contains(&&**name) {
            continue;
        }
        done.push(name);
        // A field at the name itself already contains the fields below it.
        let own = fields.iter().find(|(path, _)| matches!(path, [only] if only == name));
        if let Some((_, value)) = own {
            doc.push(name, *value);
            continue;
        }
        let below: Vec<_> = fields
            .iter()
            .filter_map(|(path, value)| {
                path.split_first()
                    .filter(|(first, _)| *first == name)
                    .map(|(_, rest)| (rest, *value))
            })
            .collect();
        doc.push(name, Value::Document(&nested(&below)));
    }
    doc.finish()
}
