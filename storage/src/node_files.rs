//! The files of a dbpath that do not belong to the engine.
//!
//! ```text
//!   dbpath/understudy.lock   locked while a process uses the dbpath
//!   dbpath/durable.mark      the last position whose sync was reported: two slots, written in turn
//!   dbpath/FORMAT            "understudy <format> <engine>"; written after the mark: with FORMAT there is a mark
//!   dbpath/vote              the last vote, always replaced as a whole
//!   dbpath/damage            a description of the damage found; exists only if there is any
//!   dbpath/engine/           the engine's files
//! ```
//!
//! The durable mark exists because an engine may open its journal without error although the journal's tail is lost
//! (this was measured). Then the oplog ends before the mark, and the node knows that it lost entries it had
//! acknowledged.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::{OpTime, OpTimeAndWall, RawDoc};

use crate::{
    StorageError,
    engine::EngineKind,
    layout::{FORMAT_OLDEST, FORMAT_VERSION, Reader},
};

/// The lock file of a process.
pub(crate) const LOCK: &str = "understudy.lock";
/// The files that a backup contains besides the engine's. The durable mark is not among them, because a backup has
/// acknowledged nothing.
pub(crate) const IN_BACKUPS: &[&str] = &["FORMAT", VOTE];
/// The file that describes known damage.
const DAMAGE: &str = "damage";
const VOTE: &str = "vote";

const MARK: &str = "durable.mark";

/// Keeps other processes out of the dbpath until it is dropped.
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    pub(crate) fn take(dbpath: &Path) -> Result<Self, StorageError> {
        let path = dbpath.join(LOCK);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(StorageError::io(path.display().to_string()))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(StorageError::Locked { path }),
            Err(TryLockError::Error(e)) => Err(StorageError::io(path.display().to_string())(e)),
        }
    }
}

/// Checks that the dbpath belongs to this program, has a known format and uses this engine. A new dbpath gets its
/// `FORMAT` file.
pub(crate) fn check_format(dbpath: &Path, engine: EngineKind) -> Result<(), StorageError> {
    let path = dbpath.join("FORMAT");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            for theirs in ["WiredTiger", "storage.bson", "engine"] {
                if dbpath.join(theirs).exists() {
                    let why = format!("it holds {theirs} but no FORMAT file");
                    return Err(StorageError::NotOurs { path: dbpath.to_owned(), why });
                }
            }
            if engine == EngineKind::Fjall {
                DurableMark::make(dbpath)?;
            }
            let text = format!("understudy {FORMAT_VERSION} {engine}\n");
            return replace_file(&path, text.as_bytes());
        }
        Err(e) => return Err(StorageError::io(path.display().to_string())(e)),
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let ["understudy", format, found] = words.as_slice() else {
        return Err(StorageError::corrupt(path.display().to_string(), format!("it says {text:?}")));
    };
    let format: u32 = format.parse().map_err(|_| {
        StorageError::corrupt(path.display().to_string(), format!("it says {text:?}"))
    })?;
    if !(FORMAT_OLDEST..=FORMAT_VERSION).contains(&format) {
        return Err(StorageError::OtherFormat { path, found: format, known: FORMAT_VERSION });
    }
    if *found != engine.to_string() {
        let (found, wanted) = ((*found).to_owned(), engine.to_string());
        return Err(StorageError::OtherEngine { path, found, wanted });
    }
    Ok(())
}

/// Replaces an older format by the present one. From now on an older version of this program must not write to the dbpath.
pub(crate) fn raise_format(dbpath: &Path, engine: EngineKind) -> Result<(), StorageError> {
    let path = dbpath.join("FORMAT");
    let text = format!("understudy {FORMAT_VERSION} {engine}\n");
    let found = std::fs::read(&path).map_err(StorageError::io(path.display().to_string()))?;
    if found == text.as_bytes() {
        return Ok(());
    }
    replace_file(&path, text.as_bytes())
}

/// Checks that the durable mark and the vote can be read. Changes nothing.
pub(crate) fn look(dbpath: &Path) -> Result<(), StorageError> {
    let path = dbpath.join(MARK);
    let content = std::fs::read(&path).map_err(StorageError::io(path.display().to_string()))?;
    DurableMark::parse(&path, &content)?;
    read_vote(dbpath).map(drop)
}

/// Replaces a file atomically: after a crash, either the old or the new content is there.
pub(crate) fn replace_file(path: &Path, content: &[u8]) -> Result<(), StorageError> {
    let map = || StorageError::io(path.display().to_string());
    let temporary = path.with_extension("new");
    let mut file = File::create(&temporary).map_err(map())?;
    file.write_all(content).map_err(map())?;
    file.sync_all().map_err(map())?;
    std::fs::rename(&temporary, path).map_err(map())?;
    sync_dir(path.parent().unwrap_or(path))
}

pub(crate) fn sync_dir(dir: &Path) -> Result<(), StorageError> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(StorageError::io(dir.display().to_string()))
}

/// The durable mark. Two slots are written in turn and synced. A third one, in a sector of its own, is written
/// without a sync. The newest valid slot counts.
pub(crate) struct DurableMark {
    file: File,
    path: PathBuf,
    state: Mutex<MarkState>,
}

struct MarkState {
    sequence: u64,
    at: OpTimeAndWall,
    /// False if `at` is only in the slot that is not synced.
    synced: bool,
    /// The synced slot that was written last.
    slot: u64,
}

const SLOT_LEN: usize = 48;
/// The file offset of the slot that is not synced.
const NOTE_AT: usize = 512;
const MARK_MAGIC: u32 = 0x554E_4453;

impl DurableMark {
    /// Creates an empty mark if there is none.
    pub(crate) fn make(dbpath: &Path) -> Result<(), StorageError> {
        let path = dbpath.join(MARK);
        let map = StorageError::io(path.display().to_string());
        OpenOptions::new().create(true).append(true).open(&path).map_err(map)?;
        // The directory entry must survive a power loss, too: a store without a mark is taken for one that
        // acknowledged nothing.
        sync_dir(dbpath)
    }

    pub(crate) fn open(dbpath: &Path) -> Result<Self, StorageError> {
        let path = dbpath.join(MARK);
        if !path.exists() {
            if dbpath.join("engine/version").exists() {
                return Err(StorageError::Incomplete { path, why: "is missing".to_owned() });
            }
            Self::make(dbpath)?;
        }
        let map = || StorageError::io(path.display().to_string());
        let mut file = OpenOptions::new().read(true).write(true).open(&path).map_err(map())?;
        let mut content = Vec::new();
        Read::by_ref(&mut file).take(1024).read_to_end(&mut content).map_err(map())?;
        let state = Self::parse(&path, &content)?;
        Ok(Self { file, path, state: Mutex::new(state) })
    }

    fn parse(path: &Path, content: &[u8]) -> Result<MarkState, StorageError> {
        let slots = (0..).zip(content.chunks(SLOT_LEN).take(2)).filter_map(parse_slot);
        let state = slots.max_by_key(|state| state.sequence);
        let note = content.get(NOTE_AT..).and_then(|note| parse_slot((0, note)));
        match (state, note) {
            (Some(state), Some(note)) if note.sequence > state.sequence => {
                Ok(MarkState { synced: false, slot: state.slot, ..note })
            }
            (Some(state), _) => Ok(state),
            _ if content.is_empty() => {
                Ok(MarkState { sequence: 0, at: OpTimeAndWall::NULL, synced: true, slot: 0 })
            }
            _ => {
                let why = "neither of its two slots is whole";
                Err(StorageError::corrupt(path.display().to_string(), why))
            }
        }
    }

    /// The position that the mark holds.
    pub(crate) fn at(&self) -> OpTimeAndWall {
        self.state.lock().at
    }

    /// True once the store has been created completely.
    pub(crate) fn is_begun(&self) -> bool {
        self.state.lock().sequence > 0
    }

    /// Records that the store has been created completely.
    pub(crate) fn begin(&self) -> Result<(), StorageError> {
        self.save(&mut self.state.lock(), OpTimeAndWall::NULL)
    }

    /// The error for a mark that is empty although the store contains data.
    pub(crate) fn emptied(&self) -> StorageError {
        StorageError::Incomplete { path: self.path.clone(), why: "is empty".to_owned() }
    }

    /// Records a position that has been synced. The mark is on disk when the call returns.
    pub(crate) fn write(&self, at: OpTimeAndWall) -> Result<(), StorageError> {
        let mut state = self.state.lock();
        if state.at == at && state.synced {
            return Ok(());
        }
        self.save(&mut state, at)
    }

    /// Records a position that has been synced, without syncing the mark itself: the record survives a crash of the
    /// process, but may be lost in a power loss. A call costs about a microsecond, so it can precede each
    /// acknowledgement.
    pub(crate) fn note(&self, at: OpTimeAndWall) -> Result<(), StorageError> {
        let mut state = self.state.lock();
        if at.op_time <= state.at.op_time {
            return Ok(());
        }
        let sequence = state.sequence + 1;
        self.file
            .write_all_at(&slot_bytes(sequence, at), NOTE_AT as u64)
            .map_err(StorageError::io(self.path.display().to_string()))?;
        *state = MarkState { sequence, at, synced: false, slot: state.slot };
        Ok(())
    }

    fn save(&self, state: &mut MarkState, at: OpTimeAndWall) -> Result<(), StorageError> {
        let (sequence, slot) = (state.sequence + 1, 1 - state.slot);
        self.file
            .write_all_at(&slot_bytes(sequence, at), slot * SLOT_LEN as u64)
            .and_then(|()| self.file.sync_data())
            .map_err(StorageError::io(self.path.display().to_string()))?;
        *state = MarkState { sequence, at, synced: true, slot };
        Ok(())
    }
}

fn slot_bytes(sequence: u64, at: OpTimeAndWall) -> Vec<u8> {
    let mut slot = Vec::with_capacity(SLOT_LEN);
    slot.extend_from_slice(&MARK_MAGIC.to_be_bytes());
    slot.extend_from_slice(&sequence.to_be_bytes());
    slot.extend_from_slice(&at.op_time.ts.as_u64().to_be_bytes());
    slot.extend_from_slice(&at.op_time.t.to_be_bytes());
    slot.extend_from_slice(&at.wall.timestamp_millis().to_be_bytes());
    slot.extend_from_slice(&crc32fast::hash(&slot).to_be_bytes());
    slot.resize(SLOT_LEN, 0);
    slot
}

fn parse_slot((number, slot): (u64, &[u8])) -> Option<MarkState> {
    let body = slot.get(..36)?;
    let mut reader = Reader(slot);
    let magic = reader.u32()?;
    let sequence = reader.u64()?;
    let ts = reader.ts()?;
    let t = reader.u64()?.cast_signed();
    let wall = bson::DateTime::from_millis(reader.u64()?.cast_signed());
    let crc = reader.u32()?;
    (magic == MARK_MAGIC && crc == crc32fast::hash(body))
        .then(|| OpTimeAndWall { op_time: OpTime::new(ts, t), wall })
        .map(|at| MarkState { sequence, at, synced: true, slot: number })
}

/// The last vote. A node that forgot its vote could vote twice, so the vote is on disk before it counts.
pub(crate) fn read_vote(dbpath: &Path) -> Result<Option<RawDoc>, StorageError> {
    let path = dbpath.join(VOTE);
    let content = match std::fs::read(&path) {
        Ok(content) => content,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(StorageError::io(path.display().to_string())(e)),
    };
    parse_vote(&path, &content).map(Some)
}

fn parse_vote(path: &Path, content: &[u8]) -> Result<RawDoc, StorageError> {
    let damaged = || StorageError::corrupt(path.display().to_string(), "its checksum is wrong");
    let (crc, doc) = content.split_first_chunk().ok_or_else(damaged)?;
    if u32::from_be_bytes(*crc) != crc32fast::hash(doc) {
        return Err(damaged());
    }
    RawDoc::new(Bytes::copy_from_slice(doc)).map_err(|_| damaged())
}

/// Returns the content of a file for a backup, after a check if the file has a checksum.
pub(crate) fn whole(path: &Path, content: Vec<u8>) -> Result<Vec<u8>, StorageError> {
    if path.ends_with(VOTE) {
        parse_vote(path, &content)?;
    }
    Ok(content)
}

/// The description of damage that an earlier run found.
pub(crate) fn read_damage(dbpath: &Path) -> Option<String> {
    let content = std::fs::read(dbpath.join(DAMAGE)).ok()?;
    Some(String::from_utf8_lossy(&content).into_owned())
}

/// Saves a description of damage for later runs.
pub(crate) fn write_damage(dbpath: &Path, what: &str) -> Result<(), StorageError> {
    replace_file(&dbpath.join(DAMAGE), what.as_bytes())
}

/// Removes the description of damage.
pub(crate) fn clear_damage(dbpath: &Path) -> Result<(), StorageError> {
    let path = dbpath.join(DAMAGE);
    match std::fs::remove_file(&path) {
        Ok(()) => sync_dir(dbpath),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(StorageError::io(path.display().to_string())(e)),
    }
}

/// Replaces the last vote.
pub(crate) fn write_vote(dbpath: &Path, doc: &bson::RawDocument) -> Result<(), StorageError> {
    let mut content = crc32fast::hash(doc.as_bytes()).to_be_bytes().to_vec();
    content.extend_from_slice(doc.as_bytes());
    replace_file(&dbpath.join(VOTE), &content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;
    use protocol::Timestamp;

    fn at(secs: u32) -> OpTimeAndWall {
        OpTimeAndWall {
            op_time: OpTime::new(Timestamp::new(secs, 1), 3),
            wall: bson::DateTime::from_millis(i64::from(secs) * 1000),
        }
    }

    #[test]
    fn the_mark_survives_and_a_torn_slot_leaves_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let mark = DurableMark::open(dir.path()).unwrap();
        assert_eq!(mark.at(), OpTimeAndWall::NULL);
        for secs in 1..=5 {
            mark.write(at(secs)).unwrap();
            assert_eq!(DurableMark::open(dir.path()).unwrap().at(), at(secs));
        }
        // The fifth write went to slot 1.
        mark.file.write_all_at(&[0xAB; 10], SLOT_LEN as u64 + 10).unwrap();
        assert_eq!(DurableMark::open(dir.path()).unwrap().at(), at(4));
        mark.file.write_all_at(&[0xAB; 10], 10).unwrap();
        assert!(matches!(DurableMark::open(dir.path()), Err(StorageError::Corrupt { .. })));
    }

    #[test]
    fn a_note_survives_the_process_and_never_endangers_the_synced_slots() {
        let dir = tempfile::tempdir().unwrap();
        let mark = DurableMark::open(dir.path()).unwrap();
        mark.write(at(1)).unwrap();
        for secs in 2..=5 {
            mark.note(at(secs)).unwrap();
            assert_eq!(DurableMark::open(dir.path()).unwrap().at(), at(secs));
        }
        mark.note(at(4)).unwrap();
        assert_eq!(mark.at(), at(5), "a note never goes back");
        // A power loss may destroy the slot that is not synced. Then the last synced position counts again.
        mark.file.write_all_at(&[0xAB; 10], NOTE_AT as u64 + 10).unwrap();
        assert_eq!(DurableMark::open(dir.path()).unwrap().at(), at(1));
        mark.note(at(6)).unwrap();
        mark.write(at(6)).unwrap();
        mark.file.write_all_at(&[0xAB; 10], NOTE_AT as u64 + 10).unwrap();
        assert_eq!(
            DurableMark::open(dir.path()).unwrap().at(),
            at(6),
            "it was synced all the same"
        );
        // A rollback lowers the mark, whatever the slot that is not synced says.
        mark.note(at(8)).unwrap();
        mark.write(at(7)).unwrap();
        assert_eq!(DurableMark::open(dir.path()).unwrap().at(), at(7));
    }

    #[test]
    fn a_damaged_vote_is_an_error_and_none_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read_vote(dir.path()).unwrap().is_none());
        write_vote(dir.path(), &rawdoc! { "term": 4i64, "candidateIndex": 1i64 }).unwrap();
        assert_eq!(read_vote(dir.path()).unwrap().unwrap().get_i64("term").unwrap(), 4);
        let path = dir.path().join("vote");
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert!(matches!(read_vote(dir.path()), Err(StorageError::Corrupt { .. })));
    }

    #[test]
    fn other_formats_engines_and_directories_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        check_format(dir.path(), EngineKind::Fjall).unwrap();
        check_format(dir.path(), EngineKind::Fjall).unwrap();
        assert!(matches!(
            check_format(dir.path(), EngineKind::Memory),
            Err(StorageError::OtherEngine { .. })
        ));
        // An older format that can still be read is upgraded to the current one.
        let file = dir.path().join("FORMAT");
        std::fs::write(&file, format!("understudy {FORMAT_OLDEST} fjall\n")).unwrap();
        check_format(dir.path(), EngineKind::Fjall).unwrap();
        raise_format(dir.path(), EngineKind::Fjall).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text, format!("understudy {FORMAT_VERSION} fjall\n"));
        std::fs::write(file, "understudy 99 fjall\n").unwrap();
        assert!(matches!(
            check_format(dir.path(), EngineKind::Fjall),
            Err(StorageError::OtherFormat { found: 99, .. })
        ));
        let mongods = tempfile::tempdir().unwrap();
        std::fs::write(mongods.path().join("WiredTiger"), "").unwrap();
        assert!(matches!(
            check_format(mongods.path(), EngineKind::Fjall),
            Err(StorageError::NotOurs { .. })
        ));
    }

    #[test]
    fn one_process_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let held = Lock::take(dir.path()).unwrap();
        assert!(matches!(Lock::take(dir.path()), Err(StorageError::Locked { .. })));
        drop(held);
        Lock::take(dir.path()).unwrap();
    }
}
