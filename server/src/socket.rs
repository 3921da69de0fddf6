//! A client's socket, plain or with TLS.

use std::{future::pending, io};

use bytes::Buf;
use protocol::Framing;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

use crate::{
    config::TlsMode,
    context::Node,
    tls::{self, Subject},
};

/// A plain or TLS socket.
pub enum Socket {
    /// Unencrypted.
    Plain(TcpStream),
    /// Encrypted.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Socket {
    /// Runs the TLS handshake if a new connection begins with one, and refuses what the mode does not allow. Also
    /// returns the subject of the client's certificate.
    pub async fn open(stream: TcpStream, node: &Node) -> io::Result<(Self, Option<Subject>)> {
        let refused = |text: &str| Err(io::Error::new(io::ErrorKind::ConnectionRefused, text));
        let encrypted = tls::begins(&stream).await?;
        match (&node.auth.tls, encrypted) {
            (None, true) => refused("TLS handshake received on a server without TLS"),
            (None, false) => Ok((Self::Plain(stream), None)),
            (Some(tls), false) if tls.mode() == TlsMode::RequireTls => {
                refused("The server is configured to only allow SSL connections")
            }
            (Some(_), false) => Ok((Self::Plain(stream), None)),
            (Some(tls), true) => {
                let (stream, subject) = tls.accept(stream).await?;
                Ok((Self::Tls(Box::new(stream)), subject))
            }
        }
    }

    /// Returns when there may be something to read.
    pub async fn readable(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.readable().await,
            // Already decrypted data counts, too; TLS has its own buffer.
            Self::Tls(stream) => stream.fill_buf().await.map(drop),
        }
    }

    /// Reads the available bytes; waits for some.
    pub async fn read(&mut self, framing: &mut Framing) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => loop {
                match stream.try_read_buf(framing.read_buf()) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        stream.readable().await?;
                    }
                    other => return other,
                }
            },
            Self::Tls(stream) => stream.read_buf(framing.read_buf()).await,
        }
    }

    /// Writes all of it.
    pub async fn write(&mut self, bytes: &mut impl Buf) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all_buf(bytes).await,
            Self::Tls(stream) => {
                stream.write_all_buf(bytes).await?;
                stream.flush().await
            }
        }
    }

    /// Returns when the client has closed its side. A further request that was already received hides this, and so
    /// does the TLS close message.
    pub async fn gone(&self) {
        let stream = match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        };
        match stream.peek(&mut [0]).await {
            Ok(0) | Err(_) => {}
            Ok(_) => pending().await,
        }
    }
}
