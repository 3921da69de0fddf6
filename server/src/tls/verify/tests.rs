//! Tests every kind of bad certificate on both sides, with each option.

use ::tests::certificates::{Authority, Request};
use rustls::{crypto::ring, pki_types::pem::PemObject};

use super::*;

struct Made {
    dir: tempfile::TempDir,
    /// A description and the certificate.
    certificates: Vec<(&'static str, CertificateDer<'static>)>,
}

fn made() -> Made {
    let dir = tempfile::tempdir().unwrap();
    let known = Authority::new(dir.path(), "ca").unwrap();
    let foreign = Authority::new(dir.path(), "foreign-ca").unwrap();
    let issued = |by: &Authority, host: &str, expired: bool| {
        let request = Request { name: "leaf", unit: "x", hosts: &[host], expired };
        CertificateDer::from_pem_file(by.make(&request).unwrap()).unwrap()
    };
    let certificates = vec![
        ("good", issued(&known, "here.example", false)),
        ("wrong host", issued(&known, "there.example", false)),
        ("expired", issued(&known, "here.example", true)),
        ("expired, wrong host", issued(&known, "there.example", true)),
        ("foreign", issued(&foreign, "here.example", false)),
        ("self-signed", CertificateDer::from_pem_file(foreign.file()).unwrap()),
        ("garbage", CertificateDer::from(b"garbage".to_vec())),
    ];
    Made { dir, certificates }
}

impl Made {
    fn strict(&self) -> TlsSettings {
        TlsSettings { ca_file: Some(self.dir.path().join("ca.pem")), ..TlsSettings::default() }
    }

    fn accepted(&self, check: impl Fn(&CertificateDer<'_>) -> bool) -> Vec<&'static str> {
        let good = self.certificates.iter().filter(|(_, certificate)| check(certificate));
        good.map(|(name, _)| *name).collect()
    }

    /// The server certificates that are accepted.
    fn servers(&self, settings: &TlsSettings) -> Vec<&'static str> {
        let verifier = of_servers(settings, &Arc::new(ring::default_provider())).unwrap();
        let name = ServerName::try_from("here.example").unwrap();
        self.accepted(|own| {
            verifier.verify_server_cert(own, &[], &name, &[], UnixTime::now()).is_ok()
        })
    }

    /// The client certificates that may connect, and those whose subject is trusted.
    fn clients(&self, settings: &TlsSettings) -> (Vec<&'static str>, Vec<&'static str>) {
        let OfClients { verifier, believed } =
            of_clients(settings, &Arc::new(ring::default_provider())).unwrap();
        let check = |verifier: &Arc<dyn ClientCertVerifier>, own: &CertificateDer<'_>| {
            verifier.verify_client_cert(own, &[], UnixTime::now()).is_ok()
        };
        let connected = self.accepted(|own| check(&verifier, own));
        (connected, self.accepted(|own| believed.as_ref().is_some_and(|strict| check(strict, own))))
    }
}

#[test]
fn a_server_must_show_a_certificate_for_its_name() {
    let made = made();
    let strict = made.strict();
    assert_eq!(made.servers(&strict), ["good"]);
    let hosts = TlsSettings { allow_invalid_hostnames: true, ..strict.clone() };
    assert_eq!(made.servers(&hosts), ["good", "wrong host"]);
    let any = TlsSettings { allow_invalid_certificates: true, ..strict };
    assert_eq!(made.servers(&any).len(), made.certificates.len());
}

#[test]
fn a_client_is_believed_by_a_checked_certificate_alone() {
    let made = made();
    let strict = made.strict();
    // A client may connect from any host.
    let good = vec!["good", "wrong host"];
    assert_eq!(made.clients(&strict), (good.clone(), good.clone()));
    let any = TlsSettings { allow_invalid_certificates: true, ..strict };
    let (connected, believed) = made.clients(&any);
    assert_eq!((connected.len(), believed), (made.certificates.len(), good));
    let no_authority = TlsSettings { ca_file: None, ..any };
    assert_eq!(made.clients(&no_authority).1, Vec::<&str>::new());
}
