//! Measures the store at its limits: a catalog of 20,000 collections with 60,000 indexes, and documents of 16 MiB.
//!
//! `cargo bench -p storage --bench limits` runs both, each in its own process. `COLLECTIONS` and `UPDATES` set the
//! sizes. `DUMP=dir` instead writes the documents of the other benchmarks as a dump for `mongorestore`, to compare
//! the size of a mongod's files with ours.

#[allow(dead_code, reason = "each benchmark uses a part")]
mod shared;

use std::{io::Write, path::Path};

use bson::{RawDocumentBuf, rawdoc};
use protocol::{Namespace, OpTime, OpTimeAndWall, RawDoc, Timestamp};
use shared::{Clock, Took, document, documents, end, figure, memory_mib, number, side};
use storage::{IndexState, ReadAt, Store, StoreOptions};
use uuid::Uuid;

fn main() {
    if let Ok(dir) = std::env::var("DUMP") {
        return dump(Path::new(&dir));
    }
    let dir = tempfile::tempdir().expect("a directory");
    match std::env::var("SIDE").as_deref() {
        Ok("catalog") => catalog(dir.path()),
        Ok(_) => large(dir.path()),
        Err(_) => {
            for name in ["catalog", "large"] {
                let side = side(name);
                for figure in &side.figures {
                    let each = figure.secs * 1e6 / f64::from(figure.count);
                    println!(
                        "{name}: {} {:.2} s, {each:.1} us each of {}",
                        figure.what, figure.secs, figure.count
                    );
                }
                println!("{name}: peak {} MiB, on disk {} MiB", side.peak, side.disk);
            }
        }
    }
}

fn at(ts: Timestamp) -> OpTimeAndWall {
    OpTimeAndWall { op_time: OpTime::new(ts, 1), wall: bson::DateTime::from_millis(0) }
}

/// Creates the collections with three indexes each, closes, reopens, and looks each up by name.
fn catalog(path: &Path) {
    let collections = number("COLLECTIONS", 20_000);
    let name = |n: u32| Namespace::new(&format!("db{}", n % 50), &format!("collection{n}"));
    let store = Store::open(path, StoreOptions::default()).expect("a store");
    let before = Clock::start();
    for part in 0..collections.div_ceil(500) {
        let ts = Timestamp::new(part + 1, 1);
        let mut apply = store.begin_apply();
        for n in part * 500..((part + 1) * 500).min(collections) {
            let uuid = Uuid::from_u128(u128::from(n) + 1);
            let id_index = rawdoc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" };
            apply.create(ts, &name(n), uuid, &rawdoc! {}, Some(&id_index)).expect("a collection");
            for field in ["a", "b", "c"] {
                let key = RawDocumentBuf::try_from(&bson::doc! { field: 1 }).expect("a pattern");
                let spec = rawdoc! { "v": 2, "key": key, "name": format!("{field}_1") };
                apply.create_index(ts, uuid, &spec, IndexState::Ready).expect("an index");
            }
        }
        apply.commit(at(ts)).expect("a commit");
    }
    figure("create", collections, before.elapsed());
    drop(store);
    let before = Clock::start();
    let store = Store::open(path, StoreOptions::default()).expect("a store");
    figure("open", 1, before.elapsed());
    println!("resident after open: {} MiB", memory_mib("VmRSS"));
    let before = Clock::start();
    for n in 0..collections {
        let view = store.view(ReadAt::Newest).expect("a view");
        assert!(view.catalog().collection(&name(n)).is_some_and(|c| c.indexes().len() == 3));
    }
    figure("look up by name", collections, before.elapsed());
    let uuid = Uuid::from_u128(1);
    let before = Clock::start();
    let last = collections.div_ceil(500);
    for n in 1..=1_000 {
        let ts = Timestamp::new(last + n, 1);
        let mut apply = store.begin_apply();
        let coll = apply.collection(uuid).expect("c");
        drop(apply.put(ts, &coll, rawdoc! { "_id": i64::from(n), "a": 1 }).expect("a put"));
        apply.commit(at(ts)).expect("a commit");
    }
    figure("one document a batch", 1_000, before.elapsed());
    end(path);
}

/// Inserts and updates documents of 16 MiB with their oplog entries, as a secondary would.
fn large(path: &Path) {
    let updates = number("UPDATES", 120);
    let store = Store::open(path, StoreOptions::default()).expect("a store");
    let uuid = Uuid::from_u128(1);
    let mut apply = store.begin_apply();
    let ts = Timestamp::new(1, 1);
    apply.create(ts, &Namespace::new("bench", "c"), uuid, &rawdoc! {}, None).expect("c");
    apply.commit(at(ts)).expect("a commit");
    // Random data that does not compress.
    let mut noise = vec![0u8; (16 << 20) - 100];
    let mut state = 88_172_645_463_325_252u64;
    for chunk in noise.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(state.to_be_bytes().get(..chunk.len()).expect("eight bytes"));
    }
    let mut took = Took::default();
    for n in 0..updates {
        let ts = Timestamp::new(2 + n, 1);
        let doc = rawdoc! {
            "_id": i64::from(n % 20),
            "noise": bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: noise.clone() },
        };
        let entry = rawdoc! {
            "op": "i", "ns": "bench.c", "t": 1i64,
            "ts": bson::Timestamp { time: ts.secs(), increment: 1 },
            "wall": bson::DateTime::from_millis(0), "o": doc.clone(),
        };
        let (doc, entry) = (RawDoc::from(doc), RawDoc::from(entry));
        let before = Clock::start();
        store.oplog().append(&[entry]).expect("an append");
        store.oplog().sync().expect("a sync");
        let mut apply = store.begin_apply();
        let coll = apply.collection(uuid).expect("c");
        drop(apply.put(ts, &coll, doc).expect("a put"));
        apply.commit(at(ts)).expect("a commit");
        store.watermarks().set_commit_point(at(ts));
        took += before.elapsed();
    }
    figure("put 16 MiB", updates, took);
    println!("resident at the end: {} MiB", memory_mib("VmRSS"));
    end(path);
}

/// Writes `bench.c` with its two indexes in mongodump's format.
fn dump(dir: &Path) {
    let dir = dir.join("bench");
    std::fs::create_dir_all(&dir).expect("a directory");
    let file = std::fs::File::create(dir.join("c.bson")).expect("a file");
    let mut out = std::io::BufWriter::new(file);
    for id in 0..documents() {
        out.write_all(document(id, 0).as_bytes()).expect("a write");
    }
    out.flush().expect("a write");
    let index = |key: &str| format!(r#"{{"v":2,"key":{{"{key}":1}},"name":"{key}_1"}}"#);
    let metadata = format!(
        r#"{{"options":{{}},"indexes":[{{"v":2,"key":{{"_id":1}},"name":"_id_"}},{},{}],"collectionName":"c"}}"#,
        index("group"),
        index("name")
    );
    std::fs::write(dir.join("c.metadata.json"), metadata).expect("a write");
}
