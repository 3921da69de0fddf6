//! Starts replication: recovery first, then the event loop, then the data plane.

use std::{fmt::Display, future::Future, sync::Arc};

use anyhow::Context as _;
use bson::oid::ObjectId;
use protocol::{Compressor, Compressors, client::ConnectOptions};
use repl::{
    DataPlane, Outside, Repl,
    io::{delay::Delay, durable::DurableError, kept, runner},
};
use storage::Store;
use tokio::task::{JoinError, JoinHandle};

use crate::config::Settings;

/// mongod's exit code when the disk cannot be trusted any more.
const EXIT_ABRUPT: i32 = 14;

/// A store whose own oplog is applied completely.
pub(crate) struct Recovered {
    store: Store,
    data_plane: DataPlane,
}

/// A running member of a set.
pub(crate) struct Replication {
    /// The handle for the server.
    pub(crate) repl: Repl,
    store: Store,
    running: JoinHandle<()>,
    data_plane: JoinHandle<()>,
}

impl Recovered {
    /// Applies the store's oplog after its "applied through" mark.
    pub(crate) fn from(store: Store) -> anyhow::Result<Self> {
        let data_plane = DataPlane::recover(store.clone(), Arc::new(end_process))
            .context("Cannot recover the store from its own oplog")?;
        Ok(Self { store, data_plane })
    }

    /// The delay of this node.
    pub(crate) fn delay(&self) -> Arc<Delay> {
        self.data_plane.delay()
    }

    /// Joins the set. The server must already listen on its port, because the node connects to itself to find its own
    /// address.
    pub(crate) fn join(
        self,
        settings: &Settings,
        set_name: &str,
        process_id: ObjectId,
        connect: ConnectOptions,
        outside: Arc<dyn Outside>,
    ) -> anyhow::Result<Replication> {
        let Self { store, data_plane } = self;
        let positions = data_plane.positions();
        let synced = !store.initial_sync_pending() && !positions.applied.op_time.is_null();
        let compressors =
            settings.compressors.iter().filter_map(|name| Compressor::from_name(name));
        let compressors = Compressors::new(compressors);
        let started = runner::start(
            runner::Settings {
                set_name: set_name.to_owned(),
                process_id,
                pinned_profile: settings.impersonate,
                positions,
                initial_sync_done: synced,
                lost_tail: store.lost_tail(),
                damage: store.damage(),
                connect: ConnectOptions { compressors, ..connect },
            },
            Arc::new(store.clone()),
        )?;
        let data_plane =
            data_plane.start(started.repl.clone(), started.peer, started.actions, outside);
        Ok(Replication {
            repl: started.repl,
            store,
            running: tokio::spawn(to_its_end(started.running, end_process)),
            data_plane: tokio::spawn(to_its_end(
                async { data_plane.await.map(Ok::<(), DurableError>) },
                end_process,
            )),
        })
    }
}

impl Replication {
    /// Stops it: everything written is durable when this returns.
    pub(crate) async fn stop(self) {
        self.repl.shut_down();
        for part in [self.running, self.data_plane] {
            if let Err(error) = part.await {
                tracing::error!(target: "REPL", %error, "Replication ended abruptly");
            }
        }
        if let Err(error) = kept::end_cleanly(&self.store) {
            tracing::warn!(target: "REPL", %error, "Cannot record the clean shutdown; the next start will treat it as unclean");
        }
    }
}

/// Waits for the end of a part of replication. If a part ends with an error or a panic, the process ends: otherwise
/// the node would still report itself as a secondary, but make no progress.
async fn to_its_end<E: Display>(
    part: impl Future<Output = Result<Result<(), E>, JoinError>>,
    end: impl Fn(&str),
) {
    match part.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => end(&error.to_string()),
        Err(panicked) => end(&format!("replication panicked: {panicked}")),
    }
}

/// After a failed sync nothing on disk can be relied on, so the process ends at once, as mongod does.
pub(crate) fn end_process(why: &str) {
    tracing::error!(target: "STORAGE", id = 23089, why, "Fatal assertion");
    std::process::exit(EXIT_ABRUPT);
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    async fn ends_with(part: JoinHandle<Result<(), DurableError>>) -> Vec<String> {
        let ends = Mutex::new(Vec::new());
        to_its_end(part, |why| ends.lock().push(why.to_owned())).await;
        ends.into_inner()
    }

    #[tokio::test]
    async fn an_error_or_a_panic_of_replication_ends_the_process_and_a_clean_end_does_not() {
        assert!(ends_with(tokio::spawn(async { Ok(()) })).await.is_empty());
        let failed = tokio::spawn(async { Err(DurableError("no space left on device".into())) });
        let ends = ends_with(failed).await;
        assert!(ends.concat().contains("no space left on device"), "{ends:?}");
        let ends = ends_with(tokio::spawn(async { panic!("the loop is broken") })).await;
        assert!(ends.concat().contains("the loop is broken"), "{ends:?}");
    }
}
