//! The majority commit point, as far as a secondary knows it.
//!
//! C1 The commit point never moves back.
//! C2 A commit point of another term than our last written entry may lie on another branch of history. If it comes
//!    from a heartbeat it is ignored, even from the sync source, which may have left our branch since its last batch.
//!    If it comes with a batch, which proves that our entry is on the source's branch, it is accepted at most up to
//!    our last written entry.
//! C3 stable = min(commit point, applied): what majority reads see. It never moves back either, except when an
//!    initial sync starts.

use protocol::{OpTime, OpTimeAndWall};

use crate::event::Positions;

/// The commit point and the stable point derived from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CommitPoint {
    /// The newest majority-committed position.
    pub committed: OpTimeAndWall,
    /// min(committed, applied).
    pub stable: OpTime,
}

/// The source of a commit point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToldBy {
    /// The sync source, with an oplog batch.
    SyncSource,
    /// Any member's heartbeat, including the sync source's.
    Heartbeat,
}

impl CommitPoint {
    /// Processes a commit point from another member. True if ours advanced.
    pub(crate) fn hear(&mut self, told: OpTimeAndWall, by: ToldBy, ours: &Positions) -> bool {
        let written = ours.written;
        let candidate = match by {
            _ if told.op_time.t == written.op_time.t => told,
            ToldBy::SyncSource if written.op_time < told.op_time => written,
            ToldBy::SyncSource => told,
            ToldBy::Heartbeat => return false,
        };
        if candidate.op_time <= self.committed.op_time {
            return false;
        }
        self.committed = candidate;
        self.settle(ours);
        true
    }

    /// Advances the stable point after `applied` advanced. True if it moved.
    pub fn settle(&mut self, ours: &Positions) -> bool {
        let stable = self.committed.op_time.min(ours.applied.op_time);
        let moved = stable > self.stable;
        if moved {
            self.stable = stable;
        }
        moved
    }

    /// Resets everything for an initial sync.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use protocol::Timestamp;

    use super::*;

    fn point(secs: u32, term: i64) -> OpTimeAndWall {
        OpTimeAndWall {
            op_time: OpTime::new(Timestamp::new(secs, 1), term),
            wall: bson::DateTime::from_millis(i64::from(secs) * 1000),
        }
    }

    fn ours(written: OpTimeAndWall, applied: OpTimeAndWall) -> Positions {
        Positions { written, durable: written, applied }
    }

    #[test]
    fn a_heartbeat_of_another_term_is_not_believed() {
        let mut commit = CommitPoint::default();
        let at = ours(point(10, 1), point(10, 1));
        assert!(!commit.hear(point(9, 2), ToldBy::Heartbeat, &at));
        assert!(commit.hear(point(12, 1), ToldBy::Heartbeat, &at), "same branch, ahead of us");
        assert_eq!((commit.committed, commit.stable), (point(12, 1), point(10, 1).op_time));
    }

    #[test]
    fn the_sync_source_is_believed_up_to_our_last_entry() {
        let mut commit = CommitPoint::default();
        let at = ours(point(10, 1), point(8, 1));
        assert!(commit.hear(point(20, 2), ToldBy::SyncSource, &at));
        assert_eq!((commit.committed, commit.stable), (point(10, 1), point(8, 1).op_time));
    }

    #[test]
    fn neither_point_goes_back() {
        let mut commit = CommitPoint::default();
        let at = ours(point(10, 1), point(10, 1));
        assert!(commit.hear(point(10, 1), ToldBy::SyncSource, &at));
        assert!(!commit.hear(point(9, 1), ToldBy::SyncSource, &at));
        assert!(!commit.settle(&ours(point(10, 1), point(5, 1))));
        assert_eq!(commit.stable, point(10, 1).op_time);
    }
}
