//! Shared by the benchmarks: documents, operations, and child processes that report figures.

pub(crate) mod raw;

use std::{
    collections::HashMap,
    ops::AddAssign,
    os::unix::fs::MetadataExt,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use bson::{RawDocumentBuf, rawdoc};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use rustix::time::ClockId;
use storage::keystring;

/// The server's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Operations per batch.
pub(crate) const BATCH: u32 = 1_000;

/// Cache size of both sides.
pub(crate) fn cache_bytes() -> u64 {
    u64::from(number("CACHE_MIB", 32)) << 20
}

/// A number from an environment variable.
pub(crate) fn number(name: &str, default: u32) -> u32 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// Number of documents to load (`N`).
pub(crate) fn documents() -> u32 {
    number("N", 200_000)
}

/// Number of batches to apply (`BATCHES`).
pub(crate) fn batches() -> u32 {
    number("BATCHES", (documents() / 5_000).max(20))
}

/// Number of point reads (`READS`).
pub(crate) fn reads() -> u32 {
    number("READS", 200_000)
}

/// One measurement: `count` operations in `secs` seconds.
#[derive(Clone)]
pub(crate) struct Figure {
    pub(crate) what: String,
    pub(crate) count: u32,
    pub(crate) secs: f64,
    pub(crate) cpu_secs: f64,
}

/// Measures wall clock time and CPU time; a busy machine changes CPU time little.
pub(crate) struct Clock {
    wall: Instant,
    cpu: Duration,
    of: ClockId,
}

/// Elapsed wall clock and CPU time.
#[derive(Clone, Copy, Default)]
pub(crate) struct Took {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

impl Clock {
    /// Counts the CPU time of all threads, including flushes and compaction.
    pub(crate) fn start() -> Self {
        Self::of(ClockId::ProcessCPUTime)
    }

    /// Counts the CPU time of this thread only: for reads, during which compaction may still run.
    pub(crate) fn alone() -> Self {
        Self::of(ClockId::ThreadCPUTime)
    }

    fn of(of: ClockId) -> Self {
        Self { wall: Instant::now(), cpu: Self::cpu(of), of }
    }

    pub(crate) fn elapsed(&self) -> Took {
        Took { wall: self.wall.elapsed(), cpu: Self::cpu(self.of) - self.cpu }
    }

    fn cpu(of: ClockId) -> Duration {
        Duration::try_from(rustix::time::clock_gettime(of)).expect("a time")
    }
}

impl AddAssign for Took {
    fn add_assign(&mut self, other: Self) {
        self.wall += other.wall;
        self.cpu += other.cpu;
    }
}

/// Figures that a child process printed.
pub(crate) struct Side {
    pub(crate) figures: Vec<Figure>,
    /// Peak resident memory, MiB.
    pub(crate) peak: u64,
    /// Size on disk at the end, MiB.
    pub(crate) disk: u64,
}

impl Side {
    pub(crate) fn figure(&self, what: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.what == what)
    }
}

/// Runs this program again as a child process for one side, so that its memory is measured separately, and collects
/// its figures. Its other output is passed through.
pub(crate) fn side(name: &str) -> Side {
    // The server does this, too; the child process inherits it.
    rustix::thread::disable_transparent_huge_pages(true).expect("small pages");
    let me = std::env::current_exe().expect("a path");
    let out = Command::new(me).env("SIDE", name).output().expect("a side");
    assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
    let mut side = Side { figures: Vec::new(), peak: 0, disk: 0 };
    for line in String::from_utf8_lossy(&out.stdout).lines() {
        let parts: Vec<&str> = line.split('|').collect();
        match parts.as_slice() {
            ["figure", what, count, secs, cpu_secs] => side.figures.push(Figure {
                what: (*what).to_owned(),
                count: count.parse().expect("a count"),
                secs: secs.parse().expect("seconds"),
                cpu_secs: cpu_secs.parse().expect("seconds"),
            }),
            ["end", peak, disk] => {
                side.peak = peak.parse().expect("a peak");
                side.disk = disk.parse().expect("a size");
            }
            _ => println!("{name}: {line}"),
        }
    }
    side
}

/// Reports one figure to the parent process.
pub(crate) fn figure(what: &str, count: u32, took: Took) {
    println!("figure|{what}|{count}|{}|{}", took.wall.as_secs_f64(), took.cpu.as_secs_f64());
}

/// Reports memory and disk usage at the end.
pub(crate) fn end(path: &Path) {
    println!("end|{}|{}", memory_mib("VmHWM"), disk_mib(path));
}

/// A field of `/proc/self/status`, in MiB.
pub(crate) fn memory_mib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    let kib = line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    kib >> 10
}

/// Size of all files below a directory, in MiB.
pub(crate) fn disk_mib(path: &Path) -> u64 {
    fn bytes(path: &Path) -> u64 {
        let Ok(entries) = std::fs::read_dir(path) else { return 0 };
        let entries = entries.filter_map(Result::ok);
        entries
            .map(|entry| match entry.metadata() {
                Ok(meta) if meta.is_dir() => bytes(&entry.path()),
                // Count allocated blocks: a journal file is longer than its content.
                Ok(meta) => meta.blocks() * 512,
                Err(_) => 0,
            })
            .sum()
    }
    bytes(path) >> 20
}

/// A document of 400 bytes, half of them hard to compress.
pub(crate) fn document(id: u32, version: u32) -> RawDocumentBuf {
    let mut rng = StdRng::seed_from_u64(u64::from(id) << 32 | u64::from(version));
    let noise: Vec<u8> = (0..202).map(|_| rng.random()).collect();
    rawdoc! {
        "_id": i64::from(id),
        "group": i64::from(rng.random_range(0..100_000u32)),
        "name": format!("customer {id} of the house"),
        "version": i64::from(version),
        "noise": bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: noise },
        "text": "the quick brown fox jumps over the lazy dog, again and again, until it is tired",
        "flag": true,
    }
}

/// One oplog operation.
pub(crate) enum Op {
    Put(u32, u32),
    Delete(u32),
}

/// A batch of 40% inserts, 50% updates, 10% deletes.
pub(crate) fn operations(n: u32, batch: u32) -> Vec<Op> {
    let mut rng = StdRng::seed_from_u64(u64::from(batch));
    (0..BATCH)
        .map(|i| match rng.random_range(0..10) {
            0..4 => Op::Put(n + batch * BATCH + i, 1),
            4..9 => Op::Put(rng.random_range(0..n), batch + 2),
            _ => Op::Delete(rng.random_range(0..n)),
        })
        .collect()
}

/// The keys of a document and of its two index entries, each prefixed with its table number.
pub(crate) fn keys(doc: &RawDocumentBuf) -> [Vec<u8>; 3] {
    let key = |name| {
        keystring::encode_raw(doc.get(name).expect("bson").expect("a field")).expect("a key")
    };
    let id = key("_id");
    let index = |n, name| [&table(n)[..], &key(name), &id].concat();
    [[&table(0)[..], &id].concat(), index(1, "group"), index(2, "name")]
}

/// The key prefix of a table.
pub(crate) fn table(n: u8) -> [u8; 4] {
    [0, 0, 0, n]
}

/// The key of a document.
pub(crate) fn id_key(id: u32) -> Vec<u8> {
    [&table(0)[..], &keystring::encode_raw(i64::from(id).into()).expect("a key")].concat()
}

/// One write to a raw engine.
pub(crate) enum Write {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
}

/// The raw writes of a batch: what [`operations`] amount to without reading the previous versions.
pub(crate) fn writes(n: u32, batch: u32) -> Vec<Write> {
    let mut out = Vec::with_capacity(3 * BATCH as usize);
    for op in operations(n, batch) {
        match op {
            Op::Put(id, version) => {
                let doc = document(id, version);
                let [row, a, b] = keys(&doc);
                out.push(Write::Put(row, doc.into_bytes()));
                out.extend([a, b].map(|key| Write::Put(key, Vec::new())));
            }
            Op::Delete(id) => out.extend(keys(&document(id, 0)).map(Write::Remove)),
        }
    }
    out
}

/// The keyspace in which the store keeps a key.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Current,
    History,
    Meta,
}

/// Tracks what the store would have to read, so that a raw engine can do all the writes that the store does, with as
/// many keys and bytes: present versions with their headers, removed index entries, ended versions, undo rows for
/// rollback, marks.
pub(crate) struct StoreWrites {
    loaded: u32,
    history: bool,
    /// The current version of each document that was touched.
    present: HashMap<u32, Option<u32>>,
    out: Vec<(Place, Write)>,
    undo: Vec<u8>,
}

impl StoreWrites {
    pub(crate) fn new(loaded: u32, history: bool) -> Self {
        Self { loaded, history, present: HashMap::new(), out: Vec::new(), undo: Vec::new() }
    }

    pub(crate) fn batch(&mut self, batch: u32) -> Vec<(Place, Write)> {
        for op in operations(self.loaded, batch) {
            let (id, version) = match op {
                Op::Put(id, version) => (id, Some(version)),
                Op::Delete(id) => (id, None),
            };
            let loaded = (id < self.loaded).then_some(0);
            let old = self.present.insert(id, version).unwrap_or(loaded);
            let [old, new] = [old, version].map(|version| Some(document(id, version?)));
            self.change(old, new);
        }
        if self.history {
            self.out.push((Place::Meta, Write::Put(vec![0; 13], std::mem::take(&mut self.undo))));
        }
        // The marks of a batch: applied, counts, next table, and two for the epoch.
        self.out.extend((0..5).map(|n| (Place::Meta, Write::Put(vec![n; 9], vec![0; 24]))));
        std::mem::take(&mut self.out)
    }

    fn change(&mut self, old: Option<RawDocumentBuf>, new: Option<RawDocumentBuf>) {
        let replaced = self.history && old.is_some() && new.is_some();
        let of = |doc: Option<RawDocumentBuf>| {
            let Some(doc) = doc else { return [None, None, None] };
            let [row, a, b] = keys(&doc);
            [Some((row, doc.into_bytes())), Some((a, vec![1])), Some((b, vec![1]))]
        };
        for (old, new) in of(old).into_iter().zip(of(new)) {
            if old == new {
                continue;
            }
            if let Some((key, value)) = &old {
                if self.history {
                    let past = [&[0; 4][..], key, &[0; 8]].concat();
                    self.out.push((Place::History, Write::Put(past, version(value, false))));
                }
                if new.as_ref().is_none_or(|(other, _)| other != key) {
                    self.out.push((Place::Current, Write::Remove(key.clone())));
                }
            }
            if let Some((key, value)) = new {
                let same = old.as_ref().is_some_and(|(other, _)| *other == key);
                if self.history && !same {
                    self.undo.extend([0; 5]);
                    self.undo.extend(&key);
                }
                let value = version(&value, replaced && same);
                self.out.push((Place::Current, Write::Put(key, value)));
            }
        }
    }
}

/// A value with a version header: flags, start, and with history the start of the previous version.
fn version(payload: &[u8], replaced: bool) -> Vec<u8> {
    let head: &[u8] = if replaced { &[0; 12] } else { &[0; 9] };
    [head, payload].concat()
}
