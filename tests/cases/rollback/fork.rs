//! A set whose history forks: our node and a real hidden member are on the branch that the set gives up.
//!
//! ```text
//!   A, B, C vote; D is a real member, hidden, without vote; U is our node, with the same settings as D
//!   B, C killed | w: 1 on A, D and U have it | A killed, D and U frozen, B and C started | B elected, w: majority
//!   D and U go on, and roll back
//! ```
//!
//! Only signals separate the members, so no proxy is needed. D and U are frozen because B and C would otherwise sync
//! from them, as their oplogs are longer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bson::{Document, RawDocumentBuf, doc};
use tests::hashes;
use tests::node::Node;
use tests::repl_set::{Member, ReplSet, applied};
use tests::servers::Version;
use tests::wait::{PATIENCE, wait_until};
use tests::{mongod, understudy};

/// The election timeout. A primary that has lost its majority stays primary for this long.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(40);

/// A set with a forked history.
pub(super) struct Fork {
    pub(super) set: ReplSet,
    /// The primary of the lost branch.
    pub(super) loser: usize,
    /// The primary of the branch that stays.
    pub(super) winner: usize,
    pub(super) third: usize,
    /// The real hidden member, if there is one.
    pub(super) theirs: Option<usize>,
    pub(super) ours: usize,
}

impl Fork {
    /// Starts a healthy set in which all members have the same entries.
    pub(super) fn new(test: &str, version: Version, with_theirs: bool) -> Result<Self> {
        let mut set = ReplSet::named(test)
            .version(version)
            .mongods(3)
            .election_timeout(ELECTION_TIMEOUT)
            .limit(Duration::from_secs(600))
            .start()?;
        let theirs = if with_theirs {
            let options = mongod::options("theirs", version, Some(set.name()))?;
            Some(set.add(options, Member { votes: 0 })?)
        } else {
            None
        };
        let ours = set.add(understudy::options("ours", Some(set.name()))?, Member { votes: 0 })?;
        let loser = set.primary_index()?;
        let others: Vec<usize> = (0..3).filter(|index| *index != loser).collect();
        let &[winner, third] = others.as_slice() else { bail!("a set of three") };
        let fork = Self { set, loser, winner, third, theirs, ours };
        for index in fork.subjects() {
            fork.set.await_state(fork.set.node(index)?, "SECONDARY", PATIENCE)?;
        }
        Ok(fork)
    }

    /// The members that roll back.
    pub(super) fn subjects(&self) -> Vec<usize> {
        self.theirs.into_iter().chain([self.ours]).collect()
    }

    pub(super) fn ours(&self) -> Result<&Node> {
        self.set.node(self.ours)
    }

    /// Writes with majority write concern, before the fork.
    pub(super) fn write_shared(&self, db: &str, command: Document) -> Result<()> {
        let reply = self.set.primary()?.run(db, majority(command))?;
        ensure!(!reply.contains_key("writeConcernError"), "{reply}");
        Ok(())
    }

    /// Begins the branch that will be lost.
    pub(super) fn part(&mut self) -> Result<()> {
        self.write_shared("shop", doc! { "insert": "shared", "documents": [{ "last": true }] })?;
        self.set.await_caught_up()?;
        self.set.node_mut(self.winner)?.kill()?;
        self.set.node_mut(self.third)?.kill()?;
        Ok(())
    }

    /// Writes on the branch that will be lost.
    pub(super) fn lose(&self, db: &str, mut command: Document) -> Result<Document> {
        command.insert("writeConcern", doc! { "w": 1 });
        self.set.node(self.loser)?.run(db, command)
    }

    /// Waits until all members that will roll back have applied the lost branch.
    pub(super) fn await_lost(&self) -> Result<()> {
        let goal = applied(self.set.node(self.loser)?)?;
        for index in self.subjects() {
            let node = self.set.node(index)?;
            let what = format!("{} has the lost branch", node.name());
            wait_until(&what, PATIENCE, || Ok((applied(node)? >= goal).then_some(())))?;
        }
        Ok(())
    }

    /// Kills the old primary, starts the other two and lets them elect the new primary. The members that will roll
    /// back are frozen meanwhile.
    pub(super) fn elect(&mut self) -> Result<()> {
        for index in self.subjects() {
            self.set.node(index)?.freeze()?;
        }
        self.set.node_mut(self.loser)?.kill()?;
        for index in [self.winner, self.third] {
            self.set.node_mut(index)?.restart()?;
        }
        let winner = self.set.node(self.winner)?;
        wait_until("the others elect", PATIENCE, || {
            let hello = winner.admin(doc! { "isMaster": 1 })?;
            if hello.get_bool("ismaster")? {
                return Ok(Some(()));
            }
            // The step-up is refused until the node has heard from the third member. Then it waits for members that
            // do not answer, so the catch-up is aborted.
            let stepped = winner.answer("admin", doc! { "replSetStepUp": 1 })?;
            let waits = winner.answer("admin", doc! { "replSetAbortPrimaryCatchUp": 1 })?;
            bail!("{stepped}, {waits}")
        })
    }

    /// Writes on the branch that stays. The third member may not follow yet: before 8.0 it waits for pings of the
    /// frozen members.
    pub(super) fn win(&self, db: &str, mut command: Document) -> Result<()> {
        command.insert("writeConcern", doc! { "w": 1 });
        self.set.node(self.winner)?.run(db, command)?;
        Ok(())
    }

    /// Resumes the members that will roll back.
    pub(super) fn heal(&self) -> Result<()> {
        for index in self.subjects() {
            self.set.node(index)?.thaw()?;
        }
        Ok(())
    }

    /// Waits until a member has applied everything that the new primary has.
    pub(super) fn await_healed(&self, index: usize) -> Result<()> {
        let goal = applied(self.set.node(self.winner)?)?;
        let node = self.set.node(index)?;
        let what = format!("{} has gone with the set", node.name());
        wait_until(&what, PATIENCE, || {
            let there = applied(node)?;
            if there < goal {
                bail!("it is at {there}, the primary at {goal}");
            }
            Ok((state(node)? == SECONDARY).then_some(()))
        })
    }

    /// Checks that our node has the new primary's documents, indexes, sessions and counts, and that its data is
    /// valid.
    pub(super) fn assert_equal(&self) -> Result<()> {
        let (winner, ours) = (self.set.node(self.winner)?, self.ours()?);
        self.await_healed(self.ours)?;
        hashes::assert_same_data(winner, ours)?;
        ensure!(sessions(winner)? == sessions(ours)?, "config.transactions differs");
        for db in winner.client().list_database_names().run()? {
            if db == "local" {
                continue;
            }
            let only = doc! { "type": "collection" };
            for found in winner.client().database(&db).list_collections().filter(only).run()? {
                let name = found?.name;
                // A mongod's own counts may be wrong after kill -9, so its documents are counted.
                let want = winner.client().database(&db).collection::<Document>(&name);
                let want = i64::try_from(want.count_documents(doc! {}).run()?)?;
                let got = ours.run(&db, doc! { "count": &name })?;
                ensure!(i64::from(got.get_i32("n")?) == want, "{db}.{name}: {want} and {got}");
                let report = ours.run(&db, doc! { "validate": &name, "full": true })?;
                ensure!(report.get_bool("valid")?, "{db}.{name}: {report}");
            }
        }
        Ok(())
    }

    /// Checks that our rollback files have the same content as the real member's, in any order.
    pub(super) fn assert_same_files(&self) -> Result<()> {
        let theirs = self.theirs.context("the set has no real hidden member")?;
        let theirs = rollback_files(&self.set.node(theirs)?.data_path())?;
        let ours = rollback_files(&self.ours()?.data_path())?;
        let sizes = |files: &Files| -> Vec<(String, usize)> {
            files.iter().map(|(place, docs)| (place.clone(), docs.len())).collect()
        };
        ensure!(
            theirs == ours,
            "the files differ: theirs {:?}, ours {:?}",
            sizes(&theirs),
            sizes(&ours)
        );
        ensure!(!ours.is_empty(), "there are no files");
        Ok(())
    }

    /// Restarts the old primary and waits until it has rolled back, too.
    pub(super) fn finish(mut self) -> Result<()> {
        self.set.expect_log("our history and that of");
        self.set.node_mut(self.loser)?.restart()?;
        self.await_healed(self.loser)?;
        self.set.finish_without_comparing()
    }
}

pub(super) const SECONDARY: i32 = 2;

pub(super) fn state(node: &Node) -> Result<i32> {
    Ok(node.admin(doc! { "replSetGetStatus": 1 })?.get_i32("myState")?)
}

pub(super) fn rbid(node: &Node) -> Result<i32> {
    Ok(node.admin(doc! { "replSetGetRBID": 1 })?.get_i32("rbid")?)
}

pub(super) fn majority(mut command: Document) -> Document {
    command.insert("writeConcern", doc! { "w": "majority", "wtimeout": 20_000 });
    command
}

fn sessions(node: &Node) -> Result<Vec<Document>> {
    let rows = node.client().database("config").collection::<Document>("transactions");
    Ok(rows.find(doc! {}).sort(doc! { "_id": 1 }).run()?.collect::<Result<_, _>>()?)
}

/// The documents of all rollback files, by directory.
pub(super) type Files = BTreeMap<String, BTreeSet<Vec<u8>>>;

pub(super) fn rollback_files(data: &Path) -> Result<Files> {
    let mut found = Files::new();
    let Ok(places) = std::fs::read_dir(data.join("rollback")) else { return Ok(found) };
    for place in places {
        let place = place?;
        let documents = found.entry(place.file_name().to_string_lossy().into_owned()).or_default();
        for file in std::fs::read_dir(place.path())? {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "bson") {
                documents.extend(read_documents(&path)?);
            }
        }
    }
    Ok(found)
}

fn read_documents(path: &Path) -> Result<Vec<Vec<u8>>> {
    let bytes = std::fs::read(path)?;
    let mut rest = bytes.as_slice();
    let mut found = Vec::new();
    while let Some(head) = rest.first_chunk::<4>() {
        let len = usize::try_from(i32::from_le_bytes(*head))?;
        let (document, next) = rest.split_at_checked(len).context("a file is cut short")?;
        RawDocumentBuf::from_bytes(document.to_vec())?;
        found.push(document.to_vec());
        rest = next;
    }
    Ok(found)
}
