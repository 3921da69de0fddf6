//! Readers at a timestamp: pins, counts, and the start of a scan.

use std::time::Duration;

use super::*;

#[test]
fn a_pin_holds_oldest_back_up_to_twice_the_window() {
    for fixture in fixtures() {
        let store = &fixture.store;
        store.set_history_window(Duration::from_secs(48), None, false);
        let uuid = fixture.make(1, "c", &rawdoc! {});
        let put = |from: u32, to: u32| {
            for secs in from..to {
                fixture.put(secs, uuid, rawdoc! { "_id": 1, "n": i64::from(secs) });
            }
            store.watermarks().set_commit_point(at(to - 1));
            store.maintain(bson::DateTime::from_millis(0)).unwrap();
        };
        put(2, 50);
        let pin = store.pin(ts(20)).unwrap();
        let other = store.pin(ts(20)).unwrap();
        put(50, 100);
        assert_eq!(store.watermarks().oldest(), pin.ts());
        drop(other);
        put(100, 110);
        let found = fixture.docs(ReadAt::Timestamp(ts(20)), "c", Direction::Forward);
        assert_eq!(found, [rawdoc! { "_id": 1, "n": 20i64 }]);
        // The limit of a pin: twice the window.
        put(110, 200);
        assert_eq!(store.watermarks().oldest(), ts(199 - 96));
        assert!(matches!(
            store.view(ReadAt::Timestamp(ts(20))),
            Err(StorageError::HistoryGone { .. })
        ));
        drop(pin);
        put(200, 201);
        assert_eq!(store.watermarks().oldest(), ts(200 - 48));
        assert!(matches!(store.pin(ts(20)), Err(StorageError::HistoryGone { .. })));
        assert!(matches!(store.pin(ts(500)), Err(StorageError::NotYetApplied { .. })));
    }
}

#[test]
fn the_window_can_be_changed_while_it_runs_by_time_and_by_size() {
    for fixture in fixtures() {
        let store = &fixture.store;
        store.set_history_window(Duration::from_secs(480), None, false);
        let uuid = fixture.make(1, "c", &rawdoc! {});
        let held = || store.stats().history.iter().map(|(_, _, bytes)| bytes).sum::<u64>();
        let put = |from: u32, to: u32| {
            for secs in from..to {
                let text = "x".repeat(1000);
                fixture.put(secs, uuid, rawdoc! { "_id": 1, "n": i64::from(secs), "text": text });
            }
            store.watermarks().set_commit_point(at(to - 1));
            store.maintain(bson::DateTime::from_millis(0)).unwrap();
        };
        put(2, 300);
        assert!(store.watermarks().oldest() <= ts(1));
        store.set_history_window(Duration::from_secs(480), Some(100_000), false);
        put(300, 400);
        assert!(held() < 150_000, "{}", held());
        store.set_history_window(Duration::from_secs(24), None, false);
        put(400, 410);
        assert_eq!(store.watermarks().oldest(), ts(409 - 24));
    }
}

#[test]
fn counts_are_those_of_the_moment() {
    for fixture in fixtures() {
        let uuid = fixture.make(1, "c", &rawdoc! {});
        for secs in 2..40 {
            let id = i64::from(secs % 10);
            if secs % 3 == 0 {
                fixture.apply(secs, |apply, ts| {
                    let coll = apply.collection(uuid).unwrap();
                    apply.delete(ts, &coll, id.into()).unwrap();
                });
            } else {
                fixture.put(
                    secs,
                    uuid,
                    rawdoc! { "_id": id, "text": "x".repeat(secs as usize % 10) },
                );
            }
        }
        let fixture = fixture.reopen();
        for secs in 1..40 {
            let moment = ReadAt::Timestamp(ts(secs));
            let view = fixture.store.view(moment).unwrap();
            let coll = view.catalog().by_uuid(uuid).unwrap();
            let docs = fixture.docs(moment, "c", Direction::Forward);
            let bytes: usize = docs.iter().map(|doc| doc.as_bytes().len()).sum();
            assert_eq!(view.count(&coll).unwrap(), docs.len() as u64, "{secs}");
            assert_eq!(view.data_size(&coll).unwrap(), bytes as u64, "{secs}");
        }
    }
}

/// A queue: rows are inserted at its end and removed at its front. Readers at every timestamp see the right rows,
/// also when a row is inserted before the front.
#[test]
fn the_front_of_a_queue_is_found_wherever_it_is() {
    for fixture in fixtures() {
        let uuid = fixture.make(1, "c", &rawdoc! {});
        let first = |at: ReadAt| {
            let found = fixture.docs(at, "c", Direction::Forward);
            let backward = fixture.docs(at, "c", Direction::Backward);
            assert!(found.iter().eq(backward.iter().rev()));
            found.first().map(|doc| doc.get_i64("_id").unwrap())
        };
        let delete = |secs: u32, id: i64| {
            fixture.apply(secs, |apply, ts| {
                let coll = apply.collection(uuid).unwrap();
                apply.delete(ts, &coll, id.into()).unwrap();
            });
        };
        let mut secs = 1;
        for n in 0..60i64 {
            secs += 1;
            fixture.put(secs, uuid, rawdoc! { "_id": n });
            if n >= 5 {
                secs += 1;
                delete(secs, n - 5);
            }
            assert_eq!(first(ReadAt::Newest), Some((n - 4).max(0)));
        }
        let table = fixture.store.0.present().catalog.by_uuid(uuid).unwrap().table;
        let low = || fixture.store.0.low.of(table, u64::MAX).unwrap();
        assert!(*low() >= *table.key(&keystring::encode_raw(55i64.into()).unwrap()));
        // A view that is older than the low key does not use it.
        let view = fixture.store.view(ReadAt::Newest).unwrap();
        for n in 55..60 {
            secs += 1;
            delete(secs, n);
        }
        assert_eq!(first(ReadAt::Newest), None);
        assert_eq!(*low(), table.end());
        let coll = view.catalog().by_uuid(uuid).unwrap();
        assert_eq!(view.scan(&coll, Unbounded, Direction::Forward).count(), 5);
        secs += 1;
        fixture.put(secs, uuid, rawdoc! { "_id": 3i64 });
        assert_eq!(first(ReadAt::Newest), Some(3));
        assert_eq!(first(ReadAt::Timestamp(ts(2))), Some(0));
        fixture.store.watermarks().set_commit_point(at(2));
        fixture.store.rollback_to(at(2)).unwrap();
        assert_eq!(first(ReadAt::Newest), Some(0));
    }
}

/// Dropped collections count towards the size of history under their former name, and are limited by size if
/// configured.
#[test]
fn dropped_collections_cost_and_are_bounded_by_size_on_demand() {
    for fixture in fixtures() {
        let store = &fixture.store;
        store.set_history_window(Duration::from_secs(9600), Some(60_000), false);
        let (big, other) = (fixture.make(1, "big", &rawdoc! {}), fixture.make(2, "c", &rawdoc! {}));
        for n in 0..50_i32 {
            let secs = u32::try_from(n).unwrap() + 3;
            fixture.put(secs, big, rawdoc! { "_id": n, "text": "x".repeat(1000) });
        }
        let data = store.data_bytes();
        fixture.apply(60, |apply, ts| assert!(apply.drop_collection(ts, big).unwrap()));
        let put = |from: u32, to: u32| {
            for secs in from..to {
                fixture.put(secs, other, rawdoc! { "_id": 1, "n": i64::from(secs) });
            }
            store.watermarks().set_commit_point(at(to - 1));
            store.maintain(bson::DateTime::from_millis(0)).unwrap();
        };
        put(61, 400);
        assert!(store.dropped_bytes() > 50_000 && store.data_bytes() < data);
        let costs = store.history_by_collection();
        let (ns, documents, bytes) = costs.first().unwrap();
        assert_eq!(ns.as_ref().unwrap().coll(), "big");
        assert!(*documents == 50 && *bytes > 50_000, "{costs:?}");
        assert_eq!(fixture.docs(ReadAt::Timestamp(ts(59)), "big", Direction::Forward).len(), 50);
        store.set_history_window(Duration::from_secs(9600), Some(60_000), true);
        put(400, 600);
        put(600, 601);
        assert_eq!(store.dropped_bytes(), 0);
        assert!(store.watermarks().oldest() > ts(60));
        assert!(matches!(
            store.view(ReadAt::Timestamp(ts(59))),
            Err(StorageError::HistoryGone { .. })
        ));
    }
}

/// The rows of a dropped table are removed before the epoch of its last timestamp: no restart may make that timestamp
/// readable again.
#[test]
fn what_was_reclaimed_is_not_readable_after_a_restart() {
    for fixture in fixtures() {
        // Epochs of 100 seconds.
        fixture.store.set_history_window(Duration::from_secs(9600), None, false);
        let (gone, kept) = (fixture.make(1, "c", &rawdoc! {}), fixture.make(2, "d", &rawdoc! {}));
        fixture.put(3, gone, rawdoc! { "_id": 1 });
        fixture.apply(50, |apply, ts| assert!(apply.drop_collection(ts, gone).unwrap()));
        fixture.put(9660, kept, rawdoc! { "_id": 1 });
        fixture.store.watermarks().set_commit_point(at(9660));
        fixture.store.maintain(bson::DateTime::from_millis(0)).unwrap();
        assert_eq!(fixture.store.watermarks().oldest(), ts(60));
        let fixture = fixture.reopen();
        assert_eq!(fixture.store.watermarks().oldest(), ts(60));
    }
}
