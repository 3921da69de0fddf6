//! The state file of a restore, which records its progress.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Write,
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
        Ok(Self { path: path.to_owned(), kept })
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
