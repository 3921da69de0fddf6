use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};
use protocol::{RawDoc, Timestamp};

use super::*;

/// A set in which member 0 is ourselves.
struct Set {
    config: ReplSetConfig,
    members: Vec<MemberData>,
    pings: Vec<Option<Duration>>,
    primary: Option<usize>,
    ours: OpTime,
    denylist: Denylist,
}

fn at(secs: u32) -> OpTime {
    OpTime::new(Timestamp::new(secs, 1), 1)
}

impl Set {
    fn new(chaining: bool, others: &[RawDocumentBuf]) -> Self {
        let mut list = RawArrayBuf::new();
        list.push(rawdoc! { "_id": 0, "host": "me:1", "hidden": true, "priority": 0, "votes": 0 });
        for (index, extra) in others.iter().enumerate() {
            let id = i32::try_from(index).unwrap() + 1;
            let mut member = rawdoc! { "_id": id, "host": format!("m{id}:1") };
            for field in extra {
                let (key, value) = field.unwrap();
                member.append(key, value);
            }
            list.push(member);
        }
        let raw = rawdoc! { "_id": "rs0", "version": 1, "members": list, "settings": { "chainingAllowed": chaining } };
        let config = ReplSetConfig::parse(RawDoc::from(raw)).unwrap();
        let mut set = Self {
            members: vec![MemberData::default(); config.members.len()],
            pings: vec![Some(Duration::from_millis(1)); config.members.len()],
            config,
            primary: Some(1),
            ours: at(100),
            denylist: Denylist::default(),
        };
        for index in 1..set.members.len() {
            set.is(index, MemberState::Secondary, 200);
        }
        set.is(1, MemberState::Primary, 200);
        set
    }

    fn is(&mut self, index: usize, state: MemberState, secs: u32) {
        let member = &mut self.members[index];
        member.up = true;
        member.tried = true;
        member.state = state;
        member.heartbeat.applied.op_time = at(secs);
    }

    fn view(&self) -> View<'_> {
        View {
            config: &self.config,
            self_index: 0,
            members: &self.members,
            pings: &self.pings,
            primary_index: self.primary,
            last_fetched: self.ours,
            denylist: &self.denylist,
            now: Duration::from_secs(50),
        }
    }

    fn chosen(&self) -> Option<(usize, SwitchReason)> {
        match self.view().choose(None) {
            Choice::Switch { to, why } => Some((to, why)),
            Choice::Wait { .. } => None,
        }
    }

    fn leaves(&self, says: SourceSays) -> Option<LeaveReason> {
        self.view().leave(&"m2:1".parse().unwrap(), None, says)
    }
}

const FIRST: SwitchReason = SwitchReason::Nearest { attempt: 1 };
const SECOND: SwitchReason = SwitchReason::Nearest { attempt: 2 };

fn says(secs: u32) -> SourceSays {
    SourceSays { is_primary: false, applied: at(secs), sync_source_index: 1 }
}

#[test]
fn the_nearest_wins_and_the_primary_among_equals() {
    let mut set = Set::new(true, &[rawdoc! {}, rawdoc! {}]);
    assert_eq!(set.chosen(), Some((1, FIRST)));
    set.pings[1] = Some(Duration::from_millis(5));
    assert_eq!(set.chosen(), Some((1, FIRST)), "within the threshold the primary wins");
    set.pings[1] = Some(Duration::from_millis(60));
    assert_eq!(set.chosen(), Some((2, FIRST)));
}

#[test]
fn the_second_attempt_takes_the_hidden_the_delayed_and_the_lagging() {
    for (other, lag) in [
        (rawdoc! { "hidden": true, "priority": 0 }, 0),
        (rawdoc! { "secondaryDelaySecs": 60, "priority": 0 }, 0),
        (rawdoc! {}, 40),
    ] {
        let mut set = Set::new(true, &[rawdoc! {}, other]);
        set.is(2, MemberState::Secondary, 200 - lag);
        assert_eq!(set.chosen(), Some((1, FIRST)));
        set.denylist.add("m1:1".parse().unwrap(), Duration::from_secs(51));
        assert_eq!(set.chosen(), Some((2, SECOND)));
    }
}

#[test]
fn nobody_who_is_down_unreadable_behind_or_without_indexes_is_chosen() {
    let mut set = Set::new(true, &[rawdoc! {}, rawdoc! { "buildIndexes": false, "priority": 0 }]);
    set.is(1, MemberState::Recovering, 200);
    assert_eq!(set.chosen(), None);
    set.is(1, MemberState::Secondary, 100);
    assert_eq!(set.chosen(), None, "a secondary must be ahead");
    set.is(1, MemberState::Primary, 100);
    assert_eq!(set.chosen(), Some((1, FIRST)), "the primary need not be");
    set.is(1, MemberState::Primary, 99);
    assert_eq!(set.chosen(), None);
    set.is(1, MemberState::Primary, 300);
    set.members[1].up = false;
    let Choice::Wait { rejected } = set.view().choose(None) else { panic!("chose somebody") };
    assert_eq!(rejected[0].1, Rejection::NotUp);
    assert_eq!(rejected[1].1, Rejection::BuildsNoIndexes);
}

#[test]
fn a_request_overrides_and_without_chaining_only_the_primary_will_do() {
    let mut set = Set::new(false, &[rawdoc! {}, rawdoc! {}]);
    set.pings[1] = Some(Duration::from_millis(500));
    assert_eq!(set.chosen(), Some((1, SwitchReason::PrimaryOnly)));
    assert_eq!(set.view().choose(Some(2)), Choice::Switch { to: 2, why: SwitchReason::ByRequest });
    set.primary = None;
    assert_eq!(set.chosen(), None);
}

#[test]
fn a_denylisted_member_comes_back_when_its_time_is_over() {
    let mut set = Set::new(true, &[rawdoc! {}]);
    set.denylist.add("m1:1".parse().unwrap(), Duration::from_secs(51));
    assert_eq!(set.chosen(), None);
    set.denylist.add("m1:1".parse().unwrap(), Duration::from_secs(50));
    assert_eq!(set.chosen(), Some((1, FIRST)));
}

#[test]
fn a_good_source_is_kept() {
    let mut set = Set::new(true, &[rawdoc! {}, rawdoc! {}]);
    assert_eq!(set.leaves(says(200)), None);
    set.ours = at(200);
    assert_eq!(set.leaves(says(200)), None, "it syncs from somebody, so it will get ahead");
}

#[test]
fn reasons_to_leave() {
    let mut set = Set::new(true, &[rawdoc! {}, rawdoc! {}]);
    set.ours = at(200);
    let alone = SourceSays { sync_source_index: -1, ..says(200) };
    assert!(matches!(set.leaves(alone), Some(LeaveReason::NotAhead { .. })));
    assert_eq!(set.leaves(SourceSays { is_primary: true, ..alone }), None);
    let from_us = SourceSays { sync_source_index: 0, ..says(200) };
    assert_eq!(set.leaves(from_us), Some(LeaveReason::Cycle));

    set.is(1, MemberState::Primary, 300);
    set.is(2, MemberState::Secondary, 210);
    assert!(matches!(set.leaves(says(210)), Some(LeaveReason::Lags { .. })));

    let mut set = Set::new(true, &[rawdoc! {}, rawdoc! { "hidden": true, "priority": 0 }]);
    assert!(matches!(set.leaves(says(200)), Some(LeaveReason::BetterOne { .. })));
    set.is(1, MemberState::Recovering, 200);
    assert_eq!(set.leaves(says(200)), None, "nobody fits better");

    let set = Set::new(false, &[rawdoc! {}, rawdoc! {}]);
    assert!(matches!(set.leaves(says(200)), Some(LeaveReason::NewPrimary { .. })));
    let stranger = "x:1".parse().unwrap();
    assert_eq!(set.view().leave(&stranger, None, says(1)), Some(LeaveReason::NotInConfig));
}

#[test]
fn a_much_nearer_member_is_noticed() {
    let mut set = Set::new(true, &[rawdoc! {}, rawdoc! {}]);
    let source = "m1:1".parse().unwrap();
    assert_eq!(set.view().much_nearer(&source), None);
    set.pings[1] = Some(Duration::from_millis(50));
    assert!(matches!(set.view().much_nearer(&source), Some(LeaveReason::MuchNearer { .. })));
    set.ours = at(200);
    assert_eq!(set.view().much_nearer(&source), None, "it must be ahead");
}
