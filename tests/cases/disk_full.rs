//! The disk fills up while we apply: the node reports it and ends, and continues when there is space again.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use bson::{Document, doc};
use tests::node::Node;
use tests::repl_set::{Member, ReplSet};
use tests::scratch::Scratch;
use tests::understudy;
use tests::wait::{PATIENCE, wait_for};
use tests::workload::noise;

/// Needs the right to mount; without it there is no small disk, and nothing is tested.
#[test]
fn room_again_is_all_that_we_need() -> Result<()> {
    let mut scratch = Scratch::new("disk-full-ours")?;
    let mut set = ReplSet::named("disk-full").start()?;
    let mut ours = Node::prepare(understudy::options("ours", Some(set.name()))?, &mut scratch)?;
    let Some(disk) = SmallDisk::mount(&ours.data_path()) else {
        eprintln!("mounting is not permitted here: a full disk is not tested");
        scratch.finish();
        return set.finish();
    };
    ours.launch()?;
    ours.await_answer()?;
    let ours = set.adopt(ours, Member { votes: 0 })?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    let mut n = 0;
    wait_for("our disk is full, and our node has ended", PATIENCE, || {
        insert(set.primary()?, n)?;
        n += 100;
        Ok(!set.node_mut(ours)?.is_running())
    })?;
    ensure!(set.ours()?.log_has("make room and start again")?, "no word of it in the log");
    disk.grow()?;
    set.node_mut(ours)?.restart()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    // The engine's thread reports the system's text, other threads that of std.
    set.expect_log("No space left on device");
    set.expect_log("no storage space");
    set.finish()?;
    scratch.finish();
    Ok(())
}

fn insert(primary: &Node, from: i32) -> Result<()> {
    let documents: Vec<Document> =
        (from..from + 100).map(|i| doc! { "_id": i, "b": noise(5000) }).collect();
    primary.run("shop", doc! { "insert": "c", "documents": documents })?;
    Ok(())
}

/// A small file system in memory.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=80m", "tmpfs"])
            .arg(at)
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then(|| Self(at.to_owned()))
    }

    fn grow(&self) -> Result<()> {
        let status = Command::new("mount").args(["-o", "remount,size=900m"]).arg(&self.0).status();
        ensure!(status.context("run mount")?.success(), "the disk does not grow");
        Ok(())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A lazy unmount, since a node may still have files open here.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
