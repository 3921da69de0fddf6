//! The manifest of a backup: JSON lines. The first describes the backup, then comes one per file, and the last is a
//! checksum of the lines before it.

use std::{
    io,
    path::{Path, PathBuf},
};

use protocol::{OpTime, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{BackupError, files};

/// Name of the manifest file.
pub(crate) const NAME: &str = "MANIFEST";
/// Format version of the manifest.
const VERSION: u32 = 1;

/// A complete backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Format version of the store.
    pub format: u32,
    /// The storage engine.
    pub engine: String,
    /// Name of the replica set.
    pub set: String,
    /// The last applied entry.
    pub optime: OpTime,
    /// Wall clock time of that entry.
    pub wall_millis: i64,
    /// The last entry of the oplog. Entries after `optime` are applied at the next start.
    pub oplog_top: Timestamp,
    /// The oldest timestamp that can be read.
    pub oldest: Timestamp,
    /// The earlier backup that it shares files with.
    pub since: Option<PathBuf>,
    /// Every file.
    pub files: Vec<FileEntry>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileEntry {
    /// Path relative to the backup's directory.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of its content, in hexadecimal.
    pub sha256: String,
    /// The engine's checksum of an immutable file: by it the next backup recognises the file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub engine_sum: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Head {
    understudy_backup: u32,
    format: u32,
    engine: String,
    set: String,
    ts: [u32; 2],
    term: i64,
    wall_millis: i64,
    oplog_top: [u32; 2],
    oldest: [u32; 2],
    #[serde(skip_serializing_if = "Option::is_none", default)]
    since: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct End {
    files: usize,
    sha256: String,
}

impl Manifest {
    /// Total size of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Reads the manifest of a directory. [`super::verify`] checks whether the files match it.
    pub fn read(dir: &Path) -> Result<Self, BackupError> {
        let refuse =
            |why: &str| BackupError::NotWhole { path: dir.to_owned(), why: why.to_owned() };
        if dir.join(files::UNFINISHED).exists() {
            return Err(refuse("it was never finished; remove it and take the backup again"));
        }
        let text = match std::fs::read_to_string(dir.join(NAME)) {
            Ok(text) => text,
            Err(e)
                if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
            {
                return Err(refuse(missing(dir)));
            }
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                return Err(refuse("its MANIFEST is damaged; use another backup"));
            }
            Err(e) => return Err(BackupError::io(&dir.join(NAME))(e)),
        };
        Self::parse(&text)
            .map_err(|why| refuse(&format!("its MANIFEST is damaged ({why}); use another backup")))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let body_end =
            text.strip_suffix('\n').and_then(|text| text.rfind('\n')).ok_or("it has no end")? + 1;
        let (body, end) = text.split_at(body_end);
        let end: End = serde_json::from_str(end).map_err(|e| format!("its last line: {e}"))?;
        if files::hex(&Sha256::digest(body)) != end.sha256 {
            return Err("its checksum is wrong".to_owned());
        }
        let mut lines = body.lines();
        let head: Head = serde_json::from_str(lines.next().unwrap_or_default())
            .map_err(|e| format!("its first line: {e}"))?;
        if head.understudy_backup != VERSION {
            return Err(format!("version {} is not known here", head.understudy_backup));
        }
        let files = lines
            .map(|line| serde_json::from_str(line).map_err(|e| format!("a file's line: {e}")))
            .collect::<Result<Vec<FileEntry>, _>>()?;
        if files.len() != end.files {
            return Err(format!("it lists {} of {} files", files.len(), end.files));
        }
        let ts = |[secs, inc]: [u32; 2]| Timestamp::new(secs, inc);
        Ok(Self {
            format: head.format,
            engine: head.engine,
            set: head.set,
            optime: OpTime::new(ts(head.ts), head.term),
            wall_millis: head.wall_millis,
            oplog_top: ts(head.oplog_top),
            oldest: ts(head.oldest),
            since: head.since,
            files,
        })
    }

    pub(super) fn to_text(&self) -> String {
        let pair = |ts: Timestamp| [ts.secs(), ts.inc()];
        let head = Head {
            understudy_backup: VERSION,
            format: self.format,
            engine: self.engine.clone(),
            set: self.set.clone(),
            ts: pair(self.optime.ts),
            term: self.optime.t,
            wall_millis: self.wall_millis,
            oplog_top: pair(self.oplog_top),
            oldest: pair(self.oldest),
            since: self.since.clone(),
        };
        let mut text = line(&head);
        for file in &self.files {
            text.push_str(&line(file));
        }
        let end = End { files: self.files.len(), sha256: files::hex(&Sha256::digest(&text)) };
        text.push_str(&line(&end));
        text
    }
}

fn missing(dir: &Path) -> &'static str {
    if dir.join(crate::node_files::LOCK).exists() {
        "a node was started in it, and it is that node's dbpath since then"
    } else if dir.is_dir() {
        "it has no MANIFEST"
    } else {
        "it is not a directory"
    }
}

fn line(value: &impl Serialize) -> String {
    // Cannot fail: these are plain structs of strings and numbers.
    let mut line = serde_json::to_string(value).unwrap_or_default();
    line.push('\n');
    line
}
