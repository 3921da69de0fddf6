//! An online copy that a second process can open.
//!
//! The engine copies one snapshot of itself by bulk ingestion, keyspace by keyspace, while writes go on; a batch is
//! in the copy whole or not at all. Hard links of the engine's files would be faster, but its blob files and version
//! switches make them safe only with every writer stopped, and a copy that is used once a day can take its time.

use std::path::Path;

use crate::{StorageError, Store, engine::EngineKind, node_files};

impl Store {
    /// Copies the store as it stands into a new directory. `applied` of the copy is that of a batch boundary, and
    /// its oplog may reach further: it is replayed when the copy is opened.
    pub fn checkpoint(&self, into: &Path) -> Result<(), StorageError> {
        let shown = || into.display().to_string();
        if into.exists() {
            let why = "it exists already".to_owned();
            return Err(StorageError::NotOurs { path: into.to_owned(), why });
        }
        // Made under another name: what stands at `into` is whole.
        let unfinished = into.with_extension("unfinished");
        if unfinished.exists() {
            std::fs::remove_dir_all(&unfinished).map_err(StorageError::io(shown()))?;
        }
        std::fs::create_dir_all(&unfinished).map_err(StorageError::io(shown()))?;
        node_files::check_format(&unfinished, EngineKind::Fjall)?;
        if let Some(vote) = self.vote()? {
            node_files::write_vote(&unfinished, &vote)?;
        }
        self.0.engine.checkpoint(&unfinished.join("engine"))?;
        node_files::sync_dir(&unfinished)?;
        std::fs::rename(&unfinished, into).map_err(StorageError::io(shown()))?;
        node_files::sync_dir(into.parent().unwrap_or(into))
    }
}
