//! Reads PEM files.

use std::{path::Path, time::SystemTime};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use x509_cert::{Certificate, der::Decode};

use super::TlsError;

/// A certificate, its chain, and its key.
pub(super) struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl Identity {
    /// An explicit copy, so that a key is not copied by accident.
    pub(super) fn clone_key(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path)
        .map_err(|source| TlsError::Read { path: path.display().to_string(), source })
}

pub(super) fn no_use(path: &Path, why: impl ToString) -> TlsError {
    TlsError::File { path: path.display().to_string(), why: why.to_string() }
}

/// Reads a certificateKeyFile: the certificate and its key in one file.
pub(super) fn identity(path: &Path) -> Result<Identity, TlsError> {
    let pem = read(path)?;
    let chain = certificates(path, &pem)?;
    if !chain.first().is_some_and(|own| is_valid_at(own, SystemTime::now())) {
        return Err(no_use(path, "The provided SSL certificate is expired or not yet valid."));
    }
    let key = PrivateKeyDer::from_pem_slice(&pem);
    let key = key.map_err(|_| no_use(path, "it has no private key, or an encrypted one"))?;
    Ok(Identity { chain, key })
}

/// Reads a CAFile.
pub(super) fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, &read(path)?)? {
        roots.add(certificate).map_err(|error| no_use(path, error))?;
    }
    Ok(roots)
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(no_use(path, "it has no certificate")),
        Err(error) => Err(no_use(path, error)),
    }
}

fn is_valid_at(certificate: &CertificateDer<'_>, now: SystemTime) -> bool {
    Certificate::from_der(certificate).is_ok_and(|certificate| {
        let validity = certificate.tbs_certificate().validity();
        validity.not_before.to_system_time() <= now && now <= validity.not_after.to_system_time()
    })
}
