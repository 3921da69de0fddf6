//! Checks whether a server listens at the address of a connection string, before the driver is used.
//!
//! The driver retries until its timeout and then prints everything it knows. A connection attempt of our own can tell
//! a wrong host name, a closed port and a host that does not answer apart, and the first two at once.

use std::{
    io,
    net::{TcpStream, ToSocketAddrs},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use mongodb::options::{ClientOptions, ServerAddress};

/// A host that does not answer for this long counts as unreachable.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const DEFAULT_PORT: u16 = 27017;

/// Succeeds if one of the hosts accepts a connection. Otherwise the error gives the reason for each host and says
/// what to check.
pub(super) fn reach(options: &ClientOptions) -> Result<()> {
    let mut failed = Vec::new();
    for host in &options.hosts {
        let ServerAddress::Tcp { host, port } = host else { return Ok(()) };
        let port = port.unwrap_or(DEFAULT_PORT);
        match try_host(host, port) {
            Ok(()) => return Ok(()),
            Err(why) => failed.push(why),
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => bail!("{}", failed.join("; ")),
    }
}

fn try_host(host: &str, port: u16) -> Result<(), String> {
    let begun = Instant::now();
    let addresses = (host, port).to_socket_addrs().map_err(|error| {
        format!("the name {host} is not known ({error}): check its spelling, and the name server")
    })?;
    let mut last =
        format!("the name {host} has no address: check its spelling, and the name server");
    for address in addresses {
        let left = CONNECT_LIMIT.saturating_sub(begun.elapsed()).max(Duration::from_millis(100));
        match TcpStream::connect_timeout(&address, left) {
            Ok(_) => return Ok(()),
            Err(error) => last = why(host, port, &error, begun.elapsed()),
        }
    }
    Err(last)
}

fn why(host: &str, port: u16, error: &io::Error, after: Duration) -> String {
    let secs = after.as_secs_f64();
    match error.kind() {
        io::ErrorKind::ConnectionRefused => format!(
            "nobody listens on {host}:{port} (refused after {secs:.1} s): check that the server runs, the port, and that \
             it listens on this address (--bind_ip)"
        ),
        io::ErrorKind::TimedOut => format!(
            "{host}:{port} did not answer within {secs:.1} s: check that the machine is up, the address, and whether a \
             firewall stands between"
        ),
        _ => format!(
            "{host}:{port} cannot be reached ({error}, after {secs:.1} s): check the address and the network"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn asked(uri: &str) -> Result<()> {
        reach(&ClientOptions::parse(uri).run().unwrap())
    }

    #[test]
    fn says_who_cannot_be_reached_and_what_to_check() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        asked(&format!("mongodb://127.0.0.1:{port}")).unwrap();
        drop(listener);
        let begun = Instant::now();
        let refused = asked(&format!("mongodb://127.0.0.1:{port}")).unwrap_err().to_string();
        assert!(refused.contains(&format!("nobody listens on 127.0.0.1:{port}")), "{refused}");
        assert!(refused.contains("check that the server runs"), "{refused}");
        assert!(begun.elapsed() < CONNECT_LIMIT);
        let unknown = asked("mongodb://no.such.host.invalid:1").unwrap_err().to_string();
        assert!(unknown.contains("the name no.such.host.invalid is not known"), "{unknown}");
    }
}
