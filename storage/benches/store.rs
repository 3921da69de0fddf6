//! The store beside the raw engine doing the same puts: load, apply, reads, now and at T.
//!
//! `cargo bench -p storage` runs it; `N=2000000` sets the documents, `HISTORY=0` keeps none.

use std::{
    ops::Bound::Unbounded,
    path::Path,
    time::{Duration, Instant},
};

use bson::{RawDocumentBuf, rawdoc};
use fjall::{
    CompressionType, Database, KeyspaceCreateOptions, KvSeparationOptions, PersistMode, Readable,
    config::{BlockSizePolicy, CompressionPolicy},
};
use protocol::{Namespace, OpTime, OpTimeAndWall, Timestamp};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use storage::{Direction, IndexState, ReadAt, Store, StoreOptions, keystring};
use uuid::Uuid;

const BATCH: u32 = 1_000;
const READS: u32 = 200_000;

fn main() {
    match std::env::var("SIDE").as_deref() {
        Ok("raw") => raw_side(),
        Ok(_) => ours_side(),
        Err(_) => both(),
    }
}

/// Each side in a process of its own, so that memory is its own.
fn both() {
    let (n, batches) = (documents(), batches());
    let history = number("HISTORY", 1) != 0;
    println!(
        "{n} documents of 400 bytes, two indexes; {batches} batches of {BATCH}; history {history}"
    );
    let (raw, ours) = (side("raw"), side("ours"));
    println!("{:<30} {:>14} {:>14} {:>16}", "", "raw", "ours", "ours/raw speed");
    for (what, count, took) in &ours {
        let rate = |took: f64| format!("{:.0}/s", f64::from(*count) / took);
        match raw.iter().find(|(other, ..)| other == what) {
            Some((_, _, raw)) => {
                println!("{what:<30} {:>14} {:>14} {:>16.2}", rate(*raw), rate(*took), raw / took);
            }
            None => println!("{what:<30} {:>14} {:>14}", "", rate(*took)),
        }
    }
}

/// Runs one side and takes its figures; what else it says goes through.
fn side(name: &str) -> Vec<(String, u32, f64)> {
    let me = std::env::current_exe().expect("a path");
    let out = std::process::Command::new(me).env("SIDE", name).output().expect("a side");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let mut figures = Vec::new();
    for line in String::from_utf8_lossy(&out.stdout).lines() {
        match line.strip_prefix("figure|").map(|rest| rest.split('|').collect::<Vec<_>>()) {
            Some(parts) => figures.push((
                parts.first().expect("a name").to_string(),
                parts.get(1).and_then(|n| n.parse().ok()).expect("a count"),
                parts.get(2).and_then(|n| n.parse().ok()).expect("seconds"),
            )),
            None => println!("{name}: {line}"),
        }
    }
    figures
}

fn figure(what: &str, count: u32, took: Duration) {
    println!("figure|{what}|{count}|{}", took.as_secs_f64());
}

fn documents() -> u32 {
    number("N", 200_000)
}

fn batches() -> u32 {
    number("BATCHES", (documents() / 5_000).max(20))
}

fn raw_side() {
    let (n, batches) = (documents(), batches());
    let dir = tempfile::tempdir().expect("a directory");
    let raw = Raw::open(dir.path());
    figure("bulk load", n, raw.load(n));
    figure("apply, one fsync a batch", batches * BATCH, raw.apply(n, batches));
    figure("point reads by _id", READS, raw.gets(n));
    let (took, seen) = raw.scan();
    figure("full scan", seen, took);
    println!("{}; on disk {} MiB", memory(), mib(&raw.path));
}

fn ours_side() {
    let (n, batches) = (documents(), batches());
    let history = number("HISTORY", 1) != 0;
    let dir = tempfile::tempdir().expect("a directory");
    let ours = Ours::open(&dir.path().join("db"), history);
    figure("bulk load", n, ours.load(n));
    println!("after the load: {}; on disk {} MiB", memory(), mib(&ours.path));
    figure("apply, one fsync a batch", batches * BATCH, ours.apply(n, batches, 1));
    figure("point reads by _id", READS, ours.gets(n, ReadAt::Newest));
    let (took, seen) = ours.scan(ReadAt::Newest);
    figure("full scan", seen, took);
    println!("after apply and reads: {}; on disk {} MiB", memory(), mib(&ours.path));
    if history {
        ours.past(n);
    }
    println!("at the end: {}; on disk {} MiB", memory(), mib(&ours.path));
    for (name, bytes) in ours.store.stats().disk {
        println!("  {name} {} MiB", bytes >> 20);
    }
    let copy = dir.path().join("copy");
    let before = Instant::now();
    ours.store.checkpoint(&copy).expect("a checkpoint");
    println!("checkpoint {:.2} s, {} MiB", before.elapsed().as_secs_f64(), mib(&copy));
}

fn number(name: &str, default: u32) -> u32 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = |name| status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    [line("VmRSS"), line("VmHWM")].join(" ").replace('\t', "")
}

fn mib(path: &Path) -> u64 {
    fn bytes(path: &Path) -> u64 {
        let Ok(entries) = std::fs::read_dir(path) else { return 0 };
        let entries = entries.filter_map(Result::ok);
        entries
            .map(|entry| match entry.metadata() {
                Ok(meta) if meta.is_dir() => bytes(&entry.path()),
                Ok(meta) => meta.len(),
                Err(_) => 0,
            })
            .sum()
    }
    bytes(path) >> 20
}

/// A document of 400 bytes, half of them hard to compress.
fn document(id: u32, version: u32) -> RawDocumentBuf {
    let mut rng = StdRng::seed_from_u64(u64::from(id) << 32 | u64::from(version));
    let noise: Vec<u8> = (0..150).map(|_| rng.random()).collect();
    rawdoc! {
        "_id": i64::from(id),
        "group": i64::from(rng.random_range(0..100_000u32)),
        "name": format!("customer {id} of the house"),
        "version": i64::from(version),
        "noise": bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: noise },
        "text": "the quick brown fox jumps over the lazy dog, again and again, until it is tired",
        "flag": true,
    }
}

enum Op {
    Put(u32, u32),
    Delete(u32),
}

/// 40% inserts, 50% updates, 10% deletes.
fn operations(n: u32, batch: u32) -> Vec<Op> {
    let mut rng = StdRng::seed_from_u64(u64::from(batch));
    (0..BATCH)
        .map(|i| match rng.random_range(0..10) {
            0..4 => Op::Put(n + batch * BATCH + i, 1),
            4..9 => Op::Put(rng.random_range(0..n), batch + 2),
            _ => Op::Delete(rng.random_range(0..n)),
        })
        .collect()
}

fn keys(doc: &RawDocumentBuf) -> [Vec<u8>; 3] {
    let key = |name| {
        keystring::encode_raw(doc.get(name).expect("bson").expect("a field")).expect("a key")
    };
    let id = key("_id");
    let index = |n: u8, name| [&[n][..], &key(name), &id].concat();
    [[&[0][..], &id].concat(), index(1, "group"), index(2, "name")]
}

/// The engine with the same settings and the same keys, and nothing else.
struct Raw {
    db: Database,
    ks: fjall::Keyspace,
    path: std::path::PathBuf,
}

impl Raw {
    fn open(path: &Path) -> Self {
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

    fn load(&self, n: u32) -> Duration {
        let before = Instant::now();
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

    fn apply(&self, n: u32, batches: u32) -> Duration {
        let before = Instant::now();
        for batch in 0..batches {
            let mut out = self.db.batch().durability(Some(PersistMode::SyncData));
            for op in operations(n, batch) {
                match op {
                    Op::Put(id, version) => {
                        let doc = document(id, version);
                        let [row, a, b] = keys(&doc);
                        out.insert(&self.ks, row, doc.as_bytes());
                        out.insert(&self.ks, a, []);
                        out.insert(&self.ks, b, []);
                    }
                    Op::Delete(id) => {
                        let [row, a, b] = keys(&document(id, 0));
                        out.remove(&self.ks, row);
                        out.remove(&self.ks, a);
                        out.remove(&self.ks, b);
                    }
                }
            }
            out.commit().expect("a commit");
        }
        before.elapsed()
    }

    fn gets(&self, n: u32) -> Duration {
        let mut rng = StdRng::seed_from_u64(1);
        let snapshot = self.db.snapshot();
        let before = Instant::now();
        for _ in 0..READS {
            let id = i64::from(rng.random_range(0..n));
            let key = [&[0][..], &keystring::encode_raw(id.into()).expect("a key")].concat();
            std::hint::black_box(snapshot.get(&self.ks, key).expect("a read"));
        }
        before.elapsed()
    }

    fn scan(&self) -> (Duration, u32) {
        let snapshot = self.db.snapshot();
        let before = Instant::now();
        let mut seen = 0;
        for item in snapshot.prefix(&self.ks, [0]) {
            std::hint::black_box(item.into_inner().expect("a read"));
            seen += 1;
        }
        (before.elapsed(), seen)
    }
}

struct Ours {
    store: Store,
    uuid: Uuid,
    path: std::path::PathBuf,
}

fn at(secs: u32) -> OpTimeAndWall {
    OpTimeAndWall {
        op_time: OpTime::new(Timestamp::new(secs, 1), 1),
        wall: bson::DateTime::from_millis(0),
    }
}

impl Ours {
    fn open(path: &Path, history: bool) -> Self {
        let history_window = Duration::from_secs(if history { 24 * 3600 } else { 0 });
        let options = StoreOptions { history_window, ..StoreOptions::default() };
        let store = Store::open(path, options).expect("a store");
        Self { store, uuid: Uuid::from_u128(1), path: path.to_owned() }
    }

    fn load(&self, n: u32) -> Duration {
        self.store.begin_initial_sync().expect("a begin");
        let mut apply = self.store.begin_apply();
        let ts = Timestamp::new(1, 1);
        let ns = Namespace::new("bench", "c");
        apply.create(ts, &ns, self.uuid, &rawdoc! {}, None).expect("a collection");
        for field in ["group", "name"] {
            let key = RawDocumentBuf::try_from(&bson::doc! { field: 1 }).expect("a pattern");
            let spec = rawdoc! { "v": 2, "key": key, "name": format!("{field}_1") };
            apply.create_index(ts, self.uuid, &spec, IndexState::Ready).expect("an index");
        }
        apply.commit(at(1)).expect("a commit");
        let coll = self.collection();
        let before = Instant::now();
        let mut loader = self.store.loader(&coll).expect("a loader");
        for id in 0..n {
            loader.push(&document(id, 0)).expect("a push");
        }
        loader.finish().expect("an end");
        let took = before.elapsed();
        self.store.finish_initial_sync(at(2)).expect("an end");
        took
    }

    fn collection(&self) -> std::sync::Arc<storage::Collection> {
        self.store.view(ReadAt::Newest).expect("a view").catalog().by_uuid(self.uuid).expect("c")
    }

    /// One batch a second, from `first` seconds after the load.
    fn apply(&self, n: u32, batches: u32, first: u32) -> Duration {
        let before = Instant::now();
        for batch in 0..batches {
            let secs = 2 + first + batch;
            let ts = Timestamp::new(secs, 1);
            let mut apply = self.store.begin_apply();
            let coll = apply.collection(self.uuid).expect("c");
            let operations = operations(n, batch);
            let ids: Vec<_> = operations
                .iter()
                .map(|op| match op {
                    Op::Put(id, _) | Op::Delete(id) => (coll.clone(), i64::from(*id).into()),
                })
                .collect();
            apply.prefetch(&ids).expect("a prefetch");
            for op in operations {
                match op {
                    Op::Put(id, version) => {
                        drop(apply.put(ts, &coll, document(id, version)).expect("a put"));
                    }
                    Op::Delete(id) => {
                        drop(apply.delete(ts, &coll, i64::from(id).into()).expect("a delete"));
                    }
                }
            }
            apply.commit(at(secs)).expect("a commit");
            self.store.oplog().sync().expect("a sync");
        }
        before.elapsed()
    }

    fn gets(&self, n: u32, when: ReadAt) -> Duration {
        let mut rng = StdRng::seed_from_u64(1);
        let view = self.store.view(when).expect("a view");
        let coll = view.catalog().by_uuid(self.uuid).expect("c");
        let before = Instant::now();
        for _ in 0..READS {
            let id = i64::from(rng.random_range(0..n));
            std::hint::black_box(view.get(&coll, id.into()).expect("a read"));
        }
        before.elapsed()
    }

    fn scan(&self, when: ReadAt) -> (Duration, u32) {
        let view = self.store.view(when).expect("a view");
        let coll = view.catalog().by_uuid(self.uuid).expect("c");
        let before = Instant::now();
        let mut seen = 0;
        for item in view.scan(&coll, Unbounded, Direction::Forward) {
            std::hint::black_box(item.expect("a read"));
            seen += 1;
        }
        (before.elapsed(), seen)
    }

    /// Ten versions of each of some documents, one hour apart from the present, read at a moment between.
    fn past(&self, n: u32) {
        let some = n.min(20_000);
        let base = self.store.watermarks().applied().op_time.ts.secs() + 10;
        for round in 0..10u32 {
            let secs = base + round * 360;
            for part in 0..some / BATCH {
                let ts = Timestamp::new(secs, part + 1);
                let mut apply = self.store.begin_apply();
                let coll = apply.collection(self.uuid).expect("c");
                for id in part * BATCH..(part + 1) * BATCH {
                    drop(apply.put(ts, &coll, document(id, 1_000_000 + round)).expect("a put"));
                }
                let op_time = OpTime::new(ts, 1);
                let wall = bson::DateTime::from_millis(0);
                apply.commit(OpTimeAndWall { op_time, wall }).expect("a commit");
            }
        }
        let reads = |when, what: &str| {
            let took = self.gets(some, when);
            figure(what, READS, took);
            took.as_secs_f64()
        };
        let now = reads(ReadAt::Newest, "10 versions: get now");
        let then = Timestamp::new(base + 5 * 360 + 100, 1);
        let middle = reads(ReadAt::Timestamp(then), "10 versions: get half-way");
        let hour =
            reads(ReadAt::Timestamp(Timestamp::new(base - 1, 1)), "10 versions: get before all");
        println!("  at T / now: half-way {:.2}, before all {:.2}", middle / now, hour / now);
        let (now, then) = (self.scan(ReadAt::Newest).0, self.scan(ReadAt::Timestamp(then)).0);
        println!("  scan at T / now: {:.2}", then.as_secs_f64() / now.as_secs_f64());
    }
}
