//! Tests of the store's public interface, on both engines.

use std::ops::Bound::{Excluded, Included, Unbounded};

use bson::{RawDocumentBuf, rawdoc};
use protocol::{Namespace, OpTime, OpTimeAndWall, RawDoc, Timestamp};
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::{Direction, IndexState, OplogScan, keystring};

mod damage;
mod oplog;
mod read_ahead;
mod readers;

struct Fixture {
    store: Store,
    dir: TempDir,
    options: StoreOptions,
}

fn fixtures() -> Vec<Fixture> {
    [EngineKind::Memory, EngineKind::Fjall]
        .into_iter()
        .map(|engine| {
            let options = StoreOptions { engine, cache_bytes: 4 << 20, ..StoreOptions::default() };
            let dir = tempfile::tempdir().unwrap();
            Fixture { store: Store::open(dir.path(), options.clone()).unwrap(), dir, options }
        })
        .collect()
}

impl Fixture {
    /// Closes and reopens the store; the memory engine just continues.
    fn reopen(self) -> Self {
        if self.options.engine == EngineKind::Memory {
            return self;
        }
        let Self { store, dir, options } = self;
        drop(store);
        Self { store: Store::open(dir.path(), options.clone()).unwrap(), dir, options }
    }

    fn apply(&self, secs: u32, act: impl FnOnce(&mut Apply, Timestamp)) {
        let mut apply = self.store.begin_apply();
        act(&mut apply, ts(secs));
        apply.commit(at(secs)).unwrap();
    }

    fn make(&self, secs: u32, name: &str, options: &RawDocumentBuf) -> Uuid {
        let uuid = Uuid::new_v4();
        self.apply(secs, |apply, ts| {
            apply.create(ts, &ns(name), uuid, options, Some(&id_index())).unwrap();
        });
        uuid
    }

    fn put(&self, secs: u32, uuid: Uuid, doc: RawDocumentBuf) {
        self.apply(secs, |apply, ts| {
            let coll = apply.collection(uuid).unwrap();
            apply.put(ts, &coll, doc).unwrap();
        });
    }

    fn docs(&self, at: ReadAt, name: &str, direction: Direction) -> Vec<RawDocumentBuf> {
        let view = self.store.view(at).unwrap();
        let Some(coll) = view.catalog().collection(&ns(name)) else { return Vec::new() };
        view.scan(&coll, Unbounded, direction)
            .map(|item| item.unwrap().1.as_raw().to_owned())
            .collect()
    }
}

fn ts(secs: u32) -> Timestamp {
    Timestamp::new(secs, 1)
}

fn at(secs: u32) -> OpTimeAndWall {
    OpTimeAndWall {
        op_time: OpTime::new(ts(secs), 1),
        wall: bson::DateTime::from_millis(i64::from(secs) * 1000),
    }
}

fn ns(name: &str) -> Namespace {
    Namespace::new("test", name)
}

fn id_index() -> RawDocumentBuf {
    rawdoc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" }
}

fn entry(secs: u32, inc: u32, pad: usize) -> RawDoc {
    rawdoc! {
        "op": "n",
        "ts": bson::Timestamp { time: secs, increment: inc },
        "t": 1i64,
        "wall": bson::DateTime::from_millis(i64::from(secs) * 1000),
        "pad": "x".repeat(pad),
    }
    .into()
}

#[test]
fn documents_come_and_go_and_every_moment_stays() {
    for fixture in fixtures() {
        let uuid = fixture.make(1, "c", &rawdoc! {});
        fixture.put(2, uuid, rawdoc! { "_id": 1, "a": "x" });
        fixture.put(3, uuid, rawdoc! { "_id": 2, "a": "y" });
        fixture.put(4, uuid, rawdoc! { "_id": 1, "a": "z" });
        fixture.apply(5, |apply, ts| {
            let coll = apply.collection(uuid).unwrap();
            assert!(apply.delete(ts, &coll, 2.into()).unwrap().is_some());
            assert!(apply.delete(ts, &coll, 2.into()).unwrap().is_none());
        });
        let fixture = fixture.reopen();
        let see = |secs| fixture.docs(ReadAt::Timestamp(ts(secs)), "c", Direction::Forward);
        assert_eq!(see(1), []);
        assert_eq!(see(2), [rawdoc! { "_id": 1, "a": "x" }]);
        assert_eq!(see(3), [rawdoc! { "_id": 1, "a": "x" }, rawdoc! { "_id": 2, "a": "y" }]);
        assert_eq!(see(4), [rawdoc! { "_id": 1, "a": "z" }, rawdoc! { "_id": 2, "a": "y" }]);
        assert_eq!(see(5), [rawdoc! { "_id": 1, "a": "z" }]);
        assert_eq!(fixture.docs(ReadAt::Newest, "c", Direction::Backward), see(5));
        let view = fixture.store.view(ReadAt::Timestamp(ts(3))).unwrap();
        let coll = view.catalog().collection(&ns("c")).unwrap();
        assert_eq!(view.get(&coll, 2i64.into()).unwrap().unwrap().get_str("a").unwrap(), "y");
        assert_eq!(view.get(&coll, 1.0.into()).unwrap().unwrap().get_str("a").unwrap(), "x");
        let newest = fixture.store.view(ReadAt::Newest).unwrap();
        assert_eq!((newest.count(&coll).unwrap(), newest.data_size(&coll).unwrap()), (1, 23));
    }
}

#[test]
fn a_transaction_leaves_only_its_last_write() {
    for fixture in fixtures() {
        let uuid = fixture.make(1, "c", &rawdoc! {});
        fixture.put(2, uuid, rawdoc! { "_id": 1, "v": 0 });
        fixture.apply(3, |apply, ts| {
            let coll = apply.collection(uuid).unwrap();
            apply.put(ts, &coll, rawdoc! { "_id": 1, "v": 1 }).unwrap();
            apply.delete(ts, &coll, 1.into()).unwrap();
            apply.put(ts, &coll, rawdoc! { "_id": 1, "v": 2 }).unwrap();
            apply.put(ts, &coll, rawdoc! { "_id": 9, "v": 9 }).unwrap();
            apply.delete(ts, &coll, 9.into()).unwrap();
        });
        let see = |secs| fixture.docs(ReadAt::Timestamp(ts(secs)), "c", Direction::Forward);
        assert_eq!(see(2), [rawdoc! { "_id": 1, "v": 0 }]);
        assert_eq!(see(3), [rawdoc! { "_id": 1, "v": 2 }]);
        assert_eq!(
            fixture
                .store
                .view(ReadAt::Newest)
                .unwrap()
                .count(
                    &fixture.store.view(ReadAt::Newest).unwrap().catalog().by_uuid(uuid).unwrap()
                )
                .unwrap(),
            1
        );
    }
}

#[test]
fn a_batch_dropped_without_commit_never_happened() {
    for fixture in fixtures() {
        let uuid = fixture.make(1, "c", &rawdoc! {});
        let mut apply = fixture.store.begin_apply();
        let coll = apply.collection(uuid).unwrap();
        apply.put(ts(2), &coll, rawdoc! { "_id": 1 }).unwrap();
        apply.create(ts(2), &ns("d"), Uuid::new_v4(), &rawdoc! {}, None).unwrap();
        drop(apply);
        assert_eq!(fixture.docs(ReadAt::Newest, "c", Direction::Forward), []);
        assert!(
            fixture.store.view(ReadAt::Newest).unwrap().catalog().collection(&ns("d")).is_none()
        );
        assert_eq!(fixture.store.watermarks().applied(), at(1));
        fixture.put(2, uuid, rawdoc! { "_id": 2 });
        assert_eq!(fixture.docs(ReadAt::Newest, "c", Direction::Forward), [rawdoc! { "_id": 2 }]);
    }
}

#[test]
fn drops_and_renames_are_seen_at_their_time() {
    for fixture in fixtures() {
        let a = fixture.make(1, "a", &rawdoc! {});
        fixture.put(2, a, rawdoc! { "_id": 1 });
        fixture.apply(3, |apply, ts| apply.rename(ts, a, &ns("b")).unwrap());
        let other = fixture.make(4, "a", &rawdoc! { "validator": { "x": 1 } });
        fixture.apply(5, |apply, ts| {
            assert!(matches!(apply.rename(ts, a, &ns("a")), Err(StorageError::NameTaken { .. })));
            assert!(apply.drop_collection(ts, a).unwrap());
            assert!(!apply.drop_collection(ts, a).unwrap());
        });
        let fixture = fixture.reopen();
        let see = |secs, name| fixture.docs(ReadAt::Timestamp(ts(secs)), name, Direction::Forward);
        assert_eq!(see(2, "a").len(), 1);
        assert_eq!((see(3, "a").len(), see(3, "b").len()), (0, 1));
        assert_eq!((see(5, "a").len(), see(5, "b").len()), (0, 0));
        let view = fixture.store.view(ReadAt::Newest).unwrap();
        let names: Vec<_> = view.catalog().list("test").map(|c| c.ns().to_string()).collect();
        assert_eq!(names, ["test.a"]);
        assert_eq!(view.catalog().databases(), ["test"]);
        let kept = view.catalog().by_uuid(other).unwrap();
        assert_eq!(kept.options(), &*rawdoc! { "validator": { "x": 1 } });
    }
}

#[test]
fn indexes_follow_their_documents_at_every_moment() {
    for fixture in fixtures() {
        let uuid = fixture.make(1, "c", &rawdoc! {});
        fixture.put(2, uuid, rawdoc! { "_id": 1, "a": 5 });
        fixture.apply(3, |apply, ts| {
            let spec = rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1" };
            apply.create_index(ts, uuid, &spec, IndexState::Ready).unwrap();
        });
        fixture.put(4, uuid, rawdoc! { "_id": 2, "a": [3, 7] });
        fixture.put(5, uuid, rawdoc! { "_id": 1, "a": 6 });
        fixture.apply(6, |apply, ts| {
            let coll = apply.collection(uuid).unwrap();
            apply.delete(ts, &coll, 2.into()).unwrap();
        });
        let fixture = fixture.reopen();
        let ids = |secs, direction| -> Vec<i32> {
            let view = fixture.store.view(ReadAt::Timestamp(ts(secs))).unwrap();
            let coll = view.catalog().collection(&ns("c")).unwrap();
            let index = coll.index("a_1").unwrap();
            view.index_scan(&coll, index, (Unbounded, Unbounded), direction)
                .map(|entry| view.fetch(&coll, &entry.unwrap().record).unwrap().unwrap())
                .map(|doc| doc.get_i32("_id").unwrap())
                .collect()
        };
        assert_eq!(ids(3, Direction::Forward), [1]);
        assert_eq!(ids(4, Direction::Forward), [2, 1, 2]);
        assert_eq!(ids(5, Direction::Backward), [2, 1, 2]);
        assert_eq!(ids(6, Direction::Forward), [1]);
        let view = fixture.store.view(ReadAt::Timestamp(ts(4))).unwrap();
        let coll = view.catalog().by_uuid(uuid).unwrap();
        let index = coll.index("a_1").unwrap();
        assert!(index.is_multikey() && index.usable());
        let five = keystring::encode_raw(5.into()).unwrap();
        let three = keystring::encode_raw(3.into()).unwrap();
        let count = |range| view.index_scan(&coll, index, range, Direction::Forward).count();
        assert_eq!(count((Included(&three), Included(&five))), 2);
        assert_eq!(count((Excluded(&three), Included(&five))), 1);
        assert_eq!(count((Included(&three), Excluded(&five))), 1);
        let before = fixture.store.view(ReadAt::Timestamp(ts(3))).unwrap();
        let coll = before.catalog().by_uuid(uuid).unwrap();
        assert!(!coll.index("a_1").unwrap().is_multikey());
    }
}

#[test]
fn capped_collections_keep_the_order_of_insertion() {
    for fixture in fixtures() {
        let options = rawdoc! { "capped": true, "size": 4096, "max": 3 };
        let uuid = fixture.make(1, "c", &options);
        for (secs, id) in [(2, 30), (3, 10), (4, 20)] {
            fixture.put(secs, uuid, rawdoc! { "_id": id, "n": 0 });
        }
        fixture.put(5, uuid, rawdoc! { "_id": 10, "n": 1 });
        fixture.apply(6, |apply, ts| {
            let coll = apply.collection(uuid).unwrap();
            assert_eq!(coll.capped().unwrap().max, Some(3));
            apply.delete(ts, &coll, 30.into()).unwrap();
            assert!(apply.get(&coll, 10.into()).unwrap().is_some());
            assert!(apply.get(&coll, 30.into()).unwrap().is_none());
        });
        let fixture = fixture.reopen();
        let ids = |secs| -> Vec<i32> {
            fixture
                .docs(ReadAt::Timestamp(ts(secs)), "c", Direction::Forward)
                .iter()
                .map(|doc| doc.get_i32("_id").unwrap())
                .collect()
        };
        assert_eq!(ids(4), [30, 10, 20]);
        assert_eq!(ids(6), [10, 20]);
        fixture.put(7, uuid, rawdoc! { "_id": 5 });
        assert_eq!(ids(7), [10, 20, 5]);
        let view = fixture.store.view(ReadAt::Newest).unwrap();
        let coll = view.catalog().by_uuid(uuid).unwrap();
        let by_id: Vec<_> = view
            .id_scan(&coll, (Unbounded, Unbounded), Direction::Forward)
            .map(|e| view.fetch(&coll, &e.unwrap().record).unwrap().unwrap())
            .map(|doc| doc.get_i32("_id").unwrap())
            .collect();
        assert_eq!(by_id, [5, 10, 20]);
        assert_eq!(view.get(&coll, 10.into()).unwrap().unwrap().get_i32("n").unwrap(), 1);
    }
}

#[test]
fn a_collation_orders_the_id_index_but_not_identity() {
    for fixture in fixtures() {
        let options = rawdoc! { "collation": { "locale": "en", "strength": 2 } };
        let uuid = fixture.make(1, "c", &options);
        for (secs, id) in [(2, "b"), (3, "A"), (4, "C"), (5, "a")] {
            fixture.put(secs, uuid, rawdoc! { "_id": id });
        }
        let view = fixture.store.view(ReadAt::Newest).unwrap();
        let coll = view.catalog().by_uuid(uuid).unwrap();
        let by_id: Vec<_> = view
            .id_scan(&coll, (Unbounded, Unbounded), Direction::Forward)
            .map(|e| view.fetch(&coll, &e.unwrap().record).unwrap().unwrap())
            .map(|doc| doc.get_str("_id").unwrap().to_owned())
            .collect();
        assert_eq!(by_id, ["A", "a", "b", "C"]);
        assert!(view.get(&coll, "c".into()).unwrap().is_none());
    }
}

#[test]
fn keys_beyond_the_engines_limit_are_kept_in_order() {
    for fixture in fixtures() {
        let uuid = fixture.make(1, "c", &rawdoc! {});
        fixture.apply(2, |apply, ts| {
            let spec = rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1" };
            apply.create_index(ts, uuid, &spec, IndexState::Ready).unwrap();
        });
        let long = |tail: &str| format!("{}{tail}", "k".repeat(300_000));
        for (secs, tail) in [(3, "c"), (4, "a"), (5, "b")] {
            fixture.put(secs, uuid, rawdoc! { "_id": long(tail), "a": long(tail), "t": tail });
        }
        fixture.put(6, uuid, rawdoc! { "_id": "kk", "a": "kk", "t": "0" });
        fixture.apply(7, |apply, ts| {
            let coll = apply.collection(uuid).unwrap();
            apply.delete(ts, &coll, long("b").as_str().into()).unwrap();
        });
        let fixture = fixture.reopen();
        let tails = |secs, direction| -> String {
            fixture
                .docs(ReadAt::Timestamp(ts(secs)), "c", direction)
                .iter()
                .map(|doc| doc.get_str("t").unwrap().to_owned())
                .collect()
        };
        assert_eq!(tails(6, Direction::Forward), "0abc");
        assert_eq!(tails(6, Direction::Backward), "cba0");
        assert_eq!(tails(7, Direction::Forward), "0ac");
        let view = fixture.store.view(ReadAt::Newest).unwrap();
        let coll = view.catalog().by_uuid(uuid).unwrap();
        let found = view.get(&coll, long("c").as_str().into()).unwrap().unwrap();
        assert_eq!(found.get_str("t").unwrap(), "c");
        assert!(view.get(&coll, long("x").as_str().into()).unwrap().is_none());
        let low = keystring::encode_raw(long("a").as_str().into()).unwrap();
        let index = coll.index("a_1").unwrap();
        let hits: Vec<_> = view
            .index_scan(&coll, index, (Included(&low), Included(&low)), Direction::Forward)
            .map(|e| view.fetch(&coll, &e.unwrap().record).unwrap().unwrap())
            .collect();
        assert_eq!(hits.len(), 1);
        assert_eq!(hits[0].get_str("t").unwrap(), "a");
    }
}

#[test]
fn the_oplog_ends_for_readers_where_applied_ends() {
    for fixture in fixtures() {
        let oplog = fixture.store.oplog();
        oplog.append(&[entry(1, 1, 0), entry(1, 2, 0), entry(2, 1, 0)]).unwrap();
        assert!(matches!(oplog.append(&[entry(1, 3, 0)]), Err(StorageError::OutOfOrder { .. })));
        assert_eq!(fixture.store.watermarks().written().op_time.ts, Timestamp::new(2, 1));
        assert_eq!(fixture.store.watermarks().durable(), OpTimeAndWall::NULL);
        oplog.sync().unwrap();
        assert_eq!(fixture.store.watermarks().durable().op_time.ts, Timestamp::new(2, 1));
        assert!(oplog.last().unwrap().is_none());
        assert!(oplog.entry(Timestamp::new(1, 1)).unwrap().is_none());
        fixture.apply(1, |_, _| {});
        let seen = |scan: OplogScan| scan.map(|e| e.unwrap().0).collect::<Vec<_>>();
        assert_eq!(seen(oplog.scan(Unbounded, Direction::Forward)), [Timestamp::new(1, 1)]);
        assert_eq!(
            seen(oplog.scan_written(Excluded(Timestamp::new(1, 1)), Direction::Forward)),
            [Timestamp::new(1, 2), Timestamp::new(2, 1)]
        );
        assert_eq!(
            seen(oplog.scan_written(Excluded(Timestamp::new(2, 1)), Direction::Backward)),
            [Timestamp::new(1, 2), Timestamp::new(1, 1)]
        );
        oplog.truncate_after(Timestamp::new(1, 2)).unwrap();
        assert_eq!(fixture.store.watermarks().written().op_time.ts, Timestamp::new(1, 2));
        assert_eq!(
            (oplog.count(), seen(oplog.scan_written(Unbounded, Direction::Forward)).len()),
            (2, 2)
        );
        let fixture = fixture.reopen();
        assert_eq!(fixture.store.watermarks().written().op_time.ts, Timestamp::new(1, 2));
        assert_eq!(
            fixture.store.applied_at_open().op_time.ts.secs(),
            if fixture.options.engine == EngineKind::Fjall { 1 } else { 0 }
        );
        assert_eq!(fixture.store.lost_tail(), None);
        assert_eq!(fixture.store.oplog().count(), 2);
    }
}

#[test]
fn the_front_of_the_oplog_goes_by_size_but_never_past_a_pin() {
    for fixture in fixtures() {
        let oplog = fixture.store.oplog();
        oplog.resize(1 << 20).unwrap();
        for secs in 1..=400 {
            oplog.append(&[entry(secs, 1, 10_000)]).unwrap();
        }
        let now = bson::DateTime::from_millis(1_000_000);
        fixture.apply(400, |_, _| {});
        oplog.sync().unwrap();
        assert_eq!(oplog.trim(now).unwrap(), 0, "nothing is stable");
        fixture.store.watermarks().set_commit_point(at(399));
        let pin = oplog.pin(ts(50));
        oplog.trim(now).unwrap();
        let first =
            |oplog: &Oplog| oplog.first().unwrap().unwrap().get_timestamp("ts").unwrap().time;
        assert!((2..=50).contains(&first(oplog)), "{}", first(oplog));
        drop(pin);
        oplog.trim(now).unwrap();
        assert!(first(oplog) > 250, "{}", first(oplog));
        assert!(oplog.bytes() <= (1 << 20) + (64 << 10));
        let left = oplog.count();
        let fixture = fixture.reopen();
        assert_eq!(fixture.store.oplog().scan(Unbounded, Direction::Forward).count() as u64, left);
    }
}

#[test]
fn the_front_of_the_oplog_stays_while_a_transaction_is_undecided() {
    use crate::TxnId;
    for fixture in fixtures() {
        let oplog = fixture.store.oplog();
        oplog.resize(1 << 20).unwrap();
        // Two entries of one transaction; the second prepares it.
        let (begun, prepared) = (100, 120);
        for secs in 1..=400 {
            let mut next = entry(secs, 1, 10_000).as_raw().to_owned();
            if [begun, prepared].contains(&secs) {
                let before = if secs == prepared { ts(begun) } else { Timestamp::NULL };
                let before = OpTime::new(before, 1).to_raw();
                next.append(bson::raw::cstr!("prevOpTime"), before);
            }
            oplog.append(&[next.into()]).unwrap();
        }
        let txn = TxnId(b"session 7".to_vec());
        fixture.apply(prepared, |apply, ts| apply.prepare(&txn, ts, Vec::new()).unwrap());
        fixture.apply(399, |_, _| {});
        oplog.sync().unwrap();
        fixture.store.watermarks().set_commit_point(at(399));
        let now = bson::DateTime::from_millis(1_000_000);
        let first =
            |oplog: &Oplog| oplog.first().unwrap().unwrap().get_timestamp("ts").unwrap().time;
        assert!(oplog.trim(now).unwrap() > 0);
        assert!((2..=begun).contains(&first(oplog)), "{}", first(oplog));
        fixture.apply(400, |apply, ts| apply.abort_prepared(&txn, ts).unwrap());
        oplog.trim(now).unwrap();
        assert!(first(oplog) > 250, "{}", first(oplog));
    }
}

#[test]
fn a_resized_oplog_stays_so() {
    for fixture in fixtures() {
        assert_ne!(fixture.store.oplog().max_bytes(), 5 << 30);
        fixture.store.oplog().resize(5 << 30).unwrap();
        let fixture = fixture.reopen();
        assert_eq!(fixture.store.oplog().max_bytes(), 5 << 30);
    }
}

#[test]
fn old_epochs_go_and_reads_below_oldest_are_refused() {
    for fixture in fixtures() {
        fixture.store.set_history_window(std::time::Duration::from_secs(48), None, false);
        let uuid = fixture.make(1, "c", &rawdoc! {});
        for secs in 2..200 {
            fixture.put(secs, uuid, rawdoc! { "_id": 1, "n": i64::from(secs) });
        }
        fixture.store.watermarks().set_commit_point(at(190));
        let held = || fixture.store.stats().history.iter().map(|(_, _, bytes)| bytes).sum::<u64>();
        let before = held();
        fixture.store.maintain(bson::DateTime::from_millis(0)).unwrap();
        assert!(held() < before / 2);
        let oldest = fixture.store.watermarks().oldest();
        assert_eq!(oldest.secs(), 199 - 48);
        assert!(matches!(
            fixture.store.view(ReadAt::Timestamp(ts(100))),
            Err(StorageError::HistoryGone { .. })
        ));
        let fixture = fixture.reopen();
        for secs in oldest.secs()..200 {
            let found = fixture.docs(ReadAt::Timestamp(ts(secs)), "c", Direction::Forward);
            assert_eq!(found, [rawdoc! { "_id": 1, "n": i64::from(secs) }]);
        }
    }
}

#[test]
fn majority_readers_see_what_the_commit_point_has_reached() {
    for fixture in fixtures() {
        let uuid = fixture.make(1, "c", &rawdoc! {});
        for secs in 2..6 {
            fixture.put(secs, uuid, rawdoc! { "_id": 1, "n": i64::from(secs) });
        }
        let n = |at| {
            let docs = fixture.docs(at, "c", Direction::Forward);
            docs.first().map_or(0, |doc| doc.get_i64("n").unwrap())
        };
        fixture.store.watermarks().set_commit_point(at(3));
        assert_eq!((n(ReadAt::Newest), n(ReadAt::Majority)), (5, 3));
        fixture.store.watermarks().set_commit_point(at(9));
        assert_eq!(n(ReadAt::Majority), 5);
        assert!(matches!(
            fixture.store.view(ReadAt::Timestamp(ts(9))),
            Err(StorageError::NotYetApplied { .. })
        ));
    }
}

#[test]
fn node_documents_and_the_vote_survive() {
    for fixture in fixtures() {
        fixture.store.put_meta("local.system.replset", &rawdoc! { "_id": "rs" }).unwrap();
        fixture.store.put_vote(&rawdoc! { "term": 7i64 }).unwrap();
        let fixture = fixture.reopen();
        let config = fixture.store.meta("local.system.replset").unwrap().unwrap();
        assert_eq!(config.get_str("_id").unwrap(), "rs");
        assert_eq!(fixture.store.vote().unwrap().unwrap().get_i64("term").unwrap(), 7);
        assert!(fixture.store.meta("nothing").unwrap().is_none());
    }
}

#[test]
fn a_tail_that_the_disk_lost_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions { cache_bytes: 4 << 20, ..StoreOptions::default() };
    let store = Store::open(dir.path(), options.clone()).unwrap();
    store.oplog().append(&[entry(1, 1, 0), entry(2, 1, 0)]).unwrap();
    store.oplog().sync().unwrap();
    drop(store);
    // Simulates a journal that lost its tail.
    let mark = DurableMark::open(dir.path()).unwrap();
    mark.write(at(9)).unwrap();
    drop(mark);
    let store = Store::open(dir.path(), options).unwrap();
    assert_eq!(store.lost_tail(), Some(at(9).op_time));
}

/// A store in `dir` that reported entries up to 9 as durable but holds only those up to 2.
fn with_lost_tail(dir: &Path) -> Store {
    let store = Store::open(dir, StoreOptions::default()).unwrap();
    store.oplog().append(&[entry(1, 1, 0), entry(2, 1, 0)]).unwrap();
    store.oplog().sync().unwrap();
    drop(store);
    DurableMark::open(dir).unwrap().write(at(9)).unwrap();
    Store::open(dir, StoreOptions::default()).unwrap()
}

#[test]
fn a_lost_tail_is_missed_until_the_oplog_has_reached_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = with_lost_tail(dir.path());
    store.oplog().append(&[entry(3, 1, 0)]).unwrap();
    store.oplog().sync().unwrap();
    store.maintain(bson::DateTime::now()).unwrap();
    drop(store);
    let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
    assert_eq!(store.lost_tail(), Some(at(9).op_time), "what was fetched since is not all of it");
    store.oplog().append(&[entry(9, 1, 0)]).unwrap();
    assert!(store.lost_tail().is_some(), "nothing is synced yet");
    store.oplog().sync().unwrap();
    assert_eq!(store.lost_tail(), None);
    drop(store);
    let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
    assert_eq!(store.lost_tail(), None);
}

#[test]
fn an_initial_sync_does_not_forget_a_lost_tail_and_a_rollback_does() {
    let dir = tempfile::tempdir().unwrap();
    let store = with_lost_tail(dir.path());
    store.begin_initial_sync().unwrap();
    store.maintain(bson::DateTime::now()).unwrap();
    assert_eq!(store.lost_tail(), Some(at(9).op_time));
    drop(store);
    let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
    assert_eq!(store.lost_tail(), Some(at(9).op_time), "after a restart, too");
    drop(store);

    let dir = tempfile::tempdir().unwrap();
    let store = with_lost_tail(dir.path());
    store.oplog().truncate_after(Timestamp::new(2, 1)).unwrap();
    assert!(store.lost_tail().is_some(), "nothing was cut");
    store.oplog().truncate_after(Timestamp::new(1, 1)).unwrap();
    assert_eq!(store.lost_tail(), None, "the set has no 2, so that it has no 9 either");
    drop(store);
    let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
    assert_eq!(store.lost_tail(), None);
}

#[test]
fn a_second_process_is_kept_out() {
    let dir = tempfile::tempdir().unwrap();
    let _store = Store::open(dir.path(), StoreOptions::default()).unwrap();
    assert!(matches!(
        Store::open(dir.path(), StoreOptions::default()),
        Err(StorageError::Locked { .. })
    ));
}

#[test]
fn an_initial_sync_loads_in_any_order_and_history_begins_at_its_end() {
    for fixture in fixtures() {
        let old = fixture.make(1, "old", &rawdoc! {});
        fixture.put(2, old, rawdoc! { "_id": 1 });
        fixture.store.put_meta("local.system.replset", &rawdoc! { "_id": "rs" }).unwrap();
        fixture.store.begin_initial_sync().unwrap();
        assert!(fixture.store.initial_sync_pending());
        let fixture = fixture.reopen();
        assert!(fixture.store.initial_sync_pending());
        assert!(fixture.store.view(ReadAt::Newest).unwrap().catalog().is_empty());
        let uuid = Uuid::new_v4();
        fixture.apply(10, |apply, ts| {
            let coll = apply.create(ts, &ns("c"), uuid, &rawdoc! {}, Some(&id_index())).unwrap();
            assert!(coll.indexes().is_empty());
            let spec = rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1" };
            apply.create_index(ts, uuid, &spec, IndexState::Ready).unwrap();
        });
        let pad = "x".repeat(500);
        let shuffled = (0..40_000i32).map(|n| {
            let id = (n * 7919) % 40_000;
            rawdoc! { "_id": id, "a": [id, -id], "pad": pad.as_str() }
        });
        let again = rawdoc! { "_id": 5, "a": 1_000_000 };
        let docs = shuffled.chain([again]).map(RawDoc::from);
        let report = fixture.store.load(uuid, docs).unwrap();
        assert_eq!(report.documents, 40_000);
        fixture.put(11, uuid, rawdoc! { "_id": 6, "a": 2_000_000 });
        fixture.store.finish_initial_sync(at(12)).unwrap();
        assert!(!fixture.store.initial_sync_pending());
        fixture.put(13, uuid, rawdoc! { "_id": 7, "a": 3_000_000 });
        let fixture = fixture.reopen();
        assert!(matches!(
            fixture.store.view(ReadAt::Timestamp(ts(11))),
            Err(StorageError::HistoryGone { .. })
        ));
        let ids = |view: &View| -> Vec<i32> {
            let coll = view.catalog().by_uuid(uuid).unwrap();
            let scan = view.scan(&coll, Unbounded, Direction::Forward);
            scan.map(|item| item.unwrap().1.get_i32("_id").unwrap()).collect()
        };
        let view = fixture.store.view(ReadAt::Timestamp(ts(12))).unwrap();
        assert_eq!(ids(&view), (0..40_000).collect::<Vec<_>>());
        let coll = view.catalog().by_uuid(uuid).unwrap();
        assert_eq!(
            view.get(&coll, 7.into()).unwrap().unwrap().get_array("a").unwrap().into_iter().count(),
            2
        );
        let index = coll.index("a_1").unwrap();
        assert!(index.is_multikey());
        let entries =
            view.index_scan(&coll, index, (Unbounded, Unbounded), Direction::Forward).count();
        // Two keys per document, but only one for _id 0, 5 and 6.
        assert_eq!(entries, 2 * 40_000 - 3);
        let newest = fixture.store.view(ReadAt::Newest).unwrap();
        assert_eq!(newest.count(&coll).unwrap(), 40_000);
        assert!(fixture.store.meta("local.system.replset").unwrap().is_some());
    }
}

#[test]
fn a_transaction_larger_than_memory_is_applied_in_parts_to_an_unfinished_copy() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions { batch_max_bytes: 10_000, ..StoreOptions::default() };
    let store = Store::open(dir.path(), options.clone()).unwrap();
    let fixture = Fixture { store, dir, options };
    fixture.store.begin_initial_sync().unwrap();
    let uuid = fixture.make(10, "c", &rawdoc! {});
    let pad = "p".repeat(400);
    fixture.apply(11, |apply, ts| {
        let coll = apply.collection(uuid).unwrap();
        for id in 0..200i64 {
            apply.put(ts, &coll, rawdoc! { "_id": id, "pad": pad.as_str() }).unwrap();
        }
        for id in 20..30i64 {
            assert!(apply.delete(ts, &coll, id.into()).unwrap().is_some());
        }
        assert!(apply.bytes() < 20_000, "{}", apply.bytes());
    });
    fixture.store.finish_initial_sync(at(12)).unwrap();
    let fixture = fixture.reopen();
    let view = fixture.store.view(ReadAt::Newest).unwrap();
    let coll = view.catalog().by_uuid(uuid).unwrap();
    assert_eq!(view.count(&coll).unwrap(), 190);
    assert_eq!(fixture.docs(ReadAt::Newest, "c", Direction::Forward).len(), 190);
    assert!(fixture.store.validate(&coll, true).unwrap().valid());
}

#[test]
fn documents_larger_than_the_loaders_memory_are_loaded() {
    for fixture in fixtures() {
        fixture.store.begin_initial_sync().unwrap();
        let uuid = fixture.make(10, "c", &rawdoc! {});
        let pad = "x".repeat(12 << 20);
        let docs = [3, 1, 2, 1].map(|id| RawDoc::from(rawdoc! { "_id": id, "pad": pad.as_str() }));
        let report = fixture.store.load(uuid, docs.into_iter()).unwrap();
        assert_eq!(report.documents, 3);
        fixture.store.finish_initial_sync(at(12)).unwrap();
        let found = fixture.docs(ReadAt::Newest, "c", Direction::Forward);
        let ids: Vec<i32> = found.iter().map(|doc| doc.get_i32("_id").unwrap()).collect();
        assert_eq!(ids, [1, 2, 3]);
    }
}

#[test]
fn partial_indexes_hold_what_their_filter_means() {
    for fixture in fixtures() {
        let uuid = fixture.make(1, "c", &rawdoc! {});
        fixture.apply(2, |apply, ts| {
            let spec = rawdoc! {
                "v": 2, "key": { "a": 1 }, "name": "a_1",
                "partialFilterExpression": { "b": { "$gt": 5 } },
            };
            apply.create_index(ts, uuid, &spec, IndexState::Ready).unwrap();
        });
        fixture.put(3, uuid, rawdoc! { "_id": 1, "a": 1, "b": 9 });
        fixture.put(4, uuid, rawdoc! { "_id": 2, "a": 2, "b": 1 });
        let count = |secs| {
            let view = fixture.store.view(ReadAt::Timestamp(ts(secs))).unwrap();
            let coll = view.catalog().by_uuid(uuid).unwrap();
            let index = coll.index("a_1").unwrap();
            view.index_scan(&coll, index, (Unbounded, Unbounded), Direction::Forward).count()
        };
        assert_eq!(count(4), 1);
        fixture.put(5, uuid, rawdoc! { "_id": 1, "a": 1, "b": 2 });
        fixture.put(6, uuid, rawdoc! { "_id": 2, "a": 2, "b": 6 });
        assert_eq!((count(4), count(5), count(6)), (1, 0, 1));
    }
}

#[test]
fn a_dropped_table_is_reclaimed_when_nobody_can_read_it() {
    for fixture in fixtures() {
        fixture.store.set_history_window(std::time::Duration::from_secs(24), None, false);
        let uuid = fixture.make(1, "c", &rawdoc! {});
        let kept = fixture.make(2, "d", &rawdoc! {});
        for n in 0..100 {
            fixture.put(3 + n, uuid, rawdoc! { "_id": i64::from(n) });
        }
        let table =
            fixture.store.view(ReadAt::Newest).unwrap().catalog().by_uuid(uuid).unwrap().table;
        fixture.apply(110, |apply, ts| assert!(apply.drop_collection(ts, uuid).unwrap()));
        fixture.put(120, kept, rawdoc! { "_id": 1 });
        fixture.store.watermarks().set_commit_point(at(120));
        let maintain = || fixture.store.maintain(bson::DateTime::from_millis(0)).unwrap();
        maintain();
        assert_eq!(fixture.docs(ReadAt::Timestamp(ts(109)), "c", Direction::Forward).len(), 100);
        for secs in 130..200 {
            fixture.put(secs, kept, rawdoc! { "_id": 1, "n": i64::from(secs) });
        }
        fixture.store.watermarks().set_commit_point(at(199));
        maintain();
        maintain();
        if fixture.options.engine == EngineKind::Memory {
            let snapshot = fixture.store.0.engine.snapshot();
            let mut rows = snapshot.range(
                Keyspace::Current,
                Included(&table.key(&[])),
                Excluded(&table.end()),
            );
            assert!(rows.next().is_none());
        }
        assert_eq!(fixture.docs(ReadAt::Newest, "d", Direction::Forward).len(), 1);
    }
}

#[test]
fn a_rollback_tells_what_was_lost() {
    for fixture in fixtures() {
        let uuid = fixture.make(1, "c", &rawdoc! {});
        fixture.put(2, uuid, rawdoc! { "_id": 1, "v": "old" });
        fixture.put(3, uuid, rawdoc! { "_id": 2, "v": "stays" });
        fixture.put(4, uuid, rawdoc! { "_id": 1, "v": "new" });
        fixture.put(5, uuid, rawdoc! { "_id": 3, "v": "fresh" });
        fixture.apply(6, |apply, ts| {
            let coll = apply.collection(uuid).unwrap();
            apply.delete(ts, &coll, 2.into()).unwrap();
        });
        fixture.store.watermarks().set_commit_point(at(3));
        assert!(matches!(fixture.store.rollback_to(at(2)), Err(StorageError::HistoryGone { .. })));
        let mut lost = Vec::new();
        let mut take = |found: crate::LostDocument| {
            assert_eq!((found.ns, found.uuid), (ns("c"), uuid));
            lost.push(found.doc.get_str("v").unwrap().to_owned());
            Ok(())
        };
        fixture.store.lost_documents(ts(3), &mut take).unwrap();
        lost.sort();
        assert_eq!(lost, ["fresh", "new"], "what was deleted has no last version");
        fixture.store.rollback_to(at(3)).unwrap();
        let fixture = fixture.reopen();
        let docs = fixture.docs(ReadAt::Newest, "c", Direction::Forward);
        assert_eq!(docs, [rawdoc! { "_id": 1, "v": "old" }, rawdoc! { "_id": 2, "v": "stays" }]);
        let view = fixture.store.view(ReadAt::Newest).unwrap();
        assert_eq!(view.count(&view.catalog().by_uuid(uuid).unwrap()).unwrap(), 2);
        assert_eq!(view.ts(), ts(3));
    }
}

/// The lists of new rows are removed up to `stable`, which is not stored. After a restart the store must still know
/// how far it can roll back.
#[test]
fn a_rollback_to_before_what_is_kept_for_it_is_refused_after_a_restart_too() {
    for fixture in fixtures() {
        let uuid = fixture.make(100, "c", &rawdoc! {});
        fixture.put(101, uuid, rawdoc! { "_id": 1 });
        fixture.put(102, uuid, rawdoc! { "_id": 2 });
        fixture.store.watermarks().set_commit_point(at(102));
        fixture.store.maintain(bson::DateTime::from_millis(0)).unwrap();
        fixture.put(103, uuid, rawdoc! { "_id": 3 });
        let fixture = fixture.reopen();
        assert_eq!(fixture.store.rollback_floor(), ts(102));
        let refused = fixture.store.rollback_to(at(101));
        assert!(matches!(refused, Err(StorageError::HistoryGone { .. })), "{refused:?}");
        fixture.store.rollback_to(at(102)).unwrap();
        assert_eq!(fixture.docs(ReadAt::Newest, "c", Direction::Forward).len(), 2);
    }
}

#[test]
fn a_prepared_transaction_is_held_then_decided_and_a_rollback_holds_it_again() {
    use crate::{PreparedWrite, TxnId};
    for fixture in fixtures() {
        let uuid = fixture.make(1, "c", &rawdoc! {});
        fixture.put(2, uuid, rawdoc! { "_id": 1, "v": 0 });
        let txn = TxnId(b"session 7".to_vec());
        fixture.apply(3, |apply, ts| {
            let writes = vec![
                PreparedWrite::Put { coll: uuid, doc: rawdoc! { "_id": 1, "v": 1 }.into() },
                PreparedWrite::Put { coll: uuid, doc: rawdoc! { "_id": 2, "v": 2 }.into() },
            ];
            apply.prepare(&txn, ts, writes).unwrap();
        });
        let fixture = fixture.reopen();
        let conflict = || {
            let view = fixture.store.view(ReadAt::Newest).unwrap();
            let coll = view.catalog().by_uuid(uuid).unwrap();
            let found = view.prepared_conflict(&coll, 1.into()).unwrap();
            for held in [Some(&*coll), None] {
                assert_eq!(found.is_some(), view.holds(held, ts(3)).unwrap());
                assert!(!view.holds(held, ts(2)).unwrap());
            }
            found
        };
        assert_eq!(conflict(), Some((txn.clone(), ts(3))));
        assert_eq!(fixture.store.prepared().unwrap(), [(txn.clone(), ts(3))]);
        let values = |secs| -> Vec<i32> {
            fixture
                .docs(ReadAt::Timestamp(ts(secs)), "c", Direction::Forward)
                .iter()
                .map(|doc| doc.get_i32("v").unwrap())
                .collect()
        };
        fixture.apply(4, |_, _| {});
        assert_eq!(values(4), [0]);
        fixture.store.watermarks().set_commit_point(at(4));
        // Committed by entry 6 with commit timestamp 5: readers see it from 5 on.
        fixture.apply(5, |_, _| {});
        fixture.apply(6, |apply, six| apply.commit_prepared(&txn, ts(5), six).unwrap());
        assert_eq!((values(4), values(5), values(6)), (vec![0], vec![1, 2], vec![1, 2]));
        assert_eq!(conflict(), None);
        fixture.store.rollback_to(at(5)).unwrap();
        assert_eq!(values(5), [0]);
        assert_eq!(conflict(), Some((txn.clone(), ts(3))));
        fixture.apply(7, |apply, ts| {
            apply.abort_prepared(&txn, ts).unwrap();
            assert!(matches!(apply.abort_prepared(&txn, ts), Err(StorageError::NoPrepared(_))));
        });
        assert_eq!((values(7), conflict()), (vec![0], None));
    }
}

#[test]
fn effects_too_large_for_one_batch_are_seen_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions { batch_max_bytes: 10_000, ..StoreOptions::default() };
    let store = Store::open(dir.path(), options.clone()).unwrap();
    let fixture = Fixture { store, dir, options };
    let uuid = fixture.make(1, "c", &rawdoc! {});
    fixture.apply(2, |apply, ts| {
        let spec = rawdoc! { "v": 2, "key": { "n": 1 }, "name": "n_1" };
        apply.create_index(ts, uuid, &spec, IndexState::Ready).unwrap();
    });
    for id in 0..50 {
        fixture.put(3 + id, uuid, rawdoc! { "_id": i64::from(id), "n": 0 });
    }
    let pad = "p".repeat(400);
    let transaction = |apply: &mut Apply, ts, seen: &mut Vec<i32>| {
        let coll = apply.collection(uuid).unwrap();
        for id in 0..200i64 {
            let old =
                apply.put(ts, &coll, rawdoc! { "_id": id, "n": 1, "pad": pad.as_str() }).unwrap();
            seen.push(old.map_or(-1, |doc| doc.get_i32("n").unwrap()));
        }
        for id in 20..30i64 {
            assert!(apply.delete(ts, &coll, id.into()).unwrap().is_some());
        }
    };
    let look = |store: &Store| -> (usize, u64, bool) {
        let view = store.view(ReadAt::Newest).unwrap();
        let coll = view.catalog().by_uuid(uuid).unwrap();
        let docs: Vec<_> =
            view.scan(&coll, Unbounded, Direction::Forward).map(|d| d.unwrap().1).collect();
        let all_old = docs.iter().all(|doc| doc.get_i32("n").unwrap() == 0);
        (docs.len(), view.count(&coll).unwrap(), all_old)
    };
    // Half-written: parts are in the engine, but invisible, also after a restart.
    let mut first = Vec::new();
    let mut apply = fixture.store.begin_apply();
    transaction(&mut apply, ts(100), &mut first);
    assert!(apply.bytes() < 20_000, "{}", apply.bytes());
    assert_eq!(look(&fixture.store), (50, 50, true));
    drop(apply);
    assert_eq!(look(&fixture.store), (50, 50, true));
    let fixture = fixture.reopen();
    assert_eq!(look(&fixture.store), (50, 50, true));
    // The replay reads the same as the first attempt.
    let mut again = Vec::new();
    fixture.apply(100, |apply, ts| transaction(apply, ts, &mut again));
    assert_eq!(first, again);
    assert_eq!(look(&fixture.store), (190, 190, false));
    let fixture = fixture.reopen();
    let view = fixture.store.view(ReadAt::Newest).unwrap();
    let coll = view.catalog().by_uuid(uuid).unwrap();
    let report = fixture.store.validate(&coll, true).unwrap();
    assert!(report.valid(), "{report:?}");
    assert_eq!(fixture.docs(ReadAt::Timestamp(ts(99)), "c", Direction::Forward).len(), 50);
    fixture.store.rollback_to(at(52)).unwrap();
    assert_eq!(look(&fixture.store), (50, 50, true));
    assert!(fixture.store.validate(&coll, true).unwrap().valid());
}

/// Readers trust marks without reading the document: wrong ones are reported, missing ones are not a fault.
#[test]
fn validate_finds_marks_that_are_not_those_of_the_document() {
    for fixture in fixtures() {
        let uuid = fixture.make(1, "c", &rawdoc! {});
        let spec = rawdoc! { "v": 2, "key": { "n": 1 }, "name": "n_1" };
        fixture.apply(2, |apply, ts| {
            apply.create_index(ts, uuid, &spec, IndexState::Ready).unwrap();
        });
        fixture.put(3, uuid, rawdoc! { "_id": 1, "n": 5 });
        let view = fixture.store.view(ReadAt::Newest).unwrap();
        let coll = view.catalog().by_uuid(uuid).unwrap();
        let table = coll.indexes().first().unwrap().table;
        let valid = || fixture.store.validate(&coll, true).unwrap().valid();
        assert!(valid());
        let engine = &fixture.store.0.engine;
        let (from, to) = (table.key(&[]), table.end());
        let current = crate::engine::Keyspace::Current;
        let snapshot = engine.snapshot();
        let row = snapshot.range(current, Included(&from), Excluded(&to)).next();
        let (key, entry) = row.unwrap().unwrap();
        let (mark, before) = entry.split_last().unwrap();
        let wrong = [before, &[mark ^ 0b11]].concat();
        let entries = [(4, wrong, false), (5, before.to_vec(), true), (6, entry.to_vec(), true)];
        for (secs, entry, is_valid) in entries {
            let mut batch = crate::engine::Batch::default();
            batch.put(current, key.clone(), entry);
            engine.commit(batch, crate::engine::Sync::No).unwrap();
            // Reads see the state of the last applied batch.
            fixture.apply(secs, |_, _| {});
            assert_eq!(valid(), is_valid);
        }
    }
}
