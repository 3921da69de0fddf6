//! The event loop: owns the node, passes it events, executes its actions.
//!
//! ```text
//!  Repl::ask, Repl::tell, heartbeats, reporter --inbox--> loop: Node::on_event --> snapshot published
//!                                                           |                       then the actions, in order:
//!                                                           |        persist (synced) | answer | heartbeat | report
//!                                                           '-- next_wakeup: Tick     '--> DataAction channel
//! ```
//! L1 A snapshot is published before the actions of its event: whoever is told of a change can see it.
//! L2 A persist is durable before the following actions are executed. If it fails, the loop ends.

use protocol::Profile;
use std::{collections::HashMap, sync::Arc, time::Duration};

use bson::oid::ObjectId;
use protocol::{OpTime, client::ConnectOptions};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::{
    clock,
    durable::{Durable, DurableError},
    handle::{Message, Repl},
    heartbeats::{Heartbeats, find_self},
    peer::Peer,
    reporter,
};
use crate::{
    core::{
        node::{Node, StartError},
        snapshot::Snapshot,
    },
    event::{Action, Answer, DataAction, Event, Log, LogLevel, Persist, Positions, Start},
};

/// The settings of the node, besides what it has stored.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--replSet`.
    pub set_name: String,
    /// Unique id of this process; the server's reply to `_isSelf`.
    pub process_id: ObjectId,
    /// Show this release instead of the set's.
    pub pinned_profile: Option<&'static Profile>,
    /// The store's positions; null if it is empty.
    pub positions: Positions,
    /// True if the store contains a finished initial sync.
    pub initial_sync_done: bool,
    /// The last entry that was acknowledged and then lost by the disk.
    pub lost_tail: Option<OpTime>,
    /// Known damage of the store, and what to do.
    pub damage: Option<String>,
    /// Encryption, compression and authentication for connections to other members.
    pub connect: ConnectOptions,
}

/// A running node.
pub struct Started {
    /// The handle for everybody.
    pub repl: Repl,
    /// The instructions for the data plane.
    pub actions: mpsc::UnboundedReceiver<DataAction>,
    /// How the data plane connects to members.
    pub peer: Peer,
    /// Ends after [`Repl::shut_down`], or with the reason why the process must end.
    pub running: JoinHandle<Result<(), DurableError>>,
}

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// What was stored cannot be read.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// What was stored does not fit.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Starts a node. Must be called within a tokio runtime.
pub fn start(settings: Settings, durable: Arc<dyn Durable>) -> Result<Started, RunError> {
    let kept = durable.load()?;
    let node = Node::new(
        clock::now(),
        Start {
            set_name: settings.set_name,
            process_id: settings.process_id,
            config: kept.config,
            last_vote: kept.last_vote,
            profile: settings.pinned_profile.or(kept.profile),
            profile_pinned: settings.pinned_profile.is_some(),
            positions: settings.positions,
            initial_sync_done: settings.initial_sync_done,
            rbid: kept.rbid,
            lost_tail: settings.lost_tail,
            damage: settings.damage,
        },
    )?;
    let snapshot = Arc::new(node.snapshot());
    let (topology, topologies) = watch::channel(snapshot.topology_counter);
    let (snapshots, watched) = watch::channel(snapshot);
    let (inbox, messages) = mpsc::unbounded_channel();
    let (to_data, actions) = mpsc::unbounded_channel();
    let peer = Peer::new(watched.clone(), settings.connect);
    let stop = CancellationToken::new();
    let repl = Repl {
        inbox: inbox.clone(),
        snapshots: watched,
        topologies,
        stop: stop.clone(),
        peer: peer.clone(),
    };
    let runner = Runner {
        node,
        durable,
        process_id: settings.process_id,
        heartbeats: Heartbeats::new(peer.clone(), inbox.clone()),
        reports: reporter::start(peer.clone(), inbox.clone()),
        peer: peer.clone(),
        inbox,
        to_data,
        snapshots,
        topology,
        questions: HashMap::new(),
        next_question: 0,
    };
    let running = tokio::spawn(runner.run(messages, stop));
    Ok(Started { repl, actions, peer, running })
}

struct Runner {
    node: Node,
    durable: Arc<dyn Durable>,
    process_id: ObjectId,
    heartbeats: Heartbeats,
    reports: mpsc::UnboundedSender<reporter::Job>,
    peer: Peer,
    inbox: mpsc::UnboundedSender<Message>,
    to_data: mpsc::UnboundedSender<DataAction>,
    snapshots: watch::Sender<Arc<Snapshot>>,
    topology: watch::Sender<i64>,
    questions: HashMap<u64, oneshot::Sender<Answer>>,
    next_question: u64,
}

impl Runner {
    async fn run(
        mut self,
        mut messages: mpsc::UnboundedReceiver<Message>,
        stop: CancellationToken,
    ) -> Result<(), DurableError> {
        self.step(Event::Tick).await?;
        loop {
            let pause = self.pause();
            let message = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                message = messages.recv() => message,
                () = tokio::time::sleep(pause) => Some(Message::Event(Event::Tick)),
            };
            match message {
                Some(Message::Event(event)) => self.step(event).await?,
                Some(Message::Ask(request, sender)) => {
                    self.next_question += 1;
                    let id = self.next_question;
                    self.questions.insert(id, sender);
                    self.step(Event::Request { id, request }).await?;
                }
                None => return Ok(()),
            }
        }
    }

    fn pause(&self) -> Duration {
        let wakeup = self.node.next_wakeup().map(|at| at.saturating_sub(clock::now().mono));
        wakeup.unwrap_or(IDLE_PAUSE).min(IDLE_PAUSE)
    }

    async fn step(&mut self, event: Event) -> Result<(), DurableError> {
        let actions = self.node.on_event(clock::now(), event);
        self.publish();
        for action in actions {
            self.act(action).await?;
        }
        Ok(())
    }

    fn publish(&self) {
        let snapshot = self.node.snapshot();
        let counter = snapshot.topology_counter;
        self.snapshots.send_if_modified(|current| {
            let changed = !current.is_same(&snapshot);
            if changed {
                *current = Arc::new(snapshot);
            }
            changed
        });
        self.topology.send_if_modified(|current| std::mem::replace(current, counter) != counter);
    }

    async fn act(&mut self, action: Action) -> Result<(), DurableError> {
        match action {
            Action::Heartbeat { target, seq, body, timeout } => {
                self.heartbeats.send(target, seq, body, timeout);
            }
            Action::Members(members) => self.heartbeats.retain(&members),
            Action::FindSelf { seq, hosts } => {
                let (peer, inbox, process_id) =
                    (self.peer.clone(), self.inbox.clone(), self.process_id);
                tokio::spawn(async move {
                    let hosts = find_self(peer, process_id, hosts).await;
                    // If this fails, the node has stopped.
                    let _stopped = inbox.send(Message::Event(Event::SelfFound { seq, hosts }));
                });
            }
            Action::Report { target, seq, body, timeout } => {
                let job = reporter::Job { target, seq, body, within: timeout };
                // The reporter lives as long as this sender.
                let _ended = self.reports.send(job);
            }
            Action::Persist(what) => self.persist(what).await?,
            Action::Answer { id, answer } => {
                if let Some(sender) = self.questions.remove(&id) {
                    // The requester may be gone; then the answer is dropped.
                    let _gone = sender.send(answer);
                }
            }
            Action::Data(action) => {
                if self.to_data.send(action).is_err() {
                    tracing::debug!("the data plane is not running; its action is dropped");
                }
            }
            Action::Log(line) => log(&line),
        }
        Ok(())
    }

    /// Runs on a blocking thread, since a sync takes time.
    async fn persist(&self, what: Persist) -> Result<(), DurableError> {
        let durable = self.durable.clone();
        let saved = tokio::task::spawn_blocking(move || durable.save(&what)).await;
        let result = saved.unwrap_or_else(|panic| Err(DurableError(panic.to_string())));
        result.inspect_err(|error| tracing::error!(%error, "replication must end"))
    }
}

fn log(Log { level, text }: &Log) {
    match level {
        LogLevel::Info => tracing::info!("{text}"),
        LogLevel::Warn => tracing::warn!("{text}"),
        LogLevel::Error => tracing::error!("{text}"),
    }
}

/// Pause when there is nothing to wait for.
const IDLE_PAUSE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
