//! Sorting more than memory holds: runs on disk, merged at the end.
//!
//! A record is `key length(4) value length(4) key value`. Of equal keys the last one pushed is kept.

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

/// What one record costs in memory besides its bytes.
const RECORD_OVERHEAD: usize = 64;
/// Buffer of each run while merging.
const RUN_BUFFER: usize = 128 << 10;

/// Takes records in any order.
pub(crate) struct Sorter {
    dir: PathBuf,
    limit: usize,
    held: Vec<(Slice, Slice)>,
    bytes: usize,
    runs: Vec<File>,
}

impl Sorter {
    /// Spills to unnamed files in `dir` beyond `limit` bytes.
    pub(crate) fn new(dir: &Path, limit: usize) -> Self {
        Self { dir: dir.to_owned(), limit, held: Vec::new(), bytes: 0, runs: Vec::new() }
    }

    pub(crate) fn push(&mut self, key: Slice, value: Slice) -> Result<(), StorageError> {
        self.bytes += key.len() + value.len() + RECORD_OVERHEAD;
        self.held.push((key, value));
        if self.bytes >= self.limit { self.spill() } else { Ok(()) }
    }

    /// True when everything is still in memory.
    pub(crate) fn in_memory(&self) -> bool {
        self.runs.is_empty()
    }

    fn spill(&mut self) -> Result<(), StorageError> {
        let map = || StorageError::io(format!("a sort file in {}", self.dir.display()));
        let mut file = unnamed_file(&self.dir).map_err(map())?;
        let mut out = BufWriter::with_capacity(RUN_BUFFER, &mut file);
        self.held.sort_by(|a, b| a.0.cmp(&b.0));
        let mut records = self.held.drain(..).peekable();
        while let Some((key, value)) = records.next() {
            if records.peek().is_some_and(|(next, _)| *next == key) {
                continue;
            }
            for len in [key.len(), value.len()] {
                let len = u32::try_from(len).unwrap_or(u32::MAX);
                out.write_all(&len.to_be_bytes()).map_err(map())?;
            }
            out.write_all(&key).map_err(map())?;
            out.write_all(&value).map_err(map())?;
        }
        drop(records);
        out.flush().map_err(map())?;
        drop(out);
        file.rewind().map_err(map())?;
        self.runs.push(file);
        self.bytes = 0;
        Ok(())
    }

    /// Everything in key order, each key once.
    pub(crate) fn finish(mut self) -> Result<Sorted, StorageError> {
        // A stable sort keeps equal keys in the order of their arrival.
        self.held.sort_by(|a, b| a.0.cmp(&b.0));
        let mut sources: Vec<Source> = self
            .runs
            .into_iter()
            .map(|file| Source::Run(BufReader::with_capacity(RUN_BUFFER, file)))
            .collect();
        sources.push(Source::Held(self.held.into_iter()));
        let mut sorted = Sorted { sources, heap: BinaryHeap::new(), failed: false };
        for at in 0..sorted.sources.len() {
            sorted.refill(at)?;
        }
        Ok(sorted)
    }
}

/// A file that goes with its handle.
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
    /// Smallest key first; of equal keys the later source first, which is the later push.
    heap: BinaryHeap<Reverse<(Slice, Reverse<usize>, Slice)>>,
    failed: bool,
}

enum Source {
    Run(BufReader<File>),
    Held(std::vec::IntoIter<(Slice, Slice)>),
}

impl Sorted {
    fn refill(&mut self, at: usize) -> Result<(), StorageError> {
        let Some(source) = self.sources.get_mut(at) else { return Ok(()) };
        if let Some((key, value)) = source.next_last()? {
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
    fn next_last(&mut self) -> Result<Option<(Slice, Slice)>, StorageError> {
        match self {
            Self::Held(held) => {
                // Equal keys of one source: the last counts.
                let Some(mut last) = held.next() else { return Ok(None) };
                while held.as_slice().first().is_some_and(|(next, _)| *next == last.0) {
                    if let Some(next) = held.next() {
                        last = next;
                    }
                }
                Ok(Some(last))
            }
            Self::Run(run) => read_record(run),
        }
    }
}

fn read_record(run: &mut BufReader<File>) -> Result<Option<(Slice, Slice)>, StorageError> {
    let map = || StorageError::io("a sort file");
    let mut lengths = [0u8; 8];
    match run.read_exact(&mut lengths) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(e) => return Err(map()(e)),
    }
    let (key_len, value_len) = lengths.split_at(4);
    let len = |bytes: &[u8]| {
        bytes.first_chunk().map_or(0, |b| usize::try_from(u32::from_be_bytes(*b)).unwrap_or(0))
    };
    let key = Slice::from_reader(run, len(key_len)).map_err(map())?;
    let value = Slice::from_reader(run, len(value_len)).map_err(map())?;
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
                let key = rng.random_range(0..1500u32).to_be_bytes();
                sorter.push(key.into(), n.to_be_bytes().into()).unwrap();
                model.insert(key.to_vec(), n.to_be_bytes().to_vec());
            }
            assert_eq!(sorter.in_memory(), limit == 1 << 30);
            // Runs of one source may repeat a key that a later run has too.
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
