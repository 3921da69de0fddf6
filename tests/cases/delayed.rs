//! The delayed member, compared with a real delayed mongod.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bson::{Bson, Document, Timestamp, doc};
use tests::mongod;
use tests::node::Node;
use tests::repl_set::{Member, ReplSet, applied};
use tests::servers::Version;
use tests::wait::{PATIENCE, wait_until};

on_each_version!(
    a_delayed_member_is_like_a_delayed_mongod,
    the_clock_of_a_delayed_member_can_be_stopped,
    a_rolled_over_source_does_not_leave_a_delayed_member_behind,
);

/// The delay in seconds; `DELAY=30` for the long run.
fn delay() -> u32 {
    std::env::var("DELAY").ok().and_then(|secs| secs.parse().ok()).unwrap_or(8)
}

/// Maximum difference between two nodes that do the same by their own clocks, on a busy machine.
const APART_SECS_MAX: u32 = 4;

fn a_delayed_member_is_like_a_delayed_mongod(version: Version) -> Result<()> {
    let mut set = ReplSet::named("delayed").version(version).ours_hidden(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    let real = mongod::options("delayed-mongod", version, Some(set.name()))?;
    let real = set.add(real, Member { votes: 0 })?;
    set.await_state(set.node(real)?, "SECONDARY", PATIENCE)?;
    set_delay(&set, version, delay())?;
    for node in [set.ours()?, set.node(real)?] {
        await_delay(node, delay())?;
    }
    let marker = insert(set.primary()?, "seen later")?;
    let begun = Instant::now();
    let limit = Duration::from_secs(u64::from(delay())) + PATIENCE;
    // A wrong intermediate state must fail at once.
    let seen = wait_until("the document becomes visible", limit, || {
        Ok(compare(&set, real, version, marker)
            .map(|seen| seen.then(|| begun.elapsed()))
            .transpose())
    })?;
    let after = seen?.as_secs() + 1;
    ensure!(after >= u64::from(delay()), "it was visible after {after} s");
    as_the_primary_sees_them(&set, real)?;
    set_delay(&set, version, 0)?;
    set.finish()
}

/// Compares both while the primary writes; returns whether the marked document is visible.
fn compare(set: &ReplSet, real: usize, version: Version, marker: Timestamp) -> Result<bool> {
    insert(set.primary()?, "goes on")?;
    let (ours, theirs) = (look(set.ours()?, version)?, look(set.node(real)?, version)?);
    ensure!(ours.hello == theirs.hello, "{:?}\n{:?}", ours.hello, theirs.hello);
    ensure!(ours.in_config == theirs.in_config, "{:?} {:?}", ours.in_config, theirs.in_config);
    // Entries from before the delay was set are visible until the delay has caught up with them.
    for moment in ours.moments.iter().filter(|moment| moment.time > marker.time) {
        let late = now_secs()?.saturating_sub(moment.time);
        ensure!(late >= delay(), "{moment} is shown after {late} s: {ours:?}");
    }
    for (ours, theirs) in ours.moments.iter().zip(&theirs.moments) {
        let apart = ours.time.abs_diff(theirs.time);
        ensure!(apart <= APART_SECS_MAX, "{ours} and {theirs}");
    }
    Ok(count(set.ours()?, "seen later")? > 0)
}

/// Everything in which a node shows its position.
#[derive(Debug)]
struct Look {
    hello: Vec<String>,
    in_config: Option<Bson>,
    moments: Vec<Timestamp>,
}

fn look(node: &Node, version: Version) -> Result<Look> {
    let hello = node.admin(doc! { "hello": 1 })?;
    let status = node.admin(doc! { "replSetGetStatus": 1 })?;
    let optimes = status.get_document("optimes")?;
    let top = node.client().database("local").collection::<Document>("oplog.rs");
    let top = top.find_one(doc! {}).sort(doc! { "$natural": -1 }).run()?.context("an oplog")?;
    let mut moments = vec![
        hello.get_document("lastWrite")?.get_document("opTime")?.get_timestamp("ts")?,
        hello.get_timestamp("operationTime")?,
        optimes.get_document("appliedOpTime")?.get_timestamp("ts")?,
        optimes.get_document("durableOpTime")?.get_timestamp("ts")?,
        top.get_timestamp("ts")?,
    ];
    if version >= Version::V8_2 {
        moments.push(optimes.get_document("writtenOpTime")?.get_timestamp("ts")?);
    }
    Ok(Look {
        in_config: hello.get("secondaryDelaySecs").cloned(),
        hello: hello.keys().cloned().collect(),
        moments,
    })
}

/// In the primary's replSetGetStatus, both have about the same position.
fn as_the_primary_sees_them(set: &ReplSet, real: usize) -> Result<()> {
    let status = set.primary()?.admin(doc! { "replSetGetStatus": 1 })?;
    let members = status.get_array("members")?;
    let of = |node: &Node| -> Result<(Vec<String>, u32)> {
        let member = members
            .iter()
            .filter_map(Bson::as_document)
            .find(|member| member.get_str("name").is_ok_and(|name| name == node.host()))
            .context("the member")?;
        let keys = member.keys().cloned().collect();
        Ok((keys, member.get_document("optime")?.get_timestamp("ts")?.time))
    };
    let (ours, theirs) = (of(set.ours()?)?, of(set.node(real)?)?);
    ensure!(ours.0 == theirs.0, "{ours:?} and {theirs:?}");
    ensure!(ours.1.abs_diff(theirs.1) <= 2 * APART_SECS_MAX, "{ours:?} and {theirs:?}");
    Ok(())
}

fn the_clock_of_a_delayed_member_can_be_stopped(version: Version) -> Result<()> {
    let delay = 3;
    let mut set = ReplSet::named("clock").version(version).ours_hidden(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    insert(set.primary()?, "kept")?;
    set.await_caught_up()?;
    let refused = clock(set.ours()?, "stop").err().map(|e| format!("{e:#}")).unwrap_or_default();
    ensure!(refused.contains("not a delayed member"), "{refused}");
    set_delay(&set, version, delay)?;
    await_delay(set.ours()?, delay)?;
    clock(set.ours()?, "stop")?;
    let stopped_at = applied(set.ours()?)?;
    set.primary()?.run("shop", doc! { "drop": "c" })?;
    insert(set.primary()?, "after the drop")?;
    wait_until("the drop would be due, and is in the tail", PATIENCE, || {
        Ok((tail_secs(set.ours()?)? > i64::from(delay) + 2).then_some(()))
    })?;
    ensure!(count(set.ours()?, "kept")? == 1, "the drop was applied while the clock stood still");
    ensure!(applied(set.ours()?)? == stopped_at);
    sizes_are_those_of_what_is_shown(set.ours()?)?;

    // The clock stays stopped after SIGKILL, and the tail is kept.
    let before = tail_secs(set.ours()?)?;
    set.ours_mut()?.kill()?;
    set.ours_mut()?.restart()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    ensure!(tail_secs(set.ours()?)? >= before);
    ensure!(count(set.ours()?, "kept")? == 1);

    clock(set.ours()?, "cut")?;
    ensure!(tail_secs(set.ours()?)? == 0, "the tail is still there");
    let unseen = insert(set.primary()?, "while it is cut")?;
    wait_until("it has heard of what it does not fetch", PATIENCE, || {
        Ok((heard_of(set.ours()?, &set.primary()?.host())? >= unseen).then_some(()))
    })?;
    ensure!(tail_secs(set.ours()?)? == 0, "the tail has grown again");

    clock(set.ours()?, "run")?;
    wait_until("the drop is applied after all", PATIENCE, || {
        Ok((count(set.ours()?, "kept")? == 0).then_some(()))
    })?;
    set_delay(&set, version, 0)?;
    set.finish()
}

/// The private tail is not included in any size or count.
fn sizes_are_those_of_what_is_shown(ours: &Node) -> Result<()> {
    let local = ours.client().database("local");
    let mut bytes = 0;
    let mut entries = 0;
    for entry in local.collection::<bson::RawDocumentBuf>("oplog.rs").find(doc! {}).run()? {
        bytes += i64::try_from(entry?.as_bytes().len())?;
        entries += 1;
    }
    let long = |value: Option<&Bson>| -> Option<i64> {
        let value = value?;
        value.as_i64().or(value.as_i32().map(i64::from))
    };
    let stats = ours.run("local", doc! { "collStats": "oplog.rs" })?;
    ensure!(long(stats.get("count")) == Some(entries), "{entries} entries: {stats}");
    ensure!(long(stats.get("size")) == Some(bytes), "{bytes} bytes: {stats}");
    let counted = ours.run("local", doc! { "count": "oplog.rs" })?;
    ensure!(long(counted.get("n")) == Some(entries), "{entries} entries: {counted}");
    Ok(())
}

/// The position of another member as a node knows it.
fn heard_of(node: &Node, host: &str) -> Result<Timestamp> {
    let status = node.admin(doc! { "replSetGetStatus": 1 })?;
    let member = status
        .get_array("members")?
        .iter()
        .filter_map(Bson::as_document)
        .find(|member| member.get_str("name").is_ok_and(|name| name == host))
        .with_context(|| format!("{host} in {status}"))?;
    Ok(member.get_document("optime")?.get_timestamp("ts")?)
}

/// A mongod would be too stale after a restart, since it keeps unapplied entries only in memory.
///
/// Mongods truncate their oplog after a checkpoint: with the default interval of a minute this test would take
/// minutes.
fn a_rolled_over_source_does_not_leave_a_delayed_member_behind(version: Version) -> Result<()> {
    let mut set = ReplSet::named("rolled-over")
        .version(version)
        .mongod_args(&["--oplogSize", "8", "--syncdelay", "1"])
        .ours_hidden(1)
        .start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.primary()?.run("shop", doc! { "create": "bulk" })?;
    set_delay(&set, version, 60)?;
    await_delay(set.ours()?, 60)?;
    let shown = applied(set.ours()?)?;
    let mut filled = 0;
    wait_until("the primary's oplog begins after what we show", PATIENCE, || {
        for _ in 0..16 {
            filled += 1;
            // Update the same few documents, for long entries but little data to compare at the end.
            let (q, filling) = (doc! { "_id": filled % 8 }, "x".repeat(256 << 10));
            let update = doc! { "q": q, "u": { "n": filled, "filling": filling }, "upsert": true };
            set.primary()?.run("shop", doc! { "update": "bulk", "updates": [update] })?;
        }
        let oplog = set.primary()?.client().database("local").collection::<Document>("oplog.rs");
        let first = oplog.find_one(doc! {}).sort(doc! { "$natural": 1 }).run()?;
        let first = first.context("an entry")?.get_timestamp("ts")?;
        let shown = Timestamp { time: shown.time, increment: shown.increment };
        Ok((first > shown).then_some(()))
    })?;
    ensure!(applied(set.ours()?)? <= shown, "it did not wait");
    let goal = applied(set.primary()?)?;
    wait_until("our tail has all of it", PATIENCE, || {
        let status = set.ours()?.admin(doc! { "serverStatus": 1 })?;
        let tail = status.get_document("delayedMember")?.get_timestamp("tailThrough")?;
        Ok((tail >= Timestamp { time: goal.time, increment: goal.increment }).then_some(()))
    })?;
    set.ours_mut()?.kill()?;
    set.ours_mut()?.restart()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set_delay(&set, version, 0)?;
    set.finish()
}

fn set_delay(set: &ReplSet, version: Version, secs: u32) -> Result<()> {
    set.reconfig(|config| {
        for member in config.get_array_mut("members")?.iter_mut().skip(1) {
            let member = member.as_document_mut().context("a member")?;
            member.insert(delay_field(version), i64::from(secs));
        }
        Ok(())
    })
}

fn await_delay(node: &Node, secs: u32) -> Result<()> {
    let what = format!("{} has its delay of {secs} s", node.name());
    wait_until(&what, PATIENCE, || {
        let hello = node.admin(doc! { "hello": 1 })?;
        let told = hello.get("secondaryDelaySecs").map(|told| told.to_string());
        // Our node shows the setting before it takes effect.
        let status = node.admin(doc! { "serverStatus": 1 })?;
        let is_so = !node.is_ours() || status.contains_key("delayedMember");
        Ok((told == Some(secs.to_string()) && is_so).then_some(()))
    })
}

/// The field name in the config; in hello all releases use the new name.
fn delay_field(version: Version) -> &'static str {
    if version >= Version::V5_0 { "secondaryDelaySecs" } else { "slaveDelay" }
}

/// Inserts a document and returns its oplog timestamp.
fn insert(primary: &Node, what: &str) -> Result<Timestamp> {
    let reply = primary.run("shop", doc! { "insert": "c", "documents": [{ "what": what }] })?;
    Ok(reply.get_timestamp("operationTime")?)
}

fn count(node: &Node, what: &str) -> Result<u64> {
    let collection = node.client().database("shop").collection::<Document>("c");
    Ok(collection.count_documents(doc! { "what": what }).run()?)
}

fn clock(node: &Node, to: &str) -> Result<Document> {
    node.admin(doc! { "setParameter": 1, "delayedClock": to })
}

fn tail_secs(node: &Node) -> Result<i64> {
    let status = node.admin(doc! { "serverStatus": 1 })?;
    Ok(status.get_document("delayedMember")?.get_i64("tailSecs")?)
}

fn now_secs() -> Result<u32> {
    Ok(u32::try_from(bson::DateTime::now().timestamp_millis() / 1000)?)
}
