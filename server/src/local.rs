//! The database `local`, which belongs to this node alone.
//!
//! The oplog is stored by the store itself. The other collections consist of node documents: one or none each, and
//! one per start in `startup_log`.

use bson::{
    Binary, DateTime, Document, RawDocumentBuf, oid::ObjectId, raw::cstr, rawdoc,
    spec::BinarySubtype,
};
use protocol::{Profile, RawDoc, Timestamp};
use sha2::{Digest, Sha256};
use storage::{StorageError, Store};
use uuid::Uuid;

use crate::{commands::build_document, error::Failure, system};

/// The oplog.
pub const OPLOG: &str = "oplog.rs";

/// The collections of node documents, by mongod's names.
pub(crate) const NODE_COLLECTIONS: &[&str] = &[
    ELECTION,
    "replset.initialSyncId",
    "replset.minvalid",
    "replset.oplogTruncateAfterPoint",
    STARTUP_LOG,
    "system.replset",
    "system.rollback.id",
];

const STARTUP_LOG: &str = "startup_log";
const ELECTION: &str = "replset.election";
/// The document shown before the first vote.
const NO_VOTE: &str = "understudy.noVote";
const MIN_VALID: &str = "local.replset.minvalid";
/// Seed of the collections' UUIDs.
const UUID_SEED: &str = "understudy.localUuids";
/// Size of `startup_log` in bytes: the oldest entries are dropped.
const STARTUP_LOG_SIZE: i32 = 10 << 20;
/// Name prefix of the start entries, followed by the time.
const START_PREFIX: &str = "local.startup_log/";

/// The documents of a node collection; empty if there is none.
pub fn documents(store: &Store, coll: &str, profile: &Profile) -> Result<Vec<RawDoc>, Failure> {
    let doc = match coll {
        ELECTION => match store.vote()? {
            Some(vote) => Some(vote),
            None => store.meta(NO_VOTE)?,
        },
        "replset.minvalid" => match store.meta(MIN_VALID)? {
            Some(doc) if profile.min_valid_follows_applied => Some(applied(store, &doc)?),
            other => other,
        },
        "replset.initialSyncId" => Some(initial_sync_id(store)?),
        STARTUP_LOG => return Ok(starts(store)?.into_iter().map(|(_, doc)| doc).collect()),
        name if NODE_COLLECTIONS.contains(&name) => store.meta(&format!("local.{name}"))?,
        _ => None,
    };
    Ok(doc.into_iter().collect())
}

/// Before 8.0 a member shows its applied position here.
fn applied(store: &Store, kept: &RawDoc) -> Result<RawDoc, Failure> {
    let at = store.watermarks().applied().op_time;
    let id = kept.get_object_id("_id").unwrap_or_default();
    let ts = bson::Timestamp::from(at.ts);
    let begin = rawdoc! { "ts": ts, "t": at.t };
    Ok(RawDoc::from(rawdoc! { "_id": id, "ts": ts, "t": at.t, "begin": begin }))
}

/// The UUID of a collection of `local`, the same at every start; `None` in a store that was never started.
pub fn uuid(store: &Store, coll: &str) -> Result<Option<Uuid>, Failure> {
    let Some(seed) = store.meta(UUID_SEED)? else { return Ok(None) };
    let digest = Sha256::new().chain_update(seed.as_bytes()).chain_update(coll).finalize();
    let bytes = digest.first_chunk::<16>().copied().unwrap_or_default();
    Ok(Some(uuid::Builder::from_random_bytes(bytes).into_uuid()))
}

/// The options of a node collection.
pub fn options(coll: &str) -> RawDocumentBuf {
    match coll {
        STARTUP_LOG => rawdoc! { "capped": true, "size": STARTUP_LOG_SIZE },
        _ => rawdoc! {},
    }
}

/// True if a node collection is capped.
pub fn is_capped(ns: &str) -> bool {
    ns.strip_prefix("local.") == Some(STARTUP_LOG)
}

/// How the server is started.
pub struct Start<'a> {
    /// The start time.
    pub now: DateTime,
    /// The given options.
    pub options: &'a Document,
    /// The release that is shown.
    pub profile: &'a Profile,
    /// Whether it is a member of a set.
    pub in_set: bool,
}

/// Writes what a mongod writes at start.
pub(crate) fn note_start(store: &Store, start: &Start<'_>) -> anyhow::Result<()> {
    if start.in_set {
        // Our data is always that of a whole batch, and the oplog has no gaps: there is no later position to reach
        // before the data is consistent, and nothing to truncate.
        let beginning = bson::Timestamp::from(Timestamp::NULL);
        let minvalid = rawdoc! { "_id": ObjectId::new(), "t": -1_i64, "ts": beginning };
        keep_first(store, MIN_VALID, &minvalid)?;
        let no_vote = rawdoc! { "_id": ObjectId::new(), "term": 0_i64, "candidateIndex": -1_i64 };
        keep_first(store, NO_VOTE, &no_vote)?;
        let point = "oplogTruncateAfterPoint";
        let mut cut = rawdoc! { "_id": point };
        cut.append(cstr!("oplogTruncateAfterPoint"), beginning);
        keep_first(store, "local.replset.oplogTruncateAfterPoint", &cut)?;
    }
    keep_first(store, UUID_SEED, &rawdoc! { "seed": ObjectId::new() })?;
    let now = start.now.timestamp_millis();
    let host = system::host_name();
    let doc = rawdoc! {
        "_id": format!("{host}-{now}"),
        "hostname": host.as_str(),
        "startTime": DateTime::from_millis(now / 1000 * 1000),
        "startTimeLocal": local_time(now)?,
        "cmdLine": RawDocumentBuf::try_from(start.options)?,
        "pid": i64::from(std::process::id()),
        "buildinfo": build_document(start.profile),
    };
    store.put_meta(&format!("{START_PREFIX}{now:020}"), &doc)?;
    let starts = starts(store)?;
    let len = |doc: &RawDoc| i64::try_from(doc.as_bytes().len()).unwrap_or(i64::MAX);
    let mut bytes: i64 = starts.iter().map(|(_, doc)| len(doc)).sum();
    for (name, doc) in starts {
        if bytes <= i64::from(STARTUP_LOG_SIZE) {
            break;
        }
        bytes -= len(&doc);
        store.remove_meta(&name)?;
    }
    Ok(())
}

fn keep_first(store: &Store, name: &str, doc: &RawDocumentBuf) -> Result<(), StorageError> {
    match store.meta(name)? {
        Some(_) => Ok(()),
        None => store.put_meta(name, doc),
    }
}

/// The start entries with their names, oldest first.
fn starts(store: &Store) -> Result<Vec<(String, RawDoc)>, StorageError> {
    let mut found = Vec::new();
    for name in store.meta_names()?.into_iter().filter(|name| name.starts_with(START_PREFIX)) {
        if let Some(doc) = store.meta(&name)? {
            found.push((name, doc));
        }
    }
    Ok(found)
}

/// The time as `Mon Nov  6 19:40:47.876` in the machine's zone.
fn local_time(millis: i64) -> Result<String, jiff::Error> {
    let time = jiff::Timestamp::from_millisecond(millis)?;
    let zoned = time.to_zoned(jiff::tz::TimeZone::system());
    Ok(zoned.strftime("%a %b %e %H:%M:%S%.3f").to_string())
}

/// Identifies our copy of the data: a member that clones from us uses it to detect that we were resynced meanwhile.
/// Created here if it is missing.
fn initial_sync_id(store: &Store) -> Result<RawDoc, Failure> {
    use repl::io::kept::INITIAL_SYNC_ID as NAME;
    if let Some(doc) = store.meta(NAME)? {
        return Ok(doc);
    }
    let bytes = Uuid::new_v4().as_bytes().to_vec();
    let id = Binary { subtype: BinarySubtype::Uuid, bytes };
    let doc = rawdoc! { "_id": id, "wallTime": DateTime::now() };
    store.put_meta(NAME, &doc)?;
    Ok(doc.into())
}

/// The options of the oplog's collection.
pub(crate) fn oplog_options(store: &Store) -> RawDocumentBuf {
    let size = i64::try_from(store.oplog().max_bytes()).unwrap_or(i64::MAX);
    let mut options = rawdoc! { "capped": true };
    match i32::try_from(size) {
        Ok(size) => options.append(cstr!("size"), size),
        Err(_) => options.append(cstr!("size"), size),
    }
    options.append(cstr!("autoIndexId"), false);
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::StoreOptions;

    #[test]
    fn every_start_is_noted_and_the_points_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
        let options = bson::doc! { "net": { "port": 27017 } };
        let start = |millis, in_set| {
            let (now, profile) = (DateTime::from_millis(millis), Profile::newest_tested());
            note_start(&store, &Start { now, options: &options, profile, in_set }).unwrap();
            documents(&store, "replset.minvalid", profile).unwrap()
        };
        assert!(start(1500, false).is_empty());
        let points = start(2700, true);
        let newest = Profile::newest_tested();
        assert_eq!(points.len(), 1);
        assert_eq!(start(3900, true), points);
        assert_eq!(documents(&store, "replset.oplogTruncateAfterPoint", newest).unwrap().len(), 1);
        let starts = documents(&store, STARTUP_LOG, newest).unwrap();
        let times: Vec<_> =
            starts.iter().map(|doc| doc.get_datetime("startTime").unwrap()).collect();
        assert_eq!(times, [1000, 2000, 3000].map(DateTime::from_millis));
        let last = starts.last().unwrap();
        let votes = documents(&store, ELECTION, newest).unwrap();
        assert_eq!(votes.first().unwrap().get_i64("candidateIndex").unwrap(), -1);
        let uuids = [ELECTION, OPLOG, ELECTION].map(|name| uuid(&store, name).unwrap());
        assert!(uuids.first() == uuids.last() && uuids.first() != uuids.get(1));
        let old = protocol::Release::V5_0.profile();
        let point = documents(&store, "replset.minvalid", old).unwrap().pop().unwrap();
        assert_eq!(point.get_document("begin").unwrap().get_timestamp("ts").unwrap().time, 0);
        assert!(last.get_str("_id").unwrap().ends_with("-3900"));
        assert!(last.get_str("startTimeLocal").unwrap().ends_with(":03.900"));
        assert!(last.get_document("buildinfo").unwrap().get_str("version").is_ok());
    }

    #[test]
    fn old_starts_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
        let options =
            bson::doc! { "pad": "x".repeat(usize::try_from(STARTUP_LOG_SIZE / 3).unwrap()) };
        for millis in 1..=5 {
            let (now, profile) = (DateTime::from_millis(millis), Profile::newest_tested());
            note_start(&store, &Start { now, options: &options, profile, in_set: true }).unwrap();
        }
        assert_eq!(documents(&store, STARTUP_LOG, Profile::newest_tested()).unwrap().len(), 2);
    }
}
