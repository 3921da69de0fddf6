//! An unreliable disk: a fault-injecting libc below the real binary, in a real set with writers of w: 2, j: true.
//!
//! Each round the primary is suspended, our node dies (killed, or because of its disk), the power is cut, and the
//! node starts alone. Everything it acknowledged must be there, except after syncs that lied. In that case the node
//! usually detects the loss; it cannot if the same disk lied about its durable mark, too. At the end it follows again
//! and has the primary's data.
//!
//! `SEED=7` replays a round, `SEEDS=300` runs as many.

use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, anyhow, ensure};
use bson::{Bson, Document, doc};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tests::disk::{Disk, Lost, Plan};
use tests::driver;
use tests::node::Node;
use tests::repl_set::ReplSet;
use tests::servers::Version;
use tests::wait::{PATIENCE, wait_until};
use tests::workload::seeds;

/// The faults of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Enemy {
    PowerCut,
    ShortWrites,
    FailedSync,
    FailedWrite,
    Full,
    LyingSync,
}

const ENEMIES: [Enemy; 6] = [
    Enemy::PowerCut,
    Enemy::ShortWrites,
    Enemy::FailedSync,
    Enemy::LyingSync,
    Enemy::FailedWrite,
    Enemy::Full,
];
const VERSIONS: [Version; 3] = [Version::V8_2, Version::V5_0, Version::V4_4];

/// Log lines that are expected with such a disk.
const TOLD_BY_THE_DISK: &[&str] = &[
    "Input/output error",
    "No space left on device",
    "Fatal assertion",
    "replication must end",
    "the disk lost entries",
    "Error during startup, terminating",
];

/// The state of the node after the power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// It has everything that it had acknowledged.
    Whole,
    /// It lacks something and reports it.
    KnowsItsLoss,
    /// It lacks something and cannot know, because its disk lied about the mark, too.
    LostUnnoticed,
    /// It refuses to start with what the disk left.
    Refuses,
}

#[test]
fn nothing_acknowledged_is_lost_or_the_node_knows() -> Result<()> {
    let mut outcomes: BTreeMap<(Enemy, Outcome), u32> = BTreeMap::new();
    for seed in seeds(count()) {
        println!("SEED={seed}");
        let (enemy, outcome, lost) = round(seed).with_context(|| format!("SEED={seed}"))?;
        println!("  {enemy:?}: {outcome:?}, {lost:?}");
        *outcomes.entry((enemy, outcome)).or_default() += 1;
    }
    println!("{outcomes:#?}");
    Ok(())
}

fn count() -> u64 {
    std::env::var("SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(6)
}

fn round(seed: u64) -> Result<(Enemy, Outcome, Lost)> {
    let mut rng = StdRng::seed_from_u64(seed);
    let place = usize::try_from(seed).unwrap_or_default();
    let enemy = *ENEMIES.iter().cycle().nth(place).context("an enemy")?;
    let version = *VERSIONS.iter().cycle().nth(place / ENEMIES.len()).context("a version")?;
    let mut set = ReplSet::named("power").version(version).ours_hidden(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.primary()?.run("shop", doc! { "create": "kept" })?;
    set.await_caught_up()?;
    let disk = Disk::below(&set.ours()?.data_path(), &set.scratch().path().join("disk"))?;
    set.ours_mut()?.stop()?;
    *set.ours_mut()?.environment_mut() = disk.environment(plan(enemy, &mut rng))?;
    // A disk that fails at once prevents the start: then nothing was acknowledged either.
    let _ = set.ours_mut()?.restart();
    let enough = rng.random_range(20..250);
    let (outcome, lost) = dies_while_written_to(&mut set, enough, |set, acknowledged| {
        let lost = disk.lose_power(&mut rng)?;
        set.ours_mut()?.environment_mut().clear();
        Ok((start_alone(set, acknowledged)?, lost))
    })?;
    let may_lose = enemy == Enemy::LyingSync;
    ensure!(
        may_lose || outcome == Outcome::Whole,
        "{enemy:?} on {version:?}: {outcome:?}, {lost:?}"
    );
    if outcome == Outcome::Refuses {
        set.ours_mut()?.wipe()?;
        set.ours_mut()?.restart()?;
    }
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_caught_up()?;
    check_indexes(set.ours()?)?;
    ensure!(!set.ours()?.log_has("panicked at")?, "it panicked");
    for text in TOLD_BY_THE_DISK {
        set.expect_log(text);
    }
    set.finish()?;
    Ok((enemy, outcome, lost))
}

fn plan(enemy: Enemy, rng: &mut StdRng) -> Plan {
    let seed = rng.random();
    let often = rng.random_range(2..60);
    let seldom = rng.random_range(20..1_500);
    let plan = Plan { seed, ..Plan::default() };
    match enemy {
        Enemy::PowerCut => plan,
        Enemy::ShortWrites => Plan { short: often, interrupted: often + 7, ..plan },
        Enemy::FailedSync => Plan { failed_sync: seldom, ..plan },
        Enemy::FailedWrite => Plan { failed_write: seldom, ..plan },
        Enemy::Full => Plan { full: seldom, ..plan },
        Enemy::LyingSync => Plan { lying_sync: often, ..plan },
    }
}

/// Writes until enough is acknowledged or the node is dead. Then the node is killed, and `then` runs while the
/// primary is suspended, so that it cannot resend anything.
fn dies_while_written_to<T>(
    set: &mut ReplSet,
    enough: usize,
    then: impl FnOnce(&mut ReplSet, &Mutex<HashSet<String>>) -> Result<T>,
) -> Result<T> {
    let port = set.primary()?.port();
    let (stop, acknowledged) = (AtomicBool::new(false), Mutex::new(HashSet::new()));
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let (stop, acknowledged) = (&stop, &acknowledged);
            scope.spawn(move || write(stop, port, writer, acknowledged));
        }
        let ended = wait_until("enough is acknowledged, or the node is dead", PATIENCE, || {
            let count = acknowledged.lock().map_or(0, |ids| ids.len());
            Ok((count > enough || !set.ours_mut()?.is_running()).then_some(()))
        });
        set.node(0)?.freeze()?;
        stop.store(true, Ordering::SeqCst);
        let done = ended.and_then(|()| {
            set.ours_mut()?.kill()?;
            then(set, &acknowledged)
        });
        set.node(0)?.thaw()?;
        done
    })
}

fn write(stop: &AtomicBool, port: u16, writer: u32, acknowledged: &Mutex<HashSet<String>>) {
    let Ok(client) = driver::connect(port) else { return };
    // Enough bytes to fill memtables, so that tables are written, too.
    let filler = "x".repeat(40_000);
    for i in 0.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let id = format!("{writer} {i}");
        let document = doc! { "_id": &id, "n": i % 7, "filler": &filler };
        // Without `j` a write is acknowledged before it is synced, here as on a mongod.
        let concern = doc! { "w": 2, "j": true, "wtimeout": 2_000 };
        let insert = doc! { "insert": "kept", "documents": [document], "writeConcern": concern };
        let reply = driver::run(&client, "shop", insert);
        if reply.is_ok_and(|reply| !reply.contains_key("writeConcernError"))
            && let Ok(mut acknowledged) = acknowledged.lock()
        {
            acknowledged.insert(id);
        }
    }
}

/// Starts the node while the primary is suspended, so that the node has only what its disk kept.
fn start_alone(set: &mut ReplSet, acknowledged: &Mutex<HashSet<String>>) -> Result<Outcome> {
    if let Err(error) = set.ours_mut()?.restart() {
        ensure!(!set.ours_mut()?.is_running(), "it neither starts nor ends: {error:#}");
        ensure!(!set.ours()?.log_has("panicked")?, "it panicked: {error:#}");
        return Ok(Outcome::Refuses);
    }
    let ours = set.ours()?;
    let kept = wait_until("ours says what it has", PATIENCE, || match ids(ours) {
        Ok(kept) => Ok(Some(Some(kept))),
        Err(_) if knows_its_loss(ours)? => Ok(Some(None)),
        Err(error) => Err(error),
    })?;
    let Some(kept) = kept else { return Ok(Outcome::KnowsItsLoss) };
    let acknowledged = acknowledged.lock().map_err(|_| anyhow!("a writer panicked"))?;
    let missing: Vec<_> = acknowledged.difference(&kept).collect();
    if !missing.is_empty() {
        println!("  lost without a word: {} of {}", missing.len(), acknowledged.len());
        return Ok(Outcome::LostUnnoticed);
    }
    Ok(Outcome::Whole)
}

fn knows_its_loss(ours: &Node) -> Result<bool> {
    let status = ours.admin(doc! { "replSetGetStatus": 1 })?;
    let members = status.get_array("members")?;
    let own =
        members.iter().filter_map(Bson::as_document).find(|member| member.contains_key("self"));
    let own = own.context("it is not among the members")?;
    Ok(own.get_str("stateStr")? == "RECOVERING"
        && own.get_str("infoMessage")?.contains("disk lost"))
}

fn ids(node: &Node) -> Result<HashSet<String>> {
    let kept = node.client().database("shop").collection::<Document>("kept");
    let mut found = HashSet::new();
    for document in kept.find(doc! {}).projection(doc! { "_id": 1 }).run()? {
        found.insert(document?.get_str("_id")?.to_owned());
    }
    Ok(found)
}

/// Checks that documents, indexes and counts agree.
fn check_indexes(node: &Node) -> Result<()> {
    let report = node.run("shop", doc! { "validate": "kept", "full": true })?;
    ensure!(report.get_bool("valid")?, "{report}");
    let count = node.run("shop", doc! { "count": "kept" })?.get_i32("n")?;
    ensure!(usize::try_from(count)? == ids(node)?.len(), "the count is {count}");
    Ok(())
}
