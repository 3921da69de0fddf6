//! Privilege checks of commands that only a primary runs. These commands are always refused here, but an unauthorized
//! client gets the authorization error first, as from a mongod.

use bson::{RawBsonRef, RawDocument};

use super::{
    action::{Action, action},
    privilege::Target,
    requirement::{self, collection},
};
use crate::{context::Call, error::Failure};

/// True if a field is present and true.
fn says_yes(doc: &RawDocument, field: &str) -> bool {
    match doc.get(field) {
        Ok(Some(RawBsonRef::Boolean(flag))) => flag,
        Ok(Some(RawBsonRef::Int32(n))) => n != 0,
        Ok(Some(RawBsonRef::Int64(n))) => n != 0,
        Ok(Some(RawBsonRef::Double(n))) => n != 0.0,
        _ => false,
    }
}

fn require_all(call: &Call, coll: &str, wanted: &[Action]) -> Result<(), Failure> {
    for action in wanted {
        call.require(Target::Collection(&call.db, coll), *action)?;
    }
    bypass(call, coll)
}

/// Bypassing document validation requires a privilege.
fn bypass(call: &Call, coll: &str) -> Result<(), Failure> {
    if says_yes(&call.body, "bypassDocumentValidation") {
        let on = Target::Collection(&call.db, coll);
        call.require(on, action("bypassDocumentValidation"))?;
    }
    Ok(())
}

/// `insert`.
pub fn insert(call: &Call) -> Result<(), Failure> {
    require_all(call, &collection(call)?, &[action("insert")])
}

/// `update`: an upsert also requires insert.
pub fn update(call: &Call) -> Result<(), Failure> {
    let of_body = call.body.get_array("updates").ok();
    let of_body = of_body.into_iter().flatten().flatten().filter_map(|update| update.as_document());
    let upserts = of_body.into_iter().any(|update| says_yes(update, "upsert"))
        || documents_of(call, "updates").any(|update| says_yes(&update, "upsert"));
    let mut wanted = vec![action("update")];
    if upserts {
        wanted.push(action("insert"));
    }
    require_all(call, &collection(call)?, &wanted)
}

/// Documents from a document sequence of the command.
fn documents_of<'a>(call: &'a Call, name: &'a str) -> impl Iterator<Item = protocol::RawDoc> + 'a {
    let beside = call.sequences.iter().filter(move |sequence| sequence.name() == name);
    beside.flat_map(|sequence| sequence.docs().iter())
}

/// `findAndModify`.
pub fn find_and_modify(call: &Call) -> Result<(), Failure> {
    let mut wanted = vec![action("find")];
    if says_yes(&call.body, "remove") {
        wanted.push(action("remove"));
    } else {
        wanted.push(action("update"));
    }
    if says_yes(&call.body, "upsert") {
        wanted.push(action("insert"));
    }
    require_all(call, &collection(call)?, &wanted)
}

/// `bulkWrite`: each operation requires privileges on its namespace.
pub(crate) fn bulk_write(call: &Call) -> Result<(), Failure> {
    let list = |name: &'static str| {
        let of_body = call.body.get_array(name).ok();
        let of_body = of_body.into_iter().flatten().flatten();
        let of_body = of_body.filter_map(|doc| doc.as_document()).map(protocol::RawDoc::from);
        of_body.chain(documents_of(call, name)).collect::<Vec<_>>()
    };
    let namespaces = list("nsInfo");
    for operation in list("ops") {
        let Some(Ok((kind, RawBsonRef::Int32(at)))) = operation.iter().next() else { continue };
        let mut wanted = match kind.as_str() {
            "insert" => vec![action("insert")],
            "update" => vec![action("update")],
            _ => vec![action("remove")],
        };
        if says_yes(&operation, "upsert") {
            wanted.push(action("insert"));
        }
        let named = usize::try_from(at).ok().and_then(|at| namespaces.get(at));
        let ns = named.and_then(|ns| ns.get_str("ns").ok()).unwrap_or_default();
        let (db, coll) = ns.split_once('.').unwrap_or((ns, ""));
        for action in wanted {
            call.require(Target::Collection(db, coll), action)?;
        }
    }
    Ok(())
}

/// `create`: the insert privilege suffices for a plain collection.
pub fn create(call: &Call) -> Result<(), Failure> {
    let coll = collection(call)?;
    let on = Target::Collection(&call.db, &coll);
    let plain = !says_yes(&call.body, "capped")
        && !matches!(call.body.get("viewOn"), Ok(Some(_)))
        && !matches!(call.body.get("timeseries"), Ok(Some(_)));
    if plain && call.who.may(on, action("insert")) {
        return Ok(());
    }
    call.require(on, action("createCollection"))
}

/// `renameCollection`, within a database or across databases.
pub fn rename(call: &Call) -> Result<(), Failure> {
    let name = |field| call.body.get_str(field).unwrap_or_default();
    let (from, to) = (name("renameCollection"), name("to"));
    let (from_db, from_coll) = from.split_once('.').unwrap_or((from, ""));
    let (to_db, to_coll) = to.split_once('.').unwrap_or((to, ""));
    let drops = says_yes(&call.body, "dropTarget");
    let (from, to) = (Target::Collection(from_db, from_coll), Target::Collection(to_db, to_coll));
    let sees_both_or_none = call.who.may(from, action("find")) || !call.who.may(to, action("find"));
    if from_db == to_db
        && sees_both_or_none
        && call.who.may(from, action("renameCollectionSameDB"))
        && call.who.may(to, action("renameCollectionSameDB"))
        && (!drops || call.who.may(to, action("dropCollection")))
    {
        return Ok(());
    }
    for wanted in [action("find"), action("dropCollection")] {
        call.require(from, wanted)?;
    }
    for wanted in [action("insert"), action("createIndex")] {
        call.require(to, wanted)?;
    }
    if drops {
        call.require(to, action("dropCollection"))?;
    }
    Ok(())
}

/// `applyOps`: the primary checks the privileges of its entries; only members may send one without entries.
pub fn apply_ops(call: &Call) -> Result<(), Failure> {
    if call.body.get_array("applyOps").is_ok_and(|entries| entries.is_empty()) {
        return call.require(Target::Cluster, action("internal"));
    }
    call.require(Target::Cluster, action("applyOps"))
}

/// `cloneCollectionAsCapped`.
pub(crate) fn clone_as_capped(call: &Call) -> Result<(), Failure> {
    let from = collection(call)?;
    let to = call.body.get_str("toCollection").unwrap_or_default();
    call.require(Target::Collection(&call.db, &from), action("find"))?;
    for wanted in [action("insert"), action("createIndex"), action("convertToCapped")] {
        call.require(Target::Collection(&call.db, to), wanted)?;
    }
    Ok(())
}

/// `dbCheck` of a collection, or of the database.
pub(crate) fn db_check(call: &Call) -> Result<(), Failure> {
    match call.body.get("dbCheck") {
        Ok(Some(RawBsonRef::String(coll))) => {
            call.require(Target::Collection(&call.db, coll), action("dbCheck"))
        }
        _ => call.require(Target::Database(&call.db), action("dbCheck")),
    }
}

/// `splitVector` names the full namespace.
pub(crate) fn split_vector(call: &Call) -> Result<(), Failure> {
    let ns = call.body.get_str("splitVector").unwrap_or_default();
    let (db, coll) = ns.split_once('.').unwrap_or((ns, ""));
    call.require(Target::Collection(db, coll), action("splitVector"))
}

fn restricts(call: &Call) -> Result<(), Failure> {
    if matches!(call.body.get("authenticationRestrictions"), Ok(Some(_))) {
        let wanted = action("setAuthenticationRestriction");
        call.require(Target::Database(&call.db), wanted)?;
    }
    Ok(())
}

/// `createUser`.
pub(crate) fn create_user(call: &Call) -> Result<(), Failure> {
    call.require(Target::Database(&call.db), action("createUser"))?;
    requirement::roles(call, action("grantRole"))?;
    restricts(call)
}

/// `updateUser`: a separate privilege allows changing one's own password and custom data.
pub(crate) fn update_user(call: &Call) -> Result<(), Failure> {
    let name = call.body.get_str("updateUser").unwrap_or_default();
    let own = call.who.names().iter().any(|own| own.user == name && own.db == call.db);
    let on = Target::Database(&call.db);
    let may_change = |wanted: Action, of_own: Action| {
        call.who.may(on, wanted) || own && call.who.may(on, of_own)
    };
    let has = |field| matches!(call.body.get(field), Ok(Some(_)));
    if has("pwd") && !may_change(action("changePassword"), action("changeOwnPassword")) {
        return Err(call.unauthorized());
    }
    if has("customData") && !may_change(action("changeCustomData"), action("changeOwnCustomData")) {
        return Err(call.unauthorized());
    }
    if has("roles") {
        call.require(Target::AnyNormal, action("revokeRole"))?;
        requirement::roles(call, action("grantRole"))?;
    }
    restricts(call)
}

/// `createRole`.
pub(crate) fn create_role(call: &Call) -> Result<(), Failure> {
    call.require(Target::Database(&call.db), action("createRole"))?;
    requirement::roles(call, action("grantRole"))?;
    requirement::privileges(call, action("grantRole"))?;
    restricts(call)
}

/// `updateRole`.
pub(crate) fn update_role(call: &Call) -> Result<(), Failure> {
    call.require(Target::AnyNormal, action("revokeRole"))?;
    requirement::roles(call, action("grantRole"))?;
    requirement::privileges(call, action("grantRole"))?;
    restricts(call)
}

/// `mapReduce`: reads one collection and may write another.
pub(crate) fn map_reduce(call: &Call) -> Result<(), Failure> {
    require_all(call, &collection(call)?, &[action("find")])?;
    let (db, coll, way) = match call.body.get("out") {
        Ok(Some(RawBsonRef::String(coll))) => (call.db.as_str(), coll, "replace"),
        Ok(Some(RawBsonRef::Document(out))) => {
            let named = |way: &'static str| out.get_str(way).ok().map(|coll| (coll, way));
            let Some((coll, way)) = ["replace", "merge", "reduce"].into_iter().find_map(named)
            else {
                return Ok(());
            };
            (out.get_str("db").unwrap_or(&call.db), coll, way)
        }
        _ => return Ok(()),
    };
    let second = if way == "replace" { action("remove") } else { action("update") };
    call.require(Target::Collection(db, coll), action("insert"))?;
    call.require(Target::Collection(db, coll), second)
}

/// `configureQueryAnalyzer` names the full namespace.
pub(crate) fn configure_query_analyzer(call: &Call) -> Result<(), Failure> {
    let name = call.body.get_str(&call.name).unwrap_or_default();
    let (db, coll) = name.split_once('.').unwrap_or((name, ""));
    call.require(Target::Collection(db, coll), action("configureQueryAnalyzer"))
}
