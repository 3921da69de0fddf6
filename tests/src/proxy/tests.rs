//! Tests each fault with a plain client of an echo server.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener as StdListener, TcpStream as StdStream};
use std::time::Instant as StdInstant;

use super::*;

/// Starts a server that echoes every byte, and returns its port.
fn echo_server() -> u16 {
    let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let (mut reader, mut writer) = (stream.try_clone().unwrap(), stream);
                std::io::copy(&mut reader, &mut writer)
            });
        }
    });
    port
}

fn connect(proxy: &Proxy) -> StdStream {
    let stream = StdStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn echo(stream: &mut StdStream, bytes: &[u8]) -> Vec<u8> {
    stream.write_all(bytes).unwrap();
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).unwrap();
    back
}

#[test]
fn passes_bytes_both_ways_and_the_end() {
    let proxy = Proxy::to(echo_server()).unwrap();
    let mut stream = connect(&proxy);
    let bytes: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
    let mut writer = stream.try_clone().unwrap();
    let sent = bytes.clone();
    let sender = std::thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    sender.join().unwrap();
    assert!(back == bytes, "{} bytes came back", back.len());
    assert_eq!(proxy.accepted(), 1);
}

#[test]
fn a_cut_resets_and_refuses_until_it_is_healed() {
    let proxy = Proxy::to(echo_server()).unwrap();
    let mut stream = connect(&proxy);
    assert_eq!(echo(&mut stream, b"before"), b"before");
    proxy.cut().unwrap();
    let error = stream.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let refused = StdStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    proxy.heal().unwrap();
    assert_eq!(echo(&mut connect(&proxy), b"after"), b"after");
}

#[test]
fn a_stall_holds_everything_back_and_loses_nothing() {
    let proxy = Proxy::to(echo_server()).unwrap();
    let mut stream = connect(&proxy);
    assert_eq!(echo(&mut stream, b"before"), b"before");
    proxy.stall();
    stream.write_all(b"held").unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let nothing = stream.read(&mut [0; 1]).unwrap_err();
    assert!(matches!(nothing.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    proxy.heal().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut back = [0; 4];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"held");
}

#[test]
fn a_delay_is_paid_each_way_and_only_once_for_many_pieces() {
    let proxy = Proxy::to(echo_server()).unwrap();
    let mut stream = connect(&proxy);
    let delay = Duration::from_millis(100);
    proxy.delay(delay);
    let start = StdInstant::now();
    // Many more pieces than would fit into the limit below if they were delayed one after the other.
    let bytes = vec![7; 64 * PIECE];
    let mut writer = stream.try_clone().unwrap();
    let sent = bytes.clone();
    let sender = std::thread::spawn(move || writer.write_all(&sent).unwrap());
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).unwrap();
    sender.join().unwrap();
    let took = start.elapsed();
    assert!(back == bytes);
    assert!(took >= 2 * delay, "{took:?}");
    assert!(took < 40 * delay, "{took:?}: the delay was paid for each piece");
}

#[test]
fn a_throttle_limits_the_rate_and_heals() {
    let proxy = Proxy::to(echo_server()).unwrap();
    let mut stream = connect(&proxy);
    proxy.throttle(100_000);
    let start = StdInstant::now();
    assert_eq!(echo(&mut stream, &[1; 30_000]).len(), 30_000);
    let took = start.elapsed();
    // 0.3 s in each direction, overlapping.
    assert!(took >= Duration::from_millis(250), "{took:?}");
    proxy.heal().unwrap();
    assert_eq!(echo(&mut stream, &[1; 30_000]).len(), 30_000);
}

#[test]
fn a_corruption_flips_one_bit_once_in_its_direction() {
    let proxy = Proxy::to(echo_server()).unwrap();
    let mut stream = connect(&proxy);
    proxy.corrupt(Direction::ToServer, 3);
    assert_eq!(echo(&mut stream, &[0; 2]), [0; 2]);
    assert!(proxy.corruption_is_pending(Direction::ToServer));
    assert_eq!(echo(&mut stream, &[0; 4]), [0, 1, 0, 0]);
    assert!(!proxy.corruption_is_pending(Direction::ToServer));
    proxy.corrupt(Direction::ToClient, 0);
    assert_eq!(echo(&mut stream, &[0; 2]), [1, 0]);
    assert_eq!(echo(&mut stream, &[0; 2]), [0; 2]);
}

#[test]
fn a_dead_target_looks_dead() {
    let port = Port::take().unwrap();
    let proxy = Proxy::to(port.number()).unwrap();
    let mut stream = connect(&proxy);
    // The client sees a reset, or an end of stream if that came first, but never silence.
    match stream.read(&mut [0; 1]) {
        Ok(n) => assert_eq!(n, 0),
        Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionReset),
    }
}
