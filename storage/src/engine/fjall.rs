//! The engine on disk: fjall 3.1 behind the engine trait, with measured settings and the features that fjall lacks.
//!
//! | setting | why |
//! | --- | --- |
//! | memtables of 8 MiB in `current`, 4 in `history` and `oplog`, cache of 32 MiB | each memtable counts two or three times: one is being written, one is being flushed, one is still held by a snapshot |
//! | blocks of 4 KiB in `current` and `history`, 16 in `oplog` | `current` and `history` serve point reads, the oplog long scans |
//! | partitioned index and filter blocks from the second level on | if the cache cannot hold all of them, whole ones would be read again and again |
//! | at most 128 MiB of journals | `meta` fills so slowly that it would keep all journals alive, and an open replays them |
//! | values above 64 KiB in blob files | documents of 16 MiB then take 330 MiB instead of 950 |
//! | lz4 from the second level on | a freshly flushed table is read the most, and a compaction soon rewrites it |
//! | compaction after 8 flushes, tables of 16 MiB | the level below the flushed tables then holds 128 MiB, which each compaction rewrites; with tables of 64 MiB it would hold 256. Catching up 400,000 operations on a million documents takes 12.0 s of CPU time, 13.5 with 4 flushes, 13.0 with 12, 25.0 with 4 flushes and tables of 64 MiB |
//! | one worker thread | with several, the first one busy-waits while the others compact; writers do the flushes that the worker has no time for |
//!
//! Keyspace options are stored at creation. A restart cannot change them; only a new dbpath gets new ones.

use std::{
    io::ErrorKind,
    ops::Bound,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use fjall::{
    AbstractTree, CompressionType, Database, KeyspaceCreateOptions, KvSeparationOptions,
    PersistMode, Readable,
    compaction::{
        Leveled,
        filter::{CompactionFilter, Context, Factory, ItemAccessor, Verdict},
    },
    config::{BlockSizePolicy, CompressionPolicy, PartitioningPolicy},
};
use lsm_tree::{InternalValue, Tree, ValueType};
use parking_lot::{Mutex, RwLock};

use self::{
    ascent::Ascent,
    journal::Journals,
    journals::Known,
    versions::{Listed, Versions},
};
use super::{
    Batch, Engine, Frozen, Item, Iter, Keyspace, Look, Made, Slice, Snapshot, Sync, Walk,
    damage::{self, Damaged},
};
use crate::{
    StorageError,
    layout::{INGESTED, numbers},
};

mod ascent;
mod freeze;
pub(in crate::engine) mod journal;
mod journals;
mod journals_mark;
mod precheck;
mod versions;

/// Values of at least this size are stored in blob files.
const BLOB_THRESHOLD: u32 = 64 << 10;
/// The target size of a table. A compaction always rewrites whole tables.
const TABLE_BYTES: u64 = 16 << 20;
/// When the journals grow beyond this, memtables are flushed so that journals can be removed.
const JOURNAL_BYTES_MAX: u64 = 128 << 20;

/// How many sealed memtables of a keyspace may wait for a flush before a writer flushes them itself. Without a limit
/// they would fill the memory when the disk or the CPU is slow.
const SEALED_MAX: usize = 1;

/// If the disk has less free space than this, about the size of one flushed table, it counts as full.
const FULL_BELOW_BYTES: u64 = 16 << 20;

/// Proof that an engine's files were checked and are undamaged, or do not exist yet.
pub(crate) struct Checked {
    journals: Journals,
    /// True if an earlier start has created all keyspaces. Then all of them must exist.
    finished: bool,
}

impl Checked {
    /// Checks the files before the engine opens them.
    pub(crate) fn new(path: &Path, finished: bool) -> Result<Self, StorageError> {
        precheck::clear_unfinished(path, finished)?;
        Ok(Self { journals: precheck::check(path, finished)?, finished })
    }
}

/// A function that seals a memtable: [`Fjall::seal`] or [`Fjall::seal_alone`].
type Seal<'a> = &'a dyn Fn(&fjall::Keyspace) -> Result<(), StorageError>;

/// The engine on disk.
pub(crate) struct Fjall {
    db: Database,
    keyspaces: Vec<fjall::Keyspace>,
    forgotten: Vec<Arc<Forgotten>>,
    place: Arc<Place>,
    /// Held shared by writers, and exclusively by whoever needs the files not to change.
    writers: RwLock<()>,
    versions: Arc<Versions>,
    /// A lower bound for the sequence number of the last write in the journals.
    journaled: AtomicU64,
    /// A lower bound for the sequence number of the last write that is on disk.
    synced: AtomicU64,
    known: Mutex<Known>,
}

impl Fjall {
    /// Opens or creates the database in `path`.
    pub(crate) fn open(
        path: &Path,
        cache_bytes: u64,
        Checked { journals, finished }: Checked,
    ) -> Result<Self, StorageError> {
        let forgotten: Vec<Arc<Forgotten>> = Keyspace::ALL.iter().map(|_| Arc::default()).collect();
        let assign = forgotten.clone();
        let place = Arc::new(Place {
            path: path.to_owned(),
            damaged: OnceLock::new(),
            told: OnceLock::new(),
        });
        let db = Database::builder(path)
            .cache_size(cache_bytes)
            .max_journaling_size(JOURNAL_BYTES_MAX)
            .journal_compression(CompressionType::None)
            .worker_threads(1)
            .with_compaction_filter_factories(Arc::new(move |name: &str| {
                let at = Keyspace::ALL.iter().position(|ks| ks.name() == name)?;
                Some(Arc::new(ForgetFactory(assign.get(at)?.clone())) as Arc<dyn Factory>)
            }))
            .open()
            .map_err(|e| place.open_error(e))?;
        let names = db.list_keyspace_names();
        let lost = Keyspace::ALL.iter().find(|ks| names.iter().all(|name| **name != *ks.name()));
        if let Some(lost) = lost.filter(|_| finished) {
            let why = format!("does not hold the keyspace {}", lost.name());
            return Err(StorageError::Incomplete { path: path.join("keyspaces"), why });
        }
        let keyspaces: Vec<_> = Keyspace::ALL
            .iter()
            .map(|ks| db.keyspace(ks.name(), || options(*ks)).map_err(|e| place.error(e)))
            .collect::<Result<_, _>>()?;
        let versions = Versions::new(&keyspaces);
        Ok(Self {
            db,
            keyspaces,
            forgotten,
            place,
            writers: RwLock::default(),
            versions,
            journaled: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            known: Mutex::new(Known::new(journals)),
        })
    }

    /// Writes a batch. The caller must hold the `writers` lock.
    fn write(&self, batch: Batch, sync: Sync) -> Result<(), StorageError> {
        let mode = match sync {
            Sync::No => PersistMode::Buffer,
            Sync::Yes => PersistMode::SyncData,
        };
        let mut out = fjall::OwnedWriteBatch::with_capacity(self.db.clone(), batch.writes.len())
            .durability(Some(mode));
        for (ks, key, value) in batch.writes {
            match value {
                Some(value) => out.insert(self.keyspace(ks), key, value),
                None => out.remove(self.keyspace(ks), key),
            }
        }
        let empty = out.is_empty();
        // This is at most the sequence number of this batch, because others may write at the same time.
        let number = self.db.seqno();
        out.commit().map_err(|e| self.place.error(e))?;
        if !empty {
            self.journaled.fetch_max(number, Ordering::SeqCst);
            if sync == Sync::Yes {
                self.synced.fetch_max(number, Ordering::SeqCst);
            }
        }
        Ok(())
    }

    /// Syncs the journal.
    fn persist(&self, mode: PersistMode) -> Result<(), StorageError> {
        let number = self.journaled.load(Ordering::SeqCst);
        self.db.persist(mode).map_err(|e| self.place.error(e))?;
        self.synced.fetch_max(number, Ordering::SeqCst);
        Ok(())
    }

    /// Flushes keyspaces in which more than `sealed_max` memtables wait. An error does not affect the batch just
    /// written: the engine's worker will try the same flush and will stop the engine if it fails.
    fn relieve(&self, sealed_max: usize) {
        if let Err(error) = self.write_out(sealed_max, &|ks| self.seal(ks)) {
            tracing::warn!(%error, "memtables could not be written out");
        }
    }

    /// Seals memtables that are too large, and flushes keyspaces in which more than `sealed_max` memtables wait. The
    /// engine's worker does the same, but only between its compactions.
    fn write_out(&self, sealed_max: usize, seal: Seal<'_>) -> Result<(), StorageError> {
        for (ks, which) in self.keyspaces.iter().zip(Keyspace::ALL) {
            if ks.tree.active_memtable().size() > memtable_bytes(which) / 4 * 5 {
                seal(ks)?;
            }
            if ks.sealed_memtable_count() > sealed_max {
                self.flush(ks)?;
            }
        }
        Ok(())
    }

    /// Seals a memtable. Then this thread or the engine's worker flushes it, at any time. A table must not contain
    /// writes that the journal could lose, otherwise a part of a batch would survive a crash. So the journal is synced
    /// first, and writers are blocked meanwhile.
    fn seal(&self, ks: &fjall::Keyspace) -> Result<(), StorageError> {
        let _alone = self.writers.write();
        self.seal_alone(ks)
    }

    /// Like [`Self::seal`], for a caller that holds the `writers` lock exclusively.
    fn seal_alone(&self, ks: &fjall::Keyspace) -> Result<(), StorageError> {
        if ks.tree.active_memtable().size() == 0 {
            return Ok(());
        }
        self.persist(PersistMode::SyncAll)?;
        ks.rotate_memtable().map_err(|e| self.place.error(e))?;
        Ok(())
    }

    #[cfg(test)]
    fn open_here(path: &Path, finished: bool) -> Result<Self, StorageError> {
        Self::open(path, 1 << 20, Checked::new(path, finished)?)
    }

    fn flush(&self, ks: &fjall::Keyspace) -> Result<(), StorageError> {
        let lock = ks.tree.get_flush_lock();
        // The engine's worker seals memtables without a sync and syncs only before its own flush. This flush may come
        // before that, so the journal is synced here until no memtable was sealed meanwhile.
        loop {
            let sealed = ks.sealed_memtable_count();
            self.persist(PersistMode::SyncAll)?;
            if ks.sealed_memtable_count() == sealed {
                break;
            }
        }
        let seen_by_all = self.db.supervisor.snapshot_tracker.get_seqno_safe_to_gc();
        ks.tree.flush(&lock, seen_by_all).map_err(|e| self.place.error(e.into()))?;
        Ok(())
    }

    #[allow(clippy::indexing_slicing, reason = "one handle per keyspace, made at open")]
    fn keyspace(&self, ks: Keyspace) -> &fjall::Keyspace {
        &self.keyspaces[ks as usize]
    }
}

fn memtable_bytes(ks: Keyspace) -> u64 {
    match ks {
        Keyspace::Current => 8 << 20,
        Keyspace::History | Keyspace::Oplog => 4 << 20,
        Keyspace::Prepared | Keyspace::Meta => 2 << 20,
    }
}

fn options(ks: Keyspace) -> KeyspaceCreateOptions {
    let block = match ks {
        Keyspace::Oplog => 16 << 10,
        _ => 4 << 10,
    };
    KeyspaceCreateOptions::default()
        .compaction_strategy(Arc::new(
            Leveled::default().with_l0_threshold(8).with_table_target_size(TABLE_BYTES),
        ))
        .max_memtable_size(memtable_bytes(ks))
        .data_block_size_policy(BlockSizePolicy::all(block))
        .index_block_partitioning_policy(PartitioningPolicy::new([false, true]))
        .filter_block_partitioning_policy(PartitioningPolicy::new([false, true]))
        .data_block_compression_policy(CompressionPolicy::new([
            CompressionType::None,
            CompressionType::Lz4,
        ]))
        .with_kv_separation(Some(
            KvSeparationOptions::default().separation_threshold(BLOB_THRESHOLD),
        ))
}

impl Engine for Fjall {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        Arc::new(FjallSnapshot {
            at: self.versions.open(&self.db),
            keyspaces: self.keyspaces.clone(),
            place: Arc::clone(&self.place),
        })
    }

    fn commit(&self, batch: Batch, sync: Sync) -> Result<(), StorageError> {
        let writing = self.writers.read();
        self.write(batch, sync)?;
        self.versions.prune();
        drop(writing);
        self.relieve(SEALED_MAX);
        Ok(())
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.persist(PersistMode::SyncData)
    }

    fn synced(&self) -> u64 {
        self.synced.load(Ordering::SeqCst)
    }

    fn tend(&self) -> Result<(), StorageError> {
        // The engine reports a failure of its worker only to writers, so this acts as one.
        self.db.persist(PersistMode::Buffer).map_err(|e| self.place.error(e))?;
        self.note_journals()
    }

    fn damage(&self) -> Option<String> {
        self.place.told.get().cloned()
    }

    fn ingest(
        &self,
        ks: Keyspace,
        run: &mut dyn Iterator<Item = Item>,
    ) -> Result<(), StorageError> {
        let map = |e| self.place.error(e);
        let mut ingestion = self.keyspace(ks).start_ingestion().map_err(map)?;
        for item in run {
            let (key, value) = item?;
            ingestion.write(key, value).map_err(map)?;
        }
        // `finish` flushes the memtable first. A table must not contain writes that the journal could lose, otherwise
        // a part of a batch would survive a crash.
        let _alone = self.writers.write();
        self.persist(PersistMode::SyncAll)?;
        ingestion.finish().map_err(map)?;
        // The last write in the journals must be later than the ingested run, see F5 of `precheck`.
        let mut batch = Batch::default();
        batch.put(Keyspace::Meta, INGESTED, numbers([self.db.seqno()]));
        self.write(batch, Sync::Yes)
    }

    #[allow(clippy::indexing_slicing, reason = "one list per keyspace, made at open")]
    fn forget(&self, ks: Keyspace, from: &[u8], to: &[u8]) -> Result<(), StorageError> {
        self.forgotten[ks as usize].add(from, to);
        self.keyspace(ks)
            .tree
            .drop_range::<&[u8], _>((Bound::Included(from), Bound::Excluded(to)))
            .map_err(|e| self.place.error(e.into()))
    }

    #[allow(clippy::indexing_slicing, reason = "one list per keyspace, made at open")]
    fn recall(&self, ks: Keyspace) {
        *self.forgotten[ks as usize].0.write() = Arc::default();
    }

    fn settle(&self) {
        self.relieve(0);
        let _writing = self.writers.read();
        self.versions.prune();
    }

    fn freeze(&self) -> Result<Frozen, StorageError> {
        self.freeze_files()
    }

    fn disk_bytes(&self, ks: Keyspace) -> u64 {
        self.keyspace(ks).disk_space()
    }
}

struct FjallSnapshot {
    at: Listed,
    keyspaces: Vec<fjall::Keyspace>,
    place: Arc<Place>,
}

impl Snapshot for FjallSnapshot {
    fn get(&self, ks: Keyspace, key: &[u8]) -> Result<Option<Slice>, StorageError> {
        self.at.at.get(self.keyspace(ks), key).map_err(|e| self.place.error(e))
    }

    fn range(&self, ks: Keyspace, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Iter {
        if crate::layout::is_empty_range(from, to) {
            return Box::new(Made(std::iter::empty()));
        }
        match self.at.still(ks as usize) {
            Some(still) => Box::new(Ascending {
                rows: still.ascend(from, to, self.at.at.seqno()),
                blobs: self.blobs(ks),
            }),
            None => self.items(ks, self.walk(ks, from, to)),
        }
    }

    fn range_back(&self, ks: Keyspace, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Iter {
        if crate::layout::is_empty_range(from, to) {
            return Box::new(Made(std::iter::empty()));
        }
        self.items(ks, self.walk(ks, from, to).rev())
    }
}

impl FjallSnapshot {
    #[allow(clippy::indexing_slicing, reason = "one handle per keyspace, made at open")]
    fn keyspace(&self, ks: Keyspace) -> &fjall::Keyspace {
        &self.keyspaces[ks as usize]
    }

    /// The engine's internal iterator, without the wrapper that the engine puts around each row.
    fn walk(
        &self,
        ks: Keyspace,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = lsm_tree::Result<InternalValue>> + use<> {
        let tree = &self.keyspace(ks).tree;
        let at = self.at.at.seqno();
        let version = tree.get_version_history_lock().get_version_for_snapshot(at);
        let bounds = (from.map(Slice::from), to.map(Slice::from));
        Tree::create_internal_range::<Slice, _>(version, &bounds, at, None)
    }

    fn items(
        &self,
        ks: Keyspace,
        rows: impl Iterator<Item = lsm_tree::Result<InternalValue>> + Send + 'static,
    ) -> Iter {
        let blobs = self.blobs(ks);
        Box::new(Made(rows.map(move |row| blobs.item(row))))
    }

    fn blobs(&self, ks: Keyspace) -> Blobs {
        Blobs {
            at: self.at.clone(),
            keyspace: self.keyspace(ks).clone(),
            place: Arc::clone(&self.place),
        }
    }
}

/// An iterator that tests rows in place, before they are copied.
struct Ascending {
    rows: Ascent,
    blobs: Blobs,
}

impl Iterator for Ascending {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        self.rows.next().map(|row| self.blobs.item(row))
    }
}

impl Walk for Ascending {
    fn next_where(&mut self, test: Look<'_>) -> Option<Item> {
        loop {
            // `find` accepts a value in a blob file without testing it, so it is tested here.
            let row = self.rows.find(test)?;
            let elsewhere =
                row.as_ref().is_ok_and(|row| row.key.value_type == ValueType::Indirection);
            let item = self.blobs.item(row);
            match &item {
                Ok((key, value)) if elsewhere && !test(key.len(), value) => {}
                _ => return Some(item),
            }
        }
    }
}

/// Reads the values that an iterator's rows keep in blob files. The engine's own iterator returns each row with
/// shared pointers to its tree and version, in case the value is in a blob file. Here, such a value of
/// [`BLOB_THRESHOLD`] bytes or more is read by its key instead.
struct Blobs {
    /// The snapshot. It also keeps the files that the iterator reads.
    at: Listed,
    keyspace: fjall::Keyspace,
    place: Arc<Place>,
}

impl Blobs {
    fn item(&self, row: lsm_tree::Result<InternalValue>) -> Item {
        match row {
            Ok(row) if row.key.value_type != ValueType::Indirection => {
                Ok((row.key.user_key, row.value))
            }
            Ok(row) => self.fetch(row.key.user_key),
            Err(e) => Err(self.place.error(e.into())),
        }
    }

    fn fetch(&self, key: Slice) -> Item {
        match self.at.at.get(&self.keyspace, &key).map_err(|e| self.place.error(e))? {
            Some(value) => Ok((key, value)),
            None => Err(StorageError::corrupt(
                self.place.path.display().to_string(),
                "a large value is not where its row says",
            )),
        }
    }
}

/// Key ranges that nobody will read again. Compaction omits them; tables that lie completely within one are removed
/// at once.
#[derive(Default)]
struct Forgotten(RwLock<Arc<Vec<(Slice, Slice)>>>);

impl Forgotten {
    /// Adds a range and merges it with the ranges it overlaps or touches.
    fn add(&self, from: &[u8], to: &[u8]) {
        let mut guard = self.0.write();
        let (mut from, mut to) = (Slice::from(from), Slice::from(to));
        let mut ranges = Vec::with_capacity(guard.len() + 1);
        for (a, b) in guard.iter() {
            if *b < from || *a > to {
                ranges.push((a.clone(), b.clone()));
            } else {
                from = from.min(a.clone());
                to = to.max(b.clone());
            }
        }
        ranges.push((from, to));
        ranges.sort();
        *guard = Arc::new(ranges);
    }
}

struct ForgetFactory(Arc<Forgotten>);

impl Factory for ForgetFactory {
    fn name(&self) -> &str {
        "forgotten ranges"
    }

    fn make_filter(&self, _ctx: &Context) -> Box<dyn CompactionFilter> {
        Box::new(ForgetFilter(Arc::clone(&self.0.0.read())))
    }
}

// A panic cannot leave the list half-changed, because `add` replaces it by a complete one.
impl std::panic::RefUnwindSafe for Forgotten {}

/// A compaction filter for forgotten ranges. It decides by the key alone, so it may use `Destroy`: older versions of
/// a key are in the same range.
struct ForgetFilter(Arc<Vec<(Slice, Slice)>>);

impl CompactionFilter for ForgetFilter {
    fn filter_item(
        &mut self,
        item: ItemAccessor<'_>,
        _ctx: &Context,
    ) -> fjall::compaction::filter::CompactionFilterResult {
        let key = item.key();
        let at = self.0.partition_point(|(from, _)| from <= key);
        let inside = at.checked_sub(1).and_then(|i| self.0.get(i)).is_some_and(|(_, to)| key < to);
        Ok(if inside { Verdict::Destroy } else { Verdict::Keep })
    }
}

/// The directory of the engine's files and the damage found in them.
struct Place {
    path: PathBuf,
    /// The damaged file, searched for once, at the first sign of damage.
    damaged: OnceLock<Option<Damaged>>,
    /// The message of the first error that reported damage.
    told: OnceLock<String>,
}

impl Place {
    fn error(&self, e: fjall::Error) -> StorageError {
        match e {
            fjall::Error::Io(source) | fjall::Error::Storage(fjall::LsmError::Io(source)) => {
                match source.kind() {
                    // A file that ends early, is missing, or has invalid content.
                    ErrorKind::UnexpectedEof
                    | ErrorKind::InvalidData
                    | ErrorKind::InvalidInput
                    | ErrorKind::NotFound => self.corrupt(&source.to_string()),
                    _ => StorageError::Io { what: self.path.display().to_string(), source },
                }
            }
            fjall::Error::Poisoned => self.stopped(),
            other => self.corrupt(&format!("{other:?}")),
        }
    }

    fn open_error(&self, e: fjall::Error) -> StorageError {
        match e {
            fjall::Error::JournalRecovery(why) => {
                StorageError::JournalDamaged { path: self.journal(), why: why.to_string() }
            }
            fjall::Error::Locked => StorageError::Locked { path: self.path.join("lock") },
            fjall::Error::InvalidVersion(_) => StorageError::corrupt(
                self.path.join("version").display().to_string(),
                e.to_string(),
            ),
            other => self.error(other),
        }
    }

    /// The error for an engine that stopped because one of its threads failed. The engine does not say why; in most
    /// cases the disk is full.
    fn stopped(&self) -> StorageError {
        let what = self.path.display().to_string();
        let full = rustix::fs::statvfs(&self.path)
            .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < FULL_BELOW_BYTES);
        if full {
            return StorageError::Io { what, source: ErrorKind::StorageFull.into() };
        }
        StorageError::Poisoned(what)
    }

    /// An error that names the damaged file, or the directory if no damaged file was found.
    fn corrupt(&self, why: &str) -> StorageError {
        let error = match self.damaged.get_or_init(|| damage::find(&self.path)) {
            Some(Damaged { file, why: found }) => {
                StorageError::corrupt(file.display().to_string(), format!("{found} ({why})"))
            }
            None => StorageError::corrupt(self.path.display().to_string(), why),
        };
        self.told.get_or_init(|| error.to_string());
        error
    }

    /// The journal if there is only one, else the directory.
    fn journal(&self) -> PathBuf {
        let entries = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        let mut journals = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "jnl"));
        match (journals.next(), journals.next()) {
            (Some(only), None) => only,
            _ => self.path.clone(),
        }
    }
}
