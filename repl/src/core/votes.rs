//! Replies to vote requests.
//!
//! V1 At most one candidate gets our vote in a term: the vote is made durable before it is sent, and read back at
//!    start.
//! V2 A candidate whose oplog is behind ours does not get our vote.

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use protocol::{ErrorCode, OpTime, Profile};

use super::{
    config::{NO_TERM, ReplSetConfig, VersionAndTerm},
    fields::{bool_or, int_or},
    heartbeat::{missing, required},
};
use crate::event::{CommandError, LastVote};

/// `replSetRequestVotes`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VoteRequest {
    /// The candidate's set.
    pub set_name: String,
    /// The candidate only asks how we would vote.
    pub dry_run: bool,
    /// The term of the election.
    pub term: i64,
    /// The candidate's index in the config.
    pub candidate_index: i64,
    /// Version and term of its config.
    pub config: VersionAndTerm,
    /// Its last entry: the last written on 8.x, the last applied before.
    pub op_time: OpTime,
}

impl VoteRequest {
    /// Parses it, with mongod's errors.
    pub fn parse(doc: &RawDocument) -> Result<Self, CommandError> {
        let term = required(doc, "term")?;
        let candidate_index = required(doc, "candidateIndex")?;
        let version = required(doc, "configVersion")?;
        let set_name = doc.get_str("setName").map_err(|_| missing("setName"))?;
        let op_time = ["lastWrittenOpTime", "lastAppliedOpTime", "lastCommittedOp"]
            .iter()
            .find_map(|key| OpTime::from_raw(doc.get_document(key).ok()?))
            .ok_or_else(|| missing("lastAppliedOpTime"))?;
        Ok(Self {
            set_name: set_name.to_owned(),
            dry_run: bool_or(doc, "dryRun", false),
            term,
            candidate_index,
            config: VersionAndTerm { version, term: int_or(doc, "configTerm", NO_TERM) },
            op_time,
        })
    }
}

/// Our state that decides a vote.
#[derive(Clone, Debug)]
pub struct Voter<'a> {
    /// The installed config.
    pub config: &'a ReplSetConfig,
    /// Our term, already updated with the request's.
    pub term: i64,
    /// Our last written entry (8.x) or last applied one.
    pub op_time: OpTime,
    /// Our last vote.
    pub last_vote: Option<LastVote>,
    /// The release that we show: older ones compare applied entries.
    pub profile: &'a Profile,
}

/// The decision and its reason (empty if granted).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vote {
    /// Whether the vote is granted.
    pub granted: bool,
    /// Why it is not, in mongod's words.
    pub reason: String,
}

impl Vote {
    /// The reply.
    pub fn to_raw(&self, term: i64) -> RawDocumentBuf {
        rawdoc! { "term": term, "voteGranted": self.granted, "reason": self.reason.as_str() }
    }
}

impl Voter<'_> {
    /// Fails if the candidate is not a member.
    pub fn check(&self, request: &VoteRequest) -> Result<(), CommandError> {
        let last = self.config.members.len().saturating_sub(1);
        let valid = usize::try_from(request.candidate_index).is_ok_and(|index| index <= last);
        if valid {
            return Ok(());
        }
        let index = request.candidate_index;
        let text =
            format!("Invalid candidateIndex: {index}. Must be between 0 and {last} inclusive");
        Err(CommandError::new(ErrorCode::BadValue, text))
    }

    /// Decides in mongod's order. Only a granted vote that is not a dry run must be stored.
    pub fn decide(&self, request: &VoteRequest) -> Vote {
        match self.refusal(request) {
            Some(reason) => Vote { granted: false, reason },
            None => Vote { granted: true, reason: String::new() },
        }
    }

    fn refusal(&self, request: &VoteRequest) -> Option<String> {
        let mine = self.config.version_and_term;
        if mine.is_newer_than(request.config) {
            let theirs = request.config;
            return Some(format!(
                "candidate's config with {theirs} is older than mine with {mine}"
            ));
        }
        if request.term < self.term {
            let (theirs, mine) = (request.term, self.term);
            return Some(format!("candidate's term ({theirs}) is lower than mine ({mine})"));
        }
        if request.set_name != self.config.name {
            let (theirs, mine) = (&request.set_name, &self.config.name);
            return Some(format!("candidate's set name ({theirs}) differs from mine ({mine})"));
        }
        if request.op_time < self.op_time {
            let what = if self.profile.has_written { "written" } else { "applied" };
            return Some(format!(
                "candidate's data is staler than mine. candidate's last {what} OpTime: {}, my last {what} OpTime: {}",
                shown(request.op_time),
                shown(self.op_time)
            ));
        }
        let voted = self.last_vote.filter(|vote| !request.dry_run && vote.term >= request.term)?;
        let whom = usize::try_from(voted.candidate_index)
            .ok()
            .and_then(|index| self.config.members.get(index))
            .map(|member| member.host.to_string())
            .unwrap_or_default();
        Some(format!("already voted for another candidate ({whom}) this term ({})", voted.term))
    }
}

fn shown(op_time: OpTime) -> String {
    format!("{{ ts: {}, t: {} }}", op_time.ts, op_time.t)
}

#[cfg(test)]
mod tests {
    use protocol::{RawDoc, Timestamp};

    use super::*;

    fn config() -> ReplSetConfig {
        let raw = rawdoc! { "_id": "rs0", "version": 1, "term": 1i64, "members": [
            { "_id": 0, "host": "a:1" }, { "_id": 1, "host": "b:1" },
        ] };
        ReplSetConfig::parse(RawDoc::from(raw)).unwrap()
    }

    fn request(dry_run: bool, term: i64) -> VoteRequest {
        VoteRequest {
            set_name: "rs0".to_owned(),
            dry_run,
            term,
            candidate_index: 0,
            config: VersionAndTerm { version: 1, term: 1 },
            op_time: OpTime::new(Timestamp::new(10, 1), 1),
        }
    }

    fn decide(change: impl Fn(&mut VoteRequest), last_vote: Option<LastVote>) -> Vote {
        let config = config();
        let op_time = OpTime::new(Timestamp::new(10, 1), 1);
        let profile = Profile::named("5.0").unwrap();
        let voter = Voter { config: &config, term: 2, op_time, last_vote, profile };
        let mut request = request(false, 2);
        change(&mut request);
        voter.decide(&request)
    }

    #[test]
    fn every_refusal_in_mongods_words() {
        let reason = |change: fn(&mut VoteRequest)| decide(change, None).reason;
        assert_eq!(
            reason(|r| r.config.term = 0),
            "candidate's config with {version: 1, term: 0} is older than mine with {version: 1, term: 1}"
        );
        assert_eq!(reason(|r| r.term = 1), "candidate's term (1) is lower than mine (2)");
        assert_eq!(
            reason(|r| r.set_name = "x".to_owned()),
            "candidate's set name (x) differs from mine (rs0)"
        );
        assert_eq!(
            reason(|r| r.op_time = OpTime::new(Timestamp::new(9, 1), 1)),
            "candidate's data is staler than mine. candidate's last applied OpTime: \
             { ts: Timestamp(9, 1), t: 1 }, my last applied OpTime: { ts: Timestamp(10, 1), t: 1 }"
        );
        let voted = Some(LastVote { term: 2, candidate_index: 1 });
        assert_eq!(
            decide(|_| (), voted).reason,
            "already voted for another candidate (b:1) this term (2)"
        );
    }

    #[test]
    fn a_newer_config_a_dry_run_and_a_new_term_are_no_obstacle() {
        let voted = Some(LastVote { term: 2, candidate_index: 1 });
        assert!(decide(|_| (), None).granted);
        assert!(decide(|r| r.config.version = 9, None).granted);
        assert!(decide(|r| r.dry_run = true, voted).granted);
        assert!(decide(|r| r.term = 3, voted).granted);
        let later = Some(LastVote { term: 5, candidate_index: 1 });
        assert!(!decide(|_| (), later).granted, "V1 holds for terms left behind, too");
    }

    #[test]
    fn a_candidate_must_be_a_member() {
        let config = config();
        let profile = Profile::newest_tested();
        let voter =
            Voter { config: &config, term: 1, op_time: OpTime::NULL, last_vote: None, profile };
        let mut request = request(true, 1);
        request.candidate_index = 7;
        assert_eq!(
            voter.check(&request).unwrap_err().message,
            "Invalid candidateIndex: 7. Must be between 0 and 1 inclusive"
        );
    }
}
