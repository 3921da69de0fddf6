//! Spills data that exceeds the memory limit to files in `_tmp` below the data directory.
//!
//! A file is unlinked as soon as it is created: the system frees it with its last use. Files that a crash left in
//! between are removed at the next start.

use std::{
    fs::{self, File},
    io::{BufReader, BufWriter, Read, Seek, Write},
    path::{Path, PathBuf},
};

use protocol::{ErrorCode, RawDoc};
use query::{
    QueryError,
    context::{Spill, SpilledRun},
};
use uuid::Uuid;

/// The directory name, as in mongod.
const DIR: &str = "_tmp";

/// Removes files that an earlier process left.
pub fn clear(dbpath: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(dbpath.join(DIR)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Files below a data directory.
pub struct DiskSpill {
    dir: PathBuf,
}

impl DiskSpill {
    /// In `_tmp` of this directory.
    pub fn below(dbpath: &Path) -> Self {
        Self { dir: dbpath.join(DIR) }
    }

    fn nameless_file(&self) -> std::io::Result<File> {
        fs::create_dir_all(&self.dir)?;
        let path = self.dir.join(format!("spill-{}", Uuid::new_v4()));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        fs::remove_file(&path)?;
        Ok(file)
    }

    fn write_all(&self, docs: &mut dyn Iterator<Item = RawDoc>) -> std::io::Result<Run> {
        let mut writer = BufWriter::new(self.nameless_file()?);
        let mut left = 0;
        for doc in docs {
            writer.write_all(doc.as_bytes())?;
            left += 1;
        }
        let mut file = writer.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        file.rewind()?;
        Ok(Run { reader: BufReader::new(file), left })
    }
}

impl Spill for DiskSpill {
    fn write(
        &self,
        docs: &mut dyn Iterator<Item = RawDoc>,
    ) -> Result<Box<dyn SpilledRun>, QueryError> {
        Ok(Box::new(self.write_all(docs).map_err(failed)?))
    }
}

/// Consecutive documents; each begins with its length.
#[derive(Debug)]
struct Run {
    reader: BufReader<File>,
    left: u64,
}

impl Run {
    fn read(&mut self) -> std::io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.reader.read_exact(&mut length)?;
        let rest = u32::from_le_bytes(length).saturating_sub(4);
        let mut bytes = length.to_vec();
        self.reader.by_ref().take(u64::from(rest)).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

impl SpilledRun for Run {
    fn next(&mut self) -> Result<Option<RawDoc>, QueryError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let bytes = self.read().map_err(failed)?;
        let doc = RawDoc::new(bytes.into())
            .map_err(|error| QueryError::new(ErrorCode::InvalidBSON, error.to_string()))?;
        Ok(Some(doc))
    }
}

fn failed(error: std::io::Error) -> QueryError {
    let text = format!("cannot spill to disk: {error}; see that the data directory has room");
    QueryError::new(ErrorCode::OutOfDiskSpace, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_come_back_in_their_order_and_leave_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let spill = DiskSpill::below(dir.path());
        let docs: Vec<RawDoc> =
            (0..1000).map(|n| bson::rawdoc! { "n": n, "t": "x".repeat(500) }.into()).collect();
        let mut run = spill.write(&mut docs.clone().into_iter()).unwrap();
        assert_eq!(fs::read_dir(dir.path().join(DIR)).unwrap().count(), 0);
        for doc in docs {
            assert_eq!(run.next().unwrap().unwrap().as_bytes(), doc.as_bytes());
        }
        assert!(run.next().unwrap().is_none());
        clear(dir.path()).unwrap();
        assert!(!dir.path().join(DIR).exists());
        clear(dir.path()).unwrap();
    }
}
