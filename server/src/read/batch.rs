//! Writes the reply of a cursor: every document is copied once, from the store into the reply.
//!
//! ```text
//!   {cursor: {firstBatch: [0: doc, 1: doc, ...], postBatchResumeToken?, id, ns}}
//!    ^        ^            ^                     lengths are filled in when a part is closed
//! ```

use std::sync::Arc;

use bson::{RawDocument, RawDocumentBuf};
use protocol::Timestamp;

use crate::{
    error::Failure,
    read::reply_buffers::{OWN_MAX, ReplyBuffers},
};

/// mongod's limit for the documents of one reply.
pub const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A reply under construction.
pub struct BatchWriter {
    bytes: Vec<u8>,
    /// Provides larger buffers.
    buffers: Arc<ReplyBuffers>,
    cursor_at: usize,
    array_at: usize,
    count: usize,
}

/// The fields after the documents.
pub struct BatchEnd<'a> {
    /// The cursor id, 0 if it is exhausted.
    pub id: i64,
    /// `db.collection`.
    pub ns: &'a str,
    /// The resume token, if requested.
    pub resume_token: Option<RawDocumentBuf>,
    /// The timestamp of a snapshot read.
    pub at_cluster_time: Option<Timestamp>,
}

/// Overhead of a document in the array: its type, its index as text, and the terminator.
const DOCUMENT_FRAME: usize = 24;
/// Space reserved for the fields at the end of every reply.
const REPLY_END: usize = 1024;
const DOCUMENT: u8 = 0x03;
const ARRAY: u8 = 0x04;

impl BatchWriter {
    /// The first batch of a cursor.
    pub fn first(buffers: &Arc<ReplyBuffers>) -> Self {
        Self::new(buffers, b"firstBatch\0")
    }

    /// A later batch.
    pub fn next(buffers: &Arc<ReplyBuffers>) -> Self {
        Self::new(buffers, b"nextBatch\0")
    }

    fn new(buffers: &Arc<ReplyBuffers>, name: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(REPLY_END);
        bytes.extend_from_slice(&[0; 4]);
        bytes.push(DOCUMENT);
        bytes.extend_from_slice(b"cursor\0");
        let cursor_at = bytes.len();
        bytes.extend_from_slice(&[0; 4]);
        bytes.push(ARRAY);
        bytes.extend_from_slice(name);
        let array_at = bytes.len();
        bytes.extend_from_slice(&[0; 4]);
        Self { bytes, buffers: Arc::clone(buffers), cursor_at, array_at, count: 0 }
    }

    /// Number of documents.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Adds a document if there is room; the first always fits.
    pub fn push(&mut self, doc: &RawDocument) -> bool {
        self.push_bytes(doc.as_bytes())
    }

    /// Like [`Self::push`], for the bytes of a document.
    pub fn push_bytes(&mut self, doc: &[u8]) -> bool {
        if self.count > 0 && self.bytes.len() + doc.len() > BATCH_BYTES_MAX {
            return false;
        }
        self.make_room(doc.len() + DOCUMENT_FRAME);
        self.bytes.push(DOCUMENT);
        push_decimal(&mut self.bytes, self.count);
        self.bytes.push(0);
        self.bytes.extend_from_slice(doc);
        self.count += 1;
        true
    }

    /// Closes the batch; returns the body of the reply, without `ok`.
    pub fn finish(mut self, end: &BatchEnd<'_>) -> Result<RawDocumentBuf, Failure> {
        self.close(self.array_at);
        let mut rest = RawDocumentBuf::new();
        if let Some(token) = &end.resume_token {
            rest.append(bson::raw::cstr!("postBatchResumeToken"), token.clone());
        }
        rest.append(bson::raw::cstr!("id"), end.id);
        rest.append(bson::raw::cstr!("ns"), end.ns);
        if let Some(ts) = end.at_cluster_time {
            rest.append(bson::raw::cstr!("atClusterTime"), bson::Timestamp::from(ts));
        }
        let rest = rest.as_bytes();
        self.make_room(rest.len() + REPLY_END);
        self.bytes.extend_from_slice(rest.get(4..rest.len() - 1).unwrap_or_default());
        self.close(self.cursor_at);
        self.close(0);
        RawDocumentBuf::from_bytes(self.bytes)
            .map_err(|error| Failure::said(protocol::ErrorCode::InternalError, error.to_string()))
    }

    /// Makes room for more bytes. A reply that grows large moves to a shared buffer, and from there to larger ones.
    fn make_room(&mut self, more: usize) {
        let needed = self.bytes.len() + more;
        if needed <= self.bytes.capacity() {
            return;
        }
        if needed <= OWN_MAX {
            return self.bytes.reserve(more);
        }
        let mut larger = self.buffers.take(needed);
        larger.extend_from_slice(&self.bytes);
        self.buffers.give(std::mem::replace(&mut self.bytes, larger));
    }

    /// Ends the part that begins at `start` and fills in its length.
    fn close(&mut self, start: usize) {
        self.bytes.push(0);
        let len = i32::try_from(self.bytes.len() - start).unwrap_or(i32::MAX);
        if let Some(slot) = self.bytes.get_mut(start..start + 4) {
            slot.copy_from_slice(&len.to_le_bytes());
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "a digit")]
fn push_decimal(bytes: &mut Vec<u8>, n: usize) {
    if n >= 10 {
        push_decimal(bytes, n / 10);
    }
    bytes.push(b'0' + (n % 10) as u8);
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn the_reply_is_what_a_builder_would_make() {
        let docs: Vec<_> =
            (0..1200).map(|n| rawdoc! { "_id": n, "text": "x".repeat(500) }).collect();
        let mut batch = BatchWriter::first(&Arc::default());
        for doc in &docs {
            assert!(batch.push(doc));
        }
        let end = BatchEnd { id: 7, ns: "a.b", resume_token: None, at_cluster_time: None };
        let got = batch.finish(&end).unwrap();
        let list: bson::RawArrayBuf = docs.into_iter().collect();
        let want = rawdoc! { "cursor": { "firstBatch": list, "id": 7_i64, "ns": "a.b" } };
        assert_eq!(got.as_bytes(), want.as_bytes());
    }

    #[test]
    fn a_full_batch_takes_no_more() {
        let large = rawdoc! { "x": "y".repeat(15 * 1024 * 1024) };
        let mut batch = BatchWriter::next(&Arc::default());
        assert!(batch.push(&large));
        assert!(!batch.push(&large));
        assert_eq!(batch.count(), 1);
    }
}
