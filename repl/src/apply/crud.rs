//! Inserts, updates and deletes.

use std::sync::{Arc, atomic::Ordering};

use bson::{RawBsonRef, RawDocumentBuf};
use protocol::{
    Namespace, OpTime, OplogEntry, RawDoc,
    oplog_entry::{OpKind, ReplOperation},
};
use query::update::{UpdateKind, apply_update};
use storage::{Apply, Collection};

use super::{Applier, ApplyError, Mode, Moment, uuid_of};

/// The document before and after an operation.
pub(super) struct Images {
    pub(super) pre: Option<RawDoc>,
    pub(super) post: Option<RawDoc>,
}

impl Applier {
    /// Applies an operation on one document. `entry` is the oplog entry that contains `op`, or consists of it.
    pub(super) fn crud(
        &self,
        batch: &mut Apply,
        entry: &OplogEntry<'_>,
        op: &ReplOperation<'_>,
        at: Moment,
    ) -> Result<(), ApplyError> {
        let Some(coll) = self.collection_of(batch, op, entry.op_time)? else { return Ok(()) };
        let images = match op.kind {
            OpKind::Insert => {
                let post = RawDoc::from(op.o);
                let pre = batch.put(at.ts, &coll, post.clone())?;
                self.trim_capped(batch, &coll, at)?;
                Images { pre, post: Some(post) }
            }
            OpKind::Delete => Images {
                pre: batch.delete(at.ts, &coll, document_id(op, entry.op_time)?)?,
                post: None,
            },
            _ => self.update(batch, &coll, entry.op_time, op, at)?,
        };
        self.note_images(batch, &coll, entry, op, at, &images)
    }

    fn update(
        &self,
        batch: &mut Apply,
        coll: &Collection,
        entry: OpTime,
        op: &ReplOperation<'_>,
        at: Moment,
    ) -> Result<Images, ApplyError> {
        let pre = batch.get(coll, document_id(op, entry)?)?;
        let post = match &pre {
            Some(pre) => Some(updated(pre, op, entry)?),
            None => self.update_of_missing(op, entry)?,
        };
        let post = post.map(RawDoc::from);
        if let Some(post) = &post {
            batch.put(at.ts, coll, post.clone())?;
        }
        Ok(Images { pre, post })
    }

    /// Handles an update whose document is missing, as mongod does: during initial sync a later entry deletes the
    /// document, so nothing is done; otherwise a replacement is inserted, and a modification is lost, which is
    /// logged.
    fn update_of_missing(
        &self,
        op: &ReplOperation<'_>,
        entry: OpTime,
    ) -> Result<Option<RawDocumentBuf>, ApplyError> {
        if self.mode == Mode::InitialSync {
            return Ok(None);
        }
        self.misfits.missing_documents.fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            ns = op.ns, %entry,
            "an update found no document; this node is suspect until its hashes are verified against the primary"
        );
        match UpdateKind::of(op.o).map_err(|e| misfit(entry, &e))? {
            UpdateKind::Replacement(doc) => Ok(Some(doc.to_owned())),
            UpdateKind::Modifiers(_) | UpdateKind::Diff(_) => Ok(None),
        }
    }

    /// The collection of an operation; `None` if it does not exist and the operation has no effect.
    pub(super) fn collection_of(
        &self,
        batch: &Apply,
        op: &ReplOperation<'_>,
        entry: OpTime,
    ) -> Result<Option<Arc<Collection>>, ApplyError> {
        let uuid = uuid_of(op);
        let found = match uuid {
            Some(uuid) => batch.collection(uuid),
            None => Namespace::parse(op.ns).and_then(|ns| batch.collection_by_name(&ns)),
        };
        if found.is_none() && self.mode == Mode::Steady {
            let uuid = uuid.map_or_else(|| op.ns.to_owned(), |uuid| format!("{uuid} ({})", op.ns));
            return Err(ApplyError::CollectionMissing { uuid, entry });
        }
        Ok(found)
    }
}

/// The document `pre` after the update `op`.
pub(super) fn updated(
    pre: &RawDoc,
    op: &ReplOperation<'_>,
    entry: OpTime,
) -> Result<RawDocumentBuf, ApplyError> {
    apply_update(pre, op.o).map_err(|e| misfit(entry, &e))
}

/// The `_id` of the document that an insert, update or delete refers to.
pub(super) fn document_id<'a>(
    op: &ReplOperation<'a>,
    entry: OpTime,
) -> Result<RawBsonRef<'a>, ApplyError> {
    let key = match op.kind {
        OpKind::Update { .. } => op.o2.unwrap_or(op.o),
        _ => op.o,
    };
    match key.get("_id") {
        Ok(Some(id)) => Ok(id),
        _ => Err(ApplyError::entry(entry, "it names no document: there is no '_id'")),
    }
}

fn misfit(entry: OpTime, why: &query::update::UpdateError) -> ApplyError {
    ApplyError::Update { why: why.to_string(), entry }
}
