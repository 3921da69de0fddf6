//! Transactions: committed, aborted, larger than one oplog entry, prepared as on a shard.

use anyhow::{Context, Result};
use bson::{Document, doc};
use mongodb::sync::ClientSession;
use rand::RngExt;

use super::Workload;
use super::writes::modifications;
use crate::driver;
use crate::wait::{PATIENCE, wait_until};

impl Workload {
    /// A transaction of several writes, committed or aborted.
    pub(super) fn transaction(&mut self) -> Result<()> {
        let commit = self.chance(80);
        let mut session = self.client.start_session().run()?;
        session.start_transaction().run()?;
        let intact = self.writes_within(&mut session)?;
        let ended = if commit && intact {
            session.commit_transaction().run()
        } else {
            session.abort_transaction().run()
        };
        self.settle(ended)
    }

    /// A prepared transaction, with other writes between prepare and commit or abort.
    pub(super) fn prepared_transaction(&mut self) -> Result<()> {
        let commit = self.chance(70);
        let mut session = self.client.start_session().run()?;
        session.start_transaction().run()?;
        let admin = self.client.database("admin");
        if !self.writes_within(&mut session)? {
            let aborted = session.abort_transaction().run();
            return self.settle(aborted);
        }
        let prepare = admin.run_command(doc! { "prepareTransaction": 1 }).session(&mut session);
        let prepared = match prepare.run() {
            Ok(prepared) => prepared,
            Err(error) if driver::is_refusal(&error) => return self.settle(Err::<(), _>(error)),
            Err(error) => return Err(error.into()),
        };
        let at = prepared.get_timestamp("prepareTimestamp").context("a prepare has its moment")?;
        // These writes use another database, since they would block on the transaction's locks.
        for _ in 0..self.rng.random_range(0..4) {
            self.run_command("beside", doc! { "insert": "prepared", "documents": [{ "n": 1 }] })?;
        }
        let end = if commit {
            doc! { "commitTransaction": 1, "commitTimestamp": at }
        } else {
            doc! { "abortTransaction": 1 }
        };
        // The server refuses until the prepare is majority-committed. A transaction left prepared would hold its
        // locks forever, so this retries.
        wait_until("a prepared transaction ends", PATIENCE, || {
            admin.run_command(end.clone()).session(&mut session).run()?;
            Ok(Some(()))
        })?;
        self.count(true);
        Ok(())
    }

    /// Returns false if a write was refused, which aborts the transaction.
    fn writes_within(&mut self, session: &mut ClientSession) -> Result<bool> {
        let large = self.chance(2);
        let n = if large { 20 } else { self.rng.random_range(1..8) };
        for i in 0..n {
            let target = self.target();
            let kind = if large { 3 } else { self.rng.random_range(0..3) };
            let result = match kind {
                0 => target.insert_one(self.document()).session(&mut *session).run().map(drop),
                1 => {
                    let update = self.update();
                    let change = modifications(&update.update);
                    let mut request = target.update_one(update.filter, change);
                    if !update.array_filters.is_empty() {
                        request = request.array_filters(update.array_filters);
                    }
                    request.session(&mut *session).run().map(drop)
                }
                2 => target.delete_one(self.filter()).session(&mut *session).run().map(drop),
                _ => {
                    let document: Document =
                        doc! { "i": i, "n": i, "filling": "x".repeat(1_000_000) };
                    target.insert_one(document).session(&mut *session).run().map(drop)
                }
            };
            let intact = result.is_ok();
            self.settle(result)?;
            if !intact {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
