//! [`Repl`]: the handle of replication for the server and the data plane. Cheap to clone.

use std::sync::Arc;

use bson::RawDocumentBuf;
use protocol::{
    ErrorCode, Profile,
    client::{ClientError, Connection},
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    core::{member_state::MemberState, snapshot::Snapshot, status},
    event::{Answer, CommandError, DataEvent, Event, Request},
    io::peer::Peer,
};

/// The handle of a running node.
#[derive(Clone, Debug)]
pub struct Repl {
    pub(super) inbox: mpsc::UnboundedSender<Message>,
    pub(super) snapshots: watch::Receiver<Arc<Snapshot>>,
    pub(super) topologies: watch::Receiver<i64>,
    pub(super) stop: CancellationToken,
    pub(super) peer: Peer,
}

/// A message to the runner's loop.
#[derive(Debug)]
pub(super) enum Message {
    /// An event for the node.
    Event(Event),
    /// A request with the channel for its answer.
    Ask(Request, oneshot::Sender<Answer>),
}

impl Repl {
    /// The current state of the node.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshots.borrow().clone()
    }

    /// Notified of every change of the snapshot: positions, commit point, state, topology.
    pub fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshots.clone()
    }

    /// `topologyVersion.counter`; notified when it changes. For awaitable `hello`.
    pub fn watch_topology(&self) -> watch::Receiver<i64> {
        self.topologies.clone()
    }

    /// Opens a new connection to the current primary; `None` if none is known.
    pub async fn connect_to_primary(&self) -> Option<Result<Connection, ClientError>> {
        let snapshot = self.snapshot();
        let primary = snapshot.primary()?;
        Some(self.peer.connect(primary).await)
    }

    /// Our state.
    pub fn member_state(&self) -> MemberState {
        self.snapshots.borrow().state
    }

    /// The release that we show.
    pub fn profile(&self) -> &'static Profile {
        self.snapshots.borrow().profile
    }

    /// For the data plane: reports the result of its task.
    pub fn tell(&self, event: DataEvent) {
        self.send(Event::Data(event));
    }

    /// For the server: a peer sent hello with `internalClient`. Before there is a config, the set's release is
    /// learned from it; wait for [`Self::profile`] to change before building the reply, or show `max_wire_version`
    /// itself as the highest wire version.
    pub fn internal_client_said_hello(&self, max_wire_version: i32) {
        self.send(Event::InternalClient { max_wire_version });
    }

    /// Sends a request to the node. The reply has no `ok`, `$replData` and cluster time, which the server appends.
    pub async fn ask(&self, request: Request) -> Answer {
        let (sender, receiver) = oneshot::channel();
        let stopped = || {
            let text = "replication has stopped on this node";
            CommandError::new(ErrorCode::ShutdownInProgress, text)
        };
        self.inbox.send(Message::Ask(request, sender)).map_err(|_| stopped())?;
        receiver.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// For the server: an operator changed something that may let a halted node continue.
    pub fn try_again(&self, because: &str) {
        self.send(Event::TryAgain { because: because.to_owned() });
    }

    /// Ends the node's loop. Heartbeats stop; others see us as down.
    pub fn shut_down(&self) {
        self.stop.cancel();
    }

    fn send(&self, event: Event) {
        // A closed channel means that the node has stopped; the process is about to end.
        let _closed = self.inbox.send(Message::Event(event));
    }
}

/// What the server writes into replies, all from one snapshot.
impl Snapshot {
    /// The replica set's part of a `hello` reply (of `isMaster` if `hello` is false), from `topologyVersion` to
    /// `lastWrite`.
    pub fn hello(&self, hello: bool) -> RawDocumentBuf {
        status::hello(self, hello)
    }

    /// The value of `$replData`, for replies to requests that have that field.
    pub fn repl_data(&self) -> RawDocumentBuf {
        status::repl_data(self)
    }

    /// The value of `$oplogQueryData`, for replies to requests that have that field.
    pub fn oplog_query_data(&self) -> RawDocumentBuf {
        status::oplog_query_data(self)
    }
}
