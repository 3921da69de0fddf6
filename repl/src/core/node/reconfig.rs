//! `replSetReconfig`: refused, unless it is forced.
//!
//! A forced reconfig is for the case that no primary is available, so any member accepts it. A forced config has no
//! term, and its version is far above any version that other members may have reached meanwhile. Other members learn
//! of it through heartbeats.

use std::sync::Arc;

use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, raw::CString, rawdoc};
use protocol::{ErrorCode, RawDoc};

use super::{Node, answers::fail};
use crate::{
    core::{
        config::ReplSetConfig,
        fields::{bool_or, int_or},
    },
    event::{Answer, CommandError, Now},
};

impl Node {
    pub(super) fn answer_reconfig(&mut self, now: Now, request: &RawDocument) -> Answer {
        if !bool_or(request, "force", false) {
            let text = format!(
                "New config is rejected :: caused by :: replSetReconfig should only be run on a writable \
                 PRIMARY. Current state {};",
                self.state()
            );
            return fail(ErrorCode::NotWritablePrimary, text);
        }
        let Ok(given) = request.get_document("replSetReconfig") else {
            return fail(ErrorCode::BadValue, "no configuration specified");
        };
        let Some(old) = self.config.clone() else { return self.not_a_member() };
        let config = self.forced_config(now, &old, given)?;
        let own = self.own_host().and_then(|host| config.index_of_host(&host));
        if own.is_none() {
            let text = format!(
                "No host described in new configuration with {} for replica set {} maps to this node",
                config.version_and_term, config.name
            );
            return fail(ErrorCode::NodeNotFound, text);
        }
        self.warn(format!("a forced reconfig is taken: config {}", config.version_and_term));
        self.begin_install(now, Arc::new(config), true);
        Ok(rawdoc! {})
    }

    fn forced_config(
        &self,
        now: Now,
        old: &ReplSetConfig,
        given: &RawDocument,
    ) -> Result<ReplSetConfig, CommandError> {
        let invalid = |text: String| CommandError::new(ErrorCode::InvalidReplicaSetConfig, text);
        let highest = old.version_and_term.version.max(int_or(given, "version", 1));
        // The clock serves as a random number: two operators who force a reconfig at the same time get different
        // versions.
        let jump = 10_000 + now.wall.timestamp_millis().rem_euclid(90_000);
        let version = i32::try_from(highest.saturating_add(jump)).unwrap_or(i32::MAX);
        let raw = complete(given, version, old).map_err(|e| invalid(e.to_string()))?;
        let config = ReplSetConfig::parse(RawDoc::from(raw)).map_err(|e| invalid(e.to_string()))?;
        if config.name != *self.set_name {
            let ours = if self.profile.has_written { "old config" } else { "command line" };
            return Err(invalid(format!(
                "Rejecting reconfig where new config set name differs from command line set name, new config \
                 set name: {}, {ours} set name: {}",
                config.name, self.set_name
            )));
        }
        if let (Some(was), Some(is)) = (old.replica_set_id, config.replica_set_id)
            && was != is
        {
            let text = format!(
                "New and old configurations differ in replica set ID; old was {was}, and new is {is}"
            );
            let code = ErrorCode::NewReplicaSetConfigurationIncompatible;
            return Err(CommandError::new(code, text));
        }
        check_members(&config).map_err(invalid)?;
        Ok(config)
    }
}

/// Checks that concern the members as a group.
fn check_members(config: &ReplSetConfig) -> Result<(), String> {
    for member in &config.members {
        let needs_zero = match () {
            () if member.hidden => "hidden=true",
            () if member.delay_secs > 0 => "secondaryDelaySecs is used",
            () if !member.votes && !member.newly_added => "non-voting (votes:0)",
            () => continue,
        };
        if member.priority != 0.0 {
            return Err(format!("priority must be 0 when {needs_zero}"));
        }
    }
    let voters = config.members.iter().filter(|member| member.votes).count();
    if voters == 0 || voters > VOTERS_MAX {
        return Err(format!(
            "Replica set configuration must contain 1 to {VOTERS_MAX} voting members"
        ));
    }
    if !config.members.iter().any(|member| member.electable()) {
        let text = "Replica set configuration must contain at least one non-arbiter member with priority > 0";
        return Err(text.to_owned());
    }
    Ok(())
}

/// The config as mongod would store it: all fields in order, defaults filled in, without a term.
fn complete(
    given: &RawDocument,
    version: i32,
    old: &ReplSetConfig,
) -> Result<RawDocumentBuf, bson::error::Error> {
    let mut members = RawArrayBuf::new();
    let defaults = member_defaults(old);
    if let Ok(list) = given.get_array("members") {
        for member in list {
            match member? {
                RawBsonRef::Document(member) => {
                    members.push(filled_in(member, &defaults, &[])?);
                }
                other => members.push(RawBson::from(other)),
            }
        }
    }
    let empty = rawdoc! {};
    let settings = given.get_document("settings").unwrap_or(&empty);
    let settings = filled_in(settings, &settings_defaults(old), &[])?;
    let defaults: Vec<Default> = vec![
        ("_id", None),
        ("version", Some(version.into())),
        ("members", Some(members.into())),
        ("protocolVersion", Some(1i64.into())),
        ("writeConcernMajorityJournalDefault", Some(true.into())),
        ("settings", Some(settings.into())),
    ];
    filled_in(given, &defaults, &["version", "term", "members", "settings"])
}

/// A field and its default.
type Default = (&'static str, Option<RawBson>);

/// Before 5.0 the delay has another name.
fn member_defaults(old: &ReplSetConfig) -> Vec<Default> {
    let is_old = |member: Result<RawBsonRef<'_>, _>| {
        let member = member.ok().and_then(|member| member.as_document());
        member.is_some_and(|member| matches!(member.get("slaveDelay"), Ok(Some(_))))
    };
    let named = old.raw.get_array("members").is_ok_and(|members| members.into_iter().any(is_old));
    let delay = if named { "slaveDelay" } else { "secondaryDelaySecs" };
    vec![
        ("_id", None),
        ("host", None),
        ("arbiterOnly", Some(false.into())),
        ("buildIndexes", Some(true.into())),
        ("hidden", Some(false.into())),
        ("priority", Some(1i32.into())),
        ("tags", Some(rawdoc! {}.into())),
        (delay, Some(0i64.into())),
        ("votes", Some(1i32.into())),
    ]
}

fn settings_defaults(old: &ReplSetConfig) -> Vec<Default> {
    vec![
        ("chainingAllowed", Some(true.into())),
        ("heartbeatIntervalMillis", Some(2_000i32.into())),
        ("heartbeatTimeoutSecs", Some(10i32.into())),
        ("electionTimeoutMillis", Some(10_000i32.into())),
        ("catchUpTimeoutMillis", Some((-1i32).into())),
        ("catchUpTakeoverDelayMillis", Some(30_000i32.into())),
        ("getLastErrorModes", Some(rawdoc! {}.into())),
        ("replicaSetId", old.replica_set_id.map(Into::into)),
    ]
}

/// The `defaults` in order, each replaced by the value in `given` unless it is one of `fixed`; then the remaining
/// fields of `given`.
fn filled_in(
    given: &RawDocument,
    defaults: &[Default],
    fixed: &[&str],
) -> Result<RawDocumentBuf, bson::error::Error> {
    let mut out = RawDocumentBuf::new();
    for (name, default) in defaults {
        let value = given.get(*name)?.filter(|_| !fixed.contains(name)).map(RawBson::from);
        if let Some(value) = value.or_else(|| default.clone()) {
            out.append(CString::try_from(*name)?, value);
        }
    }
    for field in given.iter() {
        let (name, value) = field?;
        let known = defaults.iter().any(|(known, _)| *known == name.as_str());
        if !known && !fixed.contains(&name.as_str()) {
            out.append(name, value);
        }
    }
    Ok(out)
}

/// mongod's limit.
const VOTERS_MAX: usize = 7;
