//! A client for one connection to a mongod: request and reply, exhaust streams, compression.
//!
//! ```text
//!  Connection::connect ── TCP ── TLS hook ── hello ── authenticator hook ──> ready
//!     run(db, command, timeout)      one request, one reply
//!     exhaust(db, command, timeout)  one request, replies until the server ends them
//! ```
//! K1 A connection with an unfinished exchange (timeout, error, dropped future, dropped stream) is broken: every
//!    later call fails. Otherwise a late reply could be taken for the answer to the next request.
//! K2 A reply is accepted only if it answers the request that was sent last.
//!
//! There is no connection pool and no retry here: replication decides when and where to connect again.

mod auth;
mod connection;
mod error;
mod exhaust;
mod hello;

use std::{fmt, io, sync::Arc, time::Duration};

use bson::RawDocumentBuf;
use futures_util::future::BoxFuture;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

pub use auth::{ScramAuthenticator, X509Authenticator};
pub use connection::Connection;
pub use error::{ClientError, CommandError};
pub use exhaust::Exhaust;
pub use hello::{HelloReply, WireVersions};

use crate::{Compressors, HostAndPort};

/// Options for making a connection.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The driver that we name in the handshake.
    pub driver: DriverInfo,
    /// The application name in the handshake.
    pub app_name: Option<String>,
    /// Marks us as a cluster member, with the wire versions that we speak. The peer then returns its internal range,
    /// and the two must overlap.
    pub internal_client: Option<WireVersions>,
    /// Our own `host:port`, which members send in `hostInfo`.
    pub host_info: Option<String>,
    /// Compressors to offer.
    pub compressors: Compressors,
    /// Further hello fields that members send, for instance `hangUpOnStepDown`.
    pub hello_fields: RawDocumentBuf,
    /// Send checksums, as mongod does when TLS is not used.
    pub checksums: bool,
    /// Check every document of every reply completely, as mongod does.
    pub check_bson: bool,
    /// Timeout for TCP, TLS, hello and authentication together.
    pub connect_timeout: Duration,
    /// Wraps the socket in TLS.
    pub tls: Option<Arc<dyn TlsConnector>>,
    /// Authenticates after the hello.
    pub authenticator: Option<Arc<dyn Authenticator>>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            driver: DriverInfo::default(),
            app_name: None,
            internal_client: None,
            host_info: None,
            compressors: Compressors::NONE,
            hello_fields: RawDocumentBuf::new(),
            checksums: true,
            check_bson: true,
            connect_timeout: CONNECT_TIMEOUT,
            tls: None,
            authenticator: None,
        }
    }
}

/// mongod's own timeout for connecting to another member.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// The `client.driver` of the handshake.
#[derive(Clone, Debug)]
pub struct DriverInfo {
    /// Driver name. A member that impersonates mongod sends mongod's own.
    pub name: String,
    /// Driver version.
    pub version: String,
}

impl Default for DriverInfo {
    fn default() -> Self {
        Self { name: "Understudy".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

/// A plain or TLS socket.
pub trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

/// Turns a fresh socket into an encrypted stream.
pub trait TlsConnector: fmt::Debug + Send + Sync {
    /// Runs the TLS handshake with `host`.
    fn connect<'a>(
        &'a self,
        host: &'a HostAndPort,
        socket: TcpStream,
    ) -> BoxFuture<'a, io::Result<Box<dyn Stream>>>;
}

/// Authenticates fresh connections.
pub trait Authenticator: fmt::Debug + Send + Sync {
    /// Adds its fields to the hello. The conversation continues when the hello is answered.
    fn begin(&self, hello: &mut RawDocumentBuf) -> Box<dyn Conversation + '_>;
}

/// The authentication of one connection.
pub trait Conversation: Send {
    /// Completes the authentication. [`Connection::hello`] holds the reply to the hello.
    fn finish<'a>(
        self: Box<Self>,
        connection: &'a mut Connection,
    ) -> BoxFuture<'a, Result<(), ClientError>>
    where
        Self: 'a;
}
