//! Processes news about the set: heartbeats, terms, the primary, configs, and our place in them.
//!
//! ```text
//!  newer config received --> installing --_isSelf answered--> persisted, installed
//!                                           | no member is us: REMOVED, checked again now and then
//! ```

use std::{sync::Arc, time::Duration};

use protocol::{ErrorCode, HostAndPort, RawDoc, repl_metadata::ReplSetMetadata};

use super::{Mode, Node};
use crate::{
    core::{
        commit_point::ToldBy,
        config::{ReplSetConfig, VersionAndTerm},
        heartbeat::{HeartbeatArgs, HeartbeatReply, HeartbeatRequest, PingOutcome, Pings},
        member::MemberData,
        member_state::MemberState,
    },
    event::{Action, DataAction, MemberSettings, Now, PeerError, Persist},
};

/// A config that is being installed.
#[derive(Debug)]
pub(super) struct Installing {
    seq: u64,
    config: Arc<ReplSetConfig>,
    persist: bool,
}

/// When to look for ourselves again in a config that does not seem to contain us.
#[derive(Debug, Default)]
pub(super) struct SelfSearch {
    done: u32,
    again_at: Option<Duration>,
}

impl SelfSearch {
    /// True until the first search has ended: before that we do not know whether we were removed.
    pub(super) fn is_first(&self) -> bool {
        self.done == 0
    }
}

impl Node {
    pub(super) fn send_heartbeats(&mut self, now: Now) {
        let due: Vec<HostAndPort> = self
            .pings
            .iter()
            .filter(|(_, pings)| pings.is_due(now.mono))
            .map(|(host, _)| host.clone())
            .collect();
        for target in due {
            let (seq, whole) = (self.next_seq(), self.heartbeat_timeout());
            let Some(pings) = self.pings.get_mut(&target) else { continue };
            let timeout = pings.send(now.mono, seq, whole);
            let body = self.heartbeat_request().to_raw(self.profile, timeout);
            self.actions.push(Action::Heartbeat { target, seq, body, timeout });
        }
    }

    fn heartbeat_request(&self) -> HeartbeatRequest<'_> {
        let config = self.config.as_deref();
        let member = |index: usize| config.and_then(|config| config.members.get(index));
        HeartbeatRequest {
            set_name: &self.set_name,
            config: config.map_or(VersionAndTerm::NONE, |config| config.version_and_term),
            own: self.self_index.and_then(member).map(|own| (&own.host, own.id)),
            term: self.term.max(0),
            primary_id: self.primary_index.and_then(member).map(|primary| primary.id),
        }
    }

    fn heartbeat_timeout(&self) -> Duration {
        self.config.as_ref().map_or(HEARTBEAT_TIMEOUT, |config| config.heartbeat_timeout)
    }

    /// Without a sync source, heartbeats are four times as frequent, to find one soon.
    fn heartbeat_interval(&self) -> Duration {
        let Some(config) = &self.config else { return HEARTBEAT_INTERVAL };
        match self.following.source {
            Some(_) => config.heartbeat_interval,
            None => (config.heartbeat_interval / 4).min(config.election_timeout / 2),
        }
    }

    pub(super) fn heartbeat_done(
        &mut self,
        now: Now,
        target: &HostAndPort,
        seq: u64,
        rtt: Duration,
        result: Result<RawDoc, PeerError>,
    ) {
        let result =
            result.and_then(|reply| HeartbeatReply::parse(&reply).map_err(PeerError::Network));
        let unauthorized = matches!(
            &result,
            Err(PeerError::Command {
                code: ErrorCode::Unauthorized | ErrorCode::AuthenticationFailed,
                ..
            })
        );
        let (timeout, interval) = (self.heartbeat_timeout(), self.heartbeat_interval());
        let Some(pings) = self.pings.get_mut(target).filter(|it| it.in_flight == Some(seq)) else {
            return;
        };
        let rtt = (result.is_ok() || unauthorized).then_some(rtt);
        let outcome = pings.done(now.mono, rtt, timeout, interval);
        match result {
            Ok(reply) => self.heard(now, target, &reply),
            Err(why) => self.not_heard(now, target, outcome, unauthorized, &why),
        }
        self.find_primary(now);
        self.look_again(now);
    }

    fn heard(&mut self, now: Now, target: &HostAndPort, reply: &HeartbeatReply) {
        let other_set = reply.set_name.as_deref().is_some_and(|name| name != &*self.set_name);
        if other_set {
            let name = reply.set_name.as_deref().unwrap_or_default();
            self.warn(format!("{target} is in set {name}, we are in {}", self.set_name));
            return;
        }
        if let Some(config) = &reply.config {
            self.hear_config(now, target, config);
        }
        if self.config.is_none() {
            return;
        }
        self.hear_term(reply.term);
        if let Some(data) = reply.repl_data.as_ref().filter(|data| self.is_our_set(data)) {
            self.hear_term(data.term);
            if self.mode == Mode::Secondary {
                self.commit.hear(data.last_op_committed, ToldBy::Heartbeat, &self.positions);
            }
        }
        let Some(index) = self.member_index(target) else { return };
        let Some(member) = self.members.get_mut(index) else { return };
        let was = (member.up, member.state);
        member.set_up(now, reply);
        let (up, state) = (member.up, member.state);
        if was != (up, state) {
            self.info(format!("{target} is now in state {state}"));
        }
    }

    fn not_heard(
        &mut self,
        now: Now,
        target: &HostAndPort,
        outcome: PingOutcome,
        unauthorized: bool,
        why: &PeerError,
    ) {
        if self.config.is_none() {
            let text = format!(
                "{target} counts us as a member, and cannot be asked for the config: {why}"
            );
            if self.config_refused.as_ref() != Some(&text) {
                self.warn(text.clone());
                self.config_refused = Some(text);
            }
            return;
        }
        let Some(index) = self.member_index(target) else { return };
        let Some(member) = self.members.get_mut(index) else { return };
        let unrecoverable =
            matches!(why, PeerError::Command { code: ErrorCode::InconsistentReplicaSetNames, .. });
        let was_up = member.up || !member.tried;
        if unauthorized {
            member.set_auth_issue(now);
        } else if outcome == PingOutcome::Failed || unrecoverable {
            member.set_down(now, why.to_string());
        } else {
            return;
        }
        if was_up {
            self.warn(format!("{target} does not answer heartbeats: {why}"));
        }
    }

    /// True if the metadata belongs to our set: a commit point or term of another set must be ignored.
    pub(super) fn is_our_set(&self, data: &ReplSetMetadata) -> bool {
        let ours = self.config.as_ref().and_then(|config| config.replica_set_id);
        // A node without a config sends zeros.
        let theirs = Some(data.replica_set_id).filter(|id| id.bytes() != [0; 12]);
        ours.is_none() || theirs.is_none() || ours == theirs
    }

    fn member_index(&self, host: &HostAndPort) -> Option<usize> {
        self.config.as_ref()?.index_of_host(host)
    }

    /// The live member that reports itself as primary in the highest term.
    fn find_primary(&mut self, now: Now) {
        let primaries = self.members.iter().enumerate().filter(|(index, member)| {
            Some(*index) != self.self_index && member.up && member.state == MemberState::Primary
        });
        let found = primaries.max_by_key(|(_, member)| member.term).map(|(index, _)| index);
        if found != self.primary_index {
            self.primary_index = found;
            let primary = self.snapshot().primary().map(ToString::to_string);
            match primary {
                Some(primary) => {
                    self.info(format!("{primary} is primary in term {}", self.term));
                    self.try_again(now, "there is another primary");
                }
                None => self.warn("no primary is known".to_owned()),
            }
        }
    }

    /// Processes a heartbeat request from a peer.
    pub(super) fn hear_heartbeat_request(&mut self, now: Now, args: &HeartbeatArgs) {
        let ours = self.config.as_ref().map_or(VersionAndTerm::NONE, |it| it.version_and_term);
        if args.config.is_newer_than(ours) {
            self.ask_soon(now, args.from.as_ref());
            return;
        }
        let Some(config) = self.config.clone() else { return };
        let Some(index) = config.index_of_id(args.from_id) else { return };
        if let Some(member) = self.members.get_mut(index) {
            member.last_heartbeat_received = now.wall;
            member.last_update = Some(now.mono);
        }
        // The sender knows another primary: send that one a heartbeat now instead of waiting for its turn.
        let theirs = config.index_of_id(args.primary_id);
        if theirs.is_some() && theirs != self.primary_index && theirs != self.self_index {
            let primary = theirs.and_then(|index| config.members.get(index)).map(|it| &it.host);
            self.ask_soon(now, primary);
        }
    }

    /// Schedules a heartbeat. Unknown hosts get one only while we have no place in a config, because they may send us
    /// one.
    fn ask_soon(&mut self, now: Now, host: Option<&HostAndPort>) {
        let Some(host) = host else { return };
        if let Some(pings) = self.pings.get_mut(host) {
            pings.hurry(now.mono);
        } else if self.self_index.is_none() && self.pings.len() < SEEDS_MAX {
            self.pings.insert(host.clone(), Pings::new(now.mono));
        }
    }

    fn hear_config(&mut self, now: Now, from: &HostAndPort, raw: &RawDoc) {
        let config = match ReplSetConfig::parse(raw.clone()) {
            Ok(config) => config,
            Err(why) => return self.warn(format!("{from} sent us a {why}")),
        };
        let ours = self.installing.as_ref().map(|it| &it.config).or(self.config.as_ref());
        let known = ours.map_or(VersionAndTerm::NONE, |ours| ours.version_and_term);
        if !config.version_and_term.is_newer_than(known) {
            return;
        }
        if config.name != *self.set_name {
            let text = format!(
                "{from} sent us a config of set {}, we are in {}",
                config.name, self.set_name
            );
            return self.warn(text);
        }
        let ours = self.config.as_ref().and_then(|config| config.replica_set_id);
        if let (Some(ours), Some(theirs)) = (ours, config.replica_set_id)
            && ours != theirs
        {
            let text = format!(
                "{from} sent us a config of another set with our name: its replicaSetId is {theirs}, ours is {ours}"
            );
            return self.warn(text);
        }
        self.begin_install(now, Arc::new(config), true);
    }

    /// Installs a config as soon as our own index in it is known.
    pub(super) fn begin_install(&mut self, now: Now, config: Arc<ReplSetConfig>, persist: bool) {
        let hosts: Vec<HostAndPort> =
            config.members.iter().map(|member| member.host.clone()).collect();
        let seq = self.next_seq();
        // If our address is in the new config, no search is needed.
        let same = self.own_host().and_then(|host| config.index_of_host(&host));
        self.installing = Some(Installing { seq, config, persist });
        match same {
            Some(index) => self.finish_install(now, Some(index)),
            None => self.actions.push(Action::FindSelf { seq, hosts }),
        }
    }

    pub(super) fn own_host(&self) -> Option<HostAndPort> {
        let own = self.config.as_ref()?.members.get(self.self_index?)?;
        Some(own.host.clone())
    }

    pub(super) fn self_found(&mut self, now: Now, seq: u64, hosts: &[HostAndPort]) {
        let Some(config) =
            self.installing.as_ref().filter(|it| it.seq == seq).map(|it| it.config.clone())
        else {
            return;
        };
        let ours: Vec<usize> = hosts.iter().filter_map(|host| config.index_of_host(host)).collect();
        let version = config.version_and_term;
        if ours.is_empty() && self.config.is_none() && self.is_new_config() {
            // The config that adds us is on its way: the primary contacts us before that config is committed.
            self.info(format!(
                "config {version} does not name this node: waiting for one that does"
            ));
            self.installing = None;
            return;
        }
        match ours.as_slice() {
            [only] => return self.finish_install(now, Some(*only)),
            [] => self.warn(format!("no member of config {version} is this node")),
            _ => {
                let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
                let hosts = hosts.join(", ");
                self.warn(format!("config {version} names this node more than once: {hosts}"));
            }
        }
        self.finish_install(now, None);
    }

    /// True for a config that a peer sent, false for the one that we stored.
    fn is_new_config(&self) -> bool {
        self.installing.as_ref().is_some_and(|installing| installing.persist)
    }

    fn finish_install(&mut self, now: Now, self_index: Option<usize>) {
        let Some(Installing { config, persist, .. }) = self.installing.take() else { return };
        if persist {
            self.actions.push(Action::Persist(Persist::Config(config.raw.clone())));
            if !self.profile_known() {
                self.actions.push(Action::Persist(Persist::Profile(self.profile)));
            }
        }
        let was_member = self.self_index.is_some();
        self.carry_members_over(&config);
        self.config = Some(config.clone());
        self.self_index = self_index;
        self.self_search.done += 1;
        self.self_search.again_at = match self_index {
            Some(_) => None,
            None => Some(now.mono + search_pause(self.self_search.done)),
        };
        self.term = self.term.max(0);
        self.ask_members(now, &config);
        self.find_primary(now);
        self.following.config_changed(now, &config);
        let version = config.version_and_term;
        match self_index.and_then(|index| config.members.get(index)) {
            None => self.warn(format!("config {version} does not name this node: it is REMOVED")),
            Some(own) => {
                self.self_search = SelfSearch { done: 1, again_at: None };
                self.info(format!("config {version} is installed; we are {}", own.host));
                if !was_member {
                    self.mode =
                        if self.initial_sync_done { Mode::Secondary } else { Mode::InitialSync };
                }
                if persist {
                    self.try_again(now, "the config has changed");
                }
                self.warn_of_settings(&config, own.id);
                self.tell_settings();
            }
        }
    }

    /// Keeps what is known about members that are also in the new config.
    fn carry_members_over(&mut self, new: &ReplSetConfig) {
        let old = self.config.clone();
        let mut members = Vec::new();
        for member in &new.members {
            let index = old.as_ref().and_then(|old| {
                old.members.iter().position(|it| it.id == member.id && it.host == member.host)
            });
            let data = index.and_then(|index| self.members.get(index)).cloned();
            members.push(data.unwrap_or_else(MemberData::default));
        }
        self.members = members;
    }

    fn ask_members(&mut self, now: Now, config: &ReplSetConfig) {
        let others: Vec<HostAndPort> = config
            .members
            .iter()
            .enumerate()
            .filter(|(index, _)| Some(*index) != self.self_index)
            .map(|(_, member)| member.host.clone())
            .collect();
        self.pings.retain(|host, _| others.contains(host));
        for host in &others {
            self.pings.entry(host.clone()).or_insert_with(|| Pings::new(now.mono)).hurry(now.mono);
        }
        self.actions.push(Action::Members(others));
    }

    fn warn_of_settings(&mut self, config: &ReplSetConfig, own_id: i32) {
        let Some(own) = config.members.iter().find(|member| member.id == own_id) else { return };
        let (votes, delayed, electable) = (own.votes, own.delay_secs > 0, own.electable());
        let arbiter = own.arbiter_only;
        if delayed && votes {
            self.warn("this member is delayed and has a vote: writes with w: \"majority\" may wait for it; set votes: 0".to_owned());
        }
        if electable {
            self.warn(
                "this member has a priority but can never be primary: set priority: 0".to_owned(),
            );
        }
        if arbiter {
            self.halt(ARBITER.to_owned());
        } else {
            self.halt.take_if(|halt| halt.why == ARBITER);
        }
    }

    fn tell_settings(&mut self) {
        let Some(config) = self.config.clone() else { return };
        let Some(own) = self.self_index.and_then(|index| config.members.get(index)) else { return };
        let settings = MemberSettings {
            member_id: own.id,
            host: own.host.clone(),
            votes: own.votes,
            build_indexes: own.build_indexes,
            delay_secs: own.delay_secs,
            election_timeout: config.election_timeout,
        };
        if self.settings_told.as_ref() != Some(&settings) {
            self.settings_told = Some(settings.clone());
            self.actions.push(Action::Data(DataAction::Configure(settings)));
        }
    }

    /// Searches for ourselves again: a host name that did not resolve may resolve later.
    pub(super) fn find_self_again(&mut self, now: Now) {
        let due = self.self_search.again_at.is_some_and(|at| at <= now.mono);
        let Some(config) = self.config.clone().filter(|_| due && self.installing.is_none()) else {
            return;
        };
        self.self_search.again_at = None;
        self.begin_install(now, config, false);
    }

    pub(super) fn self_search_wakeup(&self) -> Option<Duration> {
        self.self_search.again_at.filter(|_| self.installing.is_none())
    }
}

fn search_pause(done: u32) -> Duration {
    let factor = 1 << done.min(5);
    (SEARCH_PAUSE * factor).min(SEARCH_PAUSE_MAX)
}

const ARBITER: &str = "the config makes this member an arbiter, which it cannot be: remove it and add it without arbiterOnly";

/// Defaults before there is a config.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of members in a set.
const SEEDS_MAX: usize = 50;
/// Pause between two searches for ourselves in the same config; doubles each time.
const SEARCH_PAUSE: Duration = Duration::from_secs(1);
const SEARCH_PAUSE_MAX: Duration = Duration::from_secs(30);
