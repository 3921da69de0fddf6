//! What an operator sees: the tools' output, compared with golden files, and how servers stop and refuse.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bson::{Document, doc};
use tests::golden;
use tests::mongod;
use tests::node::Node;
use tests::repl_set::{Member, ReplSet, applied};
use tests::servers::Version;
use tests::understudy;
use tests::wait::{PATIENCE, wait_until};

/// The output and exit code of a tool.
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

fn tools(args: &[&str], dir: &Path) -> Result<Said> {
    let mut command = Command::new(understudy::tools()?);
    command.args(args).current_dir(dir).env("TZ", "UTC").stdin(Stdio::null());
    let output = command.output().context("run understudy-tools")?;
    let text = |bytes| String::from_utf8(bytes).context("what it said");
    Ok(Said { code: output.status.code(), out: text(output.stdout)?, err: text(output.stderr)? })
}

/// A set with some history: documents older than our node, deletes, updates and a drop.
fn set_with_a_past(name: &str, our_args: &[&str]) -> Result<ReplSet> {
    let mut set = ReplSet::named(name).start()?;
    let orders: Vec<Document> = (0..300).map(|i| doc! { "_id": i, "n": i % 7 }).collect();
    set.primary()?.run("shop", doc! { "insert": "orders", "documents": orders })?;
    let small = [doc! { "_id": "a", "text": "kept" }];
    set.primary()?.run("shop", doc! { "insert": "small", "documents": small.to_vec() })?;
    set.primary()?.run("shop", doc! { "insert": "gone", "documents": [{ "_id": 1 }] })?;
    let mut ours = understudy::options("understudy", Some(set.name()))?;
    ours.args = our_args.iter().map(|arg| (*arg).to_owned()).collect();
    set.add(ours, Member { votes: 0 })?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    Ok(set)
}

#[test]
fn the_tools_answer_as_their_golden_files_say() -> Result<()> {
    let set = set_with_a_past("people", &[])?;
    set.await_caught_up()?;
    let primary = set.primary()?;
    let then = applied(primary)?;
    let then = format!("Timestamp({},{})", then.time, then.increment);
    let delete = doc! { "q": { "_id": { "$lt": 200 } }, "limit": 0 };
    primary.run("shop", doc! { "delete": "orders", "deletes": [delete] })?;
    let update = doc! { "q": { "_id": 250 }, "u": { "$set": { "n": 70 } } };
    primary.run("shop", doc! { "update": "orders", "updates": [update] })?;
    primary.run("shop", doc! { "drop": "gone" })?;
    set.await_caught_up()?;

    let dir = tempfile::tempdir().context("a directory")?;
    let from = format!("mongodb://127.0.0.1:{}", set.ours()?.port());
    let ask = |args: &[&str]| tools(&[args, &["--from", &from]].concat(), dir.path());
    for (name, args, code) in [
        ("at", &["at", &then][..], 0),
        ("at-json", &["at", "--json", &then], 0),
        ("diff", &["diff", &then, "now"], 1),
        (
            "diff-unified",
            &["diff", "--form", "unified", &then, "now", "shop.small", "shop.gone"],
            1,
        ),
        ("diff-equal", &["diff", &then, "now", "shop.small"], 0),
        ("log", &["log", "shop.orders", "250"], 0),
        ("log-untouched", &["log", "shop.small", "\"a\""], 0),
        ("log-dropped", &["log", "shop.gone", "1"], 0),
        ("find-drop", &["find-drop"], 0),
        ("find-drop-json", &["find-drop", "--json", "shop.gone"], 0),
        ("find-drop-none", &["find-drop", "elsewhere"], 0),
    ] {
        let said = ask(args).with_context(|| name.to_owned())?;
        ensure!(said.code == Some(code), "{name}: {:?}\n{}{}", said.code, said.out, said.err);
        golden::check(name, &said.out)?;
    }
    for (name, args) in [
        ("no-collection", &["log", "shop.odrers", "1"][..]),
        ("no-document", &["log", "shop.orders", "9999"]),
        ("no-moment", &["at", "soon"]),
        ("before-the-window", &["at", "2001-01-01 00:00"]),
    ] {
        let said = ask(args)?;
        ensure!(
            said.code == Some(2) && said.out.is_empty(),
            "{name}: {:?} {}",
            said.code,
            said.out
        );
        golden::check(name, &said.err)?;
    }
    times_are_local_unless_told(&from, dir.path())?;
    nothing_is_dropped_unasked(&set, &from, &then, dir.path())?;
    status_tells_and_alarms(&from, dir.path())?;
    what_was_dropped_is_recovered(&set, &from, dir.path())?;
    a_reader_may_leave(&from, &then, dir.path())?;
    change_streams_are_refused_truly(set.ours()?)?;
    set.finish()
}

/// Times are read and shown in the zone of `TZ`, which the tool mentions. `--utc` is for scripts.
fn times_are_local_unless_told(from: &str, dir: &Path) -> Result<()> {
    let ask = |args: &[&str]| -> Result<Said> {
        let mut command = Command::new(understudy::tools()?);
        command.args(args).args(["--from", from]).current_dir(dir).env("TZ", "Asia/Kolkata");
        let output = command.output()?;
        let text = |bytes| String::from_utf8(bytes).context("what it said");
        Ok(Said { code: None, out: text(output.stdout)?, err: text(output.stderr)? })
    };
    // In the second in which the history window begins, -0s lies before it.
    let local = wait_until("this second can be read", PATIENCE, || {
        let said = ask(&["at", "-0s"])?;
        Ok((!said.out.is_empty()).then_some(said))
    })?;
    ensure!(local.out.starts_with("at 20") && local.out.contains("+05:30 ("), "{}", local.out);
    ensure!(local.err.contains("Asia/Kolkata"), "{}", local.err);
    let utc = ask(&["at", "--utc", "--quiet", "-0s"])?;
    ensure!(utc.out.contains("Z (Timestamp(") && utc.err.is_empty(), "{}{}", utc.out, utc.err);
    Ok(())
}

/// Without a terminal, a restore that would drop a collection refuses to run.
fn nothing_is_dropped_unasked(set: &ReplSet, from: &str, at: &str, dir: &Path) -> Result<()> {
    let to = format!("mongodb://127.0.0.1:{}/?directConnection=true", set.primary()?.port());
    let args =
        ["restore", "--from", from, "--at", at, "--ns", "shop.orders", "--to", &to, "--drop"];
    let count = || -> Result<i32> {
        Ok(set.primary()?.run("shop", doc! { "count": "orders" })?.get_i32("n")?)
    };
    let refused = tools(&args, dir)?;
    ensure!(refused.code == Some(2) && refused.err.contains("add --yes"), "{}", refused.err);
    ensure!(count()? == 100, "something was dropped");
    let done = tools(&[&args[..], &["--yes"]].concat(), dir)?;
    ensure!(done.code == Some(0) && count()? == 300, "{}{}", done.out, done.err);
    Ok(())
}

fn status_tells_and_alarms(from: &str, dir: &Path) -> Result<()> {
    let well = tools(&["status", "--from", from, "--disk-min", "0"], dir)?;
    ensure!(well.code == Some(0), "{:?}\n{}{}", well.code, well.out, well.err);
    for part in ["SECONDARY of people", "s behind 127.0.0.1:", "of 24h,half", "alarms   none"] {
        ensure!(well.out.contains(part), "{part} in\n{}", well.out);
    }
    let alarm = tools(&["status", "--from", from, "--disk-min", "101", "--json"], dir)?;
    ensure!(alarm.code == Some(1), "{:?}\n{}{}", alarm.code, alarm.out, alarm.err);
    let row: serde_json::Value = serde_json::from_str(&alarm.out)?;
    ensure!(row.pointer("/state").is_some_and(|state| state == "SECONDARY"), "{row}");
    ensure!(row.pointer("/alarms/0").is_some_and(serde_json::Value::is_string), "{row}");
    Ok(())
}

/// Without --to, data is restored to the primary that the node knows.
fn what_was_dropped_is_recovered(set: &ReplSet, from: &str, dir: &Path) -> Result<()> {
    let ask =
        |more: &[&str]| tools(&[&["recover", "--from", from, "shop.gone"], more].concat(), dir);
    let dry = ask(&["--dry-run"])?;
    ensure!(dry.code == Some(0), "{:?}\n{}{}", dry.code, dry.out, dry.err);
    golden::check("recover-dry-run", &dry.out)?;
    let rows = ask(&["--dry-run", "--json"])?;
    golden::check("recover-dry-run-json", &rows.out)?;
    let unasked = ask(&[])?;
    ensure!(unasked.code == Some(2) && unasked.err.contains("add --yes"), "{}", unasked.err);
    let done = ask(&["--yes"])?;
    ensure!(done.code == Some(0), "{:?}\n{}{}", done.code, done.out, done.err);
    let back = set.primary()?.run("shop", doc! { "count": "gone" })?;
    ensure!(back.get_i32("n")? == 1, "{back}");
    Ok(())
}

/// A small oplog no longer contains the drop and the update, but history does.
#[test]
fn what_the_oplog_has_forgotten_is_found_in_history() -> Result<()> {
    let set = set_with_a_past("forgotten", &["--oplogSize", "1"])?;
    set.await_caught_up()?;
    let primary = set.primary()?;
    primary.run("shop", doc! { "drop": "gone" })?;
    let update = doc! { "q": { "_id": "a" }, "u": { "$set": { "text": "new" } } };
    primary.run("shop", doc! { "update": "small", "updates": [update] })?;
    let then = applied(primary)?;
    let oplog = set.ours()?.client().database("local").collection::<Document>("oplog.rs");
    wait_until("the oplog has forgotten", PATIENCE, || {
        let padded = doc! { "pad": "x".repeat(500_000) };
        primary.run("load", doc! { "insert": "c", "documents": [padded] })?;
        set.await_caught_up()?;
        let first = oplog.find_one(doc! {}).sort(doc! { "$natural": 1 }).run()?;
        let first = first.context("an entry")?.get_timestamp("ts")?;
        Ok((first.time > then.time).then_some(()))
    })?;
    let dir = tempfile::tempdir().context("a directory")?;
    let from = format!("mongodb://127.0.0.1:{}", set.ours()?.port());
    let found = tools(&["find-drop", "--from", &from, "shop"], dir.path())?;
    ensure!(found.out.contains("collection dropped  shop.gone"), "{}{}", found.out, found.err);
    let way_back = found.out.split('\'').nth(1).context("a moment")?;
    let at = tools(&["at", "--from", &from, way_back, "shop.gone"], dir.path())?;
    ensure!(at.out.contains("           1             14 "), "{}{}", at.out, at.err);
    let log = tools(&["log", "--from", &from, "shop.small", "\"a\""], dir.path())?;
    for part in ["\"kept\"", "\"new\"", "before the oplog begins"] {
        ensure!(log.out.contains(part), "{part} in\n{}{}", log.out, log.err);
    }
    set.finish()
}

/// The reader of the output ends before the tool has written, as with `| head`.
fn a_reader_may_leave(from: &str, at: &str, dir: &Path) -> Result<()> {
    let mut command = Command::new(understudy::tools()?);
    command.args(["diff", "--from", from, "--form", "json", at, "now"]).current_dir(dir);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("run understudy-tools")?;
    drop(child.stdout.take());
    let output = child.wait_with_output()?;
    let err = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(141) && err.is_empty(), "{:?}: {err}", output.status);
    Ok(())
}

fn change_streams_are_refused_truly(ours: &Node) -> Result<()> {
    let watch = ours.client().database("shop").collection::<Document>("orders").watch().run();
    let refused = watch.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(refused.contains("not supported by Understudy yet"), "{refused}");
    ensure!(!refused.contains("only supported on replica sets"), "{refused}");
    Ok(())
}

/// If nothing listens on the port, the tool says so at once and names the address.
#[test]
fn a_node_that_is_not_there_is_named() -> Result<()> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    drop(listener);
    let dir = tempfile::tempdir().context("a directory")?;
    // Build the tools before the time is measured.
    understudy::tools()?;
    let begun = Instant::now();
    let said = tools(&["find-drop", "--from", &format!("mongodb://127.0.0.1:{port}")], dir.path())?;
    ensure!(said.code == Some(2), "{:?}", said.code);
    ensure!(said.err.contains(&format!("nobody listens on 127.0.0.1:{port}")), "{}", said.err);
    ensure!(begun.elapsed() < Duration::from_secs(10), "after {:?}", begun.elapsed());
    Ok(())
}

/// A mongod without a config does not wait until clients have disconnected, and neither does our node.
#[test]
fn a_node_without_a_config_ends_at_once() -> Result<()> {
    let mut set = ReplSet::named("ends").start()?;
    let nodes = [
        mongod::options("real", Version::V8_2, Some("other"))?,
        understudy::options("ours", Some("other"))?,
    ];
    for options in nodes {
        let mut node = Node::start(options, set.scratch())?;
        let begun = Instant::now();
        ensure!(node.stop()?.success());
        let took = begun.elapsed();
        ensure!(took < Duration::from_secs(10), "{} took {took:?}", node.name());
    }
    set.finish()
}
