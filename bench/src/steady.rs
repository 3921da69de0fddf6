//! Runs a steady load and reports our node's replication lag, its memory growth, and its warnings.
//!
//! The lag is measured by writing a marker to the primary and reading it from our node with `afterClusterTime`. The
//! time of that read, including the round trip, is the lag. It is the lag of applying, not of acknowledging.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use bson::{Timestamp, doc};
use mongodb::sync::Client;
use tests::driver;
use tests::repl_set::ReplSet;
use tests::wait::PATIENCE;

use super::measure::Usage;
use super::workload::{Workload, load_documents};
use super::{CACHE, percentile};

/// Duration and rate of the load.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Load {
    /// How long it goes on.
    #[arg(long, default_value_t = 10)]
    pub minutes: u64,
    /// Operations per second: 40% inserts, 50% updates, 10% deletes.
    #[arg(long, default_value_t = 5_000)]
    pub rate: u64,
    /// Number of documents loaded before.
    #[arg(long, default_value_t = 200_000)]
    pub documents: u64,
    /// Seed of the workload.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Bulk commands per second; several, to keep the load even.
const STEPS_PER_SEC: u64 = 50;
/// Interval between lag measurements.
const PROBE_EVERY: Duration = Duration::from_millis(100);
/// Interval between memory measurements and printed lines.
const REPORT_EVERY: Duration = Duration::from_secs(30);

/// Runs the load against a set of one mongod 8.2 and our node, prints a line every half minute, and compares the data.
pub fn run_steady(load: Load) -> Result<()> {
    let limit = Duration::from_secs(load.minutes * 60) + PATIENCE * 4;
    let set = ReplSet::named("steady").mongod_args(&CACHE).ours_hidden(1).limit(limit).start()?;
    load_documents(set.primary()?, "orders", load.documents, load.seed)?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_caught_up_within(PATIENCE)?;
    let before = complaints(&set)?;
    let (primary, ours) = (set.primary()?.client().clone(), set.ours()?.client().clone());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let probe = scope.spawn(|| probe(&primary, &ours, &stop));
        let written = write(&set, load);
        stop.store(true, Ordering::SeqCst);
        let mut lags = probe.join().map_err(|_| anyhow!("the probe panicked"))??;
        let (operations, secs) = written?;
        lags.sort_by(f64::total_cmp);
        println!(
            "{operations} operations in {secs:.0} s ({:.0} a second); lag over {} looks: p50 {:.1} ms, p99 {:.1} ms, most {:.1} ms",
            operations as f64 / secs,
            lags.len(),
            percentile(&lags, 50),
            percentile(&lags, 99),
            lags.last().copied().unwrap_or(0.0),
        );
        anyhow::Ok(())
    })?;
    println!("warnings and errors in our log meanwhile: {}", complaints(&set)? - before);
    set.finish()
}

fn write(set: &ReplSet, load: Load) -> Result<(u64, f64)> {
    let mut workload = Workload::new(load.seed, load.documents);
    let (per_step, steps) = (load.rate / STEPS_PER_SEC, load.minutes * 60 * STEPS_PER_SEC);
    let begun = Instant::now();
    let mut reported = begun;
    for step in 0..steps {
        workload.step(set.primary()?, per_step)?;
        if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            let usage = Usage::of(set.ours()?)?;
            println!(
                "{:>4} s: {:.0} operations/s, our node resident {:.0} MiB, {:.1} CPU s",
                begun.elapsed().as_secs(),
                ((step + 1) * per_step) as f64 / begun.elapsed().as_secs_f64(),
                usage.resident_mib,
                usage.cpu_secs,
            );
        }
        let due = begun + Duration::from_millis(1_000 * (step + 1) / STEPS_PER_SEC);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok((steps * per_step, begun.elapsed().as_secs_f64()))
}

const INVALID_OPTIONS: i32 = 72;

/// Measures lags, in milliseconds, until `stop` is set.
fn probe(primary: &Client, ours: &Client, stop: &AtomicBool) -> Result<Vec<f64>> {
    let mut lags = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let begun = Instant::now();
        let marker = doc! { "insert": "markers", "documents": [{ "n": lags.len() as i64 }] };
        let at: Timestamp =
            driver::run(primary, "bench", marker)?.get_timestamp("operationTime")?;
        let written = Instant::now();
        let find = doc! {
            "find": "markers", "limit": 1,
            "readConcern": { "level": "local", "afterClusterTime": at },
        };
        // Like a mongod, the node refuses a cluster time it has not seen yet. Only other members and sessions tell it
        // new times.
        loop {
            let reply = driver::answer(ours, "bench", find.clone()).context("read our node")?;
            match reply.get_i32("code") {
                Ok(INVALID_OPTIONS) => {}
                Ok(_) => anyhow::bail!("read our node: {reply}"),
                Err(_) => break,
            }
        }
        lags.push(written.elapsed().as_secs_f64() * 1e3);
        std::thread::sleep(PROBE_EVERY.saturating_sub(begun.elapsed()));
    }
    Ok(lags)
}

fn complaints(set: &ReplSet) -> Result<usize> {
    let log = std::fs::read_to_string(set.ours()?.log_path())?;
    Ok(log
        .lines()
        .filter(|line| line.contains(r#""s":"W""#) || line.contains(r#""s":"E""#))
        .count())
}
