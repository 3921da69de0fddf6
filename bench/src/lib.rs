//! Compares Understudy with a real mongod: the same primary and the same data, one member after the other, in one
//! run.
//!
//! ```text
//! primary (mongod 8.2) ---- hidden member: mongod      start, initial sync, w:2, catch-up, kill -9 and restart
//! primary (mongod 8.2) ---- hidden member: understudy  the same again; then a table of both and their ratio
//! ```
//! Every figure is taken from the processes (`/proc`) or from the primary's replSetGetStatus.

mod measure;
pub mod reads;
mod steady;
mod workload;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bson::doc;
use serde::Serialize;
use tests::node::{Node, NodeOptions};
use tests::repl_set::{Member, ReplSet, applied};
use tests::servers::Version;
use tests::wait::wait_until;
use tests::{mongod, understudy};

use self::measure::{Usage, disk_bytes};
pub use self::steady::{Load, run_steady};
use self::workload::{Workload, load_documents, load_small_collections};

/// Sizes of the scenarios.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Sizes {
    /// Documents of 500 bytes to sync, with three secondary indexes.
    #[arg(long, default_value_t = 1_000_000)]
    pub documents: u64,
    /// Number of small collections besides; a mongod takes minutes for 5000.
    #[arg(long, default_value_t = 0)]
    pub collections: u32,
    /// Number of mixed operations written while the member is down.
    #[arg(long, default_value_t = 400_000)]
    pub operations: u64,
    /// Number of writes whose w:2 latency is measured.
    #[arg(long, default_value_t = 2_000)]
    pub w2_writes: u32,
    /// Understudy keeps no more history than a mongod does (`--historyWindow 0`).
    #[arg(long)]
    pub no_history: bool,
    /// Seed of the workload.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// A primary counts as idle if it used less than this share of a core during [`REST_SPAN`].
const REST_BUSY_MAX: f64 = 0.1;
const REST_SPAN: Duration = Duration::from_secs(1);

/// Limit of every wait in the benchmark.
const PATIENCE: Duration = Duration::from_secs(1_800);
/// Limit of the whole benchmark; its servers are ended after it.
const LONGEST: Duration = Duration::from_secs(6 * 3_600);

/// Cache size of the mongods. A mongod with default settings uses up to half of the machine's memory, but test
/// servers start with a small cache. This size is as good as the default for this amount of data, on any machine.
const CACHE: [&str; 2] = ["--wiredTigerCacheSizeGB", "4"];

/// Measurements of one member.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// Seconds from exec to the first reply.
    pub start_secs: f64,
    /// Resident memory before the member joins a set.
    pub idle_mib: f64,
    /// Seconds from the reconfig that adds the member until it is SECONDARY.
    pub initial_sync_secs: f64,
    /// Peak resident memory until the end of initial sync.
    pub initial_sync_peak_mib: f64,
    /// CPU time of the member during initial sync.
    pub initial_sync_cpu_secs: f64,
    /// Size of its dbpath.
    pub disk_mib: f64,
    /// Median latency of a w:2 write, acknowledged by the member.
    pub w2_p50_ms: f64,
    /// 99th percentile of the same latency.
    pub w2_p99_ms: f64,
    /// Operations per second, from the start of the member until it has reached the primary's position.
    pub catch_up_ops_per_sec: f64,
    /// CPU time of the member during catch-up.
    pub catch_up_cpu_secs: f64,
    /// Peak resident memory of the restarted process.
    pub catch_up_peak_mib: f64,
    /// Seconds from exec after kill -9 until SECONDARY.
    pub restart_secs: f64,
}

/// Measurements of both members.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The real mongod.
    pub mongod: Figures,
    /// Understudy.
    pub understudy: Figures,
}

/// Runs every scenario for both members.
pub fn run(sizes: Sizes) -> Result<Comparison> {
    let mongod = alone(sizes, |set| {
        let mut real = mongod::options("member-mongod", Version::V8_2, Some(set))?;
        real.args.extend(CACHE.map(str::to_owned));
        Ok(real)
    })
    .context("the mongod member")?;
    let understudy = alone(sizes, |set| {
        let mut ours = understudy::options("member-understudy", Some(set))?;
        if sizes.no_history {
            ours.args.extend(["--historyWindow", "0"].map(str::to_owned));
        }
        Ok(ours)
    })
    .context("the understudy member")?;
    Ok(Comparison { mongod, understudy })
}

/// Runs every scenario for one member in a set of its own, so that the data of an earlier member's run is not copied,
/// too.
fn alone(sizes: Sizes, options: impl Fn(&str) -> Result<NodeOptions>) -> Result<Figures> {
    let mut set = ReplSet::named("bench").mongod_args(&CACHE).limit(LONGEST).start()?;
    // The oplog must still hold what was written while the member was down.
    set.primary()?.admin(doc! { "replSetResizeOplog": 1, "size": 4096.0 })?;
    println!("loading {} documents into the primary", sizes.documents);
    load_documents(set.primary()?, "orders", sizes.documents, sizes.seed)?;
    load_small_collections(set.primary()?, sizes.collections)?;
    let options = options(set.name())?;
    let figures = member(&mut set, options, sizes)?;
    set.finish_without_comparing()?;
    Ok(figures)
}

fn member(set: &mut ReplSet, options: NodeOptions, sizes: Sizes) -> Result<Figures> {
    let mut figures = Figures::default();
    println!("== {}", options.name);
    let_rest(set.primary()?)?;
    let begun = Instant::now();
    let index = set.add(options, Member { votes: 0 })?;
    figures.start_secs = begun.elapsed().as_secs_f64();
    figures.idle_mib = Usage::of(set.node(index)?)?.resident_mib;
    initial_sync(set, index, &mut figures)?;
    w2_latency(set, sizes, &mut figures)?;
    catch_up(set, index, sizes, &mut figures)?;
    restart(set, index, &mut figures)?;
    remove(set, index)?;
    Ok(figures)
}

fn initial_sync(set: &ReplSet, index: usize, figures: &mut Figures) -> Result<()> {
    let begun = Instant::now();
    set.await_state(set.node(index)?, "SECONDARY", PATIENCE)?;
    set.await_caught_up_within(PATIENCE)?;
    figures.initial_sync_secs = begun.elapsed().as_secs_f64();
    let usage = Usage::of(set.node(index)?)?;
    figures.initial_sync_peak_mib = usage.peak_mib;
    figures.initial_sync_cpu_secs = usage.cpu_secs;
    figures.disk_mib = disk_bytes(&set.node(index)?.data_path())? as f64 / MIB;
    println!(
        "   initial sync {:.1} s, peak {:.0} MiB",
        figures.initial_sync_secs, figures.initial_sync_peak_mib
    );
    Ok(())
}

fn w2_latency(set: &ReplSet, sizes: Sizes, figures: &mut Figures) -> Result<()> {
    let mut millis = Vec::new();
    for n in 0..sizes.w2_writes {
        let begun = Instant::now();
        set.primary()?.run(
            "bench",
            doc! {
                "insert": "w2",
                "documents": [{ "n": i64::from(n) }],
                "writeConcern": { "w": 2, "wtimeout": 60_000 },
            },
        )?;
        millis.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    millis.sort_by(f64::total_cmp);
    figures.w2_p50_ms = percentile(&millis, 50);
    figures.w2_p99_ms = percentile(&millis, 99);
    println!("   w:2 p50 {:.2} ms, p99 {:.2} ms", figures.w2_p50_ms, figures.w2_p99_ms);
    Ok(())
}

fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted
        .get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(0.0)
}

fn catch_up(set: &mut ReplSet, index: usize, sizes: Sizes, figures: &mut Figures) -> Result<()> {
    set.node_mut(index)?.stop()?;
    Workload::new(sizes.seed, sizes.documents).run(set.primary()?, sizes.operations)?;
    let_rest(set.primary()?)?;
    let target = applied(set.primary()?)?;
    let begun = Instant::now();
    set.node_mut(index)?.launch()?;
    set.node_mut(index)?.await_answer()?;
    await_applied(set.node(index)?, "the member catches up", |node| Ok(applied(node)? >= target))?;
    let secs = begun.elapsed().as_secs_f64();
    let usage = Usage::of(set.node(index)?)?;
    figures.catch_up_ops_per_sec = sizes.operations as f64 / secs;
    figures.catch_up_cpu_secs = usage.cpu_secs;
    figures.catch_up_peak_mib = usage.peak_mib;
    println!(
        "   catch-up {:.0} operations/s, {:.1} CPU s",
        figures.catch_up_ops_per_sec, usage.cpu_secs
    );
    Ok(())
}

fn restart(set: &mut ReplSet, index: usize, figures: &mut Figures) -> Result<()> {
    set.node_mut(index)?.kill()?;
    let begun = Instant::now();
    set.node_mut(index)?.launch()?;
    set.node_mut(index)?.await_answer()?;
    await_applied(set.node(index)?, "the member is SECONDARY again", |node| {
        Ok(node.admin(doc! { "hello": 1 })?.get_bool("secondary").unwrap_or(false))
    })?;
    figures.restart_secs = begun.elapsed().as_secs_f64();
    println!("   restart after kill -9: {:.2} s", figures.restart_secs);
    Ok(())
}

/// Waits until the primary has flushed the loaded data. Otherwise its eviction threads would compete with the
/// measured member for the cores.
fn let_rest(primary: &Node) -> Result<()> {
    primary.admin(doc! { "fsync": 1 })?;
    let mut before = (Instant::now(), Usage::of(primary)?.cpu_secs);
    wait_until("the primary rests", PATIENCE, || {
        if before.0.elapsed() < REST_SPAN {
            return Ok(None);
        }
        let now = (Instant::now(), Usage::of(primary)?.cpu_secs);
        let busy = (now.1 - before.1) / (now.0 - before.0).as_secs_f64();
        before = now;
        Ok((busy < REST_BUSY_MAX).then_some(()))
    })
}

/// A member that has just started may refuse the command for a moment; that counts as "not yet".
fn await_applied(node: &Node, what: &str, done: impl Fn(&Node) -> Result<bool>) -> Result<()> {
    wait_until(what, PATIENCE, || Ok(done(node).unwrap_or(false).then_some(())))
}

fn remove(set: &mut ReplSet, index: usize) -> Result<()> {
    let host = set.node(index)?.host();
    set.node_mut(index)?.stop()?;
    set.reconfig(|config| {
        config.get_array_mut("members")?.retain(|member| {
            member.as_document().and_then(|m| m.get_str("host").ok()) != Some(&host)
        });
        Ok(())
    })
}

const MIB: f64 = 1_048_576.0;

impl Comparison {
    /// The results as a text table.
    pub fn table(&self) -> String {
        let (m, u) = (&self.mongod, &self.understudy);
        let rows = [
            ("start to listening, s", m.start_secs, u.start_secs),
            ("resident idle, MiB", m.idle_mib, u.idle_mib),
            ("initial sync, s", m.initial_sync_secs, u.initial_sync_secs),
            ("initial sync peak, MiB", m.initial_sync_peak_mib, u.initial_sync_peak_mib),
            ("initial sync CPU, s", m.initial_sync_cpu_secs, u.initial_sync_cpu_secs),
            ("disk, MiB", m.disk_mib, u.disk_mib),
            ("w:2 p50, ms", m.w2_p50_ms, u.w2_p50_ms),
            ("w:2 p99, ms", m.w2_p99_ms, u.w2_p99_ms),
            ("catch-up, operations/s", m.catch_up_ops_per_sec, u.catch_up_ops_per_sec),
            ("catch-up CPU, s", m.catch_up_cpu_secs, u.catch_up_cpu_secs),
            ("catch-up peak, MiB", m.catch_up_peak_mib, u.catch_up_peak_mib),
            ("restart after kill -9, s", m.restart_secs, u.restart_secs),
        ];
        let mut out =
            format!("{:<26} {:>12} {:>12} {:>8}\n", "", "mongod 8.2", "understudy", "ratio");
        for (name, mongod, understudy) in rows {
            let ratio = understudy / mongod;
            out.push_str(&format!("{name:<26} {mongod:>12.2} {understudy:>12.2} {ratio:>8.2}\n"));
        }
        out
    }
}
