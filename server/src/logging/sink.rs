//! The destination of log lines: standard output, or a file that can be rotated.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use jiff::{Timestamp, tz::TimeZone};

use crate::config::{LogRotate, LogSettings};

pub(super) enum Sink {
    Stdout,
    File { path: PathBuf, file: File, rotate: LogRotate },
}

impl Sink {
    pub(super) fn open(settings: &LogSettings) -> io::Result<Self> {
        let Some(path) = settings.path.clone() else { return Ok(Self::Stdout) };
        if !settings.append && path.exists() {
            move_aside(&path)?;
        }
        let file = append_to(&path)?;
        Ok(Self::File { path, file, rotate: settings.rotate })
    }

    /// If the log cannot be written, the server must not end; the line goes to standard error instead.
    pub(super) fn write(&mut self, line: &str) {
        let written = match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n"))
            }
            Self::File { file, .. } => file.write_all(format!("{line}\n").as_bytes()),
        };
        if written.is_err() {
            let _ = writeln!(io::stderr(), "{line}");
        }
    }

    pub(super) fn rotate(&mut self) -> io::Result<()> {
        let Self::File { path, file, rotate } = self else { return Ok(()) };
        if *rotate == LogRotate::Rename {
            move_aside(path)?;
        }
        *file = append_to(path)?;
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Renames the old file with a timestamp suffix; within one second, with a number, too.
fn move_aside(path: &Path) -> io::Result<()> {
    let now = Timestamp::now().to_zoned(TimeZone::system());
    let stamp = now.strftime("%Y-%m-%dT%H-%M-%S").to_string();
    let target = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{stamp}{suffix}"));
        PathBuf::from(name)
    };
    let mut to = target("");
    let mut n = 0;
    while to.exists() {
        n += 1;
        to = target(&format!("-{n}"));
    }
    std::fs::rename(path, to)
}
