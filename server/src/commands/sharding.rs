//! Sharding commands, answered as by a member of an unsharded set.

use bson::{RawBsonRef, rawdoc};
use protocol::{ErrorCode, fields::type_name};

use super::{Auth, Command, Run};
use crate::{
    auth::{action::action, privilege::Target},
    context::{Call, Outcome},
    error::Failure,
};

pub(super) fn commands() -> impl Iterator<Item = Command> {
    [FLUSH_ROUTER_CONFIG, GET_DATABASE_VERSION, GET_SHARD_MAP, GET_SHARD_VERSION, STATE].into_iter()
}

const FLUSH_ROUTER_CONFIG: Command = Command {
    name: "flushRouterConfig",
    help: "Forgets where chunks are: refused, there are no shards.",
    auth: Auth::Cluster(action("flushRouterConfig")),
    run: Run::Now(|_| not_enabled()),
    ..SHARDING
};

const GET_DATABASE_VERSION: Command = Command {
    name: "getDatabaseVersion",
    help: "Returns the version of a sharded database: refused, there are no shards.",
    auth: Auth::Body("`getDatabaseVersion` on the database", |call| {
        let db = call.body.get_str(&call.name).unwrap_or_default();
        call.require(Target::Database(db), action("getDatabaseVersion"))
    }),
    run: Run::Now(get_database_version),
    ..SHARDING
};

const GET_SHARD_MAP: Command = Command {
    name: "getShardMap",
    help: "Lists the shards: refused, there are none.",
    auth: Auth::Cluster(action("getShardMap")),
    run: Run::Now(|_| not_enabled()),
    ..SHARDING
};

const GET_SHARD_VERSION: Command = Command {
    name: "getShardVersion",
    help: "Returns the version of a sharded collection: refused, there are no shards.",
    auth: Auth::Body("`getShardVersion` on the collection", |call| {
        let ns = call.body.get_str(&call.name).unwrap_or_default();
        let (db, coll) = ns.split_once('.').unwrap_or((ns, ""));
        call.require(Target::Collection(db, coll), action("getShardVersion"))
    }),
    run: Run::Now(get_shard_version),
    ..SHARDING
};

const STATE: Command = Command {
    name: "shardingState",
    help: "Tells whether this is a shard's member.",
    auth: Auth::Cluster(action("shardingState")),
    run: Run::Now(|_| Ok(rawdoc! { "enabled": false }.into())),
    ..SHARDING
};

const SHARDING: Command = Command { admin_only: true, ..Command::DEFAULT };

fn not_enabled() -> Outcome {
    Err(Failure::said(ErrorCode::ShardingStateNotInitialized, "Sharding is not enabled"))
}

fn get_database_version(call: &Call) -> Outcome {
    match call.body.get(&call.name) {
        Ok(Some(RawBsonRef::String(_))) => {
            let text = "getDatabaseVersion can only be run on shard servers";
            Err(Failure::said(ErrorCode::IllegalOperation, text))
        }
        Ok(Some(other)) => {
            Err(Failure::wrong_type("getDatabaseVersion.getDatabaseVersion", other, &["string"]))
        }
        _ => Err(Failure::missing("getDatabaseVersion.getDatabaseVersion")),
    }
}

fn get_shard_version(call: &Call) -> Outcome {
    match call.body.get(&call.name) {
        Ok(Some(RawBsonRef::String(ns))) if ns.contains('.') => {
            let text = "Cannot accept sharding commands if sharding state has not been \
                        initialized with a shardIdentity document";
            Err(Failure::said(ErrorCode::ShardingStateNotInitialized, text))
        }
        Ok(Some(RawBsonRef::String(ns))) => {
            let text = format!("Invalid namespace specified '{ns}'");
            Err(Failure::said(ErrorCode::InvalidNamespace, text))
        }
        Ok(Some(other)) => {
            let text = format!("Collection name has invalid type {}", type_name(&other));
            Err(Failure::said(ErrorCode::InvalidNamespace, text))
        }
        _ => Err(Failure::missing("getShardVersion.getShardVersion")),
    }
}
