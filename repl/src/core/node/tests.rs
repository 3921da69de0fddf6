use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};
use protocol::{ErrorCode, OpTimeAndWall, Profile, Release, Timestamp};

use super::*;
use crate::event::{Answer, Persist, Remedy, Request, SyncSource, TaskId};

const PRIMARY: &str = "p:1";
const OTHER: &str = "s:1";
const ME: &str = "me:1";

/// Test harness: a node and the actions it has emitted.
struct Bench {
    node: Node,
    now: Now,
    heartbeats: Vec<(HostAndPort, u64, RawDocumentBuf)>,
    reports: Vec<(HostAndPort, u64, RawDocumentBuf)>,
    searches: Vec<u64>,
    data: Vec<DataAction>,
    /// Persists and answers, in order.
    trail: Vec<String>,
    answers: Vec<Answer>,
    warnings: Vec<String>,
}

fn at(secs: u32, term: i64) -> OpTimeAndWall {
    OpTimeAndWall {
        op_time: OpTime::new(Timestamp::new(secs, 1), term),
        wall: bson::DateTime::from_millis(i64::from(secs) * 1000),
    }
}

fn positions(written: u32, durable: u32, applied: u32) -> Positions {
    Positions { written: at(written, 1), durable: at(durable, 1), applied: at(applied, 1) }
}

fn config(version: i32, members: &[(&str, RawDocumentBuf)]) -> RawDoc {
    let mut list = RawArrayBuf::new();
    for (id, (host, extra)) in members.iter().enumerate() {
        let mut member = rawdoc! { "_id": i32::try_from(id).unwrap(), "host": *host };
        extra.iter().for_each(|field| {
            let (key, value) = field.unwrap();
            member.append(key, value);
        });
        list.push(member);
    }
    let set_id = ObjectId::from_bytes([7; 12]);
    rawdoc! {
        "_id": "rs0", "version": version, "term": 1i64, "members": list,
        "settings": { "replicaSetId": set_id },
    }
    .into()
}

fn hidden() -> RawDocumentBuf {
    rawdoc! { "hidden": true, "priority": 0, "votes": 0 }
}

fn usual(version: i32) -> RawDoc {
    config(version, &[(PRIMARY, rawdoc! {}), (OTHER, rawdoc! {}), (ME, hidden())])
}

fn start() -> Start {
    Start {
        set_name: "rs0".to_owned(),
        process_id: ObjectId::from_bytes([1; 12]),
        config: None,
        last_vote: None,
        profile: None,
        profile_pinned: false,
        positions: Positions::default(),
        initial_sync_done: false,
        rbid: 1,
        lost_tail: None,
        damage: None,
    }
}

impl Bench {
    fn new(start: Start) -> Self {
        let now =
            Now { mono: Duration::from_secs(1000), wall: bson::DateTime::from_millis(1_000_000) };
        let mut bench = Self {
            node: Node::new(now, start).unwrap(),
            now,
            heartbeats: Vec::new(),
            reports: Vec::new(),
            searches: Vec::new(),
            data: Vec::new(),
            trail: Vec::new(),
            answers: Vec::new(),
            warnings: Vec::new(),
        };
        bench.event(Event::Tick);
        bench
    }

    /// A node that has finished its initial sync at 100 and follows the primary, which is at 100.
    fn following() -> Self {
        let mut bench = Self::new(Start {
            config: Some(usual(2)),
            positions: positions(100, 100, 100),
            initial_sync_done: true,
            ..start()
        });
        bench.found(&[ME]);
        bench.hear(PRIMARY, 1, 100);
        bench.hear(OTHER, 2, 100);
        bench.pass(1);
        bench
    }

    fn event(&mut self, event: Event) {
        let actions = self.node.on_event(self.now, event);
        for action in actions {
            match action {
                Action::Heartbeat { target, seq, body, .. } => {
                    self.heartbeats.push((target, seq, body));
                }
                Action::Report { target, seq, body, .. } => self.reports.push((target, seq, body)),
                Action::FindSelf { seq, .. } => self.searches.push(seq),
                Action::Persist(Persist::Config(_)) => self.trail.push("config".to_owned()),
                Action::Persist(Persist::LastVote(vote)) => {
                    self.trail.push(format!("vote in {}", vote.term));
                }
                Action::Persist(Persist::Profile(profile)) => {
                    self.trail.push(format!("profile {}", profile.fcv));
                }
                Action::Answer { answer, .. } => {
                    self.trail.push("answer".to_owned());
                    self.answers.push(answer);
                }
                Action::Data(action) => self.data.push(action),
                Action::Log(log) if log.level == LogLevel::Warn => self.warnings.push(log.text),
                Action::Members(_) | Action::Log(_) => {}
            }
        }
    }

    fn pass(&mut self, secs: u64) {
        self.now.mono += Duration::from_secs(secs);
        self.event(Event::Tick);
    }

    fn found(&mut self, hosts: &[&str]) {
        let seq = self.searches.pop().expect("nobody was asked who we are");
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        self.event(Event::SelfFound { seq, hosts });
    }

    /// Replies to the open heartbeat to `host`, waiting for it if necessary.
    fn reply(&mut self, host: &str, result: Result<RawDocumentBuf, PeerError>) {
        let target: HostAndPort = host.parse().unwrap();
        for _ in 0..20 {
            if self.heartbeats.iter().any(|(to, ..)| *to == target) {
                break;
            }
            self.now.mono += Duration::from_millis(250);
            self.event(Event::Tick);
        }
        let index =
            self.heartbeats.iter().position(|(to, ..)| *to == target).expect("no heartbeat");
        let (target, seq, _) = self.heartbeats.remove(index);
        self.event(Event::HeartbeatDone {
            target,
            seq,
            rtt: Duration::from_millis(1),
            result: result.map(RawDoc::from),
            max_wire_version: Some(27),
        });
    }

    fn hear(&mut self, host: &str, state: i32, secs: u32) {
        self.reply(host, Ok(reply(state, secs, 1)));
    }

    fn fail(&mut self, host: &str) {
        for _ in 0..3 {
            self.reply(host, Err(PeerError::Network("refused".to_owned())));
        }
    }

    fn ask(&mut self, request: Request) -> Answer {
        self.event(Event::Request { id: 1, request });
        self.answers.pop().expect("no answer")
    }

    fn tell(&mut self, event: DataEvent) {
        self.event(Event::Data(event));
    }

    fn state(&self) -> MemberState {
        self.node.state()
    }

    /// The last task that was given.
    fn task(&self) -> (TaskId, &DataAction) {
        self.data
            .iter()
            .rev()
            .find_map(|action| match action {
                DataAction::StartInitialSync { task, .. }
                | DataAction::Follow { task, .. }
                | DataAction::RollBack { task, .. } => Some((*task, action)),
                _ => None,
            })
            .expect("no task")
    }

    fn stopped(&self) -> bool {
        matches!(self.data.last(), Some(DataAction::Stop { .. }))
    }

    fn metadata(&mut self, committed: u32, applied: u32, set_id: u8) {
        let repl_data = rawdoc! {
            "term": 1i64, "lastOpCommitted": at(committed, 1).op_time.to_raw(),
            "lastCommittedWall": at(committed, 1).wall, "lastOpVisible": at(committed, 1).op_time.to_raw(),
            "configVersion": 2i64, "configTerm": 1i64,
            "replicaSetId": ObjectId::from_bytes([set_id; 12]), "syncSourceIndex": -1, "isPrimary": true,
        };
        let oplog_query_data = rawdoc! {
            "lastOpApplied": at(applied, 1).op_time.to_raw(), "syncSourceIndex": -1, "primaryIndex": 0,
        };
        let (task, _) = self.task();
        let last_fetched = self.node.positions.written.op_time;
        self.tell(DataEvent::SourceMetadata {
            task,
            repl_data: Some(repl_data.into()),
            oplog_query_data: Some(oplog_query_data.into()),
            last_fetched,
        });
    }
}

fn reply(state: i32, secs: u32, term: i64) -> RawDocumentBuf {
    let (op_time, wall) = (at(secs, term).op_time.to_raw(), at(secs, term).wall);
    rawdoc! {
        "ok": 1.0, "state": state, "v": 2, "configTerm": 1i64, "set": "rs0", "term": term,
        "opTime": op_time.clone(), "wallTime": wall, "durableOpTime": op_time, "durableWallTime": wall,
    }
}

fn heartbeat_from(host: &str, id: i32, version: i32) -> Request {
    let doc = rawdoc! {
        "replSetHeartbeat": "rs0", "configVersion": version, "configTerm": 1i64, "hbv": 1,
        "from": host, "fromId": id, "term": 1i64, "primaryId": 0,
    };
    Request::Heartbeat(doc.into())
}

fn vote_request(term: i64, candidate: i32, dry_run: bool) -> Request {
    let op_time = at(500, 1).op_time.to_raw();
    let doc = rawdoc! {
        "replSetRequestVotes": 1, "setName": "rs0", "dryRun": dry_run, "term": term, "candidateIndex": candidate,
        "configVersion": 2, "configTerm": 1i64, "lastWrittenOpTime": op_time.clone(), "lastAppliedOpTime": op_time,
    };
    Request::RequestVotes(doc.into())
}

#[test]
fn an_unknown_node_joins_and_syncs() {
    let mut bench = Bench::new(start());
    assert_eq!(bench.state(), MemberState::Startup);
    bench.event(Event::InternalClient { max_wire_version: 13 });
    let answer = bench.ask(heartbeat_from(PRIMARY, 0, 2)).unwrap();
    assert_eq!((answer.get_i32("state").unwrap(), answer.get_i32("v").unwrap()), (0, -2));
    assert!(answer.get("term").unwrap().is_none());
    let (to, _, body) = bench.heartbeats.last().unwrap();
    assert_eq!((to.to_string().as_str(), body.get_i64("configVersion").unwrap()), (PRIMARY, -2));
    assert_eq!((body.get_str("from").unwrap(), body.get_i64("fromId").unwrap()), ("", -1));

    let mut with_config = reply(1, 100, 1);
    with_config.append(bson::raw::cstr!("config"), usual(2).as_raw());
    bench.reply(PRIMARY, Ok(with_config));
    bench.found(&[ME]);
    assert_eq!(bench.state(), MemberState::Startup2);
    assert!(bench.trail.contains(&"config".to_owned()));
    assert!(
        matches!(&bench.data[0], DataAction::Configure(own) if own.member_id == 2 && !own.votes)
    );

    bench.hear(PRIMARY, 1, 100);
    assert_eq!(bench.data.len(), 1, "nobody is chosen before all were asked");
    bench.fail(OTHER);
    bench.pass(1);
    let source = SyncSource { host: PRIMARY.parse().unwrap(), member_id: 0 };
    let (task, action) = bench.task();
    assert_eq!(*action, DataAction::StartInitialSync { task, source: source.clone() });
    let answer = bench.ask(heartbeat_from(PRIMARY, 0, 2)).unwrap();
    assert_eq!(answer.get_i32("state").unwrap(), 5);
    assert_eq!(OpTime::from_raw(answer.get_document("opTime").unwrap()), Some(OpTime::NULL));
    assert!(bench.reports.is_empty(), "nothing is reported during initial sync");

    bench.tell(DataEvent::InitialSyncFinished { task, applied: at(100, 1) });
    assert_eq!(bench.state(), MemberState::Secondary);
    let (follow, action) = bench.task();
    assert_eq!(*action, DataAction::Follow { task: follow, source });
    assert_eq!(bench.reports.len(), 1);
}

#[test]
fn the_version_of_the_first_peer_is_shown_and_kept() {
    let mut bench = Bench::new(start());
    bench.event(Event::InternalClient { max_wire_version: 13 });
    assert_eq!(bench.node.snapshot().profile.fcv, "5.0");
    assert_eq!(bench.trail, ["profile 5.0"]);
    let mut pinned =
        Bench::new(Start { profile: Profile::named("4.4"), profile_pinned: true, ..start() });
    pinned.event(Event::InternalClient { max_wire_version: 27 });
    assert_eq!(pinned.node.snapshot().profile.fcv, "4.4");
}

#[test]
fn a_release_from_the_future_is_shown_as_the_newest_and_warned_of_once() {
    let mut bench = Bench::new(start());
    for _ in 0..2 {
        bench.event(Event::InternalClient { max_wire_version: 99 });
    }
    assert_eq!(bench.node.snapshot().profile.release, Release::NEWEST);
    let warning = bench.node.unknown_release.as_deref().unwrap();
    assert!(warning.contains("wire version 99"), "{warning}");
    assert_eq!(bench.warnings.iter().filter(|text| *text == warning).count(), 1);
}

#[test]
fn after_a_restart_it_follows_at_once_and_reports_what_it_has() {
    let bench = Bench::following();
    assert_eq!(bench.state(), MemberState::Secondary);
    assert!(matches!(bench.task().1, DataAction::Follow { .. }));
    let (to, _, body) = &bench.reports[0];
    assert_eq!(to.to_string(), PRIMARY);
    let own = body.get_array("optimes").unwrap().get_document(2).unwrap();
    assert_eq!(own.get_i64("memberId").unwrap(), 2);
    assert!(bench.trail.is_empty(), "nothing new to persist: {:?}", bench.trail);
}

/// The node's actions in an hour in which the primary dies and returns, while the wall clock jumps by `jump`
/// milliseconds again and again.
fn an_hour_with_a_clock_that_jumps(jump: i64) -> Vec<String> {
    let mut bench = Bench::following();
    let mut seen = Vec::new();
    for round in 0..60 {
        let wrong = if round % 2 == 0 { jump } else { -jump };
        bench.now.wall =
            bson::DateTime::from_millis(bench.now.wall.timestamp_millis().saturating_add(wrong));
        if (20..40).contains(&round) {
            bench.fail(PRIMARY);
        } else {
            bench.hear(PRIMARY, 1, 100 + round);
        }
        bench.hear(OTHER, 2, 100 + round);
        bench.pass(60);
        let beats: Vec<String> =
            bench.heartbeats.iter().map(|(to, seq, _)| format!("{to} {seq}")).collect();
        seen.push(format!(
            "{:?} {beats:?} {:?} {}",
            bench.state(),
            bench.data,
            bench.reports.len()
        ));
    }
    seen
}

#[test]
fn a_clock_that_jumps_changes_nothing_that_it_does() {
    const YEAR_MILLIS: i64 = 365 * 24 * 3600 * 1000;
    let even = an_hour_with_a_clock_that_jumps(0);
    for jump in [1, 60_000, YEAR_MILLIS, -YEAR_MILLIS, i64::MAX] {
        assert_eq!(an_hour_with_a_clock_that_jumps(jump), even, "by {jump} ms");
    }
    assert!(even.iter().any(|line| line != &even[0]), "something happens in it");
}

#[test]
fn reports_follow_progress_one_at_a_time() {
    let mut bench = Bench::following();
    let seq = bench.reports[0].1;
    bench.tell(DataEvent::Progress { rbid: 1, positions: positions(110, 105, 104) });
    bench.tell(DataEvent::Progress { rbid: 1, positions: positions(112, 110, 104) });
    assert_eq!(bench.reports.len(), 1, "one is under way");
    bench.event(Event::ReportDone { seq, result: Ok(rawdoc! { "ok": 1.0 }.into()) });
    assert_eq!(bench.reports.len(), 2);
    let own = bench.reports[1].2.get_array("optimes").unwrap().get_document(2).unwrap();
    let durable = OpTime::from_raw(own.get_document("durableOpTime").unwrap());
    assert_eq!(durable, Some(at(110, 1).op_time));
    let seq = bench.reports[1].1;
    bench.event(Event::ReportDone { seq, result: Ok(rawdoc! { "ok": 1.0 }.into()) });
    assert_eq!(bench.reports.len(), 2, "nothing has moved");
    bench.pass(5);
    assert_eq!(bench.reports.len(), 3, "keepalive");
}

#[test]
fn the_vote_is_durable_before_the_answer_and_given_once() {
    let mut bench = Bench::following();
    assert!(bench.ask(vote_request(2, 1, true)).unwrap().get_bool("voteGranted").unwrap());
    assert_eq!(bench.trail, ["answer"], "a dry run leaves nothing");
    bench.trail.clear();
    let answer = bench.ask(vote_request(2, 1, false)).unwrap();
    assert_eq!(
        (answer.get_bool("voteGranted").unwrap(), answer.get_i64("term").unwrap()),
        (true, 2)
    );
    assert_eq!(bench.trail, ["vote in 2", "answer"]);
    let answer = bench.ask(vote_request(2, 0, false)).unwrap();
    let reason = "already voted for another candidate (s:1) this term (2)";
    assert_eq!(answer.get_str("reason").unwrap(), reason);
    assert_eq!(bench.ask(vote_request(9, 9, false)).unwrap_err().code, ErrorCode::BadValue);

    let mut again = Bench::new(Start {
        config: Some(usual(2)),
        last_vote: Some(LastVote { term: 2, candidate_index: 1 }),
        positions: positions(100, 100, 100),
        initial_sync_done: true,
        ..start()
    });
    again.found(&[ME]);
    let answer = again.ask(vote_request(2, 0, false)).unwrap();
    assert_eq!(answer.get_str("reason").unwrap(), reason, "after a restart, too");
}

#[test]
fn removed_and_back() {
    let mut bench = Bench::following();
    let without_us = config(3, &[(PRIMARY, rawdoc! {}), (OTHER, rawdoc! {})]);
    let mut answer = reply(1, 100, 1);
    answer.append(bson::raw::cstr!("config"), without_us.as_raw());
    bench.reply(PRIMARY, Ok(answer));
    bench.found(&[]);
    assert_eq!(bench.state(), MemberState::Removed);
    assert!(bench.stopped());
    let refused = bench.ask(heartbeat_from(PRIMARY, 0, 3)).unwrap_err();
    assert_eq!(refused.code, ErrorCode::InvalidReplicaSetConfig);
    let (task, _) = bench.task();
    bench.tell(DataEvent::FollowEnded { task, remedy: Remedy::Retry, why: String::new() });

    let mut answer = reply(1, 100, 1);
    answer.append(bson::raw::cstr!("config"), usual(4).as_raw());
    bench.reply(PRIMARY, Ok(answer));
    bench.found(&[ME]);
    assert_eq!(bench.state(), MemberState::Secondary, "no new initial sync is needed");
    bench.pass(1);
    assert!(matches!(bench.task(), (next, DataAction::Follow { .. }) if next != task));
}

#[test]
fn two_members_that_are_us_are_one_too_many_and_a_lost_name_is_looked_for_again() {
    let mut bench =
        Bench::new(Start { config: Some(usual(2)), initial_sync_done: true, ..start() });
    bench.found(&[ME, OTHER]);
    assert_eq!(bench.state(), MemberState::Removed);
    bench.pass(40);
    bench.found(&[ME]);
    assert_eq!(bench.state(), MemberState::Secondary);
}

#[test]
fn another_set_is_refused() {
    let mut bench = Bench::following();
    let doc = rawdoc! { "replSetHeartbeat": "rs1", "configVersion": 9, "hbv": 1, "from": "x:1", "term": 1i64 };
    let refused = bench.ask(Request::Heartbeat(doc.into())).unwrap_err();
    assert_eq!(refused.code, ErrorCode::InconsistentReplicaSetNames);
    assert_eq!(
        refused.message,
        "Our set name of rs0 does not match name rs1 reported by remote node"
    );
    let ours = bench.ask(heartbeat_from("x:1", 2, 2)).unwrap_err();
    assert_eq!(ours.code, ErrorCode::BadValue);

    let other = ObjectId::from_bytes([9; 12]);
    let mut foreign = RawDocumentBuf::new();
    for field in usual(9).iter() {
        let (key, value) = field.unwrap();
        match key.as_str() {
            "settings" => foreign.append(key, rawdoc! { "replicaSetId": other }),
            _ => foreign.append(key, value),
        }
    }
    let mut answer = reply(1, 100, 1);
    answer.append(bson::raw::cstr!("config"), foreign);
    bench.reply(PRIMARY, Ok(answer));
    assert_eq!(bench.node.snapshot().config.unwrap().version_and_term.version, 2);
    bench.metadata(100, 100, 9);
    assert!(bench.stopped(), "a source of another set is left");
}

#[test]
fn a_source_is_left_when_asked_and_the_next_one_followed() {
    let mut bench = Bench::following();
    bench.hear(OTHER, 2, 200);
    let asked = bench.ask(Request::SyncFrom(rawdoc! { "replSetSyncFrom": OTHER }.into())).unwrap();
    assert_eq!(asked.get_str("prevSyncTarget").unwrap(), PRIMARY);
    assert!(bench.stopped());
    let (task, _) = bench.task();
    bench.tell(DataEvent::FollowEnded { task, remedy: Remedy::Retry, why: String::new() });
    assert!(
        matches!(bench.task().1, DataAction::Follow { source, .. } if source.host.to_string() == OTHER)
    );
    let refuse = |bench: &mut Bench, host: &str| {
        bench.ask(Request::SyncFrom(rawdoc! { "replSetSyncFrom": host }.into())).unwrap_err()
    };
    assert_eq!(refuse(&mut bench, ME).message, "I cannot sync from myself");
    assert_eq!(refuse(&mut bench, "x:1").code, ErrorCode::NodeNotFound);
}

#[test]
fn a_dead_primary_is_left_for_the_next_one() {
    let mut bench = Bench::following();
    let (task, _) = bench.task();
    bench.tell(DataEvent::FollowEnded { task, remedy: Remedy::Retry, why: "reset".to_owned() });
    bench.fail(PRIMARY);
    assert_eq!(bench.node.snapshot().primary(), None);
    bench.reply(OTHER, Ok(reply(1, 100, 2)));
    bench.pass(5);
    let snapshot = bench.node.snapshot();
    assert_eq!(snapshot.primary().unwrap().to_string(), OTHER);
    assert_eq!(snapshot.term, 2);
    assert!(
        matches!(bench.task().1, DataAction::Follow { source, .. } if source.host.to_string() == OTHER)
    );
}

#[test]
fn too_stale_for_all_is_recovering_until_somebody_helps() {
    let mut bench = Bench::following();
    for _ in 0..2 {
        bench.hear(OTHER, 2, 200);
        let (task, _) = bench.task();
        bench.tell(DataEvent::FollowEnded { task, remedy: Remedy::Resync, why: String::new() });
    }
    bench.pass(1);
    assert_eq!(bench.state(), MemberState::Recovering);
    let status = bench.ask(Request::Status(rawdoc! {}.into())).unwrap();
    assert!(status.get_bool("tooStale").unwrap());
    bench.pass(70);
    bench.hear(PRIMARY, 1, 300);
    bench.pass(1);
    bench.metadata(300, 300, 7);
    assert_eq!(bench.state(), MemberState::Secondary);
}

#[test]
fn a_halt_is_recovering_with_its_reason() {
    let mut bench = Bench::following();
    bench.tell(DataEvent::Halted { why: "entry of unknown kind 'x'".to_owned() });
    assert_eq!(bench.state(), MemberState::Recovering);
    assert!(bench.stopped());
    let status = bench.ask(Request::Status(rawdoc! {}.into())).unwrap();
    let own = status.get_array("members").unwrap().get_document(2).unwrap();
    assert_eq!(own.get_str("infoMessage").unwrap(), "entry of unknown kind 'x'");
    let (task, _) = bench.task();
    bench.tell(DataEvent::FollowEnded { task, remedy: Remedy::Retry, why: String::new() });
    bench.pass(60);
    assert_eq!(bench.task().0, task, "no new task");
    assert!(!bench.heartbeats.is_empty(), "heartbeats go on");
}

#[test]
fn a_rollback_is_seen_and_ends_where_the_data_plane_says() {
    let mut bench = Bench::following();
    bench.tell(DataEvent::Progress { rbid: 1, positions: positions(120, 120, 120) });
    let (task, _) = bench.task();
    bench.tell(DataEvent::FollowEnded { task, remedy: Remedy::RollBack, why: String::new() });
    assert_eq!(bench.state(), MemberState::Rollback);
    let (task, action) = bench.task();
    assert!(matches!(action, DataAction::RollBack { .. }));
    bench.tell(DataEvent::RollbackId(2));
    assert_eq!(bench.node.snapshot().rbid, 2, "before anything is taken back");
    bench.tell(DataEvent::RollbackFinished { task, positions: positions(110, 110, 110), rbid: 2 });
    assert_eq!(bench.state(), MemberState::Secondary);
    let snapshot = bench.node.snapshot();
    assert_eq!((snapshot.rbid, snapshot.positions), (2, positions(110, 110, 110)));
    bench.tell(DataEvent::Progress { rbid: 1, positions: positions(120, 120, 120) });
    assert_eq!(
        bench.node.snapshot().positions,
        positions(110, 110, 110),
        "positions that were read before the rollback are not told after it"
    );
    bench.tell(DataEvent::Progress { rbid: 2, positions: positions(111, 111, 111) });
    assert_eq!(bench.node.snapshot().positions, positions(111, 111, 111));
}

#[test]
fn a_node_that_lost_what_it_acknowledged_neither_votes_nor_shows_positions_until_it_has_it_again() {
    let mut bench = Bench::new(Start {
        config: Some(usual(2)),
        positions: positions(100, 100, 100),
        initial_sync_done: true,
        lost_tail: Some(at(120, 1).op_time),
        ..start()
    });
    bench.found(&[ME]);
    bench.hear(PRIMARY, 1, 130);
    bench.hear(OTHER, 2, 130);
    bench.pass(1);
    assert_eq!(bench.state(), MemberState::Recovering);
    assert!(matches!(bench.task().1, DataAction::Follow { .. }), "it follows");
    let answer = bench.ask(vote_request(2, 1, false)).unwrap();
    assert!(!answer.get_bool("voteGranted").unwrap());
    assert!(bench.trail.iter().all(|what| !what.starts_with("vote")), "{:?}", bench.trail);
    let shown = |bench: &mut Bench| {
        let answer = bench.ask(heartbeat_from(PRIMARY, 0, 2)).unwrap();
        OpTime::from_raw(answer.get_document("durableOpTime").unwrap()).unwrap()
    };
    assert_eq!(shown(&mut bench), OpTime::NULL);
    bench.tell(DataEvent::Progress { rbid: 1, positions: positions(120, 120, 119) });
    assert_eq!((bench.state(), shown(&mut bench)), (MemberState::Recovering, OpTime::NULL));
    for (_, _, report) in &bench.reports {
        let own = report.get_array("optimes").unwrap().into_iter().any(|element| {
            element.unwrap().as_document().unwrap().get_i64("memberId").unwrap() == 2
        });
        assert!(!own, "nothing is acknowledged: {report:?}");
    }
    bench.tell(DataEvent::Progress { rbid: 1, positions: positions(125, 125, 120) });
    assert_eq!(bench.state(), MemberState::Secondary);
    assert_eq!(shown(&mut bench), at(125, 1).op_time);
    assert!(bench.ask(vote_request(3, 1, false)).unwrap().get_bool("voteGranted").unwrap());
}

#[test]
fn a_node_whose_store_is_damaged_is_recovering_without_vote_and_position() {
    let mut bench = Bench::following();
    assert_eq!(bench.state(), MemberState::Secondary);
    bench.tell(DataEvent::Damaged { why: "tables/3 is damaged".to_owned() });
    assert_eq!(bench.state(), MemberState::Recovering);
    assert!(!bench.ask(vote_request(2, 1, false)).unwrap().get_bool("voteGranted").unwrap());
    let answer = bench.ask(heartbeat_from(PRIMARY, 0, 2)).unwrap();
    let durable = OpTime::from_raw(answer.get_document("durableOpTime").unwrap()).unwrap();
    assert_eq!(durable, OpTime::NULL);
    bench.pass(60);
    assert_eq!(bench.state(), MemberState::Recovering);
}

/// A node whose rollback failed permanently.
fn halted() -> (Bench, TaskId) {
    let mut bench = Bench::following();
    let (task, _) = bench.task();
    bench.tell(DataEvent::FollowEnded { task, remedy: Remedy::RollBack, why: String::new() });
    let (task, _) = bench.task();
    let why = "the common point is too old".to_owned();
    bench.tell(DataEvent::RollbackFailed { task, remedy: Remedy::Halt, why });
    assert_eq!(bench.state(), MemberState::Recovering);
    assert!(bench.node.snapshot().past_only);
    (bench, task)
}

#[test]
fn a_halted_node_tries_again_when_something_changes_and_stays_out_of_service_till_then() {
    let by_parameter = |bench: &mut Bench| {
        bench.event(Event::TryAgain { because: "a parameter has changed".to_owned() });
    };
    let by_source = |bench: &mut Bench| {
        bench.ask(Request::SyncFrom(rawdoc! { "replSetSyncFrom": OTHER }.into())).unwrap();
    };
    let by_config = |bench: &mut Bench| {
        let mut answer = reply(1, 100, 1);
        answer.append(bson::raw::cstr!("config"), usual(3).as_raw());
        bench.reply(PRIMARY, Ok(answer));
    };
    let by_primary = |bench: &mut Bench| {
        bench.hear(PRIMARY, 2, 100);
        bench.reply(OTHER, Ok(reply(1, 100, 2)));
    };
    let changes: [fn(&mut Bench); 4] = [by_parameter, by_source, by_config, by_primary];
    for (number, change) in changes.into_iter().enumerate() {
        let (mut bench, task) = halted();
        bench.pass(30);
        assert_eq!(bench.task().0, task, "nothing changed yet");
        change(&mut bench);
        bench.hear(PRIMARY, 1, 100);
        bench.hear(OTHER, 2, 100);
        bench.pass(3);
        assert_ne!(bench.task().0, task, "change {number}");
        assert_eq!(bench.state(), MemberState::Recovering, "till a source has our last entry");
        bench.metadata(100, 100, 7);
        assert_eq!(bench.state(), MemberState::Secondary, "change {number}");
        assert!(!bench.node.snapshot().past_only);
    }
}

#[test]
fn the_commit_point_follows_the_source_and_stable_what_is_applied() {
    let mut bench = Bench::following();
    bench.tell(DataEvent::Progress { rbid: 1, positions: positions(120, 120, 110) });
    bench.metadata(115, 130, 7);
    let snapshot = bench.node.snapshot();
    assert_eq!((snapshot.committed, snapshot.stable), (at(115, 1), at(110, 1).op_time));
    let told = DataAction::CommitPoint { committed: at(115, 1), stable: at(110, 1).op_time };
    assert!(bench.data.contains(&told));
    bench.tell(DataEvent::Progress { rbid: 1, positions: positions(120, 120, 120) });
    assert_eq!(bench.node.snapshot().stable, at(115, 1).op_time);
}

#[test]
fn maintenance_is_counted_and_changes_the_topology() {
    let mut bench = Bench::following();
    let counter = bench.node.snapshot().topology_counter;
    let mut maintain = |on: bool| {
        let answer = bench.ask(Request::Maintenance(rawdoc! { "replSetMaintenance": on }.into()));
        (answer.map_err(|e| e.message).err(), bench.state())
    };
    assert_eq!(maintain(true), (None, MemberState::Recovering));
    assert_eq!(maintain(true), (None, MemberState::Recovering));
    assert_eq!(maintain(false), (None, MemberState::Recovering));
    assert_eq!(maintain(false), (None, MemberState::Secondary));
    assert_eq!(maintain(false).0.as_deref(), Some("already out of maintenance mode"));
    assert_eq!(bench.node.snapshot().topology_counter, counter + 2);
}

#[test]
fn commands_for_leaders_are_refused_in_mongods_words() {
    let mut bench = Bench::following();
    let mut text = |request: Request| bench.ask(request).unwrap_err().message;
    let empty = || RawDoc::from(rawdoc! {});
    assert_eq!(text(Request::StepUp(empty())), "Election failed.");
    assert_eq!(
        text(Request::StepDown(rawdoc! { "replSetStepDown": 60 }.into())),
        "not primary so can't step down"
    );
    assert_eq!(
        text(Request::StepDown(
            rawdoc! { "replSetStepDown": 5, "secondaryCatchUpPeriodSecs": 10 }.into()
        )),
        "stepdown period must be longer than secondaryCatchUpPeriodSecs"
    );
    assert!(text(Request::Reconfig(empty())).ends_with("Current state SECONDARY;"));
    assert_eq!(text(Request::Initiate(empty())), "already initialized");
    let mut fresh = Bench::new(start());
    let refused = fresh.ask(Request::Status(empty())).unwrap_err();
    assert_eq!(refused.message, "no replset config has been received");
}

#[test]
fn a_stored_config_of_another_set_does_not_start() {
    let now = Now { mono: Duration::ZERO, wall: bson::DateTime::from_millis(0) };
    let start = Start { set_name: "rs9".to_owned(), config: Some(usual(2)), ..start() };
    assert!(matches!(Node::new(now, start), Err(StartError::OtherSet { .. })));
}

#[test]
fn a_config_without_us_is_not_kept_by_a_node_that_never_had_one() {
    let mut bench = Bench::new(start());
    bench.ask(heartbeat_from(PRIMARY, 0, 2)).unwrap();
    for (version, members) in
        [(1, vec![(PRIMARY, rawdoc! {})]), (2, vec![(PRIMARY, rawdoc! {}), (ME, hidden())])]
    {
        let mut answer = reply(1, 100, 1);
        answer.append(bson::raw::cstr!("config"), config(version, &members).as_raw());
        bench.reply(PRIMARY, Ok(answer));
        bench.found(if version == 1 { &[] } else { &[ME] });
        let expected = if version == 1 { MemberState::Startup } else { MemberState::Startup2 };
        assert_eq!(bench.state(), expected);
        assert_eq!(bench.trail.contains(&"config".to_owned()), version == 2);
    }
}

#[test]
fn a_member_that_never_answers_does_not_keep_us_from_choosing() {
    let mut bench = Bench::new(Start {
        config: Some(usual(2)),
        positions: positions(100, 100, 100),
        initial_sync_done: true,
        ..start()
    });
    bench.found(&[ME]);
    bench.hear(PRIMARY, 1, 200);
    bench.pass(1);
    assert!(!bench.data.iter().any(|action| matches!(action, DataAction::Follow { .. })));
    bench.pass(2);
    assert!(matches!(bench.task().1, DataAction::Follow { .. }));
}

#[test]
fn a_lost_source_makes_us_ask_everybody_at_once() {
    let mut bench = Bench::following();
    bench.tell(DataEvent::Progress { rbid: 1, positions: positions(150, 150, 150) });
    bench.hear(PRIMARY, 1, 140);
    bench.heartbeats.clear();
    let (task, _) = bench.task();
    bench.tell(DataEvent::FollowEnded { task, remedy: Remedy::Retry, why: String::new() });
    bench.pass(1);
    let asked: Vec<String> = bench.heartbeats.iter().map(|(host, ..)| host.to_string()).collect();
    assert!(asked.contains(&PRIMARY.to_owned()), "asked {asked:?}");
    assert_eq!(bench.task().0, task, "the primary seems to be behind us");
    bench.hear(PRIMARY, 1, 160);
    assert_ne!(bench.task().0, task, "no further pause");
}

#[test]
fn the_only_source_is_tried_again_soon_and_another_one_at_once() {
    for (other, expected) in [(200, OTHER), (50, PRIMARY)] {
        let mut bench = Bench::following();
        bench.tell(DataEvent::Progress { rbid: 1, positions: positions(150, 150, 150) });
        bench.hear(PRIMARY, 1, 200);
        bench.hear(OTHER, 2, other);
        let (task, _) = bench.task();
        let why = "sent garbage".to_owned();
        bench.tell(DataEvent::FollowEnded { task, remedy: Remedy::ChangeSource, why });
        bench.pass(2);
        let (next, action) = bench.task();
        assert_ne!(next, task);
        assert!(
            matches!(action, DataAction::Follow { source, .. } if source.host.to_string() == expected)
        );
    }
}

#[test]
fn a_rollback_whose_source_dies_is_tried_with_the_next_one() {
    let mut bench = Bench::following();
    bench.tell(DataEvent::Progress { rbid: 1, positions: positions(120, 120, 120) });
    let (task, _) = bench.task();
    bench.tell(DataEvent::FollowEnded { task, remedy: Remedy::RollBack, why: String::new() });
    let (task, _) = bench.task();
    let why = "the connection broke".to_owned();
    bench.tell(DataEvent::RollbackFailed { task, remedy: Remedy::Retry, why });
    assert_eq!(bench.state(), MemberState::Secondary, "as a mongod, on the lost branch");
    let snapshot = bench.node.snapshot();
    assert_eq!((snapshot.rbid, snapshot.positions), (1, positions(120, 120, 120)));
    bench.fail(PRIMARY);
    bench.reply(OTHER, Ok(reply(1, 130, 2)));
    bench.pass(2);
    let (next, action) = bench.task();
    assert_ne!(next, task);
    assert!(
        matches!(action, DataAction::Follow { source, .. } if source.host.to_string() == OTHER)
    );
}

#[test]
fn without_a_common_point_with_anybody_it_is_too_stale() {
    let mut bench = Bench::following();
    for _ in 0..2 {
        bench.hear(OTHER, 2, 200);
        let (task, _) = bench.task();
        bench.tell(DataEvent::FollowEnded { task, remedy: Remedy::RollBack, why: String::new() });
        let (task, action) = bench.task();
        assert!(matches!(action, DataAction::RollBack { .. }));
        let why = "no entry is shared".to_owned();
        bench.tell(DataEvent::RollbackFailed { task, remedy: Remedy::Resync, why });
    }
    bench.pass(1);
    assert_eq!(bench.state(), MemberState::Recovering);
    assert!(bench.node.snapshot().past_only, "the past can be read");
}

#[test]
fn a_rollback_that_cannot_be_done_is_recovering_until_an_operator_acts() {
    let mut bench = Bench::following();
    let (task, _) = bench.task();
    bench.tell(DataEvent::FollowEnded { task, remedy: Remedy::RollBack, why: String::new() });
    let (task, _) = bench.task();
    let why = "the common point is too old".to_owned();
    bench.tell(DataEvent::RollbackFailed { task, remedy: Remedy::Halt, why });
    assert_eq!(bench.state(), MemberState::Recovering);
    bench.pass(60);
    assert_eq!(bench.task().0, task, "no new task");
}
