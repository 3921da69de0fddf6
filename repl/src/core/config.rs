//! The replica set config: parsed once, kept byte for byte as received.
//!
//! Only the fields that this code uses are parsed. All other fields (and those of future releases) stay unchanged in
//! `raw`, which is stored, shown and sent on.

use std::{fmt, time::Duration};

use bson::{RawBsonRef, RawDocument, oid::ObjectId};
use protocol::{HostAndPort, RawDoc};

use super::fields::{bool_or, int_or, number};

/// A replica set config.
#[derive(Clone, PartialEq, Debug)]
pub struct ReplSetConfig {
    /// The document as received.
    pub raw: RawDoc,
    /// `_id`: the set's name.
    pub name: String,
    /// Version and term, which decide which of two configs is newer.
    pub version_and_term: VersionAndTerm,
    /// `members`, in order: an *index* on the wire is a position in this list.
    pub members: Vec<MemberConfig>,
    /// `settings.chainingAllowed`.
    pub chaining_allowed: bool,
    /// `settings.heartbeatIntervalMillis`.
    pub heartbeat_interval: Duration,
    /// `settings.heartbeatTimeoutSecs`.
    pub heartbeat_timeout: Duration,
    /// `settings.electionTimeoutMillis`.
    pub election_timeout: Duration,
    /// `settings.replicaSetId`.
    pub replica_set_id: Option<ObjectId>,
    /// `writeConcernMajorityJournalDefault`.
    pub majority_journal_default: bool,
}

/// One of `members`.
#[derive(Clone, PartialEq, Debug)]
pub struct MemberConfig {
    /// `_id`.
    pub id: i32,
    /// `host`.
    pub host: HostAndPort,
    /// `arbiterOnly`.
    pub arbiter_only: bool,
    /// `buildIndexes`.
    pub build_indexes: bool,
    /// `hidden`.
    pub hidden: bool,
    /// `priority`.
    pub priority: f64,
    /// True if `votes` is 1 and `newlyAdded` is not set.
    pub votes: bool,
    /// `newlyAdded`: its vote does not count yet.
    pub newly_added: bool,
    /// `secondaryDelaySecs`, or `slaveDelay` before 5.0.
    pub delay_secs: u32,
    /// `tags`.
    pub tags: RawDoc,
}

/// Compares configs by term, then by version. A forced reconfig has no term (-1); if either has none, only versions
/// are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VersionAndTerm {
    /// `version`.
    pub version: i64,
    /// `term`; -1 if there is none.
    pub term: i64,
}

/// The term of a forced config, or of one from before configs had terms.
pub(crate) const NO_TERM: i64 = -1;

impl VersionAndTerm {
    /// What a node without a config reports.
    pub const NONE: Self = Self { version: -2, term: NO_TERM };

    /// True if this config replaces `other`.
    pub(crate) fn is_newer_than(self, other: Self) -> bool {
        if self.term == NO_TERM || other.term == NO_TERM {
            self.version > other.version
        } else {
            (self.term, self.version) > (other.term, other.version)
        }
    }
}

impl fmt::Display for VersionAndTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{version: {}, term: {}}}", self.version, self.term)
    }
}

/// Why a document is not a valid config.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("bad replica set config: {0}")]
pub struct ConfigError(String);

impl ReplSetConfig {
    /// Parses and checks a config.
    pub fn parse(raw: RawDoc) -> Result<Self, ConfigError> {
        let err = |text: &str| ConfigError(text.to_owned());
        let name = raw.get_str("_id").map_err(|_| err("_id must be a string"))?.to_owned();
        let version = number(&raw, "version").ok_or_else(|| err("version must be a number"))?;
        let term = int_or(&raw, "term", NO_TERM);
        if int_or(&raw, "protocolVersion", 1) != 1 {
            return Err(err("protocolVersion must be 1"));
        }
        let mut members = Vec::new();
        let list = raw.get_array("members").map_err(|_| err("members must be an array"))?;
        for member in list {
            let Ok(RawBsonRef::Document(member)) = member else {
                return Err(err("each of members must be an object"));
            };
            members.push(MemberConfig::parse(member)?);
        }
        let empty = bson::rawdoc! {};
        let settings = raw.get_document("settings").unwrap_or(&empty);
        let config = Self {
            name,
            version_and_term: VersionAndTerm { version, term },
            members,
            chaining_allowed: bool_or(settings, "chainingAllowed", true),
            heartbeat_interval: millis_or(settings, "heartbeatIntervalMillis", 2_000),
            heartbeat_timeout: secs_or(settings, "heartbeatTimeoutSecs", 10),
            election_timeout: millis_or(settings, "electionTimeoutMillis", 10_000),
            replica_set_id: settings.get_object_id("replicaSetId").ok(),
            majority_journal_default: bool_or(&raw, "writeConcernMajorityJournalDefault", true),
            raw,
        };
        config.check()?;
        Ok(config)
    }

    /// Checks that concern the config as a whole.
    fn check(&self) -> Result<(), ConfigError> {
        let err = |text: String| Err(ConfigError(text));
        if self.name.is_empty() {
            return err("_id must not be empty".to_owned());
        }
        if !(1..=i64::from(i32::MAX)).contains(&self.version_and_term.version) {
            return err(format!("version {} is out of range", self.version_and_term.version));
        }
        if self.members.is_empty() || self.members.len() > MEMBERS_MAX {
            return err(format!("{} members; 1 to {MEMBERS_MAX} are allowed", self.members.len()));
        }
        for (at, member) in self.members.iter().enumerate() {
            for other in self.members.iter().skip(at + 1) {
                if member.id == other.id {
                    return err(format!("two members have _id {}", member.id));
                }
                if member.host == other.host {
                    return err(format!("two members have host {}", member.host));
                }
            }
        }
        Ok(())
    }

    /// The index of the member with this `_id`.
    pub(crate) fn index_of_id(&self, id: i64) -> Option<usize> {
        self.members.iter().position(|member| i64::from(member.id) == id)
    }

    /// The index of the member with this address.
    pub(crate) fn index_of_host(&self, host: &HostAndPort) -> Option<usize> {
        self.members.iter().position(|member| member.host == *host)
    }

    /// The number of votes that elect a primary and commit a write.
    pub fn majority(&self) -> usize {
        self.members.iter().filter(|member| member.votes).count() / 2 + 1
    }
}

impl MemberConfig {
    fn parse(raw: &RawDocument) -> Result<Self, ConfigError> {
        let err = |text: String| ConfigError(text);
        let id = number(raw, "_id")
            .and_then(|id| i32::try_from(id).ok())
            .filter(|id| (0..=MEMBER_ID_MAX).contains(id))
            .ok_or_else(|| err(format!("a member's _id must be 0 to {MEMBER_ID_MAX}")))?;
        let host = raw
            .get_str("host")
            .ok()
            .and_then(|host| host.parse().ok())
            .ok_or_else(|| err(format!("member {id} has no valid host")))?;
        let delay =
            number(raw, "secondaryDelaySecs").or_else(|| number(raw, "slaveDelay")).unwrap_or(0);
        let delay_secs = u32::try_from(delay)
            .ok()
            .filter(|delay| *delay <= DELAY_SECS_MAX)
            .ok_or_else(|| err(format!("member {id} has an impossible delay of {delay} s")))?;
        let newly_added = bool_or(raw, "newlyAdded", false);
        let priority = match raw.get("priority") {
            Ok(Some(RawBsonRef::Double(priority))) => priority,
            _ => number(raw, "priority").map_or(1.0, |p| if p == 0 { 0.0 } else { p as f64 }),
        };
        Ok(Self {
            id,
            host,
            arbiter_only: bool_or(raw, "arbiterOnly", false),
            build_indexes: bool_or(raw, "buildIndexes", true),
            hidden: bool_or(raw, "hidden", false),
            priority: if newly_added { 0.0 } else { priority },
            votes: int_or(raw, "votes", 1) != 0 && !newly_added,
            newly_added,
            delay_secs,
            tags: raw
                .get_document("tags")
                .map_or_else(|_| RawDoc::from(bson::rawdoc! {}), RawDoc::from),
        })
    }

    /// True if it may become primary.
    pub(crate) fn electable(&self) -> bool {
        self.priority > 0.0 && !self.arbiter_only
    }
}

fn millis_or(doc: &RawDocument, key: &str, default: u64) -> Duration {
    Duration::from_millis(positive(doc, key).unwrap_or(default))
}

fn secs_or(doc: &RawDocument, key: &str, default: u64) -> Duration {
    Duration::from_secs(positive(doc, key).unwrap_or(default))
}

fn positive(doc: &RawDocument, key: &str) -> Option<u64> {
    number(doc, key).and_then(|value| u64::try_from(value).ok()).filter(|value| *value > 0)
}

/// mongod's limits.
const MEMBERS_MAX: usize = 50;
const MEMBER_ID_MAX: i32 = 255;
const DELAY_SECS_MAX: u32 = 3600 * 24 * 366;

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    fn config(members: bson::RawArrayBuf) -> Result<ReplSetConfig, ConfigError> {
        let raw = rawdoc! { "_id": "rs0", "version": 2, "term": 1i64, "members": members };
        ReplSetConfig::parse(raw.into())
    }

    fn members(list: &[bson::RawDocumentBuf]) -> bson::RawArrayBuf {
        let mut array = bson::RawArrayBuf::new();
        list.iter().for_each(|member| array.push(member.clone()));
        array
    }

    #[test]
    fn reads_both_names_of_the_delay_and_keeps_the_bytes() {
        let list = members(&[
            rawdoc! { "_id": 0, "host": "a:1" },
            rawdoc! { "_id": 1, "host": "b:1", "hidden": true, "priority": 0.0, "votes": 0, "slaveDelay": 60i64 },
            rawdoc! { "_id": 2, "host": "c:1", "priority": 0, "secondaryDelaySecs": 3600, "newlyAdded": true },
        ]);
        let config = config(list).unwrap();
        let delays: Vec<u32> = config.members.iter().map(|member| member.delay_secs).collect();
        assert_eq!(delays, [0, 60, 3600]);
        assert_eq!(config.majority(), 1);
        assert!(!config.members[2].votes && !config.members[1].electable());
        assert!(config.members[0].electable());
        assert_eq!(config.heartbeat_interval, Duration::from_secs(2));
        assert_eq!(ReplSetConfig::parse(config.raw.clone()).unwrap(), config);
    }

    #[test]
    fn a_forced_config_is_compared_by_version_alone() {
        let at = |version, term| VersionAndTerm { version, term };
        assert!(at(1, 2).is_newer_than(at(9, 1)));
        assert!(!at(9, 1).is_newer_than(at(1, 2)));
        assert!(at(10_000, NO_TERM).is_newer_than(at(9, 5)));
        assert!(!at(3, NO_TERM).is_newer_than(at(9, 5)));
        assert!(at(1, 0).is_newer_than(VersionAndTerm::NONE));
        assert!(!at(4, 4).is_newer_than(at(4, 4)));
    }

    #[test]
    fn refuses_what_no_set_would_agree_on() {
        let two = |a: bson::RawDocumentBuf, b: bson::RawDocumentBuf| config(members(&[a, b]));
        assert!(config(members(&[])).is_err());
        assert!(two(rawdoc! {"_id": 1, "host": "a:1"}, rawdoc! {"_id": 1, "host": "b:1"}).is_err());
        assert!(two(rawdoc! {"_id": 1, "host": "a:1"}, rawdoc! {"_id": 2, "host": "a:1"}).is_err());
        assert!(config(members(&[rawdoc! {"_id": 300, "host": "a:1"}])).is_err());
        assert!(config(members(&[rawdoc! {"_id": 0, "host": ":1"}])).is_err());
        let delayed = rawdoc! {"_id": 0, "host": "a:1", "secondaryDelaySecs": -5i64};
        assert!(config(members(&[delayed])).is_err());
        assert!(ReplSetConfig::parse(rawdoc! { "_id": 7 }.into()).is_err());
    }
}
