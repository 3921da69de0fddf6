//! `host:port` addresses as replica set configs write them.

use std::{fmt, str::FromStr};

/// `host:port`. An IPv6 host stands in brackets. The port defaults to 27017.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostAndPort {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// The default port of a mongod.
pub const DEFAULT_PORT: u16 = 27017;

impl HostAndPort {
    /// Makes an address from host and port.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }
}

/// A text that is not a valid `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a host:port")]
pub struct HostParseError(String);

impl FromStr for HostAndPort {
    type Err = HostParseError;

    fn from_str(text: &str) -> Result<Self, HostParseError> {
        let err = || HostParseError(text.to_owned());
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, tail) = rest.split_once(']').ok_or_else(err)?;
                match tail {
                    "" => (host, None),
                    _ => (host, Some(tail.strip_prefix(':').ok_or_else(err)?)),
                }
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        if host.is_empty() {
            return Err(err());
        }
        let port = match port {
            None => DEFAULT_PORT,
            Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or_else(err)?,
        };
        Ok(Self::new(host, port))
    }
}

impl fmt::Display for HostAndPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_configs_contain() {
        let host = |text: &str| text.parse::<HostAndPort>().map(|host| host.to_string());
        assert_eq!(host("db1.example:27018").unwrap(), "db1.example:27018");
        assert_eq!(host("db1").unwrap(), "db1:27017");
        assert_eq!(host("[::1]:5").unwrap(), "[::1]:5");
        assert_eq!(host("[::1]").unwrap(), "[::1]:27017");
        for wrong in ["", ":1", "a:", "a:0", "a:70000", "[::1", "[::1]5", "a:b"] {
            assert!(host(wrong).is_err(), "{wrong}");
        }
    }
}
