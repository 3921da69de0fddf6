//! A simulated unreliable disk below the real binary.
//!
//! ```text
//!   server --- libc calls ---> unreliable.so (preloaded) ---> file system
//!                                   |
//!                                   +--> notes: each change with the data that undoes it, each sync
//!   kill -9, then Disk::lose_power: each unsynced change is kept, lost or torn by sectors, at random
//! ```
//!
//! D1 Data whose sync was reported as done is never lost, unless the plan makes syncs lie.
//! D2 Each sector of 512 bytes is lost independently; unsynced writes may be lost in any order.
//! D3 Changes of directories survive in order: as on a journalling file system, only the last ones are lost. A change
//!    survives if its directory was synced after it.

mod notes;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};
use rand::RngExt;
use rand::rngs::StdRng;

use self::notes::{Kind, Note};

const SECTOR: usize = 512;

/// The faults while the program runs. Each number n means one call in n, 0 means never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// The seed of the random numbers.
    pub seed: u64,
    /// Writes that write fewer bytes than requested.
    pub short: u32,
    /// Writes that a signal interrupts.
    pub interrupted: u32,
    /// Syncs that report success but do nothing.
    pub lying_sync: u32,
    /// Writes that fail with EIO.
    pub failed_write: u32,
    /// Writes that fail with ENOSPC.
    pub full: u32,
    /// Syncs that fail with EIO.
    pub failed_sync: u32,
}

/// The unreliable disk below a directory.
#[derive(Debug)]
pub struct Disk {
    root: PathBuf,
    notes: PathBuf,
}

/// What a power cut destroyed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Sectors that were reset to their last synced content.
    pub sectors: u64,
    /// Files that lost at least one sector.
    pub files: u64,
    /// Creations, renames and removals that were undone.
    pub entries: u64,
}

impl Disk {
    /// A disk below `root`. Its notes are kept in `notes`, on the same file system.
    pub fn below(root: &Path, notes: &Path) -> Result<Self> {
        fs::create_dir_all(notes).context("create the directory for notes")?;
        let root = root.canonicalize().context("find the directory")?;
        Ok(Self { root, notes: notes.to_owned() })
    }

    /// The environment variables for a program that uses this disk.
    pub fn environment(&self, plan: Plan) -> Result<Vec<(String, String)>> {
        let Plan { seed, short, interrupted, lying_sync, failed_write, full, failed_sync } = plan;
        let plan = format!(
            "seed={seed} short={short} eintr={interrupted} lie={lying_sync} eio={failed_write} \
             enospc={full} syncfail={failed_sync}"
        );
        let text = |path: &Path| path.display().to_string();
        Ok(vec![
            ("LD_PRELOAD".into(), text(library()?)),
            ("UNRELIABLE_ROOT".into(), text(&self.root)),
            ("UNRELIABLE_NOTES".into(), text(&self.notes)),
            ("UNRELIABLE_PLAN".into(), plan),
        ])
    }

    /// Simulates a power cut. The program must have ended before.
    pub fn lose_power(&self, rng: &mut StdRng) -> Result<Lost> {
        let notes = notes::read(&self.notes.join("notes"))?;
        let mut lost = Lost { entries: self.lose_entries(&notes, rng)?, ..Lost::default() };
        let places = places(&self.root)?;
        for (inode, changes) in unsynced(&notes) {
            // The file was removed, so it has nothing to lose.
            let Some(path) = places.get(&inode) else { continue };
            let sectors = lose_sectors(path, &changes, rng)
                .with_context(|| format!("lose a part of {}", path.display()))?;
            lost.sectors += sectors;
            lost.files += u64::from(sectors > 0);
        }
        self.forget()?;
        Ok(lost)
    }

    /// Discards the notes, so that all changes are kept: the program ended without a power cut.
    pub fn forget(&self) -> Result<()> {
        for entry in fs::read_dir(&self.notes)? {
            fs::remove_file(entry?.path())?;
        }
        Ok(())
    }

    /// Undoes some of the last changes of directories (D3).
    fn lose_entries(&self, notes: &[Note], rng: &mut StdRng) -> Result<u64> {
        let changes: Vec<&Note> = notes.iter().filter(|note| note.kind.is_entry()).collect();
        let kept =
            if rng.random_bool(0.5) { changes.len() } else { rng.random_range(0..=changes.len()) };
        let mut undone = 0;
        for change in changes.iter().skip(kept).rev() {
            if is_entry_synced(change, notes) {
                continue;
            }
            self.undo(change).with_context(|| format!("undo {change:?}"))?;
            undone += 1;
        }
        Ok(undone)
    }

    fn undo(&self, change: &Note) -> Result<()> {
        let backup = || self.notes.join(format!("{}-{}", change.offset, change.backup));
        match change.kind {
            Kind::Create => remove(&change.path),
            Kind::Rename => {
                if change.other.exists() {
                    fs::rename(&change.other, &change.path)?;
                }
                if change.backup > 0 {
                    fs::rename(backup(), &change.other)?;
                }
                Ok(())
            }
            Kind::Unlink if change.backup > 0 => Ok(fs::rename(backup(), &change.path)?),
            Kind::MakeDir => {
                // Files created in it later have been removed before, unless they were synced.
                let _ = fs::remove_dir(&change.path);
                Ok(())
            }
            Kind::RemoveDir => Ok(fs::create_dir_all(&change.path)?),
            Kind::Unlink | Kind::Write | Kind::Length | Kind::Sync | Kind::SyncDir => Ok(()),
        }
    }
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// True if the directory was synced after the change.
fn is_entry_synced(change: &Note, notes: &[Note]) -> bool {
    let place = if change.kind == Kind::Rename { &change.other } else { &change.path };
    notes.iter().any(|note| {
        note.kind == Kind::SyncDir
            && note.seq >= change.seq
            && Some(note.path.as_path()) == place.parent()
    })
}

/// The changes of each file since its last sync, oldest first.
fn unsynced(notes: &[Note]) -> BTreeMap<u64, Vec<&Note>> {
    let mut open: BTreeMap<u64, Vec<&Note>> = BTreeMap::new();
    for note in notes {
        match note.kind {
            Kind::Write | Kind::Length => open.entry(note.inode).or_default().push(note),
            Kind::Sync => {
                if let Some(changes) = open.get_mut(&note.inode) {
                    changes.retain(|change| change.seq > note.seq);
                }
            }
            _ => {}
        }
    }
    open.retain(|_, changes| !changes.is_empty());
    open
}

/// Resets some sectors to their content at the last sync (D2). Returns their number.
fn lose_sectors(path: &Path, changes: &[&Note], rng: &mut StdRng) -> Result<u64> {
    let now = fs::read(path)?;
    let synced = at_last_sync(&now, changes);
    let sectors = now.len().max(synced.len()).div_ceil(SECTOR);
    let loses = fate(changes, sectors, rng);
    let mut then = vec![0; sectors * SECTOR];
    let mut end = 0;
    let mut lost = 0;
    for (sector, loses) in loses.into_iter().enumerate() {
        let from = if loses { &synced } else { &now };
        let start = sector * SECTOR;
        let bytes = from.get(start..).unwrap_or_default();
        let bytes = bytes.get(..SECTOR).unwrap_or(bytes);
        if let Some(place) = then.get_mut(start..start + bytes.len()) {
            place.copy_from_slice(bytes);
        }
        if !bytes.is_empty() {
            end = start + bytes.len();
        }
        let other = if loses { &now } else { &synced };
        let other = other.get(start..).unwrap_or_default();
        lost += u64::from(loses && other.get(..SECTOR).unwrap_or(other) != bytes);
    }
    then.truncate(end);
    if lost > 0 {
        fs::write(path, &then)?;
    }
    Ok(lost)
}

/// Chooses the sectors to lose: none, all, those that only the last writes changed, or random ones.
fn fate(changes: &[&Note], sectors: usize, rng: &mut StdRng) -> Vec<bool> {
    match rng.random_range(0..4) {
        0 => vec![false; sectors],
        1 => vec![true; sectors],
        2 => {
            let kept = rng.random_range(0..=changes.len());
            let mut loses = vec![true; sectors];
            for change in changes.iter().take(kept) {
                let start = usize::try_from(change.offset).unwrap_or(usize::MAX) / SECTOR;
                let len = usize::try_from(change.offset % SECTOR as u64 + change.len).unwrap_or(0);
                for sector in start..start + len.div_ceil(SECTOR) {
                    if let Some(loses) = loses.get_mut(sector) {
                        *loses = false;
                    }
                }
            }
            loses
        }
        _ => (0..sectors).map(|_| rng.random_bool(0.5)).collect(),
    }
}

/// The content of the file at its last sync.
fn at_last_sync(now: &[u8], changes: &[&Note]) -> Vec<u8> {
    let mut bytes = now.to_vec();
    for change in changes.iter().rev() {
        let at = usize::try_from(change.offset.min(change.old_len)).unwrap_or(usize::MAX);
        bytes.resize(usize::try_from(change.old_len).unwrap_or(usize::MAX), 0);
        if let Some(place) = bytes.get_mut(at..at + change.bytes.len()) {
            place.copy_from_slice(&change.bytes);
        }
    }
    bytes
}

/// The path of each file below a directory, by inode.
fn places(root: &Path) -> Result<BTreeMap<u64, PathBuf>> {
    use std::os::unix::fs::MetadataExt;
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).with_context(|| format!("list {}", dir.display()))? {
            let entry = entry?;
            let meta = entry.metadata()?;
            if meta.is_dir() {
                open.push(entry.path());
            } else {
                found.insert(meta.ino(), entry.path());
            }
        }
    }
    Ok(found)
}

/// Builds the library once per process, with the system's C compiler.
fn library() -> Result<&'static Path> {
    static BUILT: OnceLock<Result<(tempfile::TempDir, PathBuf), String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    match built {
        Ok((_, path)) => Ok(path),
        Err(error) => anyhow::bail!("build unreliable.so: {error}"),
    }
}

fn build() -> Result<(tempfile::TempDir, PathBuf)> {
    let dir = tempfile::tempdir()?;
    let source = dir.path().join("unreliable.c");
    fs::write(&source, include_str!("disk/unreliable.c"))?;
    let library = dir.path().join("unreliable.so");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(compiler)
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(&source)
        .args(["-ldl", "-lpthread"])
        .output()
        .context("run the C compiler (the variable CC names another one)")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok((dir, library))
}

#[cfg(test)]
mod tests;
