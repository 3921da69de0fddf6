//! The store: how it is opened, shared and closed.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    ops::Bound,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bson::RawDocument;
use parking_lot::{Condvar, Mutex, RwLock};
use protocol::{Namespace, OpTime, OpTimeAndWall, RawDoc, Timestamp};
use uuid::Uuid;

use crate::{
    StorageError,
    apply::{
        Apply,
        prepared::{self, TxnId},
    },
    catalog::{Catalog, Collection},
    checkpoint, count_log,
    engine::{
        Batch, Engine, EngineKind, Keyspace, Slice, Snapshot, Sync,
        faulty::{Faults, Faulty},
        fjall::{Checked, Fjall},
        memory::Memory,
    },
    initial_sync::forget_tables,
    layout::{Reader as Bytewise, TableId, meta_key, numbers, prefix_range, split_history_key},
    mvcc::{
        History, LowKeys, Reader, Version,
        history::{Dropped, Window},
    },
    node_files::{self, DurableMark, Lock},
    oplog::Oplog,
    pins::Pins,
    read_ahead::{ReadAhead, Watchers},
    rollback::read_floor,
    view::{ReadAt, View},
    watermarks::Watermarks,
};

/// How long a snapshot may wait in the ring for the commit point to reach it.
const RING_AGE_MAX: Duration = Duration::from_secs(2);
/// How often rows that only a rollback would need are removed.
const RECLAIM_SECS: u32 = 30;
/// The maximum number of snapshots in the ring.
const RING_LEN_MAX: usize = 64;
/// How many bytes may be written while the ring's first snapshot waits: a snapshot keeps its memtables in memory.
const RING_BYTES_MAX: u64 = 8 << 20;

/// The options of a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// `--storageEngine`.
    pub engine: EngineKind,
    /// The size of the engine's block cache.
    pub cache_bytes: u64,
    /// `--oplogSize`, in bytes.
    pub oplog_max_bytes: u64,
    /// `--oplogMinRetentionHours`.
    pub oplog_min_retention: Duration,
    /// The oplog keeps the whole readable history as long as it is not larger than this; 0 keeps `oplog_max_bytes` only.
    pub oplog_history_max_bytes: u64,
    /// `--historyWindow`. With zero no history is kept, so there are no point-in-time reads and no rollback.
    pub history_window: Duration,
    /// The maximum size of the history in bytes.
    pub history_max_bytes: Option<u64>,
    /// If the changes of one oplog entry are larger than this, they are written in several engine batches.
    pub batch_max_bytes: u64,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            engine: EngineKind::Fjall,
            cache_bytes: 32 << 20,
            oplog_max_bytes: 990 << 20,
            oplog_min_retention: Duration::ZERO,
            oplog_history_max_bytes: 0,
            history_window: Duration::from_secs(24 * 3600),
            history_max_bytes: None,
            batch_max_bytes: 32 << 20,
        }
    }
}

/// A store. Clones share it; it is closed when the last clone is dropped.
#[derive(Clone)]
pub struct Store(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) dbpath: PathBuf,
    pub(crate) history: Arc<History>,
    pub(crate) oplog: Arc<Oplog>,
    pub(crate) marks: Arc<Watermarks>,
    pub(crate) pins: Arc<Pins>,
    pub(crate) low: Arc<LowKeys>,
    /// The state that readers see. It is replaced as a whole after each batch.
    present: RwLock<Arc<Present>>,
    /// States that wait for the commit point, oldest first.
    ring: Mutex<VecDeque<Waiting>>,
    /// The total size of all batches so far.
    pub(crate) batch_bytes: AtomicU64,
    pub(crate) counts: Mutex<HashMap<TableId, Counts>>,
    pub(crate) next_table: AtomicU32,
    /// Index builds that have reached their first drain in this process.
    pub(crate) built: Mutex<HashSet<Uuid>>,
    pub(crate) watchers: Watchers,
    /// True while a batch too large for one commit is written only in part. Then writers read at `applied`.
    pub(crate) partial: AtomicBool,
    pub(crate) batch_max_bytes: u64,
    pub(crate) initial_sync: AtomicBool,
    pub(crate) rollback_floor: AtomicU64,
    /// The last time undo rows were removed, in units of `RECLAIM_SECS`.
    reclaimed: AtomicU32,
    pub(crate) turn: Turn,
    /// Held during a backup, so that there is one at a time.
    pub(crate) backup: Mutex<()>,
    applied_at_open: OpTimeAndWall,
    /// The description of known damage. A file keeps it over a restart.
    pub(crate) damage: Mutex<Option<String>>,
    /// A few catalogs of earlier timestamps, those that were asked for last.
    pub(crate) old_catalogs: Mutex<VecDeque<(Timestamp, Timestamp, Catalog)>>,
    pub(crate) _lock: Option<Lock>,
}

/// A state that readers can see.
pub(crate) struct Present {
    pub(crate) snapshot: Arc<dyn Snapshot>,
    /// See `LowKeys`.
    pub(crate) number: u64,
    pub(crate) catalog: Catalog,
    pub(crate) applied: OpTimeAndWall,
}

/// A state that waits for the commit point.
struct Waiting {
    since: Instant,
    /// The value of `batch_bytes` when this state was published.
    bytes: u64,
    present: Arc<Present>,
}

/// The counts of a collection.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) documents: u64,
    pub(crate) bytes: u64,
    /// For capped collections: the record number of the next insert.
    pub(crate) next_record: u64,
}

impl Counts {
    pub(crate) fn to_value(self) -> Slice {
        numbers([self.documents, self.bytes, self.next_record])
    }

    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let mut value = Bytewise(value);
        Some(Self { documents: value.u64()?, bytes: value.u64()?, next_record: value.u64()? })
    }

    pub(crate) fn key(table: TableId) -> Vec<u8> {
        meta_key(b'c', &[&table.0.to_be_bytes()])
    }
}

/// Ensures that there is only one batch at a time.
#[derive(Default)]
pub(crate) struct Turn {
    taken: Mutex<bool>,
    free: Condvar,
}

impl Turn {
    pub(crate) fn take(&self) {
        let mut taken = self.taken.lock();
        self.free.wait_while(&mut taken, |taken| *taken);
        *taken = true;
    }

    pub(crate) fn give_back(&self) {
        *self.taken.lock() = false;
        self.free.notify_one();
    }
}

impl Store {
    /// Opens the store in `dbpath`. Creates it if there is none.
    pub fn open(dbpath: &Path, options: StoreOptions) -> Result<Self, StorageError> {
        Self::open_with(dbpath, options, None)
    }

    /// Like [`Self::open`], but the engine fails as `faults` prescribes. For tests.
    #[doc(hidden)]
    pub(crate) fn open_with(
        dbpath: &Path,
        options: StoreOptions,
        faults: Option<Faults>,
    ) -> Result<Self, StorageError> {
        let dbpath = &match options.engine {
            EngineKind::Memory => dbpath.to_owned(),
            // The engine's error messages then show absolute paths.
            EngineKind::Fjall => std::path::absolute(dbpath)
                .map_err(StorageError::io(dbpath.display().to_string()))?,
        };
        let (engine, lock): (Arc<dyn Engine>, _) = match options.engine {
            EngineKind::Memory => (Arc::new(Memory::default()), None),
            EngineKind::Fjall => {
                let shown = || dbpath.display().to_string();
                std::fs::create_dir_all(dbpath).map_err(StorageError::io(shown()))?;
                let lock = Lock::take(dbpath)?;
                checkpoint::start::check_backup(dbpath)?;
                node_files::check_format(dbpath, options.engine)?;
                let path = dbpath.join("engine");
                let finished =
                    checkpoint::start::is_backup(dbpath) || DurableMark::open(dbpath)?.is_begun();
                let checked = Checked::new(&path, finished)?;
                // All files are undamaged. Only from here on are files changed.
                node_files::raise_format(dbpath, options.engine)?;
                checkpoint::start::take_over(dbpath)?;
                (Arc::new(Fjall::open(&path, options.cache_bytes, checked)?), Some(lock))
            }
        };
        Self::open_engine(dbpath, options, engine, lock, faults)
    }

    pub(crate) fn open_engine(
        dbpath: &Path,
        options: StoreOptions,
        engine: Arc<dyn Engine>,
        lock: Option<Lock>,
        faults: Option<Faults>,
    ) -> Result<Self, StorageError> {
        let engine: Arc<dyn Engine> = match faults {
            Some(faults) => Arc::new(Faulty::new(engine, faults)),
            None => engine,
        };
        let snapshot = engine.snapshot();
        let window = Window {
            length: options.history_window,
            bytes_max: options.history_max_bytes,
            dropped_too: false,
        };
        let history = Arc::new(History::open(&*snapshot, window)?);
        if let Some(epoch) = history.first_epoch() {
            engine.forget(Keyspace::History, &[], &epoch.prefix())?;
        }
        if let Some(first) = read_mark(&*snapshot, "firstTable")? {
            let first = u32::try_from(first)
                .map_err(|_| StorageError::corrupt("meta", "the first table"))?;
            forget_tables(&*engine, TableId(first))?;
        }
        let applied = read_position(&*snapshot, "applied")?;
        let oldest = read_mark(&*snapshot, "oldest")?.map_or(Timestamp::NULL, Timestamp::from_u64);
        let durable_mark = lock.is_some().then(|| DurableMark::open(dbpath)).transpose()?;
        let oplog =
            Arc::new(Oplog::open(Arc::clone(&engine), durable_mark, &options, |written| {
                Watermarks::new(written, applied, oldest)
            })?);
        let initial_sync = read_mark(&*snapshot, "initialSync")?.is_some();
        oplog.begin_mark(initial_sync)?;
        // The rows of a batch that was written only in part lie after `applied`: they are not read until its replay.
        let partial = read_mark(&*snapshot, "partial")?.is_some();
        let at = partial.then_some(applied.op_time.ts);
        let low = Arc::<LowKeys>::default();
        let reader = Reader {
            snapshot: Arc::clone(&snapshot),
            history: Arc::clone(&history),
            low: Arc::clone(&low),
            number: 0,
            at,
        };
        let mut catalog = Catalog::read(&reader)?;
        // The catalog does not record drops, so reads at a time before `applied` load the catalog of that time.
        catalog.note_change(applied.op_time.ts);
        let next_table = read_mark(&*snapshot, "nextTable")?
            .map_or(Ok(TableId::FIRST_FREE), u32::try_from)
            .map_err(|_| StorageError::corrupt("meta", "the next table"))?;
        let inner = Inner {
            dbpath: dbpath.to_owned(),
            marks: Arc::clone(oplog.marks()),
            pins: Arc::default(),
            low,
            present: RwLock::new(Arc::new(Present {
                snapshot: Arc::clone(&snapshot),
                number: 0,
                catalog,
                applied,
            })),
            ring: Mutex::default(),
            batch_bytes: AtomicU64::new(0),
            counts: Mutex::new(count_log::read_counts(&*snapshot)?),
            next_table: AtomicU32::new(next_table),
            built: Mutex::default(),
            watchers: Watchers::default(),
            partial: AtomicBool::new(partial),
            initial_sync: AtomicBool::new(initial_sync),
            rollback_floor: read_floor(&*engine, &*snapshot, applied.op_time.ts)?,
            batch_max_bytes: options.batch_max_bytes,
            reclaimed: AtomicU32::new(0),
            turn: Turn::default(),
            backup: Mutex::default(),
            applied_at_open: applied,
            damage: Mutex::new(lock.as_ref().and_then(|_| node_files::read_damage(dbpath))),
            old_catalogs: Mutex::default(),
            engine,
            history,
            oplog,
            _lock: lock,
        };
        inner.finish_rollback()?;
        Ok(Self(Arc::new(inner)))
    }

    /// The directory of the store.
    pub fn dbpath(&self) -> &Path {
        &self.0.dbpath
    }

    /// A document of the node itself by name, such as `local.system.replset`.
    pub fn meta(&self, name: &str) -> Result<Option<RawDoc>, StorageError> {
        let found =
            self.0.engine.snapshot().get(Keyspace::Meta, &meta_key(b'd', &[name.as_bytes()]))?;
        found
            .map(|value| {
                RawDoc::stored(value.into()).map_err(|e| {
                    StorageError::corrupt(format!("node document {name}"), e.to_string())
                })
            })
            .transpose()
    }

    /// Writes a document of the node itself. It is on disk when the call returns.
    pub fn put_meta(&self, name: &str, doc: &RawDocument) -> Result<(), StorageError> {
        let mut batch = Batch::default();
        batch.put(Keyspace::Meta, meta_key(b'd', &[name.as_bytes()]), doc.as_bytes());
        self.0.engine.commit(batch, Sync::Yes)
    }

    /// Removes a document of the node itself. The removal is on disk when the call returns.
    pub fn remove_meta(&self, name: &str) -> Result<(), StorageError> {
        let mut batch = Batch::default();
        batch.remove(Keyspace::Meta, meta_key(b'd', &[name.as_bytes()]));
        self.0.engine.commit(batch, Sync::Yes)
    }

    /// The names of all documents of the node itself.
    pub fn meta_names(&self) -> Result<Vec<String>, StorageError> {
        let (from, to) = prefix_range(b"d");
        let snapshot = self.0.engine.snapshot();
        snapshot
            .range(Keyspace::Meta, from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice))
            .map(|item| {
                let (key, _) = item?;
                Ok(String::from_utf8_lossy(key.get(1..).unwrap_or_default()).into_owned())
            })
            .collect()
    }

    /// The last vote (`local.replset.election`), which has a file of its own.
    pub fn vote(&self) -> Result<Option<RawDoc>, StorageError> {
        if self.0._lock.is_none() {
            return self.meta("local.replset.election");
        }
        let vote = node_files::read_vote(&self.0.dbpath)?;
        let known = read_mark(&*self.0.engine.snapshot(), "voted")?;
        let why = match (&vote, known) {
            (None, Some(_)) => "is missing",
            (Some(vote), Some(known)) if term(vote) < known => "is older than the last vote",
            _ => return Ok(vote),
        };
        let path = self.0.dbpath.join("vote");
        Err(StorageError::Incomplete { path, why: why.to_owned() })
    }

    /// Replaces the last vote. It is on disk when the call returns.
    pub fn put_vote(&self, doc: &RawDocument) -> Result<(), StorageError> {
        if self.0._lock.is_none() {
            return self.put_meta("local.replset.election", doc);
        }
        node_files::write_vote(&self.0.dbpath, doc)?;
        // From now on the vote file must exist and not be older: a node that forgot its vote could vote twice.
        let mut batch = Batch::default();
        batch.put(Keyspace::Meta, mark_key("voted"), numbers([term(doc)]));
        self.0.engine.commit(batch, Sync::Yes)
    }

    /// The oplog of this store.
    pub fn oplog(&self) -> &Arc<Oplog> {
        &self.0.oplog
    }

    /// The replication positions of this store.
    pub fn watermarks(&self) -> &Arc<Watermarks> {
        &self.0.marks
    }

    /// How far entries were applied when the store was opened. Later oplog entries have to be replayed.
    pub fn applied_at_open(&self) -> OpTimeAndWall {
        self.0.applied_at_open
    }

    /// A position whose sync was once reported but that the oplog no longer contains: the disk lost it. Until
    /// `applied` has passed it, this node must neither serve reads nor vote.
    pub fn lost_tail(&self) -> Option<OpTime> {
        self.0.oplog.lost()
    }

    /// True if an initial sync was begun but not finished. It must start again from the beginning.
    pub fn initial_sync_pending(&self) -> bool {
        self.0.initial_sync.load(Ordering::SeqCst)
    }

    /// Begins a batch. Waits until the previous batch has ended.
    pub fn begin_apply(&self) -> Apply {
        Apply::begin(Arc::clone(&self.0))
    }

    /// Reads rows in advance for a batch that has not begun yet.
    pub fn read_ahead(&self) -> ReadAhead {
        ReadAhead::begin(Arc::clone(&self.0))
    }

    /// Opens a view of the data at `at`.
    pub fn view(&self, at: ReadAt) -> Result<View, StorageError> {
        View::open(&self.0, at)
    }

    /// Changes how much history is kept. With `dropped_too`, dropped collections count towards `bytes_max` like old
    /// versions do. Otherwise they are kept for the whole `length`, whatever their size.
    pub fn set_history_window(&self, length: Duration, bytes_max: Option<u64>, dropped_too: bool) {
        self.0.history.set_window(Window { length, bytes_max, dropped_too });
    }

    /// Every prepared transaction with its prepare timestamp.
    pub fn prepared(&self) -> Result<Vec<(TxnId, Timestamp)>, StorageError> {
        prepared::list(&*self.0.engine.snapshot())
    }

    /// Called about once a second: saves the durable mark, trims oplog and history, releases tables and snapshots.
    pub fn maintain(&self, now: bson::DateTime) -> Result<(), StorageError> {
        self.0.engine.tend()?;
        self.note_damage()?;
        self.0.oplog.save_mark()?;
        if self.initial_sync_pending() {
            return Ok(());
        }
        self.0.oplog.trim(now)?;
        self.0.drop_history()?;
        self.0.reclaim()?;
        self.0.refresh_present();
        Ok(())
    }
}

impl Inner {
    pub(crate) fn present(&self) -> Arc<Present> {
        Arc::clone(&self.present.read())
    }

    /// A reader of the newest state, for writers. If a batch was written only in part, it reads at `applied`.
    pub(crate) fn present_reader(&self) -> Reader {
        let partial = self.partial.load(Ordering::SeqCst);
        let at = partial.then(|| self.marks.applied().op_time.ts);
        Reader {
            number: self.low.latest(),
            snapshot: self.engine.snapshot(),
            history: Arc::clone(&self.history),
            low: Arc::clone(&self.low),
            at,
        }
    }

    /// Publishes what was just committed, so that readers see it. Only the current batch calls this.
    pub(crate) fn publish(&self, catalog: Catalog, applied: OpTimeAndWall) {
        self.show(catalog, applied);
        self.marks.set_applied(applied);
    }

    /// Like [`Self::publish`], but does not move `applied`.
    pub(crate) fn show(&self, catalog: Catalog, applied: OpTimeAndWall) {
        let number = self.low.latest();
        let present =
            Arc::new(Present { snapshot: self.engine.snapshot(), number, catalog, applied });
        *self.present.write() = Arc::clone(&present);
        let mut ring = self.ring.lock();
        let bytes = self.batch_bytes.load(Ordering::Relaxed);
        ring.push_back(Waiting { since: Instant::now(), bytes, present });
        while ring.len() > RING_LEN_MAX {
            ring.pop_front();
        }
        drop(ring);
        self.trim_ring();
    }

    /// The newest published state that is majority-committed, if the ring still has one.
    pub(crate) fn majority_present(&self) -> Option<Arc<Present>> {
        let commit = self.marks.commit_point();
        self.trim_ring();
        let ring = self.ring.lock();
        let found = ring.iter().rev().find(|w| w.present.applied.op_time <= commit.op_time)?;
        Some(Arc::clone(&found.present))
    }

    /// Clears the ring after a rollback, because states after the common point are no longer valid.
    pub(crate) fn forget_newer_presents(&self) {
        self.ring.lock().clear();
    }

    fn trim_ring(&self) {
        let commit = self.marks.commit_point();
        let written = self.batch_bytes.load(Ordering::Relaxed);
        let mut ring = self.ring.lock();
        while ring.get(1).is_some_and(|next| next.present.applied.op_time <= commit.op_time)
            || ring.front().is_some_and(|first| {
                first.since.elapsed() > RING_AGE_MAX || written > first.bytes + RING_BYTES_MAX
            })
        {
            ring.pop_front();
        }
    }

    /// Replaces the published engine snapshot, so that an idle store does not keep an old one alive.
    fn refresh_present(&self) {
        self.turn.take();
        let old = self.present();
        *self.present.write() = Arc::new(Present {
            snapshot: self.engine.snapshot(),
            number: old.number,
            catalog: old.catalog.clone(),
            applied: old.applied,
        });
        self.turn.give_back();
        self.trim_ring();
    }

    fn drop_history(&self) -> Result<(), StorageError> {
        let applied = self.marks.applied().op_time.ts;
        let stable = self.marks.stable().op_time.ts;
        let before = self.marks.oldest();
        let oldest = self.pins.with_first(|pinned| {
            // A rollback never goes back further than `stable`.
            let oldest = self.history.wanted_oldest(applied, pinned).min(stable);
            self.marks.set_oldest(oldest);
            self.marks.oldest()
        });
        if oldest > before {
            self.history.drop_before(oldest, &*self.engine)?;
        }
        Ok(())
    }

    /// The second phase of a two-phase drop. Removes tables that no readable timestamp needs, and undo rows that only
    /// a rollback to before `stable` would need.
    fn reclaim(&self) -> Result<(), StorageError> {
        let stable = self.marks.stable().op_time.ts;
        let readable = if self.history.keeps() { self.marks.oldest() } else { stable };
        let snapshot = self.engine.snapshot();
        let mut batch = Batch::default();
        let Abandoned { kept, gone } = self.abandoned(&*snapshot, readable.min(stable))?;
        self.history.set_dropped(kept);
        let marked = read_mark(&*snapshot, "oldest")?.map_or(Timestamp::NULL, Timestamp::from_u64);
        if self.history.keeps() && gone.iter().any(|(_, at)| *at >= marked) {
            // Synced before anything is removed: after a crash, old timestamps without their rows must not be readable.
            let mut mark = Batch::default();
            mark.put(Keyspace::Meta, mark_key("oldest"), numbers([readable.as_u64()]));
            self.engine.commit(mark, Sync::Yes)?;
        }
        for (table, _) in gone {
            let key = meta_key(b'x', &[&table.0.to_be_bytes()]);
            let (from, to) = (table.key(&[]), table.end());
            self.engine.forget(Keyspace::Current, &from, &to)?;
            let rest = self.engine.snapshot();
            let mut rows =
                rest.range(Keyspace::Current, Bound::Included(&from), Bound::Excluded(&to));
            if rows.next().is_none() {
                batch.remove(Keyspace::Meta, key);
                batch.remove(Keyspace::Meta, Counts::key(table));
                self.counts.lock().remove(&table);
            }
        }
        self.engine.commit(batch, Sync::No)?;
        // Nobody reads these rows, so they are removed only every `RECLAIM_SECS`.
        let due = stable.secs() / RECLAIM_SECS;
        if !stable.is_null() && self.reclaimed.swap(due, Ordering::SeqCst) != due {
            self.raise_floor(stable)?;
            let at = stable.as_u64().to_be_bytes();
            self.engine.forget(Keyspace::Meta, b"u", &meta_key(b'u', &[&at]))?;
            self.engine.forget(Keyspace::Prepared, b"r", &meta_key(b'r', &[&at]))?;
        }
        Ok(())
    }

    /// Sorts all dropped tables into those that are still needed and those that can be removed.
    fn abandoned(
        &self,
        snapshot: &dyn Snapshot,
        readable: Timestamp,
    ) -> Result<Abandoned, StorageError> {
        let mut known = self.history.dropped();
        let Abandoned { mut kept, mut gone } = Abandoned::default();
        let mut names: Option<HashMap<TableId, Namespace>> = None;
        for item in snapshot.range(Keyspace::Meta, Bound::Included(b"x"), Bound::Excluded(b"y")) {
            let (key, value) = item?;
            let row =
                (|| Some((TableId(Bytewise(key.get(1..)?).u32()?), Bytewise(&value).ts()?)))();
            let (table, at) =
                row.ok_or_else(|| StorageError::corrupt("meta", "the row of a dropped table"))?;
            if at < readable {
                gone.push((table, at));
                continue;
            }
            let dropped = match known.remove(&table).filter(|known| known.at == at) {
                Some(known) => known,
                None => {
                    let Counts { documents, bytes, .. } = self.counts_of(table);
                    let names = match &mut names {
                        Some(names) => names,
                        None => names.insert(self.names_in_history(snapshot)?),
                    };
                    Dropped { at, documents, bytes, ns: names.get(&table).cloned() }
                }
            };
            kept.insert(table, dropped);
        }
        Ok(Abandoned { kept, gone })
    }

    /// The namespaces of all tables that earlier catalogs contain.
    fn names_in_history(
        &self,
        snapshot: &dyn Snapshot,
    ) -> Result<HashMap<TableId, Namespace>, StorageError> {
        let mut names = HashMap::new();
        for epoch in self.history.epochs_from(Timestamp::NULL, TableId::CATALOG) {
            let from = [epoch.prefix(), TableId::CATALOG.0.to_be_bytes()].concat();
            let to = [epoch.prefix(), TableId::CATALOG.end()].concat();
            let rows =
                snapshot.range(Keyspace::History, Bound::Included(&from), Bound::Excluded(&to));
            for item in rows {
                let (key, value) = item?;
                let row = split_history_key(&key).and_then(|(row, _)| row.get(4..));
                let row =
                    row.ok_or_else(|| StorageError::corrupt("history", "a key is cut short"))?;
                let coll = Collection::from_row(row, &Version::parse(value)?)?;
                let indexes = coll.indexes.iter().flat_map(|index| [index.table, index.side]);
                for table in [coll.table].into_iter().chain(coll.id_table).chain(indexes) {
                    names.insert(table, coll.ns().clone());
                }
            }
        }
        Ok(names)
    }

    pub(crate) fn new_table(&self) -> TableId {
        TableId(self.next_table.fetch_add(1, Ordering::SeqCst))
    }

    pub(crate) fn counts_of(&self, table: TableId) -> Counts {
        self.counts.lock().get(&table).copied().unwrap_or_default()
    }
}

/// Dropped tables.
#[derive(Default)]
struct Abandoned {
    /// Tables that readers may still need.
    kept: BTreeMap<TableId, Dropped>,
    /// Tables that can be removed, with the time of their drop.
    gone: Vec<(TableId, Timestamp)>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A clean shutdown leaves everything and the durable mark on disk. After an engine failure both calls fail.
        if let Err(error) = self.oplog.sync().and_then(|_| self.oplog.save_mark()) {
            tracing::warn!(%error, "the store could not be synced at shutdown");
        }
    }
}

fn term(vote: &RawDocument) -> u64 {
    vote.get_i64("term").ok().and_then(|term| u64::try_from(term).ok()).unwrap_or(0)
}

pub(crate) fn mark_key(name: &str) -> Vec<u8> {
    meta_key(b'm', &[name.as_bytes()])
}

pub(crate) fn read_mark(snapshot: &dyn Snapshot, name: &str) -> Result<Option<u64>, StorageError> {
    let Some(value) = snapshot.get(Keyspace::Meta, &mark_key(name))? else { return Ok(None) };
    Bytewise(&value)
        .u64()
        .map(Some)
        .ok_or_else(|| StorageError::corrupt("meta", format!("the mark {name}")))
}

pub(crate) fn position_value(at: OpTimeAndWall) -> Slice {
    numbers([
        at.op_time.ts.as_u64(),
        at.op_time.t.cast_unsigned(),
        at.wall.timestamp_millis().cast_unsigned(),
    ])
}

/// The value of the mark "applied", see [`crate::layout::synced`].
pub(crate) fn applied_value(at: OpTimeAndWall, engine: &dyn Engine) -> Slice {
    [&*position_value(at), &*numbers([engine.synced()])].concat().into()
}

pub(crate) fn read_position(
    snapshot: &dyn Snapshot,
    name: &str,
) -> Result<OpTimeAndWall, StorageError> {
    let Some(value) = snapshot.get(Keyspace::Meta, &mark_key(name))? else {
        return Ok(OpTimeAndWall::NULL);
    };
    let mut value = Bytewise(&value);
    let read = (|| {
        let op_time = OpTime::new(value.ts()?, value.u64()?.cast_signed());
        Some(OpTimeAndWall {
            op_time,
            wall: bson::DateTime::from_millis(value.u64()?.cast_signed()),
        })
    })();
    read.ok_or_else(|| StorageError::corrupt("meta", format!("the mark {name}")))
}

#[cfg(test)]
mod tests;
