//! `verify-backup DIR`: checks that a backup is complete and undamaged. `scrub DIR`: the same of a dbpath.

use std::path::Path;

use anyhow::{Result, bail};
use bson::doc;
use storage::verify_backup;

use crate::{
    past::long,
    screen::{Screen, count},
};

/// Reads and checks every file of a backup.
pub fn verify(screen: &mut Screen, dir: &Path) -> Result<()> {
    let bar = screen.bar(0, "  {bytes} read, {bytes_per_sec}");
    let found = verify_backup(dir, &mut |bytes| bar.set_position(bytes))?;
    bar.finish_and_clear();
    let manifest = &found.manifest;
    let time = screen.time(manifest.optime.ts);
    let row = doc! {
        "dir": dir.display().to_string(), "files": long(manifest.files.len() as u64),
        "bytes": long(manifest.bytes()), "set": manifest.set.to_string(),
        "ts": bson::Timestamp::from(manifest.optime.ts), "time": &time,
        "oldest": bson::Timestamp::from(manifest.oldest), "format": manifest.format.to_string(),
        "engine": manifest.engine.to_string(),
        "problems": found.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
    };
    screen.row(
        &row,
        format_args!(
            "{}: {}, {} bytes, of set {} at {} ({time}), readable from {} on, format {} of engine {}",
            dir.display(),
            count(manifest.files.len() as u64, "file"),
            manifest.bytes(),
            manifest.set,
            manifest.optime,
            manifest.oldest,
            manifest.format,
            manifest.engine,
        ),
    )?;
    if found.problems.is_empty() {
        screen.say("the backup is whole")?;
        return Ok(());
    }
    for problem in &found.problems {
        screen.say(format_args!("  {problem}"))?;
    }
    bail!(
        "the backup is damaged ({}): do not start from it; use another one, or take it again",
        count(found.problems.len() as u64, "problem")
    )
}

/// Reads and checks every file of a dbpath.
pub fn scrub(screen: &mut Screen, dir: &Path) -> Result<()> {
    if !dir.join("FORMAT").exists() {
        bail!("{} is not a dbpath of this program: it has no FORMAT file", dir.display());
    }
    if dir.join("MANIFEST").exists() {
        bail!("{} is a backup: its files are checked by verify-backup", dir.display());
    }
    let bar = screen.bar(0, "  {bytes} read, {bytes_per_sec}");
    let found = storage::scrub(dir, &mut |bytes| {
        bar.inc(bytes);
        true
    })?;
    bar.finish_and_clear();
    let row = doc! {
        "dir": dir.display().to_string(), "files": long(found.files), "bytes": long(found.bytes),
        "problems": found.damaged.iter().map(ToString::to_string).collect::<Vec<_>>(),
    };
    let files = count(found.files, "file");
    screen.row(&row, format_args!("{}: {files}, {} bytes", dir.display(), found.bytes))?;
    if found.is_whole() {
        screen.say("every file is as it was written")?;
        return Ok(());
    }
    for problem in &found.damaged {
        screen.say(format_args!("  {problem}"))?;
    }
    bail!(
        "the store is damaged ({}): restore a backup, or start with an empty dbpath to sync anew",
        count(found.damaged.len() as u64, "problem")
    )
}
