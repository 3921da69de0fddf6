//! A TCP proxy that misbehaves on demand.
//!
//! ```text
//!   node A ──> proxy port ──[ cut | stall | delay | throttle | corrupt | edit ]──> node B
//! ```
//! The set's config names the proxy instead of the node behind it, so every member's traffic to that node
//! passes here. Faults can be changed at any time and hold for open and new connections alike.
//!
//! X1 Bytes leave in the order in which they came, and none is lost unless the link is cut.
//! X2 Cut means what a dead machine's neighbour sees: open connections are reset, new ones refused.

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

/// A port whose connections go to another port of this machine.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    link: watch::Sender<Link>,
    shared: Arc<Shared>,
    task: AbortHandle,
}

/// Which way bytes flow, seen from the one who connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Requests.
    ToServer,
    /// Replies.
    ToClient,
}

impl Proxy {
    /// Opens a proxy before `target`, healthy.
    pub fn to(target: u16) -> Result<Self> {
        Self::open(target, false)
    }

    /// The same before a server of MongoDB: its replies pass as whole messages and can be edited.
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

    /// How many connections it has accepted so far.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Resets all connections and refuses new ones.
    pub fn cut(&self) -> Result<()> {
        self.link.send_modify(|link| link.mode = Mode::Cut);
        self.await_listening(false)
    }

    /// Keeps connections open but lets nothing through: a hung machine.
    pub fn stall(&self) {
        self.link.send_modify(|link| link.mode = Mode::Stall);
    }

    /// Every byte arrives this much later.
    pub fn delay(&self, by: Duration) {
        self.link.send_modify(|link| link.delay = by);
    }

    /// At most this many bytes a second, in each direction of each connection.
    pub fn throttle(&self, bytes_per_sec: u64) {
        self.link.send_modify(|link| link.bytes_per_sec = Some(bytes_per_sec.max(1)));
    }

    /// Flips one bit of the byte that comes after `skip` more bytes in this direction, once.
    pub fn corrupt(&self, direction: Direction, skip: u64) {
        *self.shared.corruption(direction) = Some(skip);
    }

    /// Whether a byte asked for by [`Proxy::corrupt`] has not come by yet.
    pub fn corruption_is_pending(&self, direction: Direction) -> bool {
        self.shared.corruption(direction).is_some()
    }

    /// Shows every reply to `editor`, until healed.
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

/// What the link does to the bytes now.
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

    /// What may pass of the bytes read so far, and whether the connection breaks then.
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

    /// Flips the bit that was asked for if its byte is in this piece.
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

/// Accepts while the link is not cut; all connections end with this task.
async fn listen(port: u16, target: u16, mut link: watch::Receiver<Link>, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        if link.wait_for(|link| link.mode != Mode::Cut).await.is_err() {
            return;
        }
        // The port is ours; it can only be busy for a moment after a cut.
        let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await else {
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        shared.listening.send_replace(true);
        accept_until_cut(&listener, target, &mut link, &shared, &mut connections).await;
        drop(listener);
        // Every connection has seen the cut and is reset before anybody is told that it is done.
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

/// One connection, until both sides have closed (one is enough before a server), one has failed, or the link is cut.
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
                // A server whose client is gone may go on sending, to nobody.
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

/// Copies one direction. Reading and writing are apart, so that a delay does not cost throughput.
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
            // An error means that the proxy is gone, and this task with it.
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
            // A change of the link ends the pause.
            let _ = tokio::time::timeout(pause, link.changed()).await;
        }
    }
    Ok(())
}

/// The peer sees a reset, not an orderly end.
fn reset(stream: &TcpStream) {
    // If the socket is dead already there is nothing to reset.
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
/// Pieces in flight while a delay holds them.
const QUEUE: usize = 1024;
const STEPS_PER_SEC: u64 = 50;

#[cfg(test)]
mod tests;
