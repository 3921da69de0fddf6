//! Starts the node: recovery first, then the loop of decisions, then the data plane.

use std::sync::Arc;

use anyhow::Context as _;
use bson::oid::ObjectId;
use protocol::{Compressor, Compressors, client::ConnectOptions};
use repl::{
    AskPatience, DataPlane, Repl,
    io::{delay::Delay, durable::DurableError, runner},
};
use storage::Store;
use tokio::task::JoinHandle;

use crate::config::Settings;

/// mongod's exit code when the disk cannot be trusted any more.
const EXIT_ABRUPT: i32 = 14;

/// A store that is where its own oplog ends.
pub(crate) struct Recovered {
    store: Store,
    data_plane: DataPlane,
}

/// A member of a set, running.
pub(crate) struct Replication {
    /// What the server asks.
    pub(crate) repl: Repl,
    running: JoinHandle<Result<(), DurableError>>,
    data_plane: JoinHandle<()>,
}

impl Recovered {
    /// Replays what the store's oplog holds beyond its "applied through" mark.
    pub(crate) fn from(store: Store) -> anyhow::Result<Self> {
        let data_plane = DataPlane::recover(store.clone(), Arc::new(end_process))
            .context("Cannot recover the store from its own oplog")?;
        Ok(Self { store, data_plane })
    }

    /// The delay of this node.
    pub(crate) fn delay(&self) -> Arc<Delay> {
        self.data_plane.delay()
    }

    /// Becomes a member. The port must be listened on by now: the node asks itself who it is.
    pub(crate) fn join(
        self,
        settings: &Settings,
        set_name: &str,
        process_id: ObjectId,
        connect: ConnectOptions,
        patience: AskPatience,
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
                connect: ConnectOptions { compressors, ..connect },
            },
            Arc::new(store.clone()),
        )?;
        let data_plane =
            data_plane.start(started.repl.clone(), started.peer, started.actions, patience);
        Ok(Replication { repl: started.repl, running: started.running, data_plane })
    }
}

impl Replication {
    /// Ends it: what is written is durable when this returns.
    pub(crate) async fn stop(self) {
        self.repl.shut_down();
        match self.running.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(target: "REPL", %error, "Replication ended with an error")
            }
            Err(error) => tracing::error!(target: "REPL", %error, "Replication ended abruptly"),
        }
        if let Err(error) = self.data_plane.await {
            tracing::error!(target: "REPL", %error, "The data plane ended abruptly");
        }
    }
}

/// After a failed sync nothing on disk can be relied on: the process ends at once, as mongod does.
pub(crate) fn end_process(why: &str) {
    tracing::error!(target: "STORAGE", id = 23089, why, "Fatal assertion");
    std::process::exit(EXIT_ABRUPT);
}
