//! The privileges that a pipeline needs: `find` on what it reads, and those of single stages.

use bson::{RawArray, RawDocument};
use query::{
    stage::{Needs, Reads, StageRow},
    value::{Element, Value},
};

use super::{
    Who,
    action::{Action, action},
    privilege::Target,
    user::UserName,
};
use crate::{context::Call, error::Failure};

/// A privilege that a pipeline needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// An action on the cluster.
    Cluster(Action),
    /// An action on a database.
    Database(String, Action),
    /// An action on a collection.
    Collection(String, String, Action),
    /// Being each of these users, or an action on the cluster.
    Being(Vec<UserName>, Action),
}

/// Fails if the client may not run the command's pipeline.
pub fn check(call: &Call) -> Result<(), Failure> {
    if met(&call.who, &of_command(call)?) { Ok(()) } else { Err(call.unauthorized()) }
}

/// The privileges of the command. If its pipeline is invalid, the handler reports that.
fn of_command(call: &Call) -> Result<Vec<Need>, Failure> {
    let coll = super::requirement::collection(call)?;
    let mut needs = Vec::new();
    match call.body.get_array("pipeline") {
        Ok(pipeline) => of(&call.db, &coll, pipeline, &mut needs),
        Err(_) => needs.push(Need::Collection(call.db.clone(), coll, action("find"))),
    }
    if matches!(call.body.get_bool("bypassDocumentValidation"), Ok(true)) {
        let written: Vec<Need> = needs.iter().filter_map(bypass).collect();
        needs.extend(written);
    }
    Ok(needs)
}

/// The privileges that a cursor needs for each batch: those of its command.
pub(crate) fn of_cursor(call: &Call) -> Result<Vec<Need>, Failure> {
    if !call.who.is_restricted() {
        return Ok(Vec::new());
    }
    let on = |coll, wanted| vec![Need::Collection(call.db.clone(), coll, action(wanted))];
    Ok(match call.name.as_str() {
        "aggregate" => of_command(call)?,
        "listIndexes" => on(super::requirement::collection(call)?, "listIndexes"),
        // Any privilege in the database suffices for listing names only.
        "listCollections" => {
            let list = Need::Database(call.db.clone(), action("listCollections"));
            Some(list).filter(|list| list.is_met(&call.who)).into_iter().collect()
        }
        _ => on(super::requirement::collection(call)?, "find"),
    })
}

/// True if the client has all the privileges.
pub fn met(who: &Who, needs: &[Need]) -> bool {
    needs.iter().all(|need| need.is_met(who))
}

impl Need {
    fn is_met(&self, who: &Who) -> bool {
        match self {
            Self::Cluster(action) => who.may(Target::Cluster, *action),
            Self::Database(db, action) => who.may(Target::Database(db), *action),
            Self::Collection(db, coll, action) => who.may(Target::Collection(db, coll), *action),
            Self::Being(users, action) => {
                let own = who.names();
                users.iter().all(|user| own.contains(user)) || who.may(Target::Cluster, *action)
            }
        }
    }
}

/// The additional privilege for writing without document validation.
fn bypass(need: &Need) -> Option<Need> {
    match need {
        Need::Collection(db, coll, insert) if *insert == action("insert") => {
            Some(Need::Collection(db.clone(), coll.clone(), action("bypassDocumentValidation")))
        }
        _ => None,
    }
}

/// Adds the privileges of a pipeline over a collection; an empty name means no collection.
///
/// The pipeline is walked over its bytes exactly as the query language does: both read invalid UTF-8 alike, and every
/// occurrence of a duplicate field counts, although the query language refuses duplicates.
pub fn of(db: &str, coll: &str, pipeline: &RawArray, needs: &mut Vec<Need>) {
    let pipeline = Value::Array(pipeline.as_bytes());
    let first = stages(pipeline).next().and_then(|first| StageRow::named(first.key));
    if !first.is_some_and(|first| first.brings_documents) {
        needs.push(Need::Collection(db.to_owned(), coll.to_owned(), action("find")));
    }
    nested(db, coll, pipeline, needs);
}

/// The stages with their names.
fn stages(pipeline: Value<'_>) -> impl Iterator<Item = Element<'_>> {
    pipeline.elements().flat_map(|stage| match stage.value() {
        stage @ Value::Document(_) => stage.elements(),
        _ => Value::Missing.elements(),
    })
}

/// Every field with this name.
fn all<'a>(doc: Value<'a>, name: &'static [u8]) -> impl Iterator<Item = Value<'a>> {
    let fields = matches!(doc, Value::Document(_)).then(|| doc.elements());
    let named = fields.into_iter().flatten().filter(move |field| field.key == name);
    named.map(|field| field.value())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn of_stage(db: &str, coll: &str, stage: Element<'_>, needs: &mut Vec<Need>) {
    let value = stage.value();
    let Some(row) = StageRow::named(stage.key) else {
        // Internal stages are not for users.
        if stage.key.starts_with(b"$_internal") {
            needs.push(Need::Cluster(action("internal")));
        }
        return;
    };
    match (row.reads, value) {
        (Reads::Nothing, _) => {}
        (Reads::Collection(_), Value::String(coll)) => {
            needs.push(Need::Collection(db.to_owned(), text(coll), action("find")));
        }
        (Reads::Collection(field), _) => foreign(db, value, field, needs),
        (Reads::Facets, _) => {
            value.elements().for_each(|facet| nested(db, coll, facet.value(), needs));
        }
    }
    let on = |wanted| Need::Collection(db.to_owned(), coll.to_owned(), action(wanted));
    let all_users = || all(value, b"allUsers").any(|flag| matches!(flag, Value::Bool(true)));
    match row.needs {
        Needs::Nothing => {}
        Needs::Collection(wanted) => needs.push(on(wanted)),
        Needs::Cluster(wanted) => needs.push(Need::Cluster(action(wanted))),
        Needs::ClusterForAllUsers(wanted) => {
            needs.extend(all_users().then(|| Need::Cluster(action(wanted))));
        }
        Needs::BeingUsers(wanted) if all_users() => needs.push(Need::Cluster(action(wanted))),
        Needs::BeingUsers(wanted) => {
            let spec = match value {
                Value::Document(spec) => RawDocument::from_bytes(spec).ok(),
                _ => None,
            };
            let users = spec.map(users).unwrap_or_default();
            needs.push(Need::Being(users, action(wanted)));
        }
        Needs::Catalog if coll.is_empty() => {
            needs.push(Need::Cluster(action("listDatabases")));
            needs.push(Need::Database(String::new(), action("listCollections")));
        }
        Needs::Catalog => needs.extend(["listCollections", "listIndexes"].map(on)),
        Needs::DatabaseCatalog => {
            let db = if db == "admin" { "" } else { db };
            needs.push(Need::Database(db.to_owned(), action("listCollections")));
        }
        Needs::Changes => change_stream(db, coll, value, needs),
        Needs::Target(Some(field), wanted) if matches!(value, Value::Document(_)) => {
            all(value, field).for_each(|into| writes(targets(db, into), wanted, needs));
        }
        Needs::Target(_, wanted) => writes(targets(db, value), wanted, needs),
    }
}

fn writes(targets: Vec<(String, String)>, wanted: [&str; 2], needs: &mut Vec<Need>) {
    for (db, coll) in targets {
        needs.extend(
            wanted.map(|wanted| Need::Collection(db.clone(), coll.clone(), action(wanted))),
        );
    }
}

/// The `users` of a session stage.
pub fn users(spec: &RawDocument) -> Vec<UserName> {
    let Ok(list) = spec.get_array("users") else { return Vec::new() };
    list.into_iter().flatten().filter_map(|user| UserName::parse(user.as_document()?)).collect()
}

/// A stage that reads another collection, with or without a pipeline.
fn foreign(db: &str, spec: Value<'_>, field: &'static [u8], needs: &mut Vec<Need>) {
    // `$lookup` over `$documents` reads no collection.
    let mut read = vec![(db.to_owned(), String::new())];
    let named: Vec<_> = all(spec, field).flat_map(|from| targets(db, from)).collect();
    for (db, coll) in &named {
        needs.push(Need::Collection(db.clone(), coll.clone(), action("find")));
    }
    if !named.is_empty() {
        read = named;
    }
    for pipeline in all(spec, b"pipeline") {
        read.iter().for_each(|(db, coll)| nested(db, coll, pipeline, needs));
    }
}

/// Adds the privileges of the stages only: those for reading are already added.
fn nested(db: &str, coll: &str, pipeline: Value<'_>, needs: &mut Vec<Need>) {
    stages(pipeline).for_each(|stage| of_stage(db, coll, stage, needs));
}

fn change_stream(db: &str, coll: &str, spec: Value<'_>, needs: &mut Vec<Need>) {
    let whole = all(spec, b"allChangesForCluster").any(|flag| matches!(flag, Value::Bool(true)));
    for wanted in [action("changeStream"), action("find")] {
        needs.push(match (whole, coll.is_empty()) {
            // The empty database name is covered only by privileges on all databases.
            (true, _) => Need::Database(String::new(), wanted),
            (false, true) => Need::Database(db.to_owned(), wanted),
            (false, false) => Need::Collection(db.to_owned(), coll.to_owned(), wanted),
        });
    }
}

/// Parses `"coll"` or `{db, coll}`; several results if a field is duplicated.
fn targets(db: &str, value: Value<'_>) -> Vec<(String, String)> {
    if let Value::String(coll) = value {
        return vec![(db.to_owned(), text(coll))];
    }
    let named = |name, default: &str| {
        let texts = all(value, name).map(|value| match value {
            Value::String(name) => text(name),
            _ => String::new(),
        });
        let texts: Vec<_> = texts.collect();
        if texts.is_empty() { vec![default.to_owned()] } else { texts }
    };
    let (dbs, colls) = (named(b"db", db), named(b"coll", ""));
    let with_each = |db: &String| {
        let db = db.clone();
        colls.iter().map(move |coll| (db.clone(), coll.clone()))
    };
    dbs.iter().flat_map(with_each).collect()
}

#[cfg(test)]
mod tests {
    use bson::{RawArrayBuf, RawDocumentBuf, raw::cstr, rawdoc};

    use super::*;

    fn needs(stages: impl IntoIterator<Item = bson::RawDocumentBuf>) -> Vec<String> {
        let pipeline: RawArrayBuf = stages.into_iter().collect();
        let mut needs = Vec::new();
        of("d", "c", &pipeline, &mut needs);
        let shown = |need| match need {
            Need::Cluster(action) => format!("{action:?}"),
            Need::Database(db, action) => format!("{db} {action:?}"),
            Need::Collection(db, coll, action) => format!("{db}.{coll} {action:?}"),
            Need::Being(users, action) => format!("{users:?} or {action:?}"),
        };
        needs.into_iter().map(shown).collect()
    }

    #[test]
    fn foreign_collections_need_find_at_any_depth() {
        let inner = rawdoc! { "$unionWith": { "coll": "u", "pipeline": [
            { "$lookup": { "from": { "db": "e", "coll": "l" }, "as": "x" } },
            { "$facet": { "f": [{ "$graphLookup": { "from": "g" } }] } },
        ] } };
        assert_eq!(needs([inner]), ["d.c find", "d.u find", "e.l find", "d.g find"]);
        assert_eq!(needs([rawdoc! { "$unionWith": "u" }]), ["d.c find", "d.u find"]);
    }

    /// Duplicate fields and names that are not UTF-8: nothing is overlooked.
    #[test]
    fn crooked_stages_need_all_that_they_might_read() {
        let mut twice = rawdoc! { "from": "a", "as": "x", "pipeline": [] };
        twice.append(cstr!("from"), "b");
        let union: RawArrayBuf = [rawdoc! { "$unionWith": "u" }].into_iter().collect();
        twice.append(cstr!("pipeline"), union);
        let found = needs([rawdoc! { "$lookup": twice }]);
        assert_eq!(found, ["d.c find", "d.a find", "d.b find", "d.u find", "d.u find"]);

        let mut out = rawdoc! { "db": "e", "coll": "mine" };
        out.append(cstr!("coll"), "yours");
        let found = needs([rawdoc! { "$out": out }]);
        assert!(found.contains(&"e.yours insert".to_owned()), "{found:?}");

        let crooked = |doc: RawDocumentBuf| {
            let bytes = doc.into_bytes();
            let at = bytes.windows(4).position(|four| four == b"XXXX").unwrap();
            let mut bytes = bytes;
            bytes[at] = 0xff;
            RawDocumentBuf::from_bytes(bytes).unwrap()
        };
        let found = needs([crooked(rawdoc! { "$unionWith": { "XXXX": 1, "coll": "u" } })]);
        assert_eq!(found, ["d.c find", "d.u find"]);
        let found = needs([crooked(rawdoc! { "$facet": { "XXXX": [{ "$unionWith": "u" }] } })]);
        assert_eq!(found, ["d.c find", "d.u find"]);
    }

    #[test]
    fn stages_that_start_themselves_need_their_own() {
        assert_eq!(needs([rawdoc! { "$collStats": {} }]), ["d.c collStats"]);
        assert_eq!(needs([rawdoc! { "$currentOp": { "allUsers": true } }]), ["inprog"]);
        assert!(needs([rawdoc! { "$currentOp": {} }]).is_empty());
        assert_eq!(needs([rawdoc! { "$changeStream": {} }]), ["d.c changeStream", "d.c find"]);
    }

    #[test]
    fn writing_stages_need_to_write() {
        assert_eq!(needs([rawdoc! { "$out": "o" }]), ["d.c find", "d.o insert", "d.o remove"]);
        let merge = rawdoc! { "$merge": { "into": { "db": "e", "coll": "m" } } };
        assert_eq!(needs([merge]), ["d.c find", "e.m insert", "e.m update"]);
    }
}
