//! `verify-backup DIR`: checks that a backup is complete and undamaged.

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

fn style() -> ProgressStyle {
    ProgressStyle::with_template("  {bytes} read, {bytes_per_sec}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}
