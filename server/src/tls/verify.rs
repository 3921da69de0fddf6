//! Verifies certificates, with the options that relax the verification.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

use super::{TlsError, files};
use crate::config::TlsSettings;

/// Verifies the certificates of clients. If the handshake is more lenient, a stricter verification follows before a
/// login.
pub(super) struct OfClients {
    /// For the handshake.
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
    /// The verification that a certificate must pass before its subject is trusted; `None` if no certificate can be
    /// trusted.
    pub(super) believed: Option<Arc<dyn ClientCertVerifier>>,
}

pub(super) fn of_clients(
    settings: &TlsSettings,
    provider: &Arc<CryptoProvider>,
) -> Result<OfClients, TlsError> {
    let optional = settings.allow_connections_without_certificates;
    let file = settings.cluster_ca_file.as_ref().or(settings.ca_file.as_ref());
    let Some(path) = file else {
        // Without a CAFile nothing can be verified; the settings allow that only with allowInvalidCertificates.
        let any = AnyClient { mandatory: false, provider: provider.clone() };
        return Ok(OfClients { verifier: Arc::new(any), believed: None });
    };
    let roots = Arc::new(files::roots(path)?);
    let builder = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
    let builder = if optional { builder.allow_unauthenticated() } else { builder };
    let strict = builder.build().map_err(|error| files::no_use(path, error))?;
    let verifier: Arc<dyn ClientCertVerifier> = match settings.allow_invalid_certificates {
        true => Arc::new(AnyClient { mandatory: !optional, provider: provider.clone() }),
        false => strict.clone(),
    };
    Ok(OfClients { verifier, believed: Some(strict) })
}

/// Verifies the certificates of servers that we connect to.
pub(super) fn of_servers(
    settings: &TlsSettings,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let path = settings.ca_file.as_ref().filter(|_| !settings.allow_invalid_certificates);
    let Some(path) = path else {
        return Ok(Arc::new(LenientServer { but_for_its_name: None, provider: provider.clone() }));
    };
    let roots: Arc<RootCertStore> = Arc::new(files::roots(path)?);
    let strict = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
    let strict = strict.map_err(|error| files::no_use(path, error))?;
    Ok(match settings.allow_invalid_hostnames {
        true => {
            Arc::new(LenientServer { but_for_its_name: Some(strict), provider: provider.clone() })
        }
        false => strict,
    })
}

/// However lenient the verification is, the peer must have the certificate's key.
macro_rules! its_owner_has_the_key {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let known = &self.provider.signature_verification_algorithms;
            verify_tls12_signature(message, certificate, signature, known)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let known = &self.provider.signature_verification_algorithms;
            verify_tls13_signature(message, certificate, signature, known)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider.signature_verification_algorithms.supported_schemes()
        }
    };
}

/// allowInvalidCertificates: accepts any certificate.
#[derive(Debug)]
struct AnyClient {
    mandatory: bool,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    its_owner_has_the_key!();
}

/// allowInvalidHostnames; without an inner verifier, allowInvalidCertificates.
#[derive(Debug)]
struct LenientServer {
    but_for_its_name: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for LenientServer {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(strict) = &self.but_for_its_name else {
            return Ok(ServerCertVerified::assertion());
        };
        match strict.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The name is checked last, so everything else was valid.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    its_owner_has_the_key!();
}

#[cfg(test)]
mod tests;
