//! Measures the cost of history: apply with and without a window, bytes per kept version, reads at a timestamp,
//! pauses while history is trimmed.
//!
//! `cargo bench -p storage --bench history` runs it. `N` sets the number of documents, `VERSIONS` how often each is
//! changed.

#[allow(dead_code, reason = "each benchmark uses a part")]
mod shared;

use std::{
    ops::Bound::Unbounded,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use bson::{RawDocumentBuf, rawdoc, spec::BinarySubtype};
use fjall::{
    CompressionType, Database, KeyspaceCreateOptions, PersistMode,
    config::{BlockSizePolicy, CompressionPolicy},
};
use protocol::{Namespace, OpTime, OpTimeAndWall, Timestamp};
use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};
use shared::number;
use storage::{Direction, ReadAt, Store, StoreOptions};
use uuid::Uuid;

const COLL: Uuid = Uuid::from_u128(1);
const BATCH: u32 = 1_000;
const HOUR: u32 = 3600;
const BEGIN: u32 = 1_000_000;
const DAY: Duration = Duration::from_secs(24 * 3600);

fn main() {
    let (n, versions) = (number("N", 20_000), number("VERSIONS", 10));
    println!("{n} documents of 1 KiB, {versions} versions of each; one field changes");
    window_against_none(n, versions);
    for body in [Body::Words, Body::Noise] {
        kept_versions(n, versions, body);
        block_sizes(n / 10, versions, body);
    }
    trimming(n, versions);
}

#[derive(Clone, Copy, Debug)]
enum Body {
    /// Text that compresses well.
    Words,
    /// Data that does not compress.
    Noise,
}

/// A document of 1 KiB in which only the field `version` changes.
fn document(id: u32, version: u32, body: Body) -> RawDocumentBuf {
    let mut rng = StdRng::seed_from_u64(u64::from(id));
    match body {
        Body::Words => {
            let mut text = String::new();
            while text.len() < 970 {
                text.push_str(match rng.random_range(0..4) {
                    0 => "order ",
                    1 => "item ",
                    2 => "street ",
                    _ => "blue ",
                });
            }
            rawdoc! { "_id": i64::from(id), "version": i64::from(version), "text": text }
        }
        Body::Noise => {
            let mut bytes = vec![0; 970];
            rng.fill_bytes(&mut bytes);
            let noise = bson::Binary { subtype: BinarySubtype::Generic, bytes };
            rawdoc! { "_id": i64::from(id), "version": i64::from(version), "noise": noise }
        }
    }
}

fn open(path: &Path, history_window: Duration) -> Store {
    let options = StoreOptions { history_window, ..StoreOptions::default() };
    let store = Store::open(path, options).expect("a store");
    let mut apply = store.begin_apply();
    let ts = Timestamp::new(BEGIN - 1, 1);
    apply.create(ts, &Namespace::new("b", "c"), COLL, &rawdoc! {}, None).expect("a collection");
    apply.commit(at(ts)).expect("a commit");
    store
}

fn at(ts: Timestamp) -> OpTimeAndWall {
    OpTimeAndWall { op_time: OpTime::new(ts, 1), wall: bson::DateTime::from_millis(0) }
}

/// Applies a batch as the applier does, and syncs once.
fn batch(store: &Store, ts: Timestamp, documents: Vec<RawDocumentBuf>) -> Duration {
    let before = Instant::now();
    let mut apply = store.begin_apply();
    let coll = apply.collection(COLL).expect("c");
    for document in documents {
        apply.put(ts, &coll, document).expect("a put");
    }
    apply.commit(at(ts)).expect("a commit");
    store.oplog().sync().expect("a sync");
    let took = before.elapsed();
    store.watermarks().set_commit_point(at(ts));
    took
}

/// Writes every document once, batch by batch; all batches of a version have timestamps within one second.
fn round(
    store: &Store,
    n: u32,
    version: u32,
    secs: u32,
    body: Body,
    mut each: impl FnMut(Duration),
) {
    for part in 0..n / BATCH {
        let ids = part * BATCH..(part + 1) * BATCH;
        let documents = ids.map(|id| document(id, version, body)).collect();
        each(batch(store, Timestamp::new(secs, part + 1), documents));
    }
}

/// Applies the same batches in turn to a store that keeps a day of history, one that keeps what a rollback needs, and
/// one that keeps none.
fn window_against_none(n: u32, versions: u32) {
    let dir = tempfile::tempdir().expect("a directory");
    let day = open(&dir.path().join("day"), DAY);
    // The server uses this window for --historyWindow 0: just what a rollback needs.
    let zero = open(&dir.path().join("zero"), Duration::from_secs(1));
    let never = open(&dir.path().join("never"), Duration::ZERO);
    let mut took = [Duration::ZERO; 3];
    for version in 0..versions {
        for (store, took) in [&day, &zero, &never].into_iter().zip(&mut took) {
            let mut sum = Duration::ZERO;
            round(store, n, version, BEGIN + version * 60, Body::Words, |batch| sum += batch);
            store.maintain(bson::DateTime::now()).expect("upkeep");
            if version > 0 {
                *took += sum;
            }
        }
    }
    let rate = |took: Duration| f64::from(n * (versions - 1)) / took.as_secs_f64();
    let [day, zero, never] = took.map(rate);
    println!(
        "updates/s with a window of 24h: {day:.0}; with 0: {zero:.0} ({:.2} times); without any history: {never:.0} \
         ({:.2} times)",
        zero / day,
        never / day
    );
}

/// Measures the size of history on disk, and reads one hour back.
fn kept_versions(n: u32, versions: u32, body: Body) {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(&dir.path().join("db"), DAY);
    for version in 0..=versions {
        // The last version is an hour newer than the others.
        let secs = BEGIN + version * 300 + if version == versions { HOUR } else { 0 };
        round(&store, n, version, secs, body, |_| ());
    }
    let kept = f64::from(n) * f64::from(versions);
    settle(&store, &dir.path().join("settled"));
    let on_disk = |name: &str| {
        store.stats().disk.iter().filter(|(ks, _)| *ks == name).map(|(_, b)| *b).sum::<u64>()
    };
    println!(
        "{body:?}: {:.0} bytes on disk per kept version of 1 KiB; {:.0} per present one",
        on_disk("history") as f64 / kept,
        on_disk("current") as f64 / f64::from(n),
    );
    let past = ReadAt::Timestamp(Timestamp::new(BEGIN + versions * 300 + 1, 1));
    let times = [ReadAt::Newest, past].map(|when| (gets(&store, n, when), scan(&store, when)));
    let [now, then] = times;
    println!(
        "{body:?}: a get an hour back takes {:.2} times one of now, a scan {:.2} times",
        then.0.as_secs_f64() / now.0.as_secs_f64(),
        then.1.as_secs_f64() / now.1.as_secs_f64(),
    );
}

/// Flushes everything to files by taking a checkpoint.
fn settle(store: &Store, into: &Path) {
    let wanted =
        storage::Checkpoint { into: into.to_owned(), link: true, ..storage::Checkpoint::default() };
    store.checkpoint(&wanted, &|| true).expect("a checkpoint");
}

fn gets(store: &Store, n: u32, when: ReadAt) -> Duration {
    let mut rng = StdRng::seed_from_u64(1);
    let view = store.view(when).expect("a view");
    let coll = view.catalog().by_uuid(COLL).expect("c");
    let before = Instant::now();
    for _ in 0..20_000 {
        let id = i64::from(rng.random_range(0..n));
        std::hint::black_box(view.get(&coll, id.into()).expect("a read").expect("a document"));
    }
    before.elapsed()
}

fn scan(store: &Store, when: ReadAt) -> Duration {
    let view = store.view(when).expect("a view");
    let coll = view.catalog().by_uuid(COLL).expect("c");
    let before = Instant::now();
    let seen = view.scan(&coll, Unbounded, Direction::Forward).map(|item| item.expect("a read"));
    std::hint::black_box(seen.count());
    before.elapsed()
}

/// Writes the same versions to the plain engine with other block sizes, under the same keys as in history.
fn block_sizes(n: u32, versions: u32, body: Body) {
    for kib in [4, 8, 16, 32, 64] {
        let dir = tempfile::tempdir().expect("a directory");
        let db = Database::builder(dir.path()).cache_size(32 << 20).open().expect("a database");
        let options = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(4 << 20)
                .data_block_size_policy(BlockSizePolicy::all(kib << 10))
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
        };
        let history = db.keyspace("history", options).expect("a keyspace");
        let key = |id: u32, version: u32| {
            [&[0, 0, 0, 1, 0, 0, 0, 9][..], &id.to_be_bytes(), &u64::from(version).to_be_bytes()]
                .concat()
        };
        for version in 0..versions {
            for id in 0..n {
                let value = document(id, version, body);
                history.insert(key(id, version), value.as_bytes()).expect("an insert");
            }
        }
        db.persist(PersistMode::SyncAll).expect("a sync");
        history.rotate_memtable_and_wait().expect("a flush");
        let mut rng = StdRng::seed_from_u64(1);
        let before = Instant::now();
        for _ in 0..20_000 {
            let key = key(rng.random_range(0..n), rng.random_range(0..versions));
            std::hint::black_box(history.get(key).expect("a read").expect("a version"));
        }
        println!(
            "{body:?}: blocks of {kib} KiB: {:.0} bytes per version, {:.1} us per read",
            history.disk_space() as f64 / f64::from(n * versions),
            before.elapsed().as_secs_f64() * 1e6 / 20_000.0
        );
    }
}

/// Compares the longest batch while epochs are dropped continuously with the longest batch without.
fn trimming(n: u32, versions: u32) {
    for (what, window) in
        [("a day is kept", DAY), ("trimmed all the time", Duration::from_secs(60))]
    {
        let dir = tempfile::tempdir().expect("a directory");
        let store = open(&dir.path().join("db"), window);
        let done = AtomicBool::new(false);
        let (mut batches, mut trims) = (Vec::new(), 0u32);
        std::thread::scope(|scope| {
            let upkeep = scope.spawn(|| {
                let (mut trims, mut oldest) = (0, store.watermarks().oldest());
                while !done.load(Ordering::Relaxed) {
                    store.maintain(bson::DateTime::now()).expect("upkeep");
                    trims += u32::from(store.watermarks().oldest() > oldest);
                    oldest = store.watermarks().oldest();
                    std::thread::sleep(Duration::from_millis(20));
                }
                trims
            });
            for version in 0..versions * 2 {
                let secs = BEGIN + version * 20;
                round(&store, n, version, secs, Body::Noise, |took| batches.push(took));
            }
            done.store(true, Ordering::Relaxed);
            trims = upkeep.join().expect("upkeep");
        });
        batches.sort();
        let millis = |at: usize| batches.get(at).map_or(0.0, |took| took.as_secs_f64() * 1e3);
        println!(
            "batches of {BATCH}, {what} ({trims} times): median {:.1} ms, 99% {:.1} ms, longest {:.1} ms",
            millis(batches.len() / 2),
            millis(batches.len() * 99 / 100),
            millis(batches.len() - 1),
        );
    }
}
