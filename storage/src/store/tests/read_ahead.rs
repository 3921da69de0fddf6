//! Rows that were read ahead are never older than what the batch itself would read.

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;

fn ahead_of(f: &Fixture, uuid: Uuid, ids: impl Iterator<Item = i32>) -> ReadAhead {
    let mut ahead = f.store.read_ahead();
    let coll = ahead.collection(uuid).unwrap();
    let ids: Vec<_> = ids.map(|id| (coll.clone(), id.into())).collect();
    ahead.read(&ids).unwrap();
    ahead
}

fn value(apply: &mut Apply, uuid: Uuid, id: i32) -> Option<i32> {
    let coll = apply.collection(uuid).unwrap();
    apply.get(&coll, id.into()).unwrap().map(|doc| doc.get_i32("v").unwrap())
}

#[test]
fn rows_that_changed_since_are_read_again() {
    for f in fixtures() {
        let uuid = f.make(1, "c", &rawdoc! {});
        f.apply(2, |apply, ts| {
            let coll = apply.collection(uuid).unwrap();
            for id in 0..10 {
                apply.put(ts, &coll, rawdoc! { "_id": id, "v": 0 }).unwrap();
            }
        });
        let ahead = ahead_of(&f, uuid, 0..12);
        f.apply(3, |apply, ts| {
            let coll = apply.collection(uuid).unwrap();
            apply.put(ts, &coll, rawdoc! { "_id": 3, "v": 1 }).unwrap();
            apply.put(ts, &coll, rawdoc! { "_id": 11, "v": 1 }).unwrap();
            apply.delete(ts, &coll, 4.into()).unwrap();
        });
        let mut apply = f.store.begin_apply();
        apply.take_ahead(ahead);
        let seen: Vec<_> = [2, 3, 4, 10, 11].map(|id| value(&mut apply, uuid, id)).into();
        assert_eq!(seen, [Some(0), Some(1), None, None, Some(1)]);
    }
}

/// A batch written in parts no longer knows its first rows, so everything that was read ahead is discarded.
#[test]
fn a_batch_in_parts_counts_as_a_change_of_everything() {
    let options = StoreOptions { batch_max_bytes: 64 << 10, ..StoreOptions::default() };
    let dir = tempfile::tempdir().unwrap();
    let f = Fixture { store: Store::open(dir.path(), options.clone()).unwrap(), dir, options };
    let uuid = f.make(1, "c", &rawdoc! {});
    let doc = |id: i32, v: i32| rawdoc! { "_id": id, "v": v, "b": "x".repeat(10 << 10) };
    f.put(2, uuid, doc(0, 0));
    let ahead = ahead_of(&f, uuid, 0..1);
    f.apply(3, |apply, ts| {
        let coll = apply.collection(uuid).unwrap();
        for id in 0..40 {
            apply.put(ts, &coll, doc(id, 1)).unwrap();
        }
    });
    let mut apply = f.store.begin_apply();
    apply.take_ahead(ahead);
    assert_eq!(value(&mut apply, uuid, 0), Some(1));
}

/// Random batches with overlapping read-ahead, as in the applier, give the same result as a plain map.
#[test]
fn random_batches_with_rows_read_during_the_batch_before() {
    for seed in 0..20 {
        let mut rng = StdRng::seed_from_u64(seed);
        for f in fixtures() {
            let uuid = f.make(1, "c", &rawdoc! {});
            let mut model = HashMap::new();
            let mut ahead = ahead_of(&f, uuid, 0..30);
            for secs in 2..20 {
                let next = ahead_of(&f, uuid, 0..30);
                let mut apply = f.store.begin_apply();
                apply.take_ahead(std::mem::replace(&mut ahead, next));
                let coll = apply.collection(uuid).unwrap();
                for _ in 0..8 {
                    let id: i32 = rng.random_range(0..30);
                    let old = match rng.random_range(0..3) {
                        0 => {
                            let old = apply.delete(ts(secs), &coll, id.into()).unwrap();
                            (old, model.remove(&id))
                        }
                        _ => {
                            let v = rng.random_range(0..1000);
                            let doc = rawdoc! { "_id": id, "v": v };
                            (apply.put(ts(secs), &coll, doc).unwrap(), model.insert(id, v))
                        }
                    };
                    let (old, known) = (old.0.map(|doc| doc.get_i32("v").unwrap()), old.1);
                    assert_eq!(old, known, "seed {seed}, {secs} s, {id}");
                }
                apply.commit(at(secs)).unwrap();
            }
        }
    }
}
