// The public face of `storage`, as it is being filled in. Signatures here are kept; bodies live in src/.
use std::{path::Path, sync::Arc, time::Duration, ops::Bound};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use protocol::{Namespace, OpTime, OpTimeAndWall, RawDoc, Timestamp};
use uuid::Uuid;

// ---------------------------------------------------------------- opening
pub struct StoreOptions {
    pub engine: EngineKind,              // Fjall (default) | Memory   (FromStr for --storageEngine)
    pub cache_bytes: u64,                // 32 MiB
    pub oplog_max_bytes: u64,
    pub oplog_min_retention: Duration,
    pub history_window: Duration,        // ZERO: keep no history at all (then no rollback, no read at T)
    pub history_max_bytes: Option<u64>,
}                                        // Default
#[derive(Clone)] pub struct Store;       // an Arc; Send + Sync
impl Store {
    pub fn open(dbpath: &Path, options: StoreOptions) -> Result<Store, StorageError>;
    pub fn dbpath(&self) -> &Path;

    // node documents: local.system.replset, local.system.rollback.id, local.replset.minvalid, ... by any name
    pub fn meta(&self, name: &str) -> Result<Option<RawDoc>, StorageError>;
    pub fn put_meta(&self, name: &str, doc: &RawDocument) -> Result<(), StorageError>;      // synced before it returns
    pub fn remove_meta(&self, name: &str) -> Result<(), StorageError>;                       // synced
    pub fn vote(&self) -> Result<Option<RawDoc>, StorageError>;                              // local.replset.election, in a file of its own
    pub fn put_vote(&self, doc: &RawDocument) -> Result<(), StorageError>;                   // synced before it returns

    pub fn oplog(&self) -> &Oplog;
    pub fn watermarks(&self) -> &Watermarks;

    // what open found
    pub fn applied_at_open(&self) -> OpTimeAndWall;            // replay oplog().scan_written(after this)
    pub fn lost_tail(&self) -> Option<OpTime>;                 // a sync reported this position and the oplog does not hold it: unreadable, no vote until applied passes it
    pub fn initial_sync_pending(&self) -> bool;                // a clone was begun and not finished: start anew

    // writing
    pub fn begin_apply(&self) -> Apply;                        // waits for the one before it
    pub fn begin_initial_sync(&self) -> Result<(), StorageError>;
    pub fn finish_initial_sync(&self, applied: OpTimeAndWall) -> Result<(), StorageError>; // history begins here; synced
    pub fn loader(&self, coll: &Collection) -> Result<Loader, StorageError>;
    pub fn rollback_to(&self, common: OpTimeAndWall, undone: &mut dyn FnMut(Undone)) -> Result<(), StorageError>; // data only; then oplog().truncate_after
    // index builds beside writes: scans, sorts, ingests, drains; returns when the first drain is done. Apply::set_index_ready then finishes it.
    pub fn build_indexes(&self, uuid: Uuid, build_uuid: Uuid, cancel: &AtomicBool) -> Result<(), StorageError>;

    // reading
    pub fn view(&self, at: ReadAt) -> Result<View, StorageError>;
    pub fn pin(&self, ts: Timestamp) -> Result<Pin, StorageError>;   // a snapshot cursor holds T, within the bound

    // upkeep
    pub fn set_history_window(&self, window: Duration, max_bytes: Option<u64>);
    pub fn validate(&self, coll: &Collection, full: bool) -> Result<ValidateReport, StorageError>;
    pub fn checkpoint(&self, into: &Path) -> Result<(), StorageError>;
    pub fn stats(&self) -> StoreStats;
}

// ---------------------------------------------------------------- oplog
pub struct Oplog;
impl Oplog {
    pub fn append(&self, entries: &[RawDoc]) -> Result<OpTimeAndWall, StorageError>;        // ascending ts after `written`, else OutOfOrder; moves `written`
    pub fn sync(&self) -> Result<OpTimeAndWall, StorageError>;                              // one fsync for all appended so far; moves `durable`; blocking
    pub fn entry(&self, ts: Timestamp) -> Result<Option<RawDoc>, StorageError>;             // up to `applied`
    pub fn entry_written(&self, ts: Timestamp) -> Result<Option<RawDoc>, StorageError>;     // up to `written`
    pub fn first(&self) -> Result<Option<RawDoc>, StorageError>;
    pub fn last(&self) -> Result<Option<RawDoc>, StorageError>;                             // at or below `applied`
    pub fn last_written(&self) -> Result<Option<RawDoc>, StorageError>;
    pub fn scan(&self, from: Bound<Timestamp>, direction: Direction) -> OplogScan;          // Iterator<Item = Result<(Timestamp, RawDoc), StorageError>>, ends at `applied` as of now
    pub fn scan_written(&self, from: Bound<Timestamp>, direction: Direction) -> OplogScan;  // the applier's and the rollback's private reader
    pub fn truncate_after(&self, ts: Timestamp) -> Result<OpTimeAndWall, StorageError>;     // synced; moves written and durable back
    pub fn trim(&self, now: bson::DateTime) -> Result<u64, StorageError>;
    pub fn pin(&self, from: Timestamp) -> OplogPin;                                         // nothing from here on is trimmed while it lives (oldest prepared, backup)
    pub fn bytes(&self) -> u64; pub fn count(&self) -> u64;
    pub fn set_max_bytes(&self, n: u64); pub fn set_min_retention(&self, d: Duration);
}

// ---------------------------------------------------------------- watermarks (each a tokio::sync::watch)
pub struct Watermarks;
impl Watermarks {
    pub fn written(&self) -> OpTimeAndWall;   pub fn watch_written(&self) -> watch::Receiver<OpTimeAndWall>;   // owner: Oplog::append
    pub fn durable(&self) -> OpTimeAndWall;   pub fn watch_durable(&self) -> watch::Receiver<OpTimeAndWall>;   // owner: Oplog::sync
    pub fn applied(&self) -> OpTimeAndWall;   pub fn watch_applied(&self) -> watch::Receiver<OpTimeAndWall>;   // owner: Apply::commit
    pub fn commit_point(&self) -> OpTimeAndWall; pub fn watch_stable(&self) -> watch::Receiver<OpTimeAndWall>;
    pub fn stable(&self) -> OpTimeAndWall;                                                    // min(commit point, applied)
    pub fn set_commit_point(&self, at: OpTimeAndWall);                                        // owner: repl; never goes back but by rollback_to
    pub fn oldest(&self) -> Timestamp;                                                        // owner: history
}

// ---------------------------------------------------------------- apply: one at a time, sees its own writes, all or nothing
pub struct Apply;
impl Apply {
    pub fn collection(&self, uuid: Uuid) -> Option<Arc<Collection>>;
    pub fn collection_by_name(&self, ns: &Namespace) -> Option<Arc<Collection>>;
    pub fn collections(&self, db: &str) -> Vec<Arc<Collection>>;
    pub fn create(&mut self, ts: Timestamp, ns: &Namespace, uuid: Uuid, options: &RawDocument, id_index: Option<&RawDocument>) -> Result<Arc<Collection>, StorageError>;
    pub fn drop_collection(&mut self, ts: Timestamp, uuid: Uuid) -> Result<bool, StorageError>;
    pub fn rename(&mut self, ts: Timestamp, uuid: Uuid, to: &Namespace) -> Result<(), StorageError>;   // the name must be free: drop or move the other first
    pub fn set_options(&mut self, ts: Timestamp, uuid: Uuid, options: &RawDocument) -> Result<(), StorageError>;
    pub fn create_index(&mut self, ts: Timestamp, uuid: Uuid, spec: &RawDocument, state: IndexState) -> Result<(), StorageError>; // Ready: built here (meant for empty or small collections)
    pub fn set_index_ready(&mut self, ts: Timestamp, uuid: Uuid, name: &str) -> Result<(), StorageError>;
    pub fn drop_index(&mut self, ts: Timestamp, uuid: Uuid, name: &str) -> Result<bool, StorageError>;
    pub fn replace_index_spec(&mut self, ts: Timestamp, uuid: Uuid, name: &str, spec: &RawDocument) -> Result<(), StorageError>;
    pub fn get(&mut self, coll: &Collection, id: RawBsonRef<'_>) -> Result<Option<RawDoc>, StorageError>;
    pub fn put(&mut self, ts: Timestamp, coll: &Collection, doc: impl Into<RawDoc>) -> Result<Option<RawDoc>, StorageError>; // by _id; the one it replaced
    pub fn delete(&mut self, ts: Timestamp, coll: &Collection, id: RawBsonRef<'_>) -> Result<Option<RawDoc>, StorageError>;
    pub fn truncate(&mut self, ts: Timestamp, coll: &Collection) -> Result<u64, StorageError>;       // emptycapped
    pub fn oldest_record(&mut self, coll: &Collection) -> Result<Option<RawDoc>, StorageError>;       // capped below FCV 5.0
    pub fn prefetch(&mut self, keys: &[(Arc<Collection>, RawBsonRef<'_>)]) -> Result<(), StorageError>; // speed only
    pub fn prepare(&mut self, txn: &TxnId, ts: Timestamp, writes: Vec<PreparedWrite>) -> Result<(), StorageError>;
    pub fn commit_prepared(&mut self, txn: &TxnId, commit_ts: Timestamp, durable_ts: Timestamp) -> Result<(), StorageError>;
    pub fn abort_prepared(&mut self, txn: &TxnId) -> Result<(), StorageError>;
    pub fn put_meta(&mut self, name: &str, doc: &RawDocument);     // a node document in the same atomic batch
    pub fn bytes(&self) -> u64;
    pub fn commit(self, through: OpTimeAndWall) -> Result<(), StorageError>;   // one atomic batch with the mark; unsynced; moves `applied`
}
pub enum IndexState { Ready, Building { build_uuid: Uuid } }
pub struct TxnId(pub Vec<u8>);                      // lsid ++ txnNumber, as the caller likes
pub enum PreparedWrite { Put { coll: Uuid, doc: RawDoc }, Delete { coll: Uuid, doc_id: RawDoc /* {_id} */ } }

// ---------------------------------------------------------------- catalog entries (immutable, shared)
pub struct Collection { /* uuid(), ns(), options() -> &RawDocument, id_index() -> Option<&RawDocument>, indexes() -> &[Arc<Index>], index(name), capped() -> Option<Capped{size,max}>, is_clustered() , collation() */ }
pub struct Index { /* name(), spec() -> &RawDocument as sent, key_pattern() -> &RawDocument, kind(), unique(), sparse(), partial_filter(), state(), multikey_paths() , usable() */ }
pub struct Catalog;   // a moment of it; cheap clone
impl Catalog {
    pub fn collection(&self, ns: &Namespace) -> Option<Arc<Collection>>;
    pub fn by_uuid(&self, uuid: Uuid) -> Option<Arc<Collection>>;
    pub fn list(&self, db: &str) -> impl Iterator<Item = Arc<Collection>>;
    pub fn databases(&self) -> Vec<String>;
}

// ---------------------------------------------------------------- reading
pub enum ReadAt { Newest, Majority, Timestamp(Timestamp) }
pub enum Direction { Forward, Backward }
#[derive(Clone)] pub struct RecordKey(/* order-preserving bytes */);   // cursors resume by it: as_bytes(), from_bytes()
#[derive(Clone)] pub struct View;       // one moment; holds an engine snapshot: drop it between getMores
impl View {
    pub fn ts(&self) -> Timestamp;
    pub fn catalog(&self) -> &Catalog;
    pub fn get(&self, coll: &Collection, id: RawBsonRef<'_>) -> Result<Option<RawDoc>, StorageError>;
    pub fn record_key(&self, coll: &Collection, id: RawBsonRef<'_>) -> Result<Option<RecordKey>, StorageError>;
    pub fn fetch(&self, coll: &Collection, key: &RecordKey) -> Result<Option<RawDoc>, StorageError>;
    pub fn scan(&self, coll: &Collection, start: Bound<&RecordKey>, direction: Direction) -> RecordScan;   // Iterator<Item = Result<(RecordKey, RawDoc), StorageError>>
    pub fn index_scan(&self, coll: &Collection, index: &Index, range: (Bound<&[u8]>, Bound<&[u8]>), direction: Direction) -> IndexScan; // Iterator<Item = Result<IndexEntry{key, record}, StorageError>>
    pub fn scan_id_order(&self, coll: &Collection, direction: Direction) -> ...;   // dbHash: by the _id index (collated where there is a collation)
    pub fn count(&self, coll: &Collection) -> Result<u64, StorageError>;            // exact at Newest
    pub fn data_size(&self, coll: &Collection) -> Result<u64, StorageError>;
    pub fn index_size(&self, coll: &Collection, index: &Index) -> u64;              // an estimate
    pub fn prepared_conflict(&self, coll: &Collection, key: &RecordKey) -> Result<Option<(TxnId, Timestamp)>, StorageError>; // for readers that must block
}

// ---------------------------------------------------------------- bulk loading (initial sync): no history, start 0
pub struct Loader;
impl Loader {
    pub fn push(&mut self, doc: &RawDocument) -> Result<(), StorageError>;
    pub fn finish(self) -> Result<LoadReport, StorageError>;     // documents and all its indexes visible together
}
