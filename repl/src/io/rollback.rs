//! Rolls back to the point where our history diverged from the set's, as mongod does.
//!
//! ```text
//!   others see ROLLBACK, user operations end --> common point --> checks        a failure leaves everything as it was
//!   rollback id + 1 --> index builds stop --> files --> documents back, oplog cut   a failure ends the process
//!   --> builds resumed --> positions at the common point --> SECONDARY
//! ```
//!
//! B1 The new rollback id is on disk before the first change, so that a member that syncs from us notices the
//!    rollback.
//! B2 Rollback files are on disk before any document is restored.
//! B3 After a crash, the store shows either the whole lost branch or none of it (see `storage::Store::rollback_to`).
//! B4 Positions that were read before the end of the rollback carry the old rollback id and are ignored afterwards.

mod files;
mod log;

use std::{
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
};

use protocol::{HostAndPort, OpTime, OpTimeAndWall, OplogEntry, Profile, Timestamp};
use storage::{Direction, StorageError, Store};
use tokio_util::sync::CancellationToken;

use self::files::Files;
use crate::{
    DataEvent, Positions, Remedy, Repl, TaskId,
    apply::IndexBuilds,
    core::{
        fetch::FetchError,
        rollback::{Branch, RollbackSettings, Tally},
    },
    io::{
        clock, common_point,
        data_plane::{Outside, positions},
        delay::Delay,
        kept,
        peer::Peer,
    },
};

/// Everything that a rollback needs.
pub(crate) struct Rollback {
    pub(crate) store: Store,
    pub(crate) repl: Repl,
    pub(crate) peer: Peer,
    pub(crate) delay: Arc<Delay>,
    pub(crate) builds: Arc<IndexBuilds>,
    pub(crate) outside: Arc<dyn Outside>,
    /// The rollback id that is reported together with our positions.
    pub(crate) rbid: Arc<AtomicI32>,
    pub(crate) source: HostAndPort,
}

/// The reasons why a rollback failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RollbackError {
    /// The source could not be queried.
    #[error(transparent)]
    Source(#[from] FetchError),
    /// Our oplog or the source's does not reach back to the common point.
    #[error(
        "no entry of our oplog is in that of the sync source: reached the beginning of the shorter one"
    )]
    NoCommonPoint,
    /// The rollback is refused or impossible.
    #[error(transparent)]
    Refused(#[from] crate::core::rollback::Refusal),
    /// The state of the store is uncertain, so the process must end.
    #[error("{0}")]
    Fatal(String),
}

impl From<StorageError> for RollbackError {
    fn from(error: StorageError) -> Self {
        Self::Fatal(error.to_string())
    }
}

impl RollbackError {
    fn remedy(&self) -> Remedy {
        match self {
            Self::Source(error) => match error.remedy() {
                Remedy::ChangeSource => Remedy::ChangeSource,
                _ => Remedy::Retry,
            },
            Self::NoCommonPoint => Remedy::Resync,
            Self::Refused(_) | Self::Fatal(_) => Remedy::Halt,
        }
    }
}

impl Rollback {
    /// Rolls back and reports the result of the task. Returns an error if the process must end.
    pub(crate) async fn run(
        self,
        task: TaskId,
        why: &str,
        stop: CancellationToken,
    ) -> Result<(), String> {
        let repl = self.repl.clone();
        let event = match self.roll_back(why, &stop).await {
            Ok((positions, rbid)) => DataEvent::RollbackFinished { task, positions, rbid },
            Err(RollbackError::Fatal(why)) => return Err(why),
            Err(error) => {
                let remedy = error.remedy();
                log::failed(&error);
                DataEvent::RollbackFailed { task, remedy, why: error.to_string() }
            }
        };
        repl.tell(event);
        Ok(())
    }

    async fn roll_back(
        self,
        why: &str,
        stop: &CancellationToken,
    ) -> Result<(Positions, i32), RollbackError> {
        let begun = clock::now().wall;
        let snapshot = self.repl.snapshot();
        log::begin(why, snapshot.committed.op_time, &self.source);
        log::interrupted(snapshot.profile, self.outside.rollback_begins());
        // The tail of a delayed member must not be cut during the rollback.
        let delay = Arc::clone(&self.delay);
        let _still = delay.hold_still().await;
        let settings = self.outside.rollback_settings();
        let common = tokio::select! {
            found = self.find_common_point(settings) => found?,
            () = stop.cancelled() => return Err(FetchError::Stopped("it was told to stop".into()).into()),
        };
        let blocking = move || self.go_back(common, settings, snapshot.profile, begun);
        tokio::task::spawn_blocking(blocking)
            .await
            .unwrap_or_else(|panic| Err(RollbackError::Fatal(format!("rollback: {panic}"))))
    }

    async fn find_common_point(&self, settings: RollbackSettings) -> Result<OpTime, RollbackError> {
        log::finding();
        let (store, source) = (&self.store, &self.source);
        let batch = settings.batch_size;
        let found = common_point::find(store, &self.peer, source, batch, Timestamp::NULL).await?;
        let common = found.ok_or(RollbackError::NoCommonPoint)?;
        log::common_point(common);
        Ok(common)
    }

    fn go_back(
        self,
        common: OpTime,
        settings: RollbackSettings,
        profile: &'static Profile,
        begun: bson::DateTime,
    ) -> Result<(Positions, i32), RollbackError> {
        let branch = self.branch(common)?;
        let committed = self.store.watermarks().commit_point().op_time;
        branch.check(committed, self.store.rollback_floor(), settings.limit_secs)?;
        // B1
        let rbid = self.repl.snapshot().rbid.saturating_add(1);
        kept::set_rollback_id(&self.store, rbid)?;
        self.repl.tell(DataEvent::RollbackId(rbid));
        log::rollback_id(rbid);
        log::stopping_builds();
        self.builds.cancel_all();
        let tally = self.tally(common.ts)?;
        let directory = self.store.dbpath().join("rollback");
        if settings.write_files {
            let names = files::About { rbid, common, last: branch.last.op_time };
            self.write_files(Files::new(&directory, begun, names), profile)?;
        }
        let stable = self.store.watermarks().stable().op_time.ts;
        self.outside.past_is_lost(common.ts);
        self.store.rollback_to(branch.common)?;
        log::reverted(profile, &tally, common.ts);
        self.builds.resume(&self.store)?;
        // B4
        self.rbid.store(rbid, Ordering::Release);
        let summary = log::Summary {
            begun,
            ended: clock::now().wall,
            source: &self.source,
            directory: &directory,
            rbid,
            branch,
            stable,
            tally: &tally,
            uuids: profile.has_written,
        };
        summary.write();
        Ok((positions(&self.store, &self.delay), rbid))
    }

    fn branch(&self, common: OpTime) -> Result<Branch, RollbackError> {
        let oplog = self.store.oplog();
        let at = |entry: Option<protocol::RawDoc>| -> Result<OpTimeAndWall, RollbackError> {
            let entry = entry.ok_or_else(|| {
                RollbackError::Fatal("an entry vanished from our oplog during the rollback".into())
            })?;
            OplogEntry::op_time_and_wall(&entry)
                .map_err(|error| RollbackError::Fatal(error.to_string()))
        };
        let first = oplog.scan_written(Bound::Excluded(common.ts), Direction::Forward).next();
        Ok(Branch {
            common: at(oplog.entry_written(common.ts)?)?,
            first: at(first.transpose()?.map(|(_, entry)| entry))?,
            last: at(oplog.last_written()?)?,
        })
    }

    fn tally(&self, common: Timestamp) -> Result<Tally, StorageError> {
        let mut tally = Tally::default();
        let lost = self.store.oplog().scan_written(Bound::Excluded(common), Direction::Forward);
        for item in lost {
            tally.add(&item?.1);
        }
        Ok(tally)
    }

    /// Writes the rollback files; they are synced when this returns (B2). As in 8.x, they include the lost entries,
    /// newest first.
    fn write_files(&self, mut files: Files, profile: &Profile) -> Result<(), StorageError> {
        log::writing_files();
        let common = files.common().ts;
        if profile.has_written {
            let lost = self.store.oplog().scan_written(Bound::Unbounded, Direction::Backward);
            for item in lost {
                let (ts, entry) = item?;
                if ts <= common {
                    break;
                }
                files.take_entry(&entry)?;
            }
        }
        self.store.lost_documents(common, &mut |lost| files.take(&lost))?;
        files.finish()
    }
}
