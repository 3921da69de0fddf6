//! What command handlers can access.
//!
//! ```text
//!   Node     one per process: settings, log, counters, sessions, replication
//!    `- Client   one per connection: its identity and the result of its handshake
//!        `- Call     one per request: the client and the command
//! ```

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bson::{RawDocumentBuf, oid::ObjectId, rawdoc};
use parking_lot::Mutex;
use protocol::{Compressor, Compressors, DocSequence, ErrorCode, Profile, RawDoc, Timestamp};
use repl::{MemberState, Repl, io::delay::Delay};
use storage::Store;
use tokio::sync::watch;
use uuid::Uuid;

use crate::{
    auth::{Access, Who, action::Action, login::Login, privilege::Target},
    cluster_time::Signer,
    config::Settings,
    error::Failure,
    index_filters::IndexFilters,
    index_use::IndexUse,
    logging::Log,
    metrics::Metrics,
    operations::{Operation, Operations},
    parameters::Parameters,
    pins::{Pin, Pins},
    read::{blocking::Leash, cursors::Cursors, reply_buffers::ReplyBuffers},
    scrub::Scrubs,
    sessions::{SessionId, Sessions},
    shutdown::{Phase, Shutdown},
    system,
    tls::Subject,
};

/// The server as a whole.
pub struct Node {
    /// The settings.
    pub settings: Settings,
    /// The log.
    pub log: Log,
    /// Unique id of this process, for `topologyVersion.processId` and the reply to `_isSelf`.
    pub process_id: ObjectId,
    /// `host:port` as serverStatus shows it.
    pub host: String,
    /// Start time.
    pub started: Instant,
    /// Counters.
    pub metrics: Metrics,
    /// Logical sessions.
    pub sessions: Sessions,
    /// Server parameters.
    pub parameters: Arc<Parameters>,
    /// Access control.
    pub auth: Access,
    /// Signs cluster times.
    pub signer: Signer,
    /// The state of the shutdown.
    pub shutdown: Shutdown,
    /// The number of times that user connections were closed. A change tells connections to close.
    pub hang_ups: watch::Sender<u64>,
    max_connections: usize,
    compressors: Compressors,
    request_ids: AtomicI32,
    cluster_time: AtomicU64,
    repl: Option<Repl>,
    delay: Option<Arc<Delay>>,
    store: Option<Store>,
    /// Open cursors.
    pub cursors: Cursors,
    /// Timestamps that connections are pinned to.
    pub pins: Pins,
    /// Running requests.
    pub operations: Operations,
    /// Usage counts of indexes.
    pub index_use: IndexUse,
    /// The index filters.
    pub index_filters: IndexFilters,
    /// Buffers for large replies.
    pub reply_buffers: Arc<ReplyBuffers>,
    /// The state of scrubs.
    pub scrubs: Scrubs,
    /// The time and the report of the last backup since the start.
    pub last_backup: Mutex<Option<(bson::DateTime, RawDocumentBuf)>>,
}

impl Node {
    /// A node that does not listen yet.
    pub fn new(
        settings: Settings,
        log: Log,
        parameters: Arc<Parameters>,
        auth: Access,
        process_id: ObjectId,
        repl: Option<Repl>,
        store: Option<Store>,
    ) -> Self {
        Self {
            host: format!("{}:{}", system::host_name(), settings.port),
            process_id,
            started: Instant::now(),
            metrics: Metrics::new(),
            sessions: Sessions::default(),
            parameters,
            auth,
            signer: Signer::default(),
            shutdown: Shutdown::default(),
            hang_ups: watch::Sender::new(0),
            max_connections: settings.max_conns.min(system::open_files_max() / 5 * 4).max(1),
            compressors: Compressors::new(
                settings.compressors.iter().filter_map(|name| Compressor::from_name(name)),
            ),
            request_ids: AtomicI32::new(1),
            cluster_time: AtomicU64::new(0),
            repl,
            delay: None,
            store,
            cursors: Cursors::default(),
            pins: Pins::default(),
            operations: Operations::default(),
            index_use: IndexUse::default(),
            index_filters: IndexFilters::default(),
            reply_buffers: Arc::default(),
            scrubs: Scrubs::default(),
            last_backup: Mutex::default(),
            settings,
            log,
        }
    }

    /// Adds the member's delay.
    #[must_use]
    pub(crate) fn with_delay(mut self, delay: Option<Arc<Delay>>) -> Self {
        self.delay = delay;
        self
    }

    /// The member's delay.
    pub fn delay(&self) -> Option<&Delay> {
        self.delay.as_deref()
    }

    /// Replication, unless the server is a standalone.
    pub fn repl(&self) -> Option<&Repl> {
        self.repl.as_ref()
    }

    /// The store.
    pub fn store(&self) -> Result<&Store, Failure> {
        self.store.as_ref().ok_or_else(|| {
            Failure::said(ErrorCode::InternalError, "the server runs without a store")
        })
    }

    /// The release that is shown.
    pub fn profile(&self) -> &'static Profile {
        if let Some(pinned) = self.settings.impersonate {
            return pinned;
        }
        self.repl.as_ref().map_or_else(Profile::newest_tested, |repl| repl.profile())
    }

    /// Maximum number of connections: the setting, or four fifths of the file descriptors.
    pub(crate) fn max_connections(&self) -> usize {
        self.max_connections
    }

    /// The configured compressors.
    pub fn compressors(&self) -> Compressors {
        self.compressors
    }

    /// True if no write can ever succeed, which is the case for a standalone.
    pub(crate) fn is_read_only(&self) -> bool {
        self.repl.is_none()
    }

    /// True if clients get time to disconnect before the server stops. As in mongod, only a secondary waits: drivers
    /// do not use a node that has no config or no data yet.
    pub fn quiesces(&self) -> bool {
        let secondary =
            self.repl.as_ref().is_some_and(|repl| repl.snapshot().state == MemberState::Secondary);
        secondary && self.profile().quiesces
    }

    /// `topologyVersion.counter`. The start of the shutdown is its last change.
    pub fn topology_counter(&self) -> i64 {
        let counter = self.repl.as_ref().map_or(0, |repl| repl.snapshot().topology_counter);
        counter + i64::from(self.repl.is_some() && self.shutdown.phase() != Phase::Running)
    }

    /// `topologyVersion`.
    pub(crate) fn topology_version(&self) -> RawDocumentBuf {
        rawdoc! { "processId": self.process_id, "counter": self.topology_counter() }
    }

    /// Returns when the topology counter differs from `known`.
    pub(crate) async fn topology_change(&self, known: i64) {
        let Some(repl) = &self.repl else {
            // A standalone's topology changes only at shutdown.
            self.shutdown.begun().await;
            return;
        };
        let mut counters = repl.watch_topology();
        let changed = counters.wait_for(|counter| *counter != known);
        tokio::select! {
            // A stopped node counts as a change, too.
            _ = changed => {}
            _ = self.shutdown.begun() => {}
        }
    }

    /// An id for the next message.
    pub(crate) fn next_request_id(&self) -> i32 {
        self.request_ids.fetch_add(1, Ordering::Relaxed)
    }

    /// The newest known cluster time.
    pub fn cluster_time(&self) -> Timestamp {
        Timestamp::from_u64(self.cluster_time.load(Ordering::Relaxed))
    }

    /// Advances the cluster time to one received from another node or a client.
    pub fn advance_cluster_time(&self, to: Timestamp) {
        self.cluster_time.fetch_max(to.as_u64(), Ordering::Relaxed);
    }
}

/// One connection.
pub struct Client {
    /// The server.
    pub node: Arc<Node>,
    /// `connectionId`.
    pub id: i32,
    /// Its address.
    pub remote: SocketAddr,
    /// The local address of the connection.
    pub local: SocketAddr,
    /// The UUID that connectionStatus shows.
    pub uuid: Uuid,
    /// The subject of its certificate.
    pub subject: Option<Subject>,
    /// Its login.
    pub login: Login,
    handshake: Mutex<Handshake>,
}

/// The result of a connection's first hello.
#[derive(Debug, Clone, Default)]
pub struct Handshake {
    /// There was a hello already: client metadata is only taken from the first one.
    pub greeted: bool,
    /// The client understands `hello` and `primary`.
    pub hello_ok: bool,
    /// The wire version of a client that identifies itself as a member or a router.
    pub internal: Option<i32>,
    /// Compressors that it may use.
    pub compressors: Compressors,
    /// The `client` document: application, driver and system.
    pub metadata: Option<RawDoc>,
    /// The timestamp that its appName pins it to.
    pub pin: Option<Arc<Pin>>,
    /// `hangUpOnStepDown: false`: the connection stays open when our state changes.
    pub stays: bool,
}

impl Client {
    /// A connection before its first message.
    pub fn new(node: Arc<Node>, id: i32, remote: SocketAddr, local: SocketAddr) -> Self {
        let (login, handshake) = (Login::default(), Mutex::default());
        let (uuid, subject) = (Uuid::new_v4(), None);
        Self { node, id, remote, local, uuid, subject, login, handshake }
    }

    /// Adds the subject of its certificate.
    #[must_use]
    pub(crate) fn with_subject(mut self, subject: Option<Subject>) -> Self {
        self.subject = subject;
        self
    }

    /// The result of the handshake so far.
    pub fn handshake(&self) -> Handshake {
        self.handshake.lock().clone()
    }

    /// Compressors that it may use.
    pub fn compressors(&self) -> Compressors {
        self.handshake.lock().compressors
    }

    /// True if the client understands the word `primary`.
    pub(crate) fn hello_ok(&self) -> bool {
        self.handshake.lock().hello_ok
    }

    /// True for a member of the set or a router; with access control, only if it has authenticated as one.
    pub fn is_internal(&self) -> bool {
        let says_so = self.handshake.lock().internal.is_some();
        says_so && (!self.node.auth.required() || self.login.is_member())
    }

    /// A member has sent hello and authenticated if necessary: its release is the set's.
    pub(crate) fn member_is_known(&self) {
        let wire_version = self.handshake.lock().internal;
        if let (Some(repl), Some(wire_version)) = (self.node.repl(), wire_version) {
            repl.internal_client_said_hello(wire_version);
        }
    }

    /// Returns when user connections are to be closed, unless this connection stays open.
    pub(crate) async fn hung_up(&self) {
        let mut times = self.node.hang_ups.subscribe();
        loop {
            // Cannot fail: the sender lives as long as the node.
            if times.changed().await.is_err() {
                return;
            }
            if !self.handshake.lock().stays {
                return;
            }
        }
    }

    /// The timestamp that its reads are pinned to, if any.
    pub fn pinned(&self) -> Option<Timestamp> {
        self.handshake.lock().pin.as_ref().map(|pin| pin.ts)
    }

    /// Keeps the pinned timestamp readable, once the client is authenticated: others must not hold history.
    pub(crate) fn hold_pin(&self, who: &Who) -> Result<(), Failure> {
        let pin = self.handshake.lock().pin.clone();
        match pin.filter(|_| !who.is_restricted() || !who.users().is_empty()) {
            Some(pin) => pin.hold(self.node.store()?),
            None => Ok(()),
        }
    }

    /// Changes the result of the handshake.
    pub fn settle(&self, change: impl FnOnce(&mut Handshake)) {
        change(&mut self.handshake.lock());
    }

    /// The name in the log, such as `conn12`.
    pub fn name(&self) -> String {
        format!("conn{}", self.id)
    }
}

/// One request.
#[derive(Clone)]
pub struct Call {
    /// The client.
    pub client: Arc<Client>,
    /// The command document.
    pub body: RawDoc,
    /// Name of the command as the client wrote it.
    pub name: String,
    /// The database.
    pub db: String,
    /// Document sequences of the command.
    pub sequences: Vec<DocSequence>,
    /// The reply may be the first of many.
    pub exhaust_allowed: bool,
    /// The client allows reading from a secondary.
    pub secondary_ok: bool,
    /// The client's identity and privileges.
    pub who: Who,
    /// The session.
    pub lsid: Option<SessionId>,
    /// `maxTimeMS`, unless it is unlimited.
    pub max_time: Option<Duration>,
    /// When it arrived.
    pub started: Instant,
    /// The operation that currentOp shows and killOp kills.
    pub operation: Arc<Operation>,
    /// Set when nobody waits for the reply any more.
    pub abandoned: Arc<AtomicBool>,
    /// The cursor of a getMore: killing it ends the command.
    pub cursor: Option<i64>,
    /// Set while the command is tried on an async thread, where it must not take long.
    pub leash: Option<Arc<Leash>>,
}

impl Call {
    /// The server.
    pub fn node(&self) -> &Node {
        &self.client.node
    }

    /// The release that is shown.
    pub fn profile(&self) -> &'static Profile {
        self.client.node.profile()
    }

    /// Fails unless the action on the target is allowed.
    pub fn require(&self, target: Target<'_>, action: Action) -> Result<(), Failure> {
        if self.who.may(target, action) { Ok(()) } else { Err(self.unauthorized()) }
    }

    /// The authorization error, with the command as mongod shows it.
    pub fn unauthorized(&self) -> Failure {
        Failure::Unauthorized {
            db: self.db.clone(),
            command: crate::auth::shown::command(&self.body),
        }
    }
}

/// The result of a handler: the reply's body without `ok`, and what follows it.
#[derive(Debug, Default)]
pub struct Reply {
    /// The fields before `ok`.
    pub body: RawDocumentBuf,
    /// What the connection does after the reply.
    pub then: Then,
    /// The timestamp at which its writes on another node took effect.
    pub operation_time: Option<Timestamp>,
}

/// What the connection does after a reply.
#[derive(Debug, Default)]
pub enum Then {
    /// Wait for the client's next request.
    #[default]
    Wait,
    /// Run this request without being asked: an exhaust stream.
    Again(RawDoc),
    /// Close the connection.
    Close,
}

impl Reply {
    /// A reply with only `ok`.
    pub fn empty() -> Self {
        Self::default()
    }
}

impl From<RawDocumentBuf> for Reply {
    fn from(body: RawDocumentBuf) -> Self {
        Self { body, ..Self::default() }
    }
}

/// The result of a handler.
pub type Outcome = Result<Reply, Failure>;
