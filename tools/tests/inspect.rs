//! Runs the built program's `inspect` on a store that was written and closed.

#![allow(clippy::unwrap_used, reason = "a test: whatever fails ends it")]

use std::{path::Path, process::Command};

use bson::rawdoc;
use protocol::{Namespace, OpTime, OpTimeAndWall, RawDoc, Timestamp};
use storage::{IndexState, Store, StoreOptions};
use uuid::Uuid;

fn at(secs: u32) -> OpTimeAndWall {
    OpTimeAndWall {
        op_time: OpTime::new(Timestamp::new(secs, 1), 1),
        wall: bson::DateTime::from_millis(0),
    }
}

/// Writes three versions of one document, another one that is deleted, an index, and oplog entries.
fn make(dbpath: &Path) {
    let store = Store::open(dbpath, StoreOptions::default()).unwrap();
    let uuid = Uuid::from_u128(0x1234);
    for secs in 1..=5u32 {
        let ts = Timestamp::new(secs, 1);
        let entry =
            rawdoc! { "op": "n", "ts": bson::Timestamp { time: secs, increment: 1 }, "t": 1i64 };
        store.oplog().append(&[RawDoc::from(entry)]).unwrap();
        let mut apply = store.begin_apply();
        if secs == 1 {
            let id_index = rawdoc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" };
            let ns = Namespace::new("shop", "orders");
            apply.create(ts, &ns, uuid, &rawdoc! {}, Some(&id_index)).unwrap();
            let spec = rawdoc! { "v": 2, "key": { "n": 1 }, "name": "n_1" };
            apply.create_index(ts, uuid, &spec, IndexState::Ready).unwrap();
        }
        let coll = apply.collection(uuid).unwrap();
        match secs {
            2..=4 => {
                drop(apply.put(ts, &coll, rawdoc! { "_id": 1, "n": i64::from(secs) }).unwrap())
            }
            5 => drop(apply.delete(ts, &coll, 2.into()).unwrap()),
            _ => drop(apply.put(ts, &coll, rawdoc! { "_id": 2, "n": 77 }).unwrap()),
        }
        apply.commit(at(secs)).unwrap();
    }
    store.oplog().sync().unwrap();
    store.put_meta("local.system.replset", &rawdoc! { "_id": "rs0", "version": 3 }).unwrap();
    store.put_vote(&rawdoc! { "term": 4i64, "candidateIndex": 1i64 }).unwrap();
}

/// Completions and manual pages name every command, and `--version` tells the version.
#[test]
fn completions_manual_pages_and_the_version_are_there() {
    let run = |args: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_understudy-tools")).args(args).output().unwrap();
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    for shell in ["bash", "zsh", "fish"] {
        let completions = run(&["completions", shell]);
        assert!(completions.contains("find-drop") && completions.contains("recover"), "{shell}");
    }
    let dir = tempfile::tempdir().unwrap();
    run(&["man", dir.path().to_str().unwrap()]);
    let page = std::fs::read_to_string(dir.path().join("understudy-tools-recover.1")).unwrap();
    assert!(page.contains("dry\\-run"), "{page}");
    assert!(run(&["--version"]).starts_with("understudy-tools 0."));
}

fn inspect(args: &[&str]) -> (bool, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_understudy-tools"))
        .arg("inspect")
        .args(args)
        .output()
        .unwrap();
    let text = [out.stdout, out.stderr].concat();
    (out.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn a_store_is_shown_without_a_server() {
    let dir = tempfile::tempdir().unwrap();
    let dbpath = dir.path().join("db");
    make(&dbpath);
    let db = dbpath.to_str().unwrap();
    let shown = |args: &[&str], wanted: &[&str]| {
        let (ok, text) = inspect(&[&[db][..], args].concat());
        assert!(ok, "{args:?}: {text}");
        for part in wanted {
            assert!(text.contains(part), "{args:?} does not show {part}:\n{text}");
        }
        text
    };
    shown(&["marks"], &["applied", "oplog     5 entries", "local.system.replset", "\"term\":"]);
    shown(&["catalog"], &["shop.orders", "1 documents", "n_1", "Ready"]);
    shown(&["--at", "Timestamp(2,1)", "catalog"], &["shop.orders", "2 documents"]);
    shown(&["history"], &["epoch", "shop.orders"]);
    let text = shown(&["versions", "shop.orders", "1"], &["to now"]);
    assert_eq!(text.lines().count(), 3, "{text}");
    let text = shown(&["versions", "shop.orders", "2"], &["77"]);
    assert!(!text.contains("to now"), "{text}");
    shown(&["validate"], &["shop.orders: 1 documents, valid"]);
}

#[test]
fn a_place_without_a_store_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (ok, text) = inspect(&[dir.path().to_str().unwrap(), "marks"]);
    assert!(!ok && text.contains("not a dbpath"), "{text}");
}
