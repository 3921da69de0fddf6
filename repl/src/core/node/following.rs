//! Gives the data plane its tasks, one at a time (N3): initial sync, following, rollback.
//!
//! F1 A task begins only after the previous one has answered.
//! F2 An answer is accepted only for the task that it names.

use std::time::Duration;

use protocol::{HostAndPort, OpTime, RawDoc, repl_metadata::ReplSetMetadata};

use super::{Mode, Node};
use crate::{
    core::{
        commit_point::{CommitPoint, ToldBy},
        config::ReplSetConfig,
        fields::int_or,
        positions::Reporting,
        sync_source::{Choice, Denylist, LeaveReason, SourceSays, View},
    },
    event::{Action, DataAction, DataEvent, LogLevel, Now, Positions, Remedy, SyncSource, TaskId},
};

/// The data plane's task, and what the next choice depends on.
#[derive(Debug, Default)]
pub(super) struct Following {
    /// Our sync source, as the set may see it.
    pub(super) source: Option<SyncSource>,
    pub(super) commit_told: CommitPoint,
    /// The target of `replSetSyncFrom`, until it is used.
    pub(super) forced: Option<HostAndPort>,
    by_request: bool,
    task: Option<Task>,
    last_task: u64,
    /// The source whose history contradicts ours, and the reason for the log.
    roll_back_to: Option<(SyncSource, String)>,
    denylist: Denylist,
    next_choice_at: Duration,
    /// Until then a choice waits for members that have not replied yet.
    patient_until: Duration,
    next_nearness_check_at: Duration,
    quick_failures: u32,
    /// Some member's oplog begins after our last entry, and no usable one was found.
    met_too_stale: bool,
    /// No member was suitable: every heartbeat reply is a reason to choose again.
    waiting: bool,
}

#[derive(Debug)]
struct Task {
    id: TaskId,
    kind: Kind,
    source: SyncSource,
    started_at: Duration,
    stopping: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Kind {
    InitialSync,
    Follow,
    RollBack { why: String },
}

impl Following {
    /// The source whose oplog we currently follow.
    pub(super) fn followed(&self) -> Option<&SyncSource> {
        let task = self.task.as_ref().filter(|task| task.kind == Kind::Follow && !task.stopping)?;
        Some(&task.source)
    }

    /// The denylist is cleared when the config changes.
    pub(super) fn config_changed(&mut self, now: Now, config: &ReplSetConfig) {
        self.patient_until = now.mono + PATIENCE;
        self.denylist.clear();
        self.forced = self.forced.take().filter(|host| config.index_of_host(host).is_some());
        self.next_choice_at = Duration::ZERO;
    }

    pub(super) fn choose_at(&mut self, at: Duration) {
        self.next_choice_at = at;
    }

    /// Removes the task if it is the one that `id` names.
    fn end(&mut self, id: TaskId) -> Option<Task> {
        self.task.take_if(|task| task.id == id)
    }
}

impl Node {
    /// `replSetSyncFrom`: leaves the current source and clears the denylist.
    pub(super) fn force_source(&mut self, now: Now, target: HostAndPort) {
        self.following.forced = Some(target);
        self.following.denylist.clear();
        self.following.next_choice_at = now.mono;
        self.try_again(now, "an operator names another source");
    }

    /// There is news about a member: one that was unsuitable before may be suitable now.
    pub(super) fn look_again(&mut self, now: Now) {
        if self.following.waiting {
            self.following.next_choice_at = now.mono;
        }
    }

    /// Stops a task that must not continue, and starts the next one.
    pub(super) fn give_task(&mut self, now: Now) {
        if let Some(why) = self.reason_to_stop() {
            self.stop_task(why);
        }
        let ready = self.following.task.is_none()
            && self.self_index.is_some()
            && self.halted().is_none()
            && now.mono >= self.following.next_choice_at;
        if !ready {
            return;
        }
        if let Some((source, why)) = self.following.roll_back_to.take() {
            return self.start_task(now, Kind::RollBack { why }, source);
        }
        self.choose_source(now);
    }

    fn reason_to_stop(&self) -> Option<String> {
        let task = self.following.task.as_ref().filter(|task| !task.stopping)?;
        let Some(config) = self.config.as_ref().filter(|_| self.self_index.is_some()) else {
            return Some("we are not in the config".to_owned());
        };
        if let Some(why) = self.halted() {
            return Some(why.to_owned());
        }
        if let Some(target) = &self.following.forced {
            return Some(LeaveReason::Requested { target: target.clone() }.to_string());
        }
        let gone = config.index_of_host(&task.source.host).is_none();
        gone.then(|| LeaveReason::NotInConfig.to_string())
    }

    fn stop_task(&mut self, why: String) {
        let Some(task) = self.following.task.as_mut().filter(|task| !task.stopping) else { return };
        task.stopping = true;
        let (id, host) = (task.id, task.source.host.clone());
        self.info(format!("leaving sync source {host}: {why}"));
        self.actions.push(Action::Data(DataAction::Stop { task: id, why }));
    }

    pub(super) fn task_wakeup(&self) -> Option<Duration> {
        let ready = self.following.task.is_none() && self.self_index.is_some();
        Some(self.following.next_choice_at).filter(|_| ready && self.halted().is_none())
    }

    fn choose_source(&mut self, now: Now) {
        let Some((choice, heard_of_all)) = self.with_view(now, |view, forced| {
            (view.choose(forced), view.has_heard_of_all() || forced.is_some())
        }) else {
            return;
        };
        if !heard_of_all && now.mono < self.following.patient_until {
            self.following.next_choice_at = now.mono + HEARING_PAUSE;
            return;
        }
        match choice {
            Choice::Switch { to, why } => {
                let Some(source) = self.source_at(to) else { return };
                self.info(format!("syncing from {}: {why}", source.host));
                self.following.by_request = self.following.forced.take().is_some();
                self.following.waiting = false;
                let kind = match self.mode {
                    Mode::InitialSync => Kind::InitialSync,
                    Mode::Secondary | Mode::Rollback => Kind::Follow,
                };
                self.start_task(now, kind, source);
            }
            Choice::Wait { rejected } => self.wait_for_source(now, &rejected),
        }
    }

    fn wait_for_source<R: std::fmt::Display>(&mut self, now: Now, rejected: &[(HostAndPort, R)]) {
        self.following.source = None;
        self.following.next_choice_at = now.mono + CHOICE_PAUSE;
        if self.following.met_too_stale && !self.too_stale {
            self.too_stale = true;
            self.log(LogLevel::Error, TOO_STALE.to_owned());
        }
        if !self.following.waiting {
            self.following.waiting = true;
            // What we know about the others may be as old as the heartbeat interval.
            self.pings.values_mut().for_each(|pings| pings.hurry(now.mono));
            let why: Vec<String> =
                rejected.iter().map(|(host, why)| format!("{host}: {why}")).collect();
            self.info(format!("no member to sync from ({})", why.join("; ")));
        }
    }

    fn start_task(&mut self, now: Now, kind: Kind, source: SyncSource) {
        self.following.last_task += 1;
        let id = TaskId(self.following.last_task);
        self.following.source = Some(source.clone());
        self.following.next_nearness_check_at = now.mono + NEARNESS_PAUSE;
        self.reporting = Reporting { dirty: true, ..Reporting::default() };
        match kind {
            Kind::InitialSync => {
                self.positions = Positions::default();
                self.fetched = OpTime::NULL;
                self.commit.reset();
            }
            Kind::RollBack { .. } => self.mode = Mode::Rollback,
            Kind::Follow => {}
        }
        let task = id;
        let action = match kind.clone() {
            Kind::InitialSync => DataAction::StartInitialSync { task, source: source.clone() },
            Kind::Follow => DataAction::Follow { task, source: source.clone() },
            Kind::RollBack { why } => DataAction::RollBack { task, source: source.clone(), why },
        };
        self.following.task =
            Some(Task { id, kind, source, started_at: now.mono, stopping: false });
        self.actions.push(Action::Data(action));
    }

    fn source_at(&self, index: usize) -> Option<SyncSource> {
        let member = self.config.as_ref()?.members.get(index)?;
        Some(SyncSource { host: member.host.clone(), member_id: member.id })
    }

    /// Builds the view that a choice of source needs; `None` if we are not in the config.
    fn with_view<T>(
        &self,
        now: Now,
        look: impl FnOnce(&View<'_>, Option<usize>) -> T,
    ) -> Option<T> {
        let config = self.config.as_deref()?;
        let pings: Vec<Option<Duration>> = config
            .members
            .iter()
            .map(|member| self.pings.get(&member.host).and_then(|pings| pings.average))
            .collect();
        let forced = self.following.forced.as_ref().and_then(|host| config.index_of_host(host));
        let view = View {
            config,
            self_index: self.self_index?,
            members: &self.members,
            pings: &pings,
            primary_index: self.primary_index,
            last_fetched: self.last_fetched(),
            denylist: &self.following.denylist,
            now: now.mono,
        };
        Some(look(&view, forced))
    }

    pub(super) fn task_event(&mut self, now: Now, event: DataEvent) {
        match event {
            DataEvent::SourceMetadata { task, repl_data, oplog_query_data, last_fetched } => {
                self.source_metadata(now, task, repl_data, oplog_query_data, last_fetched);
            }
            DataEvent::FollowEnded { task, remedy, why } => {
                if let Some(task) = self.following.end(task) {
                    self.follow_ended(now, &task, remedy, why);
                }
            }
            DataEvent::InitialSyncProgress { task, status } => {
                if self.following.task.as_ref().is_some_and(|it| it.id == task) {
                    self.initial_sync_status = Some(status);
                }
            }
            DataEvent::InitialSyncFinished { task, applied } => {
                if self.following.end(task).is_some() {
                    self.info(format!("initial sync is done at {}", applied.op_time));
                    self.positions = Positions { written: applied, durable: applied, applied };
                    self.initial_sync_done = true;
                    self.initial_sync_status = None;
                    self.mode = Mode::Secondary;
                    self.look_for_lost_tail();
                }
            }
            DataEvent::InitialSyncFailed { task, why, retry_in } => {
                if let Some(task) = self.following.end(task) {
                    self.initial_sync_failed(now, &task, &why, retry_in);
                }
            }
            DataEvent::RollbackFinished { task, positions, rbid } => {
                if self.following.end(task).is_some() {
                    self.info(format!("rolled back to {}", positions.written.op_time));
                    (self.rbid, self.positions_rbid) = (rbid, rbid);
                    self.history_is_shared();
                    self.positions = positions;
                    self.fetched = positions.written.op_time;
                    self.mode = Mode::Secondary;
                }
            }
            DataEvent::RollbackFailed { task, remedy, why } => {
                if let Some(task) = self.following.end(task) {
                    self.rollback_failed(now, &task, remedy, why);
                }
            }
            DataEvent::Progress { .. }
            | DataEvent::Fetched(_)
            | DataEvent::RollbackId(_)
            | DataEvent::Damaged { .. }
            | DataEvent::Halted { .. } => {}
        }
    }

    fn source_metadata(
        &mut self,
        now: Now,
        id: TaskId,
        repl_data: Option<RawDoc>,
        oplog_query_data: Option<RawDoc>,
        last_fetched: OpTime,
    ) {
        let Some(task) = self.following.task.as_ref().filter(|task| task.id == id) else { return };
        let (follows, host) = (task.kind == Kind::Follow, task.source.host.clone());
        let data = repl_data.and_then(|data| ReplSetMetadata::from_document(&data).ok());
        let query = oplog_query_data.as_deref();
        let (Some(data), Some(query)) = (data, query) else {
            return self.leave_for_cause(now, &host, "it sends no $replData and $oplogQueryData");
        };
        if !self.is_our_set(&data) {
            return self.leave_for_cause(now, &host, "it is in another set of the same name");
        }
        self.hear_term(data.term);
        let applied = query.get_document("lastOpApplied").ok().and_then(OpTime::from_raw);
        if follows && self.mode == Mode::Secondary {
            self.commit.hear(data.last_op_committed, ToldBy::SyncSource, &self.positions);
            self.following.met_too_stale = false;
            self.following.quick_failures = 0;
            self.too_stale = false;
            self.history_is_shared();
            let says = SourceSays {
                is_primary: data.is_primary,
                applied: applied.unwrap_or_default(),
                sync_source_index: int_or(query, "syncSourceIndex", -1),
            };
            self.consider_leaving(now, &host, says, last_fetched);
        }
    }

    fn consider_leaving(
        &mut self,
        now: Now,
        host: &HostAndPort,
        says: SourceSays,
        last_fetched: OpTime,
    ) {
        let check_nearness = !self.following.by_request
            && now.mono >= self.following.next_nearness_check_at
            && self.pings.values().all(|pings| pings.hits >= PINGS_FOR_NEARNESS);
        if check_nearness {
            self.following.next_nearness_check_at = now.mono + NEARNESS_PAUSE;
        }
        let leave = self.with_view(now, |view, forced| {
            let view = View { last_fetched, ..*view };
            let nearer = || check_nearness.then(|| view.much_nearer(host)).flatten();
            view.leave(host, forced, says).or_else(nearer)
        });
        if let Some(why) = leave.flatten() {
            self.stop_task(why.to_string());
        }
    }

    fn leave_for_cause(&mut self, now: Now, host: &HostAndPort, why: &str) {
        self.following.denylist.add(host.clone(), now.mono + DENYLIST_FOR_FAULT);
        self.stop_task(why.to_owned());
    }

    /// Denylists a host. If there is no other member, only briefly: a source that was restarted is all we have.
    fn leave_alone(&mut self, now: Now, host: HostAndPort) {
        self.following.denylist.add(host.clone(), now.mono + DENYLIST_FOR_FAULT);
        let choice = self.with_view(now, |view, forced| view.choose(forced));
        if !matches!(choice, Some(Choice::Switch { .. })) {
            self.following.denylist.add(host, now.mono + CHOICE_PAUSE);
        }
    }

    fn follow_ended(&mut self, now: Now, task: &Task, remedy: Remedy, why: String) {
        let host = task.source.host.clone();
        self.following.source = None;
        self.following.next_choice_at = now.mono;
        if task.stopping && remedy != Remedy::Halt {
            return;
        }
        match remedy {
            Remedy::Retry => self.retry_later(now, task, &why),
            Remedy::ChangeSource => {
                self.warn(format!("leaving sync source {host}: {why}"));
                self.leave_alone(now, host);
            }
            Remedy::RollBack => {
                self.warn(format!("our history and that of {host} part: {why}"));
                self.mode = Mode::Rollback;
                self.following.roll_back_to = Some((task.source.clone(), why));
            }
            Remedy::Resync => {
                self.warn(format!("too stale to sync from {host}: {why}"));
                self.following.met_too_stale = true;
                self.following.denylist.add(host, now.mono + DENYLIST_FOR_STALENESS);
            }
            Remedy::Halt => self.halt(why),
        }
    }

    /// The first retry is immediate; a source that fails repeatedly is denylisted for a while.
    fn retry_later(&mut self, now: Now, task: &Task, why: &str) {
        let host = &task.source.host;
        self.info(format!("lost sync source {host}: {why}"));
        if now.mono.saturating_sub(task.started_at) >= QUICK_FAILURE {
            self.following.quick_failures = 0;
            return;
        }
        self.following.quick_failures += 1;
        let failures = self.following.quick_failures;
        self.following.next_choice_at =
            now.mono + (RETRY_PAUSE * (1 << failures.min(4))).min(CHOICE_PAUSE);
        if failures >= QUICK_FAILURES_MAX {
            self.following.quick_failures = 0;
            self.following.denylist.add(host.clone(), now.mono + DENYLIST_FOR_RETRIES);
        }
    }

    fn initial_sync_failed(&mut self, now: Now, task: &Task, why: &str, retry_in: Duration) {
        self.following.source = None;
        self.following.next_choice_at = now.mono;
        if !task.stopping {
            self.warn(format!("initial sync from {} failed: {why}", task.source.host));
            self.following.next_choice_at += retry_in;
        }
    }

    fn rollback_failed(&mut self, now: Now, task: &Task, remedy: Remedy, why: String) {
        let host = task.source.host.clone();
        self.following.source = None;
        self.mode = Mode::Secondary;
        match remedy {
            Remedy::Retry | Remedy::ChangeSource | Remedy::RollBack => {
                self.warn(format!("rollback with {host} failed: {why}"));
                self.following.next_choice_at = now.mono + CHOICE_PAUSE;
                if remedy == Remedy::ChangeSource {
                    self.leave_alone(now, host);
                }
            }
            // Another member's oplog may reach further back.
            Remedy::Resync => {
                self.warn(format!("rollback with {host} is impossible: {why}"));
                self.following.next_choice_at = now.mono;
                self.following.met_too_stale = true;
                self.following.denylist.add(host, now.mono + DENYLIST_FOR_STALENESS);
            }
            Remedy::Halt => self.halt(why),
        }
    }
}

/// mongod's pause when no member is suitable.
const CHOICE_PAUSE: Duration = Duration::from_secs(1);
/// How long a choice waits for members that do not reply.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause before every member has replied or failed once.
const HEARING_PAUSE: Duration = Duration::from_millis(50);
/// Pause after a source failed soon after it was chosen; doubles each time.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
const QUICK_FAILURE: Duration = Duration::from_secs(2);
const QUICK_FAILURES_MAX: u32 = 4;
const DENYLIST_FOR_RETRIES: Duration = Duration::from_secs(3);
/// mongod's denylist periods: for a source that sent invalid data, and for one whose oplog begins after ours ends.
const DENYLIST_FOR_FAULT: Duration = Duration::from_secs(10);
const DENYLIST_FOR_STALENESS: Duration = Duration::from_secs(60);
/// Interval of the search for a nearer source: at most three changes an hour.
const NEARNESS_PAUSE: Duration = Duration::from_secs(20 * 60);
const PINGS_FOR_NEARNESS: u64 = 5;

/// Text for the operator.
pub(super) const TOO_STALE: &str = "this node is too stale: every member's oplog begins after our last entry. \
    Let it sync from a member with a longer oplog (replSetSyncFrom), or start it with an empty data directory";
