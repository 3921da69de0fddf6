//! The other members. Among each other they act instantly if the link is up; with our node they exchange messages.

use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, oid::ObjectId, rawdoc};
use protocol::{OpTime, OpTimeAndWall, RawDoc, Timestamp};

use super::network::Network;
use crate::{
    core::{config::ReplSetConfig, positions},
    event::Positions,
};

pub(super) const ELECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// One simulated mongod.
pub(super) struct Fake {
    pub(super) up: bool,
    pub(super) primary: bool,
    pub(super) term: i64,
    pub(super) log: Vec<OpTime>,
    pub(super) committed: OpTime,
    voted_in: i64,
    pub(super) heard_primary_at: Duration,
    /// An election that waits for our vote: its term and the votes so far.
    pub(super) standing: Option<(i64, usize)>,
    /// The durable position that we reported to it.
    pub(super) ours: OpTime,
}

/// The set, including our place in it.
pub(super) struct FakeSet {
    pub(super) fakes: Vec<Fake>,
    pub(super) config: ReplSetConfig,
    /// True if our node has a vote.
    pub(super) we_vote: bool,
}

/// A message from a fake member to us.
pub(super) enum Say {
    Heartbeat(RawDocumentBuf),
    AskVote { term: i64, body: RawDocumentBuf },
}

impl FakeSet {
    pub(super) fn new(fakes: usize, we_vote: bool) -> Self {
        let mut members = bson::RawArrayBuf::new();
        for id in 0..fakes {
            members
                .push(rawdoc! { "_id": i32::try_from(id).unwrap(), "host": format!("fake{id}:1") });
        }
        members.push(rawdoc! {
            "_id": i32::try_from(fakes).unwrap(), "host": "ours:1", "hidden": true, "priority": 0,
            "votes": i32::from(we_vote),
        });
        let raw = rawdoc! {
            "_id": "rs0", "version": 1, "term": 0i64, "members": members,
            "settings": { "replicaSetId": ObjectId::from_bytes([3; 12]) },
        };
        let first = OpTime::new(Timestamp::new(1, 1), 0);
        let fake = || Fake {
            up: true,
            primary: false,
            term: 0,
            log: vec![first],
            committed: first,
            voted_in: 0,
            heard_primary_at: Duration::ZERO,
            standing: None,
            ours: OpTime::NULL,
        };
        Self {
            fakes: (0..fakes).map(|_| fake()).collect(),
            config: ReplSetConfig::parse(RawDoc::from(raw)).unwrap(),
            we_vote,
        }
    }

    pub(super) fn ours(&self) -> usize {
        self.fakes.len()
    }

    fn talk(&self, network: &Network, a: usize, b: usize) -> bool {
        a != b && self.fakes[a].up && self.fakes[b].up && network.connected(a, b)
    }

    fn last(&self, index: usize) -> OpTime {
        *self.fakes[index].log.last().unwrap()
    }

    /// One periodic step of a member; returns its messages to us.
    pub(super) fn step(
        &mut self,
        now: Duration,
        index: usize,
        patience: Duration,
        network: &Network,
    ) -> Vec<Say> {
        if !self.fakes[index].up {
            return Vec::new();
        }
        self.hear_others(now, index, network);
        if self.fakes[index].primary {
            self.lead(now, index, network);
        } else {
            self.follow(index, network);
        }
        let mut says = vec![Say::Heartbeat(self.heartbeat(index))];
        let fake = &self.fakes[index];
        if !fake.primary && now.saturating_sub(fake.heard_primary_at) > ELECTION_TIMEOUT + patience
        {
            says.extend(self.stand(now, index, network));
        }
        says
    }

    fn hear_others(&mut self, now: Duration, index: usize, network: &Network) {
        for other in 0..self.fakes.len() {
            if !self.talk(network, index, other) {
                continue;
            }
            let (term, primary) = (self.fakes[other].term, self.fakes[other].primary);
            self.hear_term(index, term);
            if primary && term == self.fakes[index].term {
                self.fakes[index].heard_primary_at = now;
            }
        }
    }

    pub(super) fn hear_term(&mut self, index: usize, term: i64) {
        let fake = &mut self.fakes[index];
        if term > fake.term {
            fake.term = term;
            fake.primary = false;
            fake.standing = None;
        }
    }

    fn lead(&mut self, now: Duration, index: usize, network: &Network) {
        self.write(now, index);
        let durable = self.voters_durable(index, network);
        let majority = self.config.majority();
        let Some(at) = durable.get(durable.len().saturating_sub(majority)) else { return };
        let fake = &mut self.fakes[index];
        // A primary may only conclude that entries of its own term are committed.
        if at.t == fake.term && *at > fake.committed && fake.log.iter().rev().any(|it| it == at) {
            fake.committed = *at;
        }
        fake.heard_primary_at = now;
    }

    fn write(&mut self, now: Duration, index: usize) {
        let fake = &mut self.fakes[index];
        let last = *fake.log.last().unwrap();
        let secs = u32::try_from(now.as_secs()).unwrap().max(last.ts.secs());
        let inc = if secs == last.ts.secs() { last.ts.inc() + 1 } else { 1 };
        fake.log.push(OpTime::new(Timestamp::new(secs, inc), fake.term));
    }

    /// For each voter, in order, the last entry of this primary's log that the voter is known to have.
    fn voters_durable(&self, index: usize, network: &Network) -> Vec<OpTime> {
        let log = &self.fakes[index].log;
        let common = |other: &[OpTime]| {
            log.iter()
                .zip(other)
                .take_while(|(a, b)| a == b)
                .last()
                .map_or(OpTime::NULL, |(a, _)| *a)
        };
        let mut durable: Vec<OpTime> = (0..self.fakes.len())
            .map(|other| match other {
                _ if other == index => self.last(index),
                _ if self.talk(network, index, other) => common(&self.fakes[other].log),
                _ => OpTime::NULL,
            })
            .collect();
        if self.we_vote {
            durable.push(self.fakes[index].ours);
        }
        durable.sort();
        durable
    }

    fn follow(&mut self, index: usize, network: &Network) {
        let primary = (0..self.fakes.len()).find(|other| {
            self.talk(network, index, *other)
                && self.fakes[*other].primary
                && self.fakes[*other].term == self.fakes[index].term
        });
        if let Some(primary) = primary {
            let [fake, primary] = self.fakes.get_disjoint_mut([index, primary]).unwrap();
            let same = fake
                .log
                .len()
                .checked_sub(1)
                .is_some_and(|last| primary.log.get(last) == fake.log.last());
            if same {
                fake.log.extend_from_slice(&primary.log[fake.log.len()..]);
            } else {
                fake.log.clone_from(&primary.log);
            }
            fake.committed = primary.committed;
        }
    }

    fn stand(&mut self, now: Duration, index: usize, network: &Network) -> Option<Say> {
        let term = self.fakes[index].term + 1;
        let last = self.last(index);
        self.fakes[index].heard_primary_at = now;
        self.fakes[index].term = term;
        self.fakes[index].voted_in = term;
        let mut votes = 1;
        for other in 0..self.fakes.len() {
            if self.talk(network, index, other) {
                self.hear_term(other, term);
                let fake = &mut self.fakes[other];
                if fake.term == term && fake.voted_in < term && last >= *fake.log.last().unwrap() {
                    fake.voted_in = term;
                    votes += 1;
                }
            }
        }
        self.fakes[index].standing = Some((term, votes));
        self.count(now, index);
        let body = rawdoc! {
            "replSetRequestVotes": 1, "setName": "rs0", "dryRun": false, "term": term,
            "candidateIndex": i64::try_from(index).unwrap(), "configVersion": 1, "configTerm": 0i64,
            "lastWrittenOpTime": last.to_raw(), "lastAppliedOpTime": last.to_raw(),
        };
        self.we_vote.then_some(Say::AskVote { term, body })
    }

    fn count(&mut self, now: Duration, index: usize) {
        let majority = self.config.majority();
        let fake = &mut self.fakes[index];
        if fake.standing.is_some_and(|(term, votes)| term == fake.term && votes >= majority) {
            fake.standing = None;
            fake.primary = true;
            fake.ours = OpTime::NULL;
            self.write(now, index);
        }
    }

    /// Processes our vote.
    pub(super) fn voted(&mut self, now: Duration, index: usize, term: i64, reply: &RawDocument) {
        self.hear_term(index, reply.get_i64("term").unwrap());
        let fake = &mut self.fakes[index];
        if let Some((standing, votes)) = &mut fake.standing
            && *standing == term
            && reply.get_bool("voteGranted").unwrap()
        {
            *votes += 1;
            self.count(now, index);
        }
    }

    fn heartbeat(&self, index: usize) -> RawDocumentBuf {
        let fake = &self.fakes[index];
        rawdoc! {
            "replSetHeartbeat": "rs0", "configVersion": 1, "configTerm": 0i64, "hbv": 1,
            "from": format!("fake{index}:1"), "fromId": i64::try_from(index).unwrap(), "term": fake.term,
            "primaryId": -1i64,
        }
    }

    /// Processes our heartbeat reply, or the term in our heartbeat.
    pub(super) fn heard_us(&mut self, index: usize, durable: OpTime, term: i64) {
        self.hear_term(index, term);
        self.advance_ours(index, durable);
    }

    /// A position counts only if it is on the primary's branch.
    fn advance_ours(&mut self, index: usize, durable: OpTime) {
        let fake = &mut self.fakes[index];
        if durable > fake.ours && fake.log.iter().rev().any(|it| *it == durable) {
            fake.ours = durable;
        }
    }

    pub(super) fn report(&mut self, index: usize, body: &RawDocument) {
        let ours = i64::try_from(self.ours()).unwrap();
        for position in positions::parse(body).unwrap() {
            if position.member_id == ours {
                self.advance_ours(index, position.positions.durable.op_time);
            }
        }
    }

    /// Its reply to our heartbeat.
    pub(super) fn heartbeat_reply(&self, index: usize, request: &RawDocument) -> RawDocumentBuf {
        let fake = &self.fakes[index];
        let last = self.last(index);
        let wall = bson::DateTime::from_millis(i64::from(last.ts.secs()) * 1000);
        let mut reply = rawdoc! {
            "ok": 1.0, "state": if fake.primary { 1 } else { 2 }, "v": 1, "configTerm": 0i64, "set": "rs0",
            "term": fake.term, "opTime": last.to_raw(), "wallTime": wall, "writtenOpTime": last.to_raw(),
            "writtenWallTime": wall, "durableOpTime": last.to_raw(), "durableWallTime": wall,
            "$replData": self.repl_data(index),
        };
        if request.get_i64("configVersion").unwrap() < 1 {
            reply.append(bson::raw::cstr!("config"), self.config.raw.as_raw());
        }
        reply
    }

    pub(super) fn repl_data(&self, index: usize) -> RawDocumentBuf {
        let fake = &self.fakes[index];
        let committed = fake.committed;
        rawdoc! {
            "term": fake.term, "lastOpCommitted": committed.to_raw(),
            "lastCommittedWall": bson::DateTime::from_millis(0), "lastOpVisible": committed.to_raw(),
            "configVersion": 1i64, "configTerm": 0i64, "replicaSetId": ObjectId::from_bytes([3; 12]),
            "syncSourceIndex": if fake.primary { -1 } else { 0 }, "isPrimary": fake.primary,
        }
    }

    pub(super) fn oplog_query_data(&self, index: usize) -> RawDocumentBuf {
        rawdoc! {
            "lastOpApplied": self.last(index).to_raw(), "rbid": 1, "primaryIndex": -1,
            "syncSourceIndex": if self.fakes[index].primary { -1 } else { 0 },
        }
    }
}

/// Positions with written, durable and applied equal.
pub(super) fn all_at(at: OpTimeAndWall) -> Positions {
    Positions { written: at, durable: at, applied: at }
}

/// A position with its entry's wall time.
pub(super) fn with_wall(op_time: OpTime) -> OpTimeAndWall {
    let wall = bson::DateTime::from_millis(i64::from(op_time.ts.secs()) * 1000);
    OpTimeAndWall { op_time, wall }
}
