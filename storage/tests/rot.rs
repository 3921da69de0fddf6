//! Damages every kind of file of a store: the start refuses, or a read reports it, or nothing is lost. Damage is
//! never silent and never causes a panic, and a refused start leaves all files unchanged.
//!
//! `SEED=n` repeats a run, `ROT_TRIALS=n` sets the number of random damages.

#![allow(clippy::unwrap_used, reason = "a test: whatever fails ends it")]

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound::{Excluded, Unbounded},
    os::unix::fs::MetadataExt,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use protocol::{Namespace, OpTime, OpTimeAndWall, RawDoc, Timestamp};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use storage::{Checkpoint, Direction, IndexState, ReadAt, StorageError, Store, StoreOptions};
use tempfile::TempDir;
use uuid::Uuid;

const COLL: Uuid = Uuid::from_u128(7);
const LARGE: usize = 100_000;

fn open(dir: &Path) -> Result<Store, StorageError> {
    let options = StoreOptions { cache_bytes: 2 << 20, ..StoreOptions::default() };
    Store::open(dir, options)
}

fn position(entry: &RawDocument) -> OpTimeAndWall {
    OpTimeAndWall {
        op_time: OpTime::from_raw(entry).unwrap(),
        wall: entry.get_datetime("wall").unwrap(),
    }
}

fn entry(secs: u32, op: &str, o: RawDocumentBuf) -> RawDoc {
    rawdoc! {
        "op": op,
        "ts": bson::Timestamp { time: secs, increment: 1 },
        "t": 1i64,
        "wall": bson::DateTime::from_millis(i64::from(secs) * 1000),
        "o": o,
    }
    .into()
}

/// A random put or, sometimes, removal; `large` percent of the documents are large.
fn random_entry(rng: &mut StdRng, secs: u32, large: u32) -> RawDoc {
    if secs == 1 {
        return entry(secs, "create", rawdoc! {});
    }
    let id = rng.random_range(0..200);
    if rng.random_range(0..8) == 0 {
        return entry(secs, "d", rawdoc! { "_id": id });
    }
    let len = if rng.random_range(0..100) < large { LARGE } else { rng.random_range(0..600) };
    let pad: Vec<u8> =
        (0..len.div_ceil(8)).flat_map(|_| rng.random::<u64>().to_le_bytes()).collect();
    let pad = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: pad };
    let a = rng.random_range(0..50);
    entry(secs, "i", rawdoc! { "_id": id, "a": [a, a + 1], "pad": pad })
}

/// Applies the oplog entries after `applied`.
fn replay(store: &Store) -> Result<(), StorageError> {
    loop {
        let applied = store.watermarks().applied().op_time.ts;
        let entries = store
            .oplog()
            .scan_written(Excluded(applied), Direction::Forward)
            .take(20)
            .map(|item| Ok(item?.1))
            .collect::<Result<Vec<RawDoc>, StorageError>>()?;
        let Some(last) = entries.last() else { return Ok(()) };
        let mut apply = store.begin_apply();
        for entry in &entries {
            let ts: Timestamp = entry.get_timestamp("ts").unwrap().into();
            let doc = entry.get_document("o").unwrap();
            match entry.get_str("op").unwrap() {
                "create" => {
                    apply.create(ts, &Namespace::new("test", "c"), COLL, &rawdoc! {}, None)?;
                    let spec = rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1" };
                    apply.create_index(ts, COLL, &spec, IndexState::Ready)?;
                }
                op => {
                    let Some(coll) = apply.collection(COLL) else {
                        panic!("the collection is gone without a word");
                    };
                    match op {
                        "i" => drop(apply.put(ts, &coll, doc)?),
                        _ => drop(apply.delete(ts, &coll, doc.get("_id").unwrap().unwrap())?),
                    }
                }
            }
        }
        apply.commit(position(last))?;
    }
}

fn go_on(store: &Store, rng: &mut StdRng, entries: u32, large: u32) {
    let mut secs = store.watermarks().written().op_time.ts.secs();
    let end = secs + entries;
    while secs < end {
        let batch: Vec<RawDoc> = (0..rng.random_range(1..10u32).min(end - secs))
            .map(|_| {
                secs += 1;
                random_entry(rng, secs, large)
            })
            .collect();
        store.oplog().append(&batch).unwrap();
        store.oplog().sync().unwrap();
        replay(store).unwrap();
        store.watermarks().set_commit_point(store.watermarks().applied());
    }
    store.oplog().sync().unwrap();
    store.maintain(bson::DateTime::from_millis(0)).unwrap();
}

/// A closed store or a backup, and its original content.
struct Fixture {
    dir: TempDir,
    db: PathBuf,
    entries: Vec<RawDoc>,
    vote: RawDoc,
}

impl Fixture {
    fn path(&self) -> PathBuf {
        self.db.clone()
    }

    fn finish(store: Store, dir: TempDir) -> Self {
        let (entries, vote) = held(&store);
        drop(store);
        Self { db: dir.path().join("db"), dir, entries, vote }
    }

    /// A backup, and an earlier backup of the same store.
    fn backup() -> &'static (Self, PathBuf) {
        static MADE: OnceLock<(Fixture, PathBuf)> = OnceLock::new();
        MADE.get_or_init(|| {
            let dir = tempfile::tempdir().unwrap();
            let mut rng = StdRng::seed_from_u64(5);
            let store = open(&dir.path().join("store")).unwrap();
            let (earlier, db) = (dir.path().join("earlier"), dir.path().join("db"));
            for (term, into) in [(2i64, &earlier), (3, &db)] {
                store.put_vote(&rawdoc! { "term": term, "candidateIndex": 0i64 }).unwrap();
                go_on(&store, &mut rng, 90, 10);
                let wanted = Checkpoint { into: into.clone(), ..Checkpoint::default() };
                store.checkpoint(&wanted, &|| true).unwrap();
            }
            let (entries, vote) = held(&store);
            (Self { dir, db, entries, vote }, earlier)
        })
    }

    /// A store large enough that a journal was sealed.
    fn sealed() -> &'static Self {
        static MADE: OnceLock<Fixture> = OnceLock::new();
        MADE.get_or_init(|| {
            let dir = tempfile::tempdir().unwrap();
            let mut rng = StdRng::seed_from_u64(1);
            let store = open(&dir.path().join("db")).unwrap();
            store.put_vote(&rawdoc! { "term": 3i64, "candidateIndex": 1i64 }).unwrap();
            go_on(&store, &mut rng, 100, 0);
            while journals(&dir.path().join("db")).len() < 2 {
                go_on(&store, &mut rng, 60, 90);
            }
            go_on(&store, &mut rng, 300, 5);
            Self::finish(store, dir)
        })
    }

    /// A small store: tables and blob files of several flushes, one journal. Also an earlier copy of it.
    fn small() -> &'static (Self, PathBuf) {
        static MADE: OnceLock<(Fixture, PathBuf)> = OnceLock::new();
        MADE.get_or_init(|| {
            let dir = tempfile::tempdir().unwrap();
            let db = dir.path().join("db");
            let mut rng = StdRng::seed_from_u64(2);
            let store = open(&db).unwrap();
            store.put_vote(&rawdoc! { "term": 2i64, "candidateIndex": 0i64 }).unwrap();
            for round in 0..3 {
                go_on(&store, &mut rng, 60, 10);
                // A backup flushes all memtables to tables.
                let into = dir.path().join(format!("backup{round}"));
                store.checkpoint(&Checkpoint { into, ..Checkpoint::default() }, &|| true).unwrap();
            }
            drop(store);
            let earlier = dir.path().join("earlier");
            copy(&db, &earlier);
            let store = open(&db).unwrap();
            store.put_vote(&rawdoc! { "term": 3i64, "candidateIndex": 1i64 }).unwrap();
            go_on(&store, &mut rng, 60, 10);
            let into = dir.path().join("backup3");
            store.checkpoint(&Checkpoint { into, ..Checkpoint::default() }, &|| true).unwrap();
            go_on(&store, &mut rng, 40, 10);
            (Self::finish(store, dir), earlier)
        })
    }

    /// Damages the files of a store while it is open, reads everything, then starts again.
    fn outcome_while_it_runs(
        &self,
        db: &Path,
        damage: impl FnOnce() -> String,
    ) -> (String, Outcome) {
        let store = open(db).unwrap();
        let what = damage();
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
            store.maintain(bson::DateTime::from_millis(0))?;
            let outcome = self.read_all(&store)?;
            assert!(store.damage().is_none(), "damage is known although no read reported it");
            Ok::<_, StorageError>(outcome)
        }));
        let outcome = match result {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => Outcome::ToldByARead(error.to_string()),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                Outcome::Silent(format!("a panic: {text:?}"))
            }
        };
        drop(store);
        match outcome {
            Outcome::Harmless => (what, self.outcome(db)),
            outcome => (what, outcome),
        }
    }

    /// The documents that result from the entries up to `upto`.
    fn documents(&self, upto: Timestamp) -> Vec<RawDocumentBuf> {
        let mut docs = BTreeMap::new();
        for entry in &self.entries {
            if Timestamp::from(entry.get_timestamp("ts").unwrap()) > upto {
                break;
            }
            let o = entry.get_document("o").unwrap();
            match entry.get_str("op").unwrap() {
                "i" => drop(docs.insert(o.get_i32("_id").unwrap(), o.to_owned())),
                "d" => drop(docs.remove(&o.get_i32("_id").unwrap())),
                _ => {}
            }
        }
        docs.into_values().collect()
    }

    /// Starts in a damaged copy and classifies the result.
    fn outcome(&self, db: &Path) -> Outcome {
        let before = needed(db);
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let store = match open(db) {
                Ok(store) => store,
                Err(error) => return Outcome::Refused(error.to_string()),
            };
            match self.read_all(&store) {
                Ok(outcome) => outcome,
                Err(error) => Outcome::ToldByARead(error.to_string()),
            }
        }));
        match result {
            Ok(Outcome::Refused(error)) => {
                let after = listing(db);
                // A backup whose files belong together becomes a dbpath before its rows are read.
                let taken =
                    |name: &str| name == "MANIFEST" && !error.contains("nothing was changed");
                let gone = before.keys().filter(|name| !after.contains_key(*name) && !taken(name));
                let gone: Vec<_> = gone.collect();
                assert!(gone.is_empty(), "a refused start removed {gone:?}: {error}");
                Outcome::Refused(error)
            }
            Ok(outcome) => outcome,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|t| (*t).to_owned()));
                Outcome::Silent(format!("a panic: {text:?}"))
            }
        }
    }

    fn read_all(&self, store: &Store) -> Result<Outcome, StorageError> {
        let entries = store
            .oplog()
            .scan_written(Unbounded, Direction::Forward)
            .map(|item| Ok(item?.1))
            .collect::<Result<Vec<RawDoc>, StorageError>>()?;
        if self.entries.get(..entries.len()) != Some(entries.as_slice()) {
            return Ok(Outcome::Silent("the oplog is not the beginning of what it was".to_owned()));
        }
        replay(store)?;
        let lost = store.lost_tail();
        if entries.len() < self.entries.len() && lost.is_none() {
            let (is, was) = (entries.len(), self.entries.len());
            return Ok(Outcome::Silent(format!("{is} of {was} entries")));
        }
        let view = store.view(ReadAt::Newest)?;
        let Some(coll) = view.catalog().by_uuid(COLL) else {
            return Ok(Outcome::Silent("the collection is gone".to_owned()));
        };
        let middle = Timestamp::new(view.ts().secs() / 2, 1);
        for (at, ts) in [(ReadAt::Newest, view.ts()), (ReadAt::Timestamp(middle), middle)] {
            let view = store.view(at)?;
            let got = view
                .scan(&coll, Unbounded, Direction::Forward)
                .map(|item| Ok(item?.1.as_raw().to_owned()))
                .collect::<Result<Vec<_>, StorageError>>()?;
            if got != self.documents(ts) {
                return Ok(Outcome::Silent(format!("other documents at {ts}, lost {lost:?}")));
            }
        }
        let report = store.validate(&coll, true)?;
        if !report.valid() {
            return Ok(Outcome::Silent(format!("{report:?}")));
        }
        if store.vote()?.as_ref() != Some(&self.vote) {
            return Ok(Outcome::Silent("another vote".to_owned()));
        }
        Ok(if lost.is_some() { Outcome::Known } else { Outcome::Harmless })
    }
}

/// The oplog and the vote.
fn held(store: &Store) -> (Vec<RawDoc>, RawDoc) {
    let entries = store.oplog().scan_written(Unbounded, Direction::Forward);
    (entries.map(|item| item.unwrap().1).collect(), store.vote().unwrap().unwrap())
}

#[derive(Debug)]
enum Outcome {
    /// The start reports the damage.
    Refused(String),
    /// A read reports the damage.
    ToldByARead(String),
    /// The store knows that it lost its tail; the rest is right.
    Known,
    /// All data is there.
    Harmless,
    /// Only a scrub of all files finds the damage.
    FoundByAScrub,
    /// Something is wrong and nothing reported it.
    Silent(String),
}

/// Copies a store; tables and blob files, which are immutable, by hard links.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else if from.ends_with("tables") || from.ends_with("blobs") {
            std::fs::hard_link(entry.path(), target).unwrap();
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// All files below a directory with their sizes, by relative path.
fn listing(dir: &Path) -> BTreeMap<String, u64> {
    fn walk(root: &Path, dir: &Path, found: &mut BTreeMap<String, u64>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(root, &path, found);
            } else {
                let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
                found.insert(name, path.metadata().unwrap().len());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(dir, dir, &mut found);
    found
}

/// All files except obsolete manifests, which the engine removes at any time.
fn needed(db: &Path) -> BTreeMap<String, u64> {
    let named = |name: &str| {
        let Some((folder, version)) = name.rsplit_once("/v") else { return true };
        let Ok(version) = version.parse::<u64>() else { return true };
        let current = std::fs::read(db.join(folder).join("current")).unwrap_or_default();
        current.first_chunk().is_none_or(|number| u64::from_le_bytes(*number) == version)
    };
    listing(db).into_iter().filter(|(name, _)| named(name)).collect()
}

fn journals(db: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(db.join("engine"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jnl"))
        .collect();
    found.sort_by_key(|path| path.file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap());
    found
}

/// Position after the last nonzero byte.
fn end_of(path: &Path) -> usize {
    let bytes = std::fs::read(path).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1)
}

/// Replaces a file with changed content. Hard-linked copies stay unchanged.
fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    if std::fs::metadata(path).unwrap().nlink() > 1 {
        std::fs::remove_file(path).unwrap();
    }
    std::fs::write(path, bytes).unwrap();
}

fn flip(path: &Path, at: usize, bit: u32) {
    change(path, |bytes| *bytes.get_mut(at).unwrap() ^= 1 << bit);
}

fn damaged_copy(fixture: &Fixture) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir_in(fixture.dir.path()).unwrap();
    let db = dir.path().join("copy");
    copy(&fixture.path(), &db);
    (dir, db)
}

/// A copy without hard links, so that its files can be changed while a store has them open.
fn own_copy(fixture: &Fixture) -> (TempDir, PathBuf) {
    let (dir, db) = damaged_copy(fixture);
    for name in listing(&db).keys() {
        let path = db.join(name);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, bytes).unwrap();
    }
    (dir, db)
}

fn refused(outcome: Outcome, name: &str) {
    let Outcome::Refused(text) = &outcome else { panic!("{outcome:?}") };
    assert!(text.contains(name), "{text}");
    assert!(text.contains("restore a backup") && text.contains("sync"), "{text}");
}

#[test]
fn a_store_that_is_whole_opens_with_all_of_it() {
    for fixture in [Fixture::sealed(), &Fixture::small().0] {
        let (_dir, db) = damaged_copy(fixture);
        for _ in 0..2 {
            let outcome = fixture.outcome(&db);
            assert!(matches!(outcome, Outcome::Harmless), "{outcome:?}");
        }
    }
}

#[test]
fn any_flipped_bit_of_a_sealed_journal_refuses_the_start() {
    let fixture = Fixture::sealed();
    let mut rng = StdRng::seed_from_u64(3);
    let sealed = journals(&fixture.path()).first().unwrap().clone();
    let end = end_of(&sealed);
    for round in 0..8 {
        let (_dir, db) = damaged_copy(fixture);
        let path = journals(&db).first().unwrap().clone();
        // The first byte is a batch's tag, which no checksum covers.
        let at = if round == 0 { 0 } else { rng.random_range(0..end) };
        flip(&path, at, rng.random_range(0..8));
        let outcome = fixture.outcome(&db);
        let harmless = matches!(outcome, Outcome::Harmless);
        // A batch's sequence number has no checksum either: if it still ascends, nothing changes.
        assert!(harmless || matches!(outcome, Outcome::Refused(_)), "byte {at}: {outcome:?}");
        if round == 0 {
            refused(outcome, path.file_name().unwrap().to_str().unwrap());
        }
    }
}

#[test]
fn a_sealed_journal_that_was_cut_swapped_or_lost_refuses_the_start() {
    let fixture = Fixture::sealed();
    let end = end_of(journals(&fixture.path()).first().unwrap());
    for len in [0, 1000, end / 2, end - 1, 64_500_000.min(end - 1)] {
        let (_dir, db) = damaged_copy(fixture);
        let path = journals(&db).first().unwrap().clone();
        change(&path, |bytes| bytes.truncate(len));
        refused(fixture.outcome(&db), ".jnl");
    }
    let (_dir, db) = damaged_copy(fixture);
    let paths = journals(&db);
    let first = paths.first().unwrap();
    std::fs::rename(first, db.join("aside")).unwrap();
    refused(fixture.outcome(&db), first.file_name().unwrap().to_str().unwrap());
    std::fs::rename(db.join("aside"), first).unwrap();
    let last = paths.last().unwrap();
    std::fs::rename(last, db.join("aside")).unwrap();
    refused(fixture.outcome(&db), last.file_name().unwrap().to_str().unwrap());
    std::fs::rename(first, last).unwrap();
    std::fs::rename(db.join("aside"), first).unwrap();
    refused(fixture.outcome(&db), ".jnl");
}

#[test]
fn the_journal_that_is_written_is_refused_or_known_to_be_short_wherever_it_is_cut() {
    for fixture in [Fixture::sealed(), &Fixture::small().0] {
        let end = end_of(journals(&fixture.path()).last().unwrap());
        for percent in [0, 3, 30, 55, 80, 99] {
            let (_dir, db) = damaged_copy(fixture);
            let path = journals(&db).last().unwrap().clone();
            change(&path, |bytes| bytes.truncate(end * percent / 100));
            let outcome = fixture.outcome(&db);
            let told = matches!(outcome, Outcome::Refused(_) | Outcome::Known);
            assert!(told, "cut at {percent}%: {outcome:?}");
        }
    }
}

#[test]
fn a_flipped_bit_before_the_end_of_the_journal_that_is_written_refuses_the_start() {
    let mut rng = StdRng::seed_from_u64(4);
    for fixture in [Fixture::sealed(), &Fixture::small().0] {
        let end = end_of(journals(&fixture.path()).last().unwrap());
        for _ in 0..6 {
            let (_dir, db) = damaged_copy(fixture);
            let path = journals(&db).last().unwrap().clone();
            flip(&path, rng.random_range(0..end * 9 / 10), rng.random_range(0..8));
            let outcome = fixture.outcome(&db);
            assert!(matches!(outcome, Outcome::Refused(_) | Outcome::Harmless), "{outcome:?}");
        }
    }
}

#[test]
fn a_missing_file_refuses_the_start_and_costs_no_other() {
    let fixture = &Fixture::small().0;
    let optional = ["understudy.lock", "journals.mark"];
    for name in needed(&fixture.path()).keys() {
        let (_dir, db) = damaged_copy(fixture);
        std::fs::remove_file(db.join(name)).unwrap();
        let outcome = fixture.outcome(&db);
        if optional.iter().any(|optional| name.ends_with(optional)) {
            assert!(matches!(outcome, Outcome::Harmless), "{name}: {outcome:?}");
        } else {
            let told = match &outcome {
                Outcome::Refused(_) => true,
                // The vote is read later than the rest.
                Outcome::ToldByARead(text) => name == "vote" && text.contains("vote is missing"),
                _ => false,
            };
            assert!(told, "{name}: {outcome:?}");
        }
    }
    let keyspaces = fixture.path().join("engine/keyspaces");
    for entry in std::fs::read_dir(&keyspaces).unwrap() {
        let (_dir, db) = damaged_copy(fixture);
        let name = entry.unwrap().file_name();
        std::fs::remove_dir_all(db.join("engine/keyspaces").join(&name)).unwrap();
        refused(fixture.outcome(&db), name.to_str().unwrap());
    }
    let (_dir, db) = damaged_copy(fixture);
    std::fs::remove_dir_all(db.join("engine")).unwrap();
    refused(fixture.outcome(&db), "engine");
}

#[test]
fn a_scrub_names_every_file_that_has_a_checksum_and_changes_nothing() {
    let (fixture, _) = Fixture::small();
    let whole = storage::scrub(&fixture.path(), &mut |_| true).unwrap();
    assert!(whole.damaged.is_empty() && whole.complete && whole.files > 10, "{whole:?}");
    let since = std::time::Instant::now();
    let large = storage::scrub(&Fixture::sealed().path(), &mut |_| true).unwrap();
    println!(
        "{} bytes of tables and blob files, with journals, in {:?}",
        large.bytes,
        since.elapsed()
    );
    assert!(large.is_whole(), "{large:?}");
    let stopped = storage::scrub(&fixture.path(), &mut |_| false).unwrap();
    assert!(!stopped.complete && stopped.damaged.is_empty(), "{stopped:?}");
    for (name, len) in needed(&fixture.path()) {
        let plain = ["FORMAT", "version", "lock", "journals.mark"];
        if len == 0 || plain.iter().any(|plain| name.ends_with(plain)) {
            continue;
        }
        let (_dir, db) = damaged_copy(fixture);
        let path = db.join(&name);
        let len =
            if name.ends_with(".jnl") { end_of(&path) } else { usize::try_from(len).unwrap() };
        match name.as_str() {
            // One of the two slots suffices to read the mark, so all of it is overwritten.
            "durable.mark" => change(&path, |bytes| bytes.fill(7)),
            _ => flip(&path, len / 2, 3),
        }
        let before = listing(&db);
        let found = storage::scrub(&db, &mut |_| true).unwrap();
        // `current` names the manifest and its checksum: if they differ, either may be wrong.
        let told = name.strip_suffix("current").unwrap_or(&name);
        assert!(found.damaged.iter().any(|text| text.contains(told)), "{name}: {found:?}");
        assert_eq!(listing(&db), before);
    }
}

/// Damages one random file at random. Returns a description.
fn damage(rng: &mut StdRng, db: &Path, earlier: &Path) -> String {
    let files: Vec<(String, u64)> = listing(db).into_iter().filter(|(_, len)| *len > 0).collect();
    // Choose among kinds of files first, because there are many more tables than others.
    let mut kinds: HashMap<String, Vec<&(String, u64)>> = HashMap::new();
    for file in &files {
        kinds.entry(kind(&file.0)).or_default().push(file);
    }
    let mut names: Vec<&String> = kinds.keys().collect();
    names.sort();
    let of_kind = kinds.get(*names.get(rng.random_range(0..names.len())).unwrap()).unwrap();
    let (name, len) = *of_kind.get(rng.random_range(0..of_kind.len())).unwrap();
    let path = db.join(name);
    let size = match name.ends_with(".jnl") {
        true => end_of(&path).max(1),
        false => usize::try_from(*len).unwrap(),
    };
    let at = rng.random_range(0..size);
    match rng.random_range(0..6) {
        0 => {
            flip(&path, at, rng.random_range(0..8));
            format!("a bit of byte {at} of {size} of {name} flipped")
        }
        1 => {
            let from = at / 512 * 512;
            change(&path, |bytes| {
                let to = (from + 512).min(bytes.len());
                bytes.get_mut(from..to).unwrap().fill(0);
            });
            format!("the sector at {from} of {size} of {name} zeroed")
        }
        2 => {
            change(&path, |bytes| bytes.truncate(at));
            format!("{name} cut at {at} of {size}")
        }
        3 => {
            std::fs::remove_file(&path).unwrap();
            format!("{name} removed")
        }
        4 => {
            let (other, _) = *of_kind.get(rng.random_range(0..of_kind.len())).unwrap();
            let aside = db.join("aside");
            std::fs::rename(&path, &aside).unwrap();
            if other != name {
                std::fs::rename(db.join(other), &path).unwrap();
            }
            std::fs::rename(&aside, db.join(other)).unwrap();
            format!("{name} and {other} swapped")
        }
        _ => {
            if !earlier.join(name).exists() {
                return format!("nothing: {name} had no earlier state");
            }
            std::fs::remove_file(&path).unwrap();
            std::fs::copy(earlier.join(name), &path).unwrap();
            format!("{name} as it was earlier")
        }
    }
}

/// A file name without its numbers.
fn kind(name: &str) -> String {
    name.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// The number of trials, a random generator and its seed.
fn trials(default: u32) -> (u32, StdRng, u64) {
    let trials = std::env::var("ROT_TRIALS").ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let seed: u64 = match std::env::var("SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => rand::random(),
    };
    println!("SEED={seed}");
    (trials, StdRng::seed_from_u64(seed), seed)
}

/// Counts outcomes. The test fails if one was silent.
#[derive(Default)]
struct Tally {
    counts: BTreeMap<&'static str, u32>,
    silent: Vec<String>,
}

impl Tally {
    fn add(&mut self, what: &str, outcome: Outcome) {
        let name = match outcome {
            Outcome::Refused(_) => "refused",
            Outcome::ToldByARead(_) => "told by a read",
            Outcome::Known => "known to have lost its end",
            Outcome::FoundByAScrub => "found by a scrub",
            Outcome::Harmless => "harmless",
            Outcome::Silent(why) => {
                self.silent.push(format!("{what}: {why}"));
                "silent"
            }
        };
        *self.counts.entry(name).or_default() += 1;
    }

    fn finish(self, seed: u64) {
        println!("{:?}", self.counts);
        assert!(self.silent.is_empty(), "SEED={seed}\n{}", self.silent.join("\n"));
    }
}

#[test]
fn no_random_damage_is_silent() {
    let (trials, mut rng, seed) = trials(120);
    let (fixture, earlier) = Fixture::small();
    let mut tally = Tally::default();
    for _ in 0..trials {
        let (_dir, db) = damaged_copy(fixture);
        let what = damage(&mut rng, &db, earlier);
        // Scrub before the start, because compaction may rewrite damaged files.
        let scrubbed = storage::scrub(&db, &mut |_| true)
            .map_or_else(|error| vec![error.to_string()], |scrubbed| scrubbed.damaged);
        let outcome = match fixture.outcome(&db) {
            // Files of two keyspaces may have the same number, and nothing else in a file identifies it.
            Outcome::Silent(_) if what.contains("swapped") && !scrubbed.is_empty() => {
                Outcome::FoundByAScrub
            }
            outcome => outcome,
        };
        tally.add(&what, outcome);
    }
    tally.finish(seed);
}

#[test]
fn no_random_damage_to_a_backup_is_silent_and_verify_finds_all_of_it() {
    let (trials, mut rng, seed) = trials(40);
    let (fixture, earlier) = Fixture::backup();
    let mut tally = Tally::default();
    for _ in 0..trials {
        let (_dir, db) = damaged_copy(fixture);
        let before = contents(&db);
        let what = damage(&mut rng, &db, earlier);
        let found = storage::verify_backup(&db, &mut |_| {});
        let whole = found.is_ok_and(|found| found.problems.is_empty());
        assert_eq!(whole, contents(&db) == before, "SEED={seed} {what}");
        let outcome = match fixture.outcome(&db) {
            Outcome::Silent(_) if what.contains("swapped") && !whole => Outcome::FoundByAScrub,
            outcome => outcome,
        };
        tally.add(&what, outcome);
    }
    tally.finish(seed);
}

#[test]
fn no_random_damage_to_a_running_store_is_silent() {
    let (trials, mut rng, seed) = trials(40);
    let (fixture, earlier) = Fixture::small();
    let mut tally = Tally::default();
    for _ in 0..trials {
        let (_dir, db) = own_copy(fixture);
        let (what, outcome) = fixture.outcome_while_it_runs(&db, || damage(&mut rng, &db, earlier));
        let outcome = match outcome {
            // Files of two keyspaces may have the same number, as above.
            Outcome::Silent(_) if what.contains("swapped") => Outcome::FoundByAScrub,
            outcome => outcome,
        };
        tally.add(&what, outcome);
    }
    tally.finish(seed);
}

fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let names = listing(dir).into_keys();
    names.map(|name| (name.clone(), std::fs::read(dir.join(name)).unwrap())).collect()
}
