//! BSON: a document that passes the check can be walked, parsed as an oplog entry and applied as an update.

use bson::{RawBsonRef, RawDocument};
use bytes::Bytes;
use protocol::{
    Reason, check_bson,
    oplog_entry::{Command, OplogEntry},
};
use query::{timeseries::Column, update::apply_update};

/// A document that passes the check can be walked completely.
pub(crate) fn checked(data: &[u8]) {
    match check_bson(data) {
        Ok(()) => walk(RawDocument::from_bytes(data).expect("it passed")),
        Err(fault) => assert!(fault.reason != Reason::TooDeep || data.len() > 200),
    }
}

fn walk(doc: &RawDocument) {
    // Names and strings need not be UTF-8; the library reports those as errors, which are skipped.
    for (_, value) in doc.iter().flatten() {
        match value {
            RawBsonRef::Document(inner) => walk(inner),
            RawBsonRef::Array(inner) => inner.into_iter().flatten().for_each(drop),
            _ => {}
        }
    }
}

/// Parses an oplog entry and the operations inside it.
pub(crate) fn oplog_entry(data: &[u8]) {
    let Ok(raw) = RawDocument::from_bytes(data) else { return };
    let Ok(entry) = OplogEntry::parse(raw) else { return };
    entry.op.stmt_ids.iter().for_each(drop);
    match entry.op.command() {
        Some(Command::ApplyOps(apply_ops)) => apply_ops.iter().for_each(drop),
        Some(Command::CreateIndexes { spec, .. }) => drop(spec.to_spec()),
        _ => {}
    }
}

/// A BSONColumn decodes to values or an error, and to no more values than its bytes can hold.
pub(crate) fn column(data: &[u8]) {
    let mut column = Column::new(Bytes::copy_from_slice(data));
    let mut left = 1920 * (data.len() + 1);
    while let Ok(Some(_)) = column.advance() {
        left = left.checked_sub(1).expect("more values than bytes can hold");
    }
}

/// The input is two documents; the second one is applied to the first as an update. The result must be valid BSON.
pub(crate) fn update(data: &[u8]) {
    let Some((document, rest)) = split(data) else { return };
    let Some((entry, _)) = split(rest) else { return };
    if let Ok(after) = apply_update(document, entry) {
        assert!(
            RawDocument::from_bytes(after.as_bytes()).is_ok(),
            "an update made something that is no document"
        );
    }
}

/// Splits off the document at the beginning of `data`, if it is valid.
pub(crate) fn split(data: &[u8]) -> Option<(&RawDocument, &[u8])> {
    let len = i32::from_le_bytes(*data.first_chunk()?);
    let (document, rest) = data.split_at_checked(usize::try_from(len).ok()?)?;
    check_bson(document).ok()?;
    Some((RawDocument::from_bytes(document).ok()?, rest))
}
