//! A cursor over documents in memory, and the reply of list commands.

use std::collections::VecDeque;

use bson::{RawBsonRef, RawDocumentBuf, raw::cstr, rawdoc};
use protocol::{Namespace, RawDoc};

use crate::{
    auth::pipeline,
    context::{Call, Outcome},
    error::Failure,
    read::{
        batch::BatchWriter,
        cursors::{Cursor, Filled, Reading},
    },
};

/// Documents in memory.
pub(crate) struct ListReading(VecDeque<RawDoc>);

impl ListReading {
    pub(crate) fn new(docs: Vec<RawDoc>) -> Self {
        Self(docs.into())
    }
}

impl Reading for ListReading {
    fn fill(&mut self, _: &Call, batch: &mut BatchWriter, limit: usize) -> Result<Filled, Failure> {
        while batch.count() < limit {
            let Some(doc) = self.0.front() else { return Ok(Filled::Exhausted) };
            if !batch.push(doc) {
                return Ok(Filled::More);
            }
            self.0.pop_front();
        }
        Ok(if self.0.is_empty() { Filled::Exhausted } else { Filled::More })
    }
}

/// The reply of listCollections and listIndexes, in which `id` and `ns` come before the batch.
pub(crate) fn reply(call: &Call, ns: Namespace, mut docs: Vec<RawDoc>) -> Outcome {
    let size =
        match call.body.get_document("cursor").ok().and_then(|c| c.get("batchSize").ok().flatten())
        {
            Some(RawBsonRef::Int32(n)) => usize::try_from(n).unwrap_or(0),
            Some(RawBsonRef::Int64(n)) => usize::try_from(n).unwrap_or(0),
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
            Some(RawBsonRef::Double(n)) => n as usize,
            _ => usize::MAX,
        };
    let rest = docs.split_off(size.min(docs.len()));
    let batch: bson::RawArrayBuf = docs.iter().map(|doc| doc.as_raw().to_owned()).collect();
    let node = call.node();
    let id = if rest.is_empty() { 0 } else { node.cursors.new_id() };
    let mut cursor = RawDocumentBuf::new();
    cursor.append(cstr!("id"), id);
    cursor.append(cstr!("ns"), ns.as_str());
    cursor.append(cstr!("firstBatch"), batch);
    if id != 0 {
        let open = Cursor {
            id,
            ns,
            session: call.lsid,
            owners: call.who.names(),
            needs: pipeline::of_cursor(call)?.into(),
            no_timeout: false,
            tailable: false,
            await_data: false,
            returned: docs.len() as u64,
            reading: Box::new(ListReading::new(rest)),
        };
        node.cursors.keep(Box::new(open), std::time::Instant::now());
    }
    Ok(rawdoc! { "cursor": cursor }.into())
}
