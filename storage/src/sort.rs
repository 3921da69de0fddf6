//! External sort: sorted runs on disk, merged at the end.
//!
//! A record is `key length(4) value length(4) key value`, in memory and in a run. Of equal keys the last one pushed
//! is kept.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs::File,
    io::{BufReader, BufWriter, Read, Seek, Write},
    path::{Path, PathBuf},
};

use crate::{
    StorageError,
    engine::{Item, Slice},
};

/// Read buffer of each run during the merge.
const RUN_BUFFER: usize = 128 << 10;
/// Bytes of the two lengths before each record.
const LENGTHS: usize = 8;
/// Keys begin with the table id, which all records of a sort share.
const SHARED_PREFIX: usize = 4;

/// Sorts records that are pushed in any order.
pub(crate) struct Sorter {
    dir: PathBuf,
    limit: usize,
    held: Held,
    runs: Vec<File>,
}

/// Records in memory: without an allocation each, and mostly compared by a key prefix alone.
#[derive(Default)]
struct Held {
    bytes: Vec<u8>,
    order: Vec<Place>,
}

/// Offset of a record and the beginning of its key.
#[derive(Clone, Copy)]
struct Place {
    begins: u64,
    at: u32,
}

impl Held {
    fn weight(&self) -> usize {
        self.bytes.len() + self.order.len() * size_of::<Place>()
    }

    fn push(&mut self, key: &[u8], value: &[u8], limit: usize) {
        let need = LENGTHS + key.len() + value.len();
        if self.bytes.capacity() - self.bytes.len() < need {
            // Growing beyond the limit would waste memory.
            let room = (self.bytes.capacity() * 2).min(limit).max(64 << 10);
            self.bytes.reserve_exact(room.saturating_sub(self.bytes.len()).max(need));
        }
        let at = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        for len in [key.len(), value.len()] {
            let len = u32::try_from(len).unwrap_or(u32::MAX);
            self.bytes.extend_from_slice(&len.to_be_bytes());
        }
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.order.push(Place { begins: begins(key), at });
    }

    /// Sorts, and keeps the last of equal keys.
    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.order.sort_unstable_by(|a, b| {
            // Among equal keys the later record has the higher offset.
            let keys = || record(bytes, *a).0.cmp(record(bytes, *b).0);
            a.begins.cmp(&b.begins).then_with(keys).then(a.at.cmp(&b.at))
        });
        self.order.dedup_by(|later, earlier| {
            let same = later.begins == earlier.begins
                && record(bytes, *later).0 == record(bytes, *earlier).0;
            if same {
                *earlier = *later;
            }
            same
        });
    }
}

fn begins(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    for (to, from) in first.iter_mut().zip(key.iter().skip(SHARED_PREFIX)) {
        *to = *from;
    }
    u64::from_be_bytes(first)
}

/// Key and value of a record in memory.
fn record(bytes: &[u8], place: Place) -> (&[u8], &[u8]) {
    let whole = usize::try_from(place.at).ok().and_then(|at| bytes.get(at..));
    let parts = whole.and_then(|rest| {
        let (lengths, rest) = rest.split_first_chunk::<LENGTHS>()?;
        let (key_len, value_len) = split_lengths(*lengths);
        let (key, rest) = rest.split_at_checked(key_len)?;
        Some((key, rest.get(..value_len)?))
    });
    parts.unwrap_or_default()
}

fn split_lengths(lengths: [u8; LENGTHS]) -> (usize, usize) {
    let [a, b, c, d, e, f, g, h] = lengths;
    let len = |bytes| usize::try_from(u32::from_be_bytes(bytes)).unwrap_or(usize::MAX);
    (len([a, b, c, d]), len([e, f, g, h]))
}

impl Sorter {
    /// Spills to unnamed files in `dir` above `limit` bytes.
    pub(crate) fn new(dir: &Path, limit: usize) -> Self {
        Self { dir: dir.to_owned(), limit, held: Held::default(), runs: Vec::new() }
    }

    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), StorageError> {
        self.held.push(key, value, self.limit);
        if self.held.weight() >= self.limit { self.spill() } else { Ok(()) }
    }

    /// True if nothing was spilled.
    pub(crate) fn in_memory(&self) -> bool {
        self.runs.is_empty()
    }

    /// True if nothing was pushed.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.held.order.is_empty()
    }

    fn spill(&mut self) -> Result<(), StorageError> {
        self.held.sort();
        let file = self.write_run();
        let what = || format!("a sort file in {}", self.dir.display());
        self.runs.push(file.map_err(|e| StorageError::io(what())(e))?);
        self.held.bytes.clear();
        self.held.order.clear();
        Ok(())
    }

    fn write_run(&self) -> std::io::Result<File> {
        let mut file = unnamed_file(&self.dir)?;
        let mut out = BufWriter::with_capacity(RUN_BUFFER, &mut file);
        for place in &self.held.order {
            let (key, value) = record(&self.held.bytes, *place);
            for len in [key.len(), value.len()] {
                let len = u32::try_from(len).unwrap_or(u32::MAX);
                out.write_all(&len.to_be_bytes())?;
            }
            out.write_all(key)?;
            out.write_all(value)?;
        }
        out.flush()?;
        drop(out);
        file.rewind()?;
        Ok(file)
    }

    /// All records in key order, each key once.
    pub(crate) fn finish(mut self) -> Result<Sorted, StorageError> {
        self.held.sort();
        let Held { bytes, order } = self.held;
        let mut sources: Vec<Source> = self
            .runs
            .into_iter()
            .map(|file| Source::Run(BufReader::with_capacity(RUN_BUFFER, file)))
            .collect();
        sources.push(Source::Held(bytes, order.into_iter()));
        let mut sorted = Sorted { sources, heap: BinaryHeap::new(), failed: false };
        for at in 0..sorted.sources.len() {
            sorted.refill(at)?;
        }
        Ok(sorted)
    }
}

/// A file that is deleted when its handle is closed.
fn unnamed_file(dir: &Path) -> std::io::Result<File> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    std::fs::create_dir_all(dir)?;
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = dir.join(format!("sort-{}-{n}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// The merged records.
pub(crate) struct Sorted {
    sources: Vec<Source>,
    /// Smallest key first; of equal keys, the one from the later source, which was pushed later.
    heap: BinaryHeap<Reverse<(Slice, Reverse<usize>, Slice)>>,
    failed: bool,
}

enum Source {
    Run(BufReader<File>),
    Held(Vec<u8>, std::vec::IntoIter<Place>),
}

impl Sorted {
    fn refill(&mut self, at: usize) -> Result<(), StorageError> {
        let Some(source) = self.sources.get_mut(at) else { return Ok(()) };
        if let Some((key, value)) = source.next()? {
            self.heap.push(Reverse((key, Reverse(at), value)));
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Option<(Slice, Slice)>, StorageError> {
        let Some(Reverse((key, Reverse(at), value))) = self.heap.pop() else { return Ok(None) };
        self.refill(at)?;
        while self.heap.peek().is_some_and(|Reverse((next, ..))| *next == key) {
            if let Some(Reverse((_, Reverse(at), _))) = self.heap.pop() {
                self.refill(at)?;
            }
        }
        Ok(Some((key, value)))
    }
}

impl Iterator for Sorted {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        if self.failed {
            return None;
        }
        let item = self.step().transpose();
        self.failed = matches!(item, Some(Err(_)));
        item
    }
}

impl Source {
    fn next(&mut self) -> Result<Option<(Slice, Slice)>, StorageError> {
        match self {
            Self::Held(bytes, order) => Ok(order.next().map(|place| {
                let (key, value) = record(bytes, place);
                (key.into(), value.into())
            })),
            Self::Run(run) => read_record(run),
        }
    }
}

fn read_record(run: &mut BufReader<File>) -> Result<Option<(Slice, Slice)>, StorageError> {
    let map = || StorageError::io("a sort file");
    let mut lengths = [0; LENGTHS];
    match run.read_exact(&mut lengths) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(e) => return Err(map()(e)),
    }
    let (key_len, value_len) = split_lengths(lengths);
    let key = Slice::from_reader(run, key_len).map_err(map())?;
    let value = Slice::from_reader(run, value_len).map_err(map())?;
    Ok(Some((key, value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng, rngs::StdRng};
    use std::collections::BTreeMap;

    #[test]
    fn any_order_comes_out_sorted_with_the_last_of_equal_keys() {
        let dir = tempfile::tempdir().unwrap();
        for (seed, limit) in [(1, 1 << 30), (2, 10_000), (3, 500)] {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut sorter = Sorter::new(dir.path(), limit);
            let mut model = BTreeMap::new();
            for n in 0..3000u32 {
                let key =
                    [&[0; SHARED_PREFIX][..], &rng.random_range(0..1500u32).to_be_bytes()].concat();
                sorter.push(&key, &n.to_be_bytes()).unwrap();
                model.insert(key, n.to_be_bytes().to_vec());
            }
            assert_eq!(sorter.in_memory(), limit == 1 << 30);
            // Different runs may contain the same key.
            let out: Vec<_> = sorter
                .finish()
                .unwrap()
                .map(|item| item.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap())
                .collect();
            assert_eq!(out, model.into_iter().collect::<Vec<_>>());
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing stays behind");
        }
    }
}
