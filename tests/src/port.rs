//! Reserves ports for tests.
//!
//! A node that is killed and restarted must find its port free, even if other test processes choose ports meanwhile.
//! So ports are taken from below the kernel's ephemeral range, and each is reserved by a lock on a file as long as
//! the [`Port`] lives. The kernel releases the lock of a killed process.

use std::fs::File;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result, bail};

/// A port of 127.0.0.1 that no other test uses while this value lives.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _lock: File,
}

impl Port {
    /// Takes a port on which nothing listens.
    pub fn take() -> Result<Self> {
        let dir = std::env::temp_dir().join("understudy-ports");
        std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        for _ in 0..RANGE {
            let number = next_candidate();
            let path = dir.join(number.to_string());
            let lock = match File::create(&path) {
                Ok(lock) => lock,
                // The file belongs to another user, so the port is not available to us.
                Err(e) if e.kind() == ErrorKind::PermissionDenied => continue,
                Err(e) => return Err(e).with_context(|| format!("create {}", path.display())),
            };
            if lock.try_lock().is_ok() && is_free(number) {
                return Ok(Self { number, _lock: lock });
            }
        }
        bail!("no free port between {FIRST} and {}", FIRST + RANGE)
    }

    /// The number to listen on.
    pub fn number(&self) -> u16 {
        self.number
    }
}

/// The first candidate depends on the process id, so that processes rarely collide.
fn next_candidate() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % u32::from(RANGE)).unwrap_or(0);
    let step = NEXT.fetch_add(1, Ordering::Relaxed) % RANGE;
    FIRST + (start.wrapping_mul(37) % RANGE + step) % RANGE
}

fn is_free(number: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok()
}

const FIRST: u16 = 20_000;
/// Ends below 32768, where Linux's ephemeral ports begin.
const RANGE: u16 = 12_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_while_it_is_held() {
        let held: Vec<Port> = (0..50).map(|_| Port::take().unwrap()).collect();
        let mut numbers: Vec<u16> = held.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 50);
    }

    #[test]
    fn a_port_in_use_is_passed_over() {
        let port = Port::take().unwrap();
        let number = port.number();
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, number)).unwrap();
        drop(port);
        assert!(!is_free(number));
    }
}
