//! A damaged, truncated, foreign or unwritable dbpath leads to an error that names the file and the remedy, never to
//! a panic or to wrong data.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;

fn options() -> StoreOptions {
    StoreOptions { cache_bytes: 4 << 20, ..StoreOptions::default() }
}

/// Makes a store with documents in tables, in blobs and in the journal, an index, history and an oplog.
fn make(dir: &Path) -> Vec<RawDocumentBuf> {
    let store = Store::open(dir, options()).unwrap();
    store.begin_initial_sync().unwrap();
    let uuid = Uuid::from_u128(1);
    let mut apply = store.begin_apply();
    apply.create(ts(1), &ns("c"), uuid, &rawdoc! {}, Some(&id_index())).unwrap();
    let spec = rawdoc! { "v": 2, "key": { "n": 1 }, "name": "n_1" };
    apply.create_index(ts(1), uuid, &spec, IndexState::Ready).unwrap();
    apply.commit(at(1)).unwrap();
    let mut rng = StdRng::seed_from_u64(1);
    let mut noise = |len: usize| -> String {
        (0..len).map(|_| char::from(rng.random_range(b'a'..=b'z'))).collect()
    };
    // More than the loader's memory, so that it is ingested as tables on disk.
    let docs: Vec<_> = (0..300)
        .map(|n| {
            let text = noise(if n % 100 == 7 { 100 << 10 } else { 60 << 10 });
            rawdoc! { "_id": n, "n": n % 10, "text": text }
        })
        .collect();
    store.load(uuid, docs.iter().cloned().map(RawDoc::from)).unwrap();
    store.finish_initial_sync(at(2)).unwrap();
    for secs in 3..20u32 {
        store.oplog().append(&[entry(secs, 1, 10)]).unwrap();
    }
    store.oplog().sync().unwrap();
    docs
}

/// Opens the store and reads everything.
fn read_all(dir: &Path) -> Result<Vec<RawDocumentBuf>, StorageError> {
    let store = Store::open(dir, options())?;
    let view = store.view(ReadAt::Newest)?;
    let Some(coll) = view.catalog().collection(&ns("c")) else { return Ok(Vec::new()) };
    let docs: Result<Vec<_>, _> = view
        .scan(&coll, Unbounded, Direction::Forward)
        .map(|item| item.map(|(_, doc)| doc.as_raw().to_owned()))
        .collect();
    let docs = docs?;
    for entry in store.oplog().scan_written(Unbounded, Direction::Forward) {
        entry?;
    }
    store.validate(&coll, true)?;
    if let Some(lost) = store.lost_tail() {
        return Err(StorageError::corrupt("the journal's tail", format!("it lacks {lost}")));
    }
    Ok(docs)
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.metadata().unwrap() {
            meta if meta.is_dir() => out.extend(files(&entry.path())),
            meta if meta.len() > 0 => out.push(entry.path()),
            _ => {}
        }
    }
    out.sort();
    out
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.metadata().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Damage to any file at any byte, or any truncation: the error says what to do, or the data is unchanged.
#[test]
fn a_damaged_or_truncated_file_is_told_and_never_read_as_data() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    let docs = make(&whole);
    assert!(read_all(&whole).unwrap() == docs);
    let seed = std::env::var("SEED").ok().and_then(|n| n.parse().ok());
    let seeds = seed.map_or(0..30, |seed: u64| seed..seed + 1);
    let mut told = 0;
    for seed in seeds {
        let mut rng = StdRng::seed_from_u64(seed);
        let broken = dir.path().join(format!("broken-{seed}"));
        copy(&whole, &broken);
        let files = files(&broken);
        let file = &files[rng.random_range(0..files.len())];
        let mut bytes = fs::read(file).unwrap();
        let at = rng.random_range(0..bytes.len());
        if rng.random() {
            bytes[at] ^= 1 << rng.random_range(0..8);
        } else {
            bytes.truncate(at);
        }
        fs::write(file, bytes).unwrap();
        let what = format!("SEED={seed}: {} at {at}", file.display());
        match read_all(&broken) {
            // A byte that is never read, or a truncated file that is rewritten.
            Ok(found) => assert!(found == docs, "{what}: {} documents", found.len()),
            Err(error) => {
                told += 1;
                let text = error.to_string();
                assert!(error.is_fatal() || text.contains("dbpath"), "{what}: {text}");
                let names = text.contains("broken-") || text.contains("is damaged");
                // Files that the engine's manifests list are named in the error.
                let vouched = ["tables", "blobs"]
                    .iter()
                    .any(|dir| file.parent().is_some_and(|parent| parent.ends_with(dir)));
                let named = text.contains(&file.display().to_string());
                assert!(named || !vouched, "{what}: {text}");
                let way_out = text.contains("sync") || text.contains("dbpath");
                assert!(names && way_out, "{what}: {text}");
            }
        }
        fs::remove_dir_all(&broken).unwrap();
    }
    assert!(seed.is_some() || told > 10, "only {told} were noticed");
}

/// The engine's own errors do not name the file.
#[test]
fn a_damaged_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    make(&whole);
    let largest = |dir: &str| -> PathBuf {
        let inside = |path: &PathBuf| path.parent().is_some_and(|parent| parent.ends_with(dir));
        let files = files(&whole).into_iter().filter(inside);
        files.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap()
    };
    let (table, blob) = (largest("tables"), largest("blobs"));
    let keyspace = table.ancestors().nth(2).unwrap();
    let current = fs::read(keyspace.join("current")).unwrap();
    let number = u64::from_le_bytes(current[..8].try_into().unwrap());
    let manifest = keyspace.join(format!("v{number}"));
    let flip: fn(&Path) = |path| {
        let mut bytes = fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    let cut: fn(&Path) = |path| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    };
    let take: fn(&Path) = |path| fs::remove_file(path).unwrap();
    for (file, damage) in [
        (&table, flip),
        (&table, cut),
        (&blob, flip),
        (&blob, cut),
        (&manifest, cut),
        (&table, take),
    ] {
        let broken = dir.path().join("broken");
        copy(&whole, &broken);
        let file = broken.join(file.strip_prefix(&whole).unwrap());
        damage(&file);
        let text = read_all(&broken).unwrap_err().to_string();
        assert!(text.contains(&file.display().to_string()), "{}: {text}", file.display());
        assert!(text.contains("is damaged") || text.contains("is missing"), "{text}");
        assert!(text.contains("sync from the set"), "{text}");
        fs::remove_dir_all(&broken).unwrap();
    }
}

#[test]
fn a_dbpath_of_another_version_or_kind_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let refusal = |path: &Path| match Store::open(path, options()) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error.to_string(),
    };
    let newer = dir.path().join("newer");
    drop(Store::open(&newer, options()).unwrap());
    fs::write(newer.join("FORMAT"), "understudy 77 fjall\n").unwrap();
    let text = refusal(&newer);
    assert!(text.contains("FORMAT") && text.contains("77") && text.contains("sync anew"), "{text}");

    let engine = dir.path().join("engine-of-tomorrow");
    drop(Store::open(&engine, options()).unwrap());
    fs::write(engine.join("engine/version"), [b'F', b'J', b'L', 9]).unwrap();
    let text = refusal(&engine);
    assert!(text.contains("engine-of-tomorrow") && text.contains("empty"), "{text}");

    let file = dir.path().join("a-file");
    fs::write(&file, "not a directory").unwrap();
    assert!(refusal(&file).contains("a-file"));
}

#[test]
fn a_refusing_disk_is_answered_with_the_way_out() {
    use std::io::{Error, ErrorKind};
    let text = |kind| StorageError::io("/data/engine")(Error::from(kind)).to_string();
    let full = text(ErrorKind::StorageFull);
    assert!(full.contains("/data/engine") && full.contains("make room"), "{full}");
    let read_only = text(ErrorKind::ReadOnlyFilesystem);
    assert!(read_only.contains("/data/engine") && read_only.contains("--dbpath"), "{read_only}");
    assert!(text(ErrorKind::PermissionDenied).contains("--dbpath"));
}

/// Uses Linux's own files: a file system that allows no directory, and a device that is always full.
#[test]
#[cfg(target_os = "linux")]
fn a_dbpath_that_cannot_be_written_is_told_at_once() {
    let refusal = |path: &Path| match Store::open(path, options()) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error.to_string(),
    };
    let text = refusal(Path::new("/sys/understudy"));
    assert!(text.contains("/sys/understudy") && text.contains("--dbpath"), "{text}");

    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", dir.path().join("FORMAT.new")).unwrap();
    let text = refusal(dir.path());
    assert!(text.contains("FORMAT") && text.contains("make room"), "{text}");
}

/// The oplog's order is the primary's, not the clock's; upkeep with an earlier time does nothing.
#[test]
fn a_clock_that_goes_back_changes_nothing() {
    for fixture in fixtures() {
        let oplog = fixture.store.oplog();
        let big: Vec<_> = (1..200).map(|secs| entry(secs, 1, 10_000)).collect();
        oplog.append(&big).unwrap();
        oplog.sync().unwrap();
        let uuid = fixture.make(1, "c", &rawdoc! {});
        for secs in 2..100 {
            fixture.put(secs, uuid, rawdoc! { "_id": 1, "n": i64::from(secs) });
        }
        let count = oplog.count();
        for millis in [1_000_000, 10_000, 0, -5_000] {
            fixture.store.maintain(bson::DateTime::from_millis(millis)).unwrap();
        }
        assert_eq!(oplog.count(), count);
        assert!(matches!(oplog.append(&[entry(150, 1, 0)]), Err(StorageError::OutOfOrder { .. })));
        oplog.append(&[entry(201, 1, 0)]).unwrap();
        let found = fixture.docs(ReadAt::Timestamp(ts(50)), "c", Direction::Forward);
        assert_eq!(found, [rawdoc! { "_id": 1, "n": 50i64 }]);
    }
}
