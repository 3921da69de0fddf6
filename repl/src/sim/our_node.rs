//! The real node, with a data plane that keeps its log in memory and loses unsynced entries in a crash.

use std::time::Duration;

use bson::oid::ObjectId;
use protocol::{OpTime, OpTimeAndWall, RawDoc};

use super::{
    fake_set::{FakeSet, all_at, with_wall},
    network::Network,
};
use crate::{
    core::node::Node,
    event::{
        Action, DataAction, DataEvent, Event, LastVote, Now, Persist, Positions, Remedy, Start,
        SyncSource, TaskId,
    },
};

/// Our node and its disk.
pub(super) struct OurNode {
    pub(super) node: Node,
    pub(super) disk: Disk,
    /// What the data plane has reported to the node: the node must not tell the set more.
    pub(super) told: Positions,
    pub(super) task: Option<Task>,
    /// How often a task was given while another was still open.
    pub(super) overlapping_tasks: u32,
    log: Vec<OpTime>,
    applied: usize,
}

/// What survives a crash.
#[derive(Clone, Default)]
pub(super) struct Disk {
    pub(super) config: Option<RawDoc>,
    pub(super) last_vote: Option<LastVote>,
    log: Vec<OpTime>,
    applied: usize,
    initial_sync_done: bool,
    rbid: i32,
}

/// A task of the data plane.
pub(super) struct Task {
    id: TaskId,
    kind: Kind,
    source: SyncSource,
    stopping: bool,
    silent_steps: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    InitialSync,
    Follow,
    RollBack,
}

impl OurNode {
    pub(super) fn boot(now: Now, disk: Disk) -> Self {
        let positions = positions(&disk.log, disk.log.len(), disk.applied);
        let start = Start {
            set_name: "rs0".to_owned(),
            process_id: ObjectId::from_bytes([8; 12]),
            config: disk.config.clone(),
            last_vote: disk.last_vote,
            profile: None,
            profile_pinned: false,
            positions,
            initial_sync_done: disk.initial_sync_done,
            rbid: disk.rbid,
            lost_tail: None,
            damage: None,
        };
        Self {
            node: Node::new(now, start).unwrap(),
            log: disk.log.clone(),
            applied: disk.applied,
            disk,
            told: positions,
            task: None,
            overlapping_tasks: 0,
        }
    }

    /// Passes an event to the node and executes actions for the disk and the data plane; returns the other actions.
    pub(super) fn event(&mut self, now: Now, event: Event) -> Vec<Action> {
        let actions = self.node.on_event(now, event);
        let mut rest = Vec::new();
        for action in actions {
            match action {
                Action::Persist(Persist::Config(config)) => self.disk.config = Some(config),
                Action::Persist(Persist::LastVote(vote)) => self.disk.last_vote = Some(vote),
                Action::Data(action) => self.act(action),
                Action::Persist(Persist::Profile(_)) | Action::Members(_) | Action::Log(_) => {}
                action => rest.push(action),
            }
        }
        rest
    }

    fn act(&mut self, action: DataAction) {
        let (id, kind, source) = match action {
            DataAction::StartInitialSync { task, source } => (task, Kind::InitialSync, source),
            DataAction::Follow { task, source } => (task, Kind::Follow, source),
            DataAction::RollBack { task, source, .. } => (task, Kind::RollBack, source),
            DataAction::Stop { task, .. } => {
                if let Some(open) = self.task.as_mut().filter(|open| open.id == task) {
                    open.stopping = true;
                }
                return;
            }
            DataAction::Configure(_) | DataAction::CommitPoint { .. } => return,
        };
        self.overlapping_tasks += u32::from(self.task.is_some());
        self.task = Some(Task { id, kind, source, stopping: false, silent_steps: 0 });
    }

    /// One step of writer, disk and applier, each at its own pace.
    pub(super) fn settle(&mut self, sync: bool, apply: usize) -> Option<DataEvent> {
        if !self.disk.initial_sync_done {
            return None;
        }
        if sync {
            self.disk.log.clone_from(&self.log);
        }
        self.applied = (self.applied + apply).min(self.log.len());
        self.disk.applied = self.applied.min(self.disk.log.len());
        let positions = positions(&self.log, self.disk.log.len(), self.applied);
        let moved = positions != self.told;
        self.told = positions;
        moved.then_some(DataEvent::Progress { rbid: self.disk.rbid, positions })
    }

    /// One step of the open task; returns its report.
    pub(super) fn step(
        &mut self,
        set: &FakeSet,
        network: &Network,
        batch: usize,
    ) -> Vec<DataEvent> {
        let Some(task) = self.task.as_mut() else { return Vec::new() };
        let (id, kind) = (task.id, task.kind);
        if task.stopping {
            self.task = None;
            return vec![ended(id, kind, Remedy::Retry)];
        }
        let index = usize::try_from(task.source.member_id).unwrap();
        let reachable = set.fakes[index].up && network.connected(index, set.ours());
        if !reachable {
            task.silent_steps += 1;
            if task.silent_steps < 20 {
                return Vec::new();
            }
            self.task = None;
            return vec![ended(id, kind, Remedy::Retry)];
        }
        task.silent_steps = 0;
        match kind {
            Kind::InitialSync => self.clone_all(set, index, id),
            Kind::Follow => self.fetch(set, index, id, batch),
            Kind::RollBack => self.roll_back(set, index, id),
        }
    }

    fn clone_all(&mut self, set: &FakeSet, index: usize, id: TaskId) -> Vec<DataEvent> {
        self.log = set.fakes[index].log.clone();
        self.applied = self.log.len();
        self.disk.log = self.log.clone();
        self.disk.applied = self.applied;
        self.disk.initial_sync_done = true;
        self.task = None;
        let applied = last(&self.log, self.applied);
        self.told = all_at(applied);
        vec![DataEvent::InitialSyncFinished { task: id, applied }]
    }

    fn fetch(&mut self, set: &FakeSet, index: usize, id: TaskId, batch: usize) -> Vec<DataEvent> {
        let theirs = &set.fakes[index].log;
        let ours = self.log.last().copied().unwrap_or_default();
        let Some(place) = theirs.iter().position(|entry| *entry == ours) else {
            self.task = None;
            let behind = theirs.last().copied().unwrap_or_default() < ours;
            let remedy = if behind { Remedy::ChangeSource } else { Remedy::RollBack };
            return vec![ended(id, Kind::Follow, remedy)];
        };
        self.log.extend(theirs.iter().skip(place + 1).take(batch));
        let last_fetched = self.log.last().copied().unwrap_or_default();
        vec![DataEvent::SourceMetadata {
            task: id,
            repl_data: Some(set.repl_data(index).into()),
            oplog_query_data: Some(set.oplog_query_data(index).into()),
            last_fetched,
        }]
    }

    fn roll_back(&mut self, set: &FakeSet, index: usize, id: TaskId) -> Vec<DataEvent> {
        let theirs = &set.fakes[index].log;
        let common = self.log.iter().zip(theirs).take_while(|(a, b)| a == b).count();
        self.log.truncate(common);
        self.applied = common;
        self.disk.log = self.log.clone();
        self.disk.applied = common;
        self.task = None;
        self.told = all_at(last(&self.log, common));
        self.disk.rbid += 1;
        vec![DataEvent::RollbackFinished { task: id, positions: self.told, rbid: self.disk.rbid }]
    }

    pub(super) fn last_written(&self) -> OpTime {
        self.log.last().copied().unwrap_or_default()
    }

    pub(super) fn log(&self) -> &[OpTime] {
        &self.log
    }
}

fn ended(task: TaskId, kind: Kind, remedy: Remedy) -> DataEvent {
    let why = "simulated".to_owned();
    match kind {
        Kind::InitialSync => {
            let retry_in = Duration::from_secs(1);
            DataEvent::InitialSyncFailed { task, why, retry_in }
        }
        Kind::Follow => DataEvent::FollowEnded { task, remedy, why },
        Kind::RollBack => DataEvent::RollbackFailed { task, remedy, why },
    }
}

fn positions(log: &[OpTime], durable: usize, applied: usize) -> Positions {
    Positions {
        written: last(log, log.len()),
        durable: last(log, durable),
        applied: last(log, applied),
    }
}

fn last(log: &[OpTime], len: usize) -> OpTimeAndWall {
    let at = len.checked_sub(1).and_then(|last| log.get(last));
    at.map_or(OpTimeAndWall::NULL, |op_time| with_wall(*op_time))
}
