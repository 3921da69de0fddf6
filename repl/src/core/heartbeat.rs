//! Heartbeats: their format, and when to send the next one.
//!
//! A failed heartbeat is retried at once, up to twice, unless the timeout since the first attempt has passed. Then
//! the member counts as down, and the next heartbeat is sent after the regular interval.
//! ```text
//!   start --try--x--try--x--try--x  down     ... interval ...  start --try--ok  up
//! ```

use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, raw::cstr, rawdoc};
use protocol::{
    ErrorCode, HostAndPort, OpTime, OpTimeAndWall, Profile, RawDoc, Timestamp,
    repl_metadata::ReplSetMetadata,
};

use super::{
    config::{NO_TERM, VersionAndTerm},
    fields::{int_or, number},
    member_state::MemberState,
};
use crate::event::{CommandError, Positions};

/// A received `replSetHeartbeat` request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeartbeatArgs {
    /// The set that the sender believes to be in.
    pub set_name: String,
    /// Version and term of the sender's config.
    pub config: VersionAndTerm,
    /// The sender's address, if it has one.
    pub from: Option<HostAndPort>,
    /// The sender's `_id`, or -1.
    pub from_id: i64,
    /// The sender's term.
    pub term: i64,
    /// The `_id` of the member that the sender considers primary, or -1.
    pub primary_id: i64,
}

impl HeartbeatArgs {
    /// Parses it, with mongod's errors.
    pub fn parse(doc: &RawDocument) -> Result<Self, CommandError> {
        let hbv = int_or(doc, "hbv", 1);
        if hbv != 1 {
            let text = format!("Found invalid value for field hbv: {hbv}");
            return Err(CommandError::new(ErrorCode::Location(40666), text));
        }
        let version = required(doc, "configVersion")?;
        let from = doc.get_str("from").map_err(|_| missing("from"))?;
        let term = required(doc, "term")?;
        let set_name = doc.get_str("replSetHeartbeat").map_err(|_| {
            let text = "\"replSetHeartbeat\" had the wrong type. Expected string";
            CommandError::new(ErrorCode::TypeMismatch, text)
        })?;
        Ok(Self {
            set_name: set_name.to_owned(),
            config: VersionAndTerm { version, term: int_or(doc, "configTerm", NO_TERM) },
            from: from.parse().ok(),
            from_id: int_or(doc, "fromId", -1),
            term,
            primary_id: int_or(doc, "primaryId", -1),
        })
    }
}

/// A required number.
pub(crate) fn required(doc: &RawDocument, key: &str) -> Result<i64, CommandError> {
    number(doc, key).ok_or_else(|| missing(key))
}

/// mongod's error for a missing field.
pub(crate) fn missing(key: &str) -> CommandError {
    CommandError::new(ErrorCode::NoSuchKey, format!("Missing expected field \"{key}\""))
}

/// A heartbeat request that we send.
#[derive(Clone, Debug)]
pub struct HeartbeatRequest<'a> {
    /// The set's name.
    pub set_name: &'a str,
    /// Version and term of our config.
    pub config: VersionAndTerm,
    /// Our address and `_id`, if known.
    pub own: Option<(&'a HostAndPort, i32)>,
    /// Our term.
    pub term: i64,
    /// The `_id` of the member that we consider primary.
    pub primary_id: Option<i32>,
}

impl HeartbeatRequest<'_> {
    /// The command in the format of the release that we show.
    pub fn to_raw(&self, profile: &Profile, timeout: Duration) -> RawDocumentBuf {
        let mut doc = rawdoc! {
            "replSetHeartbeat": self.set_name,
            "configVersion": self.config.version,
        };
        if self.config.term != NO_TERM || profile.config_term_always {
            doc.append(cstr!("configTerm"), self.config.term);
        }
        doc.append(cstr!("hbv"), 1i64);
        doc.append(cstr!("from"), self.own.map(|own| own.0.to_string()).unwrap_or_default());
        doc.append(cstr!("fromId"), self.own.map_or(-1, |own| i64::from(own.1)));
        doc.append(cstr!("term"), self.term);
        if profile.primary_id_in_heartbeat {
            doc.append(cstr!("primaryId"), self.primary_id.map_or(-1, i64::from));
        }
        if profile.max_time_ms_op_only {
            let millis = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
            doc.append(cstr!("maxTimeMSOpOnly"), millis);
        }
        doc.append(cstr!("$replData"), 1i32);
        doc
    }
}

/// A parsed heartbeat reply.
#[derive(Clone, Debug)]
pub struct HeartbeatReply {
    /// The peer's set.
    pub set_name: Option<String>,
    /// Its state; absent from some early replies.
    pub state: Option<MemberState>,
    /// Version and term of its config.
    pub config_version: VersionAndTerm,
    /// The config itself, if ours is older.
    pub config: Option<RawDoc>,
    /// Its term; -1 if absent.
    pub term: i64,
    /// Its positions.
    pub positions: Positions,
    /// Its sync source.
    pub syncing_to: Option<HostAndPort>,
    /// When it was elected.
    pub election_time: Option<Timestamp>,
    /// `$replData`.
    pub repl_data: Option<ReplSetMetadata>,
}

impl HeartbeatReply {
    /// Parses a reply; the error says what is wrong with it.
    pub fn parse(doc: &RawDoc) -> Result<Self, String> {
        let state = match number(doc, "state") {
            None => None,
            Some(code) => Some(
                MemberState::from_code(code)
                    .ok_or_else(|| format!("heartbeat reply with unknown state {code}"))?,
            ),
        };
        let version = number(doc, "v").ok_or("heartbeat reply without v")?;
        let applied =
            position(doc, "opTime", "wallTime").ok_or("heartbeat reply without opTime")?;
        let durable = position(doc, "durableOpTime", "durableWallTime")
            .ok_or("heartbeat reply without durableOpTime")?;
        let written = position(doc, "writtenOpTime", "writtenWallTime").unwrap_or(applied);
        Ok(Self {
            set_name: doc.get_str("set").ok().map(str::to_owned),
            state,
            config_version: VersionAndTerm { version, term: int_or(doc, "configTerm", NO_TERM) },
            config: doc.get_document("config").ok().map(|config| doc.share(config)),
            term: int_or(doc, "term", -1),
            positions: Positions { written, durable, applied },
            syncing_to: doc.get_str("syncingTo").ok().and_then(|host| host.parse().ok()),
            election_time: doc
                .get_datetime("electionTime")
                .ok()
                // The date's 64 bits hold a timestamp.
                .map(|date| Timestamp::from_u64(date.timestamp_millis().cast_unsigned())),
            repl_data: ReplSetMetadata::from_message(doc).ok().flatten(),
        })
    }
}

/// An optime and its wall time from two fields.
pub(crate) fn position(doc: &RawDocument, op_time: &str, wall: &str) -> Option<OpTimeAndWall> {
    Some(OpTimeAndWall {
        op_time: OpTime::from_raw(doc.get_document(op_time).ok()?)?,
        wall: doc.get_datetime(wall).ok()?,
    })
}

/// The heartbeat schedule of one peer, and its response times.
#[derive(Clone, Debug)]
pub struct Pings {
    /// When the next heartbeat is due.
    pub next_at: Duration,
    /// Sequence number of the heartbeat in flight.
    pub in_flight: Option<u64>,
    /// Send another one as soon as the current one is done.
    pub again: bool,
    started_at: Duration,
    failures: u32,
    trying: bool,
    /// Moving average of the round trip time.
    pub average: Option<Duration>,
    /// Number of replies so far.
    pub hits: u64,
}

/// The outcome of a heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PingOutcome {
    /// It answered.
    Hit,
    /// No reply; retries are left.
    Retry,
    /// No reply; no retries are left.
    Failed,
}

impl Pings {
    /// The first heartbeat is due at once.
    pub fn new(now: Duration) -> Self {
        Self {
            next_at: now,
            in_flight: None,
            again: false,
            started_at: now,
            failures: 0,
            trying: false,
            average: None,
            hits: 0,
        }
    }

    /// True if a heartbeat is due now.
    pub fn is_due(&self, now: Duration) -> bool {
        self.in_flight.is_none() && self.next_at <= now
    }

    /// Records that one is sent, and returns its time limit.
    pub fn send(&mut self, now: Duration, seq: u64, timeout: Duration) -> Duration {
        let elapsed = now.saturating_sub(self.started_at);
        self.in_flight = Some(seq);
        self.again = false;
        if !self.trying || elapsed >= timeout {
            self.started_at = now;
            self.failures = 0;
            self.trying = true;
            return timeout;
        }
        timeout - elapsed
    }

    /// Records the outcome and schedules the next one.
    pub fn done(
        &mut self,
        now: Duration,
        rtt: Option<Duration>,
        timeout: Duration,
        interval: Duration,
    ) -> PingOutcome {
        self.in_flight = None;
        let outcome = match rtt {
            Some(rtt) => {
                self.trying = false;
                self.hits += 1;
                self.average = Some(self.average.map_or(rtt, |average| (average * 4 + rtt) / 5));
                PingOutcome::Hit
            }
            None => {
                self.failures += 1;
                let exhausted = self.failures > HEARTBEAT_RETRIES_MAX
                    || now.saturating_sub(self.started_at) >= timeout;
                self.trying = !exhausted;
                if exhausted { PingOutcome::Failed } else { PingOutcome::Retry }
            }
        };
        let at_once = self.again || outcome == PingOutcome::Retry;
        self.next_at = if at_once { now } else { now + interval };
        self.again = false;
        outcome
    }

    /// Schedules a heartbeat as soon as possible.
    pub(crate) fn hurry(&mut self, now: Duration) {
        self.again = self.in_flight.is_some();
        self.next_at = self.next_at.min(now);
    }
}

/// mongod's limit.
const HEARTBEAT_RETRIES_MAX: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);
    const INTERVAL: Duration = Duration::from_secs(2);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn three_failures_in_a_row_mean_down_and_a_pause() {
        let mut pings = Pings::new(at(0));
        for (time, outcome) in
            [(1, PingOutcome::Retry), (2, PingOutcome::Retry), (3, PingOutcome::Failed)]
        {
            assert!(pings.is_due(at(time)));
            pings.send(at(time), time, TIMEOUT);
            assert!(!pings.is_due(at(time)), "never two under way");
            assert_eq!(pings.done(at(time), None, TIMEOUT, INTERVAL), outcome);
        }
        assert!(!pings.is_due(at(2_002)));
        assert!(pings.is_due(at(2_003)));
    }

    #[test]
    fn retries_share_the_timeout_of_the_first_try() {
        let mut pings = Pings::new(at(0));
        assert_eq!(pings.send(at(0), 1, TIMEOUT), TIMEOUT);
        assert_eq!(pings.done(at(4_000), None, TIMEOUT, INTERVAL), PingOutcome::Retry);
        assert_eq!(pings.send(at(4_000), 2, TIMEOUT), at(6_000));
        assert_eq!(pings.done(at(10_000), None, TIMEOUT, INTERVAL), PingOutcome::Failed);
        assert_eq!(pings.send(at(12_000), 3, TIMEOUT), TIMEOUT);
    }

    #[test]
    fn a_hurry_while_one_is_under_way_is_not_lost() {
        let mut pings = Pings::new(at(0));
        pings.send(at(0), 1, TIMEOUT);
        pings.hurry(at(1));
        assert_eq!(pings.done(at(2), Some(at(2)), TIMEOUT, INTERVAL), PingOutcome::Hit);
        assert!(pings.is_due(at(2)));
    }

    #[test]
    fn parses_the_words_of_a_real_primary_and_refuses_half_of_them() {
        let op_time = rawdoc! { "ts": bson::Timestamp { time: 7, increment: 1 }, "t": 1i64 };
        let date = bson::DateTime::from_millis(7_000);
        let reply = rawdoc! {
            "ok": 1.0, "electionTime": bson::DateTime::from_millis(30_064_771_073), "state": 1, "v": 2,
            "configTerm": 1i64, "set": "rs0", "term": 1i64, "primaryId": 0,
            "durableOpTime": op_time.clone(), "durableWallTime": date,
            "opTime": op_time.clone(), "wallTime": date, "electable": true,
        };
        let parsed = HeartbeatReply::parse(&RawDoc::from(reply)).unwrap();
        assert_eq!(parsed.state, Some(MemberState::Primary));
        assert_eq!(parsed.positions.written, parsed.positions.applied);
        assert_eq!(parsed.election_time, Some(Timestamp::new(7, 1)));
        for half in [rawdoc! {}, rawdoc! { "v": 1, "opTime": op_time, "wallTime": date }] {
            assert!(HeartbeatReply::parse(&RawDoc::from(half)).is_err());
        }
    }

    #[test]
    fn a_request_is_refused_with_mongods_words() {
        let text = |doc: RawDocumentBuf| HeartbeatArgs::parse(&doc).unwrap_err().message;
        let whole = rawdoc! { "replSetHeartbeat": "rs0", "configVersion": 1, "hbv": 1, "from": "", "term": 1i64 };
        let args = HeartbeatArgs::parse(&whole).unwrap();
        assert_eq!((args.from_id, args.from, args.config.term), (-1, None, NO_TERM));
        assert_eq!(
            text(
                rawdoc! { "replSetHeartbeat": "rs0", "configVersion": 1, "hbv": 2, "from": "", "term": 1 }
            ),
            "Found invalid value for field hbv: 2"
        );
        assert_eq!(
            text(rawdoc! { "replSetHeartbeat": "rs0", "configVersion": 1, "from": "" }),
            "Missing expected field \"term\""
        );
        assert_eq!(
            text(rawdoc! { "replSetHeartbeat": "rs0", "from": "", "term": 1 }),
            "Missing expected field \"configVersion\""
        );
    }
}
