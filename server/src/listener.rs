//! Accepts connections, up to the limit, until shutdown.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream, lookup_host},
    task::JoinSet,
};

use crate::{
    config::Settings,
    connection::{self, End},
    context::{Client, Node},
    socket::Socket,
};

/// mongod's settings: a dead peer is detected after five minutes of silence.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(300);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Bound sockets that do not accept yet.
pub struct Listener {
    sockets: Vec<TcpListener>,
}

impl Listener {
    /// Binds all addresses.
    pub async fn bind(settings: &Settings) -> io::Result<Self> {
        let mut sockets = Vec::new();
        for ip in &settings.bind_ips {
            let mut addresses: Vec<SocketAddr> =
                lookup_host((ip.as_str(), settings.port)).await?.collect();
            // A name may have both kinds of addresses; IPv6 is used only if given as a numeric address.
            if addresses.iter().any(SocketAddr::is_ipv4) {
                addresses.retain(SocketAddr::is_ipv4);
            }
            for address in addresses {
                sockets.push(bind(address, settings.listen_backlog)?);
            }
        }
        Ok(Self { sockets })
    }

    /// Accepts connections until shutdown, then waits until all are closed.
    pub async fn run(self, node: Arc<Node>) {
        let mut accepting = JoinSet::new();
        for socket in self.sockets {
            accepting.spawn(accept_all(socket, node.clone()));
        }
        while accepting.join_next().await.is_some() {}
        node.metrics.connections_closed().await;
    }
}

fn bind(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(backlog)
}

async fn accept_all(socket: TcpListener, node: Arc<Node>) {
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = node.shutdown.ended() => return,
        };
        match accepted {
            Ok((stream, remote)) => admit(stream, remote, &node),
            Err(error) => {
                tracing::warn!(target: "NETWORK", id = 23023, ctx = "listener", error = %error,
                    "Error accepting new connection on local endpoint");
                // Out of file descriptors: retry when a connection closes.
                tokio::select! {
                    () = node.metrics.connection_closed.notified() => {}
                    () = tokio::time::sleep(ACCEPT_RETRY) => {}
                }
            }
        }
    }
}

/// A failed accept is retried after this time even if no connection was closed meanwhile.
const ACCEPT_RETRY: Duration = Duration::from_millis(500);

fn admit(stream: TcpStream, remote: SocketAddr, node: &Arc<Node>) {
    let metrics = &node.metrics;
    let current = metrics.connections.up();
    if current > i64::try_from(node.max_connections()).unwrap_or(i64::MAX) {
        metrics.connections.down();
        metrics.connections_rejected.up();
        tracing::info!(target: "NETWORK", id = 22942, ctx = "listener", remote = %remote,
            connectionCount = current - 1,
            "Connection refused because there are too many open connections");
        return;
    }
    metrics.connections_created.up();
    let id = i32::try_from(metrics.connections_created.get()).unwrap_or(i32::MAX);
    if !node.log.quiet() {
        tracing::info!(target: "NETWORK", id = 22943, ctx = "listener", remote = %remote,
            connectionId = id, connectionCount = current, "Connection accepted");
    }
    if let Err(error) = tune(&stream) {
        tracing::debug!(target: "NETWORK", ctx = "listener", error = %error, "Cannot tune the socket");
    }
    let node = node.clone();
    tokio::spawn(async move {
        let local = stream.local_addr().unwrap_or(remote);
        let opened = tokio::select! {
            opened = Socket::open(stream, &node) => opened,
            () = node.shutdown.ended() => Err(io::Error::other("the server is shutting down")),
        };
        let client = Client::new(node, id, remote, local);
        match opened {
            Ok((socket, subject)) => {
                let client = Arc::new(client.with_subject(subject));
                let end = connection::serve(socket, client.clone()).await;
                close(&client, &end);
            }
            Err(error) => close(&client, &End::Refused(error)),
        }
    });
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

fn close(client: &Client, end: &End) {
    let node = &client.node;
    node.metrics.connections.down();
    node.metrics.connection_closed.notify_waiters();
    let (ctx, remote) = (client.name(), client.remote);
    match end {
        End::Closed | End::Shutdown | End::HungUp => {}
        End::Broken(error) => {
            tracing::debug!(target: "NETWORK", id = 22989, ctx, remote = %remote, error = %error,
                "Error sending response to client. Ending connection from remote");
        }
        End::Frame(_) | End::Message(_) | End::Encode(_) | End::Refused(_) => {
            tracing::info!(target: "NETWORK", id = 22988, ctx, remote = %remote, error = %end,
                "Error receiving request from client. Ending connection from remote");
        }
    }
    if !node.log.quiet() {
        tracing::info!(target: "NETWORK", id = 22944, ctx = client.name(), remote = %remote,
            connectionId = client.id, connectionCount = node.metrics.connections.get(),
            "Connection ended");
    }
}
