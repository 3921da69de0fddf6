//! The client's side of the handshake, for connections to other members.

use std::{fmt, io, sync::Arc};

use futures_util::future::BoxFuture;
use protocol::{
    HostAndPort,
    client::{Stream, TlsConnector},
};
use rustls::{ClientConfig, crypto::CryptoProvider, pki_types::ServerName};
use tokio::net::TcpStream;

use super::{Tls, TlsError, files, verify, versions};
use crate::config::TlsSettings;

/// Wraps sockets to other members in TLS, with the current certificates.
pub struct Outgoing(pub Arc<Tls>);

impl TlsConnector for Outgoing {
    fn connect<'a>(
        &'a self,
        host: &'a HostAndPort,
        socket: TcpStream,
    ) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let name = ServerName::try_from(host.host.clone()).map_err(io::Error::other)?;
            let connector = tokio_rustls::TlsConnector::from(self.0.outgoing());
            let stream = connector.connect(name, socket).await?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Outgoing")
    }
}

pub(super) fn config(
    settings: &TlsSettings,
    provider: &Arc<CryptoProvider>,
    member: files::Identity,
) -> Result<ClientConfig, TlsError> {
    let verifier = verify::of_servers(settings, provider)?;
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_protocol_versions(&versions(settings))?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    Ok(builder.with_client_auth_cert(member.chain, member.key)?)
}
