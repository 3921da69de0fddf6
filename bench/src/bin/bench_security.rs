//! `cargo run --profile dist --bin bench_security` measures the cost of access control and TLS, and compares it with
//! a real mongod in the same run.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use bson::{RawDocumentBuf, doc};
use clap::Parser;
use protocol::{
    HostAndPort,
    client::{ConnectOptions, Connection, ScramAuthenticator},
};
use tests::{
    node::Node,
    repl_set::{Member, ReplSet, Tls},
    servers::Version,
    wait::PATIENCE,
};

/// Measures a real mongod 8.2 and Understudy as hidden members of the same set.
#[derive(Parser)]
struct Args {
    /// How long each measurement takes.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Number of clients that log in concurrently.
    #[arg(long, default_value_t = 4)]
    clients: usize,
    /// Size in MiB of the collection that is read over TLS.
    #[arg(long, default_value_t = 64)]
    mebibytes: i32,
}

const KEY: &str = "dGhlIGtleSBvZiB0aGUgYmVuY2htYXJrcw==";

fn main() -> Result<()> {
    let args = Args::parse();
    let window = Duration::from_secs(args.seconds);
    let mut rows = Vec::new();
    let (set, real) = start(None, &args)?;
    for (name, user) in
        [("SCRAM-SHA-256 logins a second", "bench"), ("SCRAM-SHA-1 logins a second", "old")]
    {
        rows.push((name, both(&set, real, |node| logins(node, user, &args, window))?));
    }
    rows.push(("read in plain, MiB/s", both(&set, real, |node| read(node, window))?));
    set.finish_without_comparing()?;
    let (set, real) = start(Some(Tls::WithKeyFile), &args)?;
    rows.push(("read over TLS, MiB/s", both(&set, real, |node| read(node, window))?));
    set.finish_without_comparing()?;
    println!("{:<32} {:>12} {:>12} {:>8}", "", "mongod 8.2", "understudy", "ratio");
    for (name, (mongod, ours)) in rows {
        println!("{name:<32} {mongod:>12.1} {ours:>12.1} {:>8.2}", ours / mongod);
    }
    Ok(())
}

/// Starts a primary with a user and documents, a real hidden secondary, and Understudy.
fn start(tls: Option<Tls>, args: &Args) -> Result<(ReplSet, usize)> {
    let options = ReplSet::named("bench-security").key_file(KEY);
    let options = match tls {
        Some(tls) => options.tls(tls),
        None => options,
    };
    let mut set = options.ours_hidden(1).start()?;
    let mut real = tests::mongod::options("real", Version::V8_2, Some(set.name()))?;
    set.secure(&mut real)?;
    let real = set.add(real, Member { votes: 0 })?;
    let primary = set.primary()?;
    primary.admin(doc! { "createUser": "bench", "pwd": "bench", "roles": ["root"] })?;
    primary.admin(doc! { "createUser": "old", "pwd": "bench", "roles": ["root"],
    "mechanisms": ["SCRAM-SHA-1"] })?;
    let text = "x".repeat(1000);
    for at in 0..args.mebibytes {
        let docs: Vec<_> = (0..1024).map(|n| doc! { "_id": at * 1024 + n, "x": &text }).collect();
        primary.run("bench", doc! { "insert": "c", "documents": docs })?;
    }
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_state(set.node(real)?, "SECONDARY", PATIENCE)?;
    set.await_caught_up()?;
    Ok((set, real))
}

fn both(set: &ReplSet, real: usize, measure: impl Fn(&Node) -> Result<f64>) -> Result<(f64, f64)> {
    Ok((measure(set.node(real)?)?, measure(set.ours()?)?))
}

/// Several clients connect, log in and disconnect in a loop. The salted password is computed only once, so the result
/// measures the server.
fn logins(node: &Node, user: &str, args: &Args, window: Duration) -> Result<f64> {
    let runtime = tokio::runtime::Runtime::new().context("start a runtime")?;
    let host = HostAndPort::new("127.0.0.1", node.port());
    let authenticator = Arc::new(ScramAuthenticator::new("admin", user, "bench"));
    let options =
        ConnectOptions { authenticator: Some(authenticator), ..ConnectOptions::default() };
    let done = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    runtime.block_on(async {
        let clients: Vec<_> = (0..args.clients)
            .map(|_| {
                let (host, options, done) = (host.clone(), options.clone(), done.clone());
                tokio::spawn(async move {
                    while begun.elapsed() < window {
                        Connection::connect(&host, &options).await?;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok::<_, anyhow::Error>(())
                })
            })
            .collect();
        for client in clients {
            client.await??;
        }
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64())
}

/// Reads a collection completely, again and again, through the official driver.
fn read(node: &Node, window: Duration) -> Result<f64> {
    let coll = node.client().database("bench").collection::<RawDocumentBuf>("c");
    let begun = Instant::now();
    let mut bytes = 0;
    while begun.elapsed() < window {
        for doc in coll.find(doc! {}).run()? {
            bytes += doc?.as_bytes().len();
        }
    }
    Ok(bytes as f64 / 1_048_576.0 / begun.elapsed().as_secs_f64())
}
