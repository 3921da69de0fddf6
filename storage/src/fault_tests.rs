//! Lets each write that can fail fail once: nothing durable is lost, and the reopened store continues.

use std::{ops::Bound::Unbounded, path::Path, sync::Arc};

use bson::rawdoc;
use protocol::{Namespace, OpTime, OpTimeAndWall, RawDoc, Timestamp};
use uuid::Uuid;

use crate::{
    Direction, EngineKind, Faults, IndexState, ReadAt, StorageError, Store, StoreOptions,
    engine::{Engine, memory::Memory},
};

const COLL: Uuid = Uuid::from_u128(1);

fn at(secs: u32) -> OpTimeAndWall {
    OpTimeAndWall {
        op_time: OpTime::new(Timestamp::new(secs, 1), 1),
        wall: bson::DateTime::from_millis(0),
    }
}

fn entry(secs: u32) -> RawDoc {
    rawdoc! { "op": "n", "ts": bson::Timestamp { time: secs, increment: 1 }, "t": 1i64 }.into()
}

fn open(engine: &Arc<dyn Engine>, faults: Option<Faults>) -> Result<Store, StorageError> {
    let options = StoreOptions {
        engine: EngineKind::Memory,
        history_window: std::time::Duration::from_secs(10),
        ..StoreOptions::default()
    };
    Store::open_engine(Path::new(""), options, Arc::clone(engine), None, faults)
}

/// Applies entry `n`: puts one document, deletes another, and sometimes changes the catalog.
fn apply_one(store: &Store, secs: u32) -> Result<(), StorageError> {
    let ts = Timestamp::new(secs, 1);
    let mut apply = store.begin_apply();
    if secs == 1 {
        apply.create(ts, &Namespace::new("test", "c"), COLL, &rawdoc! {}, None)?;
        let spec = rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1" };
        apply.create_index(ts, COLL, &spec, IndexState::Ready)?;
    }
    if secs == 12 {
        apply.rename(ts, COLL, &Namespace::new("test", "d"))?;
    }
    let coll = apply.collection(COLL).expect("made at 1");
    apply.put(ts, &coll, rawdoc! { "_id": i64::from(secs % 7), "a": i64::from(secs) })?;
    apply.delete(ts, &coll, i64::from((secs + 3) % 7).into())?;
    apply.commit(at(secs))
}

/// Continues from the store's position; `durable` is the highest position reported as durable.
fn go_on(store: &Store, to: u32, durable: &mut u32) -> Result<(), StorageError> {
    for secs in store.watermarks().written().op_time.ts.secs() + 1..=to {
        store.oplog().append(&[entry(secs)])?;
        *durable = store.oplog().sync()?.op_time.ts.secs().max(*durable);
    }
    for secs in store.watermarks().applied().op_time.ts.secs() + 1..=to {
        apply_one(store, secs)?;
        store.watermarks().set_commit_point(at(secs.saturating_sub(2)));
        store.maintain(bson::DateTime::from_millis(0))?;
    }
    if store.watermarks().applied().op_time.ts.secs() == to && to == 20 {
        store.rollback_to(at(19))?;
        *durable = 19;
    }
    Ok(())
}

fn check(store: &Store, durable: u32, what: &str) {
    assert!(store.watermarks().written().op_time.ts.secs() >= durable, "{what}");
    let view = store.view(ReadAt::Newest).unwrap();
    let mut want = std::collections::BTreeMap::new();
    for secs in 1..=i64::from(view.ts().secs()) {
        want.insert(secs % 7, secs);
        want.remove(&((secs + 3) % 7));
    }
    let Some(coll) = view.catalog().by_uuid(COLL) else {
        assert_eq!(view.ts().secs(), 0, "{what}");
        return;
    };
    let got: Vec<_> = view
        .scan(&coll, Unbounded, Direction::Forward)
        .map(|item| item.unwrap().1)
        .map(|doc| (doc.get_i64("_id").unwrap(), doc.get_i64("a").unwrap()))
        .collect();
    assert_eq!(got, want.into_iter().collect::<Vec<_>>(), "{what}");
    let report = store.validate(&coll, true).unwrap();
    assert!(report.valid(), "{what}: {report:?}");
}

#[test]
fn whichever_write_fails_nothing_durable_is_lost() {
    for torn in [false, true] {
        for n in 0.. {
            let engine: Arc<dyn Engine> = Arc::new(Memory::default());
            let faults = Faults::after(n, torn);
            let what = format!("write {n}, torn {torn}");
            let mut durable = 0;
            let opened = open(&engine, Some(faults.clone()));
            let result = opened.as_ref().map_or(Ok(()), |store| go_on(store, 20, &mut durable));
            let told = opened.is_err() || result.is_err();
            if !faults.hit() {
                result.unwrap();
                assert!(n > 60, "the history is long enough to be worth it: {n}");
                break;
            }
            assert!(told, "{what}: a failed write must be told");
            drop(opened);
            let store = open(&engine, None).unwrap();
            check(&store, durable.min(19), &what);
            let mut again = 0;
            go_on(&store, 25, &mut again).unwrap();
            check(&store, 25, &what);
        }
    }
}

/// After a rollback fails at any of its writes, the store shows either the whole lost branch or none of it, in its
/// documents and in its oplog.
#[test]
fn a_rollback_that_was_interrupted_is_finished_with_its_oplog() {
    let mut finished = 0;
    for n in 0.. {
        let engine: Arc<dyn Engine> = Arc::new(Memory::default());
        let store = open(&engine, None).unwrap();
        for secs in 1..=20 {
            store.oplog().append(&[entry(secs)]).unwrap();
            apply_one(&store, secs).unwrap();
        }
        store.oplog().sync().unwrap();
        drop(store);
        let faults = Faults::after(n, false);
        if let Ok(store) = open(&engine, Some(faults.clone())) {
            let result = store.rollback_to(at(12));
            assert_eq!(result.is_err(), faults.hit(), "write {n}");
        }
        let store = open(&engine, None).unwrap();
        let marks = store.watermarks();
        let at = (marks.applied().op_time.ts.secs(), marks.written().op_time.ts.secs());
        assert!([(20, 20), (12, 12)].contains(&at), "write {n} leaves {at:?}");
        finished += u32::from(faults.hit() && at == (12, 12));
        check(&store, at.1, &format!("write {n}"));
        go_on(&store, 25, &mut 0).unwrap();
        check(&store, 25, &format!("write {n}"));
        if !faults.hit() {
            break;
        }
    }
    assert!(finished >= 3, "only {finished} interrupted rollbacks were finished at open");
}
