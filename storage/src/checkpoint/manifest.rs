//! What a backup is, on disk: JSON lines, the first about all of it, then one per file, the last with a checksum of
//! those before it.

use std::{
    io,
    path::{Path, PathBuf},
};

use protocol::{OpTime, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{BackupError, files};

/// The file's name.
pub(crate) const NAME: &str = "MANIFEST";
/// The version of these lines.
const VERSION: u32 = 1;

/// A whole backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The format of the store.
    pub format: u32,
    /// The engine that reads it.
    pub engine: String,
    /// The set that it is a member's of.
    pub set: String,
    /// How far the data are applied.
    pub optime: OpTime,
    /// The wall clock's time of that entry.
    pub wall_millis: i64,
    /// The last entry of the oplog: what lies after `optime` is applied at start.
    pub oplog_top: Timestamp,
    /// The oldest moment that can be read.
    pub oldest: Timestamp,
    /// The backup that it shares files with.
    pub since: Option<PathBuf>,
    /// Every file.
    pub files: Vec<FileEntry>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileEntry {
    /// Below the backup's directory.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Of its content, in hexadecimal digits.
    pub sha256: String,
    /// The engine's own checksum of a file that it never changes: by it the next backup knows the file again.
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
    /// The sizes of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Reads the manifest of a directory. Whether the files are what it says is for [`super::verify`].
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
    // Plain structs of strings and numbers.
    let mut line = serde_json::to_string(value).unwrap_or_default();
    line.push('\n');
    line
}
