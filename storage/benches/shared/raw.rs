//! fjall with the store's settings and the same keys, and nothing else.

use std::path::{Path, PathBuf};

use fjall::{
    CompressionType, Database, KeyspaceCreateOptions, KvSeparationOptions, PersistMode, Readable,
    config::{BlockSizePolicy, CompressionPolicy},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{Clock, Took, Write, document, id_key, keys, reads, writes};

pub(crate) struct Fjall {
    db: Database,
    ks: fjall::Keyspace,
    pub(crate) path: PathBuf,
}

impl Fjall {
    pub(crate) fn open(path: &Path) -> Self {
        let db = Database::builder(path)
            .cache_size(32 << 20)
            .max_journaling_size(512 << 20)
            .open()
            .expect("a database");
        let options = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(8 << 20)
                .data_block_size_policy(BlockSizePolicy::all(4 << 10))
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
                .with_kv_separation(Some(
                    KvSeparationOptions::default().separation_threshold(65_536),
                ))
        };
        let ks = db.keyspace("all", options).expect("a keyspace");
        Self { db, ks, path: path.to_owned() }
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

    pub(crate) fn apply(&self, n: u32, batches: u32) -> Took {
        let mut took = Took::default();
        for batch in 0..batches {
            let writes = writes(n, batch);
            let before = Clock::start();
            let mut out = self.db.batch().durability(Some(PersistMode::SyncData));
            for write in writes {
                match write {
                    Write::Put(key, value) => out.insert(&self.ks, key, value),
                    Write::Remove(key) => out.remove(&self.ks, key),
                }
            }
            out.commit().expect("a commit");
            took += before.elapsed();
        }
        took
    }

    pub(crate) fn gets(&self, n: u32) -> Took {
        let mut rng = StdRng::seed_from_u64(1);
        let snapshot = self.db.snapshot();
        let before = Clock::start();
        for _ in 0..reads() {
            let key = id_key(rng.random_range(0..n));
            std::hint::black_box(snapshot.get(&self.ks, key).expect("a read"));
        }
        before.elapsed()
    }

    pub(crate) fn scan(&self) -> (Took, u32) {
        let snapshot = self.db.snapshot();
        let before = Clock::start();
        let mut seen = 0;
        for item in snapshot.prefix(&self.ks, [0]) {
            std::hint::black_box(item.into_inner().expect("a read"));
            seen += 1;
        }
        (before.elapsed(), seen)
    }
}
