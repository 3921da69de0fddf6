//! Compares the store with the raw engine doing the same writes: load, apply, reads of the present and of the past.
//!
//! `cargo bench -p storage --bench store` runs it. `N` sets the number of documents, `BATCHES` the batches applied,
//! `VERSIONED` how many documents get ten versions, `HISTORY=0` disables history, `CACHE_MIB` sets the cache of both
//! sides (32). `SIDE=ours SCANS=n` stops after n scans of the loaded documents, for a profiler.
//!
//! The raw engine has the store's settings: cache, journal, worker, and for each keyspace memtable, blocks,
//! compression and blobs. Its documents and keys are made before the clock starts; the store makes its keys while
//! measured. Both write a batch of 1,000 operations at once and sync it once.
//! - "raw" writes present rows without reading: three puts for an insert or an update, three removals for a delete.
//! - "raw, all keys" does all the writes that the store does for the same operations, without its reads: as many puts
//!   and removals in the same keyspaces, of about as many bytes. With history that includes every ended version and
//!   the undo rows for rollback.
//!
//! 60 batches are some 25 MiB of present rows: three flushes of `current` on both sides, and at most the first
//! compaction. With 300 batches both compact continuously. The store blocks writers while a memtable waits for its
//! flush, the raw engine only when four are waiting: work that it still has to do when the clock stops is not
//! counted. CPU time counts all threads for load and apply, only the reader's thread for reads.

#[allow(dead_code, reason = "each benchmark uses a part")]
mod shared;

use std::{
    ops::Bound::Unbounded,
    path::{Path, PathBuf},
    time::Duration,
};

use bson::{RawDocumentBuf, rawdoc};
use protocol::{Namespace, OpTime, OpTimeAndWall, RawDoc, Timestamp};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use shared::{
    BATCH, Clock, Op, Took, batches, disk_mib, document, documents, end, figure, memory_mib,
    number, operations, reads, side,
};
use storage::{Checkpoint, Direction, IndexState, ReadAt, Store, StoreOptions};
use uuid::Uuid;

const APPLY: &str = "apply, one fsync a batch";

fn main() {
    match std::env::var("SIDE").as_deref() {
        Ok("raw") => raw_side(),
        Ok("raw_all") => raw_all_side(),
        Ok(_) => ours_side(),
        Err(_) => both(),
    }
}

fn history() -> bool {
    number("HISTORY", 1) != 0
}

fn both() {
    let (n, batches, history) = (documents(), batches(), history());
    println!(
        "{n} documents of 400 bytes, two indexes; {batches} batches of {BATCH}; history {history}"
    );
    let (raw, all, ours) = (side("raw"), side("raw_all"), side("ours"));
    println!("{:<32} {:>12} {:>12} {:>9} {:>13}", "", "raw", "ours", "ours/raw", "by processor");
    for figure in &ours.figures {
        let rate = |secs: f64| format!("{:.0}/s", f64::from(figure.count) / secs);
        print!("{:<32}", figure.what);
        match raw.figure(&figure.what) {
            Some(raw) => println!(
                " {:>12} {:>12} {:>9.2} {:>13.2}",
                rate(raw.secs),
                rate(figure.secs),
                raw.secs / figure.secs,
                raw.cpu_secs / figure.cpu_secs
            ),
            None => println!(" {:>12} {:>12}", "", rate(figure.secs)),
        }
    }
    if let (Some(all), Some(ours)) = (all.figure(APPLY), ours.figure(APPLY)) {
        println!(
            "{APPLY}, beside raw puts of all keys: {:.0}/s, ours/raw {:.2}, by processor {:.2}",
            f64::from(all.count) / all.secs,
            all.secs / ours.secs,
            all.cpu_secs / ours.cpu_secs
        );
    }
    for (at_t, now) in [
        ("get at T, 5 versions back", "get now, 10 versions"),
        ("get at T, 10 versions back", "get now, 10 versions"),
        ("scan at T, 5 versions back", "scan now, 10 versions"),
        ("scan at T, removals since", "scan now, 10 versions"),
        ("index scan at T, with documents", "index scan now, with documents"),
    ] {
        if let (Some(then), Some(now)) = (ours.figure(at_t), ours.figure(now)) {
            println!(
                "{at_t}: {:.2} times now, {:.2} by processor",
                then.secs / now.secs,
                then.cpu_secs / now.cpu_secs
            );
        }
    }
    println!(
        "peak MiB: raw {}, all keys {}, ours {}; disk MiB: raw {}, all keys {}, ours {}",
        raw.peak, all.peak, ours.peak, raw.disk, all.disk, ours.disk
    );
}

fn raw_side() {
    let (n, batches) = (documents(), batches());
    let dir = tempfile::tempdir().expect("a directory");
    let raw = shared::raw::Fjall::open(dir.path());
    figure("bulk load", n, raw.load(n));
    figure(APPLY, batches * BATCH, raw.apply(n, batches));
    figure("point reads by _id", reads(), raw.gets(n));
    let (took, seen) = raw.scan();
    figure("full scan", seen, took);
    end(&raw.path);
}

fn raw_all_side() {
    let (n, batches) = (documents(), batches());
    let dir = tempfile::tempdir().expect("a directory");
    let raw = shared::raw::Fjall::open(dir.path());
    raw.load(n);
    figure(APPLY, batches * BATCH, raw.apply_all(n, batches, history()));
    end(&raw.path);
}

fn ours_side() {
    let (n, batches) = (documents(), batches());
    let dir = tempfile::tempdir().expect("a directory");
    let ours = Ours::open(&dir.path().join("db"), history());
    figure("bulk load", n, ours.load(n));
    ours.say("after the load");
    figure(APPLY, batches * BATCH, ours.apply(n, batches, 1));
    ours.say("after apply");
    for _ in 0..number("SCANS", 0) {
        let (took, seen) = ours.scan(ReadAt::Newest);
        figure("one more scan", seen, took);
    }
    if number("SCANS", 0) > 0 {
        return end(&ours.path);
    }
    figure("point reads by _id", reads(), ours.gets(n, ReadAt::Newest));
    let (took, seen) = ours.scan(ReadAt::Newest);
    figure("full scan", seen, took);
    ours.say("after reads");
    if history() {
        ours.past(n.min(number("VERSIONED", 100_000)));
        ours.say("after ten versions");
    }
    for (name, bytes) in ours.store.stats().disk {
        println!("  {name} {} MiB", bytes >> 20);
    }
    let copy = dir.path().join("copy");
    let before = Clock::start();
    let wanted = Checkpoint { into: copy.clone(), ..Checkpoint::default() };
    ours.store.checkpoint(&wanted, &|| true).expect("a checkpoint");
    println!("checkpoint {:.2} s, {} MiB", before.elapsed().wall.as_secs_f64(), disk_mib(&copy));
    end(&ours.path);
}

struct Ours {
    store: Store,
    uuid: Uuid,
    path: PathBuf,
}

fn at(ts: Timestamp) -> OpTimeAndWall {
    OpTimeAndWall { op_time: OpTime::new(ts, 1), wall: bson::DateTime::from_millis(0) }
}

impl Ours {
    fn open(path: &Path, history: bool) -> Self {
        let history_window = Duration::from_secs(if history { 24 * 3600 } else { 0 });
        let cache_bytes = shared::cache_bytes();
        let options = StoreOptions { history_window, cache_bytes, ..StoreOptions::default() };
        let store = Store::open(path, options).expect("a store");
        Self { store, uuid: Uuid::from_u128(1), path: path.to_owned() }
    }

    fn say(&self, when: &str) {
        println!(
            "{when}: resident {} MiB, peak {} MiB; on disk {} MiB",
            memory_mib("VmRSS"),
            memory_mib("VmHWM"),
            disk_mib(&self.path)
        );
    }

    fn load(&self, n: u32) -> Took {
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
        apply.commit(at(ts)).expect("a commit");
        let before = Clock::start();
        let docs = (0..n).map(|id| RawDoc::from(document(id, 0)));
        self.store.load(self.uuid, docs).expect("a load");
        let took = before.elapsed();
        self.store.finish_initial_sync(at(Timestamp::new(2, 1))).expect("an end");
        took
    }

    /// Applies one batch per second, starting `first` seconds after the load.
    fn apply(&self, n: u32, batches: u32, first: u32) -> Took {
        let mut took = Took::default();
        for batch in 0..batches {
            let operations = operations(n, batch)
                .into_iter()
                .map(|op| match op {
                    Op::Put(id, version) => (id, Some(document(id, version).into())),
                    Op::Delete(id) => (id, None),
                })
                .collect();
            took += self.batch(Timestamp::new(2 + first + batch, 1), operations);
        }
        took
    }

    /// Applies a batch as the applier does, and syncs once.
    fn batch(&self, ts: Timestamp, operations: Vec<(u32, Option<RawDoc>)>) -> Took {
        let before = Clock::start();
        let mut ahead = self.store.read_ahead();
        let coll = ahead.collection(self.uuid).expect("c");
        let ids: Vec<_> =
            operations.iter().map(|(id, _)| (coll.clone(), i64::from(*id).into())).collect();
        ahead.read(&ids).expect("a read ahead");
        let mut apply = self.store.begin_apply();
        apply.take_ahead(ahead);
        for (id, doc) in operations {
            match doc {
                Some(doc) => drop(apply.put(ts, &coll, doc).expect("a put")),
                None => drop(apply.delete(ts, &coll, i64::from(id).into()).expect("a delete")),
            }
        }
        apply.commit(at(ts)).expect("a commit");
        self.store.oplog().sync().expect("a sync");
        let took = before.elapsed();
        // The commit point advances, as in a set that keeps up.
        self.store.watermarks().set_commit_point(at(ts));
        took
    }

    fn gets(&self, n: u32, when: ReadAt) -> Took {
        let mut rng = StdRng::seed_from_u64(1);
        let view = self.store.view(when).expect("a view");
        let coll = view.catalog().by_uuid(self.uuid).expect("c");
        let before = Clock::alone();
        for _ in 0..reads() {
            let id = i64::from(rng.random_range(0..n));
            std::hint::black_box(view.get(&coll, id.into()).expect("a read"));
        }
        before.elapsed()
    }

    fn scan(&self, when: ReadAt) -> (Took, u32) {
        let view = self.store.view(when).expect("a view");
        let coll = view.catalog().by_uuid(self.uuid).expect("c");
        let before = Clock::alone();
        let mut seen = 0;
        for item in view.scan(&coll, Unbounded, Direction::Forward) {
            std::hint::black_box(item.expect("a read"));
            seen += 1;
        }
        (before.elapsed(), seen)
    }

    /// Reads the entries of the index on `group` with their documents.
    fn index_scan(&self, when: ReadAt) -> (Took, u32) {
        let view = self.store.view(when).expect("a view");
        let coll = view.catalog().by_uuid(self.uuid).expect("c");
        let index = coll.index("group_1").expect("an index");
        let before = Clock::alone();
        let mut seen = 0;
        let all = (Unbounded, Unbounded);
        for item in view.index_scan(&coll, index, all, Direction::Forward).take(20_000) {
            let doc = view.fetch(&coll, &item.expect("an entry").record).expect("a read");
            std::hint::black_box(doc.expect("a document"));
            seen += 1;
        }
        (before.elapsed(), seen)
    }

    /// Writes ten versions of each of the first documents within an hour, and reads at times between them.
    fn past(&self, some: u32) {
        let base = self.store.watermarks().applied().op_time.ts.secs() + 10;
        for round in 0..10u32 {
            for part in 0..some / BATCH {
                let ids = part * BATCH..(part + 1) * BATCH;
                let operations =
                    ids.map(|id| (id, Some(document(id, 1_000_000 + round).into()))).collect();
                self.batch(Timestamp::new(base + round * 360, part + 1), operations);
            }
        }
        figure("get now, 10 versions", reads(), self.gets(some, ReadAt::Newest));
        let middle = ReadAt::Timestamp(Timestamp::new(base + 5 * 360 - 100, 1));
        let first = ReadAt::Timestamp(Timestamp::new(base - 1, 1));
        figure("get at T, 5 versions back", reads(), self.gets(some, middle));
        figure("get at T, 10 versions back", reads(), self.gets(some, first));
        let (took, seen) = self.scan(ReadAt::Newest);
        figure("scan now, 10 versions", seen, took);
        let (took, seen) = self.scan(middle);
        figure("scan at T, 5 versions back", seen, took);
        let (took, seen) = self.index_scan(ReadAt::Newest);
        figure("index scan now, with documents", seen, took);
        let (took, seen) = self.index_scan(middle);
        figure("index scan at T, with documents", seen, took);
        let removals = (0..1_000).map(|n| (n * (some / 1_000), None)).collect();
        self.batch(Timestamp::new(base + 10 * 360, 1), removals);
        let (took, seen) = self.scan(middle);
        figure("scan at T, removals since", seen, took);
    }
}
