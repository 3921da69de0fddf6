//! How long oplog entries are kept.

use super::*;

/// The oplog covers the whole readable history, even if it is larger than its configured size.
#[test]
fn an_oplog_that_follows_history_keeps_every_readable_moment() {
    for engine in [EngineKind::Memory, EngineKind::Fjall] {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions {
            engine,
            cache_bytes: 4 << 20,
            oplog_max_bytes: 1 << 20,
            oplog_history_max_bytes: 1 << 30,
            history_window: Duration::from_secs(300),
            ..StoreOptions::default()
        };
        let store = Store::open(dir.path(), options.clone()).unwrap();
        let fixture = Fixture { store, dir, options };
        let oplog = fixture.store.oplog();
        for secs in 1..=400 {
            oplog.append(&[entry(secs, 1, 10_000)]).unwrap();
        }
        fixture.apply(400, |_, _| {});
        oplog.sync().unwrap();
        fixture.store.watermarks().set_commit_point(at(400));
        let now = bson::DateTime::from_millis(400_000);
        let first = || oplog.first().unwrap().unwrap().get_timestamp("ts").unwrap().time;
        let oldest = || fixture.store.watermarks().oldest().secs();
        for _ in 0..2 {
            fixture.store.maintain(now).unwrap();
        }
        assert_eq!(oldest(), 100);
        assert!((80..=100).contains(&first()), "begins at {}", first());
        // With a smaller history window, more entries are trimmed.
        fixture.store.set_history_window(Duration::from_secs(150), None, false);
        for _ in 0..2 {
            fixture.store.maintain(now).unwrap();
        }
        assert_eq!(oldest(), 250);
        assert!((230..=250).contains(&first()), "begins at {}", first());
        // A history that is too large for the disk does not keep the oplog from being trimmed.
        oplog.state.lock().history_max_bytes = 1_200_000;
        fixture.store.maintain(now).unwrap();
        assert!(first() > 275, "begins at {}", first());
        // A size set by `resize` takes precedence, also after a restart.
        oplog.resize(1 << 20).unwrap();
        fixture.store.maintain(now).unwrap();
        assert!(first() > 280, "begins at {}", first());
    }
}
