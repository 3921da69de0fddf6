//! All engines behave the same.

use std::{ops::Bound, sync::Arc};

use super::{
    Batch, Engine, KEY_LEN_MAX, Keyspace, Sync,
    faulty::{Faults, Faulty},
    fjall::{Checked, Fjall},
    memory::Memory,
};
use crate::StorageError;

fn engines() -> Vec<(Arc<dyn Engine>, Option<tempfile::TempDir>)> {
    let dir = tempfile::tempdir().unwrap();
    let fjall = Fjall::open(dir.path(), 8 << 20, Checked::new(dir.path(), false).unwrap()).unwrap();
    vec![(Arc::new(Memory::default()), None), (Arc::new(fjall), Some(dir))]
}

fn keys(engine: &dyn Engine, ks: Keyspace) -> Vec<Vec<u8>> {
    engine
        .snapshot()
        .range(ks, Bound::Unbounded, Bound::Unbounded)
        .map(|item| item.unwrap().0.to_vec())
        .collect()
}

#[test]
fn a_batch_spans_keyspaces_and_a_snapshot_stays() {
    for (engine, _dir) in engines() {
        let before = engine.snapshot();
        let mut batch = Batch::default();
        batch.put(Keyspace::Current, b"a", b"1");
        batch.put(Keyspace::History, b"b", b"2");
        batch.put(Keyspace::Current, b"c", b"3");
        batch.remove(Keyspace::Current, b"c");
        engine.commit(batch, Sync::Yes).unwrap();
        assert_eq!(before.get(Keyspace::Current, b"a").unwrap(), None);
        let after = engine.snapshot();
        assert_eq!(after.get(Keyspace::Current, b"a").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(after.get(Keyspace::History, b"b").unwrap().as_deref(), Some(&b"2"[..]));
        assert_eq!(keys(&*engine, Keyspace::Current), [b"a"]);
    }
}

#[test]
fn ranges_run_both_ways_and_empty_ones_are_empty() {
    for (engine, _dir) in engines() {
        let mut batch = Batch::default();
        for i in 0..10u8 {
            batch.put(Keyspace::Oplog, [i], [i]);
        }
        engine.commit(batch, Sync::No).unwrap();
        let snapshot = engine.snapshot();
        let range = |from: Bound<&[u8]>, to: Bound<&[u8]>, back: bool| -> Vec<u8> {
            let iter = match back {
                false => snapshot.range(Keyspace::Oplog, from, to),
                true => snapshot.range_back(Keyspace::Oplog, from, to),
            };
            iter.map(|item| item.unwrap().0[0]).collect()
        };
        assert_eq!(range(Bound::Included(&[2]), Bound::Excluded(&[5]), false), [2, 3, 4]);
        assert_eq!(range(Bound::Excluded(&[2]), Bound::Included(&[5]), true), [5, 4, 3]);
        for (from, to) in [(5, 2), (5, 5)] {
            assert!(range(Bound::Included(&[from]), Bound::Excluded(&[to]), false).is_empty());
            assert!(range(Bound::Excluded(&[from]), Bound::Excluded(&[to]), true).is_empty());
        }
    }
}

#[test]
fn long_keys_and_values_are_kept() {
    for (engine, _dir) in engines() {
        let (key, value) = (vec![7u8; KEY_LEN_MAX], vec![9u8; 300_000]);
        let mut batch = Batch::default();
        batch.put(Keyspace::Current, key.as_slice(), value.as_slice());
        engine.commit(batch, Sync::Yes).unwrap();
        let found = engine.snapshot().get(Keyspace::Current, &key).unwrap().unwrap();
        assert_eq!(found, value);
    }
}

#[test]
fn an_ingested_run_appears_whole_between_other_keys() {
    for (engine, _dir) in engines() {
        let mut batch = Batch::default();
        batch.put(Keyspace::Current, b"a", b"");
        batch.put(Keyspace::Current, b"z", b"");
        engine.commit(batch, Sync::No).unwrap();
        let mut run = (0..1000u32)
            .map(|i| Ok((format!("m{i:05}").as_bytes().into(), i.to_be_bytes().into())));
        engine.ingest(Keyspace::Current, &mut run).unwrap();
        assert_eq!(keys(&*engine, Keyspace::Current).len(), 1002);
    }
}

#[test]
fn a_walk_shows_small_and_large_values_of_its_own_moment_both_ways() {
    let value = |i: u8, round: u8| vec![round; if i.is_multiple_of(3) { 100_000 } else { 40 }];
    for (engine, _dir) in engines() {
        // First in tables and blob files, then in memory, too.
        let mut run = (0..20u8).map(|i| Ok(([i].into(), value(i, 1).into())));
        engine.ingest(Keyspace::Current, &mut run).unwrap();
        let mut batch = Batch::default();
        for i in (0..20u8).step_by(2) {
            batch.put(Keyspace::Current, [i], value(i, 2));
        }
        batch.remove(Keyspace::Current, [5]);
        engine.commit(batch, Sync::No).unwrap();
        let snapshot = engine.snapshot();
        let mut later = Batch::default();
        for i in 0..20u8 {
            later.put(Keyspace::Current, [i], value(i, 3));
        }
        engine.commit(later, Sync::No).unwrap();
        let want: Vec<_> = (0..20u8)
            .filter(|i| *i != 5)
            .map(|i| (vec![i], value(i, if i.is_multiple_of(2) { 2 } else { 1 })))
            .collect();
        let pair = |item: super::Item| item.map(|(key, value)| (key.to_vec(), value.to_vec()));
        let all = (Bound::Unbounded, Bound::Unbounded);
        let forward: Result<Vec<_>, _> =
            snapshot.range(Keyspace::Current, all.0, all.1).map(pair).collect();
        assert!(forward.unwrap() == want);
        let backward: Result<Vec<_>, _> =
            snapshot.range_back(Keyspace::Current, all.0, all.1).map(pair).collect();
        assert!(backward.unwrap().into_iter().rev().eq(want));
    }
}

#[test]
fn forgotten_ranges_leave_the_rest_alone() {
    for (engine, _dir) in engines() {
        let mut batch = Batch::default();
        for i in 0..100u8 {
            batch.put(Keyspace::History, [i], [i]);
        }
        engine.commit(batch, Sync::No).unwrap();
        engine.forget(Keyspace::History, &[], &[50]).unwrap();
        let left: Vec<_> = keys(&*engine, Keyspace::History);
        assert!((50..100u8).all(|i| left.contains(&vec![i])));
    }
}

#[test]
fn a_faulty_engine_fails_from_the_chosen_write_on() {
    let faults = Faults::after(1, true);
    let engine = Faulty::new(Arc::new(Memory::default()), faults.clone());
    let write = |key: &[u8]| {
        let mut batch = Batch::default();
        batch.put(Keyspace::Meta, key, b"");
        engine.commit(batch, Sync::Yes)
    };
    write(b"a").unwrap();
    assert!(!faults.hit());
    assert!(matches!(write(b"b"), Err(StorageError::Injected(_))));
    assert!(matches!(write(b"c"), Err(StorageError::Injected(_))));
    assert!(faults.hit());
    assert_eq!(keys(&engine, Keyspace::Meta), [b"a", b"b"], "b was torn: there, but denied");
}
