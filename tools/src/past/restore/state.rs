//! The state file of a restore, which records its progress.

use std::{
    collections::BTreeMap,
    fs::{File, TryLockError},
    io::Write,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use bson::Bson;
use protocol::Timestamp;
use serde::{Deserialize, Serialize};

use crate::past::{canonical, from_json};

/// The state file and its content.
pub(super) struct State {
    path: PathBuf,
    kept: Kept,
    _alone: Alone,
}

/// Two restores with one file would each take the other's progress for its own.
struct Alone {
    path: PathBuf,
    _locked: File,
}

impl Alone {
    fn take(state: &Path) -> Result<Self> {
        let mut name = state.as_os_str().to_owned();
        name.push(".lock");
        let path = PathBuf::from(name);
        loop {
            let file = File::create(&path).with_context(|| format!("open {}", path.display()))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => bail!(
                    "another restore uses {}; wait for its end, or name another file with --state",
                    state.display()
                ),
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| format!("lock {}", path.display()));
                }
            }
            // Its last owner may have removed it since it was opened.
            let inode = |data: std::fs::Metadata| (data.dev(), data.ino());
            let ours = file.metadata().map(inode)?;
            if std::fs::metadata(&path).map(inode).is_ok_and(|now| now == ours) {
                return Ok(Self { path, _locked: file });
            }
        }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        // If the removal fails, the file does no harm.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Kept {
    /// The command line, without passwords and without options that may change between runs.
    command: String,
    ts: Option<u64>,
    collections: BTreeMap<String, Progress>,
}

#[derive(Default, Serialize, Deserialize)]
struct Progress {
    copied: u64,
    /// The `_id` of the last copied document, as extended JSON.
    last: Option<String>,
    /// The collection was created; it is empty or holds what was copied.
    created: bool,
    done: bool,
}

impl State {
    /// Loads the state that an earlier run left, if there is one.
    pub(super) fn load(path: &Path, command: &str) -> Result<Self> {
        let alone = Alone::take(path)?;
        let kept: Kept = match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| {
                format!(
                    "{} is not the state of a restore; name another with --state",
                    path.display()
                )
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Kept { command: command.to_owned(), ..Kept::default() }
            }
            Err(error) => {
                return Err(error).with_context(|| format!("read {}", path.display()));
            }
        };
        if kept.command != command {
            bail!(
                "{} is the state of another restore that did not end ({}); finish that, remove the file to give it \
                 up, or name another file with --state",
                path.display(),
                kept.command
            );
        }
        Ok(Self { path: path.to_owned(), kept, _alone: alone })
    }

    /// The moment that an earlier run of this restore has chosen.
    pub(super) fn ts(&self) -> Option<Timestamp> {
        self.kept.ts.map(Timestamp::from_u64)
    }

    pub(super) fn begin(&mut self, ts: Timestamp) -> Result<()> {
        self.kept.ts = Some(ts.as_u64());
        self.save()
    }

    pub(super) fn is_begun(&self, ns: &str) -> bool {
        self.kept.collections.contains_key(ns)
    }

    /// True if this restore created the collection, so all its content was copied by it.
    pub(super) fn is_created(&self, ns: &str) -> bool {
        self.kept.collections.get(ns).is_some_and(|progress| progress.created)
    }

    pub(super) fn is_done(&self, ns: &str) -> bool {
        self.kept.collections.get(ns).is_some_and(|progress| progress.done)
    }

    /// The number of copied documents, and the `_id` of the last one.
    pub(super) fn progress(&self, ns: &str) -> (u64, Option<Bson>) {
        let Some(progress) = self.kept.collections.get(ns) else { return (0, None) };
        (progress.copied, progress.last.as_deref().and_then(|text| from_json(text).ok()))
    }

    pub(super) fn note_begun(&mut self, ns: &str) -> Result<()> {
        self.kept.collections.insert(ns.to_owned(), Progress::default());
        self.save()
    }

    pub(super) fn note_created(&mut self, ns: &str) -> Result<()> {
        self.kept.collections.entry(ns.to_owned()).or_default().created = true;
        self.save()
    }

    pub(super) fn note_copied(&mut self, ns: &str, copied: u64, last: Option<Bson>) -> Result<()> {
        let progress = self.kept.collections.entry(ns.to_owned()).or_default();
        progress.copied = copied;
        progress.last = last.map(canonical);
        self.save()
    }

    pub(super) fn note_done(&mut self, ns: &str) -> Result<()> {
        self.kept.collections.entry(ns.to_owned()).or_default().done = true;
        self.save()
    }

    /// Removes the file after everything was restored.
    pub(super) fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.path).with_context(|| format!("remove {}", self.path.display()))
    }

    fn save(&self) -> Result<()> {
        let shown = || format!("write {}", self.path.display());
        let new = self.path.with_extension("new");
        let mut file = File::create(&new).with_context(shown)?;
        file.write_all(&serde_json::to_vec_pretty(&self.kept)?).with_context(shown)?;
        file.sync_all().with_context(shown)?;
        std::fs::rename(&new, &self.path).with_context(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_restore_at_a_time_uses_a_state_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("restore.state");
        let first = State::load(&path, "one").unwrap();
        let second = State::load(&path, "one").err().unwrap().to_string();
        assert!(second.contains("another restore uses"), "{second}");
        drop(first);
        let mut again = State::load(&path, "one").unwrap();
        again.begin(Timestamp::new(5, 1)).unwrap();
        again.remove().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    }
}
