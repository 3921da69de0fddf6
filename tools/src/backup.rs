//! `verify-backup DIR`: checks that a backup is complete and undamaged. `scrub DIR`: the same of a dbpath.

use std::path::Path;

use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use protocol::moment;
use storage::verify_backup;

/// Reads and checks every file of a backup.
pub fn verify(dir: &Path) -> Result<()> {
    let bar = ProgressBar::no_length().with_style(style());
    let found = verify_backup(dir, &mut |bytes| bar.set_position(bytes))?;
    bar.finish_and_clear();
    let manifest = &found.manifest;
    println!(
        "{}: {} files, {} bytes, of set {} at {} ({}), readable from {} on, format {} of engine {}",
        dir.display(),
        manifest.files.len(),
        manifest.bytes(),
        manifest.set,
        manifest.optime,
        moment::shown(manifest.optime.ts),
        manifest.oldest,
        manifest.format,
        manifest.engine,
    );
    if found.problems.is_empty() {
        println!("the backup is whole");
        return Ok(());
    }
    for problem in &found.problems {
        println!("  {problem}");
    }
    bail!(
        "the backup is damaged ({} problems): do not start from it; use another one, or take it again",
        found.problems.len()
    )
}

/// Reads and checks every file of a dbpath.
pub fn scrub(dir: &Path) -> Result<()> {
    if !dir.join("FORMAT").exists() {
        bail!("{} is not a dbpath of this program: it has no FORMAT file", dir.display());
    }
    if dir.join("MANIFEST").exists() {
        bail!("{} is a backup: its files are checked by verify-backup", dir.display());
    }
    let bar = ProgressBar::no_length().with_style(style());
    let found = storage::scrub(dir, &mut |bytes| {
        bar.inc(bytes);
        true
    })?;
    bar.finish_and_clear();
    println!("{}: {} files, {} bytes", dir.display(), found.files, found.bytes);
    if found.is_whole() {
        println!("every file is as it was written");
        return Ok(());
    }
    for problem in &found.damaged {
        println!("  {problem}");
    }
    bail!(
        "the store is damaged ({} problems): restore a backup, or start with an empty dbpath to sync anew",
        found.damaged.len()
    )
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("  {bytes} read, {bytes_per_sec}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}
