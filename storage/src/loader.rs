//! Loads a whole collection during initial sync: documents as they arrive, then each index from its sorted keys.
//!
//! ```text
//!   documents --> window --> ascending run --> ingested while it is received
//!                   |            \--> in chunks, on a thread of its own: keys --> a sorter per index
//!                   \--> late: sorted, ingested after it
//! ```
//! Natural order is mostly `_id` order, and bulk ingestion requires ascending keys: documents in approximately that
//! order are streamed into tables without using a sort file. If everything fits in memory, it is written in ordinary
//! batches (an ingestion takes 30 ms, however small it is). No history is written: the versions start at zero. A
//! crash leaves a half-loaded collection and the initial sync's flag, which restarts the sync.

mod ascending;
mod indexes;

use std::sync::{Arc, mpsc};

use protocol::{RawDoc, Timestamp};
use uuid::Uuid;

use crate::{
    Apply, StorageError,
    catalog::Collection,
    engine::{Batch, Item, Keyspace, Slice, Sync},
    layout::{TableId, cut},
    mvcc::{Version, version::Head},
    sort::Sorter,
    store::{Counts, Inner},
};
use ascending::Ascending;
use indexes::Indexes;
pub(crate) use indexes::{IndexLoad, write_indexes};

/// Memory for documents that are held back to be sorted.
const WINDOW_BYTES: usize = 8 << 20;
/// Memory for documents that arrived too late to be sorted in the window.
const LATE_BYTES: usize = 8 << 20;
/// Memory for the keys of all indexes together.
const KEYS_BYTES: usize = 16 << 20;
/// Batch size for writing small loads.
const BATCH_BYTES: u64 = 4 << 20;
/// Rows per chunk for the key-generating thread, and how many chunks may wait for it.
const CHUNK_ROWS: usize = 256;
const CHUNKS_AHEAD: usize = 2;
/// Maximum bytes per chunk.
const CHUNK_BYTES: usize = 1 << 20;

/// What was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Number of documents, each `_id` counted once.
    pub documents: u64,
    /// Size of the documents in bytes.
    pub bytes: u64,
}

/// Loads the documents of an empty collection, in any order. Of two with the same `_id` the later one wins.
pub(crate) fn load(
    store: &Arc<Inner>,
    coll: &Arc<Collection>,
    docs: &mut dyn Iterator<Item = RawDoc>,
) -> Result<LoadReport, StorageError> {
    let mut rows = Ascending::new(store, coll, docs);
    let mut indexes = Indexes::new(store, coll, KEYS_BYTES);
    let in_memory = rows.fill()?;
    if in_memory {
        write_run(store, &mut rows.by_ref().map(|row| indexes.pass(row?)), true)?;
    } else {
        write_beside(store, &mut rows, &mut indexes)?;
    }
    let (late, next_record) = rows.into_late();
    let again = write_late(store, late, &mut indexes)?;
    let (mut tally, multikey) = indexes.finish(store)?;
    tally.next_record = next_record;
    let mut batch = Batch::default();
    batch.put(Keyspace::Meta, Counts::key(coll.table), tally.to_value());
    store.engine.commit(batch, Sync::No)?;
    store.counts.lock().insert(coll.table, tally);
    replace(store, coll.uuid(), again, multikey)?;
    let counts = store.counts_of(coll.table);
    Ok(LoadReport { documents: counts.documents, bytes: counts.bytes })
}

/// Ingests rows while another thread generates their index keys: each is about half of the work.
fn write_beside(
    store: &Inner,
    rows: &mut dyn Iterator<Item = Item>,
    indexes: &mut Indexes,
) -> Result<(), StorageError> {
    let (chunks, queue) = mpsc::sync_channel::<Vec<(Slice, Slice)>>(CHUNKS_AHEAD);
    std::thread::scope(|scope| {
        let keys = scope.spawn(move || {
            let mut rows = queue.into_iter().flatten();
            rows.try_for_each(|(key, value)| indexes.take(&key, value))
        });
        let (mut chunk, mut bytes) = (Vec::with_capacity(CHUNK_ROWS), 0);
        let mut passed = rows.map_while(|row| {
            let row = match row {
                Ok(row) => row,
                Err(e) => return Some(Err(e)),
            };
            bytes += row.1.len();
            chunk.push(row.clone());
            if chunk.len() == CHUNK_ROWS || bytes >= CHUNK_BYTES {
                bytes = 0;
                let full = std::mem::replace(&mut chunk, Vec::with_capacity(CHUNK_ROWS));
                // If the receiver is gone, the other thread has failed, and its error is returned.
                chunks.send(full).ok()?;
            }
            Some(Ok(row))
        });
        let written = write_run(store, &mut passed, false);
        let _ = chunks.send(chunk);
        drop(chunks);
        let taken = keys.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        taken.and(written)
    })
}

/// Writes documents that arrived too late for the ascending run. Returns those whose `_id` was in that run: the index
/// keys of their predecessors were already generated.
fn write_late(store: &Inner, late: Sorter, indexes: &mut Indexes) -> Result<Sorter, StorageError> {
    let mut again = Sorter::new(&store.sort_dir(), LATE_BYTES);
    if late.is_empty() {
        return Ok(again);
    }
    let in_memory = late.in_memory();
    let snapshot = store.engine.snapshot();
    let mut sorted = late.finish()?;
    let mut new = std::iter::from_fn(|| {
        loop {
            let (row, value) = match sorted.next()? {
                Ok(item) => item,
                Err(e) => return Some(Err(e)),
            };
            let step = match snapshot.get(Keyspace::Current, &row) {
                Ok(None) => return Some(indexes.pass((row, value))),
                Ok(Some(_)) => again.push(&row, &value),
                Err(e) => Err(e),
            };
            if let Err(e) = step {
                return Some(Err(e));
            }
        }
    });
    write_run(store, &mut new, in_memory)?;
    Ok(again)
}

/// Records multikey paths, replaces documents that arrived twice, and makes the loaded data visible.
fn replace(
    store: &Arc<Inner>,
    uuid: Uuid,
    again: Sorter,
    multikey: Vec<indexes::Multikey>,
) -> Result<(), StorageError> {
    let applied = store.marks.applied();
    let mut apply = Apply::begin(Arc::clone(store));
    for (name, multikey) in multikey {
        apply.note_multikey(uuid, &name, &multikey)?;
    }
    let coll = apply.collection(uuid).ok_or(StorageError::NoCollection(uuid))?;
    for item in again.finish()? {
        let (_, doc) = document(item?.1)?;
        apply.put(applied.op_time.ts, &coll, doc)?;
        if apply.bytes() >= BATCH_BYTES {
            apply.commit(applied)?;
            apply = Apply::begin(Arc::clone(store));
        }
    }
    apply.commit(applied)
}

/// Row and version of a loaded key.
fn row(table: TableId, key: &[u8], payload: &[&[u8]]) -> (Slice, Slice) {
    let short = cut(key);
    let full_key = short.is_some().then_some(key);
    let head = Head { start: Timestamp::NULL, full_key, ..Head::default() };
    let version = Version::new(head, payload);
    (table.key(short.as_deref().unwrap_or(key)).into(), version.bytes().clone())
}

/// The document of a loaded row, and its whole key if the row's own was cut.
fn document(value: Slice) -> Result<(Option<Slice>, RawDoc), StorageError> {
    let version = Version::parse(value)?;
    let full_key = version.full_key().map(Slice::from);
    Ok((full_key, version.into_doc()?))
}

fn write_run(
    store: &Inner,
    run: &mut dyn Iterator<Item = Item>,
    in_memory: bool,
) -> Result<(), StorageError> {
    if !in_memory {
        let result = store.engine.ingest(Keyspace::Current, run);
        store.low.forget();
        return result;
    }
    let mut batch = Batch::default();
    for item in run {
        let (key, value) = item?;
        batch.put(Keyspace::Current, key, value);
        if batch.bytes >= BATCH_BYTES {
            store.engine.commit(std::mem::take(&mut batch), Sync::No)?;
        }
    }
    let result = store.engine.commit(batch, Sync::No);
    store.low.forget();
    result
}

impl Inner {
    pub(crate) fn sort_dir(&self) -> std::path::PathBuf {
        if self.dbpath.as_os_str().is_empty() {
            return std::env::temp_dir();
        }
        self.dbpath.join("sort")
    }
}
