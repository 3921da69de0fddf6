//! checkpoint: writes a backup of the store to a directory on this machine, while the server keeps running.

use std::path::PathBuf;

use bson::{DateTime, RawArrayBuf, RawDocumentBuf, raw::cstr, rawdoc};
use protocol::{ErrorCode, Fields};
use storage::{BackupError, Checkpoint, CheckpointReport};

use super::{Auth, Command, Run, sizes};
use crate::{
    auth::action::action,
    context::{Call, Outcome},
    error::Failure,
    read::{blocking, surroundings},
};

pub(super) const COMMAND: Command = Command {
    name: "checkpoint",
    help: "Writes a backup of the store into a directory, while everything goes on; `since` names an earlier one to share files with.",
    auth: Auth::Cluster(action("fsync")),
    admin_only: true,
    fields: super::Fields::Only(&["since", "link"]),
    waits_on_purpose: true,
    run: Run::Waiting(|call| blocking::command(call, run)),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    let fields = Fields::idl("checkpoint", &call.body);
    let path = |name| -> Result<Option<PathBuf>, Failure> {
        Ok(fields.optional(name)?.map(|path| path.str().map(PathBuf::from)).transpose()?)
    };
    let Some(root) = call.node().settings.backup_root.clone() else {
        let why = "this node was told no place for backups: start it with --backupRoot DIR \
            (storage.backupRoot), and name a directory below that";
        return Err(Failure::said(ErrorCode::IllegalOperation, why));
    };
    let wanted = Checkpoint {
        into: fields.required("checkpoint")?.str()?.into(),
        since: path("since")?,
        link: fields.optional("link")?.map_or(Ok(false), |link| link.safe_bool())?,
        root: Some(root),
        set_name: call.node().settings.repl_set.clone().unwrap_or_default(),
    };
    let shown = wanted.into.display().to_string();
    tracing::info!(target: "STORAGE", ctx = call.client.name(), path = shown, "Backup begins");
    let go_on = || surroundings::check(call).is_ok();
    let report = call.node().store()?.checkpoint(&wanted, &go_on).map_err(|error| {
        tracing::warn!(target: "STORAGE", ctx = call.client.name(), path = shown, %error,
            "Backup failed");
        failure(call, &error)
    })?;
    tracing::info!(target: "STORAGE", ctx = call.client.name(), path = shown,
        optime = %report.manifest.optime, files = report.manifest.files.len(),
        bytes = report.manifest.bytes(), linkedBytes = report.linked_bytes,
        pausedMillis = sizes::long(u64::try_from(report.paused.as_millis()).unwrap_or(u64::MAX)),
        "Backup done");
    let reply = reply(&shown, &report);
    *call.node().last_backup.lock() = Some((DateTime::now(), reply.clone()));
    Ok(reply.into())
}

fn reply(path: &str, report: &CheckpointReport) -> RawDocumentBuf {
    let manifest = &report.manifest;
    let ts = manifest.optime.ts;
    let mut body = rawdoc! {
        "path": path,
        "optime": {
            "ts": bson::Timestamp { time: ts.secs(), increment: ts.inc() },
            "t": manifest.optime.t,
        },
    };
    body.append(cstr!("files"), sizes::number(manifest.files.len() as u64));
    body.append(cstr!("bytes"), sizes::number(manifest.bytes()));
    body.append(cstr!("linkedFiles"), sizes::number(report.linked_files));
    body.append(cstr!("linkedBytes"), sizes::number(report.linked_bytes));
    let paused = u64::try_from(report.paused.as_millis()).unwrap_or(u64::MAX);
    body.append(cstr!("pausedMillis"), sizes::number(paused));
    if report.cleared {
        let said = "an unfinished backup of that name was in the way and is gone";
        body.append(cstr!("note"), said);
    }
    if !report.damaged_since.is_empty() {
        let mut names = RawArrayBuf::new();
        for name in &report.damaged_since {
            names.push(name.as_str());
        }
        body.append(cstr!("damagedInSince"), names);
    }
    body
}

fn failure(call: &Call, error: &BackupError) -> Failure {
    let code = match error {
        BackupError::Cancelled => match surroundings::check(call) {
            Err(reason) => return reason.into(),
            Ok(()) => ErrorCode::Interrupted,
        },
        BackupError::Busy(_) | BackupError::OneAtATime => ErrorCode::ConflictingOperationInProgress,
        BackupError::NoSpace { .. } => ErrorCode::OutOfDiskSpace,
        BackupError::InitialSync => ErrorCode::InitialSyncActive,
        BackupError::NoData => ErrorCode::NotYetInitialized,
        BackupError::Io { .. } | BackupError::Storage(_) => ErrorCode::OperationFailed,
        BackupError::Relative(_)
        | BackupError::Outside(..)
        | BackupError::NotEmpty(_)
        | BackupError::Overlaps(..)
        | BackupError::InTheWay(_)
        | BackupError::BadSince { .. }
        | BackupError::OtherFileSystem { .. }
        | BackupError::NotWhole { .. } => ErrorCode::InvalidPath,
    };
    Failure::said(code, error.to_string())
}
