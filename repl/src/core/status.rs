//! Our part of `hello` replies and reply metadata, in the format of the release that we show. The field order is
//! mongod's.

use bson::{RawArrayBuf, RawDocumentBuf, oid::ObjectId, raw::cstr, rawdoc};
use protocol::{OpTime, release::Told};

use super::{
    config::{NO_TERM, ReplSetConfig},
    member_state::MemberState,
    snapshot::Snapshot,
};

/// The replica set's part of a `hello` (or, with `hello` false, `isMaster`) reply.
pub fn hello(at: &Snapshot, hello: bool) -> RawDocumentBuf {
    let writable = if hello { cstr!("isWritablePrimary") } else { cstr!("ismaster") };
    let mut doc = rawdoc! {
        "topologyVersion": { "processId": at.process_id, "counter": at.topology_counter },
    };
    let (Some(config), Some(own)) = (at.config.as_deref(), at.own_config()) else {
        doc.append(writable, false);
        doc.append(cstr!("secondary"), false);
        doc.append(cstr!("info"), "Does not have a valid replica set config");
        doc.append(cstr!("isreplicaset"), true);
        return doc;
    };
    append_hosts(&mut doc, config);
    doc.append(cstr!("setName"), config.name.as_str());
    doc.append(cstr!("setVersion"), int32(config.version_and_term.version));
    doc.append(writable, false);
    doc.append(cstr!("secondary"), at.state == MemberState::Secondary);
    if let Some(primary) = at.primary() {
        doc.append(cstr!("primary"), primary.to_string());
    }
    if own.priority == 0.0 {
        doc.append(cstr!("passive"), true);
    }
    if own.hidden {
        doc.append(cstr!("hidden"), true);
    }
    if !own.build_indexes {
        doc.append(cstr!("buildIndexes"), false);
    }
    if own.delay_secs > 0 {
        let name = if hello { cstr!("secondaryDelaySecs") } else { cstr!("slaveDelay") };
        doc.append(name, int32(i64::from(own.delay_secs)));
    }
    if !own.tags.is_empty() {
        doc.append(cstr!("tags"), own.tags.as_raw());
    }
    doc.append(cstr!("me"), own.host.to_string());
    doc.append(cstr!("lastWrite"), last_write(at));
    doc
}

/// `lastWrite`. The majority fields are present once there is a committed entry.
fn last_write(at: &Snapshot) -> RawDocumentBuf {
    let applied = at.positions.applied.op_time;
    let mut doc = rawdoc! { "opTime": applied.to_raw(), "lastWriteDate": whole_seconds(applied) };
    if !at.stable.is_null() {
        doc.append(cstr!("majorityOpTime"), at.stable.to_raw());
        doc.append(cstr!("majorityWriteDate"), whole_seconds(at.stable));
    }
    doc
}

/// Hidden and delayed members are not in any of the lists.
fn append_hosts(doc: &mut RawDocumentBuf, config: &ReplSetConfig) {
    let mut lists = [cstr!("hosts"), cstr!("passives"), cstr!("arbiters")]
        .map(|name| (name, RawArrayBuf::new()));
    let [hosts, passives, arbiters] = &mut lists;
    for member in &config.members {
        if member.hidden || member.delay_secs > 0 {
            continue;
        }
        let list = match () {
            () if member.arbiter_only => &mut *arbiters,
            () if member.electable() => &mut *hosts,
            () => &mut *passives,
        };
        list.1.push(member.host.to_string());
    }
    for (name, list) in lists {
        if !list.is_empty() {
            doc.append(name, list);
        }
    }
}

/// `$replData`.
pub fn repl_data(at: &Snapshot) -> RawDocumentBuf {
    let config = at.config.as_deref();
    let version = config.map(|config| config.version_and_term);
    let set_id = config.and_then(|config| config.replica_set_id);
    let mut doc = rawdoc! {
        "term": at.term,
        "lastOpCommitted": at.committed.op_time.to_raw(),
        "lastCommittedWall": at.committed.wall,
        "lastOpVisible": at.stable.to_raw(),
        "configVersion": version.map_or(at.profile.no_config_version, |it| it.version),
        "configTerm": version.map_or(NO_TERM, |it| it.term),
        "replicaSetId": set_id.unwrap_or_else(|| ObjectId::from_bytes([0; 12])),
    };
    if at.profile.primary_index_in_repl_data {
        doc.append(cstr!("primaryIndex"), index(at.primary_index));
    }
    doc.append(cstr!("syncSourceIndex"), index(at.sync_source_index()));
    doc.append(cstr!("isPrimary"), false);
    doc
}

/// `$oplogQueryData`.
pub fn oplog_query_data(at: &Snapshot) -> RawDocumentBuf {
    let mut doc = rawdoc! {
        "lastOpCommitted": at.committed.op_time.to_raw(),
        "lastCommittedWall": at.committed.wall,
        "lastOpApplied": at.positions.applied.op_time.to_raw(),
    };
    if at.profile.has_written {
        doc.append(cstr!("lastOpWritten"), at.positions.written.op_time.to_raw());
    }
    doc.append(cstr!("rbid"), at.rbid);
    doc.append(cstr!("primaryIndex"), index(at.primary_index));
    doc.append(cstr!("syncSourceIndex"), index(at.sync_source_index()));
    let source = at.sync_source.as_ref().map(ToString::to_string);
    let told = match at.profile.sync_source_host_in_oplog_query_data {
        Told::Never => false,
        Told::IfThere => source.is_some(),
        Told::Always => true,
    };
    if told {
        doc.append(cstr!("syncSourceHost"), source.unwrap_or_default());
    }
    doc
}

/// The index, or -1 for none.
pub(crate) fn index(place: Option<usize>) -> i32 {
    place.and_then(|place| i32::try_from(place).ok()).unwrap_or(-1)
}

/// Config versions are checked to fit when the config is parsed.
pub(crate) fn int32(value: i64) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn whole_seconds(op_time: OpTime) -> bson::DateTime {
    bson::DateTime::from_millis(i64::from(op_time.ts.secs()) * 1000)
}
