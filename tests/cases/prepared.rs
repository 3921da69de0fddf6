//! Prepared transactions survive everything: an initial sync meanwhile, SIGKILL, other writes.

use anyhow::{Context, Result, ensure};
use bson::{Document, Timestamp, doc};
use mongodb::sync::ClientSession;
use tests::node::Node;
use tests::repl_set::{Member, ReplSet};
use tests::servers::Version;
use tests::understudy;
use tests::wait::{PATIENCE, wait_until};

on_each_version!(prepared_transactions_survive_a_copy_and_a_kill);

fn prepared_transactions_survive_a_copy_and_a_kill(version: Version) -> Result<()> {
    let mut set = ReplSet::named("prepared").version(version).start()?;
    let documents: Vec<Document> = (0..100).map(|i| doc! { "_id": i, "n": 0 }).collect();
    set.primary()?.run("shop", doc! { "insert": "c", "documents": documents })?;
    // Two transactions are undecided and one is open during the initial sync.
    let mut kept = Prepared::new(set.primary()?, 0)?;
    let mut dropped = Prepared::new(set.primary()?, 10)?;
    let mut open = set.primary()?.client().start_session().run()?;
    open.start_transaction().run()?;
    change(set.primary()?, &mut open, 20)?;
    let options = understudy::options("ours", Some(set.name()))?;
    set.add(options, Member { votes: 0 })?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    ensure!(changed(set.ours()?)? == 0, "what is undecided is seen");
    let mut later = Prepared::new(set.primary()?, 30)?;
    set.await_caught_up()?;
    set.ours_mut()?.kill()?;
    set.primary()?.run("shop", doc! { "insert": "d", "documents": [{ "_id": 1 }] })?;
    set.ours_mut()?.restart()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_caught_up()?;
    ensure!(changed(set.ours()?)? == 0, "what is undecided is seen after a kill");
    kept.end(set.primary()?, true)?;
    dropped.end(set.primary()?, false)?;
    open.commit_transaction().run()?;
    set.await_caught_up()?;
    ensure!(changed(set.ours()?)? == 10, "what is committed is not all there");
    set.ours_mut()?.kill()?;
    later.end(set.primary()?, true)?;
    set.ours_mut()?.restart()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_caught_up()?;
    ensure!(changed(set.ours()?)? == 15);
    set.finish()
}

/// A transaction that waits for its decision.
struct Prepared {
    session: ClientSession,
    at: Timestamp,
}

impl Prepared {
    /// Changes five documents, deletes one and inserts one.
    fn new(primary: &Node, from: i32) -> Result<Self> {
        let mut session = primary.client().start_session().run()?;
        session.start_transaction().run()?;
        change(primary, &mut session, from)?;
        let admin = primary.client().database("admin");
        let prepare = admin.run_command(doc! { "prepareTransaction": 1 }).session(&mut session);
        let reply = prepare.run()?;
        let at = reply.get_timestamp("prepareTimestamp").context("a prepare has its moment")?;
        Ok(Self { session, at })
    }

    fn end(&mut self, primary: &Node, commit: bool) -> Result<()> {
        let end = if commit {
            doc! { "commitTransaction": 1, "commitTimestamp": self.at }
        } else {
            doc! { "abortTransaction": 1 }
        };
        let admin = primary.client().database("admin");
        wait_until("the transaction ends", PATIENCE, || {
            admin.run_command(end.clone()).session(&mut self.session).run()?;
            Ok(Some(()))
        })
    }
}

fn change(primary: &Node, session: &mut ClientSession, from: i32) -> Result<()> {
    let collection = primary.client().database("shop").collection::<Document>("c");
    for i in from..from + 5 {
        let set = doc! { "$set": { "n": 1, "by": from } };
        collection.update_one(doc! { "_id": i }, set).session(&mut *session).run()?;
    }
    collection.delete_one(doc! { "_id": from + 5 }).session(&mut *session).run()?;
    collection.insert_one(doc! { "_id": 1000 + from }).session(&mut *session).run()?;
    Ok(())
}

fn changed(node: &Node) -> Result<u64> {
    let collection = node.client().database("shop").collection::<Document>("c");
    Ok(collection.count_documents(doc! { "n": 1 }).run()?)
}
