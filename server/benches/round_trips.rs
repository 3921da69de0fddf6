//! Measures `ping` round trips per second, compared with a real mongod in the same run, and the memory of idle
//! connections.
//!
//! Run it with `cargo bench -p server --bench round_trips` (`ROUNDS`, `IDLE` change the defaults). The servers take
//! turns, so that a busy machine affects both; the figure is the median of the rounds.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use bson::rawdoc;
use bytes::BytesMut;
use protocol::{Message, OpMsg};
use tests::{mongod, node::Node, scratch::Scratch, servers::Version, understudy};

const ROUND: Duration = Duration::from_secs(1);

fn main() -> Result<()> {
    let rounds = setting("ROUNDS", 5);
    let idle = setting("IDLE", 10_000);
    let mut scratch = Scratch::new("round-trips")?;
    let theirs = Node::start(mongod::options("mongod", Version::V8_2, None)?, &mut scratch)?;
    let mut options = understudy::options("understudy", None)?;
    options.args.push("--quiet".to_owned());
    let ours = Node::start(options, &mut scratch)?;
    println!("| ping | mongod 8.2 | understudy | ratio |\n| --- | --- | --- | --- |");
    for connections in [1, 64] {
        let (mut them, mut us) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            them.push(round(theirs.port(), connections)?);
            us.push(round(ours.port(), connections)?);
        }
        let (them, us) = (median(them), median(us));
        println!("| {connections} connections | {them:.0}/s | {us:.0}/s | {:.2} |", us / them);
    }
    let before = ours.process()?.resident_bytes()?;
    let held = hold_idle(ours.port(), idle)?;
    let after = ours.process()?.resident_bytes()?;
    println!(
        "| {idle} idle connections | | {} KiB, {} KiB each; {} KiB in all | |",
        (after - before) / 1024,
        (after - before) / 1024 / u64::try_from(idle.max(1))?,
        after / 1024,
    );
    drop(held);
    scratch.finish();
    Ok(())
}

fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or_default()
}

/// Threads that drive the connections: few, since they run on the same machine as the server.
const CLIENT_THREADS: usize = 2;

/// Round trips per second over this many connections: each thread sends on all of its connections, then reads the
/// replies.
fn round(port: u16, connections: usize) -> Result<f64> {
    let stop = Arc::new(AtomicBool::new(false));
    let threads = connections.min(CLIENT_THREADS);
    let clients: Vec<_> = (0..threads)
        .map(|_| {
            let own = connections / threads;
            let mut clients: Vec<Pinger> =
                (0..own).map(|_| Pinger::connect(port)).collect::<Result<_>>()?;
            let stop = stop.clone();
            Ok(thread::spawn(move || -> Result<u32> {
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    for client in &mut clients {
                        client.ask()?;
                    }
                    for client in &mut clients {
                        client.read()?;
                        count += 1;
                    }
                }
                Ok(count)
            }))
        })
        .collect::<Result<_>>()?;
    let started = Instant::now();
    thread::sleep(ROUND);
    stop.store(true, Ordering::Relaxed);
    let mut total = 0;
    for client in clients {
        total += client.join().expect("the client panicked")?;
    }
    Ok(f64::from(total) / started.elapsed().as_secs_f64())
}

struct Pinger {
    stream: TcpStream,
    request: BytesMut,
    reply: [u8; 512],
}

impl Pinger {
    fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("connect")?;
        stream.set_nodelay(true)?;
        let mut request = BytesMut::new();
        let body = rawdoc! { "ping": 1, "$db": "admin" };
        Message::request(1, OpMsg::new(body)).encode(&mut request)?;
        Ok(Self { stream, request, reply: [0; 512] })
    }

    fn ping(&mut self) -> Result<()> {
        self.ask()?;
        self.read()
    }

    fn ask(&mut self) -> Result<()> {
        Ok(self.stream.write_all(&self.request)?)
    }

    fn read(&mut self) -> Result<()> {
        // The reply is short enough for one read on loopback.
        let len = self.stream.read(&mut self.reply)?;
        ensure!(len > 16, "the server closed the connection");
        Ok(())
    }
}

/// Opens connections that send one hello and are then idle.
fn hold_idle(port: u16, count: usize) -> Result<Vec<Pinger>> {
    (0..count)
        .map(|_| {
            let mut client = Pinger::connect(port)?;
            client.ping()?;
            Ok(client)
        })
        .collect()
}
