//! Every timestamp of the history window can be read, and shows the primary's state at that time.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail, ensure};
use bson::{Timestamp, doc};
use tests::hashes::Picture;
use tests::node::Node;
use tests::repl_set::{ReplSet, applied};
use tests::servers::Version;
use tests::wait::{PATIENCE, wait_until};
use tests::workload::{Workload, seeds};

on_each_version!(every_remembered_moment_is_read_back);

/// A timestamp and the primary's state then.
struct Moment {
    ts: Timestamp,
    picture: Picture,
}

/// `MOMENTS=50 OPS=30` and `SEED=n` for other runs.
fn every_remembered_moment_is_read_back(version: Version) -> Result<()> {
    let from_env = |name: &str, default: u32| {
        std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
    };
    let moments = from_env("MOMENTS", if version == Version::V8_2 { 50 } else { 12 });
    let ops = from_env("OPS", 30);
    for seed in seeds(1) {
        println!("SEED={seed}");
        read_back(version, seed, moments, ops).with_context(|| format!("SEED={seed}"))?;
    }
    Ok(())
}

fn read_back(version: Version, seed: u64, moments: u32, ops: u32) -> Result<()> {
    let mut set = ReplSet::named("past").version(version).ours_hidden(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    let mut workload = Workload::new(seed, set.primary()?)?;
    let mut remembered = Vec::new();
    for _ in 0..moments {
        workload.run(ops)?;
        remembered.push(remember(set.primary()?)?);
    }
    set.await_caught_up()?;
    compare(&set, &remembered).context("while it runs")?;

    ensure!(set.ours_mut()?.stop()?.success());
    set.ours_mut()?.restart()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    compare(&set, &remembered).context("after a restart")?;

    set.ours_mut()?.kill()?;
    set.ours_mut()?.restart()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    compare(&set, &remembered).context("after kill -9")?;

    let trimmed = while_it_writes(&mut workload, || trim(&set, &remembered));
    trimmed.context("while history is trimmed")?;
    set.finish()
}

/// Records the primary's state between two operations; repeated if the primary writes by itself meanwhile.
fn remember(primary: &Node) -> Result<Moment> {
    wait_until("the primary stands still while it is looked at", PATIENCE, || {
        let before = applied(primary)?;
        let picture = Picture::take(primary, None)?;
        let ts = Timestamp { time: before.time, increment: before.increment };
        Ok((applied(primary)? == before).then_some(Moment { ts, picture }))
    })
}

fn compare(set: &ReplSet, remembered: &[Moment]) -> Result<()> {
    let mut complaints = Vec::new();
    for (at, moment) in remembered.iter().enumerate() {
        let found = differences(set, moment)?;
        complaints.extend(found.iter().map(|found| format!("moment {at}, {}: {found}", moment.ts)));
    }
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    Ok(())
}

fn differences(set: &ReplSet, moment: &Moment) -> Result<Vec<String>> {
    let got = Picture::take(set.ours()?, Some(moment.ts))?;
    Ok(moment.picture.differences(&got))
}

/// Runs `look` while writes continue.
fn while_it_writes<T>(workload: &mut Workload, look: impl FnOnce() -> Result<T>) -> Result<T> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<()> {
            while !done.load(Ordering::SeqCst) {
                workload.run(10)?;
            }
            Ok(())
        });
        let looked = look();
        done.store(true, Ordering::SeqCst);
        match writer.join() {
            Ok(written) => written?,
            Err(_) => bail!("the writer panicked"),
        }
        looked
    })
}

/// The window is reduced step by step: a timestamp reads correctly until it is dropped, and is then refused with the
/// right error.
fn trim(set: &ReplSet, remembered: &[Moment]) -> Result<()> {
    let mut gone = 0;
    let reach = || -> Result<i64> {
        let status = set.ours()?.admin(doc! { "serverStatus": 1 })?;
        Ok(status.get_document("historyWindow")?.get_i64("reachSecs")?)
    };
    for share in [3, 2, 1, 0] {
        let secs = (reach()? * share / 4).max(1);
        let set_to = doc! { "setParameter": 1, "historyWindow": format!("{secs}s") };
        set.ours()?.admin(set_to)?;
        wait_until("the window has shrunk", PATIENCE, || Ok((reach()? <= secs + 5).then_some(())))?;
        for moment in remembered {
            match differences(set, moment) {
                Ok(found) => ensure!(found.is_empty(), "{}: {}", moment.ts, found.join("\n")),
                Err(error) => {
                    let text = format!("{error:#}");
                    ensure!(text.contains("SnapshotTooOld"), "{}: {text}", moment.ts);
                    gone += 1;
                }
            }
        }
    }
    ensure!(gone > 0, "no moment was trimmed");
    let status = set.ours()?.admin(doc! { "replSetGetStatus": 1 })?;
    let window = status.get_document("historyWindow")?;
    ensure!(window.get_timestamp("oldestReadable")? > remembered.first().context("a moment")?.ts);
    Ok(())
}
