//! `replSetUpdatePosition`, received and sent.
//!
//! P1 Our own position comes only from the data plane; what others report about us is ignored.
//! P2 Before 8.0 an entry counts as durable only after it is applied.
//! P3 A member that was not heard of for the election timeout is left out of reports, so that the primary notices its
//!    silence.

use std::time::Duration;

use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, raw::cstr, rawdoc};
use protocol::{ErrorCode, Profile};

use super::{
    config::ReplSetConfig,
    fields::int_or,
    heartbeat::{missing, position},
    member::MemberData,
};
use crate::event::{CommandError, Now, Positions};

/// One element of `optimes`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberPosition {
    /// The member's `_id`.
    pub member_id: i64,
    /// Its positions.
    pub positions: Positions,
}

/// Parses the positions of a report.
pub fn parse(doc: &RawDocument) -> Result<Vec<MemberPosition>, CommandError> {
    let list = doc.get_array("optimes").map_err(|_| missing("optimes"))?;
    list.into_iter()
        .map(|element| match element {
            Ok(RawBsonRef::Document(element)) => parse_one(element),
            _ => Err(CommandError::new(
                ErrorCode::from_code(10065),
                "invalid parameter: expected an object (0)",
            )),
        })
        .collect()
}

fn parse_one(doc: &RawDocument) -> Result<MemberPosition, CommandError> {
    let applied = position(doc, "appliedOpTime", "appliedWallTime")
        .ok_or_else(|| missing("appliedOpTime"))?;
    let durable = position(doc, "durableOpTime", "durableWallTime")
        .ok_or_else(|| missing("durableOpTime"))?;
    let written = position(doc, "writtenOpTime", "writtenWallTime").unwrap_or(applied);
    Ok(MemberPosition {
        member_id: int_or(doc, "memberId", -1),
        positions: Positions { written, durable, applied },
    })
}

/// Processes a report about other members. True if any position advanced.
pub fn receive(
    now: Now,
    heard: &[MemberPosition],
    config: &ReplSetConfig,
    self_index: usize,
    members: &mut [MemberData],
) -> Result<bool, CommandError> {
    let mut moved = false;
    for position in heard {
        let Some(index) = config.index_of_id(position.member_id) else {
            let text = format!(
                "Received replSetUpdatePosition for node which doesn't exist in our config, memberId: MemberId({})",
                position.member_id
            );
            return Err(CommandError::new(ErrorCode::NodeNotFound, text));
        };
        if let Some(member) = members.get_mut(index).filter(|_| index != self_index) {
            moved |= member.advance(now, position.positions);
        }
    }
    Ok(moved)
}

/// Our positions as the set may see them, by the rules of the release that we show (P2).
pub fn shown(ours: Positions, profile: &Profile) -> Positions {
    if profile.has_written {
        return ours;
    }
    let applied = ours.applied;
    let durable = if ours.durable.op_time > applied.op_time { applied } else { ours.durable };
    Positions { written: applied, durable, applied }
}

/// The content of a report.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The config.
    pub config: &'a ReplSetConfig,
    /// Our index in the config.
    pub self_index: usize,
    /// Our own positions, as [`shown`].
    pub ours: Positions,
    /// What we know about the other members.
    pub members: &'a [MemberData],
    /// The release that we show.
    pub profile: &'a Profile,
}

impl Report<'_> {
    /// The command. `repl_data` is `$replData`.
    pub fn to_raw(&self, now: Duration, repl_data: RawDocumentBuf) -> RawDocumentBuf {
        let mut list = RawArrayBuf::new();
        for (index, (config, member)) in
            self.config.members.iter().zip(self.members.iter()).enumerate()
        {
            let own = index == self.self_index;
            let positions = if own { self.ours } else { member.known };
            let silent = !own && member.is_stale(now, self.config.election_timeout);
            if positions.applied.op_time.is_null() || silent {
                continue;
            }
            list.push(self.element(config.id, positions));
        }
        let mut doc = rawdoc! { "replSetUpdatePosition": 1i32, "optimes": list };
        doc.append(cstr!("$replData"), repl_data);
        if self.profile.max_time_ms_op_only {
            doc.append(cstr!("maxTimeMSOpOnly"), REPORT_TIMEOUT_MS);
        }
        doc
    }

    fn element(&self, id: i32, at: Positions) -> RawDocumentBuf {
        let mut doc = RawDocumentBuf::new();
        let written = (cstr!("writtenOpTime"), cstr!("writtenWallTime"), at.written);
        let applied = (cstr!("appliedOpTime"), cstr!("appliedWallTime"), at.applied);
        let durable = (cstr!("durableOpTime"), cstr!("durableWallTime"), at.durable);
        let order: &[_] = if self.profile.has_written {
            &[written, applied, durable]
        } else {
            &[durable, applied]
        };
        for (op_time, wall, position) in order {
            doc.append(*op_time, position.op_time.to_raw());
            doc.append(*wall, position.wall);
        }
        doc.append(cstr!("memberId"), i64::from(id));
        doc.append(cstr!("cfgver"), self.config.version_and_term.version);
        doc
    }
}

/// When to report: at once after a change unless a report is in flight, and as a keepalive.
#[derive(Clone, Debug, Default)]
pub struct Reporting {
    /// Sequence number of the report in flight.
    pub in_flight: Option<u64>,
    /// Something moved since the last report was built.
    pub dirty: bool,
    /// When the last report was built.
    pub last_at: Duration,
    /// Earliest time of the next report, after a failure.
    pub not_before: Duration,
    /// The last report failed.
    pub failing: bool,
}

impl Reporting {
    /// True if a report is due now.
    pub fn is_due(&self, now: Duration, keepalive: Duration) -> bool {
        self.in_flight.is_none() && now >= self.due_at(keepalive)
    }

    /// When the next report is due if none is in flight.
    pub(crate) fn due_at(&self, keepalive: Duration) -> Duration {
        if self.dirty { self.not_before } else { (self.last_at + keepalive).max(self.not_before) }
    }
}

/// Time limit of a report, after which the source counts as gone.
pub(crate) const REPORT_TIMEOUT_MS: i64 = 30_000;

#[cfg(test)]
mod tests {
    use protocol::{OpTime, OpTimeAndWall, RawDoc, Timestamp};

    use super::*;

    fn point(secs: u32) -> OpTimeAndWall {
        OpTimeAndWall {
            op_time: OpTime::new(Timestamp::new(secs, 1), 1),
            wall: bson::DateTime::from_millis(i64::from(secs) * 1000),
        }
    }

    fn config() -> ReplSetConfig {
        let raw = rawdoc! { "_id": "rs0", "version": 3, "term": 1i64, "members": [
            { "_id": 0, "host": "a:1" }, { "_id": 7, "host": "me:1" }, { "_id": 8, "host": "c:1" },
        ] };
        ReplSetConfig::parse(RawDoc::from(raw)).unwrap()
    }

    fn now(secs: u64) -> Now {
        Now { mono: Duration::from_secs(secs), wall: bson::DateTime::from_millis(0) }
    }

    #[test]
    fn before_8_0_nothing_unapplied_is_durable() {
        let ours = Positions { written: point(9), durable: point(8), applied: point(5) };
        let old = shown(ours, Profile::named("5.0").unwrap());
        assert_eq!(old, Positions { written: point(5), durable: point(5), applied: point(5) });
        assert_eq!(shown(ours, Profile::newest_tested()), ours);
    }

    #[test]
    fn a_report_carries_live_members_and_what_it_says_is_read_back() {
        let config = config();
        let mut members = vec![MemberData::default(); 3];
        let all =
            |secs| Positions { written: point(secs), durable: point(secs), applied: point(secs) };
        members[0].advance(now(100), all(20));
        members[2].advance(now(80), all(10));
        for (version, has_written) in [("8.2", true), ("4.4", false)] {
            let profile = Profile::named(version).unwrap();
            let report = Report {
                config: &config,
                self_index: 1,
                ours: all(15),
                members: &members,
                profile,
            };
            let doc = report.to_raw(Duration::from_secs(101), rawdoc! { "term": 1i64 });
            let heard = parse(&doc).unwrap();
            let ids: Vec<i64> = heard.iter().map(|position| position.member_id).collect();
            assert_eq!(
                ids,
                [0, 7],
                "member 8 has been silent for longer than the election timeout"
            );
            assert_eq!(heard[1].positions, all(15));
            let first = doc.get_array("optimes").unwrap().get_document(0).unwrap();
            assert_eq!(first.get("writtenOpTime").unwrap().is_some(), has_written);
        }
    }

    #[test]
    fn a_report_moves_others_but_never_ourselves() {
        let config = config();
        let mut members = vec![MemberData::default(); 3];
        let all =
            |secs| Positions { written: point(secs), durable: point(secs), applied: point(secs) };
        let heard = |id, secs| [MemberPosition { member_id: id, positions: all(secs) }];
        let mut receive =
            |heard: &[MemberPosition]| receive(now(1), heard, &config, 1, &mut members);
        assert_eq!(receive(&heard(8, 30)), Ok(true));
        assert_eq!(receive(&heard(8, 20)), Ok(false), "positions only advance");
        assert_eq!(receive(&heard(7, 99)), Ok(false));
        assert_eq!(receive(&heard(77, 1)).unwrap_err().code, ErrorCode::NodeNotFound);
        assert_eq!(members[1].known, Positions::default());
    }

    #[test]
    fn reports_are_coalesced_and_kept_alive() {
        let keepalive = Duration::from_secs(5);
        let at = Duration::from_secs;
        let mut reporting = Reporting { last_at: at(10), ..Reporting::default() };
        assert!(!reporting.is_due(at(14), keepalive));
        assert!(reporting.is_due(at(15), keepalive));
        reporting.dirty = true;
        assert!(reporting.is_due(at(11), keepalive));
        reporting.in_flight = Some(1);
        assert!(!reporting.is_due(at(99), keepalive), "never two under way");
        reporting.in_flight = None;
        reporting.not_before = at(12);
        assert!(!reporting.is_due(at(11), keepalive), "a failure is given a pause");
    }
}
