//! Demonstrates the main use: a real replica set accepts Understudy as a hidden member.
//!
//! The demo starts a real mongod (downloaded the first time), loads data, starts Understudy, adds it with `hidden:
//! true, priority: 0, votes: 0`, waits until the primary shows it as SECONDARY, writes through the primary with `w:
//! 2`, reads the documents back from Understudy and compares `dbHash`. Each step prints what it does and its result;
//! if one fails, the program ends with an error. Every server it started ends with it, also on Ctrl-C.
//!
//! The demo program is also the Understudy server: when it is started through a link named `understudy`, it runs as
//! the server. So one build is enough for the demo.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bson::{Bson, Document, doc};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use tests::hashes;
use tests::logs;
use tests::node::Node;
use tests::repl_set::{Member, ReplSet};
use tests::servers::{MongodBinary, Version};
use tests::understudy;
use tests::wait::{self, wait_until};

/// Shows Understudy joining a real MongoDB replica set.
#[derive(Debug, Parser)]
struct Args {
    /// Version of the real mongods: 8.2, 5.0 or 4.4.
    #[arg(long, default_value = "8.2", value_parser = parse_version)]
    version: Version,
    /// Number of documents loaded before Understudy joins.
    #[arg(long, default_value_t = 20_000)]
    documents: u32,
    /// Seconds to wait for Understudy to become SECONDARY.
    #[arg(long, default_value_t = 120)]
    limit: u64,
    /// Keep everything running at the end, until Ctrl-C.
    #[arg(long)]
    keep: bool,
}

/// The allocator that the server uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The program name under which it runs as the server.
const SERVER: &str = "understudy";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if words.first().is_some_and(|name| Path::new(name).ends_with(SERVER)) {
        return server::run(&words);
    }
    let args = Args::parse();
    if let Err(e) = end_on_ctrl_c() {
        eprintln!("cannot watch for Ctrl-C: {e:#}");
    }
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) if wait::interrupted() => {
            println!("\nInterrupted. All servers are ended.");
            ExitCode::from(130)
        }
        Err(e) => {
            println!("\nThis is as far as it goes: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let mut steps = Steps::default();
    let label = args.version.label();
    steps.begin(&format!("find a real mongod {label} (fetched the first time)"));
    MongodBinary::find(args.version)?;
    steps.begin(&format!("start a replica set of one real mongod {label}"));
    let mut set = ReplSet::named("demo").version(args.version).limit(A_DAY).start()?;
    set.show_tail(0); // a failed step prints the relevant log itself
    steps.done(&format!("{} is PRIMARY of {}", set.primary()?.host(), set.name()));
    steps.begin(&format!("load {} documents and two indexes", args.documents));
    load(set.primary()?, args.documents)?;
    let names = tempfile::tempdir().context("a directory for the server's name")?;
    let ours = join(&mut set, server_in(names.path())?, &mut steps)?;
    await_secondary(&set, ours, args, &mut steps)?;
    write_and_read_back(&set, ours, &mut steps)?;
    compare(&set, ours, &mut steps)?;
    if args.keep {
        stay(&set, ours)?;
    }
    steps.begin("end Understudy with SIGTERM, and the mongod");
    set.finish()?;
    steps.done("ended cleanly");
    println!("\nUnderstudy joined, copied, followed, acknowledged, and holds the primary's data.");
    Ok(())
}

/// Makes a link to this program with the server's name.
fn server_in(dir: &Path) -> Result<PathBuf> {
    let link = dir.join(SERVER);
    let this = std::env::current_exe().context("find this program")?;
    std::os::unix::fs::symlink(&this, &link)
        .with_context(|| format!("link {} to {}", link.display(), this.display()))?;
    Ok(link)
}

/// Starts Understudy and adds it on the primary.
fn join(set: &mut ReplSet, server: PathBuf, steps: &mut Steps) -> Result<usize> {
    steps.begin("start Understudy and add it: hidden: true, priority: 0, votes: 0");
    let options = understudy::options_of(server, "understudy", Some(set.name()));
    let ours = set.add(options, Member { votes: 0 })?;
    let node = set.node(ours)?;
    let build = node.admin(doc! { "buildInfo": 1 })?;
    let memory = node.process()?.resident_bytes()? / (1 << 20);
    steps.done(&format!(
        "it listens on {}, says it is MongoDB {}, uses {memory} MiB",
        node.host(),
        build.get_str("version").unwrap_or("of no version"),
    ));
    Ok(ours)
}

/// Prints the member states that the primary reports until SECONDARY.
fn await_secondary(set: &ReplSet, ours: usize, args: &Args, steps: &mut Steps) -> Result<()> {
    steps.begin("wait until the primary shows it as SECONDARY");
    let node = set.node(ours)?;
    let bar = ProgressBar::new_spinner().with_style(
        ProgressStyle::with_template("   {spinner} {msg}").context("a progress template")?,
    );
    let start = Instant::now();
    let mut last = String::new();
    let limit = Duration::from_secs(args.limit);
    let reached = wait_until("the primary shows Understudy as SECONDARY", limit, || {
        bar.tick();
        let state = set.shown_state(node)?;
        if state != last {
            bar.suspend(|| println!("   {:>6.1} s  {state}", start.elapsed().as_secs_f64()));
            last.clone_from(&state);
        }
        bar.set_message(sync_progress(node).unwrap_or_default());
        Ok((state == "SECONDARY").then_some(()))
    });
    bar.finish_and_clear();
    reached.with_context(|| {
        let log = logs::tail(&node.log_path(), 15);
        format!(
            "the primary shows it as {last:?}; the end of Understudy's log:
{log}
"
        )
    })?;
    set.await_caught_up()?;
    steps.done("SECONDARY, and caught up");
    Ok(())
}

/// Initial sync progress as our node reports it.
fn sync_progress(node: &Node) -> Option<String> {
    let status = node.admin(doc! { "replSetGetStatus": 1, "initialSync": 1 }).ok()?;
    let sync = status.get_document("initialSyncStatus").ok()?;
    let number = |name| sync.get(name).map(Bson::to_string);
    let copied = number("approxTotalBytesCopied")?;
    let all = number("approxTotalDataSize")?;
    Some(format!("initial sync: {copied} of about {all} bytes"))
}

/// Writes with `w: 2`, so that each one is acknowledged by Understudy, and reads them back.
fn write_and_read_back(set: &ReplSet, ours: usize, steps: &mut Steps) -> Result<()> {
    steps.begin("write through the primary with w: 2, each waiting for Understudy");
    let (primary, node) = (set.primary()?, set.node(ours)?);
    let mut took = Vec::new();
    for i in 0..WRITES {
        let start = Instant::now();
        primary.run("shop", write_command(i))?;
        took.push(start.elapsed());
    }
    took.sort_unstable();
    let median = took.get(took.len() / 2).copied().unwrap_or_default();
    steps.done(&format!("{WRITES} acknowledged, half of them within {median:.1?}"));

    steps.begin("read back from Understudy's port");
    let filter = doc! { "by": "demo" };
    let find = doc! { "find": "orders", "filter": filter, "sort": { "_id": 1 }, "batchSize": 1000 };
    let got = first_batch(&node.run("shop", find.clone())?)?;
    let want = first_batch(&primary.run("shop", find)?)?;
    if got != want {
        bail!("Understudy returned {} documents, the primary {}", got.len(), want.len());
    }
    let example = got.first().cloned().unwrap_or_default();
    steps.done(&format!("{} documents, the same as the primary's, such as {example}", got.len()));
    let refused = node.answer("shop", doc! { "insert": "orders", "documents": [{ "_id": 0 }] })?;
    steps.note(&format!(
        "a write to Understudy is refused: {}",
        refused.get_str("errmsg").unwrap_or("no, it was taken!")
    ));
    Ok(())
}

/// Alternates between inserts, updates and deletes.
fn write_command(i: i32) -> Document {
    let concern = doc! { "w": 2, "wtimeout": 30_000 };
    let id = format!("demo-{i:03}");
    match i % 4 {
        3 => {
            let update = doc! {
                "q": { "_id": format!("demo-{:03}", i - 2) },
                "u": { "$push": { "items": i }, "$set": { "changed": true } },
            };
            doc! { "update": "orders", "updates": [update], "writeConcern": concern }
        }
        2 if i % 8 == 2 => {
            let delete = doc! { "q": { "_id": format!("demo-{:03}", i - 2) }, "limit": 1 };
            doc! { "delete": "orders", "deletes": [delete], "writeConcern": concern }
        }
        _ => {
            let order = doc! { "_id": id, "by": "demo", "items": [i], "total": f64::from(i) * 1.5 };
            doc! { "insert": "orders", "documents": [order], "writeConcern": concern }
        }
    }
}

fn compare(set: &ReplSet, ours: usize, steps: &mut Steps) -> Result<()> {
    steps.begin("compare dbHash, listCollections and listIndexes of every database");
    let (primary, node) = (set.primary()?, set.node(ours)?);
    hashes::assert_same_data(primary, node)?;
    for db in hashes::databases(primary)? {
        let md5 = |node: &Node| -> Result<String> {
            Ok(node.run(&db, doc! { "dbHash": 1 })?.get_str("md5")?.to_owned())
        };
        steps.note(&format!("{db:<8} primary {}  Understudy {}", md5(primary)?, md5(node)?));
    }
    let (theirs, our) =
        (primary.process()?.resident_bytes()? >> 20, node.process()?.resident_bytes()? >> 20);
    steps.done(&format!("equal; resident memory: mongod {theirs} MiB, Understudy {our} MiB"));
    Ok(())
}

fn stay(set: &ReplSet, ours: usize) -> Result<()> {
    println!("\nLeft running. Try, from another terminal:");
    println!("   mongosh mongodb://{}/?directConnection=true", set.primary()?.host());
    println!("   mongosh mongodb://{}/?directConnection=true", set.node(ours)?.host());
    println!("Ctrl-C ends it.");
    wait_until("Ctrl-C", Duration::MAX, || Ok(None))
}

fn load(primary: &Node, documents: u32) -> Result<()> {
    let ids: Vec<u32> = (0..documents).collect();
    for chunk in ids.chunks(1000) {
        let orders: Vec<Document> = chunk
            .iter()
            .map(|id| {
                let customer = format!("customer {}", id % 997);
                doc! { "_id": id, "customer": customer, "total": f64::from(*id) / 7.0, "items": [id, id + 1] }
            })
            .collect();
        primary.run("shop", doc! { "insert": "orders", "documents": orders })?;
    }
    let indexes = [
        doc! { "key": { "customer": 1 }, "name": "customer" },
        doc! { "key": { "items": 1, "total": -1 }, "name": "items_total" },
    ];
    primary.run("shop", doc! { "createIndexes": "orders", "indexes": indexes.to_vec() })?;
    Ok(())
}

fn first_batch(reply: &Document) -> Result<Vec<Document>> {
    let batch = reply.get_document("cursor")?.get_array("firstBatch")?;
    Ok(batch.iter().filter_map(|document| document.as_document().cloned()).collect())
}

/// The first Ctrl-C ends all waits and then the servers. A second one ends this process at once, and the kernel ends
/// the servers.
fn end_on_ctrl_c() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            if tokio::signal::ctrl_c().await.is_ok() {
                wait::interrupt();
            }
            if tokio::signal::ctrl_c().await.is_ok() {
                std::process::exit(130);
            }
        });
    });
    Ok(())
}

fn parse_version(text: &str) -> Result<Version, String> {
    Version::ALL
        .into_iter()
        .find(|version| version.label() == text)
        .ok_or_else(|| "one of 8.2, 5.0, 4.4".to_owned())
}

/// Numbered lines on the screen.
#[derive(Default)]
struct Steps {
    count: u32,
}

impl Steps {
    fn begin(&mut self, what: &str) {
        self.count += 1;
        println!("{:>2}. {what}", self.count);
    }

    fn done(&self, what: &str) {
        println!("    -> {what}");
    }

    fn note(&self, what: &str) {
        println!("       {what}");
    }
}

const WRITES: i32 = 200;
/// How long the servers stay up with `--keep`.
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);
