//! Finds out which of the engine's files is damaged.
//!
//! The engine reports that a checksum is wrong, but not in which file. Its manifests list every file with the
//! checksum of its whole content, so reading all files finds the damaged one. That happens only once, when the node
//! has to stop anyway.
//!
//! ```text
//!   keyspaces/<n>/current       number of the manifest(8) ++ its checksum(16) ++ kind(1)
//!   keyspaces/<n>/v<number>     the manifest, an archive of sections:
//!       tables                  levels(1), of each: runs(1), of each: tables(4), of each: file ++ sequence number(8)
//!       blob_files              files(4), of each: file
//!       file:                   id(8) ++ kind(1) ++ checksum(16)
//!   keyspaces/<n>/tables/<id>   keyspaces/<n>/blobs/<id>
//! ```
//!
//! All numbers are little-endian.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use xxhash_rust::xxh3::Xxh3;

/// A file whose content is not what the engine wrote.
#[derive(Debug)]
pub(super) struct Damaged {
    pub(super) file: PathBuf,
    pub(super) why: String,
}

impl Damaged {
    pub(super) fn new(file: &Path, why: impl ToString) -> Self {
        Self { file: file.to_owned(), why: why.to_string() }
    }
}

/// The first damaged file of an engine's directory, if there is one among the files that have a checksum.
pub(super) fn find(engine: &Path) -> Option<Damaged> {
    let keyspaces = engine.join("keyspaces");
    let entries = match std::fs::read_dir(&keyspaces) {
        Ok(entries) => entries,
        Err(error) => return Some(Damaged::new(&keyspaces, error)),
    };
    let mut dirs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    dirs.sort();
    dirs.iter().find_map(|dir| check_while_it_stands(dir).err())
}

/// Checks a keyspace. Compaction may replace the manifest while its files are being read; then the check starts
/// again.
fn check_while_it_stands(dir: &Path) -> Result<(), Damaged> {
    let current = dir.join("current");
    loop {
        let before = read(&current)?;
        let found = check_keyspace(dir, &before);
        if found.is_ok() || read(&current)? == before {
            return found;
        }
    }
}

fn check_keyspace(dir: &Path, current: &[u8]) -> Result<(), Damaged> {
    named(dir, current)?.iter().try_for_each(|file| check(&file.path, file.sum))
}

/// A file that a manifest lists.
pub(super) struct Named {
    pub(super) path: PathBuf,
    pub(super) sum: u128,
    /// For tables: the number that is added to the sequence numbers of the table's rows. Tables from a bulk ingest
    /// use it.
    pub(super) global: Option<u64>,
}

/// The files that a keyspace's manifest lists. Checks the manifest itself.
pub(super) fn named(dir: &Path, current: &[u8]) -> Result<Vec<Named>, Damaged> {
    let mut reader = Little(current);
    let (Ok(number), Ok(sum)) = (reader.u64(), reader.u128()) else {
        return Err(Damaged::new(&dir.join("current"), "it is cut short"));
    };
    let manifest = dir.join(format!("v{number}"));
    check(&manifest, sum)?;
    files(dir, &manifest).map_err(|why| Damaged::new(&manifest, why))
}

/// True if `current` holds the checksum of this manifest.
pub(super) fn vouches(current: &[u8], manifest: &[u8]) -> bool {
    let mut reader = Little(current);
    let sum = reader.u64().and_then(|_| reader.u128());
    sum.is_ok_and(|sum| sum == xxhash_rust::xxh3::xxh3_128(manifest))
}

fn files(dir: &Path, manifest: &Path) -> Result<Vec<Named>, sfa::Error> {
    let archive = sfa::Reader::new(manifest)?;
    let section = |name: &[u8]| -> Result<_, sfa::Error> {
        let section = archive.toc().section(name);
        let section = section.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Little(section.buf_reader(manifest)?))
    };
    let mut out = Vec::new();
    let mut tables = section(b"tables")?;
    for _ in 0..tables.u8()? {
        for _ in 0..tables.u8()? {
            for _ in 0..tables.u32()? {
                let (id, sum) = tables.file()?;
                let global = Some(tables.u64()?);
                out.push(Named { path: dir.join("tables").join(id), sum, global });
            }
        }
    }
    let mut blobs = section(b"blob_files")?;
    for _ in 0..blobs.u32()? {
        let (id, sum) = blobs.file()?;
        out.push(Named { path: dir.join("blobs").join(id), sum, global: None });
    }
    Ok(out)
}

/// Reads a file and compares it with its checksum.
pub(super) fn check(file: &Path, sum: u128) -> Result<(), Damaged> {
    check_at_pace(file, sum, &mut |_| true)
}

/// Like [`check`], but calls `pace` with the number of bytes of each part read. If `pace` returns false, the check
/// stops and reports no damage.
pub(super) fn check_at_pace(
    file: &Path,
    sum: u128,
    pace: &mut dyn FnMut(u64) -> bool,
) -> Result<(), Damaged> {
    let damaged = |error| Damaged::new(file, error);
    let mut input = File::open(file).map_err(damaged)?;
    let mut hasher = Xxh3::new();
    let mut part = vec![0; 1 << 16];
    loop {
        let len = input.read(&mut part).map_err(damaged)?;
        match part.get(..len) {
            Some(read) if len > 0 => hasher.update(read),
            _ => break,
        }
        if !pace(len as u64) {
            return Ok(());
        }
    }
    if hasher.digest128() == sum {
        return Ok(());
    }
    Err(Damaged::new(file, "its checksum is wrong"))
}

pub(super) fn read(file: &Path) -> Result<Vec<u8>, Damaged> {
    std::fs::read(file).map_err(|error| Damaged::new(file, error))
}

struct Little<R>(R);

impl<R: Read> Little<R> {
    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut out = [0; N];
        self.0.read_exact(&mut out)?;
        Ok(out)
    }

    fn u8(&mut self) -> io::Result<u8> {
        self.bytes().map(u8::from_le_bytes)
    }

    fn u32(&mut self) -> io::Result<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> io::Result<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> io::Result<u128> {
        self.bytes().map(u128::from_le_bytes)
    }

    /// The name and checksum of a file.
    fn file(&mut self) -> io::Result<(String, u128)> {
        let id = self.u64()?;
        self.u8()?;
        Ok((id.to_string(), self.u128()?))
    }
}
