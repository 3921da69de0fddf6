//! Compares random histories with a simple model: every read at every readable timestamp must agree.
//!
//! `SEED=n` replays one run, `SEEDS=n` runs that many.

use std::{collections::BTreeMap, ops::Bound::Unbounded, sync::atomic::AtomicBool, time::Duration};

use bson::{RawDocumentBuf, rawdoc};
use protocol::{Namespace, OpTime, OpTimeAndWall, RawDoc, Timestamp};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use uuid::Uuid;

use crate::{
    Apply, Collection, Direction, EngineKind, IndexState, PreparedWrite, ReadAt, Store,
    StoreOptions, TxnId, View, apply::documents::id_of, keystring,
};

#[derive(Clone, Default, PartialEq, Debug)]
struct State {
    colls: BTreeMap<Uuid, Coll>,
}

#[derive(Clone, Default, PartialEq, Debug)]
struct Coll {
    name: String,
    docs: BTreeMap<i32, RawDocumentBuf>,
    indexes: Vec<String>,
}

struct Prepared {
    txn: TxnId,
    ts: u32,
    writes: Vec<(Uuid, i32, Option<RawDocumentBuf>)>,
}

struct Run {
    rng: StdRng,
    store: Option<Store>,
    dir: tempfile::TempDir,
    options: StoreOptions,
    /// The state after each second.
    past: BTreeMap<u32, State>,
    now: State,
    secs: u32,
    stable: u32,
    building: Vec<(Uuid, String, Uuid)>,
    prepared: Vec<Prepared>,
    names: u32,
    log: Vec<String>,
}

const SPECS: [&str; 4] = ["a_1", "b_-1_a_1", "a.x_1", "h_hashed"];

fn spec(name: &str) -> RawDocumentBuf {
    let key = match name {
        "a_1" => rawdoc! { "a": 1 },
        "b_-1_a_1" => rawdoc! { "b": -1, "a": 1 },
        "a.x_1" => rawdoc! { "a.x": 1 },
        _ => rawdoc! { "b": "hashed" },
    };
    rawdoc! { "v": 2, "key": key, "name": name, "sparse": name == "a.x_1" }
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

impl Run {
    fn new(seed: u64, engine: EngineKind) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions {
            engine,
            cache_bytes: 1 << 20,
            history_window: Duration::from_secs(60),
            ..StoreOptions::default()
        };
        let store = Store::open(dir.path(), options.clone()).unwrap();
        Self {
            rng: StdRng::seed_from_u64(seed),
            store: Some(store),
            dir,
            options,
            past: BTreeMap::from([(0, State::default())]),
            now: State::default(),
            secs: 0,
            stable: 0,
            building: Vec::new(),
            prepared: Vec::new(),
            names: 0,
            log: Vec::new(),
        }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..70 => self.batch(),
            70..76 => self.build(),
            76..82 => self.prepare(),
            82..86 => self.decide(),
            86..90 => self.commit_point(),
            90..94 => self.store().maintain(bson::DateTime::from_millis(0)).unwrap(),
            94..97 => self.roll_back(),
            _ => self.reopen(),
        }
    }

    fn next_moment(&mut self) -> u32 {
        self.secs += self.rng.random_range(1..3);
        self.secs
    }

    fn end(&mut self, apply: Apply, what: String) {
        apply.commit(at(self.secs)).unwrap();
        self.past.insert(self.secs, self.now.clone());
        self.log.push(format!("{}: {what}", self.secs));
    }

    /// Several operations in one engine batch, at one timestamp or at several.
    fn batch(&mut self) {
        let mut apply = self.store().begin_apply();
        let mut what = String::new();
        for _ in 0..self.rng.random_range(1..4) {
            let secs = self.next_moment();
            for _ in 0..self.rng.random_range(1..6) {
                what.push_str(&self.operation(&mut apply, secs));
            }
            self.past.insert(secs, self.now.clone());
        }
        self.end(apply, what);
    }

    fn operation(&mut self, apply: &mut Apply, secs: u32) -> String {
        let uuids: Vec<Uuid> = self.now.colls.keys().copied().collect();
        let kind = self.rng.random_range(0..40);
        if uuids.is_empty() || kind == 0 {
            return self.create(apply, secs);
        }
        let uuid = uuids[self.rng.random_range(0..uuids.len())];
        let held = |id: i32| {
            self.prepared.iter().any(|p| p.writes.iter().any(|w| w.0 == uuid && w.1 == id))
        };
        let touched = self.prepared.iter().any(|p| p.writes.iter().any(|w| w.0 == uuid));
        match kind {
            1 if !touched => {
                apply.drop_collection(ts(secs), uuid).unwrap();
                self.now.colls.remove(&uuid);
                self.building.retain(|(coll, ..)| *coll != uuid);
                format!("drop {uuid} ")
            }
            2 => {
                self.names += 1;
                let name = format!("c{}", self.names);
                apply.rename(ts(secs), uuid, &Namespace::new("test", &name)).unwrap();
                self.now.colls.get_mut(&uuid).unwrap().name = name;
                format!("rename {uuid} ")
            }
            3 | 4 => self.index(apply, secs, uuid),
            5..=12 => {
                let id = self.rng.random_range(0..12);
                if held(id) {
                    return String::new();
                }
                let coll = apply.collection(uuid).unwrap();
                let old = apply.delete(ts(secs), &coll, id.into()).unwrap();
                let model = self.now.colls.get_mut(&uuid).unwrap().docs.remove(&id);
                assert_eq!(old.map(|doc| doc.as_raw().to_owned()), model);
                format!("del {id} ")
            }
            _ => {
                let id = self.rng.random_range(0..12);
                if held(id) {
                    return String::new();
                }
                let doc = self.document(id);
                let coll = apply.collection(uuid).unwrap();
                let old = apply.put(ts(secs), &coll, doc.clone()).unwrap();
                let model = self.now.colls.get_mut(&uuid).unwrap().docs.insert(id, doc);
                assert_eq!(old.map(|doc| doc.as_raw().to_owned()), model);
                format!("put {id} ")
            }
        }
    }

    fn create(&mut self, apply: &mut Apply, secs: u32) -> String {
        self.names += 1;
        let (uuid, name) = (Uuid::from_u128(u128::from(self.names)), format!("c{}", self.names));
        let ns = Namespace::new("test", &name);
        apply.create(ts(secs), &ns, uuid, &rawdoc! {}, None).unwrap();
        self.now.colls.insert(uuid, Coll { name, ..Coll::default() });
        format!("create {uuid} ")
    }

    fn index(&mut self, apply: &mut Apply, secs: u32, uuid: Uuid) -> String {
        let name = SPECS[self.rng.random_range(0..SPECS.len())];
        if self.building.iter().any(|(coll, n, _)| *coll == uuid && n == name) {
            return String::new();
        }
        let coll = self.now.colls.get_mut(&uuid).unwrap();
        if coll.indexes.iter().any(|n| n == name) {
            apply.drop_index(ts(secs), uuid, name).unwrap();
            coll.indexes.retain(|n| n != name);
            return format!("dropIndex {name} ");
        }
        if self.rng.random() {
            apply.create_index(ts(secs), uuid, &spec(name), IndexState::Ready).unwrap();
            coll.indexes.push(name.to_owned());
            return format!("index {name} ");
        }
        let build_uuid = Uuid::from_u128(self.rng.random());
        let state = IndexState::Building { build_uuid };
        apply.create_index(ts(secs), uuid, &spec(name), state).unwrap();
        self.building.push((uuid, name.to_owned(), build_uuid));
        format!("startIndexBuild {name} ")
    }

    /// Completes an index build, with writes between its drain and its commit.
    fn build(&mut self) {
        let Some((uuid, name, build_uuid)) = self.building.pop() else { return };
        self.store().build_indexes(uuid, build_uuid, &AtomicBool::new(false)).unwrap();
        for _ in 0..self.rng.random_range(0..3) {
            self.batch();
        }
        let gone = !self.now.colls.contains_key(&uuid);
        let mut apply = self.store().begin_apply();
        let Some(coll) = apply.collection(uuid).filter(|_| !gone) else { return };
        let building = IndexState::Building { build_uuid };
        if coll.index(&name).is_none_or(|index| index.state() != building) {
            return;
        }
        let secs = self.next_moment();
        apply.set_index_ready(ts(secs), uuid, &name).unwrap();
        self.now.colls.get_mut(&uuid).unwrap().indexes.push(name.clone());
        self.end(apply, format!("commitIndexBuild {name}"));
    }

    fn prepare(&mut self) {
        let Some((uuid, _)) = self.now.colls.iter().next().map(|(u, c)| (*u, c.clone())) else {
            return;
        };
        let secs = self.next_moment();
        let txn = TxnId(secs.to_be_bytes().to_vec());
        let mut writes = Vec::new();
        for _ in 0..self.rng.random_range(1..4) {
            let id = self.rng.random_range(0..12);
            let taken = writes.iter().any(|(_, other, _)| *other == id)
                || self.prepared.iter().any(|p| p.writes.iter().any(|w| w.0 == uuid && w.1 == id));
            if !taken {
                let doc = self.rng.random::<bool>().then(|| self.document(id));
                writes.push((uuid, id, doc));
            }
        }
        let mut apply = self.store().begin_apply();
        let list = writes
            .iter()
            .map(|(coll, id, doc)| match doc {
                Some(doc) => PreparedWrite::Put { coll: *coll, doc: doc.clone().into() },
                None => {
                    PreparedWrite::Delete { coll: *coll, doc_id: rawdoc! { "_id": *id }.into() }
                }
            })
            .collect();
        apply.prepare(&txn, ts(secs), list).unwrap();
        self.prepared.push(Prepared { txn, ts: secs, writes });
        self.end(apply, "prepare".into());
    }

    fn decide(&mut self) {
        let Some(prepared) = self.prepared.pop() else { return };
        let commit_secs = prepared.ts.max(self.secs.saturating_sub(1)).max(prepared.ts);
        let secs = self.next_moment();
        let mut apply = self.store().begin_apply();
        if self.rng.random_range(0..4) == 0 {
            apply.abort_prepared(&prepared.txn, ts(secs)).unwrap();
            return self.end(apply, "abort prepared".into());
        }
        // Increment 2: no ordinary write has that timestamp.
        let commit_ts = Timestamp::new(commit_secs, 2);
        apply.commit_prepared(&prepared.txn, commit_ts, ts(secs)).unwrap();
        // The versions appear in the past: reads from the commit timestamp on see them.
        let set = |state: &mut State| {
            for (uuid, id, doc) in &prepared.writes {
                let Some(coll) = state.colls.get_mut(uuid) else { continue };
                match doc {
                    Some(doc) => drop(coll.docs.insert(*id, doc.clone())),
                    None => drop(coll.docs.remove(id)),
                }
            }
        };
        let before = self.past.range(..=commit_secs + 1).next_back().map(|(_, s)| s.clone());
        self.past.entry(commit_secs + 1).or_insert(before.unwrap_or_default());
        for (_, state) in self.past.range_mut(commit_secs + 1..) {
            set(state);
        }
        set(&mut self.now);
        self.end(apply, format!("commit prepared at {commit_ts}"));
    }

    fn commit_point(&mut self) {
        // Never beyond a prepared transaction, since the model does not replay them from an oplog.
        let held = self.prepared.iter().map(|p| p.ts.saturating_sub(1)).min().unwrap_or(u32::MAX);
        let to = self.rng.random_range(self.stable..=self.secs).min(held);
        let to = self.past.range(..=to).next_back().map_or(0, |(secs, _)| *secs);
        if to > self.stable {
            self.stable = to;
            self.store().watermarks().set_commit_point(at(to));
        }
    }

    fn roll_back(&mut self) {
        // The model does not support rolling back a decision, so it only rolls back if nothing is prepared or was
        // decided recently.
        let decided = self.log.iter().rev().take_while(|l| !l.contains("prepare")).count();
        if !self.prepared.is_empty() || decided < self.log.len() && decided < 8 {
            return;
        }
        let lines = self.log.len() - decided.min(self.log.len());
        let floor: u32 = self
            .log
            .get(lines.saturating_sub(1))
            .and_then(|l| l.split(':').next()?.parse().ok())
            .unwrap_or(0);
        let low = self.stable.max(floor);
        let moments: Vec<u32> = self.past.range(low..=self.secs).map(|(s, _)| *s).collect();
        let to = moments[self.rng.random_range(0..moments.len())];
        if to == 0 {
            return;
        }
        self.store().rollback_to(at(to)).unwrap();
        self.past.retain(|secs, _| *secs <= to);
        self.now = self.past[&to].clone();
        let view = self.store().view(ReadAt::Newest).unwrap();
        self.building = view
            .catalog()
            .all()
            .flat_map(|coll| {
                let uuid = coll.uuid();
                let unfinished =
                    coll.indexes().iter().filter_map(move |index| match index.state() {
                        IndexState::Building { build_uuid } => {
                            Some((uuid, index.name().to_owned(), build_uuid))
                        }
                        IndexState::Ready => None,
                    });
                unfinished.collect::<Vec<_>>()
            })
            .collect();
        self.log.push(format!("{}: rollback from {}", to, self.secs));
        // The other branch continues with timestamps after ours.
    }

    fn reopen(&mut self) {
        if self.options.engine == EngineKind::Memory {
            return;
        }
        drop(self.store.take());
        self.store = Some(Store::open(self.dir.path(), self.options.clone()).unwrap());
        self.store().watermarks().set_commit_point(at(self.stable));
        self.log.push(format!("{}: reopen", self.secs));
    }

    fn document(&mut self, id: i32) -> RawDocumentBuf {
        let a = match self.rng.random_range(0..9) {
            0 => rawdoc! { "_id": id, "a": [1, self.rng.random_range(0..9)] },
            1 => rawdoc! { "_id": id, "a": [{ "x": 1 }, { "x": self.rng.random_range(0..9) }, 7] },
            2 => rawdoc! { "_id": id, "a": { "x": self.rng.random_range(0..9) } },
            3 => rawdoc! { "_id": id },
            // Equal numbers of different types share a key.
            4 => rawdoc! { "_id": id, "a": 1_i64 },
            5 => rawdoc! { "_id": id, "a": 1.0 },
            6 => rawdoc! { "_id": id, "a": -0.0 },
            _ => rawdoc! { "_id": id, "a": self.rng.random_range(0..9) },
        };
        let mut doc = a;
        let b = self.rng.random_range(0..5);
        match self.rng.random_range(0..3) {
            0 => doc.append(bson::raw::cstr!("b"), b),
            1 => doc.append(bson::raw::cstr!("b"), i64::from(b)),
            _ => doc.append(bson::raw::cstr!("b"), f64::from(b)),
        }
        doc
    }

    fn check(&mut self) {
        let store = self.store().clone();
        let view = store.view(ReadAt::Newest).unwrap();
        check_view(&view, &self.now);
        let oldest = store.watermarks().oldest().secs();
        let applied = view.ts().secs();
        for _ in 0..4 {
            if oldest >= applied {
                break;
            }
            let secs = self.rng.random_range(oldest + 1..=applied);
            let Some((_, state)) = self.past.range(..=secs).next_back() else { continue };
            let view = store.view(ReadAt::Timestamp(ts(secs))).unwrap();
            check_view(&view, state);
        }
    }
}

fn check_view(view: &View, state: &State) {
    let names: Vec<_> = view.catalog().all().map(|c| c.ns().coll().to_owned()).collect();
    let mut want: Vec<_> = state.colls.values().map(|c| c.name.clone()).collect();
    want.sort();
    assert_eq!(names, want, "catalog at {}", view.ts());
    for (uuid, model) in &state.colls {
        let coll = view.catalog().by_uuid(*uuid).unwrap();
        for direction in [Direction::Forward, Direction::Backward] {
            let docs: Vec<_> = view
                .scan(&coll, Unbounded, direction)
                .map(|item| item.unwrap().1.as_raw().to_owned())
                .collect();
            let mut want: Vec<_> = model.docs.values().cloned().collect();
            if direction == Direction::Backward {
                want.reverse();
            }
            assert_eq!(docs, want, "{} at {}", coll.ns(), view.ts());
        }
        for id in 0..12 {
            let found = view.get(&coll, id.into()).unwrap().map(|doc| doc.as_raw().to_owned());
            assert_eq!(found.as_ref(), model.docs.get(&id), "{id} at {}", view.ts());
        }
        let bytes: usize = model.docs.values().map(|doc| doc.as_bytes().len()).sum();
        let want = (model.docs.len() as u64, bytes as u64);
        let counted = (view.count(&coll).unwrap(), view.data_size(&coll).unwrap());
        assert_eq!(counted, want, "counts of {} at {}", coll.ns(), view.ts());
        check_indexes(view, &coll, model);
    }
}

fn check_indexes(view: &View, coll: &Collection, model: &Coll) {
    let ready: Vec<_> = coll.indexes().iter().filter(|i| i.usable()).map(|i| i.name()).collect();
    let mut want = model.indexes.clone();
    want.sort();
    let mut sorted = ready.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, want, "indexes of {} at {}", coll.ns(), view.ts());
    for name in ready {
        let index = coll.index(name).unwrap();
        let mut want = Vec::new();
        for doc in model.docs.values() {
            let record = keystring::encode(id_of(doc).unwrap()).unwrap();
            let keys = index.keygen.keys(&RawDoc::from(doc.clone())).unwrap();
            assert!(!crate::apply::documents::widens(index, &keys.multikey), "multikey of {name}");
            want.extend(keys.keys.into_iter().map(|key| (key.bytes, record.clone(), key.marks)));
        }
        want.sort();
        let got: Vec<_> = view
            .index_scan(coll, index, (Unbounded, Unbounded), Direction::Forward)
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.key.to_vec(), entry.record.as_bytes().to_vec(), entry.marks.into()))
            .collect();
        assert_eq!(got, want, "{name} of {} at {}", coll.ns(), view.ts());
    }
}

fn run(seed: u64, engine: EngineKind, steps: usize) {
    let mut run = Run::new(seed, engine);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for n in 0..steps {
            run.step();
            if n % 8 == 7 {
                run.check();
            }
        }
        run.check();
    }));
    if let Err(panic) = result {
        eprintln!("SEED={seed} {engine}\n{}", run.log.join("\n"));
        std::panic::resume_unwind(panic);
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn every_moment_reads_as_the_model_says_in_memory() {
    match number("SEED") {
        Some(seed) => run(seed, EngineKind::Memory, 60),
        None => (0..number("SEEDS").unwrap_or(1_000)).for_each(|s| run(s, EngineKind::Memory, 60)),
    }
}

#[test]
fn every_moment_reads_as_the_model_says_on_disk() {
    match number("SEED") {
        Some(seed) => run(seed, EngineKind::Fjall, 60),
        None => {
            (0..number("SEEDS").unwrap_or(1_000) / 10).for_each(|s| run(s, EngineKind::Fjall, 60))
        }
    }
}
