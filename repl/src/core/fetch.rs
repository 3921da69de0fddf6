//! The requests to a sync source, and what its replies prove.
//!
//! ```text
//! our oplog:     ... a b c            find {ts: {$gte: c}}
//! source, fine:  ... a b c d e        first document is c: we may take what follows
//! source, diverged:. a b x y          first document is not c: roll back
//! source, young:         d e          its oldest entry is after c: we are too stale for it
//! source, behind:... a b              nothing from c on, and it ends before c: leave it
//! source, later: ... a x              nothing from c on, yet x is of a later term: roll back
//! ```
//! F1 Nothing is taken from a source that does not have our last entry, by timestamp and term.
//! F2 Timestamps strictly ascend, within a batch and across batches.

use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use protocol::{ErrorCode, OpTime, RawDoc, Timestamp};

use crate::event::Remedy;

/// Time limit of the first find on a source, which may have to search its whole oplog.
pub(crate) const INITIAL_FIND_MAX: Duration = Duration::from_secs(60);
/// Time a request may take beyond its `maxTimeMS` before the connection counts as dead.
pub(crate) const NETWORK_BUFFER: Duration = Duration::from_secs(5);
/// Maximum time a getMore waits for new entries.
const AWAIT_MAX: Duration = Duration::from_secs(30);
/// Entries per batch. A mongod asks for as many as fit into 16 MB. We ask for fewer, because each reply is in memory
/// twice, as received and decompressed.
const BATCH_SIZE: i32 = 8_192;

/// Why fetching from a source ended.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FetchError {
    /// Its oplog could not be queried.
    #[error("the sync source cannot be asked for its oplog: {0}")]
    Unusable(String),
    /// The connection broke while following it.
    #[error("the connection to the sync source failed: {0}")]
    Network(String),
    /// The source returned an error.
    #[error("the sync source answered {message} ({code})")]
    Refused {
        /// The error code.
        code: ErrorCode,
        /// The error text.
        message: String,
    },
    /// The source is behind us.
    #[error("the sync source is behind us: it ends at {theirs}, we are at {ours}")]
    SourceBehind {
        /// Its last entry.
        theirs: OpTime,
        /// Our last entry.
        ours: OpTime,
    },
    /// The source's oplog does not contain our last entry.
    #[error("the sync source has {theirs} where we have {ours}: our histories part")]
    Diverged {
        /// Its entry at or after our position.
        theirs: OpTime,
        /// Our last entry.
        ours: OpTime,
    },
    /// The source has already trimmed our last entry.
    #[error("the oplog of the sync source begins at {oldest}, after our last entry {ours}")]
    TooStale {
        /// Its first entry.
        oldest: Timestamp,
        /// Our last entry.
        ours: OpTime,
    },
    /// The entries are not a valid oplog.
    #[error("the sync source sent entries that cannot be an oplog: {0}")]
    BadBatch(String),
    /// The source ended the cursor.
    #[error("the sync source closed the oplog cursor")]
    CursorClosed,
    /// Fetching was stopped by us.
    #[error("{0}")]
    Stopped(String),
}

impl FetchError {
    /// True if retrying the same source may help.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unusable(_) | Self::Network(_) | Self::Refused { .. } | Self::CursorClosed
        )
    }

    /// What to do next.
    pub fn remedy(&self) -> Remedy {
        match self {
            // The source is not to blame: it may still be the best one.
            Self::Stopped(_) | Self::CursorClosed | Self::Network(_) | Self::Refused { .. } => {
                Remedy::Retry
            }
            Self::Unusable(_) | Self::SourceBehind { .. } | Self::BadBatch(_) => {
                Remedy::ChangeSource
            }
            Self::Diverged { .. } => Remedy::RollBack,
            Self::TooStale { .. } => Remedy::Resync,
        }
    }
}

/// The find that opens the oplog cursor.
pub(crate) fn find_command(from: Timestamp, term: i64) -> RawDocumentBuf {
    let max_time = i64::try_from(INITIAL_FIND_MAX.as_millis()).unwrap_or(i64::MAX);
    rawdoc! {
        "find": "oplog.rs",
        "filter": { "ts": { "$gte": bson::Timestamp::from(from) } },
        "batchSize": BATCH_SIZE,
        "tailable": true,
        "awaitData": true,
        "term": term,
        "maxTimeMS": max_time,
        "readConcern": { "level": "local", "afterClusterTime": bson::Timestamp { time: 0, increment: 1 } },
        "$replData": 1,
        "$oplogQueryData": 1,
        "$readPreference": { "mode": "secondaryPreferred" },
    }
}

/// The exhaust getMore, which is answered repeatedly.
pub(crate) fn get_more_command(
    cursor: i64,
    term: i64,
    last_known_committed: OpTime,
    await_time: Duration,
) -> RawDocumentBuf {
    rawdoc! {
        "getMore": cursor,
        "collection": "oplog.rs",
        "batchSize": BATCH_SIZE,
        "term": term,
        "lastKnownCommittedOpTime": last_known_committed.to_raw(),
        "maxTimeMS": i64::try_from(await_time.as_millis()).unwrap_or(i64::MAX),
        "$replData": 1,
        "$oplogQueryData": 1,
        "$readPreference": { "mode": "secondaryPreferred" },
    }
}

/// How long a getMore waits for entries.
pub(crate) fn await_time(election_timeout: Duration) -> Duration {
    (election_timeout / 2).min(AWAIT_MAX)
}

/// A find for the oldest entry of the source's oplog.
pub(crate) fn oldest_entry_command() -> RawDocumentBuf {
    rawdoc! {
        "find": "oplog.rs",
        "sort": { "$natural": 1 },
        "limit": 1,
        "readConcern": { "level": "local" },
        "$readPreference": { "mode": "secondaryPreferred" },
    }
}

/// A parsed reply of the oplog cursor.
#[derive(Debug)]
pub struct OplogBatch {
    /// The cursor id; 0 if the source has closed it.
    pub cursor: i64,
    /// The entries, sharing the reply's buffer.
    pub entries: Vec<RawDoc>,
    /// `$replData`.
    pub repl_data: Option<RawDoc>,
    /// `$oplogQueryData`.
    pub oplog_query_data: Option<RawDoc>,
}

impl OplogBatch {
    /// Parses a reply to find or getMore.
    pub fn parse(reply: &RawDoc) -> Result<Self, FetchError> {
        let bad = |e: &dyn std::fmt::Display| FetchError::BadBatch(e.to_string());
        let cursor = reply.get_document("cursor").map_err(|e| bad(&e))?;
        let id = match cursor.get("id") {
            Ok(Some(bson::RawBsonRef::Int64(id))) => id,
            Ok(Some(bson::RawBsonRef::Int32(id))) => i64::from(id),
            _ => return Err(FetchError::BadBatch("the reply has no cursor id".into())),
        };
        let batch = cursor.get_array("nextBatch").or_else(|_| cursor.get_array("firstBatch"));
        let mut entries = Vec::new();
        for item in batch.map_err(|e| bad(&e))? {
            match item.map_err(|e| bad(&e))? {
                bson::RawBsonRef::Document(entry) => entries.push(reply.share(entry)),
                _ => {
                    return Err(FetchError::BadBatch(
                        "a batch holds something else than documents".into(),
                    ));
                }
            }
        }
        let metadata = |name: &str| reply.get_document(name).ok().map(|doc| reply.share(doc));
        Ok(Self {
            cursor: id,
            entries,
            repl_data: metadata("$replData"),
            oplog_query_data: metadata("$oplogQueryData"),
        })
    }

    /// The source's last applied entry, as it reports it.
    pub(crate) fn source_applied(&self) -> Option<OpTime> {
        OpTime::from_raw(self.oplog_query_data.as_ref()?.get_document("lastOpApplied").ok()?)
    }
}

/// Checks that the first batch begins with our last entry (F1), and removes that entry.
///
/// Positions are compared by term first: a source of a later term may have an older last timestamp and still be
/// ahead.
pub(crate) fn accept_first_batch(
    ours: OpTime,
    batch: &mut OplogBatch,
    oldest: Option<Timestamp>,
) -> Result<(), FetchError> {
    let theirs = batch.source_applied().unwrap_or(OpTime::NULL);
    let first = batch.entries.first().map(|entry| position(entry)).transpose()?;
    if first == Some(ours) {
        batch.entries.remove(0);
        return Ok(());
    }
    match oldest {
        Some(oldest) if oldest > ours.ts => Err(FetchError::TooStale { oldest, ours }),
        _ if theirs < ours => Err(FetchError::SourceBehind { theirs, ours }),
        _ => Err(FetchError::Diverged { theirs: first.unwrap_or(theirs), ours }),
    }
}

/// Checks that `entries` continue after `last` (F2), and returns the new last position.
pub(crate) fn accept_entries(last: OpTime, entries: &[RawDoc]) -> Result<OpTime, FetchError> {
    let mut last = last;
    for entry in entries {
        let next = position(entry)?;
        if next.ts <= last.ts {
            return Err(FetchError::BadBatch(format!("{next} follows {last}")));
        }
        last = next;
    }
    Ok(last)
}

fn position(entry: &RawDocument) -> Result<OpTime, FetchError> {
    OpTime::from_raw(entry).ok_or_else(|| FetchError::BadBatch("an entry has no timestamp".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u32, term: i64) -> OpTime {
        OpTime::new(Timestamp::new(secs, 1), term)
    }

    fn entry(at: OpTime) -> bson::RawBson {
        bson::RawBson::Document(at.to_raw())
    }

    fn batch(applied: OpTime, entries: &[OpTime]) -> OplogBatch {
        let entries: bson::RawArrayBuf = entries.iter().map(|at| entry(*at)).collect();
        let reply = rawdoc! {
            "cursor": { "firstBatch": entries, "id": 7_i64, "ns": "local.oplog.rs" },
            "$oplogQueryData": { "lastOpApplied": applied.to_raw() },
        };
        OplogBatch::parse(&RawDoc::from(reply)).unwrap()
    }

    #[test]
    fn our_last_entry_must_come_first_and_is_taken_off() {
        let mut fine = batch(at(9, 1), &[at(5, 1), at(6, 1)]);
        accept_first_batch(at(5, 1), &mut fine, None).unwrap();
        assert_eq!(accept_entries(at(5, 1), &fine.entries), Ok(at(6, 1)));
    }

    #[test]
    fn another_entry_in_its_place_means_rollback_or_staleness() {
        let refused = |ours, applied, entries: &[OpTime], oldest: Option<u32>| {
            let oldest = oldest.map(|secs| Timestamp::new(secs, 1));
            accept_first_batch(ours, &mut batch(applied, entries), oldest).unwrap_err().remedy()
        };
        assert_eq!(refused(at(5, 1), at(9, 2), &[at(6, 2)], Some(1)), Remedy::RollBack);
        assert_eq!(refused(at(5, 1), at(9, 2), &[at(5, 2)], Some(1)), Remedy::RollBack);
        assert_eq!(refused(at(5, 1), at(9, 2), &[at(7, 2)], Some(7)), Remedy::Resync);
        assert_eq!(refused(at(5, 1), at(3, 1), &[], Some(1)), Remedy::ChangeSource);
        assert_eq!(refused(at(5, 2), at(6, 1), &[at(6, 1)], Some(1)), Remedy::ChangeSource);
    }

    /// The lost branch has later timestamps than the winner's last entry.
    #[test]
    fn nothing_from_a_source_of_a_later_term_means_rollback() {
        let refused = |ours, applied| {
            accept_first_batch(ours, &mut batch(applied, &[]), Some(Timestamp::new(1, 1)))
                .unwrap_err()
        };
        let (ours, theirs) = (at(900, 1), at(5, 2));
        assert_eq!(refused(ours, theirs), FetchError::Diverged { theirs, ours });
        assert_eq!(refused(ours, at(899, 1)).remedy(), Remedy::ChangeSource);
        assert_eq!(refused(at(900, 2), at(901, 1)).remedy(), Remedy::ChangeSource);
    }

    #[test]
    fn entries_that_do_not_ascend_are_refused() {
        let twice = batch(at(9, 1), &[at(6, 1), at(6, 1)]);
        assert!(accept_entries(at(5, 1), &twice.entries).is_err());
        let back = batch(at(9, 1), &[at(4, 1)]);
        assert!(accept_entries(at(5, 1), &back.entries).is_err());
    }
}
