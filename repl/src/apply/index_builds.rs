//! Two-phase index builds, running concurrently with the applier.
//!
//! ```text
//! startIndexBuild applied --> thread: scan, sort, load, first drain --> BuildReady (a voter votes now)
//! commitIndexBuild        --> waits for the thread, then the index is ready at that entry
//! abortIndexBuild         --> stops the thread, then the index is gone
//! ```
//! After a restart the unfinished builds of the catalog are started again.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use parking_lot::Mutex;
use storage::{IndexState, ReadAt, StorageError, Store};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use super::ApplyError;

/// Our part of an index build is done: keys are loaded and later writes are being tracked.
#[derive(Clone, Debug)]
pub struct BuildReady {
    /// `indexBuildUUID`.
    pub build: Uuid,
    /// Cancelled when the build is committed, aborted or discarded on this node.
    pub over: CancellationToken,
}

/// The running builds.
pub struct IndexBuilds {
    running: Mutex<HashMap<Uuid, Build>>,
    ready: mpsc::UnboundedSender<BuildReady>,
}

struct Build {
    cancel: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), StorageError>>,
    _over: DropGuard,
}

impl IndexBuilds {
    /// Builds that notify `ready` when the node can vote.
    pub fn new(ready: mpsc::UnboundedSender<BuildReady>) -> Arc<Self> {
        Arc::new(Self { running: Mutex::default(), ready })
    }

    /// Restarts the unfinished builds of the catalog.
    pub fn resume(&self, store: &Store) -> Result<(), StorageError> {
        let view = store.view(ReadAt::Newest)?;
        let catalog = view.catalog();
        for db in catalog.databases() {
            for coll in catalog.list(&db) {
                for index in coll.indexes() {
                    if let IndexState::Building { build_uuid } = index.state() {
                        self.start(store, coll.uuid(), build_uuid);
                    }
                }
            }
        }
        Ok(())
    }

    /// Starts a build, unless it is already running.
    pub(super) fn start(&self, store: &Store, coll: Uuid, build: Uuid) {
        let mut running = self.running.lock();
        if running.contains_key(&build) {
            return;
        }
        let cancel = Arc::new(AtomicBool::new(false));
        let over = CancellationToken::new();
        let (store, stop, ready) = (store.clone(), cancel.clone(), self.ready.clone());
        let told = over.clone();
        let spawned = std::thread::Builder::new().name("index-build".into()).spawn(move || {
            tracing::info!(%build, collection = %coll, "index build started");
            store.build_indexes(coll, build, &stop)?;
            tracing::info!(%build, collection = %coll, "index build is ready to commit");
            // Nobody listens when the node shuts down.
            let _ = ready.send(BuildReady { build, over: told });
            Ok(())
        });
        match spawned {
            Ok(thread) => {
                running.insert(build, Build { cancel, thread, _over: over.drop_guard() });
            }
            Err(error) => {
                tracing::error!(%build, %error, "cannot start the thread of an index build; the index is built when the build commits");
            }
        }
    }

    /// Waits until a build has caught up; runs it synchronously if it is not running.
    pub(super) fn finish(&self, store: &Store, coll: Uuid, build: Uuid) -> Result<(), ApplyError> {
        let running = self.running.lock().remove(&build);
        match running {
            Some(running) => running.end(build),
            None => outcome(build, store.build_indexes(coll, build, &AtomicBool::new(false))),
        }
    }

    /// Stops a build.
    pub(super) fn cancel(&self, build: Uuid) -> Result<(), ApplyError> {
        let Some(running) = self.running.lock().remove(&build) else { return Ok(()) };
        running.cancel.store(true, Ordering::Release);
        running.end(build)
    }

    /// Stops all builds, because the data they were made for is discarded.
    pub(crate) fn cancel_all(&self) {
        let running = std::mem::take(&mut *self.running.lock());
        for build in running.values() {
            build.cancel.store(true, Ordering::Release);
        }
        for (build, running) in running {
            if let Err(error) = running.end(build) {
                tracing::info!(%build, %error, "cancelled an index build because the data is discarded");
            }
        }
    }
}

impl Build {
    fn end(self, build: Uuid) -> Result<(), ApplyError> {
        match self.thread.join() {
            Ok(result) => outcome(build, result),
            Err(_) => Err(ApplyError::IndexBuild {
                build,
                why: "its thread panicked; see the log".into(),
            }),
        }
    }
}

/// Converts the result of a build. During initial sync there may be builds on collections that no longer existed when
/// cloned, or whose index was cloned complete: nothing is to be done for those.
fn outcome(build: Uuid, result: Result<(), StorageError>) -> Result<(), ApplyError> {
    match result {
        Ok(())
        | Err(
            StorageError::Cancelled | StorageError::NoCollection(_) | StorageError::NoIndex { .. },
        ) => Ok(()),
        Err(e) => Err(ApplyError::IndexBuild { build, why: e.to_string() }),
    }
}
