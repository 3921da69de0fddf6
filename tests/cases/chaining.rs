//! Other members sync from us: they follow our oplog, copy our data, and get our session information.

use anyhow::{Result, ensure};
use bson::doc;
use tests::node::Node;
use tests::repl_set::{Member, ReplSet};
use tests::servers::Version;
use tests::wait::{PATIENCE, wait_for};
use tests::workload::Workload;
use tests::{mongod, scripts};

on_each_version!(
    a_real_member_follows_us,
    a_real_member_copies_us,
    a_retried_write_is_known_to_one_that_synced_from_us
);

/// The acknowledgements of a member that syncs from us reach the primary through us.
fn a_real_member_follows_us(version: Version) -> Result<()> {
    let mut set = ReplSet::named("chain").version(version).ours_hidden(1).start()?;
    let real = mongod::options("real", version, Some(set.name()))?;
    let real = set.add(real, Member { votes: 0 })?;
    for node in [set.ours()?, set.node(real)?] {
        set.await_state(node, "SECONDARY", PATIENCE)?;
    }
    sync_from_us(set.node(real)?, set.ours()?)?;
    let counts = Workload::new(7, set.primary()?)?.run(300)?;
    ensure!(counts.done > counts.refused, "{counts:?}");
    let all = doc! { "w": 3, "wtimeout": 60_000 };
    let insert = doc! { "insert": "acknowledged", "documents": [{}], "writeConcern": all };
    let reply = set.primary()?.run("shop", insert)?;
    ensure!(!reply.contains_key("writeConcernError"), "{reply}");
    let status = set.node(real)?.admin(doc! { "replSetGetStatus": 1 })?;
    ensure!(status.get_str("syncSourceHost")? == set.ours()?.host(), "it left us: {status}");
    set.finish()
}

/// The whole initial sync of a real mongod from us.
fn a_real_member_copies_us(version: Version) -> Result<()> {
    let mut set = ReplSet::named("copy-us").version(version).ours_hidden(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    let counts = Workload::new(11, set.primary()?)?.run(800)?;
    ensure!(counts.done > counts.refused, "{counts:?}");
    set.await_caught_up()?;
    let mut real = mongod::options("real", version, Some(set.name()))?;
    let only_us = format!("{{mode: 'alwaysOn', data: {{hostAndPort: '{}'}}}}", set.ours()?.host());
    real.args.extend([
        "--setParameter".to_owned(),
        format!("failpoint.forceSyncSourceCandidate={only_us}"),
    ]);
    let real = set.add(real, Member { votes: 0 })?;
    set.await_state(set.node(real)?, "SECONDARY", PATIENCE)?;
    let status = set.node(real)?.admin(doc! { "replSetGetStatus": 1 })?;
    ensure!(status.get_str("syncSourceHost")? == set.ours()?.host(), "{status}");
    set.finish()
}

/// After a failover to a mongod that synced everything from us, a retried write is not executed twice.
fn a_retried_write_is_known_to_one_that_synced_from_us(version: Version) -> Result<()> {
    let set = ReplSet::named("retry").version(version).mongods(2).ours_voting(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    // A voter only syncs from voters.
    set.await_votes()?;
    let old = set.primary_index()?;
    let next = set.node(1 - old)?;
    sync_from_us(next, set.ours()?)?;
    let documents = vec![doc! { "_id": 1, "n": 0 }, doc! { "_id": 2, "n": 0 }];
    set.primary()?.run("shop", doc! { "insert": "c", "documents": documents })?;
    let first = scripts::python_json(PYTHON_RETRYABLE, set.primary()?.port(), &[])?;
    set.await_caught_up()?;
    wait_for("the one that synced from us is primary", PATIENCE, || {
        next.admin(doc! { "replSetStepUp": 1 })?;
        Ok(set.primary()?.port() == next.port())
    })?;
    let again = scripts::python_json(PYTHON_RETRYABLE, next.port(), &[])?;
    ensure!(first == again, "first {first}, retried {again}");
    let counted = next.run("shop", doc! { "count": "c", "query": { "n": 1 } })?;
    ensure!(counted.get_i32("n")? == 2, "a retried write was done twice: {counted}");
    next.admin(doc! { "configureFailPoint": "forceSyncSourceCandidate", "mode": "off" })?;
    set.finish()
}

/// A fail point of mongod forces its choice of sync source.
fn sync_from_us(real: &Node, ours: &Node) -> Result<()> {
    let data = doc! { "hostAndPort": ours.host() };
    let only =
        doc! { "configureFailPoint": "forceSyncSourceCandidate", "mode": "alwaysOn", "data": data };
    real.admin(only)?;
    wait_for("the real member syncs from us", PATIENCE, || {
        real.admin(doc! { "replSetSyncFrom": ours.host() })?;
        let status = real.admin(doc! { "replSetGetStatus": 1 })?;
        Ok(status.get_str("syncSourceHost")? == ours.host())
    })
}

/// Sends an update, a find-and-modify and an insert with a chosen session and transaction number as raw messages,
/// because drivers choose their own.
const PYTHON_RETRYABLE: &str = "
import json, socket, struct, sys, uuid, bson
from bson.binary import Binary, UUID_SUBTYPE
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
def ask(body):
    body = bson.encode({**body, '$db': 'shop'})
    s.sendall(struct.pack('<iiiiIB', 21 + len(body), 1, 0, 2013, 0, 0) + body)
    head = b''
    while len(head) < 16: head += s.recv(16 - len(head))
    n = struct.unpack('<i', head[:4])[0] - 16
    rest = b''
    while len(rest) < n: rest += s.recv(n - len(rest))
    return bson.decode(rest[5:])
lsid = {'id': Binary(b'understudy-retry', UUID_SUBTYPE)}
update = ask({'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$inc': {'n': 1}}}],
    'lsid': lsid, 'txnNumber': bson.Int64(1)})
modify = ask({'findAndModify': 'c', 'query': {'_id': 2}, 'update': {'$inc': {'n': 1}}, 'new': True,
    'lsid': {'id': Binary(b'understudy-modif', UUID_SUBTYPE)}, 'txnNumber': bson.Int64(1)})
insert = ask({'insert': 'c', 'documents': [{'_id': 3, 'n': 5}],
    'lsid': {'id': Binary(b'understudy-inser', UUID_SUBTYPE)}, 'txnNumber': bson.Int64(1)})
print(json.dumps({'updated': [update.get('n'), update.get('nModified'), update.get('errmsg')],
    'modified': [modify.get('value'), modify.get('errmsg')], 'inserted': [insert.get('n'), insert.get('writeErrors'), insert.get('errmsg')]}))
";
