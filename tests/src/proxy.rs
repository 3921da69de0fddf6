//! A TCP proxy that injects faults.
//!
//! ```text
//!   node A ──> proxy port ──[ cut | stall | delay | throttle | corrupt | edit ]──> node B
//! ```
//! The set's config names the proxy instead of the node behind it, so all members' traffic to that node passes
//! through. Faults can be changed at any time and apply to open and new connections.
//!
//! X1 Bytes leave in the order in which they arrived, and none is lost unless the link is cut.
//! X2 A cut behaves like a dead machine: open connections are reset, new ones refused.

mod edit;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

pub use self::edit::Edit;
use self::edit::{Editor, Messages, edited};
use crate::port::Port;
use crate::wait::{PATIENCE, wait_for};

/// A port that forwards connections to another port of this machine.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    link: watch::Sender<Link>,
    shared: Arc<Shared>,
    task: AbortHandle,
}

/// Direction of the bytes, seen from the connecting side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Requests.
    ToServer,
    /// Replies.
    ToClient,
}

impl Proxy {
    /// Opens a proxy in front of `target`, without faults.
    pub fn to(target: u16) -> Result<Self> {
        Self::open(target, false)
    }

    /// Like [`Self::to`], in front of a MongoDB server: replies are forwarded as whole messages and can be edited.
    pub fn to_server(target: u16) -> Result<Self> {
        Self::open(target, true)
    }

    fn open(target: u16, by_message: bool) -> Result<Self> {
        let port = Port::take()?;
        let (link, watched) = watch::channel(Link::default());
        let shared = Arc::new(Shared { by_message, ..Shared::default() });
        let runtime = runtime()?;
        let listening = listen(port.number(), target, watched, Arc::clone(&shared));
        let task = runtime.spawn(listening).abort_handle();
        let proxy = Self { port, link, shared, task };
        proxy.await_listening(true)?;
        Ok(proxy)
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Number of connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Resets all connections and refuses new ones.
    pub fn cut(&self) -> Result<()> {
        self.link.send_modify(|link| link.mode = Mode::Cut);
        self.await_listening(false)
    }

    /// Keeps connections open but forwards nothing, like a hung machine.
    pub fn stall(&self) {
        self.link.send_modify(|link| link.mode = Mode::Stall);
    }

    /// Delays every byte by this time.
    pub fn delay(&self, by: Duration) {
        self.link.send_modify(|link| link.delay = by);
    }

    /// Limits the throughput to this many bytes per second, in each direction of each connection.
    pub fn throttle(&self, bytes_per_sec: u64) {
        self.link.send_modify(|link| link.bytes_per_sec = Some(bytes_per_sec.max(1)));
    }

    /// Flips one bit of the byte after the next `skip` bytes in this direction, once.
    pub fn corrupt(&self, direction: Direction, skip: u64) {
        *self.shared.corruption(direction) = Some(skip);
    }

    /// True if the byte for [`Proxy::corrupt`] has not passed yet.
    pub fn corruption_is_pending(&self, direction: Direction) -> bool {
        self.shared.corruption(direction).is_some()
    }

    /// Passes every reply to `editor`, until [`Self::heal`].
    pub fn edit(&self, editor: impl FnMut(&mut bson::Document) -> Edit + Send + 'static) {
        *self.shared.editor() = Some(Box::new(editor));
    }

    /// Ends all faults.
    pub fn heal(&self) -> Result<()> {
        *self.shared.editor() = None;
        *self.shared.corruption(Direction::ToServer) = None;
        *self.shared.corruption(Direction::ToClient) = None;
        self.link.send_modify(|link| *link = Link::default());
        self.await_listening(true)
    }

    fn await_listening(&self, want: bool) -> Result<()> {
        let what = format!("the proxy on port {} listens: {want}", self.port());
        wait_for(&what, PATIENCE, || Ok(*self.shared.listening.subscribe().borrow() == want))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Current behaviour of the link.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    mode: Mode,
    delay: Duration,
    bytes_per_sec: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Pass,
    Stall,
    Cut,
}

struct Shared {
    by_message: bool,
    editor: Mutex<Option<Editor>>,
    accepted: AtomicU64,
    listening: watch::Sender<bool>,
    to_server: Mutex<Option<u64>>,
    to_client: Mutex<Option<u64>>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            by_message: false,
            editor: Mutex::new(None),
            accepted: AtomicU64::new(0),
            listening: watch::Sender::new(false),
            to_server: Mutex::new(None),
            to_client: Mutex::new(None),
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("accepted", &self.accepted).finish_non_exhaustive()
    }
}

impl Shared {
    fn editor(&self) -> std::sync::MutexGuard<'_, Option<Editor>> {
        self.editor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes to forward, and whether the connection breaks after them.
    fn passing(&self, messages: &mut Messages, bytes: &[u8]) -> (Vec<u8>, bool) {
        messages.push(bytes);
        let mut out = Vec::new();
        while let Some(message) = messages.next() {
            let passed = match &mut *self.editor() {
                Some(editor) => edited(message, editor),
                None => Ok(message),
            };
            match passed {
                Ok(message) => out.extend(message),
                Err(half) => {
                    out.extend(half);
                    return (out, true);
                }
            }
        }
        (out, false)
    }

    fn corruption(&self, direction: Direction) -> std::sync::MutexGuard<'_, Option<u64>> {
        let cell = match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        };
        cell.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Flips the requested bit if its byte is in this piece.
    fn corrupt(&self, direction: Direction, bytes: &mut [u8]) {
        let mut skip = self.corruption(direction);
        let Some(left) = *skip else { return };
        match usize::try_from(left).ok().and_then(|at| bytes.get_mut(at)) {
            Some(byte) => {
                *byte ^= 1;
                *skip = None;
            }
            None => *skip = Some(left - bytes.len() as u64),
        }
    }
}

/// Accepts connections while the link is not cut; all connections end with this task.
async fn listen(port: u16, target: u16, mut link: watch::Receiver<Link>, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        if link.wait_for(|link| link.mode != Mode::Cut).await.is_err() {
            return;
        }
        // The port is reserved for us; it can only be busy for a moment after a cut.
        let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await else {
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        shared.listening.send_replace(true);
        accept_until_cut(&listener, target, &mut link, &shared, &mut connections).await;
        drop(listener);
        // Wait until every connection was reset before reporting the cut as done.
        while connections.join_next().await.is_some() {}
        shared.listening.send_replace(false);
    }
}

async fn accept_until_cut(
    listener: &TcpListener,
    target: u16,
    link: &mut watch::Receiver<Link>,
    shared: &Arc<Shared>,
    connections: &mut JoinSet<()>,
) {
    let watched = link.clone();
    let cut = link.wait_for(|link| link.mode == Mode::Cut);
    tokio::pin!(cut);
    loop {
        tokio::select! {
            _ = &mut cut => return,
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                shared.accepted.fetch_add(1, Ordering::SeqCst);
                connections.spawn(serve(client, target, watched.clone(), Arc::clone(shared)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection until both sides have closed (one is enough in front of a server), one has failed, or the
/// link is cut.
async fn serve(
    mut client: TcpStream,
    target: u16,
    mut link: watch::Receiver<Link>,
    shared: Arc<Shared>,
) {
    let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await else {
        reset(&client);
        return;
    };
    let failed = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let up = pump(from_client, to_server, Direction::ToServer, link.clone(), &shared);
        let down = pump(from_server, to_client, Direction::ToClient, link.clone(), &shared);
        let ended = async {
            if shared.by_message {
                // A server whose client is gone may keep sending, so the end of one direction ends the connection.
                tokio::select! { up = up => up, down = down => down }
            } else {
                tokio::try_join!(up, down).map(|_| ())
            }
        };
        tokio::select! {
            ended = ended => ended.is_err(),
            _ = link.wait_for(|link| link.mode == Mode::Cut) => true,
        }
    };
    if failed {
        reset(&client);
        reset(&server);
    }
}

/// Copies one direction. Reading and writing are separate, so that a delay does not reduce throughput.
async fn pump(
    mut from: tokio::net::tcp::ReadHalf<'_>,
    mut to: tokio::net::tcp::WriteHalf<'_>,
    direction: Direction,
    mut link: watch::Receiver<Link>,
    shared: &Shared,
) -> std::io::Result<()> {
    let (queue, mut queued) = mpsc::channel::<(Instant, Vec<u8>)>(QUEUE);
    let watched = link.clone();
    let read = async move {
        let mut buffer = vec![0; PIECE];
        let mut messages = Messages::default();
        loop {
            let n = from.read(&mut buffer).await?;
            let Some(bytes) = buffer.get(..n).filter(|bytes| !bytes.is_empty()) else {
                return Ok(());
            };
            let (mut bytes, breaks) = match direction {
                Direction::ToClient if shared.by_message => shared.passing(&mut messages, bytes),
                _ => (bytes.to_vec(), false),
            };
            shared.corrupt(direction, &mut bytes);
            let due = Instant::now() + watched.borrow().delay;
            if !bytes.is_empty() && queue.send((due, bytes)).await.is_err() {
                return Ok(());
            }
            if breaks {
                return Err(std::io::ErrorKind::ConnectionReset.into());
            }
        }
    };
    let write = async {
        while let Some((due, bytes)) = queued.recv().await {
            sleep_until(due).await;
            // An error means that the proxy was dropped, which ends this task, too.
            let _ = link.wait_for(|link| link.mode != Mode::Stall).await;
            write_at_rate(&mut to, &bytes, &mut link).await?;
        }
        to.shutdown().await
    };
    tokio::try_join!(read, write).map(|_: ((), ())| ())
}

async fn write_at_rate(
    to: &mut tokio::net::tcp::WriteHalf<'_>,
    bytes: &[u8],
    link: &mut watch::Receiver<Link>,
) -> std::io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let rate = link.borrow().bytes_per_sec;
        let step = rate.map_or(rest.len() as u64, |rate| (rate / STEPS_PER_SEC).max(1));
        let step = usize::try_from(step).unwrap_or(rest.len()).min(rest.len());
        let (now, later) = rest.split_at(step);
        to.write_all(now).await?;
        rest = later;
        if let Some(rate) = rate {
            let pause =
                Duration::from_secs(now.len() as u64) / u32::try_from(rate).unwrap_or(u32::MAX);
            // A change of the link ends the pause early.
            let _ = tokio::time::timeout(pause, link.changed()).await;
        }
    }
    Ok(())
}

/// Makes the peer see a reset instead of an orderly close.
fn reset(stream: &TcpStream) {
    // If the socket is already dead there is nothing to reset.
    let _ = stream.set_zero_linger();
}

/// One runtime for all proxies of the process.
fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("proxy")
        .enable_all()
        .build()
        .context("start the proxies' runtime")?;
    Ok(RUNTIME.get_or_init(|| runtime))
}

const PIECE: usize = 16 * 1024;
/// Maximum number of delayed pieces.
const QUEUE: usize = 1024;
const STEPS_PER_SEC: u64 = 50;

#[cfg(test)]
mod tests;
