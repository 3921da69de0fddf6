//! Expires change stream pre-images.
//!
//! Since 7.1 each member removes them by itself, without oplog entries: those older than its own oplog, and those
//! older than the set's `changeStreamOptions.preAndPostImages.expireAfterSeconds`. We remove them together with the
//! applier's batches, by the clock of the entries.

use std::{ops::Bound, sync::atomic::Ordering};

use bson::{RawBsonRef, rawdoc};
use protocol::{Namespace, OpTime, OpTimeAndWall, RawDoc, Timestamp};
use storage::{Apply, Collection, Direction, ReadAt, RecordKey, View, keystring};

use super::{Applier, ApplyError, Mode};

/// `expiredChangeStreamPreImageRemovalJobSleepSecs`.
const EVERY_MS: i64 = 10_000;
/// Maximum rows to expire per batch; expiry rides on the applier's batch.
const ROWS_MAX: usize = 1_000;

/// Which rows have expired.
struct Limits {
    /// Rows of operations before this have expired.
    oplog_begins: Timestamp,
    /// Rows of operations at or before this time have expired.
    expired: Option<bson::DateTime>,
}

impl Applier {
    /// Removes expired rows, in the batch that ends at `through`.
    pub(super) fn expire_pre_images(
        &self,
        batch: &mut Apply,
        through: OpTimeAndWall,
    ) -> Result<(), ApplyError> {
        let now = through.wall.timestamp_millis();
        if self.mode != Mode::Steady || now < self.next_expiry.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.next_expiry.store(now.saturating_add(EVERY_MS), Ordering::Relaxed);
        let Some(rows) = batch.collection_by_name(&self.names.pre_images) else { return Ok(()) };
        let view = self.store.view(ReadAt::Newest)?;
        let first = self.store.oplog().first()?;
        let limits = Limits {
            oplog_begins: first
                .and_then(|entry| OpTime::from_raw(&entry))
                .map_or(Timestamp::NULL, |first| first.ts),
            expired: expire_after_secs(&view)?
                .map(|secs| bson::DateTime::from_millis(now - secs.saturating_mul(1000))),
        };
        let gone = limits.apply_to(&view, &rows)?;
        for row in &gone {
            if let Ok(Some(id)) = row.get("_id") {
                batch.delete(through.op_time.ts, &rows, id)?;
            }
        }
        if gone.len() == ROWS_MAX {
            self.next_expiry.store(now, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Limits {
    /// The expired rows. Rows are sorted by collection, then by time, so only the front of each collection is read.
    fn apply_to(&self, view: &View, rows: &Collection) -> Result<Vec<RawDoc>, ApplyError> {
        let mut gone = Vec::new();
        let mut from = None;
        loop {
            let start = from.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let mut next = None;
            for row in view.scan(rows, start, Direction::Forward) {
                let (_, row) = row?;
                if self.cover(&row) {
                    gone.push(row);
                    if gone.len() == ROWS_MAX {
                        return Ok(gone);
                    }
                    continue;
                }
                next = end_of_its_collection(&row)?;
                break;
            }
            if next.is_none() {
                return Ok(gone);
            }
            from = next;
        }
    }

    fn cover(&self, row: &RawDoc) -> bool {
        let ts = row.get_document("_id").and_then(|id| id.get_timestamp("ts"));
        let at = row.get_datetime("operationTime");
        ts.is_ok_and(|ts| Timestamp::from(ts) < self.oplog_begins)
            || self.expired.is_some_and(|expired| at.is_ok_and(|at| at <= expired))
    }
}

/// The key after all rows of this row's collection.
fn end_of_its_collection(row: &RawDoc) -> Result<Option<RecordKey>, ApplyError> {
    let Ok(Some(of)) = row.get_document("_id").and_then(|id| id.get("nsUUID")) else {
        return Ok(None);
    };
    let mut end = rawdoc! {};
    end.append(bson::raw::cstr!("nsUUID"), of);
    end.append(bson::raw::cstr!("ts"), bson::RawBson::MaxKey);
    let key = keystring::encode_raw(RawBsonRef::Document(&end))?;
    Ok(Some(RecordKey::from_bytes(&key)))
}

/// If unset or `"off"`, a pre-image is kept as long as its oplog entry.
fn expire_after_secs(view: &View) -> Result<Option<i64>, ApplyError> {
    let parameters = Namespace::new("config", "clusterParameters");
    let Some(parameters) = view.catalog().collection(&parameters) else { return Ok(None) };
    let options = view.get(&parameters, RawBsonRef::String("changeStreamOptions"))?;
    let images = options.as_ref().and_then(|options| options.get_document("preAndPostImages").ok());
    Ok(match images.and_then(|images| images.get("expireAfterSeconds").ok().flatten()) {
        Some(RawBsonRef::Int64(secs)) => Some(secs),
        Some(RawBsonRef::Int32(secs)) => Some(secs.into()),
        _ => None,
    })
}
