//! The requests of an initial sync to its source, and its progress.
//!
//! ```text
//!  rbid -- top of oplog -- oldest active transaction -- top again -- clone ........ top again -- rbid
//!           |               |                            |            |              |            |
//!           default begin   begin fetching (<= default)  begin        the source's   stop         must not
//!                                                        applying     oplog comes in              have changed
//! ```
//! I1 Fetching begins no later than the oldest open transaction, so that all its entries are in our oplog when it
//!    commits.
//! I2 The clone reflects at least `begin applying`; applying the entries up to `stop` makes it consistent.

use std::{collections::BTreeMap, time::Duration};

use bson::{RawDocument, RawDocumentBuf, raw::CString, rawdoc};
use protocol::{OpTime, RawDoc};

/// Retry limits of initial syncs.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// `numInitialSyncAttempts`: maximum number of consecutive failed attempts.
    pub attempts: u32,
    /// `initialSyncTransientErrorRetryPeriodSeconds`: how long the clone of a collection waits for its source to
    /// return.
    pub retry_period: Duration,
}

/// A find for the newest entry of the source's oplog.
pub(crate) fn top_of_oplog_command() -> RawDocumentBuf {
    rawdoc! {
        "find": "oplog.rs",
        "sort": { "$natural": -1 },
        "limit": 1,
        "readConcern": { "level": "local" },
        "$readPreference": { "mode": "secondaryPreferred" },
    }
}

/// A find for the oldest open transaction.
pub(crate) fn oldest_transaction_command(after: OpTime) -> RawDocumentBuf {
    rawdoc! {
        "find": "transactions",
        "filter": { "state": { "$in": ["prepared", "inProgress"] } },
        "sort": { "startOpTime": 1 },
        "readConcern": { "level": "local", "afterClusterTime": bson::Timestamp::from(after.ts) },
        "limit": 1,
        "$readPreference": { "mode": "secondaryPreferred" },
    }
}

/// A find for the source's feature compatibility version.
pub(crate) fn fcv_command(after: OpTime) -> RawDocumentBuf {
    rawdoc! {
        "find": "system.version",
        "filter": { "_id": "featureCompatibilityVersion" },
        "readConcern": { "afterClusterTime": bson::Timestamp::from(after.ts) },
        "$readPreference": { "mode": "secondaryPreferred" },
    }
}

/// Why a feature compatibility document forbids an initial sync; `None` if it does not.
pub(crate) fn fcv_refusal(doc: &RawDocument) -> Option<String> {
    match doc.get("targetVersion") {
        Ok(Some(target)) => Some(format!(
            "the set is changing its feature compatibility version to {target:?}; wait until setFeatureCompatibilityVersion is done"
        )),
        _ => None,
    }
}

/// The databases to clone, in order: `admin` first, as in mongod; `local` never.
pub(crate) fn databases_to_clone(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = names.filter(|name| name != "local").collect();
    names.sort_by_key(|name| (name != "admin", name.clone()));
    names
}

/// True for collections that are not replicated.
pub(crate) fn is_unreplicated(coll: &str) -> bool {
    coll == "system.profile"
}

/// Progress of one collection's clone.
#[derive(Clone, Debug, Default)]
pub struct CollectionProgress {
    /// The `count` on the source at the start.
    pub documents_to_copy: u64,
    /// Documents received.
    pub documents_copied: u64,
    /// Bytes of these documents.
    pub bytes_copied: u64,
    /// Number of indexes besides `_id`.
    pub indexes: usize,
    /// Replies received.
    pub fetched_batches: u64,
    /// True when its indexes are built, too.
    pub done: bool,
}

/// Progress of an initial sync: `replSetGetStatus.initialSyncStatus`.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Attempts that failed before this one.
    pub failed_attempts: u32,
    /// Maximum number of failed attempts.
    pub attempts_max: u32,
    /// When the first attempt began.
    pub started: bson::DateTime,
    /// Size according to `dbStats` of the source; 0 until known.
    pub total_bytes: u64,
    /// Number of entries applied after the clone.
    pub applied_ops: u64,
    /// The position at which applying begins.
    pub oplog_start: OpTime,
    /// The position at which applying stops, once known.
    pub oplog_end: Option<OpTime>,
    /// Databases in cloning order, collections by name.
    pub databases: Vec<(String, BTreeMap<String, CollectionProgress>)>,
}

impl Progress {
    /// Starts a new attempt.
    pub fn new(failed_attempts: u32, attempts_max: u32, started: bson::DateTime) -> Self {
        Self {
            failed_attempts,
            attempts_max,
            started,
            total_bytes: 0,
            applied_ops: 0,
            oplog_start: OpTime::NULL,
            oplog_end: None,
            databases: Vec::new(),
        }
    }

    /// The progress of one collection.
    pub fn collection(&mut self, db: &str, coll: &str) -> &mut CollectionProgress {
        if !self.databases.iter().any(|(name, _)| name == db) {
            self.databases.push((db.to_owned(), BTreeMap::new()));
        }
        let index = self.databases.iter().position(|(name, _)| name == db).unwrap_or(0);
        #[allow(clippy::indexing_slicing, reason = "the database was pushed above")]
        self.databases[index].1.entry(coll.to_owned()).or_default()
    }

    /// Bytes received so far.
    pub(crate) fn bytes_copied(&self) -> u64 {
        self.all().map(|coll| coll.bytes_copied).sum()
    }

    /// Documents received so far.
    pub(crate) fn documents_copied(&self) -> u64 {
        self.all().map(|coll| coll.documents_copied).sum()
    }

    fn all(&self) -> impl Iterator<Item = &CollectionProgress> {
        self.databases.iter().flat_map(|(_, colls)| colls.values())
    }

    /// Estimated remaining time at the rate so far.
    pub(crate) fn time_left(&self, elapsed: Duration) -> Option<Duration> {
        let copied = self.bytes_copied();
        let left = self.total_bytes.checked_sub(copied)?;
        (copied > 0).then(|| elapsed.mul_f64(left as f64 / copied as f64))
    }

    /// The status document in mongod's format.
    pub fn status(&self, now: bson::DateTime) -> Result<RawDoc, bson::error::Error> {
        let elapsed = now.timestamp_millis().saturating_sub(self.started.timestamp_millis());
        let elapsed_time = Duration::from_millis(u64::try_from(elapsed).unwrap_or(0));
        let mut doc = rawdoc! {
            "method": "logical",
            "failedInitialSyncAttempts": signed(u64::from(self.failed_attempts)),
            "maxFailedInitialSyncAttempts": i64::from(self.attempts_max),
            "initialSyncStart": self.started,
            "totalInitialSyncElapsedMillis": elapsed,
            "initialSyncAttempts": bson::RawArrayBuf::new(),
            "approxTotalDataSize": signed(self.total_bytes),
            "approxTotalBytesCopied": signed(self.bytes_copied()),
        };
        if let Some(left) = self.time_left(elapsed_time) {
            let millis = i64::try_from(left.as_millis()).unwrap_or(i64::MAX);
            doc.append(bson::raw::cstr!("remainingInitialSyncEstimatedMillis"), millis);
        }
        doc.append(bson::raw::cstr!("appliedOps"), signed(self.applied_ops));
        if !self.oplog_start.is_null() {
            doc.append(
                bson::raw::cstr!("initialSyncOplogStart"),
                bson::Timestamp::from(self.oplog_start.ts),
            );
        }
        if let Some(end) = self.oplog_end {
            doc.append(bson::raw::cstr!("initialSyncOplogEnd"), bson::Timestamp::from(end.ts));
        }
        doc.append(bson::raw::cstr!("databases"), self.databases_status()?);
        Ok(doc.into())
    }

    fn databases_status(&self) -> Result<RawDocumentBuf, bson::error::Error> {
        let cloned =
            self.databases.iter().filter(|(_, colls)| colls.values().all(|c| c.done)).count();
        let mut doc = rawdoc! {
            "databasesToClone": signed((self.databases.len() - cloned) as u64),
            "databasesCloned": signed(cloned as u64),
        };
        for (db, colls) in &self.databases {
            let done = colls.values().filter(|coll| coll.done).count();
            let mut entry = rawdoc! {
                "collections": signed(colls.len() as u64),
                "clonedCollections": signed(done as u64),
            };
            for (coll, progress) in colls {
                let one = rawdoc! {
                    "documentsToCopy": signed(progress.documents_to_copy),
                    "documentsCopied": signed(progress.documents_copied),
                    "indexes": signed(progress.indexes as u64),
                    "fetchedBatches": signed(progress.fetched_batches),
                    "approxBytesCopied": signed(progress.bytes_copied),
                };
                entry.append(CString::try_from(format!("{db}.{coll}"))?, one);
            }
            doc.append(CString::try_from(db.as_str())?, entry);
        }
        Ok(doc)
    }
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_comes_first_and_local_never() {
        let names = ["shop", "local", "config", "admin"].map(str::to_owned);
        assert_eq!(databases_to_clone(names.into_iter()), ["admin", "config", "shop"]);
    }

    #[test]
    fn progress_adds_up() {
        let mut progress = Progress::new(2, 10, bson::DateTime::from_millis(1_000));
        progress.total_bytes = 300;
        let coll = progress.collection("shop", "items");
        coll.bytes_copied = 100;
        coll.documents_copied = 7;
        progress.collection("shop", "done").done = true;
        assert_eq!(progress.time_left(Duration::from_secs(1)), Some(Duration::from_secs(2)));
        let status = progress.status(bson::DateTime::from_millis(2_000)).unwrap();
        assert_eq!(status.get_i64("failedInitialSyncAttempts").unwrap(), 2);
        assert_eq!(status.get_i64("remainingInitialSyncEstimatedMillis").unwrap(), 2_000);
        let shop = status.get_document("databases").unwrap().get_document("shop").unwrap();
        assert_eq!(shop.get_i64("clonedCollections").unwrap(), 1);
        assert_eq!(shop.get_document("shop.items").unwrap().get_i64("documentsCopied").unwrap(), 7);
    }

    #[test]
    fn a_set_between_two_versions_is_refused() {
        assert!(
            fcv_refusal(&rawdoc! { "_id": "featureCompatibilityVersion", "version": "8.2" })
                .is_none()
        );
        let changing = rawdoc! { "version": "8.0", "targetVersion": "8.2" };
        assert!(fcv_refusal(&changing).unwrap().contains("8.2"));
    }
}
