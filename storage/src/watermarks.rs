//! The store's positions, and which component advances each.
//!
//! ```text
//!   oldest <= stable <= applied <= written      durable <= written
//!   history   repl      Apply      Oplog::append   Oplog::sync
//! ```
//! `stable` is the smaller of the commit point and `applied`. Each position is a watch channel, so that nobody has to
//! poll.

use protocol::{OpTimeAndWall, Timestamp};
use tokio::sync::watch;

/// The positions of a store.
pub struct Watermarks {
    written: watch::Sender<OpTimeAndWall>,
    durable: watch::Sender<OpTimeAndWall>,
    applied: watch::Sender<OpTimeAndWall>,
    commit_point: watch::Sender<OpTimeAndWall>,
    stable: watch::Sender<OpTimeAndWall>,
    oldest: watch::Sender<Timestamp>,
}

impl Watermarks {
    pub(crate) fn new(written: OpTimeAndWall, applied: OpTimeAndWall, oldest: Timestamp) -> Self {
        let at = |position| watch::Sender::new(position);
        Self {
            written: at(written),
            durable: at(written),
            applied: at(applied),
            commit_point: at(OpTimeAndWall::NULL),
            stable: at(OpTimeAndWall::NULL),
            oldest: watch::Sender::new(oldest),
        }
    }

    /// The last entry in the oplog, synced or not.
    pub fn written(&self) -> OpTimeAndWall {
        *self.written.borrow()
    }

    /// Wakes when `written` moves.
    pub fn watch_written(&self) -> watch::Receiver<OpTimeAndWall> {
        self.written.subscribe()
    }

    /// The last entry that survives a power loss.
    pub fn durable(&self) -> OpTimeAndWall {
        *self.durable.borrow()
    }

    /// Wakes when `durable` moves.
    pub fn watch_durable(&self) -> watch::Receiver<OpTimeAndWall> {
        self.durable.subscribe()
    }

    /// The last entry whose effects are visible.
    pub fn applied(&self) -> OpTimeAndWall {
        *self.applied.borrow()
    }

    /// Wakes when `applied` moves.
    pub fn watch_applied(&self) -> watch::Receiver<OpTimeAndWall> {
        self.applied.subscribe()
    }

    /// The newest majority-committed entry that we have heard of.
    pub fn commit_point(&self) -> OpTimeAndWall {
        *self.commit_point.borrow()
    }

    /// The newest majority-committed entry that is applied here: the smaller of the commit point and `applied`.
    pub fn stable(&self) -> OpTimeAndWall {
        *self.stable.borrow()
    }

    /// Wakes when `stable` moves.
    pub fn watch_stable(&self) -> watch::Receiver<OpTimeAndWall> {
        self.stable.subscribe()
    }

    /// The oldest timestamp that can be read.
    pub fn oldest(&self) -> Timestamp {
        *self.oldest.borrow()
    }

    /// Sets the commit point that replication learned. Never moves backwards.
    pub fn set_commit_point(&self, at: OpTimeAndWall) {
        if raise(&self.commit_point, at) {
            self.move_stable();
        }
    }

    pub(crate) fn set_written(&self, at: OpTimeAndWall) {
        self.written.send_replace(at);
    }

    pub(crate) fn set_durable(&self, at: OpTimeAndWall) {
        self.durable.send_replace(at);
    }

    pub(crate) fn raise_durable(&self, at: OpTimeAndWall) {
        raise(&self.durable, at);
    }

    pub(crate) fn set_applied(&self, at: OpTimeAndWall) {
        self.applied.send_replace(at);
        self.move_stable();
    }

    pub(crate) fn set_oldest(&self, at: Timestamp) {
        self.oldest.send_if_modified(|oldest| {
            let moves = at > *oldest;
            *oldest = at.max(*oldest);
            moves
        });
    }

    /// Resets all positions for a new initial sync.
    pub(crate) fn reset(&self) {
        for position in
            [&self.written, &self.durable, &self.applied, &self.commit_point, &self.stable]
        {
            position.send_replace(OpTimeAndWall::NULL);
        }
        self.oldest.send_replace(Timestamp::NULL);
    }

    fn move_stable(&self) {
        let (commit, applied) = (self.commit_point(), self.applied());
        let stable = if commit.op_time <= applied.op_time { commit } else { applied };
        raise(&self.stable, stable);
    }
}

fn raise(position: &watch::Sender<OpTimeAndWall>, at: OpTimeAndWall) -> bool {
    position.send_if_modified(|now| {
        let moves = at.op_time > now.op_time;
        if moves {
            *now = at;
        }
        moves
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::OpTime;

    fn at(secs: u32) -> OpTimeAndWall {
        OpTimeAndWall {
            op_time: OpTime::new(Timestamp::new(secs, 0), 1),
            wall: bson::DateTime::from_millis(0),
        }
    }

    #[test]
    fn stable_is_the_smaller_of_commit_point_and_applied_and_never_goes_back() {
        let marks = Watermarks::new(at(5), at(5), Timestamp::NULL);
        marks.set_commit_point(at(9));
        assert_eq!(marks.stable(), at(5));
        marks.set_applied(at(7));
        assert_eq!(marks.stable(), at(7));
        marks.set_applied(at(12));
        assert_eq!(marks.stable(), at(9));
        marks.set_commit_point(at(3));
        assert_eq!((marks.commit_point(), marks.stable()), (at(9), at(9)));
    }
}
