//! `replSetGetStatus` in the format of the release that we show.

use std::time::Duration;

use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, raw::cstr, rawdoc};
use protocol::{OpTime, Timestamp};

use super::{Mode, Node};
use crate::{
    core::{
        config::{MemberConfig, ReplSetConfig},
        fields::{append_number, bool_or},
        member::MemberData,
        member_state::MemberState,
        status::index,
        votes::{Vote, VoteRequest},
    },
    event::{Answer, Now, Positions},
};

/// `electionParticipantMetrics`: the last election in which we were asked to vote.
#[derive(Debug)]
pub(super) struct ElectionMetrics {
    granted: bool,
    term: i64,
    at: bson::DateTime,
    candidate_id: i32,
    reason: String,
    ours: Positions,
    furthest: Positions,
    new_term: Option<(bson::DateTime, bson::DateTime)>,
}

impl Node {
    pub(super) fn note_vote(&mut self, now: Now, request: &VoteRequest, vote: &Vote) {
        let config = self.config.as_deref();
        let candidate = usize::try_from(request.candidate_index).ok();
        let candidate_id = candidate
            .and_then(|index| config?.members.get(index))
            .map_or(-1, |candidate| candidate.id);
        let mut furthest = self.positions;
        for member in &self.members {
            furthest.applied = furthest.applied.max(member.known.applied);
            furthest.written = furthest.written.max(member.known.written);
        }
        self.election = Some(ElectionMetrics {
            granted: vote.granted,
            term: request.term,
            at: now.wall,
            candidate_id,
            reason: vote.reason.clone(),
            ours: self.positions,
            furthest,
            new_term: None,
        });
    }

    /// The first entry of a new term was applied, so the election we took part in has a winner.
    pub(super) fn note_new_term(&mut self, now: Now) {
        let applied = self.positions.applied;
        if let Some(election) = &mut self.election
            && election.new_term.is_none()
            && election.term <= applied.op_time.t
        {
            election.new_term = Some((applied.wall, now.wall));
        }
    }

    pub(super) fn answer_status(&self, now: Now, request: &RawDocument) -> Answer {
        let (Some(config), Some(self_index)) = (self.config.as_deref(), self.self_index) else {
            return self.not_a_member();
        };
        let mut doc = rawdoc! {
            "set": config.name.as_str(),
            "date": now.wall,
            "myState": self.state().code(),
            "term": self.term,
        };
        if self.too_stale {
            doc.append(cstr!("tooStale"), true);
        }
        self.append_source(&mut doc, config);
        let millis = i64::try_from(config.heartbeat_interval.as_millis()).unwrap_or(i64::MAX);
        doc.append(cstr!("heartbeatIntervalMillis"), millis);
        append_votes(&mut doc, config);
        doc.append(cstr!("optimes"), self.optimes());
        let stable = bson::Timestamp::from(self.commit.stable.ts);
        doc.append(cstr!("lastStableRecoveryTimestamp"), stable);
        if let Some(status) = self
            .initial_sync_status
            .as_ref()
            .filter(|_| self.mode == Mode::InitialSync && bool_or(request, "initialSync", true))
        {
            doc.append(cstr!("initialSyncStatus"), status.as_raw());
        }
        if let Some(election) = &self.election {
            let metrics = self.election_metrics(election, config, self_index);
            doc.append(cstr!("electionParticipantMetrics"), metrics);
        }
        let mut order: Vec<usize> = (0..config.members.len()).collect();
        order.sort_by_key(|index| config.members.get(*index).map(|member| member.id));
        let mut members = RawArrayBuf::new();
        for index in order {
            let Some(member) = config.members.get(index) else { continue };
            match self.members.get(index) {
                _ if index == self_index => members.push(self.own_status(now, config, member)),
                Some(data) => members.push(self.member_status(now, config, member, data)),
                None => {}
            }
        }
        doc.append(cstr!("members"), members);
        Ok(doc)
    }

    fn append_source(&self, doc: &mut RawDocumentBuf, config: &ReplSetConfig) {
        let source = self.following.source.as_ref();
        let id = source
            .and_then(|source| config.index_of_host(&source.host))
            .and_then(|index| config.members.get(index))
            .map_or(-1, |member| member.id);
        let host = source.map(|source| source.host.to_string()).unwrap_or_default();
        doc.append(cstr!("syncSourceHost"), host);
        doc.append(cstr!("syncSourceId"), id);
    }

    fn optimes(&self) -> RawDocumentBuf {
        let shown = self.shown_positions();
        let mut doc = rawdoc! {
            "lastCommittedOpTime": self.commit.committed.op_time.to_raw(),
            "lastCommittedWallTime": self.commit.committed.wall,
        };
        // Before anything is committed, a majority read has no timestamp to read at.
        if !self.commit.stable.is_null() {
            doc.append(cstr!("readConcernMajorityOpTime"), self.commit.stable.to_raw());
            if self.profile.majority_wall_time_in_status {
                doc.append(cstr!("readConcernMajorityWallTime"), self.commit.committed.wall);
            }
        }
        doc.append(cstr!("appliedOpTime"), shown.applied.op_time.to_raw());
        doc.append(cstr!("durableOpTime"), shown.durable.op_time.to_raw());
        if self.profile.has_written {
            doc.append(cstr!("writtenOpTime"), shown.written.op_time.to_raw());
        }
        doc.append(cstr!("lastAppliedWallTime"), shown.applied.wall);
        doc.append(cstr!("lastDurableWallTime"), shown.durable.wall);
        if self.profile.has_written {
            doc.append(cstr!("lastWrittenWallTime"), shown.written.wall);
        }
        doc
    }

    fn election_metrics(
        &self,
        election: &ElectionMetrics,
        config: &ReplSetConfig,
        self_index: usize,
    ) -> RawDocumentBuf {
        let mut doc = rawdoc! {
            "votedForCandidate": election.granted,
            "electionTerm": election.term,
            "lastVoteDate": election.at,
            "electionCandidateMemberId": election.candidate_id,
            "voteReason": election.reason.as_str(),
        };
        if self.profile.has_written {
            let (ours, furthest) = (election.ours.written, election.furthest.written);
            doc.append(cstr!("lastWrittenOpTimeAtElection"), ours.op_time.to_raw());
            doc.append(cstr!("maxWrittenOpTimeInSet"), furthest.op_time.to_raw());
        }
        let (ours, furthest) = (election.ours.applied, election.furthest.applied);
        doc.append(cstr!("lastAppliedOpTimeAtElection"), ours.op_time.to_raw());
        doc.append(cstr!("maxAppliedOpTimeInSet"), furthest.op_time.to_raw());
        let priority = config.members.get(self_index).map_or(0.0, |own| own.priority);
        doc.append(cstr!("priorityAtElection"), priority);
        if let Some((started, applied)) = election.new_term {
            doc.append(cstr!("newTermStartDate"), started);
            doc.append(cstr!("newTermAppliedDate"), applied);
        }
        doc
    }

    fn own_status(&self, now: Now, config: &ReplSetConfig, own: &MemberConfig) -> RawDocumentBuf {
        let state = self.state();
        let shown = self.shown_positions();
        let mut doc = rawdoc! {
            "_id": own.id,
            "name": own.host.to_string(),
            "health": 1.0,
            "state": state.code(),
            "stateStr": state.name(),
            "uptime": seconds(now.mono.saturating_sub(self.started_at)),
            "optime": shown.applied.op_time.to_raw(),
            "optimeDate": date(shown.applied.op_time),
        };
        if self.profile.has_written {
            doc.append(cstr!("optimeWritten"), shown.written.op_time.to_raw());
            doc.append(cstr!("optimeWrittenDate"), date(shown.written.op_time));
        }
        self.append_wall_times(&mut doc, shown);
        self.append_source(&mut doc, config);
        if self.maintenance > 0 {
            doc.append(
                cstr!("maintenanceMode"),
                i32::try_from(self.maintenance).unwrap_or(i32::MAX),
            );
        }
        doc.append(cstr!("infoMessage"), self.trouble().unwrap_or_default());
        append_version(&mut doc, config.version_and_term.version, config.version_and_term.term);
        doc.append(cstr!("self"), true);
        doc.append(cstr!("lastHeartbeatMessage"), "");
        doc
    }

    fn append_wall_times(&self, doc: &mut RawDocumentBuf, at: Positions) {
        if !self.profile.wall_times_in_members {
            return;
        }
        doc.append(cstr!("lastAppliedWallTime"), at.applied.wall);
        doc.append(cstr!("lastDurableWallTime"), at.durable.wall);
        if self.profile.has_written {
            doc.append(cstr!("lastWrittenWallTime"), at.written.wall);
        }
    }

    fn member_status(
        &self,
        now: Now,
        config: &ReplSetConfig,
        member: &MemberConfig,
        data: &MemberData,
    ) -> RawDocumentBuf {
        let shown_state = if data.up { data.state.name() } else { "(not reachable/healthy)" };
        let uptime = data.up_since.map_or(0, |since| seconds(now.mono.saturating_sub(since)));
        let mut doc = rawdoc! {
            "_id": member.id,
            "name": member.host.to_string(),
            "health": if data.up { 1.0 } else { 0.0 },
            "state": data.state.code(),
            "stateStr": shown_state,
            "uptime": uptime,
        };
        if !member.arbiter_only {
            self.append_member_optimes(&mut doc, data);
        }
        doc.append(cstr!("lastHeartbeat"), data.last_heartbeat);
        doc.append(cstr!("lastHeartbeatRecv"), data.last_heartbeat_received);
        let ping = self.pings.get(&member.host).and_then(|pings| pings.average).unwrap_or_default();
        doc.append(cstr!("pingMs"), i64::try_from(ping.as_millis()).unwrap_or(i64::MAX));
        doc.append(cstr!("lastHeartbeatMessage"), data.message.as_str());
        if data.auth_issue {
            doc.append(cstr!("authenticated"), false);
        }
        let source = data.sync_source.as_ref().filter(|_| data.state != MemberState::Primary);
        let place = source.and_then(|source| config.index_of_host(source));
        let id = place.and_then(|index| config.members.get(index)).map_or(-1, |it| it.id);
        doc.append(cstr!("syncSourceHost"), source.map(ToString::to_string).unwrap_or_default());
        doc.append(cstr!("syncSourceId"), id);
        doc.append(cstr!("infoMessage"), "");
        if let Some(elected) = data.election_time.filter(|_| data.state == MemberState::Primary) {
            doc.append(cstr!("electionTime"), bson::Timestamp::from(elected));
            doc.append(cstr!("electionDate"), date_of(elected));
        }
        append_version(&mut doc, data.config.version, data.config.term);
        doc
    }

    fn append_member_optimes(&self, doc: &mut RawDocumentBuf, data: &MemberData) {
        let at = data.heartbeat;
        let (applied, durable, written) =
            (at.applied.op_time, at.durable.op_time, at.written.op_time);
        doc.append(cstr!("optime"), applied.to_raw());
        doc.append(cstr!("optimeDurable"), durable.to_raw());
        if self.profile.has_written {
            doc.append(cstr!("optimeWritten"), written.to_raw());
        }
        doc.append(cstr!("optimeDate"), date(applied));
        doc.append(cstr!("optimeDurableDate"), date(durable));
        if self.profile.has_written {
            doc.append(cstr!("optimeWrittenDate"), date(written));
        }
        self.append_wall_times(doc, data.known);
    }
}

fn append_votes(doc: &mut RawDocumentBuf, config: &ReplSetConfig) {
    let voters = config.members.iter().filter(|member| member.votes);
    let writable = voters.clone().filter(|member| !member.arbiter_only).count();
    let voting = voters.count();
    doc.append(cstr!("majorityVoteCount"), index(Some(config.majority())));
    doc.append(cstr!("writeMajorityCount"), index(Some(config.majority().min(writable))));
    doc.append(cstr!("votingMembersCount"), index(Some(voting)));
    doc.append(cstr!("writableVotingMembersCount"), index(Some(writable)));
}

fn append_version(doc: &mut RawDocumentBuf, version: i64, term: i64) {
    append_number(doc, cstr!("configVersion"), version);
    append_number(doc, cstr!("configTerm"), term);
}

fn date(op_time: OpTime) -> bson::DateTime {
    date_of(op_time.ts)
}

fn date_of(ts: Timestamp) -> bson::DateTime {
    bson::DateTime::from_millis(i64::from(ts.secs()) * 1000)
}

fn seconds(time: Duration) -> i32 {
    i32::try_from(time.as_secs()).unwrap_or(i32::MAX)
}
