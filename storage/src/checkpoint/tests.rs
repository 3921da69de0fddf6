//! Backups of a store while it is being written to.

use std::{os::unix::fs::MetadataExt, sync::atomic::AtomicBool, sync::atomic::Ordering};

use bson::rawdoc;
use protocol::{Namespace, OpTimeAndWall, Timestamp};
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::{ReadAt, StoreOptions, verify_backup};

const COLL: Uuid = Uuid::from_u128(5);

struct Fixture {
    store: Store,
    dir: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let fixture = Self::empty();
        create(&fixture.store);
        fixture
    }

    fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir.path().join("db"));
        Self { store, dir }
    }

    /// Sets the value of all twenty documents to `secs`.
    fn put(&self, secs: u32) {
        put(&self.store, secs);
    }

    fn backup(&self, name: &str, since: Option<&str>) -> Result<CheckpointReport, BackupError> {
        let since = since.map(|since| self.dir.path().join(since));
        let into = self.dir.path().join(name);
        let set_name = "rs".to_owned();
        let wanted = Checkpoint { into, since, set_name, ..Checkpoint::default() };
        self.store.checkpoint(&wanted, &|| true)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn problems(&self, name: &str) -> Vec<String> {
        verify_backup(&self.path(name), &mut |_| {}).unwrap().problems
    }
}

fn create(store: &Store) {
    let mut apply = store.begin_apply();
    let ns = Namespace::parse("d.c").unwrap();
    let id = rawdoc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" };
    apply.create(ts(1), &ns, COLL, &rawdoc! {}, Some(&id)).unwrap();
    apply.commit(at(1)).unwrap();
}

fn put(store: &Store, secs: u32) {
    let mut apply = store.begin_apply();
    let coll = apply.collection(COLL).unwrap();
    for id in 0..20 {
        apply.put(ts(secs), &coll, rawdoc! { "_id": id, "v": i64::from(secs) }).unwrap();
    }
    // Larger than the threshold for blob files.
    apply.put(ts(secs), &coll, rawdoc! { "_id": 99, "v": "x".repeat(100 << 10) }).unwrap();
    apply.commit(at(secs)).unwrap();
}

fn open(path: &Path) -> Store {
    Store::open(path, StoreOptions::default()).unwrap()
}

fn ts(secs: u32) -> Timestamp {
    Timestamp::new(secs, 1)
}

fn at(secs: u32) -> OpTimeAndWall {
    OpTimeAndWall { op_time: OpTime::new(ts(secs), 1), wall: bson::DateTime::from_millis(0) }
}

/// The value of all documents at `at`. Panics if they differ.
fn value(store: &Store, at: ReadAt) -> i64 {
    let view = store.view(at).unwrap();
    let coll = view.catalog().by_uuid(COLL).unwrap();
    let get = |id: i32| view.get(&coll, id.into()).unwrap().unwrap().get_i64("v").unwrap();
    assert!((1..20).all(|id| get(id) == get(0)), "half a batch");
    assert_eq!(view.count(&coll).unwrap(), 21);
    get(0)
}

#[test]
fn a_backup_is_a_store_of_its_moment_with_its_past() {
    let fixture = Fixture::new();
    for secs in 2..6 {
        fixture.put(secs);
    }
    let report = fixture.backup("b", None).unwrap();
    assert_eq!((report.manifest.optime.ts, report.linked_files), (ts(5), 0));
    assert_eq!(report.manifest, Manifest::read(&fixture.path("b")).unwrap());
    fixture.put(6);
    assert_eq!(fixture.problems("b"), [""; 0]);
    let copy = open(&fixture.path("b"));
    assert_eq!(value(&copy, ReadAt::Newest), 5);
    assert_eq!(value(&copy, ReadAt::Timestamp(ts(3))), 3);
    // The store that started from the backup works like any other, and its directory is no longer a backup.
    put(&copy, 7);
    drop(copy);
    assert_eq!(value(&open(&fixture.path("b")), ReadAt::Newest), 7);
    assert_eq!(value(&fixture.store, ReadAt::Newest), 6);
    let error = verify_backup(&fixture.path("b"), &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("a node was started in it"), "{error}");
}

#[test]
fn writers_go_on_and_no_batch_is_halved() {
    let fixture = Fixture::new();
    fixture.put(2);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for secs in 3.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                fixture.put(secs);
            }
        });
        for n in 0..4 {
            let since = (n > 0).then(|| format!("b{}", n - 1));
            let report = fixture.backup(&format!("b{n}"), since.as_deref()).unwrap();
            assert_eq!(report.damaged_since, [""; 0]);
        }
        done.store(true, Ordering::Relaxed);
    });
    for n in 0..4 {
        let name = format!("b{n}");
        assert_eq!(fixture.problems(&name), [""; 0]);
        let optime = Manifest::read(&fixture.path(&name)).unwrap().optime;
        let copy = open(&fixture.path(&name));
        assert_eq!(value(&copy, ReadAt::Newest), i64::from(optime.ts.secs()), "{name}");
        put(&copy, 1_000_000);
    }
}

#[test]
fn the_next_backup_shares_what_has_not_changed() {
    let fixture = Fixture::new();
    fixture.put(2);
    fixture.backup("full", None).unwrap();
    let report = fixture.backup("same", Some("full")).unwrap();
    assert!(report.linked_files > 0, "{report:?}");
    let linked = |entry: &&FileEntry| entry.engine_sum.is_some();
    for file in report.manifest.files.iter().filter(linked) {
        let inode = |name| std::fs::metadata(fixture.path(name).join(&file.path)).unwrap().ino();
        assert_eq!(inode("full"), inode("same"), "{}", file.path);
    }
    // Writes of a node that was started from one backup do not change the other.
    let copy = open(&fixture.path("same"));
    put(&copy, 3);
    drop(copy);
    assert_eq!(fixture.problems("full"), [""; 0]);
    // A damaged file of the earlier backup is not linked to.
    let file = report.manifest.files.iter().find(linked).unwrap();
    flip(&fixture.path("full").join(&file.path));
    let report = fixture.backup("third", Some("full")).unwrap();
    assert_eq!(report.damaged_since, std::slice::from_ref(&file.path));
    assert_eq!(fixture.problems("third"), [""; 0]);
    assert_eq!(fixture.problems("full").len(), 1);
}

#[test]
fn links_to_the_store_itself_stay_when_it_goes_on() {
    let fixture = Fixture::new();
    fixture.put(2);
    let wanted = Checkpoint { into: fixture.path("b"), link: true, ..Checkpoint::default() };
    let report = fixture.store.checkpoint(&wanted, &|| true).unwrap();
    assert!(report.linked_files > 0);
    for secs in 3..8 {
        fixture.put(secs);
    }
    fixture.store.0.engine.freeze().unwrap();
    assert_eq!(fixture.problems("b"), [""; 0]);
    assert_eq!(value(&open(&fixture.path("b")), ReadAt::Newest), 2);
    assert_eq!(value(&fixture.store, ReadAt::Newest), 7);
}

#[test]
fn every_damage_is_found() {
    let fixture = Fixture::new();
    fixture.put(2);
    let report = fixture.backup("b", None).unwrap();
    for file in report.manifest.files.iter().filter(|file| file.bytes > 0) {
        let path = fixture.path("b").join(&file.path);
        flip(&path);
        assert_eq!(fixture.problems("b").len(), 1, "{}", file.path);
        flip(&path);
        let short = std::fs::read(&path).unwrap();
        std::fs::write(&path, short.get(1..).unwrap()).unwrap();
        assert_eq!(fixture.problems("b").len(), 1, "{}", file.path);
        let refused = Store::open(&fixture.path("b"), StoreOptions::default());
        assert!(refused.is_err(), "{}", file.path);
        std::fs::write(&path, short).unwrap();
    }
    assert_eq!(fixture.problems("b"), [""; 0]);
    std::fs::write(fixture.path("b").join("stray"), "").unwrap();
    assert_eq!(fixture.problems("b"), ["stray is not part of it"]);
    std::fs::remove_file(fixture.path("b").join("stray")).unwrap();
    let manifest = fixture.path("b").join(manifest::NAME);
    let text = std::fs::read(&manifest).unwrap();
    for at in (0..text.len()).step_by(97) {
        let mut bad = text.clone();
        bad[at] ^= 1;
        std::fs::write(&manifest, bad).unwrap();
        assert!(verify_backup(&fixture.path("b"), &mut |_| {}).is_err(), "byte {at}");
    }
    std::fs::write(&manifest, text.get(..text.len() / 2).unwrap()).unwrap();
    assert!(verify_backup(&fixture.path("b"), &mut |_| {}).is_err());
}

#[test]
fn what_is_rotten_is_not_backed_up() {
    let fixture = Fixture::new();
    fixture.put(2);
    let whole = fixture.backup("whole", None).unwrap();
    let rotten = whole.manifest.files.iter().filter(|file| file.engine_sum.is_some());
    for file in rotten {
        let path = fixture.path("db").join(&file.path);
        flip(&path);
        for link in [false, true] {
            let wanted = Checkpoint { into: fixture.path("b"), link, ..Checkpoint::default() };
            let error = fixture.store.checkpoint(&wanted, &|| true).unwrap_err().to_string();
            assert!(error.contains(&file.path) && error.contains("is damaged"), "{error}");
            assert!(!fixture.path("b").exists() && !fixture.path("b.unfinished").exists());
        }
        flip(&path);
    }
    fixture.store.put_vote(&bson::rawdoc! { "term": 1i64 }).unwrap();
    flip(&fixture.path("db").join("vote"));
    let error = fixture.backup("b", None).unwrap_err().to_string();
    assert!(error.contains("vote") && error.contains("is damaged"), "{error}");
}

#[test]
fn a_backup_that_was_made_of_a_rotten_file_is_not_called_whole() {
    let fixture = Fixture::new();
    fixture.put(2);
    let mut manifest = fixture.backup("b", None).unwrap().manifest;
    // This is how a program that does not compare the engine's checksum would have made the backup.
    let file = manifest.files.iter_mut().find(|file| file.engine_sum.is_some()).unwrap();
    let path = fixture.path("b").join(&file.path);
    flip(&path);
    file.sha256 = files::sums(&path, &|| true).unwrap().sha256;
    let name = file.path.clone();
    std::fs::write(fixture.path("b").join(manifest::NAME), manifest.to_text()).unwrap();
    assert_eq!(fixture.problems("b"), [format!("{name} was damaged when it was backed up")]);
    // The next backup does not link to the damaged file either.
    let report = fixture.backup("next", Some("b")).unwrap();
    assert_eq!(report.damaged_since, [name]);
    assert_eq!(fixture.problems("next"), [""; 0]);
}

#[test]
fn backups_stay_below_their_root_and_are_of_something() {
    let fixture = Fixture::new();
    let root = fixture.path("backups");
    std::fs::create_dir(&root).unwrap();
    let take = |into: PathBuf, since: Option<PathBuf>| {
        let root = Some(root.clone());
        let wanted = Checkpoint { into, since, root, ..Checkpoint::default() };
        fixture.store.checkpoint(&wanted, &|| true).map_err(|error| error.to_string())
    };
    let empty = Fixture::empty();
    let error = empty.backup("b", None).unwrap_err();
    assert!(matches!(error, BackupError::NoData), "{error}");
    fixture.put(2);
    std::os::unix::fs::symlink(fixture.path("elsewhere"), root.join("link")).unwrap();
    std::fs::create_dir(fixture.path("elsewhere")).unwrap();
    for outside in ["b", "backups/../b", "backups/x/../../b", "backups/link/b", "backups"] {
        let error = take(fixture.path(outside), None).unwrap_err();
        assert!(error.contains("--backupRoot"), "{outside}: {error}");
    }
    take(root.join("one"), None).unwrap();
    take(root.join("deep/er/two"), Some(root.join("one"))).unwrap();
    fixture.backup("full", None).unwrap();
    let error = take(root.join("three"), Some(fixture.path("full"))).unwrap_err();
    assert!(error.contains("--backupRoot"), "{error}");
}

#[test]
fn a_store_that_was_named_from_where_the_process_stands_is_backed_up() {
    let dir = tempfile::tempdir().unwrap();
    let up: PathBuf = std::env::current_dir().unwrap().components().skip(1).map(|_| "..").collect();
    let dbpath = up.join(dir.path().strip_prefix("/").unwrap()).join("db");
    assert!(dbpath.is_relative());
    let store = open(&dbpath);
    create(&store);
    put(&store, 2);
    let wanted = Checkpoint { into: dir.path().join("b"), ..Checkpoint::default() };
    store.checkpoint(&wanted, &|| true).unwrap();
}

#[test]
fn what_is_refused_leaves_nothing_behind() {
    let fixture = Fixture::new();
    fixture.put(2);
    let refused = |wanted: &Checkpoint| {
        let error = fixture.store.checkpoint(wanted, &|| true).unwrap_err().to_string();
        assert!(!fixture.path("b.unfinished").exists(), "{error}");
        error
    };
    let into = |path: PathBuf| Checkpoint { into: path, ..Checkpoint::default() };
    assert!(refused(&into("b".into())).contains("absolute"));
    assert!(refused(&into(fixture.path("db"))).contains("within each other"));
    assert!(refused(&into(fixture.path("db/b"))).contains("within each other"));
    assert!(refused(&into(fixture.path("db/../db/y"))).contains("within each other"));
    assert!(refused(&into(fixture.dir.path().into())).contains("within each other"));
    std::fs::create_dir(fixture.path("b")).unwrap();
    std::fs::write(fixture.path("b").join("mine"), "").unwrap();
    assert!(refused(&into(fixture.path("b"))).contains("not empty"));
    std::fs::remove_dir_all(fixture.path("b")).unwrap();
    let since = |name| Checkpoint { since: Some(fixture.path(name)), ..into(fixture.path("b")) };
    assert!(refused(&since("nothing")).contains("not a directory"));
    assert!(refused(&since("db")).contains("a node was started in it"));
    let cancelled = fixture.store.checkpoint(&into(fixture.path("b")), &|| false).unwrap_err();
    assert!(matches!(cancelled, BackupError::Cancelled));
    assert!(!fixture.path("b").exists() && !fixture.path("b.unfinished").exists());
}

#[test]
fn what_an_interrupted_backup_left_is_cleared_and_nothing_else() {
    let fixture = Fixture::new();
    fixture.put(2);
    let left = fixture.path("b.unfinished");
    std::fs::create_dir_all(left.join("engine")).unwrap();
    std::fs::write(left.join("mine"), "").unwrap();
    let error = fixture.backup("b", None).unwrap_err();
    assert!(matches!(error, BackupError::InTheWay(_)), "{error}");
    assert!(left.join("mine").exists());
    std::fs::write(left.join(files::UNFINISHED), "").unwrap();
    let error = verify_backup(&left, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("never finished"), "{error}");
    let error = Store::open(&left, StoreOptions::default()).err().unwrap().to_string();
    assert!(error.contains("never finished"), "{error}");
    let held = node_files::Lock::take(&left).unwrap();
    let error = fixture.backup("b", None).unwrap_err();
    assert!(matches!(error, BackupError::Busy(_)), "{error}");
    drop(held);
    assert!(fixture.backup("b", None).unwrap().cleared);
    assert!(!left.exists());
    assert_eq!(fixture.problems("b"), [""; 0]);
}

fn flip(path: &Path) {
    // Hard links share their content. A new file ensures that only this name changes.
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::remove_file(path).unwrap();
    std::fs::write(path, bytes).unwrap();
}
