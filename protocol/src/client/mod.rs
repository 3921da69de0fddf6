//! A client for one connection to a mongod: request and reply, exhaust streams, compression.
//!
//! ```text
//!  Connection::connect ── TCP ── TLS hook ── hello ── authenticator hook ──> ready
//!     run(db, command, timeout)      one request, one reply
//!     exhaust(db, command, timeout)  one request, replies until the server ends them
//! ```
//! K1 A connection on which an exchange was left unfinished (timeout, error, dropped future, dropped
//!    stream) is broken: every later call says so. There is no guessing which reply belongs to what.
//! K2 A reply is taken only if it answers the request that was sent last.
//!
//! Neither a pool nor retries are here: replication decides itself when to connect again, and where.

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

/// What a connection needs to know before it is made.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Who we are, in the metadata of the handshake.
    pub driver: DriverInfo,
    /// The application's name in the same place.
    pub app_name: Option<String>,
    /// Marks us as a member of the cluster, with the wire versions that we speak. The peer then shows
    /// its internal range, and both must overlap.
    pub internal_client: Option<WireVersions>,
    /// Our own `host:port` as members send it.
    pub host_info: Option<String>,
    /// Compressors to offer.
    pub compressors: Compressors,
    /// Further fields of the hello, in the way of the members: for instance `hangUpOnStepDown`.
    pub hello_fields: RawDocumentBuf,
    /// Send checksums, as mongod does where there is no TLS.
    pub checksums: bool,
    /// Check every document of every reply to its leaves, as mongod does.
    pub check_bson: bool,
    /// For TCP, TLS, hello and authentication together.
    pub connect_timeout: Duration,
    /// Wraps the socket.
    pub tls: Option<Arc<dyn TlsConnector>>,
    /// Proves who we are after the hello.
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

/// mongod's own limit for setting up a connection to another member.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// The `client.driver` of the handshake.
#[derive(Clone, Debug)]
pub struct DriverInfo {
    /// Its name. A member that impersonates mongod takes mongod's.
    pub name: String,
    /// Its version.
    pub version: String,
}

impl Default for DriverInfo {
    fn default() -> Self {
        Self { name: "Understudy".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

/// A socket, or what TLS made of it.
pub trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

/// Makes an encrypted stream of a fresh socket.
pub trait TlsConnector: fmt::Debug + Send + Sync {
    /// Shakes hands with `host`.
    fn connect<'a>(
        &'a self,
        host: &'a HostAndPort,
        socket: TcpStream,
    ) -> BoxFuture<'a, io::Result<Box<dyn Stream>>>;
}

/// Authenticates fresh connections.
pub trait Authenticator: fmt::Debug + Send + Sync {
    /// Adds what it needs to the hello; the conversation goes on when the hello is answered.
    fn begin(&self, hello: &mut RawDocumentBuf) -> Box<dyn Conversation + '_>;
}

/// The authentication of one connection.
pub trait Conversation: Send {
    /// Runs it to its end. [`Connection::hello`] has the reply to the hello.
    fn finish<'a>(
        self: Box<Self>,
        connection: &'a mut Connection,
    ) -> BoxFuture<'a, Result<(), ClientError>>
    where
        Self: 'a;
}
