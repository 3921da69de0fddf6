//! Generates certificates for tests.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

/// A certificate authority with its key, and a directory for its certificates.
#[derive(Debug)]
pub struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
}

/// A certificate to be made.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The name of its file, and its common name.
    pub name: &'a str,
    /// Its organizational unit; members of a set share it.
    pub unit: &'a str,
    /// Host names and addresses that it is valid for.
    pub hosts: &'a [&'a str],
    /// The certificate has expired.
    pub expired: bool,
}

impl Authority {
    /// Creates an authority.
    pub fn new(dir: &Path, name: &str) -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key)?;
        let file = dir.join(format!("{name}.pem"));
        std::fs::write(&file, certificate.pem()).context("write the authority's certificate")?;
        Ok(Self { dir: dir.to_owned(), issuer: Issuer::new(params, key), file })
    }

    /// Path of its certificate, for a CAFile.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Issues a member or client certificate for this machine.
    pub fn issue(&self, name: &str, unit: &str) -> Result<PathBuf> {
        let hosts = &["localhost", "127.0.0.1"];
        self.make(&Request { name, unit, hosts, expired: false })
    }

    /// Issues any certificate; the file contains its key, too.
    pub fn make(&self, request: &Request<'_>) -> Result<PathBuf> {
        let hosts: Vec<String> = request.hosts.iter().map(|&host| host.to_owned()).collect();
        let mut params = CertificateParams::new(hosts)?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Understudy");
        params.distinguished_name.push(DnType::OrganizationalUnitName, request.unit);
        params.distinguished_name.push(DnType::CommonName, request.name);
        if request.expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let file = self.dir.join(format!("{}.pem", request.name));
        std::fs::write(&file, format!("{}{}", certificate.pem(), key.serialize_pem()))
            .context("write a certificate")?;
        Ok(file)
    }
}

/// The subject of a certificate made by [`Authority::issue`], as a user name.
pub fn subject(name: &str, unit: &str) -> String {
    format!("CN={name},OU={unit},O=Understudy")
}
