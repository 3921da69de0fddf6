//! Rows that every member derives for itself: sessions, retry images, change stream pre-images.
//!
//! Each row is a version at the timestamp of its entry, so that a read of the past finds the row of that time.

use std::ops::Bound;

use bson::{Binary, RawDocumentBuf, raw::cstr, rawdoc, spec::BinarySubtype};
use protocol::{
    OpTime, OplogEntry, RawDoc,
    oplog_entry::{MultiOpType, OpKind, ReplOperation, RetryImage},
};
use storage::{Apply, Collection, Direction, PreparedWrite, ReadAt};

use super::{
    Applier, ApplyError, Mode, Moment, Place,
    crud::Images,
    position,
    sessions::{SessionWrite, TxnState},
};

impl Applier {
    /// Writes the session row of a write outside of a transaction.
    pub(super) fn note_retryable_write(
        &self,
        batch: &mut Apply,
        entry: &OplogEntry<'_>,
    ) -> Result<(), ApplyError> {
        let separate = entry.multi_op_type == Some(MultiOpType::AppliedSeparately);
        if entry.op.stmt_ids.is_empty() && !separate {
            return Ok(());
        }
        self.note_session(batch, entry, None, None)
    }

    /// Writes the session row after `entry`.
    pub(super) fn note_session(
        &self,
        batch: &mut Apply,
        entry: &OplogEntry<'_>,
        start: Option<OpTime>,
        state: Option<TxnState>,
    ) -> Result<(), ApplyError> {
        let Some(session) = entry.session else { return Ok(()) };
        let Some(rows) = batch.collection_by_name(&self.names.transactions) else {
            return self.no_derived(entry, self.names.transactions.as_str());
        };
        let write = SessionWrite { session, at: position(entry), start, state };
        let row = write.row().map_err(|e| ApplyError::entry(entry.op_time, e))?;
        batch.put(entry.op_time.ts, &rows, row)?;
        Ok(())
    }

    /// Positions of the prepare entries of undecided transactions, according to the session rows.
    pub(super) fn prepared_rows(&self) -> Result<Vec<OpTime>, ApplyError> {
        let view = self.store.view(ReadAt::Newest)?;
        let Some(rows) = view.catalog().collection(&self.names.transactions) else {
            return Ok(Vec::new());
        };
        let mut prepared = Vec::new();
        for row in view.scan(&rows, Bound::Unbounded, Direction::Forward) {
            let (_, row) = row?;
            if row.get_str("state").is_ok_and(|state| state == "prepared")
                && let Ok(at) = row.get_document("lastWriteOpTime")
                && let Some(at) = OpTime::from_raw(at)
            {
                prepared.push(at);
            }
        }
        Ok(prepared)
    }

    /// Stores the images for retries of find-and-modify and for change streams.
    pub(super) fn note_images(
        &self,
        batch: &mut Apply,
        coll: &Collection,
        entry: &OplogEntry<'_>,
        op: &ReplOperation<'_>,
        at: Moment,
        images: &Images,
    ) -> Result<(), ApplyError> {
        if let Some(kind) = op.needs_retry_image {
            self.note_retry_image(batch, entry, kind, at, images)?;
        }
        if self.wants_pre_image(coll, entry, op)
            && let Some(pre) = &images.pre
        {
            let Some(rows) = batch.collection_by_name(&self.names.pre_images) else {
                return self.no_derived(entry, self.names.pre_images.as_str());
            };
            batch.put(at.ts, &rows, pre_image_row(coll, at.place, pre))?;
        }
        Ok(())
    }

    /// True if a change stream may ask for the document before `op`.
    pub(super) fn wants_pre_image(
        &self,
        coll: &Collection,
        entry: &OplogEntry<'_>,
        op: &ReplOperation<'_>,
    ) -> bool {
        !matches!(op.kind, OpKind::Insert)
            && self.mode == Mode::Steady
            && !op.from_migrate
            && !entry.op.from_migrate
            && wants_pre_images(coll)
    }

    /// The pre-image row as part of a prepared transaction: it appears with the commit.
    pub(super) fn held_pre_image(
        &self,
        batch: &Apply,
        coll: &Collection,
        entry: &OplogEntry<'_>,
        place: Place,
        pre: &RawDoc,
    ) -> Result<PreparedWrite, ApplyError> {
        match batch.collection_by_name(&self.names.pre_images) {
            Some(rows) => Ok(PreparedWrite::Put {
                coll: rows.uuid(),
                doc: RawDoc::from(pre_image_row(coll, place, pre)),
            }),
            None => Err(ApplyError::CollectionMissing {
                uuid: self.names.pre_images.as_str().to_owned(),
                entry: entry.op_time,
            }),
        }
    }

    fn note_retry_image(
        &self,
        batch: &mut Apply,
        entry: &OplogEntry<'_>,
        kind: RetryImage,
        at: Moment,
        images: &Images,
    ) -> Result<(), ApplyError> {
        let Some(session) = entry.session else { return Ok(()) };
        let Some(rows) = batch.collection_by_name(&self.names.images) else {
            return self.no_derived(entry, self.names.images.as_str());
        };
        let image = match kind {
            RetryImage::PreImage => &images.pre,
            RetryImage::PostImage => &images.post,
        };
        let valid = self.mode == Mode::Steady && image.is_some();
        let mut row = RawDocumentBuf::new();
        row.append(cstr!("_id"), session.lsid.to_owned());
        row.append(cstr!("txnNum"), session.txn_number);
        row.append(cstr!("ts"), bson::Timestamp::from(at.ts));
        row.append(cstr!("imageKind"), image_kind(kind));
        match image {
            Some(image) if valid => row.append(cstr!("image"), image.as_raw().to_owned()),
            _ => row.append(cstr!("image"), RawDocumentBuf::new()),
        }
        row.append(cstr!("invalidated"), !valid);
        if !valid {
            row.append(cstr!("invalidatedReason"), "initial sync");
        }
        batch.put(at.ts, &rows, row)?;
        Ok(())
    }

    /// The primary creates a collection for derived rows before the first write that needs it, so a missing one is an
    /// error, except during initial sync.
    fn no_derived(&self, entry: &OplogEntry<'_>, ns: &str) -> Result<(), ApplyError> {
        match self.mode {
            Mode::InitialSync => Ok(()),
            Mode::Steady => {
                Err(ApplyError::CollectionMissing { uuid: ns.to_owned(), entry: entry.op_time })
            }
        }
    }
}

fn pre_image_row(coll: &Collection, place: Place, pre: &RawDoc) -> RawDocumentBuf {
    let uuid = Binary { subtype: BinarySubtype::Uuid, bytes: coll.uuid().as_bytes().to_vec() };
    let ts = bson::Timestamp::from(place.ts);
    rawdoc! {
        "_id": { "nsUUID": uuid, "ts": ts, "applyOpsIndex": place.index },
        "operationTime": place.wall,
        "preImage": pre.as_raw().to_owned(),
    }
}

fn image_kind(kind: RetryImage) -> &'static str {
    match kind {
        RetryImage::PreImage => "preImage",
        RetryImage::PostImage => "postImage",
    }
}

fn wants_pre_images(coll: &Collection) -> bool {
    coll.options()
        .get_document("changeStreamPreAndPostImages")
        .and_then(|images| images.get_bool("enabled"))
        .unwrap_or(false)
}
