//! TLS with rustls: for incoming connections on the one port, and for connections to other members.
//!
//! ```text
//!   accepted socket --first byte--> handshake record?  yes: TLS, unless it is disabled
//!                                                       no: plain, unless TLS is required
//! ```
//! T1 A requested certificate is verified before the first message is read.
//! T2 New certificates are used completely or not at all: if a file is invalid, the old ones stay.
//! T3 A subject is trusted only if its certificate was verified, even where the handshake accepts unverified ones.

mod files;
mod outgoing;
mod subject;
mod verify;

use std::{io, sync::Arc, time::Duration};

use parking_lot::RwLock;
use rustls::{
    ClientConfig, ServerConfig, SupportedProtocolVersion,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, UnixTime},
    server::danger::ClientCertVerifier,
    version::{TLS12, TLS13},
};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

pub use outgoing::Outgoing;
pub use subject::Subject;

use crate::config::{TlsMode, TlsSettings};

/// The current TLS configuration.
pub struct Tls {
    settings: TlsSettings,
    loaded: RwLock<Loaded>,
}

/// The configurations made from the files.
#[derive(Clone)]
pub(crate) struct Loaded {
    incoming: Arc<ServerConfig>,
    outgoing: Arc<ClientConfig>,
    /// The verification that a certificate must pass before its subject is trusted (T3).
    believed: Option<Arc<dyn ClientCertVerifier>>,
    /// Our subject as a server; other members share parts of it.
    own: Subject,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// A file has invalid content.
    #[error("{path} is of no use: {why}")]
    File {
        /// The file.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// Certificate and key do not match, or another error of the configuration.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

/// Time limit of a handshake. Handshakes run concurrently without a limit on their number: with one, a few slow
/// clients could block everybody.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(30);
/// Bytes that distinguish a handshake from a message: type and version of the record, and that it contains a client
/// hello. A message that begins with these bytes would be a first message of more than 66,000 bytes.
const HELLO_LEN: usize = 6;
/// If a client has sent fewer bytes, they are checked again after this time, which doubles.
const HELLO_PAUSE: Duration = Duration::from_millis(10);

impl Tls {
    /// Loads the files; `None` where TLS is disabled.
    pub fn load(settings: &TlsSettings) -> Result<Option<Self>, TlsError> {
        if settings.mode == TlsMode::Disabled {
            return Ok(None);
        }
        Ok(Some(Self { loaded: RwLock::new(load(settings)?), settings: settings.clone() }))
    }

    /// Reloads the files (T2).
    pub fn rotate(&self) -> Result<(), TlsError> {
        let loaded = load(&self.settings)?;
        *self.loaded.write() = loaded;
        Ok(())
    }

    /// The TLS mode.
    pub fn mode(&self) -> TlsMode {
        self.settings.mode
    }

    /// Our subject as a server; other members share parts of it.
    pub(crate) fn own_subject(&self) -> Subject {
        self.loaded.read().own.clone()
    }

    pub(crate) fn outgoing(&self) -> Arc<ClientConfig> {
        self.loaded.read().outgoing.clone()
    }

    /// Runs the server's side of the handshake, and returns the subject of the client's certificate.
    pub async fn accept(
        &self,
        socket: TcpStream,
    ) -> io::Result<(TlsStream<TcpStream>, Option<Subject>)> {
        let Loaded { incoming, believed, .. } = self.loaded.read().clone();
        let handshake = TlsAcceptor::from(incoming).accept(socket);
        let stream = timeout(HANDSHAKE_LIMIT, handshake).await.map_err(|_| too_slow())??;
        let subject = believed.and_then(|verifier| subject_of(&stream, verifier.as_ref()));
        Ok((stream, subject))
    }
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake took too long")
}

/// True if a new connection begins with a handshake; waits for its first bytes.
pub async fn begins(socket: &TcpStream) -> io::Result<bool> {
    let mut first = [0; HELLO_LEN];
    let mut pause = HELLO_PAUSE;
    while pause < HANDSHAKE_LIMIT {
        let len = socket.peek(&mut first).await?;
        match first.get(..len).and_then(looks_like_hello) {
            Some(yes) => return Ok(yes),
            None => tokio::time::sleep(pause).await,
        }
        pause *= 2;
    }
    Err(too_slow())
}

/// Whether the bytes are a client hello; `None` if that is still undecided.
fn looks_like_hello(bytes: &[u8]) -> Option<bool> {
    let is = |at: usize, fits: fn(u8) -> bool| bytes.get(at).map(|byte| fits(*byte));
    let parts = [
        is(0, |byte| byte == 0x16),
        is(1, |major| major == 3),
        is(2, |minor| (1..=4).contains(&minor)),
        is(HELLO_LEN - 1, |kind| kind == 1),
    ];
    if bytes.is_empty() || parts.contains(&Some(false)) {
        return Some(false);
    }
    (!parts.contains(&None)).then_some(true)
}

/// The subject of the client's certificate, if it can be trusted (T3).
fn subject_of(stream: &TlsStream<TcpStream>, verifier: &dyn ClientCertVerifier) -> Option<Subject> {
    let (certificate, chain) = stream.get_ref().1.peer_certificates()?.split_first()?;
    verifier.verify_client_cert(certificate, chain, UnixTime::now()).ok()?;
    Subject::of(certificate)
}

fn load(settings: &TlsSettings) -> Result<Loaded, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let identity = settings.certificate_key_file.as_deref();
    let identity = files::identity(identity.unwrap_or_else(|| std::path::Path::new("")))?;
    let member = match &settings.cluster_file {
        Some(path) => files::identity(path)?,
        None => identity.clone_key(),
    };
    let own = identity.chain.first().and_then(Subject::of).unwrap_or_default();
    let clients = verify::of_clients(settings, &provider)?;
    Ok(Loaded {
        incoming: Arc::new(incoming(settings, &provider, clients.verifier, identity)?),
        outgoing: Arc::new(outgoing::config(settings, &provider, member)?),
        believed: clients.believed,
        own,
    })
}

fn versions(settings: &TlsSettings) -> Vec<&'static SupportedProtocolVersion> {
    let all = [(&TLS13, settings.disable_1_3), (&TLS12, settings.disable_1_2)];
    all.into_iter().filter(|(_, disabled)| !disabled).map(|(version, _)| version).collect()
}

fn incoming(
    settings: &TlsSettings,
    provider: &Arc<CryptoProvider>,
    verifier: Arc<dyn ClientCertVerifier>,
    identity: files::Identity,
) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_protocol_versions(&versions(settings))?;
    let builder = builder.with_client_cert_verifier(verifier);
    let chain: Vec<CertificateDer<'static>> = identity.chain;
    Ok(builder.with_single_cert(chain, identity.key)?)
}

#[cfg(test)]
mod tests {
    use super::looks_like_hello;

    #[test]
    fn a_handshake_is_told_from_a_message() {
        assert_eq!(looks_like_hello(&[0x16, 3, 1, 2, 0, 1]), Some(true));
        assert_eq!(looks_like_hello(&[0x16, 3]), None);
        assert_eq!(looks_like_hello(&[]), Some(false));
        // Messages of 278 and of 790 bytes, whose lengths begin with the same byte.
        assert_eq!(looks_like_hello(&[0x16, 1, 0, 0, 1, 0]), Some(false));
        assert_eq!(looks_like_hello(&[0x16, 3, 0, 0, 1, 1]), Some(false));
    }
}
