//! Compares the engines that were considered: the same load, batches, reads and scan, each through the engine's
//! fastest API.
//!
//! `cargo bench -p storage --bench engines` runs it; `N` sets the number of documents, `BATCHES` the batches, `READS`
//! the reads. Every engine has a cache of 32 MiB and syncs once per batch; documents and keys are made before the
//! clock starts. The three key ranges (documents, two indexes) are one table with a prefix each, as in the store.
//! docs/measurements.md shows a run. RocksDB is not included because it needs a C++ toolchain and minutes to build,
//! sled because it has had no stable release since 2021.

#[allow(dead_code, reason = "each benchmark uses a part")]
mod shared;

use std::path::Path;

use rand::{RngExt, SeedableRng, rngs::StdRng};
use redb::ReadableDatabase;
use shared::{
    BATCH, Clock, Side, Took, Write, batches, document, documents, end, figure, id_key, keys,
    reads, side, writes,
};

const ENGINES: [&str; 2] = ["fjall", "redb"];
const LOAD: &str = "bulk load, documents/s";
const APPLY: &str = "apply, operations/s";
const READ: &str = "point reads/s";
const SCAN: &str = "full scan, documents/s";
const CACHE_BYTES: usize = 32 << 20;

fn main() {
    let dir = tempfile::tempdir().expect("a directory");
    match std::env::var("SIDE").as_deref() {
        Ok("fjall") => {
            let engine = shared::raw::Fjall::open(dir.path());
            run(
                dir.path(),
                |n| engine.load(n),
                |n, b| engine.apply(n, b),
                |n| engine.gets(n),
                || engine.scan(),
            );
        }
        Ok(_) => {
            let engine = Redb::open(&dir.path().join("redb"));
            run(
                dir.path(),
                |n| engine.load(n),
                |n, b| engine.apply(n, b),
                |n| engine.gets(n),
                || engine.scan(),
            );
        }
        Err(_) => table(&ENGINES.map(side)),
    }
}

fn run(
    path: &Path,
    load: impl Fn(u32) -> Took,
    apply: impl Fn(u32, u32) -> Took,
    gets: impl Fn(u32) -> Took,
    scan: impl Fn() -> (Took, u32),
) {
    let (n, batches) = (documents(), batches());
    figure(LOAD, n, load(n));
    figure(APPLY, batches * BATCH, apply(n, batches));
    figure(READ, reads(), gets(n));
    let (took, seen) = scan();
    figure(SCAN, seen, took);
    end(path);
}

/// Prints a table as in docs/measurements.md: each row has a value per engine and its ratio to the first.
fn table(sides: &[Side; 2]) {
    println!(
        "{} documents of 400 bytes, two indexes; {} batches of {BATCH}",
        documents(),
        batches()
    );
    println!("| | {} |\n| --- | --- | --- |", ENGINES.join(" | "));
    let [first, ..] = sides;
    for what in [LOAD, APPLY, READ, SCAN] {
        let cells = sides.each_ref().map(|side| {
            let figure = side.figure(what).expect("a figure");
            let ratio = first.figure(what).expect("a figure").secs / figure.secs;
            format!("{:.0} ({ratio:.2})", f64::from(figure.count) / figure.secs)
        });
        println!("| {what} | {} |", cells.join(" | "));
    }
    println!(
        "| peak resident, MiB | {} |",
        sides.each_ref().map(|s| s.peak.to_string()).join(" | ")
    );
    println!("| on disk, MiB | {} |", sides.each_ref().map(|s| s.disk.to_string()).join(" | "));
}

/// All rows of a load in key order, as bulk loading needs them.
fn sorted_rows(n: u32) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let mut entries: Vec<Vec<u8>> = (0..n)
        .flat_map(|id| {
            let [_, a, b] = keys(&document(id, 0));
            [a, b]
        })
        .collect();
    entries.sort_unstable();
    let documents = (0..n).map(|id| (id_key(id), document(id, 0).into_bytes()));
    documents.chain(entries.into_iter().map(|entry| (entry, Vec::new())))
}

const TABLE: redb::TableDefinition<'_, &[u8], &[u8]> = redb::TableDefinition::new("all");

struct Redb(redb::Database);

impl Redb {
    fn open(path: &Path) -> Self {
        let db = redb::Builder::new().set_cache_size(CACHE_BYTES).create(path).expect("a database");
        let write = db.begin_write().expect("a transaction");
        write.open_table(TABLE).expect("a table");
        write.commit().expect("a commit");
        Self(db)
    }

    fn load(&self, n: u32) -> Took {
        let before = Clock::start();
        let write = self.0.begin_write().expect("a transaction");
        {
            let mut table = write.open_table(TABLE).expect("a table");
            for (key, value) in sorted_rows(n) {
                table.insert(key.as_slice(), value.as_slice()).expect("a write");
            }
        }
        write.commit().expect("a commit");
        before.elapsed()
    }

    fn apply(&self, n: u32, batches: u32) -> Took {
        let mut took = Took::default();
        for batch in 0..batches {
            let writes = writes(n, batch);
            let before = Clock::start();
            let transaction = self.0.begin_write().expect("a transaction");
            {
                let mut table = transaction.open_table(TABLE).expect("a table");
                for write in &writes {
                    match write {
                        Write::Put(key, value) => {
                            table.insert(key.as_slice(), value.as_slice()).map(drop)
                        }
                        Write::Remove(key) => table.remove(key.as_slice()).map(drop),
                    }
                    .expect("a write");
                }
            }
            transaction.commit().expect("a commit");
            took += before.elapsed();
        }
        took
    }

    fn gets(&self, n: u32) -> Took {
        let mut rng = StdRng::seed_from_u64(1);
        let read = self.0.begin_read().expect("a transaction");
        let table = read.open_table(TABLE).expect("a table");
        let before = Clock::start();
        for _ in 0..reads() {
            let key = id_key(rng.random_range(0..n));
            let value = table.get(key.as_slice()).expect("a read");
            std::hint::black_box(value.map(|value| value.value().to_vec()));
        }
        before.elapsed()
    }

    fn scan(&self) -> (Took, u32) {
        let read = self.0.begin_read().expect("a transaction");
        let table = read.open_table(TABLE).expect("a table");
        let before = Clock::start();
        let mut seen = 0;
        let (from, to): (&[u8], &[u8]) = (&[0], &[1]);
        for item in table.range(from..to).expect("a range") {
            let (key, value) = item.expect("a read");
            std::hint::black_box((key.value().to_vec(), value.value().to_vec()));
            seen += 1;
        }
        (before.elapsed(), seen)
    }
}
