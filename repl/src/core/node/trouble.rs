//! What keeps the node out of service: entries that its disk lost, and replication that cannot continue.
//!
//! T1 A node that lacks entries it once acknowledged has no vote and shows no position until it has applied them
//!    again. A node whose store is damaged does not know what it lacks: it stays in this state until it is started
//!    with other data.
//! T2 A halted node tries again when something changes that may help: the config, the primary, a source chosen by an
//!    operator, a parameter. It stays in RECOVERING until a source has shown that it shares our history.

use protocol::OpTime;

use super::Node;
use crate::{
    core::votes::Vote,
    event::{LogLevel, Now},
};

/// Why replication has stopped.
#[derive(Debug)]
pub(super) struct Halt {
    pub(super) why: String,
    /// Something changed since, so tasks are given again (T2).
    pub(super) trying_again: bool,
}

impl Node {
    pub(super) fn is_recovering(&self) -> bool {
        self.maintenance > 0
            || self.stands_still()
            || self.lost_tail.is_some()
            || self.damage.is_some()
    }

    /// True if replication cannot continue; reads of past timestamps are still served.
    pub(super) fn stands_still(&self) -> bool {
        self.too_stale || self.halt.is_some()
    }

    /// Why no task is given.
    pub(super) fn halted(&self) -> Option<&str> {
        let halt = self.halt.as_ref().filter(|halt| !halt.trying_again)?;
        Some(&halt.why)
    }

    pub(super) fn halt(&mut self, why: String) {
        self.log(LogLevel::Error, format!("replication has stopped: {why}"));
        self.halt = Some(Halt { why, trying_again: false });
    }

    /// Something changed that may help (T2).
    pub(super) fn try_again(&mut self, now: Now, because: &str) {
        let Some(halt) = self.halt.as_mut().filter(|halt| !halt.trying_again) else { return };
        halt.trying_again = true;
        self.following.choose_at(now.mono);
        self.info(format!("replication is tried again, because {because}"));
    }

    /// A source has our last entry, or we rolled back to an entry that it has.
    pub(super) fn history_is_shared(&mut self) {
        if self.halt.take_if(|halt| halt.trying_again).is_some() {
            self.info("replication goes on".to_owned());
        }
    }

    /// The message for the operator in our status.
    pub(super) fn trouble(&self) -> Option<&str> {
        let lost = self.lost_tail.map(|_| LOST_TAIL);
        self.damage
            .as_deref()
            .or(lost)
            .or(self.too_stale.then_some(super::following::TOO_STALE))
            .or(self.halt.as_ref().map(|halt| halt.why.as_str()))
            .or(self.unknown_release.as_deref())
    }

    /// T1: takes the node out of service, because a file of the store is damaged.
    pub(super) fn damaged(&mut self, why: String) {
        if self.damage.is_none() {
            self.log(LogLevel::Error, format!("this node is out of service: {why}"));
            self.damage = Some(why);
        }
    }

    /// T1: checks whether the lost entries are applied again; called after `applied` advanced.
    pub(super) fn look_for_lost_tail(&mut self) {
        let applied = self.positions.applied.op_time;
        if let Some(lost) = self.lost_tail.take_if(|lost| applied >= *lost) {
            self.reporting.dirty = true;
            self.info(format!("what the disk had lost, up to {lost}, is applied again"));
        }
    }

    /// T1: the vote of a node that lacks acknowledged entries.
    pub(super) fn refuse_without_tail(&self) -> Option<Vote> {
        if self.damage.is_some() {
            let reason = "my data are damaged: what I had acknowledged may be gone".to_owned();
            return Some(Vote { granted: false, reason });
        }
        let lost: OpTime = self.lost_tail?;
        let reason = format!("I have lost entries up to {lost} that I had acknowledged");
        Some(Vote { granted: false, reason })
    }
}

const LOST_TAIL: &str = "the disk lost entries that this node had acknowledged: it has no vote and is not read until \
    it has fetched and applied them again";
