//! Kills the process with SIGKILL at random moments, again and again: everything reported durable must be there, and
//! the data must be that of the oplog up to the applied mark.
//!
//! The child is this test binary itself; environment variables give it the directory and the seed. It prints each
//! position whose sync has returned; the parent kills it at a random moment and checks the store.

#![allow(clippy::unwrap_used, reason = "a test: whatever fails ends it")]

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    ops::Bound::{Excluded, Unbounded},
    path::Path,
    process::{Command, Stdio},
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use protocol::{Namespace, OpTime, OpTimeAndWall, RawDoc, Timestamp};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use storage::{Apply, Checkpoint, Direction, IndexState, ReadAt, Store, StoreOptions};
use uuid::Uuid;

const COLL: Uuid = Uuid::from_u128(7);
const IDS: i32 = 400;

fn open(dir: &Path) -> Store {
    let options = StoreOptions {
        cache_bytes: 2 << 20,
        history_window: Duration::from_secs(48),
        ..StoreOptions::default()
    };
    Store::open(dir, options).unwrap()
}

fn position(entry: &RawDocument) -> OpTimeAndWall {
    OpTimeAndWall {
        op_time: OpTime::from_raw(entry).unwrap(),
        wall: entry.get_datetime("wall").unwrap(),
    }
}

/// Applies an entry, using only its own content.
fn apply_entry(apply: &mut Apply, store: &Store, entry: &RawDocument) {
    let ts: Timestamp = entry.get_timestamp("ts").unwrap().into();
    let doc = entry.get_document("o").unwrap();
    match entry.get_str("op").unwrap() {
        "create" => {
            let ns = Namespace::new("test", "c");
            apply.create(ts, &ns, COLL, &rawdoc! {}, None).unwrap();
            let spec = rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1" };
            apply.create_index(ts, COLL, &spec, IndexState::Ready).unwrap();
        }
        "i" => {
            let coll = apply.collection(COLL).unwrap();
            apply.put(ts, &coll, doc).unwrap();
        }
        "d" => {
            let coll = apply.collection(COLL).unwrap();
            apply.delete(ts, &coll, doc.get("_id").unwrap().unwrap()).unwrap();
        }
        "start" => {
            let build_uuid = Uuid::from_u128(u128::from(ts.as_u64()));
            let spec = rawdoc! { "v": 2, "key": { "b": -1 }, "name": "b_-1" };
            apply.drop_index(ts, COLL, "b_-1").unwrap();
            apply.create_index(ts, COLL, &spec, IndexState::Building { build_uuid }).unwrap();
        }
        "commit" => {
            let coll = apply.collection(COLL).unwrap();
            if coll.index("b_-1").is_some() {
                apply.set_index_ready(ts, COLL, "b_-1").unwrap();
            }
        }
        other => panic!("{other} of {:?}", store.dbpath()),
    }
}

/// Applies the oplog entries after the applied mark; builds indexes first where a commit needs them.
fn replay(store: &Store, rng: &mut StdRng) {
    loop {
        let applied = store.watermarks().applied().op_time.ts;
        let entries: Vec<RawDoc> = store
            .oplog()
            .scan_written(Excluded(applied), Direction::Forward)
            .take(rng.random_range(1..40))
            .map(|item| item.unwrap().1)
            .collect();
        let Some(first) = entries.first() else { return };
        if first.get_str("op").unwrap() == "commit" {
            build(store);
        }
        let mut apply = store.begin_apply();
        let mut last = None;
        for entry in &entries {
            if entry.get_str("op").unwrap() == "commit" && last.is_some() {
                break;
            }
            apply_entry(&mut apply, store, entry);
            last = Some(position(entry));
        }
        apply.commit(last.unwrap()).unwrap();
    }
}

fn build(store: &Store) {
    let view = store.view(ReadAt::Newest).unwrap();
    let Some(coll) = view.catalog().by_uuid(COLL) else { return };
    let Some(index) = coll.index("b_-1") else { return };
    if let IndexState::Building { build_uuid } = index.state() {
        drop(view);
        store.build_indexes(COLL, build_uuid, &AtomicBool::new(false)).unwrap();
    }
}

/// Runs until it is killed.
#[test]
#[ignore = "the parent starts it"]
fn child() {
    let Ok(dir) = std::env::var("CRASH_DIR") else { return };
    let seed: u64 = std::env::var("CRASH_SEED").unwrap().parse().unwrap();
    let mut rng = StdRng::seed_from_u64(seed);
    let store = open(Path::new(&dir));
    replay(&store, &mut rng);
    let mut secs = store.watermarks().written().op_time.ts.secs();
    for round in 0u64.. {
        let mut entries = Vec::new();
        for _ in 0..rng.random_range(1..60) {
            secs += 1;
            entries.push(entry(&mut rng, secs));
        }
        store.oplog().append(&entries).unwrap();
        let durable = store.oplog().sync().unwrap();
        println!("durable {}", durable.op_time.ts.as_u64());
        replay(&store, &mut rng);
        store.watermarks().set_commit_point(store.watermarks().applied());
        if round % 3 == 0 {
            store.maintain(bson::DateTime::now()).unwrap();
        }
        if rng.random_range(0..40) == 0 {
            let into = Path::new(&dir).with_extension("checkpoint");
            // Rename before removing: a half-removed backup must not look complete if the process is killed here.
            let gone = Path::new(&dir).with_extension("gone");
            let _ = std::fs::remove_dir_all(&gone);
            let _ = std::fs::rename(&into, &gone);
            let _ = std::fs::remove_dir_all(&gone);
            let wanted = Checkpoint { into, ..Checkpoint::default() };
            store.checkpoint(&wanted, &|| true).unwrap();
        }
    }
}

fn entry(rng: &mut StdRng, secs: u32) -> RawDoc {
    let id = rng.random_range(0..IDS);
    let pad = "p".repeat(rng.random_range(0..3000));
    let (op, o) = match rng.random_range(0..100) {
        _ if secs == 1 => ("create", rawdoc! {}),
        0 => ("start", rawdoc! {}),
        1 => ("commit", rawdoc! {}),
        2..25 => ("d", rawdoc! { "_id": id }),
        _ => {
            let (a, b) = (rng.random_range(0..50), rng.random_range(0..50));
            ("i", rawdoc! { "_id": id, "a": [a, a + 1], "b": b, "pad": pad })
        }
    };
    rawdoc! {
        "op": op,
        "ts": bson::Timestamp { time: secs, increment: 1 },
        "t": 1i64,
        "wall": bson::DateTime::from_millis(i64::from(secs) * 1000),
        "o": o,
    }
    .into()
}

/// The documents that result from the oplog up to the mark.
fn expected(store: &Store, upto: Timestamp) -> BTreeMap<i32, RawDocumentBuf> {
    let mut docs = BTreeMap::new();
    for item in store.oplog().scan_written(Unbounded, Direction::Forward) {
        let (ts, entry) = item.unwrap();
        if ts > upto {
            break;
        }
        let o = entry.get_document("o").unwrap();
        match entry.get_str("op").unwrap() {
            "i" => drop(docs.insert(o.get_i32("_id").unwrap(), o.to_owned())),
            "d" => drop(docs.remove(&o.get_i32("_id").unwrap())),
            _ => {}
        }
    }
    docs
}

fn check(dir: &Path, durable: u64, seed: u64) -> Duration {
    let before = Instant::now();
    let store = open(dir);
    let took = before.elapsed();
    let written = store.watermarks().written().op_time.ts;
    assert!(written.as_u64() >= durable, "lost {durable}, has {written}, seed {seed}");
    assert_eq!(store.lost_tail(), None, "seed {seed}");
    check_data(&store, seed);
    let checkpoint = dir.with_extension("checkpoint");
    if checkpoint.exists() {
        check_data(&open(&checkpoint), seed);
    }
    took
}

fn check_data(store: &Store, seed: u64) {
    let view = store.view(ReadAt::Newest).unwrap();
    let want = expected(store, view.ts());
    let Some(coll) = view.catalog().by_uuid(COLL) else {
        assert!(want.is_empty(), "seed {seed}");
        return;
    };
    let got: Vec<_> = view
        .scan(&coll, Unbounded, Direction::Forward)
        .map(|item| item.unwrap().1.as_raw().to_owned())
        .collect();
    assert!(got == want.into_values().collect::<Vec<_>>(), "the data differ, seed {seed}");
    let oldest = store.watermarks().oldest().max(Timestamp::new(1, 1));
    let middle = Timestamp::new((oldest.secs() + 1 + view.ts().secs()) / 2, 1);
    if middle > oldest && middle <= view.ts() {
        let past = store.view(ReadAt::Timestamp(middle)).unwrap();
        let got: Vec<_> = past
            .scan(&coll, Unbounded, Direction::Forward)
            .map(|item| item.unwrap().1.as_raw().to_owned())
            .collect();
        let want = expected(store, middle).into_values().collect::<Vec<_>>();
        assert!(got == want, "the data at {middle} differ, seed {seed}");
    }
    let report = store.validate(&coll, true).unwrap();
    assert!(report.valid(), "{report:?}, seed {seed}");
}

#[test]
fn killed_at_any_moment_it_comes_back_with_all_it_promised() {
    let rounds = std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(6);
    let seed: u64 = match std::env::var("SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => rand::random(),
    };
    println!("SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let mut slowest = Duration::ZERO;
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--ignored", "--nocapture"])
            .env("CRASH_DIR", &db)
            .env("CRASH_SEED", (seed ^ round).to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut durable = 0;
        // Kill the child after a number of reports, or some time after one.
        let reports = rng.random_range(1..30);
        let mut seen = 0;
        for line in lines.by_ref() {
            let line = line.unwrap();
            if let Some(ts) = line.strip_prefix("durable ") {
                durable = ts.parse().unwrap();
                seen += 1;
                if seen == reports {
                    break;
                }
            }
        }
        assert_eq!(seen, reports, "the child ended by itself, seed {seed}");
        std::thread::sleep(Duration::from_micros(rng.random_range(0..20_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        // Positions that it still reported before it died count, too.
        for line in lines.map_while(Result::ok) {
            if let Some(ts) = line.strip_prefix("durable ") {
                durable = ts.parse().unwrap_or(durable);
            }
        }
        slowest = slowest.max(check(&db, durable, seed));
    }
    println!("{rounds} kills, slowest open {slowest:?}");
}
