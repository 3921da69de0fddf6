//! The subject of a certificate, which is a user name and identifies members of a set.

use std::{collections::BTreeSet, fmt};

use rustls::pki_types::CertificateDer;
use x509_cert::{
    Certificate,
    der::{Any, Decode, Tag, Tagged, oid::ObjectIdentifier},
};

/// A distinguished name as OpenSSL and mongod write it: last part first, `CN=x,OU=y,O=z`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Subject {
    text: String,
    /// The parts that identify members of a set: organization, unit, domain.
    membership: BTreeSet<(String, String)>,
}

impl Subject {
    /// The subject of a certificate; `None` if it cannot be parsed.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = Certificate::from_der(certificate).ok()?;
        let mut parts = Vec::new();
        let mut membership = BTreeSet::new();
        for rdn in certificate.tbs_certificate().subject().iter_rdn() {
            let mut values = Vec::new();
            for attribute in rdn.iter() {
                let name = short_name(&attribute.oid);
                let value = text_of(&attribute.value)?;
                if matches!(name.as_str(), "O" | "OU" | "DC") {
                    membership.insert((name.clone(), value.clone()));
                }
                values.push(format!("{name}={}", escaped(&value)));
            }
            parts.push(values.join("+"));
        }
        parts.reverse();
        Some(Self { text: parts.join(","), membership })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// True if it is a member of the same set as `own`: all of O, OU and DC are equal, and there is at least one of
    /// them.
    pub(crate) fn is_member_beside(&self, own: &Self) -> bool {
        !self.membership.is_empty() && self.membership == own.membership
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The short names of RFC 2253; other attributes are shown by their numbers.
fn short_name(oid: &ObjectIdentifier) -> String {
    match oid.to_string().as_str() {
        "2.5.4.3" => "CN".to_owned(),
        "2.5.4.6" => "C".to_owned(),
        "2.5.4.7" => "L".to_owned(),
        "2.5.4.8" => "ST".to_owned(),
        "2.5.4.9" => "street".to_owned(),
        "2.5.4.10" => "O".to_owned(),
        "2.5.4.11" => "OU".to_owned(),
        "0.9.2342.19200300.100.1.25" => "DC".to_owned(),
        "0.9.2342.19200300.100.1.1" => "UID".to_owned(),
        "1.2.840.113549.1.9.1" => "emailAddress".to_owned(),
        other => other.to_owned(),
    }
}

fn text_of(value: &Any) -> Option<String> {
    let bytes = value.value();
    match value.tag() {
        Tag::BmpString => {
            let (pairs, _) = bytes.as_chunks::<2>();
            let units: Vec<u16> = pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
            String::from_utf16(&units).ok()
        }
        _ => str::from_utf8(bytes).ok().map(str::to_owned),
    }
}

/// Escapes a value by RFC 2253.
fn escaped(value: &str) -> String {
    let last = value.chars().count().saturating_sub(1);
    let mut out = String::new();
    for (at, c) in value.chars().enumerate() {
        let edge = (at == 0 && matches!(c, ' ' | '#')) || (at == last && c == ' ');
        if edge || matches!(c, ',' | '+' | '"' | '\\' | '<' | '>' | ';') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
