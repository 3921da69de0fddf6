//! [`Repl`]: what the server and the data plane hold of replication. Cheap to clone.

use std::sync::Arc;

use bson::RawDocumentBuf;
use protocol::ErrorCode;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    core::{member_state::MemberState, profile::Profile, snapshot::Snapshot},
    event::{Answer, CommandError, DataEvent, Event, Request},
};

/// The handle of a running node.
#[derive(Clone)]
pub struct Repl {
    pub(crate) inbox: mpsc::UnboundedSender<Message>,
    pub(crate) snapshots: watch::Receiver<Arc<Snapshot>>,
}

/// What reaches the runner's loop.
pub(crate) enum Message {
    /// For the node as it is.
    Event(Event),
    /// A request and where its answer goes.
    Ask(Request, oneshot::Sender<Answer>),
}

impl Repl {
    /// The node as it is now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshots.borrow().clone()
    }

    /// Wakes at every change of the snapshot: positions, commit point, state, topology.
    pub fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshots.clone()
    }

    /// Our state.
    pub fn member_state(&self) -> MemberState {
        self.snapshots.borrow().state
    }

    /// The version that we show.
    pub fn profile(&self) -> &'static Profile {
        self.snapshots.borrow().profile
    }

    /// For the data plane: what came of its task.
    pub fn tell(&self, event: DataEvent) {
        self.send(Event::Data(event));
    }

    /// For the server: a peer said hello with `internalClient`. Tells the set's version before there is a config.
    pub fn internal_client_said_hello(&self, max_wire_version: i32) {
        self.send(Event::InternalClient { max_wire_version });
    }

    /// Asks the node; replies are without `ok`, metadata and cluster time, which the server appends.
    pub async fn ask(&self, request: Request) -> Answer {
        let (sender, receiver) = oneshot::channel();
        let _closed = self.inbox.send(Message::Ask(request, sender));
        receiver.await.unwrap_or_else(|_| {
            let text = "replication has stopped on this node";
            Err(CommandError::new(ErrorCode::ShutdownInProgress, text))
        })
    }

    fn send(&self, event: Event) {
        // A closed channel means that the node has stopped; the process is about to end.
        let _closed = self.inbox.send(Message::Event(event));
    }
}

/// What the server appends to replies and needs for `hello`; all from one snapshot.
impl Snapshot {
    /// The replica set's part of a `hello` reply (`hello`: false for `isMaster`).
    pub fn hello(&self, hello: bool) -> RawDocumentBuf {
        crate::core::status::hello(self, hello)
    }

    /// `$replData`.
    pub fn repl_data(&self) -> RawDocumentBuf {
        crate::core::status::repl_data(self)
    }

    /// `$oplogQueryData`.
    pub fn oplog_query_data(&self) -> RawDocumentBuf {
        crate::core::status::oplog_query_data(self)
    }
}
