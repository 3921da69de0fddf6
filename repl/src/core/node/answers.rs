//! Replies to peers and operators, identical to mongod's (recorded from 4.4.10, 5.0.3 and 8.2.0).

use bson::{RawDocument, RawDocumentBuf, raw::cstr, rawdoc};
use protocol::{ErrorCode, HostAndPort};

use super::Node;
use crate::{
    core::{
        config::ReplSetConfig,
        fields::{append_number, bool_or, int_or},
        heartbeat::HeartbeatArgs,
        positions,
        status::int32,
        votes::{VoteRequest, Voter},
    },
    event::{Action, Answer, CommandError, LastVote, Now, Persist, Request},
};

impl Node {
    pub(super) fn answer(&mut self, now: Now, request: Request) -> Answer {
        match request {
            Request::Heartbeat(doc) => self.answer_heartbeat(now, &doc),
            Request::Initiate(_) => self.answer_initiate(),
            request => {
                self.require_config()?;
                self.answer_configured(now, request)
            }
        }
    }

    fn answer_configured(&mut self, now: Now, request: Request) -> Answer {
        match request {
            Request::RequestVotes(doc) => self.answer_vote(now, &doc),
            Request::UpdatePosition(doc) => self.answer_update_position(now, &doc),
            Request::Status(doc) => self.answer_status(now, &doc),
            Request::Config(doc) => self.answer_config(&doc),
            Request::SyncFrom(doc) => self.answer_sync_from(now, &doc),
            Request::Maintenance(doc) => self.answer_maintenance(&doc),
            Request::Freeze(doc) => self.answer_freeze(&doc),
            Request::StepUp(_) => fail(ErrorCode::CommandFailed, "Election failed."),
            Request::StepDown(doc) => answer_step_down(&doc),
            Request::Reconfig(doc) => self.answer_reconfig(now, &doc),
            Request::AbortPrimaryCatchUp(_) => {
                fail(ErrorCode::IllegalOperation, "The node is not in catch-up mode.")
            }
            Request::Heartbeat(_) | Request::Initiate(_) => Ok(rawdoc! {}),
        }
    }

    fn require_config(&self) -> Result<(), CommandError> {
        if self.config.is_some() {
            return Ok(());
        }
        let text = "no replset config has been received";
        Err(CommandError::new(ErrorCode::NotYetInitialized, text))
    }

    /// The config and our index in it.
    fn membership(&self) -> Option<(std::sync::Arc<ReplSetConfig>, usize)> {
        Some((self.config.clone()?, self.self_index?))
    }

    fn answer_heartbeat(&mut self, now: Now, doc: &RawDocument) -> Answer {
        let args = HeartbeatArgs::parse(doc)?;
        let ours = self.set_name.clone();
        if args.set_name != *ours {
            let theirs = &args.set_name;
            let text = format!(
                "Our set name of {ours} does not match name {theirs} reported by remote node"
            );
            self.warn(text.clone());
            return fail(ErrorCode::InconsistentReplicaSetNames, text);
        }
        if self.config.is_none() && self.initial_sync_done {
            let text = "Received heartbeat while still initializing replication system";
            return fail(ErrorCode::NotYetInitialized, text);
        }
        if self.config.is_some() && self.self_index.is_none() {
            self.hear_heartbeat_request(now, &args);
            let text = "Our replica set configuration is invalid or does not include us";
            return fail(ErrorCode::InvalidReplicaSetConfig, text);
        }
        if self.membership().is_some_and(|(config, index)| {
            config.members.get(index).is_some_and(|own| i64::from(own.id) == args.from_id)
        }) {
            let text = format!(
                "Received heartbeat from member with the same member ID as ourself: {}",
                args.from_id
            );
            self.warn(format!("{text}; its address is {:?}", args.from.map(|it| it.to_string())));
            return fail(ErrorCode::BadValue, text);
        }
        self.hear_heartbeat_request(now, &args);
        Ok(self.heartbeat_reply(&args))
    }

    fn heartbeat_reply(&self, args: &HeartbeatArgs) -> RawDocumentBuf {
        // mongod puts `ok` first here.
        let mut doc = rawdoc! { "ok": 1.0 };
        let config = self.config.as_deref();
        if let Some(config) = config.filter(|it| it.version_and_term.is_newer_than(args.config)) {
            doc.append(cstr!("config"), config.raw.as_raw());
        }
        doc.append(cstr!("state"), self.state().code());
        let term = config.map_or(-1, |config| config.version_and_term.term);
        // Releases before 8.2.12 accept only an int32 here.
        doc.append(cstr!("v"), config.map_or(-2, |config| int32(config.version_and_term.version)));
        if term != -1 || self.profile.config_term_always {
            append_number(&mut doc, cstr!("configTerm"), term);
        }
        doc.append(cstr!("set"), &*self.set_name);
        if let Some(source) = &self.following.source {
            doc.append(cstr!("syncingTo"), source.host.to_string());
        }
        if self.term != -1 {
            doc.append(cstr!("term"), self.term);
        }
        let primary = self.primary_index.and_then(|index| config?.members.get(index));
        if let Some(primary) = primary {
            doc.append(cstr!("primaryId"), i64::from(primary.id));
        }
        let shown = self.shown_positions();
        let durable = (cstr!("durableOpTime"), cstr!("durableWallTime"), shown.durable);
        let applied = (cstr!("opTime"), cstr!("wallTime"), shown.applied);
        let written = (cstr!("writtenOpTime"), cstr!("writtenWallTime"), shown.written);
        let order: &[_] = if self.profile.has_written {
            &[applied, written, durable]
        } else {
            &[durable, applied]
        };
        for (op_time, wall, position) in order {
            doc.append(*op_time, position.op_time.to_raw());
            doc.append(*wall, position.wall);
        }
        if config.is_some() {
            doc.append(cstr!("electable"), false);
        }
        doc
    }

    fn answer_vote(&mut self, now: Now, doc: &RawDocument) -> Answer {
        let request = VoteRequest::parse(doc)?;
        let Some((config, _)) = self.membership() else { return self.not_a_member() };
        let voter = |node: &Self| {
            let ours = node.shown_positions();
            Voter {
                config: &config,
                term: node.term,
                op_time: ours.written.op_time,
                last_vote: node.last_vote,
                profile: node.profile,
            }
            .clone()
        };
        voter(self).check(&request)?;
        self.hear_term(request.term);
        let vote = self.refuse_without_tail().unwrap_or_else(|| voter(self).decide(&request));
        if vote.granted && !request.dry_run {
            let last_vote =
                LastVote { term: request.term, candidate_index: request.candidate_index };
            self.last_vote = Some(last_vote);
            self.actions.push(Action::Persist(Persist::LastVote(last_vote)));
        }
        if !request.dry_run {
            self.note_vote(now, &request, &vote);
            let whom = request.candidate_index;
            let what = if vote.granted { "voted for" } else { "did not vote for" };
            self.info(format!(
                "{what} member {whom} in term {}{}{}",
                request.term,
                if vote.reason.is_empty() { "" } else { ": " },
                vote.reason
            ));
        }
        Ok(vote.to_raw(self.term))
    }

    pub(super) fn not_a_member(&self) -> Answer {
        let text = "Our replica set config is invalid or we are not a member of it";
        fail(ErrorCode::InvalidReplicaSetConfig, text)
    }

    fn answer_update_position(&mut self, now: Now, doc: &RawDocument) -> Answer {
        let heard = positions::parse(doc)?;
        let Some((config, self_index)) = self.membership() else {
            let text = "Received replSetUpdatePosition command but we are in state REMOVED";
            return fail(ErrorCode::NotPrimaryOrSecondary, text);
        };
        let moved = positions::receive(now, &heard, &config, self_index, &mut self.members)?;
        // The positions of members that sync from us reach the primary only through us.
        self.reporting.dirty |= moved;
        Ok(rawdoc! {})
    }

    fn answer_config(&self, doc: &RawDocument) -> Answer {
        if bool_or(doc, "commitmentStatus", false) {
            let text = "commitmentStatus is only supported on primary.";
            return fail(ErrorCode::NotWritablePrimary, text);
        }
        let Some(config) = &self.config else { return self.not_a_member() };
        let mut reply = RawDocumentBuf::new();
        reply.append(cstr!("config"), config.raw.as_raw());
        Ok(reply)
    }

    fn answer_sync_from(&mut self, now: Now, doc: &RawDocument) -> Answer {
        let given = doc.get_str("replSetSyncFrom").unwrap_or_default();
        let target: HostAndPort = given.parse().map_err(|_| {
            let text = if given.matches(':').count() > 1 {
                format!(
                    "More than one ':' detected. If this is an ipv6 address, it needs to be surrounded by '[' and ']'; {given}"
                )
            } else {
                format!("Empty host component parsing HostAndPort from \"{given}\"")
            };
            CommandError::new(ErrorCode::FailedToParse, text)
        })?;
        let Some((config, self_index)) = self.membership() else {
            return fail(ErrorCode::NotSecondary, "Removed and uninitialized nodes do not sync");
        };
        let index = check_sync_from(&config, self_index, &target)?;
        let member = self.members.get(index).cloned().unwrap_or_default();
        if member.auth_issue {
            let text = format!("not authorized to communicate with {target}");
            return fail(ErrorCode::Unauthorized, text);
        }
        if !member.up {
            let text = format!("I cannot reach the requested member: {target}");
            return fail(ErrorCode::HostUnreachable, text);
        }
        let mut reply = rawdoc! { "syncFromRequested": target.to_string() };
        let ours = self.positions.applied.op_time.ts.secs();
        if member.applied().ts.secs().saturating_add(10) < ours {
            let text = format!("requested member \"{target}\" is more than 10 seconds behind us");
            reply.append(cstr!("warning"), text);
        }
        if let Some(source) = &self.following.source {
            reply.append(cstr!("prevSyncTarget"), source.host.to_string());
        }
        self.force_source(now, target);
        Ok(reply)
    }

    /// Maintenance mode is a counter: each request with `true` must be matched by one with `false`.
    fn answer_maintenance(&mut self, doc: &RawDocument) -> Answer {
        let on = bool_or(doc, "replSetMaintenance", false);
        if on {
            self.maintenance += 1;
        } else if self.maintenance > 0 {
            self.maintenance -= 1;
        } else {
            return fail(ErrorCode::OperationFailed, "already out of maintenance mode");
        }
        self.info(format!("maintenance mode: {} requests", self.maintenance));
        Ok(rawdoc! {})
    }

    /// We never run for election, so there is nothing to freeze.
    fn answer_freeze(&self, doc: &RawDocument) -> Answer {
        let secs = int_or(doc, "replSetFreeze", 0);
        Ok(match secs {
            0 => rawdoc! { "info": "unfreezing" },
            1 => rawdoc! { "warning": "you really want to freeze for only 1 second?" },
            _ => rawdoc! {},
        })
    }

    /// replSetInitiate must be sent to a node that can become primary.
    fn answer_initiate(&self) -> Answer {
        if self.config.is_some() {
            return fail(ErrorCode::AlreadyInitialized, "already initialized");
        }
        fail(
            ErrorCode::IllegalOperation,
            "this node cannot initiate a set: it is never primary. Initiate it on a mongod and add this node there",
        )
    }
}

fn check_sync_from(
    config: &ReplSetConfig,
    self_index: usize,
    target: &HostAndPort,
) -> Result<usize, CommandError> {
    let refuse = |text: &str| {
        let text = format!("Cannot sync from \"{target}\" because {text}");
        Err(CommandError::new(ErrorCode::InvalidOptions, text))
    };
    let Some(index) = config.index_of_host(target) else {
        let text = format!("Could not find member \"{target}\" in replica set");
        return Err(CommandError::new(ErrorCode::NodeNotFound, text));
    };
    if index == self_index {
        return Err(CommandError::new(ErrorCode::InvalidOptions, "I cannot sync from myself"));
    }
    let (Some(own), Some(member)) = (config.members.get(self_index), config.members.get(index))
    else {
        return refuse("it is not in the config");
    };
    if member.arbiter_only {
        return refuse("it is an arbiter");
    }
    if own.build_indexes && !member.build_indexes {
        return refuse("it does not build indexes");
    }
    if own.votes && !member.votes {
        return refuse("it is not a voter");
    }
    Ok(index)
}

fn answer_step_down(doc: &RawDocument) -> Answer {
    let force = bool_or(doc, "force", false);
    let period = int_or(doc, "replSetStepDown", 0);
    let period = if period == 0 { STEP_DOWN_SECS } else { period };
    let catch_up = int_or(doc, "secondaryCatchUpPeriodSecs", if force { 0 } else { CATCH_UP_SECS });
    if period < 0 {
        return fail(ErrorCode::BadValue, "stepdown period must be a positive integer");
    }
    if catch_up < 0 {
        return fail(
            ErrorCode::BadValue,
            "secondaryCatchUpPeriodSecs period must be a positive or absent",
        );
    }
    if period < catch_up {
        let text = "stepdown period must be longer than secondaryCatchUpPeriodSecs";
        return fail(ErrorCode::BadValue, text);
    }
    fail(ErrorCode::NotWritablePrimary, "not primary so can't step down")
}

pub(super) fn fail(code: ErrorCode, text: impl Into<String>) -> Answer {
    Err(CommandError::new(code, text))
}

/// mongod's defaults.
const STEP_DOWN_SECS: i64 = 60;
const CATCH_UP_SECS: i64 = 10;
