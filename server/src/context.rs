//! What a command's handler may touch.
//!
//! ```text
//!   Node     one per process: settings, log, counters, sessions, replication
//!    `- Client   one per connection: who it is and what its handshake agreed on
//!        `- Call     one per request: the client and what it asks
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
    /// What it was started with.
    pub settings: Settings,
    /// Its log.
    pub log: Log,
    /// Names this process: `topologyVersion.processId` and the answer to `_isSelf`.
    pub process_id: ObjectId,
    /// `host:port` as serverStatus shows it.
    pub host: String,
    /// When it started.
    pub started: Instant,
    /// Counters.
    pub metrics: Metrics,
    /// Logical sessions.
    pub sessions: Sessions,
    /// Server parameters.
    pub parameters: Arc<Parameters>,
    /// Who may do what.
    pub auth: Access,
    /// Signs cluster times.
    pub signer: Signer,
    /// The end, when it comes.
    pub shutdown: Shutdown,
    max_connections: usize,
    compressors: Compressors,
    request_ids: AtomicI32,
    cluster_time: AtomicU64,
    repl: Option<Repl>,
    delay: Option<Arc<Delay>>,
    store: Option<Store>,
    /// Open cursors.
    pub cursors: Cursors,
    /// Moments that connections are pinned to.
    pub pins: Pins,
    /// Requests that run.
    pub operations: Operations,
    /// How often each index was used.
    pub index_use: IndexUse,
    /// Which indexes queries may use.
    pub index_filters: IndexFilters,
    /// Memory for large replies.
    pub reply_buffers: Arc<ReplyBuffers>,
    /// What is known of scrubs.
    pub scrubs: Scrubs,
}

impl Node {
    /// A node that has not begun to listen.
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
            settings,
            log,
        }
    }

    /// The same with the delay of a member.
    #[must_use]
    pub fn with_delay(mut self, delay: Option<Arc<Delay>>) -> Self {
        self.delay = delay;
        self
    }

    /// The delay of a member.
    pub fn delay(&self) -> Option<&Delay> {
        self.delay.as_deref()
    }

    /// Replication, unless the server runs alone.
    pub fn repl(&self) -> Option<&Repl> {
        self.repl.as_ref()
    }

    /// The data.
    pub fn store(&self) -> Result<&Store, Failure> {
        self.store.as_ref().ok_or_else(|| {
            Failure::said(ErrorCode::InternalError, "the server runs without a store")
        })
    }

    /// The version that is shown.
    pub fn profile(&self) -> &'static Profile {
        if let Some(pinned) = self.settings.impersonate {
            return pinned;
        }
        self.repl.as_ref().map_or_else(Profile::newest_tested, |repl| repl.profile())
    }

    /// How many connections may be open: the setting, or four fifths of the file descriptors.
    pub fn max_connections(&self) -> usize {
        self.max_connections
    }

    /// The compressors of the settings.
    pub fn compressors(&self) -> Compressors {
        self.compressors
    }

    /// True where no write could ever succeed: alone, without a set to follow.
    pub fn is_read_only(&self) -> bool {
        self.repl.is_none()
    }

    /// Whether clients are given time to leave before the end. As with a mongod: only by a secondary, because nobody
    /// is sent to a node that has no config or no data yet.
    pub fn quiesces(&self) -> bool {
        let secondary =
            self.repl.as_ref().is_some_and(|repl| repl.snapshot().state == MemberState::Secondary);
        secondary && self.profile().quiesces
    }

    /// `topologyVersion.counter`. The quiesce before the end is the last change.
    pub fn topology_counter(&self) -> i64 {
        let counter = self.repl.as_ref().map_or(0, |repl| repl.snapshot().topology_counter);
        counter + i64::from(self.repl.is_some() && self.shutdown.phase() != Phase::Running)
    }

    /// `topologyVersion`.
    pub fn topology_version(&self) -> RawDocumentBuf {
        rawdoc! { "processId": self.process_id, "counter": self.topology_counter() }
    }

    /// Returns when the topology counter is no longer `known`.
    pub async fn topology_change(&self, known: i64) {
        let Some(repl) = &self.repl else {
            // Alone, only the end is a change.
            self.shutdown.begun().await;
            return;
        };
        let mut counters = repl.watch_topology();
        let changed = counters.wait_for(|counter| *counter != known);
        tokio::select! {
            // The node having stopped is a change too.
            _ = changed => {}
            _ = self.shutdown.begun() => {}
        }
    }

    /// A number for the next message that is sent.
    pub fn next_request_id(&self) -> i32 {
        self.request_ids.fetch_add(1, Ordering::Relaxed)
    }

    /// The newest cluster time that was heard of.
    pub fn cluster_time(&self) -> Timestamp {
        Timestamp::from_u64(self.cluster_time.load(Ordering::Relaxed))
    }

    /// Takes a cluster time that somebody gossiped.
    pub fn advance_cluster_time(&self, to: Timestamp) {
        self.cluster_time.fetch_max(to.as_u64(), Ordering::Relaxed);
    }
}

/// One connection.
pub struct Client {
    /// The server it is connected to.
    pub node: Arc<Node>,
    /// `connectionId`.
    pub id: i32,
    /// Its address.
    pub remote: SocketAddr,
    /// The address it came to.
    pub local: SocketAddr,
    /// What connectionStatus shows.
    pub uuid: Uuid,
    /// Whom its certificate names.
    pub subject: Option<Subject>,
    /// Who is logged in.
    pub login: Login,
    handshake: Mutex<Handshake>,
}

/// What the first hello of a connection settled.
#[derive(Debug, Clone, Default)]
pub struct Handshake {
    /// There was a hello already: what a client says of itself it says in the first.
    pub greeted: bool,
    /// The client knows the words `hello` and `primary`.
    pub hello_ok: bool,
    /// The client says that it is a member of a set, or a router, and which wire version it speaks.
    pub internal: Option<i32>,
    /// Envelopes that it may send.
    pub compressors: Compressors,
    /// The `client` document: application, driver and system.
    pub metadata: Option<RawDoc>,
    /// The moment that its appName asks for.
    pub pin: Option<Arc<Pin>>,
}

impl Client {
    /// A connection that has said nothing yet.
    pub fn new(node: Arc<Node>, id: i32, remote: SocketAddr, local: SocketAddr) -> Self {
        let (login, handshake) = (Login::default(), Mutex::default());
        let (uuid, subject) = (Uuid::new_v4(), None);
        Self { node, id, remote, local, uuid, subject, login, handshake }
    }

    /// With the certificate that it has shown.
    #[must_use]
    pub fn with_subject(mut self, subject: Option<Subject>) -> Self {
        self.subject = subject;
        self
    }

    /// What is settled so far.
    pub fn handshake(&self) -> Handshake {
        self.handshake.lock().clone()
    }

    /// Envelopes that it may send.
    pub fn compressors(&self) -> Compressors {
        self.handshake.lock().compressors
    }

    /// True for a client that knows the word `primary`.
    pub fn hello_ok(&self) -> bool {
        self.handshake.lock().hello_ok
    }

    /// True for a member of a set or a router; where members must prove it, for one that did.
    pub fn is_internal(&self) -> bool {
        let says_so = self.handshake.lock().internal.is_some();
        says_so && (!self.node.auth.required() || self.login.is_member())
    }

    /// A member has said hello and, where it must, proven to be one: its version is the set's.
    pub fn member_is_known(&self) {
        let wire_version = self.handshake.lock().internal;
        if let (Some(repl), Some(wire_version)) = (self.node.repl(), wire_version) {
            repl.internal_client_said_hello(wire_version);
        }
    }

    /// The moment that all its reads see, if it is pinned to one.
    pub fn pinned(&self) -> Option<Timestamp> {
        self.handshake.lock().pin.as_ref().map(|pin| pin.ts)
    }

    /// Keeps the moment that it is pinned to readable, once it is somebody: who is not let in holds no history.
    pub fn hold_pin(&self, who: &Who) -> Result<(), Failure> {
        let pin = self.handshake.lock().pin.clone();
        match pin.filter(|_| !who.is_restricted() || !who.users().is_empty()) {
            Some(pin) => pin.hold(self.node.store()?),
            None => Ok(()),
        }
    }

    /// Changes what is settled.
    pub fn settle(&self, change: impl FnOnce(&mut Handshake)) {
        change(&mut self.handshake.lock());
    }

    /// `conn12`, as the log names it.
    pub fn name(&self) -> String {
        format!("conn{}", self.id)
    }
}

/// One request.
#[derive(Clone)]
pub struct Call {
    /// Who asks.
    pub client: Arc<Client>,
    /// The command document.
    pub body: RawDoc,
    /// Name of the command as the client wrote it.
    pub name: String,
    /// The database.
    pub db: String,
    /// Arrays of the command that travelled beside it.
    pub sequences: Vec<DocSequence>,
    /// The reply may be the first of many.
    pub exhaust_allowed: bool,
    /// The client is content with a secondary.
    pub secondary_ok: bool,
    /// What is open to whoever asks.
    pub who: Who,
    /// The session.
    pub lsid: Option<SessionId>,
    /// `maxTimeMS`, unless it is without limit.
    pub max_time: Option<Duration>,
    /// When it came.
    pub started: Instant,
    /// What currentOp shows and killOp ends.
    pub operation: Arc<Operation>,
    /// Set when nobody waits for the answer any more.
    pub abandoned: Arc<AtomicBool>,
    /// The cursor that a getMore goes on with: whoever kills it ends the command.
    pub cursor: Option<i64>,
    /// Set while it is tried beside the async tasks, where nothing may take long.
    pub leash: Option<Arc<Leash>>,
}

impl Call {
    /// The server.
    pub fn node(&self) -> &Node {
        &self.client.node
    }

    /// The version that is shown.
    pub fn profile(&self) -> &'static Profile {
        self.client.node.profile()
    }

    /// Refuses unless the action on the target is allowed.
    pub fn require(&self, target: Target<'_>, action: Action) -> Result<(), Failure> {
        if self.who.may(target, action) { Ok(()) } else { Err(self.unauthorized()) }
    }

    /// The refusal, with the command as mongod shows it.
    pub fn unauthorized(&self) -> Failure {
        Failure::Unauthorized {
            db: self.db.clone(),
            command: crate::auth::shown::command(&self.body),
        }
    }
}

/// What a handler gives back: the reply's body without `ok`, and what follows it.
#[derive(Debug, Default)]
pub struct Reply {
    /// The fields before `ok`.
    pub body: RawDocumentBuf,
    /// What follows.
    pub then: Then,
    /// When what it wrote elsewhere took effect.
    pub operation_time: Option<Timestamp>,
}

/// What follows a reply.
#[derive(Debug, Default)]
pub enum Then {
    /// The next request of the client.
    #[default]
    Wait,
    /// This request, without being asked again: an exhaust stream.
    Again(RawDoc),
    /// The end of the connection.
    Close,
}

impl Reply {
    /// A reply of nothing but `ok`.
    pub fn empty() -> Self {
        Self::default()
    }
}

impl From<RawDocumentBuf> for Reply {
    fn from(body: RawDocumentBuf) -> Self {
        Self { body, ..Self::default() }
    }
}

/// What a handler gives back.
pub type Outcome = Result<Reply, Failure>;
