//! Whose certificates are believed, and how much of it may be forgone.

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

/// Checks the certificates of those who come to us.
pub(super) fn of_clients(
    settings: &TlsSettings,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let optional = settings.allow_connections_without_certificates;
    let file = settings.cluster_ca_file.as_ref().or(settings.ca_file.as_ref());
    let inner = match file {
        None => None,
        Some(path) => {
            let roots = Arc::new(files::roots(path)?);
            let builder = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
            let builder = if optional { builder.allow_unauthenticated() } else { builder };
            let built = builder.build();
            Some(built.map_err(|error| TlsError::File {
                path: path.display().to_string(),
                why: error.to_string(),
            })?)
        }
    };
    match inner {
        Some(inner) if !settings.allow_invalid_certificates => Ok(inner),
        // Without a CAFile nothing can be checked; the settings allow that only together.
        _ => Ok(Arc::new(AnyClient { provider: provider.clone() })),
    }
}

/// Checks the certificates of those we go to.
pub(super) fn of_servers(
    settings: &TlsSettings,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let strict = match &settings.ca_file {
        Some(path) => {
            let roots: Arc<RootCertStore> = Arc::new(files::roots(path)?);
            let built =
                WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
            Some(built.map_err(|error| TlsError::File {
                path: path.display().to_string(),
                why: error.to_string(),
            })?)
        }
        None => None,
    };
    Ok(match strict {
        Some(strict)
            if !settings.allow_invalid_certificates && !settings.allow_invalid_hostnames =>
        {
            strict
        }
        strict => Arc::new(LenientServer {
            strict: strict.filter(|_| !settings.allow_invalid_certificates),
            provider: provider.clone(),
        }),
    })
}

/// allowInvalidCertificates: any certificate, or none, as long as its owner has the key.
#[derive(Debug)]
struct AnyClient {
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
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
}

/// allowInvalidHostnames, and without a strict verifier behind it allowInvalidCertificates.
#[derive(Debug)]
struct LenientServer {
    strict: Option<Arc<WebPkiServerVerifier>>,
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
        let Some(strict) = &self.strict else { return Ok(ServerCertVerified::assertion()) };
        match strict.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The name is the last thing that is looked at: all else was in order.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

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
}
