//! Backups: taken under load, verified, started from, and interrupted.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail, ensure};
use bson::{Document, doc};
use tests::node::Node;
use tests::repl_set::{Member, ReplSet};
use tests::scripts::understudy_tools;
use tests::servers::Version;
use tests::understudy;
use tests::wait::PATIENCE;
use tests::workload::noise;

on_each_version!(another_member_starts_from_a_backup);

fn another_member_starts_from_a_backup(version: Version) -> Result<()> {
    let set = ReplSet::named("backup").version(version).ours_hidden(1);
    let mut set = set.our_args(&["--backupRoot", root()?]).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    fill(set.primary()?)?;
    set.await_caught_up()?;
    let dir = set.scratch().path().to_owned();
    let (full, next) = (dir.join("full"), dir.join("next"));
    while_it_writes(&set, || {
        let reply = checkpoint(set.ours()?, &full, None)?;
        ensure!(number(&reply, "linkedFiles")? == 0, "{reply}");
        let reply = checkpoint(set.ours()?, &next, Some(&full))?;
        let (bytes, linked) = (number(&reply, "bytes")?, number(&reply, "linkedBytes")?);
        ensure!(linked * 2 > bytes, "little is shared: {reply}");
        Ok(())
    })?;
    for backup in [&full, &next] {
        let said = verify(backup)?;
        ensure!(said.contains("the backup is whole") && said.contains(set.name()), "{said}");
    }
    refusals(set.ours()?, &dir, &full)?;
    a_damaged_byte_is_found(&full)?;

    // Use the backup as the dbpath of another node.
    let ours = understudy::options("from-backup", Some(set.name()))?;
    let mut node = Node::prepare(ours, set.scratch())?;
    std::fs::remove_dir(node.data_path())?;
    std::fs::rename(&next, node.data_path())?;
    node.launch()?;
    node.await_answer()?;
    let index = set.adopt(node, Member { votes: 0 })?;
    let node = set.node(index)?;
    set.await_state(node, "SECONDARY", PATIENCE)?;
    ensure!(node.log_has("Starting from a backup")?);
    ensure!(!node.log_has("initial sync")?, "it made an initial sync");
    let said = verify(&node.data_path()).err().map(|e| format!("{e:#}")).unwrap_or_default();
    ensure!(said.contains("a node was started in it"), "{said}");
    // The other backup shared files with it, and must be unchanged.
    verify(&full)?;
    set.finish()
}

#[test]
fn a_backup_that_is_interrupted_is_known_as_such() -> Result<()> {
    let set = ReplSet::named("cut-backup").ours_hidden(1);
    let mut set = set.our_args(&["--backupRoot", root()?]).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    fill(set.primary()?)?;
    set.await_caught_up()?;
    let dir = set.scratch().path().to_owned();
    let backup = interrupted(&mut set, &dir)?;
    let left = unfinished(&backup);
    let said = verify(&left).err().map(|e| format!("{e:#}")).unwrap_or_default();
    ensure!(said.contains("never finished"), "{said}");
    ensure!(verify(&backup).is_err());
    set.ours_mut()?.restart()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    let reply = checkpoint(set.ours()?, &backup, None)?;
    ensure!(reply.get_str("note").is_ok_and(|note| note.contains("unfinished")), "{reply}");
    ensure!(!left.exists());
    verify(&backup)?;
    set.finish()
}

/// Kills our node in the middle of a backup. On a fast machine a backup may be complete before we notice; then the
/// next one is tried.
fn interrupted(set: &mut ReplSet, dir: &Path) -> Result<PathBuf> {
    for attempt in 0..20 {
        let backup = dir.join(format!("cut-{attempt}"));
        let ours = set.ours()?;
        let caught = std::thread::scope(|scope| -> Result<bool> {
            let running = scope.spawn(|| checkpoint(ours, &backup, None).map(drop));
            while !unfinished(&backup).join("UNFINISHED").exists() && !running.is_finished() {
                std::thread::yield_now();
            }
            ours.freeze()?;
            let caught = unfinished(&backup).join("UNFINISHED").exists();
            match caught {
                true => ours.process()?.signal(rustix::process::Signal::KILL)?,
                false => ours.thaw()?,
            }
            let answered = running.join().map_err(|_| anyhow::anyhow!("the caller panicked"))?;
            ensure!(answered.is_err() == caught, "{answered:?}");
            Ok(caught)
        })?;
        if caught {
            set.ours_mut()?.kill()?;
            return Ok(backup);
        }
    }
    bail!("every backup was done before it could be interrupted")
}

fn refusals(ours: &Node, dir: &Path, full: &Path) -> Result<()> {
    for (command, says) in [
        (doc! { "checkpoint": path(full)? }, "not empty"),
        (doc! { "checkpoint": path(&ours.data_path())? }, "within each other"),
        (doc! { "checkpoint": path(&ours.data_path().join("b"))? }, "within each other"),
        (doc! { "checkpoint": "somewhere" }, "not an absolute path"),
        (doc! { "checkpoint": path(&dir.join("b"))?, "since": path(dir)? }, "no MANIFEST"),
        (doc! { "checkpoint": path(&dir.join("b"))?, "since": "/dev/null" }, "--backupRoot"),
        (doc! { "checkpoint": "/proc/b" }, "--backupRoot"),
    ] {
        let reply = ours.answer("admin", command.clone())?;
        let text = reply.get_str("errmsg").unwrap_or_default();
        ensure!(text.contains(says), "{command}: {reply}");
    }
    ensure!(!dir.join("b").exists() && !unfinished(&dir.join("b")).exists());
    Ok(())
}

fn a_damaged_byte_is_found(backup: &Path) -> Result<()> {
    let tables = backup.join("engine/keyspaces/1/tables");
    let table = std::fs::read_dir(&tables)?.next().context("a table")??.path();
    let whole = std::fs::read(&table)?;
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    *damaged.get_mut(middle).context("a byte")? ^= 0x10;
    // Replace the file instead of changing it, since it is hard-linked from the next backup.
    let aside = backup.with_extension("aside");
    std::fs::rename(&table, &aside)?;
    std::fs::write(&table, damaged)?;
    let said = verify(backup).err().map(|e| format!("{e:#}")).unwrap_or_default();
    let name = table.strip_prefix(backup)?.display().to_string();
    ensure!(said.contains(&name) && said.contains("is damaged (1 problem)"), "{said}");
    std::fs::rename(&aside, &table)?;
    verify(backup).map(drop)
}

/// Runs `act` while inserts continue.
fn while_it_writes(set: &ReplSet, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let done = AtomicBool::new(false);
    let primary = set.primary()?;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<()> {
            for n in 0.. {
                if done.load(Ordering::SeqCst) {
                    break;
                }
                let documents: Vec<Document> = (0..20).map(|i| doc! { "n": n, "i": i }).collect();
                primary.run("shop", doc! { "insert": "live", "documents": documents })?;
                let inc = doc! { "q": { "n": n }, "u": { "$inc": { "i": 1 } }, "multi": true };
                primary.run("shop", doc! { "update": "live", "updates": [inc] })?;
            }
            Ok(())
        });
        let acted = act();
        done.store(true, Ordering::SeqCst);
        writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
        acted
    })
}

/// Inserts some megabytes that hardly compress.
fn fill(primary: &Node) -> Result<()> {
    for batch in 0..20_i32 {
        let document = |i: i32| doc! { "_id": batch * 200 + i, "n": i, "noise": noise(1500) };
        let documents: Vec<Document> = (0..200).map(document).collect();
        primary.run("shop", doc! { "insert": "bulk", "documents": documents })?;
    }
    let index = doc! { "key": { "n": 1 }, "name": "n_1" };
    primary.run("shop", doc! { "createIndexes": "bulk", "indexes": [index] })?;
    Ok(())
}

fn checkpoint(node: &Node, into: &Path, since: Option<&Path>) -> Result<Document> {
    let mut command = doc! { "checkpoint": path(into)? };
    if let Some(since) = since {
        command.insert("since", path(since)?);
    }
    node.admin(command)
}

/// The directory of the scratch directories.
fn root() -> Result<&'static str> {
    static ROOT: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    path(ROOT.get_or_init(std::env::temp_dir))
}

fn verify(dir: &Path) -> Result<String> {
    understudy_tools(&["verify-backup", path(dir)?], Path::new("/"))
}

fn unfinished(backup: &Path) -> PathBuf {
    let name = backup.file_name().unwrap_or_default().to_string_lossy();
    backup.with_file_name(format!("{name}.unfinished"))
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().context("a path of plain letters")
}

fn number(reply: &Document, name: &str) -> Result<i64> {
    let value = reply.get(name).with_context(|| format!("{name} in {reply}"))?;
    value.as_i64().or(value.as_i32().map(i64::from)).with_context(|| value.to_string())
}
