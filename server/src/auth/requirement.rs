//! Privilege checks of commands whose requirements depend on their body.

use bson::{RawBsonRef, RawDocument, spec::BinarySubtype};
use protocol::{ErrorCode, Fields};
use storage::ReadAt;
use uuid::Uuid;

use super::{
    action::{Action, action},
    privilege::{Resource, Target},
    user::RoleName,
};
use crate::{context::Call, error::Failure};

/// The collection that a command names first. If it is named by UUID, the client needs the privilege to do so.
pub fn collection(call: &Call) -> Result<String, Failure> {
    match call.body.get(&call.name) {
        Ok(Some(RawBsonRef::String(name))) => Ok(name.to_owned()),
        Ok(Some(RawBsonRef::Binary(uuid))) if uuid.subtype == BinarySubtype::Uuid => {
            call.require(Target::Cluster, action("useUUID"))?;
            let Ok(uuid) = Uuid::from_slice(uuid.bytes) else { return Ok(String::new()) };
            let view = call.node().store()?.view(ReadAt::Newest)?;
            let found = view.catalog().by_uuid(uuid);
            Ok(found.map(|found| found.ns().coll().to_owned()).unwrap_or_default())
        }
        // The handler reports the error; the empty name requires a privilege on the whole database.
        _ => Ok(String::new()),
    }
}

/// dataSize names the full namespace.
pub fn data_size(call: &Call) -> Result<(), Failure> {
    let name = call.body.get_str(&call.name).unwrap_or_default();
    let (db, coll) = name.split_once('.').unwrap_or((name, ""));
    call.require(Target::Collection(db, coll), action("find"))
}

/// Listing names only requires any privilege in the database.
pub fn list_collections(call: &Call) -> Result<(), Failure> {
    if call.who.may(Target::Database(&call.db), action("listCollections")) {
        return Ok(());
    }
    let fields = Fields::idl("listCollections", &call.body);
    let flag = |name| -> Result<bool, Failure> {
        Ok(fields.optional(name)?.map_or(Ok(false), |flag| flag.safe_bool())?)
    };
    let names = flag("nameOnly")? && flag("authorizedCollections")?;
    if names && call.who.may_touch_within(&call.db) { Ok(()) } else { Err(call.unauthorized()) }
}

/// Reading the profiling level only requires access to the profile collection.
pub fn profile(call: &Call) -> Result<(), Failure> {
    let looks = call.body.get_i32("profile").is_ok_and(|level| !(0..=2).contains(&level))
        && !["slowms", "sampleRate", "filter"]
            .iter()
            .any(|name| matches!(call.body.get(name), Ok(Some(_))));
    let reads = Target::Collection(&call.db, "system.profile");
    if looks && call.who.may(reads, action("find")) {
        return Ok(());
    }
    call.require(Target::Database(&call.db), action("enableProfiler"))
}

/// Killing the sessions of other users additionally requires the privilege to impersonate.
pub(crate) fn kill_sessions_by_pattern(call: &Call) -> Result<(), Failure> {
    call.require(Target::Cluster, action("killAnySession"))?;
    let by_user = |pattern: &&RawDocument| {
        ["users", "roles"].iter().any(|name| !matches!(pattern.get(name), Ok(None)))
    };
    if documents(&call.body, &call.name).iter().any(by_user)
        && !call.who.may(Target::Cluster, action("impersonate"))
    {
        let text = "Not authorized to impersonate in killAllSessionsByPattern";
        return Err(Failure::said(ErrorCode::Unauthorized, text));
    }
    Ok(())
}

/// Older releases refuse session commands to an unauthenticated client under the localhost exception.
pub(crate) fn own_sessions(call: &Call) -> Result<(), Failure> {
    let newer = call.profile().login_comes_first;
    if newer || !call.who.is_restricted() || !call.who.users().is_empty() {
        return Ok(());
    }
    Err(call.unauthorized())
}

/// Only routers coordinate transactions of several shards; older releases first report that they are not primary.
pub(crate) fn coordinate_commit(call: &Call) -> Result<(), Failure> {
    if !call.profile().login_comes_first {
        return Ok(());
    }
    call.require(Target::Cluster, action("internal"))
}

/// Only members may send an election term.
pub fn term(call: &Call) -> Result<(), Failure> {
    match call.body.get("term") {
        Ok(Some(_)) => call.require(Target::Cluster, action("internal")),
        _ => Ok(()),
    }
}

/// `find` on the collection.
pub fn find(call: &Call) -> Result<(), Failure> {
    call.require(Target::Collection(&call.db, &collection(call)?), action("find"))?;
    term(call)
}

/// Granting or revoking roles requires the action on each role's database.
pub fn roles(call: &Call, wanted: Action) -> Result<(), Failure> {
    for role in role_list(call, "roles") {
        call.require(Target::Database(&role.db), wanted)?;
    }
    Ok(())
}

/// Granting or revoking privileges requires the action on each resource's database, or on `admin`.
pub fn privileges(call: &Call, wanted: Action) -> Result<(), Failure> {
    for privilege in documents(&call.body, "privileges") {
        let resource = privilege.get_document("resource").ok().and_then(Resource::parse);
        let db = match &resource {
            Some(Resource::Collection { db, .. } | Resource::Buckets { db, .. })
                if !db.is_empty() =>
            {
                db.as_str()
            }
            _ => "admin",
        };
        call.require(Target::Database(db), wanted)?;
    }
    Ok(())
}

/// Roles as commands write them: a name in this database, or `{role, db}`.
pub(crate) fn role_list(call: &Call, field: &str) -> Vec<RoleName> {
    let Ok(list) = call.body.get_array(field) else { return Vec::new() };
    let role = |value: RawBsonRef<'_>| match value {
        RawBsonRef::String(name) => Some(RoleName::new(name, &call.db)),
        RawBsonRef::Document(doc) => RoleName::parse(doc),
        _ => None,
    };
    list.into_iter().flatten().filter_map(role).collect()
}

fn documents<'a>(doc: &'a RawDocument, field: &str) -> Vec<&'a RawDocument> {
    let Ok(list) = doc.get_array(field) else { return Vec::new() };
    list.into_iter().flatten().filter_map(|value| value.as_document()).collect()
}
