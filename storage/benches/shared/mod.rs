//! What the benchmarks share: documents, operations, and processes of their own with figures.

pub(crate) mod raw;

use std::{
    ops::AddAssign,
    os::unix::fs::MetadataExt,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use bson::{RawDocumentBuf, rawdoc};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use storage::keystring;

/// The allocator of the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Operations of one batch.
pub(crate) const BATCH: u32 = 1_000;

/// A number from the environment.
pub(crate) fn number(name: &str, default: u32) -> u32 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// How many documents are loaded (`N`).
pub(crate) fn documents() -> u32 {
    number("N", 200_000)
}

/// How many batches are applied (`BATCHES`).
pub(crate) fn batches() -> u32 {
    number("BATCHES", (documents() / 5_000).max(20))
}

/// How many point reads (`READS`).
pub(crate) fn reads() -> u32 {
    number("READS", 200_000)
}

/// One measured thing: so many of them in so many seconds.
#[derive(Clone)]
pub(crate) struct Figure {
    pub(crate) what: String,
    pub(crate) count: u32,
    pub(crate) secs: f64,
    pub(crate) cpu_secs: f64,
}

/// Measures time as it passes, and what the process works in it, all threads together: that a busy machine changes
/// little.
pub(crate) struct Clock {
    wall: Instant,
    cpu: Duration,
}

/// What a clock saw.
#[derive(Clone, Copy, Default)]
pub(crate) struct Took {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { wall: Instant::now(), cpu: Self::cpu() }
    }

    pub(crate) fn elapsed(&self) -> Took {
        Took { wall: self.wall.elapsed(), cpu: Self::cpu() - self.cpu }
    }

    fn cpu() -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::try_from(time).expect("a time")
    }
}

impl AddAssign for Took {
    fn add_assign(&mut self, other: Self) {
        self.wall += other.wall;
        self.cpu += other.cpu;
    }
}

/// What a side printed.
pub(crate) struct Side {
    pub(crate) figures: Vec<Figure>,
    /// Highest resident memory, MiB.
    pub(crate) peak: u64,
    /// On disk at the end, MiB.
    pub(crate) disk: u64,
}

impl Side {
    pub(crate) fn figure(&self, what: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.what == what)
    }
}

/// Runs this program again as one side, so that memory is its own, and takes its figures. What else it says goes
/// through.
pub(crate) fn side(name: &str) -> Side {
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

/// Says one figure to the process that collects them.
pub(crate) fn figure(what: &str, count: u32, took: Took) {
    println!("figure|{what}|{count}|{}|{}", took.wall.as_secs_f64(), took.cpu.as_secs_f64());
}

/// Says memory and disk at the end.
pub(crate) fn end(path: &Path) {
    println!("end|{}|{}", memory_mib("VmHWM"), disk_mib(path));
}

/// A line of `/proc/self/status`, in MiB.
pub(crate) fn memory_mib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    let kib = line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    kib >> 10
}

/// What lies below a directory, in MiB.
pub(crate) fn disk_mib(path: &Path) -> u64 {
    fn bytes(path: &Path) -> u64 {
        let Ok(entries) = std::fs::read_dir(path) else { return 0 };
        let entries = entries.filter_map(Result::ok);
        entries
            .map(|entry| match entry.metadata() {
                Ok(meta) if meta.is_dir() => bytes(&entry.path()),
                // Journals are longer than what is written in them.
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

/// One operation of the oplog.
pub(crate) enum Op {
    Put(u32, u32),
    Delete(u32),
}

/// 40% inserts, 50% updates, 10% deletes.
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

/// The keys of a document and of its two index entries, each with the number of its table in front.
pub(crate) fn keys(doc: &RawDocumentBuf) -> [Vec<u8>; 3] {
    let key = |name| {
        keystring::encode_raw(doc.get(name).expect("bson").expect("a field")).expect("a key")
    };
    let id = key("_id");
    let index = |n: u8, name| [&[n][..], &key(name), &id].concat();
    [[&[0][..], &id].concat(), index(1, "group"), index(2, "name")]
}

/// The key of a document.
pub(crate) fn id_key(id: u32) -> Vec<u8> {
    [&[0][..], &keystring::encode_raw(i64::from(id).into()).expect("a key")].concat()
}

/// One write of a batch, as every raw engine makes it.
pub(crate) enum Write {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
}

/// The raw writes of a batch: what [`operations`] come to if nobody looks at what was there.
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
