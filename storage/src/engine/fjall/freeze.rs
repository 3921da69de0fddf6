//! Determines which files hold the store's state at one point, while writes continue.
//!
//! ```text
//!   flush all | writers wait: flush the rest, note every tree's version, take a snapshot | writers go on
//!                                                  |
//!                              files that nothing changes any more, held until the copy is done
//! ```
//!
//! Tables and blob files are written once and removed when the last version that lists them is dropped. So whoever
//! holds a version can read its files for as long as it likes. Since every memtable has been flushed, the copy's
//! journal is an empty file of its own. No other file is ever changed in place, so copies may share them by hard
//! links.

use std::{any::Any, ops::Deref, path::Path, time::Instant};

use fjall::AbstractTree;

use super::{Fjall, Seal, versions::newest_in};
use crate::{
    StorageError,
    engine::{
        Content, Engine, Frozen, FrozenFile,
        damage::{self, Damaged},
    },
};

/// How often to try again if a compaction changes a tree's version while its files are listed.
const LOOKS_MAX: u32 = 1_000;

impl Fjall {
    pub(super) fn freeze_files(&self) -> Result<Frozen, StorageError> {
        // Flushes most of the data before writers are blocked.
        self.flush_all(&|ks| self.seal(ks))?;
        let still = self.writers.write();
        let since = Instant::now();
        self.flush_all(&|ks| self.seal_alone(ks))?;
        if self.keyspaces.iter().any(|ks| ks.tree.active_memtable().size() > 0) {
            let why = "a memtable is not empty although nobody writes";
            return Err(StorageError::corrupt(self.place.path.display().to_string(), why));
        }
        let snapshot = self.snapshot();
        let mut files = Vec::new();
        let held = self
            .keyspaces
            .iter()
            .map(|ks| self.freeze_tree(&ks.tree, &mut files))
            .collect::<Result<Vec<_>, _>>()?;
        let paused = since.elapsed();
        drop(still);
        self.freeze_names(&mut files)?;
        files.push(self.small_file(&self.place.path.join("version"))?);
        // The engine opens its lock file without creating it. Without a journal it would restart its sequence
        // numbers.
        for name in ["lock", "0.jnl"] {
            let content = Content::Bytes(Vec::new());
            files.push(FrozenFile { name: name.to_owned(), content });
        }
        Ok(Frozen { snapshot, files, paused, _held: Box::new(held) })
    }

    fn flush_all(&self, seal: Seal<'_>) -> Result<(), StorageError> {
        for ks in &self.keyspaces {
            seal(ks)?;
        }
        self.write_out(0, seal)
    }

    /// Adds the files of a tree's current version. The returned value keeps the engine from removing them.
    fn freeze_tree(
        &self,
        tree: &fjall::AnyTree,
        files: &mut Vec<FrozenFile>,
    ) -> Result<Box<dyn Any + Send>, StorageError> {
        let folder = &tree.tree_config().path;
        for _ in 0..LOOKS_MAX {
            let version = tree.current_version();
            let Some(manifest) = self.version_files(folder, version.id())? else { continue };
            files.extend(manifest);
            for table in version.iter_tables() {
                let sum = table.checksum().into_u128();
                files.push(self.held_file(&table.deref().path, Some(sum))?);
            }
            for blobs in version.blob_files.iter() {
                files.push(self.held_file(blobs.path(), Some(blobs.checksum().into_u128()))?);
            }
            return Ok(Box::new(version));
        }
        let why = "its versions change too fast to be read";
        Err(StorageError::corrupt(folder.display().to_string(), why))
    }

    /// The file `current` and the manifest that it names, if that is still version `id`.
    fn version_files(
        &self,
        folder: &Path,
        id: u64,
    ) -> Result<Option<[FrozenFile; 2]>, StorageError> {
        let current = self.small_file(&folder.join("current"))?;
        if current_id(&current) != Some(id) {
            return Ok(None);
        }
        let manifest = folder.join(format!("v{id}"));
        let file = self.small_file(&manifest)?;
        if let (Content::Bytes(current), Content::Bytes(content)) =
            (&current.content, &file.content)
            && !damage::vouches(current, content)
        {
            let why = "its checksum is wrong";
            return Err(StorageError::corrupt(manifest.display().to_string(), why));
        }
        Ok(Some([current, file]))
    }

    /// Adds the files of the tree that holds the names and options of keyspaces. Nothing changes that tree after
    /// open.
    fn freeze_names(&self, files: &mut Vec<FrozenFile>) -> Result<(), StorageError> {
        let folder = self.place.path.join("keyspaces/0");
        let current = self.small_file(&folder.join("current"))?;
        let damaged =
            |found: Damaged| StorageError::corrupt(found.file.display().to_string(), found.why);
        if let Content::Bytes(bytes) = &current.content {
            for file in damage::named(&folder, bytes).map_err(damaged)? {
                files.push(self.held_file(&file.path, Some(file.sum))?);
            }
        }
        let id = current_id(&current).ok_or_else(|| {
            StorageError::corrupt(folder.display().to_string(), "its current version")
        })?;
        files.push(current);
        files.push(self.small_file(&folder.join(format!("v{id}")))?);
        Ok(())
    }

    fn small_file(&self, path: &Path) -> Result<FrozenFile, StorageError> {
        let content = std::fs::read(path).map_err(StorageError::io(path.display().to_string()))?;
        Ok(FrozenFile { name: self.name_of(path)?, content: Content::Bytes(content) })
    }

    fn held_file(&self, path: &Path, sum: Option<u128>) -> Result<FrozenFile, StorageError> {
        let content = Content::File { path: path.to_owned(), sum };
        Ok(FrozenFile { name: self.name_of(path)?, content })
    }

    fn name_of(&self, path: &Path) -> Result<String, StorageError> {
        let outside =
            || StorageError::corrupt(path.display().to_string(), "it lies outside of the engine");
        let name =
            path.strip_prefix(&self.place.path).ok().and_then(Path::to_str).ok_or_else(outside)?;
        Ok(name.to_owned())
    }
}

fn current_id(current: &FrozenFile) -> Option<u64> {
    match &current.content {
        Content::Bytes(bytes) => newest_in(bytes),
        Content::File { .. } => None,
    }
}
