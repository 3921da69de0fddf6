//! Writes rollback files where mongod's tools look for them.
//!
//! ```text
//!   <dbpath>/rollback/<collection UUID>/removed.<time, UTC>.<n>.bson    documents in their last lost version
//!                                       removed.<time, UTC>.<n>.json    the name of the collection, and the branch
//!   <dbpath>/rollback/local.oplog.rs/removed.<time, UTC>.<n>.bson       the lost entries, newest first (8.x)
//! ```
//!
//! `n` counts the files of one rollback. mongod shows only in its log which collection a UUID belongs to; the JSON
//! file contains the name.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{self, BufWriter, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use protocol::{OpTime, RawDoc};
use storage::{LostDocument, StorageError};

use super::log;

/// The facts about the rollback that the JSON files contain.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    pub(super) rbid: i32,
    pub(super) common: OpTime,
    pub(super) last: OpTime,
}

/// The files of one rollback.
pub(super) struct Files {
    directory: PathBuf,
    time: String,
    about: About,
    next: u32,
    open: Option<Open>,
}

/// The file that is being written.
struct Open {
    /// The name of its directory below `rollback`: a UUID, or `local.oplog.rs`.
    place: String,
    ns: String,
    path: PathBuf,
    file: BufWriter<File>,
    documents: u64,
}

/// Collections that every member derives from the oplog. Their documents were not written by clients, so they are not
/// saved.
const DERIVED: [&str; 3] =
    ["config.transactions", "config.image_collection", "config.system.preimages"];
/// The directory for the lost oplog entries.
const OPLOG: &str = "local.oplog.rs";
/// The extension of a file until it is complete: tools cannot read part of a BSON file.
const UNFINISHED: &str = "unfinished";

impl Files {
    pub(super) fn new(directory: &Path, now: bson::DateTime, about: About) -> Self {
        let text = now.try_to_rfc3339_string().unwrap_or_default();
        let time = text.get(..19).unwrap_or("unknown").replace(':', "-");
        Self { directory: directory.to_owned(), time, about, next: 0, open: None }
    }

    pub(super) fn common(&self) -> OpTime {
        self.about.common
    }

    pub(super) fn take_entry(&mut self, entry: &RawDoc) -> Result<(), StorageError> {
        self.write(OPLOG, OPLOG, entry)
    }

    /// Saves a lost document. The documents of a collection must come one after the other.
    pub(super) fn take(&mut self, lost: &LostDocument) -> Result<(), StorageError> {
        let ns = lost.ns.as_str();
        if DERIVED.contains(&ns) {
            return Ok(());
        }
        self.write(&lost.uuid.to_string(), ns, &lost.doc)
    }

    fn write(&mut self, place: &str, ns: &str, doc: &RawDoc) -> Result<(), StorageError> {
        if self.open.as_ref().is_none_or(|open| open.place != place) {
            self.close()?;
            self.open = Some(self.begin(place, ns)?);
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        open.documents += 1;
        let shown = open.path.display().to_string();
        open.file.write_all(doc.as_bytes()).map_err(StorageError::io(shown))
    }

    fn begin(&mut self, place: &str, ns: &str) -> Result<Open, StorageError> {
        let dir = self.directory.join(place);
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(at(&dir))?;
        let path = dir.join(format!("removed.{}.{}.bson", self.time, self.next));
        self.next += 1;
        if place != OPLOG {
            log::file(ns, place, &path);
        }
        let unfinished = path.with_extension(UNFINISHED);
        let file = BufWriter::new(create(&unfinished).map_err(at(&unfinished))?);
        let (place, ns) = (place.to_owned(), ns.to_owned());
        Ok(Open { place, ns, path, file, documents: 0 })
    }

    fn close(&mut self) -> Result<(), StorageError> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let synced = open.file.flush().and_then(|()| open.file.get_ref().sync_all());
        synced.map_err(at(&open.path))?;
        let unfinished = open.path.with_extension(UNFINISHED);
        std::fs::rename(&unfinished, &open.path).map_err(at(&unfinished))?;
        let names = open.path.with_extension("json");
        let text = self.names(&open);
        let written = create(&names)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
        written.map_err(at(&names))?;
        let dir = self.directory.join(&open.place);
        sync_dir(&dir).map_err(at(&dir))
    }

    fn names(&self, open: &Open) -> String {
        let About { rbid, common, last } = self.about;
        format!(
            "{{\"namespace\":{},\"uuid\":{},\"documents\":{},\"rollbackId\":{rbid},\"commonPoint\":{},\"lastOptimeRolledBack\":{}}}\n",
            log::quoted(&open.ns),
            log::quoted(&open.place),
            open.documents,
            log::op_time(common),
            log::op_time(last),
        )
    }

    /// Completes the files. They and their directories are on disk when this returns.
    pub(super) fn finish(mut self) -> Result<(), StorageError> {
        self.close()?;
        if self.next > 0 {
            let parent = self.directory.parent().unwrap_or(&self.directory);
            for dir in [self.directory.as_path(), parent] {
                sync_dir(dir).map_err(at(dir))?;
            }
        }
        Ok(())
    }
}

/// Creates or overwrites a file: an interrupted rollback may have left one of the same second.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> StorageError {
    StorageError::io(path.display().to_string())
}
