//! fjall with the store's settings (explained in `engine::fjall`), without the store.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use fjall::{
    CompressionType, Database, KeyspaceCreateOptions, KvSeparationOptions, PersistMode, Readable,
    compaction::Leveled,
    config::{BlockSizePolicy, CompressionPolicy},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{Clock, Place, StoreWrites, Took, Write, document, id_key, keys, reads, table, writes};

pub(crate) struct Fjall {
    db: Database,
    /// Present versions of rows.
    ks: fjall::Keyspace,
    history: fjall::Keyspace,
    meta: fjall::Keyspace,
    pub(crate) path: PathBuf,
}

impl Fjall {
    pub(crate) fn open(path: &Path) -> Self {
        let db = Database::builder(path)
            .cache_size(super::cache_bytes())
            .max_journaling_size(128 << 20)
            .journal_compression(CompressionType::None)
            .worker_threads(1)
            .open()
            .expect("a database");
        let options = |memtable, flushes| {
            let lz4_below = [CompressionType::None, CompressionType::Lz4];
            KeyspaceCreateOptions::default()
                .compaction_strategy(Arc::new(Leveled::default().with_l0_threshold(flushes)))
                .max_memtable_size(memtable)
                .data_block_size_policy(BlockSizePolicy::all(4 << 10))
                .data_block_compression_policy(CompressionPolicy::new(lz4_below))
                .with_kv_separation(Some(
                    KvSeparationOptions::default().separation_threshold(65_536),
                ))
        };
        let keyspace = |name, memtable, flushes| {
            db.keyspace(name, || options(memtable, flushes)).expect("a keyspace")
        };
        let ks = keyspace("current", 8 << 20, 4);
        let (history, meta) = (keyspace("history", 4 << 20, 8), keyspace("meta", 2 << 20, 4));
        Self { db, ks, history, meta, path: path.to_owned() }
    }

    pub(crate) fn load(&self, n: u32) -> Took {
        let before = Clock::start();
        let mut entries: Vec<Vec<u8>> = Vec::new();
        let mut ingestion = self.ks.start_ingestion().expect("an ingestion");
        for id in 0..n {
            let doc = document(id, 0);
            let [row, a, b] = keys(&doc);
            ingestion.write(row, doc.as_bytes()).expect("a write");
            entries.extend([a, b]);
        }
        entries.sort_unstable();
        for entry in entries {
            ingestion.write(entry, []).expect("a write");
        }
        ingestion.finish().expect("an end");
        before.elapsed()
    }

    /// Writes and removes present rows without reading the previous versions.
    pub(crate) fn apply(&self, n: u32, batches: u32) -> Took {
        let mut took = Took::default();
        for batch in 0..batches {
            let writes = writes(n, batch).into_iter().map(|write| (Place::Current, write));
            took += self.commit(writes.collect());
        }
        took
    }

    /// Does all the writes that the store does for the same operations, prepared before the clock starts.
    pub(crate) fn apply_all(&self, n: u32, batches: u32, history: bool) -> Took {
        let mut took = Took::default();
        let mut writes = StoreWrites::new(n, history);
        for batch in 0..batches {
            took += self.commit(writes.batch(batch));
        }
        took
    }

    fn commit(&self, writes: Vec<(Place, Write)>) -> Took {
        let before = Clock::start();
        let mut out = self.db.batch().durability(Some(PersistMode::SyncData));
        for (place, write) in writes {
            let ks = match place {
                Place::Current => &self.ks,
                Place::History => &self.history,
                Place::Meta => &self.meta,
            };
            match write {
                Write::Put(key, value) => out.insert(ks, key, value),
                Write::Remove(key) => out.remove(ks, key),
            }
        }
        out.commit().expect("a commit");
        before.elapsed()
    }

    pub(crate) fn gets(&self, n: u32) -> Took {
        let mut rng = StdRng::seed_from_u64(1);
        let snapshot = self.db.snapshot();
        let before = Clock::alone();
        for _ in 0..reads() {
            let key = id_key(rng.random_range(0..n));
            std::hint::black_box(snapshot.get(&self.ks, key).expect("a read"));
        }
        before.elapsed()
    }

    pub(crate) fn scan(&self) -> (Took, u32) {
        let snapshot = self.db.snapshot();
        let before = Clock::alone();
        let mut seen = 0;
        for item in snapshot.prefix(&self.ks, table(0)) {
            std::hint::black_box(item.into_inner().expect("a read"));
            seen += 1;
        }
        (before.elapsed(), seen)
    }
}
