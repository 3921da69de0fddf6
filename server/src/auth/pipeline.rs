//! What a pipeline needs: `find` on what it reads, and what single stages ask for.

use bson::{RawArray, RawBsonRef, RawDocument};

use super::{
    action::{Action, action},
    privilege::Target,
    user::UserName,
};
use crate::{context::Call, error::Failure};

/// One need of a pipeline.
#[derive(Debug, PartialEq, Eq)]
pub enum Need {
    /// An action on the cluster.
    Cluster(Action),
    /// An action on a database.
    Database(String, Action),
    /// An action on a collection.
    Collection(String, String, Action),
    /// To be each of these users, or an action on the cluster.
    Being(Vec<UserName>, Action),
}

/// Refuses whoever may not run the command's pipeline.
pub fn check(call: &Call) -> Result<(), Failure> {
    let coll = super::requirement::collection(call)?;
    let Ok(pipeline) = call.body.get_array("pipeline") else {
        // The handler will say what is wrong with it.
        return call.require(Target::Collection(&call.db, &coll), action("find"));
    };
    let mut needs = Vec::new();
    of(&call.db, &coll, pipeline, &mut needs);
    if matches!(call.body.get_bool("bypassDocumentValidation"), Ok(true)) {
        let written: Vec<Need> = needs.iter().filter_map(bypass).collect();
        needs.extend(written);
    }
    for need in needs {
        match need {
            Need::Cluster(action) => call.require(Target::Cluster, action)?,
            Need::Database(db, action) => call.require(Target::Database(&db), action)?,
            Need::Collection(db, coll, action) => {
                call.require(Target::Collection(&db, &coll), action)?;
            }
            Need::Being(users, action) => {
                let own = call.who.names();
                if !users.iter().all(|user| own.contains(user)) {
                    call.require(Target::Cluster, action)?;
                }
            }
        }
    }
    Ok(())
}

/// What else is needed to write where one may insert, without the collection's validation.
fn bypass(need: &Need) -> Option<Need> {
    match need {
        Need::Collection(db, coll, insert) if *insert == action("insert") => {
            Some(Need::Collection(db.clone(), coll.clone(), action("bypassDocumentValidation")))
        }
        _ => None,
    }
}

/// Adds the needs of a pipeline over a collection; an empty name is a pipeline over none.
pub fn of(db: &str, coll: &str, pipeline: &RawArray, needs: &mut Vec<Need>) {
    let mut stages = pipeline.into_iter().flatten().filter_map(|stage| stage.as_document());
    let first = pipeline.into_iter().flatten().next().and_then(|stage| stage.as_document());
    let first = first.and_then(|stage| stage.iter().next()?.ok());
    if !first.is_some_and(|(name, _)| STARTS_ITSELF.contains(&name.as_str())) {
        needs.push(Need::Collection(db.to_owned(), coll.to_owned(), action("find")));
    }
    for stage in &mut stages {
        if let Some(Ok((name, value))) = stage.iter().next() {
            of_stage(db, coll, name.as_str(), value, needs);
        }
    }
}

/// Stages that need no documents of the collection.
const STARTS_ITSELF: [&str; 9] = [
    "$changeStream",
    "$collStats",
    "$currentOp",
    "$documents",
    "$indexStats",
    "$listLocalSessions",
    "$listSessions",
    "$planCacheStats",
    "$queryStats",
];

fn of_stage(db: &str, coll: &str, name: &str, value: RawBsonRef<'_>, needs: &mut Vec<Need>) {
    let doc = value.as_document();
    let on = |action| Need::Collection(db.to_owned(), coll.to_owned(), action);
    let all_users = || doc.is_some_and(|doc| doc.get_bool("allUsers").unwrap_or_default());
    match name {
        "$lookup" => foreign(db, doc, "from", needs),
        "$graphLookup" => foreign(db, doc, "from", needs),
        "$unionWith" => match value {
            RawBsonRef::String(coll) => {
                needs.push(Need::Collection(db.to_owned(), coll.to_owned(), action("find")));
            }
            _ => foreign(db, doc, "coll", needs),
        },
        "$facet" => {
            for (_, pipeline) in doc.into_iter().flat_map(|facets| facets.iter().flatten()) {
                if let RawBsonRef::Array(pipeline) = pipeline {
                    nested(db, coll, pipeline, needs);
                }
            }
        }
        "$collStats" => needs.push(on(action("collStats"))),
        "$indexStats" => needs.push(on(action("indexStats"))),
        "$planCacheStats" => needs.push(on(action("planCacheRead"))),
        "$currentOp" if all_users() => needs.push(Need::Cluster(action("inprog"))),
        "$listLocalSessions" | "$listSessions" if all_users() => {
            needs.push(Need::Cluster(action("listSessions")));
        }
        "$listLocalSessions" | "$listSessions" => {
            let users = doc.map(users).unwrap_or_default();
            needs.push(Need::Being(users, action("listSessions")));
        }
        "$queryStats" => needs.push(Need::Cluster(action("queryStatsRead"))),
        "$changeStream" => change_stream(db, coll, doc, needs),
        "$out" => {
            let (db, coll) = target(db, value, "coll");
            for wanted in [action("insert"), action("remove")] {
                needs.push(Need::Collection(db.clone(), coll.clone(), wanted));
            }
        }
        "$merge" => {
            let into = doc.and_then(|doc| doc.get("into").ok().flatten()).unwrap_or(value);
            let (db, coll) = target(db, into, "coll");
            for wanted in [action("insert"), action("update")] {
                needs.push(Need::Collection(db.clone(), coll.clone(), wanted));
            }
        }
        // Stages between servers are none of a user's business.
        name if name.starts_with("$_internal") => needs.push(Need::Cluster(action("internal"))),
        _ => {}
    }
}

/// The `users` of a stage about sessions.
pub fn users(spec: &RawDocument) -> Vec<UserName> {
    let Ok(list) = spec.get_array("users") else { return Vec::new() };
    list.into_iter().flatten().filter_map(|user| UserName::parse(user.as_document()?)).collect()
}

/// A stage that reads another collection, with a pipeline or without.
fn foreign(db: &str, doc: Option<&RawDocument>, field: &str, needs: &mut Vec<Need>) {
    let Some(doc) = doc else { return };
    let pipeline = doc.get_array("pipeline").ok();
    match (doc.get(field), pipeline) {
        (Ok(Some(from)), pipeline) => {
            let (db, coll) = target(db, from, "coll");
            needs.push(Need::Collection(db.clone(), coll.clone(), action("find")));
            if let Some(pipeline) = pipeline {
                nested(&db, &coll, pipeline, needs);
            }
        }
        // `$lookup` over `$documents` reads no collection.
        (_, Some(pipeline)) => nested(db, "", pipeline, needs),
        _ => {}
    }
}

/// The needs of the stages alone: what the pipeline reads was asked for already.
fn nested(db: &str, coll: &str, pipeline: &RawArray, needs: &mut Vec<Need>) {
    for stage in pipeline.into_iter().flatten().filter_map(|stage| stage.as_document()) {
        if let Some(Ok((name, value))) = stage.iter().next() {
            of_stage(db, coll, name.as_str(), value, needs);
        }
    }
}

fn change_stream(db: &str, coll: &str, doc: Option<&RawDocument>, needs: &mut Vec<Need>) {
    let whole = doc.is_some_and(|doc| doc.get_bool("allChangesForCluster").unwrap_or_default());
    for wanted in [action("changeStream"), action("find")] {
        needs.push(match (whole, coll.is_empty()) {
            // On any resource: only a pattern for all databases covers the name that no database has.
            (true, _) => Need::Database(String::new(), wanted),
            (false, true) => Need::Database(db.to_owned(), wanted),
            (false, false) => Need::Collection(db.to_owned(), coll.to_owned(), wanted),
        });
    }
}

/// `"coll"` or `{db, coll}`.
fn target(db: &str, value: RawBsonRef<'_>, field: &str) -> (String, String) {
    match value {
        RawBsonRef::String(coll) => (db.to_owned(), coll.to_owned()),
        RawBsonRef::Document(doc) => (
            doc.get_str("db").unwrap_or(db).to_owned(),
            doc.get_str(field).unwrap_or_default().to_owned(),
        ),
        _ => (db.to_owned(), String::new()),
    }
}

#[cfg(test)]
mod tests {
    use bson::{RawArrayBuf, rawdoc};

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
