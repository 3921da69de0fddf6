//! listIndexes: the indexes of a collection.

use bson::{Binary, rawdoc, spec::BinarySubtype};
use protocol::{ErrorCode, Fields, Namespace, RawDoc};
use storage::{Collection, IndexState, View};

use super::{Api, Auth, Command, On, Run, list_cursor, target::Target, views};
use crate::{
    auth::action::action,
    blocking,
    context::{Call, Outcome},
    error::Failure,
    local,
    read_time::ReadTime,
};

pub(super) const COMMAND: Command = Command {
    name: "listIndexes",
    help: "Lists the indexes of a collection.",
    auth: Auth::Collection(action("listIndexes")),
    on: On::Readable,
    api: Api::V1,
    takes_concerns: true,
    run: Run::Waiting(|call| blocking::reading(call, run)),
    ..Command::DEFAULT
};

fn run(call: &Call, time: ReadTime) -> Outcome {
    let fields = Fields::idl("listIndexes", &call.body);
    let build_ids =
        fields.optional("includeBuildUUIDs")?.map_or(Ok(false), |flag| flag.safe_bool())?;
    let target = Target::parse(call)?;
    let view = call.node().store()?.view(time.at)?;
    let Some(collection) = target.collection(&view)? else {
        let ns = target.name()?;
        if let Some(specs) = of_time_series(&view, ns)? {
            return list_cursor::reply(call, ns.clone(), specs);
        }
        views::refuse(&view, ns)?;
        if target.is_oplog() {
            return list_cursor::reply(call, ns.clone(), Vec::new());
        }
        if ns.db() == "local" && local::NODE_COLLECTIONS.contains(&ns.coll()) {
            let id = RawDoc::from(rawdoc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" });
            return list_cursor::reply(call, ns.clone(), vec![id]);
        }
        let text = format!("ns does not exist: {ns}");
        return Err(Failure::said(ErrorCode::NamespaceNotFound, text));
    };
    list_cursor::reply(call, collection.ns().clone(), specs(&collection, build_ids))
}

/// A time-series collection is a view, and its indexes are those of its buckets, in other words.
fn of_time_series(view: &View, ns: &Namespace) -> Result<Option<Vec<RawDoc>>, Failure> {
    let all = views::all(view, ns.db())?;
    let entry = all.iter().find(|entry| entry.name == ns.coll());
    let buckets = entry.and_then(|entry| entry.buckets(ns.db()));
    let Some(buckets) = buckets.and_then(|buckets| view.catalog().collection(&buckets)) else {
        return Ok(None);
    };
    if buckets.indexes().is_empty() {
        return Ok(Some(Vec::new()));
    }
    let text = format!(
        "the indexes of the time-series collection {ns} can be listed on {} only",
        buckets.ns()
    );
    Err(Failure::said(ErrorCode::NotImplemented, text))
}

fn specs(collection: &Collection, build_ids: bool) -> Vec<RawDoc> {
    let id = clustered(collection).or_else(|| collection.id_index().map(RawDoc::from));
    let mut specs: Vec<RawDoc> = id.into_iter().collect();
    for index in collection.indexes() {
        match index.state() {
            IndexState::Building { build_uuid } if build_ids => {
                let bytes = build_uuid.as_bytes().to_vec();
                let uuid = Binary { subtype: BinarySubtype::Uuid, bytes };
                let unfinished = rawdoc! { "spec": index.spec().to_owned(), "buildUUID": uuid };
                specs.push(unfinished.into());
            }
            _ => specs.push(RawDoc::from(index.spec())),
        }
    }
    specs
}

/// How the key of a clustered collection is listed; buckets of time series do not show theirs.
fn clustered(collection: &Collection) -> Option<RawDoc> {
    let options = collection.options();
    if !collection.is_clustered() || options.get("timeseries").ok().flatten().is_some() {
        return None;
    }
    let name = options.get_document("clusteredIndex").and_then(|index| index.get_str("name"));
    let mut spec =
        rawdoc! { "v": 2, "key": { "_id": 1 }, "name": name.unwrap_or("_id_"), "unique": true };
    if let Ok(Some(seconds)) = options.get("expireAfterSeconds") {
        spec.append(bson::raw::cstr!("expireAfterSeconds"), seconds);
    }
    spec.append(bson::raw::cstr!("clustered"), true);
    Some(spec.into())
}
