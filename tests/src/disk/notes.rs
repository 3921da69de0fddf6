//! Parses the notes of unreliable.so: the changes, the data that undoes them, and the syncs.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};

/// The kind of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Write,
    Length,
    Sync,
    Create,
    Rename,
    Unlink,
    MakeDir,
    RemoveDir,
    SyncDir,
}

impl Kind {
    /// True for changes of directory entries.
    pub(super) fn is_entry(self) -> bool {
        matches!(self, Self::Create | Self::Rename | Self::Unlink | Self::MakeDir | Self::RemoveDir)
    }
}

/// A note. unreliable.c documents the numbers.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) kind: Kind,
    pub(super) seq: u64,
    pub(super) inode: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) old_len: u64,
    pub(super) backup: u64,
    pub(super) path: PathBuf,
    pub(super) other: PathBuf,
    pub(super) bytes: Vec<u8>,
}

/// Reads all notes. The last one may be incomplete; then its change was not made.
pub(super) fn read(path: &Path) -> Result<Vec<Note>> {
    let content = match fs::read(path) {
        Ok(content) => content,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).context("read the notes"),
    };
    let mut rest = content.as_slice();
    let mut notes = Vec::new();
    while !rest.is_empty() {
        match take(&mut rest)? {
            Some(note) => notes.push(note),
            None => break,
        }
    }
    Ok(notes)
}

const HEAD: usize = 72;

fn take(rest: &mut &[u8]) -> Result<Option<Note>> {
    let Some(head) = rest.get(..HEAD) else { return Ok(None) };
    let long = |at: usize| -> Result<u64> {
        let bytes = head.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        Ok(u64::from_ne_bytes(bytes.ok_or_else(|| anyhow!("a note without its numbers"))?))
    };
    let kind = match head.first() {
        Some(b'W') => Kind::Write,
        Some(b'T') => Kind::Length,
        Some(b'S') => Kind::Sync,
        Some(b'C') => Kind::Create,
        Some(b'R') => Kind::Rename,
        Some(b'U') => Kind::Unlink,
        Some(b'M') => Kind::MakeDir,
        Some(b'X') => Kind::RemoveDir,
        Some(b'D') => Kind::SyncDir,
        other => bail!("no note begins with {other:?}"),
    };
    let lens = long(56)?;
    let (path_len, other_len) = (lens & u64::from(u32::MAX), lens >> 32);
    let lens =
        [path_len, other_len, long(64)?].map(|len| usize::try_from(len).unwrap_or(usize::MAX));
    let mut at = HEAD;
    let mut parts = Vec::new();
    for len in lens {
        let Some(part) = rest.get(at..at.saturating_add(len)) else { return Ok(None) };
        parts.push(part);
        at += len;
    }
    let [path, other, bytes] = parts.as_slice() else { bail!("a note without its parts") };
    let place = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
    let note = Note {
        kind,
        seq: long(8)?,
        inode: long(16)?,
        offset: long(24)?,
        len: long(32)?,
        old_len: long(40)?,
        backup: long(48)?,
        path: place(path),
        other: place(other),
        bytes: bytes.to_vec(),
    };
    *rest = rest.get(at..).unwrap_or_default();
    Ok(Some(note))
}
