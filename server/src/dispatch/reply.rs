//! The fields at the end of every reply.
//!
//! A readable member includes its time in every reply, also in errors: `$clusterTime`, the newest known cluster time,
//! and `operationTime`, the newest timestamp visible to its readers.

use std::sync::Arc;

use bson::{RawArrayBuf, RawDocumentBuf, raw::cstr};
use protocol::{
    ClusterTime, Timestamp,
    repl_metadata::{Signature, append_operation_time},
};
use repl::Snapshot;

use super::Generic;
use crate::{context::Client, error::Failure};

/// Appends `ok`, unless the reply begins with it, and the node's fields.
pub(super) fn end_success(
    client: &Client,
    generic: &Generic,
    body: &mut RawDocumentBuf,
    wrote_at: Option<Timestamp>,
) {
    let begins_with_ok =
        body.iter().next().is_some_and(|first| first.is_ok_and(|(name, _)| name == "ok"));
    if !begins_with_ok {
        body.append(cstr!("ok"), 1.0);
    }
    // A help text gets no times.
    if !generic.help {
        let mut ending = Ending::of(client, generic);
        ending.operation_time =
            ending.operation_time.map(|time| wrote_at.unwrap_or(time).max(time));
        ending.append_to(body);
    }
}

/// The reply for an error.
pub(super) fn failure(client: &Client, generic: &Generic, failure: &Failure) -> RawDocumentBuf {
    let profile = client.node.profile();
    let mut ending = Ending::of(client, generic);
    let mut body = RawDocumentBuf::new();
    if let Some(label) = failure.label() {
        body.append(cstr!("errorLabels"), RawArrayBuf::from_iter([label]));
    }
    if failure.shows_topology() {
        body.append(cstr!("topologyVersion"), client.node.topology_version());
    }
    let thrown = failure.wire_code(profile).is_some();
    if profile.error_starts_with_operation_time
        && thrown
        && let Some(time) = ending.operation_time.take()
    {
        append_operation_time(&mut body, time);
    }
    failure.append_to(&mut body, profile);
    ending.append_to(&mut body);
    body
}

/// The fields that a member appends.
struct Ending {
    repl_data: Option<Arc<Snapshot>>,
    oplog_query_data: Option<Arc<Snapshot>>,
    cluster_time: Option<ClusterTime>,
    operation_time: Option<Timestamp>,
}

impl Ending {
    fn of(client: &Client, generic: &Generic) -> Self {
        let snapshot = client.node.repl().map(repl::Repl::snapshot);
        let readable = snapshot.as_ref().filter(|snapshot| snapshot.state.is_readable());
        let applied = readable.map(|snapshot| snapshot.positions.applied.op_time.ts);
        Self {
            cluster_time: applied.map(|applied| {
                client.node.advance_cluster_time(applied);
                let time = client.node.cluster_time();
                ClusterTime { time, signature: signature(client, time) }
            }),
            operation_time: applied.map(|applied| client.pinned().unwrap_or(applied)),
            repl_data: snapshot.clone().filter(|_| generic.repl_data),
            oplog_query_data: snapshot.filter(|_| generic.oplog_query_data),
        }
    }

    fn append_to(&self, body: &mut RawDocumentBuf) {
        if let Some(snapshot) = &self.repl_data {
            body.append(cstr!("$replData"), snapshot.repl_data());
        }
        if let Some(snapshot) = &self.oplog_query_data {
            body.append(cstr!("$oplogQueryData"), snapshot.oplog_query_data());
        }
        if let Some(time) = &self.cluster_time {
            time.append_to(body);
        }
        if let Some(time) = self.operation_time {
            append_operation_time(body, time);
        }
    }
}

/// The signature of a cluster time. Members get none since 8.0, and clients trusted without one get an empty one.
fn signature(client: &Client, time: Timestamp) -> Option<Signature> {
    let node = &client.node;
    if node.profile().internal_cluster_time_unsigned && client.is_internal() {
        return None;
    }
    if client.login.may_advance_cluster_time(node) {
        return Some(Signature::DUMMY);
    }
    let signed = node.store().ok().map(|store| node.signer.sign(store, time));
    // If there is no key yet, or it cannot be read, a dummy signature is sent.
    Some(signed.and_then(Result::ok).flatten().unwrap_or(Signature::DUMMY))
}
