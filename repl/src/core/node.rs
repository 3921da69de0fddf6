//! The entry point of the decisions: all events come in here, all actions go out.
//!
//! N1 `on_event` never waits, locks or reads a clock; the same events give the same actions.
//! N2 The set is told only what the data plane has reported.
//! N3 The data plane has one task at a time.
//! N4 This node never runs for election.
//!
//! The files beside this one are parts of the same state machine: `members` tracks the set and installs configs,
//! `following` gives the data plane its tasks, `trouble` knows what keeps the node out of service, `answers` replies
//! to peers, `reconfig` handles forced configs, `status` builds replSetGetStatus.

mod answers;
mod following;
mod members;
mod reconfig;
mod status;
mod trouble;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bson::oid::ObjectId;
use protocol::{HostAndPort, OpTime, Profile, RawDoc};

use self::following::Following;
use super::{
    commit_point::CommitPoint,
    config::{ConfigError, ReplSetConfig},
    heartbeat::Pings,
    member::MemberData,
    member_state::MemberState,
    positions::{self, Report, Reporting},
    snapshot::Snapshot,
};
use crate::event::{
    Action, DataAction, DataEvent, Event, LastVote, Log, LogLevel, MemberSettings, Now, PeerError,
    Positions, Start,
};

/// A member of a replica set, without any I/O.
#[derive(Debug)]
pub struct Node {
    set_name: Arc<str>,
    process_id: ObjectId,
    started_at: Duration,
    profile: &'static Profile,
    profile_pinned: bool,
    profile_stored: bool,
    /// A warning for the operator about a member of an unknown release.
    unknown_release: Option<String>,

    config: Option<Arc<ReplSetConfig>>,
    self_index: Option<usize>,
    installing: Option<members::Installing>,
    self_search: members::SelfSearch,
    members: Vec<MemberData>,
    /// Heartbeat schedules: for the other members, or, without a config, for hosts that contacted us.
    pings: BTreeMap<HostAndPort, Pings>,
    primary_index: Option<usize>,
    /// Why we could not ask for a config; kept so that it is logged only once.
    config_refused: Option<String>,

    term: i64,
    last_vote: Option<LastVote>,
    election: Option<status::ElectionMetrics>,

    mode: Mode,
    maintenance: u32,
    /// Every possible source's oplog begins after our last entry.
    too_stale: bool,
    /// Why replication cannot continue.
    halt: Option<trouble::Halt>,
    /// The last entry that was acknowledged and then lost by the disk.
    lost_tail: Option<OpTime>,
    /// The damaged file of the store, if any.
    damage: Option<String>,

    initial_sync_done: bool,
    initial_sync_status: Option<RawDoc>,
    positions: Positions,
    /// Our last entry, whether the set may see it or not.
    fetched: OpTime,
    commit: CommitPoint,
    rbid: i32,
    /// Positions are accepted only if they were read under this rollback id.
    positions_rbid: i32,

    following: Following,
    reporting: Reporting,
    settings_told: Option<MemberSettings>,
    topology_counter: i64,
    seq: u64,
    actions: Vec<Action>,
}

/// What the node is doing; the visible state also depends on maintenance mode and trouble.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    InitialSync,
    Secondary,
    Rollback,
}

impl Node {
    /// The node at start.
    pub fn new(now: Now, start: Start) -> Result<Self, StartError> {
        let mut node = Self {
            set_name: start.set_name.as_str().into(),
            process_id: start.process_id,
            started_at: now.mono,
            profile: start.profile.unwrap_or_else(Profile::newest_tested),
            profile_pinned: start.profile_pinned,
            profile_stored: start.profile.is_some(),
            unknown_release: None,
            config: None,
            self_index: None,
            installing: None,
            self_search: members::SelfSearch::default(),
            members: Vec::new(),
            pings: BTreeMap::new(),
            primary_index: None,
            config_refused: None,
            term: -1,
            last_vote: start.last_vote,
            election: None,
            mode: if start.initial_sync_done { Mode::Secondary } else { Mode::InitialSync },
            maintenance: 0,
            too_stale: false,
            halt: None,
            lost_tail: start.lost_tail,
            damage: start.damage,
            initial_sync_done: start.initial_sync_done,
            initial_sync_status: None,
            positions: start.positions,
            fetched: start.positions.written.op_time,
            commit: CommitPoint::default(),
            rbid: start.rbid,
            positions_rbid: start.rbid,
            following: Following::default(),
            reporting: Reporting::default(),
            settings_told: None,
            topology_counter: 0,
            seq: 0,
            actions: Vec::new(),
        };
        if let Some(raw) = start.config {
            let config = ReplSetConfig::parse(raw)?;
            if config.name != start.set_name {
                return Err(StartError::OtherSet { stored: config.name, given: start.set_name });
            }
            let voted = start.last_vote.map_or(0, |vote| vote.term);
            node.term = voted.max(start.positions.written.op_time.t).max(0);
            node.begin_install(now, Arc::new(config), false);
        }
        Ok(node)
    }

    /// Processes an event. The only way to change the node.
    pub fn on_event(&mut self, now: Now, event: Event) -> Vec<Action> {
        let before = self.fingerprint();
        match event {
            Event::Tick => {}
            Event::HeartbeatDone { target, seq, rtt, result, max_wire_version } => {
                self.learn_wire_version(max_wire_version);
                self.heartbeat_done(now, &target, seq, rtt, result);
            }
            Event::SelfFound { seq, hosts } => self.self_found(now, seq, &hosts),
            Event::ReportDone { seq, result } => self.report_done(now, seq, result),
            Event::InternalClient { max_wire_version } => {
                if self.config.is_none() {
                    self.learn_wire_version(Some(max_wire_version));
                }
            }
            Event::Request { id, request } => {
                let answer = self.answer(now, request);
                self.actions.push(Action::Answer { id, answer });
            }
            Event::Data(event) => self.data_event(now, event),
            Event::TryAgain { because } => self.try_again(now, &because),
        }
        self.drive(now);
        if self.fingerprint() != before {
            self.topology_counter += 1;
        }
        std::mem::take(&mut self.actions)
    }

    /// Actions that follow from the state alone: due heartbeats, a task for the data plane, a report.
    fn drive(&mut self, now: Now) {
        self.settle_commit_point();
        self.find_self_again(now);
        self.give_task(now);
        self.send_heartbeats(now);
        self.send_report(now);
    }

    /// When the next [`Event::Tick`] is needed.
    pub(crate) fn next_wakeup(&self) -> Option<Duration> {
        let pings = self.pings.values().filter(|ping| ping.in_flight.is_none());
        let mut times: Vec<Duration> = pings.map(|ping| ping.next_at).collect();
        times.extend(self.task_wakeup());
        times.extend(self.self_search_wakeup());
        if self.report_target().is_some() && self.reporting.in_flight.is_none() {
            times.push(self.reporting.due_at(self.keepalive()));
        }
        times.into_iter().min()
    }

    /// The node's state for the rest of the process.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            profile: self.profile,
            set_name: self.set_name.clone(),
            process_id: self.process_id,
            topology_counter: self.topology_counter,
            config: self.config.clone(),
            self_index: self.self_index,
            state: self.state(),
            term: self.term,
            primary_index: self.primary_index,
            sync_source: self.following.source.as_ref().map(|source| source.host.clone()),
            positions: self.shown_positions(),
            committed: self.commit.committed,
            stable: self.commit.stable,
            rbid: self.rbid,
            past_only: self.stands_still(),
        }
    }

    /// Our visible state.
    pub fn state(&self) -> MemberState {
        match (&self.config, self.self_index) {
            (None, _) => MemberState::Startup,
            (Some(_), None) if self.self_search.is_first() => MemberState::Startup,
            (Some(_), None) => MemberState::Removed,
            (Some(_), Some(_)) => match self.mode {
                Mode::InitialSync => MemberState::Startup2,
                Mode::Rollback => MemberState::Rollback,
                Mode::Secondary if self.is_recovering() => MemberState::Recovering,
                Mode::Secondary => MemberState::Secondary,
            },
        }
    }

    /// Our positions as others may see them: null during initial sync, and while acknowledged entries are missing or
    /// may be missing, because we must not count in any majority then.
    fn shown_positions(&self) -> Positions {
        match self.mode {
            _ if self.lost_tail.is_some() || self.damage.is_some() => Positions::default(),
            Mode::InitialSync => Positions::default(),
            Mode::Secondary | Mode::Rollback => positions::shown(self.positions, self.profile),
        }
    }

    fn fingerprint(&self) -> impl PartialEq + use<> {
        let config = self.config.as_ref().map(|config| config.version_and_term);
        (self.state(), config, self.self_index, self.primary_index)
    }

    fn learn_wire_version(&mut self, max_wire_version: Option<i32>) {
        let Some(profile) = max_wire_version.and_then(Profile::for_wire_version) else { return };
        if let Some(theirs) = max_wire_version.filter(|theirs| Profile::is_unknown(*theirs)) {
            let warning = format!(
                "a member speaks wire version {theirs}, newer than {} of MongoDB {}, the newest \
                 release known here: look for a newer Understudy",
                profile.wire_version, profile.fcv
            );
            if self.unknown_release.as_ref() != Some(&warning) {
                self.warn(warning.clone());
                self.unknown_release = Some(warning);
            }
        }
        let known = self.profile_known();
        let newer = profile.wire_version > self.profile.wire_version;
        if self.profile_pinned || profile == self.profile || (known && !newer) {
            return;
        }
        self.info(format!("showing MongoDB {}, as the set does", profile.version));
        self.profile = profile;
        self.actions.push(Action::Persist(crate::event::Persist::Profile(profile)));
    }

    /// Before there is a config the profile is only a guess.
    fn profile_known(&self) -> bool {
        self.profile_stored || self.config.is_some()
    }

    fn data_event(&mut self, now: Now, event: DataEvent) {
        match event {
            DataEvent::Progress { rbid, positions } if rbid == self.positions_rbid => {
                self.progress(now, positions);
            }
            // The positions were read before a rollback, so part of them is gone.
            DataEvent::Progress { .. } => {}
            DataEvent::Fetched(last) => self.fetched = last,
            DataEvent::RollbackId(rbid) => self.rbid = rbid,
            DataEvent::Halted { why } => self.halt(why),
            DataEvent::Damaged { why } => self.damaged(why),
            event => self.task_event(now, event),
        }
    }

    /// Writer and applier report independently, so each position advances separately.
    fn progress(&mut self, now: Now, heard: Positions) {
        if self.mode == Mode::InitialSync {
            return;
        }
        let old_term = self.positions.applied.op_time.t;
        let ours = &mut self.positions;
        for (known, heard) in [
            (&mut ours.written, heard.written),
            (&mut ours.durable, heard.durable),
            (&mut ours.applied, heard.applied),
        ] {
            if heard.op_time > known.op_time {
                *known = heard;
                self.reporting.dirty = true;
            }
        }
        if self.positions.applied.op_time.t > old_term {
            self.note_new_term(now);
        }
        self.look_for_lost_tail();
    }

    fn settle_commit_point(&mut self) {
        self.commit.settle(&self.positions);
        if self.following.commit_told != self.commit {
            self.following.commit_told = self.commit;
            let CommitPoint { committed, stable } = self.commit;
            self.actions.push(Action::Data(DataAction::CommitPoint { committed, stable }));
        }
    }

    fn send_report(&mut self, now: Now) {
        let keepalive = self.keepalive();
        let Some(target) = self.report_target() else { return };
        let (Some(config), Some(self_index)) = (self.config.clone(), self.self_index) else {
            return;
        };
        if !self.reporting.is_due(now.mono, keepalive) {
            return;
        }
        let seq = self.next_seq();
        self.reporting.in_flight = Some(seq);
        self.reporting.dirty = false;
        self.reporting.last_at = now.mono;
        let report = Report {
            config: &config,
            self_index,
            ours: self.shown_positions(),
            members: &self.members,
            profile: self.profile,
        };
        let body = report.to_raw(now.mono, super::status::repl_data(&self.snapshot()));
        let timeout = Duration::from_millis(positions::REPORT_TIMEOUT_MS.unsigned_abs());
        self.actions.push(Action::Report { target, seq, body, timeout });
    }

    /// The target of position reports: the source, as long as we follow it.
    fn report_target(&self) -> Option<HostAndPort> {
        let reports = self.mode == Mode::Secondary
            && self.self_index.is_some()
            && !self.positions.applied.op_time.is_null();
        self.following.followed().filter(|_| reports).map(|source| source.host.clone())
    }

    fn keepalive(&self) -> Duration {
        let half = self.config.as_ref().map_or(KEEPALIVE_MAX, |config| config.election_timeout / 2);
        half.min(KEEPALIVE_MAX)
    }

    fn report_done(&mut self, now: Now, seq: u64, result: Result<RawDoc, PeerError>) {
        if self.reporting.in_flight != Some(seq) {
            return;
        }
        self.reporting.in_flight = None;
        let failed_before = std::mem::replace(&mut self.reporting.failing, result.is_err());
        if let Err(why) = result {
            if !failed_before {
                self.warn(format!("the sync source did not take our position: {why}"));
            }
            self.reporting.dirty = true;
            self.reporting.not_before = now.mono + REPORT_PAUSE;
        }
    }

    fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    fn hear_term(&mut self, term: i64) {
        self.term = self.term.max(term);
    }

    /// Our last entry, after which fetching continues.
    fn last_fetched(&self) -> OpTime {
        match self.mode {
            Mode::InitialSync => OpTime::NULL,
            Mode::Secondary | Mode::Rollback => self.positions.written.op_time.max(self.fetched),
        }
    }

    fn info(&mut self, text: String) {
        self.log(LogLevel::Info, text);
    }

    fn warn(&mut self, text: String) {
        self.log(LogLevel::Warn, text);
    }

    fn log(&mut self, level: LogLevel, text: String) {
        self.actions.push(Action::Log(Log { level, text }));
    }
}

/// Why a node cannot start.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StartError {
    /// The stored config is invalid.
    #[error(
        "the stored config cannot be read: {0}; if the disk is well, start with an empty data directory"
    )]
    Config(#[from] ConfigError),
    /// The data directory belongs to another set.
    #[error(
        "this data directory belongs to replica set {stored}, not {given}: give its name or another directory"
    )]
    OtherSet {
        /// The name in the stored config.
        stored: String,
        /// The name given.
        given: String,
    },
}

/// Maximum interval between reports; it is also at most half the election timeout.
const KEEPALIVE_MAX: Duration = Duration::from_secs(30);
/// Pause after a failed report.
const REPORT_PAUSE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
