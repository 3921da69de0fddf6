//! Invariants that must hold after every step of the simulation.

use std::collections::BTreeMap;

use bson::RawDocument;
use protocol::OpTime;

use super::{fake_set::FakeSet, our_node::OurNode};
use crate::core::{member_state::MemberState, positions};

/// Remembers what was observed so far.
#[derive(Default)]
pub(super) struct Checker {
    votes: BTreeMap<i64, i64>,
    primaries: BTreeMap<i64, usize>,
    /// The last entry known to be committed; by log matching it implies the ones before it.
    committed: OpTime,
    commits: usize,
    pub(super) elections: u32,
}

impl Checker {
    /// Our node sent a vote.
    pub(super) fn voted(&mut self, ours: &OurNode, term: i64, candidate: i64, granted: bool) {
        if !granted {
            return;
        }
        let first = *self.votes.entry(term).or_insert(candidate);
        assert_eq!(first, candidate, "voted twice in term {term}");
        let durable = ours.disk.last_vote.expect("the vote was given but not kept");
        assert!(durable.term >= term, "the vote in term {term} was given before it was durable");
    }

    /// Our node sent a heartbeat reply.
    pub(super) fn answered(&self, ours: &OurNode, reply: &RawDocument) {
        for (field, told) in [
            ("durableOpTime", ours.told.durable),
            ("opTime", ours.told.applied),
            ("writtenOpTime", ours.told.written),
        ] {
            if let Ok(shown) = reply.get_document(field) {
                let shown = OpTime::from_raw(shown).unwrap();
                assert!(shown <= told.op_time, "{field} {shown} was never told, only {told:?}");
            }
        }
    }

    /// Our node sent a position report.
    pub(super) fn reported(&self, ours: &OurNode, own_id: i64, body: &RawDocument) {
        for position in positions::parse(body).unwrap().iter().filter(|it| it.member_id == own_id) {
            let shown = position.positions.durable.op_time;
            let told = ours.told.durable.op_time;
            assert!(shown <= told, "reported {shown} as durable, told was {told}");
            assert!(!shown.is_null(), "reported nothing at all");
        }
    }

    /// Checks the invariants after each step.
    pub(super) fn check(&mut self, set: &FakeSet, ours: &OurNode) {
        let snapshot = ours.node.snapshot();
        assert_eq!(ours.overlapping_tasks, 0, "N3: two tasks at a time");
        if snapshot.state == MemberState::Startup2 {
            assert!(snapshot.positions.applied.op_time.is_null(), "positions during initial sync");
        }
        let stable_is_ours =
            snapshot.stable.is_null() || ours.log().iter().rev().any(|it| *it == snapshot.stable);
        assert!(stable_is_ours, "stable {} is not in our log", snapshot.stable);
        self.check_set(set);
    }

    /// One primary per term, and committed entries are never lost: both depend on our votes and acknowledgements.
    fn check_set(&mut self, set: &FakeSet) {
        for (index, fake) in set.fakes.iter().enumerate().filter(|(_, fake)| fake.primary) {
            let known = self.primaries.insert(fake.term, index);
            self.elections += u32::from(known.is_none());
            let first = known.unwrap_or(index);
            assert_eq!(first, index, "two primaries in term {}", fake.term);
            let newest = self.primaries.keys().max() == Some(&fake.term);
            if newest && fake.committed > self.committed {
                self.committed = fake.committed;
                self.commits += 1;
            }
            let kept =
                self.committed.is_null() || fake.log.iter().rev().any(|it| *it == self.committed);
            assert!(
                kept || !newest,
                "{} was committed, but primary {index} in term {} lacks it",
                self.committed,
                fake.term
            );
        }
    }

    pub(super) fn commits(&self) -> usize {
        self.commits
    }
}
