//! The event queue of the simulation and its random choices.

use std::{collections::BTreeMap, time::Duration};

use bson::RawDocumentBuf;
use protocol::{HostAndPort, OpTime, Profile, RawDoc};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{
    checker::Checker,
    fake_set::{FakeSet, Say},
    network::Network,
    our_node::{Disk, OurNode},
};
use crate::{
    core::member_state::MemberState,
    event::{Action, Answer, Event, Now, PeerError, Request},
};

/// The state of the simulation.
pub(super) struct World {
    rng: StdRng,
    now: Duration,
    queue: BTreeMap<(Duration, u64), What>,
    order: u64,
    network: Network,
    set: FakeSet,
    ours: Option<OurNode>,
    disk: Disk,
    checker: Checker,
    /// Number of our node's current process: messages to an earlier process are not delivered.
    life: u64,
    questions: BTreeMap<u64, Question>,
    next_question: u64,
    calm: bool,
    tick: u64,
}

/// The events.
enum What {
    FakeStep(usize),
    DataStep,
    Fault,
    Boot,
    Tick { number: u64 },
    ToUs { life: u64, event: Box<Event> },
    AskUs { life: u64, question: Question, request: Request },
    ReplyToFake { question: Question, answer: Box<Answer> },
    OurHeartbeat { life: u64, index: usize, seq: u64, body: RawDocumentBuf },
    OurReport { life: u64, index: usize, seq: u64, body: RawDocumentBuf },
}

#[derive(Clone, Copy)]
enum Question {
    Heartbeat { from: usize },
    Vote { from: usize, term: i64 },
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let (fakes, we_vote) = (rng.random_range(1..=4), rng.random_bool(0.7));
        let lose_one_in = [0, 50, 10][rng.random_range(0..3)];
        let mut world = Self {
            rng,
            now: Duration::from_secs(1),
            queue: BTreeMap::new(),
            order: 0,
            network: Network::new(lose_one_in),
            set: FakeSet::new(fakes, we_vote),
            ours: None,
            disk: Disk::default(),
            checker: Checker::default(),
            life: 0,
            questions: BTreeMap::new(),
            next_question: 0,
            calm: false,
            tick: 0,
        };
        (0..fakes).for_each(|index| world.after(10, What::FakeStep(index)));
        world.after(0, What::Boot);
        world.after(20, What::DataStep);
        world.after(15_000, What::Fault);
        world
    }

    pub(super) fn run_for_secs(&mut self, secs: u64) {
        let end = self.now + Duration::from_secs(secs);
        while let Some(((at, _), what)) = self.queue.pop_first() {
            if at > end {
                self.at(at, what);
                break;
            }
            self.now = at;
            self.happen(what);
            if let Some(ours) = &self.ours {
                self.checker.check(&self.set, ours);
            }
        }
        self.now = end;
    }

    /// Ends all faults: every member is up, every link works.
    pub(super) fn heal(&mut self) {
        self.calm = true;
        self.network.heal();
        self.network.lose_one_in = 0;
        self.set.fakes.iter_mut().for_each(|fake| fake.up = true);
        if self.ours.is_none() {
            self.after(1, What::Boot);
        }
    }

    /// After a period without faults there is a primary, and our node has caught up with it.
    pub(super) fn check_settled(&self) {
        let ours = self.ours.as_ref().expect("we are up");
        let snapshot = ours.node.snapshot();
        assert_eq!(snapshot.state, MemberState::Secondary);
        let primary = self.set.fakes.iter().find(|fake| fake.primary).expect("a primary");
        assert_eq!(snapshot.term, primary.term);
        assert!(snapshot.sync_source.is_some(), "we follow nobody");
        let lag = lag_secs(primary.log.last().copied(), ours.last_written());
        assert!(lag <= 3, "{lag} s behind the primary");
        assert!(self.checker.commits() > 10, "hardly anything was committed");
    }

    /// The result of a run, to compare two runs.
    pub(super) fn digest(&self) -> String {
        let logs: Vec<String> = self
            .set
            .fakes
            .iter()
            .map(|fake| format!("{}:{:?}", fake.log.len(), fake.log.last()))
            .collect();
        let ours = self.ours.as_ref().map(|ours| (ours.log().len(), ours.last_written()));
        format!("{logs:?} {ours:?} {} {}", self.checker.elections, self.order)
    }

    fn after(&mut self, millis: u64, what: What) {
        self.at(self.now + Duration::from_millis(millis), what);
    }

    fn at(&mut self, at: Duration, what: What) {
        self.order += 1;
        self.queue.insert((at.max(self.now), self.order), what);
    }

    fn happen(&mut self, what: What) {
        match what {
            What::FakeStep(index) => self.fake_step(index),
            What::DataStep => self.data_step(),
            What::Fault => self.fault(),
            What::Boot => self.boot(),
            What::Tick { number } if number == self.tick => self.tell_us(self.life, Event::Tick),
            What::Tick { .. } => {}
            What::ToUs { life, event } => self.tell_us(life, *event),
            What::AskUs { life, question, request } if life == self.life => {
                self.next_question += 1;
                let id = self.next_question;
                self.questions.insert(id, question);
                self.tell_us(life, Event::Request { id, request });
            }
            What::AskUs { .. } => {}
            What::ReplyToFake { question, answer } => self.reply_to_fake(question, &answer),
            What::OurHeartbeat { life, index, seq, body } => {
                self.our_heartbeat(life, index, seq, &body);
            }
            What::OurReport { life, index, seq, body } => self.our_report(life, index, seq, &body),
        }
    }

    fn clocks(&self) -> Now {
        let millis = i64::try_from(self.now.as_millis()).unwrap();
        Now { mono: self.now, wall: bson::DateTime::from_millis(millis) }
    }

    fn fake_step(&mut self, index: usize) {
        let patience = Duration::from_millis(self.rng.random_range(0..3_000));
        let says = self.set.step(self.now, index, patience, &self.network);
        for say in says {
            let (question, request) = match say {
                Say::Heartbeat(body) => {
                    (Question::Heartbeat { from: index }, Request::Heartbeat(body.into()))
                }
                Say::AskVote { term, body } => {
                    (Question::Vote { from: index, term }, Request::RequestVotes(body.into()))
                }
            };
            let ours = self.set.ours();
            if let Some(delay) = self.network.send(&mut self.rng, index, ours) {
                let life = self.life;
                self.at(self.now + delay, What::AskUs { life, question, request });
            }
        }
        let pause = self.rng.random_range(300..700);
        self.after(pause, What::FakeStep(index));
    }

    fn data_step(&mut self) {
        let (sync, apply) = (self.rng.random_bool(0.3), self.rng.random_range(0..4));
        let batch = self.rng.random_range(0..6);
        if let Some(ours) = &mut self.ours {
            let mut events = ours.step(&self.set, &self.network, batch);
            events.extend(ours.settle(sync, apply));
            let life = self.life;
            events.into_iter().for_each(|event| self.tell_us(life, Event::Data(event)));
        }
        let pause = self.rng.random_range(20..150);
        self.after(pause, What::DataStep);
    }

    fn fault(&mut self) {
        if self.calm {
            return;
        }
        let members = self.set.fakes.len() + 1;
        match self.rng.random_range(0..6) {
            0 => self.network.partition(&mut self.rng, members),
            1 | 2 => {
                let index = self.rng.random_range(0..self.set.fakes.len());
                let fake = &mut self.set.fakes[index];
                fake.up = !fake.up;
                fake.primary = false;
                fake.standing = None;
            }
            3 => self.crash(),
            _ => {
                self.network.heal();
                self.set.fakes.iter_mut().for_each(|fake| fake.up = true);
            }
        }
        let pause = self.rng.random_range(1_000..20_000);
        self.after(pause, What::Fault);
    }

    fn crash(&mut self) {
        let Some(ours) = self.ours.take() else { return };
        self.disk = ours.disk;
        self.life += 1;
        let pause = self.rng.random_range(100..15_000);
        self.after(pause, What::Boot);
    }

    fn boot(&mut self) {
        if self.ours.is_none() {
            self.ours = Some(OurNode::boot(self.clocks(), self.disk.clone()));
            self.tell_us(self.life, Event::Tick);
        }
    }

    fn tell_us(&mut self, life: u64, event: Event) {
        let now = self.clocks();
        let Some(ours) = self.ours.as_mut().filter(|_| life == self.life) else { return };
        let actions = ours.event(now, event);
        let wakeup = ours.node.next_wakeup();
        for action in actions {
            self.carry_out(action);
        }
        // A new alarm replaces the old one; it fires a little late, like real ones.
        self.tick += 1;
        if let Some(at) = wakeup {
            let number = self.tick;
            self.at(at.max(self.now) + Duration::from_millis(1), What::Tick { number });
        }
    }

    fn carry_out(&mut self, action: Action) {
        let life = self.life;
        match action {
            Action::Heartbeat { target, seq, body, timeout } => {
                let index = index_of(&target);
                let delay = self.network.send(&mut self.rng, self.set.ours(), index);
                if let Some(delay) = delay {
                    self.at(self.now + delay, What::OurHeartbeat { life, index, seq, body });
                }
                let result = Err(PeerError::TimedOut(timeout));
                let event = heartbeat_done(target, seq, timeout, result);
                self.at(self.now + timeout, What::ToUs { life, event: Box::new(event) });
            }
            Action::Report { target, seq, body, timeout } => {
                let index = index_of(&target);
                let ours = self.ours.as_ref().expect("it just spoke");
                self.checker.reported(ours, i64::try_from(self.set.ours()).unwrap(), &body);
                let delay = self.network.send(&mut self.rng, self.set.ours(), index);
                if let Some(delay) = delay {
                    self.at(self.now + delay, What::OurReport { life, index, seq, body });
                }
                let event = Event::ReportDone { seq, result: Err(PeerError::TimedOut(timeout)) };
                self.at(self.now + timeout, What::ToUs { life, event: Box::new(event) });
            }
            Action::FindSelf { seq, .. } => {
                let hosts = vec!["ours:1".parse().unwrap()];
                let event = Box::new(Event::SelfFound { seq, hosts });
                self.after(5, What::ToUs { life, event });
            }
            Action::Answer { id, answer } => self.our_answer(id, answer),
            other => panic!("not for the world: {other:?}"),
        }
    }

    fn our_answer(&mut self, id: u64, answer: Answer) {
        let question = self.questions.remove(&id).expect("a question");
        let ours = self.ours.as_ref().expect("it just spoke");
        let from = match (question, &answer) {
            (Question::Heartbeat { from }, Ok(reply)) => {
                self.checker.answered(ours, reply);
                from
            }
            (Question::Vote { from, term }, Ok(reply)) => {
                let granted = reply.get_bool("voteGranted").unwrap();
                self.checker.voted(ours, term, i64::try_from(from).unwrap(), granted);
                from
            }
            (Question::Heartbeat { from } | Question::Vote { from, .. }, Err(_)) => from,
        };
        if let Some(delay) = self.network.send(&mut self.rng, self.set.ours(), from) {
            let answer = Box::new(answer);
            self.at(self.now + delay, What::ReplyToFake { question, answer });
        }
    }

    fn reply_to_fake(&mut self, question: Question, answer: &Answer) {
        let (Question::Heartbeat { from } | Question::Vote { from, .. }) = question;
        let Some(reply) = answer.as_ref().ok().filter(|_| self.set.fakes[from].up) else { return };
        match question {
            Question::Vote { term, .. } => self.set.voted(self.now, from, term, reply),
            Question::Heartbeat { .. } => {
                let durable = OpTime::from_raw(reply.get_document("durableOpTime").unwrap());
                let term = reply.get_i64("term").unwrap_or(-1);
                self.set.heard_us(from, durable.unwrap(), term);
            }
        }
    }

    fn our_heartbeat(&mut self, life: u64, index: usize, seq: u64, body: &RawDocumentBuf) {
        if !self.set.fakes[index].up {
            return;
        }
        self.set.hear_term(index, body.get_i64("term").unwrap());
        let reply = RawDoc::from(self.set.heartbeat_reply(index, body));
        if let Some(delay) = self.network.send(&mut self.rng, index, self.set.ours()) {
            let event = heartbeat_done(host_of(index), seq, delay, Ok(reply));
            self.at(self.now + delay, What::ToUs { life, event: Box::new(event) });
        }
    }

    fn our_report(&mut self, life: u64, index: usize, seq: u64, body: &RawDocumentBuf) {
        if !self.set.fakes[index].up {
            return;
        }
        self.set.report(index, body);
        if let Some(delay) = self.network.send(&mut self.rng, index, self.set.ours()) {
            let result = Ok(RawDoc::from(bson::rawdoc! { "ok": 1.0 }));
            let event = Box::new(Event::ReportDone { seq, result });
            self.at(self.now + delay, What::ToUs { life, event });
        }
    }
}

fn heartbeat_done(
    target: HostAndPort,
    seq: u64,
    rtt: Duration,
    result: Result<RawDoc, PeerError>,
) -> Event {
    Event::HeartbeatDone {
        target,
        seq,
        rtt,
        result,
        max_wire_version: Some(Profile::newest_tested().wire_version),
    }
}

fn host_of(index: usize) -> HostAndPort {
    HostAndPort::new(format!("fake{index}"), 1)
}

fn index_of(host: &HostAndPort) -> usize {
    host.host.strip_prefix("fake").and_then(|index| index.parse().ok()).expect("a fake")
}

fn lag_secs(theirs: Option<OpTime>, ours: OpTime) -> u32 {
    theirs.unwrap_or_default().ts.secs().saturating_sub(ours.ts.secs())
}
