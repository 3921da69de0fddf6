//! `authenticationRestrictions`: the client and server addresses with which a user may log in.

use std::net::{IpAddr, SocketAddr};

use bson::{RawArray, RawArrayBuf, RawBsonRef, RawDocument};

/// The restrictions of one document: one of them must be met, if there are any.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restrictions {
    entries: Vec<Restriction>,
    written: Option<RawArrayBuf>,
}

/// One restriction: both lists must match, if present.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Restriction {
    client_source: Option<Vec<Range>>,
    server_address: Option<Vec<Range>>,
}

/// An address range such as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    base: IpAddr,
    bits: u32,
}

impl Restrictions {
    /// Parses the field of a user or role document. An invalid restriction is never met.
    pub fn parse(doc: &RawDocument) -> Self {
        let Ok(Some(RawBsonRef::Array(list))) = doc.get("authenticationRestrictions") else {
            return Self::default();
        };
        let entries = list.into_iter().map(|entry| match entry {
            Ok(RawBsonRef::Document(entry)) => Restriction {
                client_source: ranges(entry, "clientSource"),
                server_address: ranges(entry, "serverAddress"),
            },
            _ => Restriction { client_source: Some(Vec::new()), server_address: None },
        });
        Self { entries: entries.collect(), written: Some(list.to_owned()) }
    }

    /// True if a login from `remote` to `local` is allowed.
    pub fn met(&self, remote: SocketAddr, local: SocketAddr) -> bool {
        let within = |ranges: &Option<Vec<Range>>, address: SocketAddr| {
            ranges.as_ref().is_none_or(|all| all.iter().any(|range| range.holds(address.ip())))
        };
        let met = |entry: &Restriction| {
            within(&entry.client_source, remote) && within(&entry.server_address, local)
        };
        self.entries.is_empty() || self.entries.iter().any(met)
    }

    /// The restrictions as written in the document; `None` if there are none.
    pub fn to_raw(&self) -> Option<RawArrayBuf> {
        self.written.clone().filter(|_| !self.entries.is_empty())
    }
}

fn ranges(entry: &RawDocument, name: &str) -> Option<Vec<Range>> {
    let list: &RawArray = match entry.get(name) {
        Ok(Some(RawBsonRef::Array(list))) => list,
        Ok(None) => return None,
        _ => return Some(Vec::new()),
    };
    let texts = list.into_iter().flatten().filter_map(|text| text.as_str());
    Some(texts.filter_map(Range::parse).collect())
}

impl Range {
    fn parse(text: &str) -> Option<Self> {
        let (base, bits) = match text.split_once('/') {
            Some((base, bits)) => (base, Some(bits.parse().ok()?)),
            None => (text, None),
        };
        let base: IpAddr = base.parse().ok()?;
        let all = if base.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(all);
        (bits <= all).then_some(Self { base, bits })
    }

    fn holds(self, address: IpAddr) -> bool {
        match (self.base, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let differing = u32::from(base) ^ u32::from(address);
                self.bits == 0 || differing >> (32 - self.bits) == 0
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let differing = u128::from(base) ^ u128::from(address);
                self.bits == 0 || differing >> (128 - self.bits) == 0
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    fn met(doc: &RawDocument, remote: &str) -> bool {
        let at = |ip: &str| SocketAddr::new(ip.parse().unwrap(), 1);
        Restrictions::parse(doc).met(at(remote), at("192.168.0.1"))
    }

    #[test]
    fn one_entry_must_be_met_in_whole() {
        let doc = rawdoc! { "authenticationRestrictions": [
            { "clientSource": ["10.0.0.0/8", "::1"], "serverAddress": ["192.168.0.1"] },
            { "clientSource": ["172.16.0.5"] },
            { "clientSource": ["127.0.0.1"], "serverAddress": ["1.2.3.4"] },
        ] };
        assert!(met(&doc, "10.255.0.3") && met(&doc, "::1") && met(&doc, "172.16.0.5"));
        assert!(!met(&doc, "11.0.0.1") && !met(&doc, "127.0.0.1") && !met(&doc, "::2"));
        assert!(met(&doc, "::ffff:10.1.1.1"));
    }

    #[test]
    fn no_restriction_lets_all_in_and_a_broken_one_nobody() {
        assert!(met(&rawdoc! {}, "1.1.1.1"));
        assert!(met(&rawdoc! { "authenticationRestrictions": [] }, "1.1.1.1"));
        assert!(!met(&rawdoc! { "authenticationRestrictions": [5] }, "1.1.1.1"));
        assert!(!met(
            &rawdoc! { "authenticationRestrictions": [{ "clientSource": ["x/33"] }] },
            "1.1.1.1"
        ));
        assert!(met(
            &rawdoc! { "authenticationRestrictions": [{ "clientSource": ["0.0.0.0/0"] }] },
            "1.1.1.1"
        ));
    }
}
