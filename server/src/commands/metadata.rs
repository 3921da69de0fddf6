//! First stages of a pipeline that show the server itself: `$collStats`, `$indexStats`, `$currentOp`, `$listCatalog`,
//! `$listLocalSessions`, `$listSessions`, `$planCacheStats` and similar ones.

use bson::{
    Binary, DateTime, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, raw::cstr, rawdoc,
    spec::BinarySubtype,
};
use protocol::{ErrorCode, Namespace, RawDoc};
use query::{
    QueryError,
    stage::{self, Shows, StageContext, StageRow},
    value::Value,
};
use storage::{Collection, View};

use super::{OpClass, aggregate, coll_stats, current_op, list_catalog};
use crate::{
    auth::{
        pipeline,
        user::{Digest, UserName},
    },
    context::Call,
    error::Failure,
    read::{first_batch::while_running, target::Target, views},
};

/// The documents of such a stage, if the pipeline begins with one, and the stages after it.
pub(super) fn take(
    call: &Call,
    view: &View,
    target: &Target,
    asked: &aggregate::Asked,
) -> Result<(Option<Vec<RawDoc>>, RawArrayBuf), Failure> {
    let pipeline = asked.pipeline.clone();
    let first = match pipeline.get(0) {
        Ok(Some(RawBsonRef::Document(stage))) => stage.iter().next().and_then(Result::ok),
        _ => None,
    };
    let Some((name, RawBsonRef::Document(spec))) = first else { return Ok((None, pipeline)) };
    let Some(shows) = StageRow::named(name.as_str().as_bytes()).and_then(|row| row.shows) else {
        return Ok((None, pipeline));
    };
    check(target, asked)?;
    // On a view, its own stages come first, so this would not be the first stage; except `$collStats`, which shows
    // the view itself.
    if let Target::Name(ns) = target
        && shows != Shows::CollStats
        && target.collection(view)?.is_none()
        && views::exists(view, ns)?
    {
        return Ok((None, pipeline));
    }
    let in_run = |failure: Failure| match target.name() {
        Ok(ns) => while_running(failure, call, ns),
        Err(_) => failure,
    };
    let docs = match shows {
        Shows::CollStats => vec![stats(call, view, target, spec).map_err(in_run)?.into()],
        Shows::IndexStats => indexes(call, target.collection(view)?.as_deref()),
        Shows::CurrentOp => {
            let all_users = matches!(spec.get_bool("allUsers"), Ok(true));
            current_op::list(call, all_users)
        }
        Shows::ListLocalSessions => sessions(call, whose(call, spec).as_deref()),
        // There is no plan cache: every query is planned anew.
        Shows::PlanCacheStats => match target.collection(view)? {
            Some(_) => Vec::new(),
            None => {
                let text = format!("collection '{}' does not exist", target.name()?);
                return Err(in_run(Failure::Query(QueryError::location(50_933, text))));
            }
        },
        Shows::ListCatalog => list_catalog::entries(view, target)?,
        Shows::ListClusterCatalog => list_catalog::cluster_entries(call, view, target, spec)?,
        // These features do not exist here, so there is nothing to show.
        Shows::ListSampledQueries | Shows::QuerySettings | Shows::QueryStats => Vec::new(),
        Shows::ListSessions => {
            let filter = whose(call, spec).map(|users| {
                let users: RawArrayBuf = users.iter().map(binary).collect();
                rawdoc! { "$match": { "_id.uid": { "$in": users } } }
            });
            let filter = filter.into_iter().map(bson::RawBson::from);
            let stages = rest(&pipeline);
            let stages = stages.into_iter().flatten().map(bson::RawBson::from);
            return Ok((None, filter.chain(stages).collect()));
        }
    };
    let rest = rest(&pipeline);
    Ok((Some(docs), rest))
}

/// Checks the whole pipeline before its first stage is removed.
fn check(target: &Target, asked: &aggregate::Asked) -> Result<(), Failure> {
    let Target::Name(ns) = target else { return Ok(()) };
    let context = StageContext {
        scope: asked.variables.scope.clone(),
        database: ns.db().to_owned(),
        over: aggregate::over(ns),
        ..StageContext::default()
    };
    stage::parse(Value::Array(asked.pipeline.as_bytes()), &context)?;
    Ok(())
}

fn rest(pipeline: &RawArrayBuf) -> RawArrayBuf {
    pipeline.into_iter().flatten().skip(1).map(bson::RawBson::from).collect()
}

fn stats(
    call: &Call,
    view: &View,
    target: &Target,
    spec: &RawDocument,
) -> Result<RawDocumentBuf, Failure> {
    let ns = target.name()?;
    let mut shown = rawdoc! {
        "ns": ns.as_str(), "host": call.node().host.as_str(), "localTime": DateTime::now(),
    };
    if spec.get("latencyStats").ok().flatten().is_some() {
        shown.append(cstr!("latencyStats"), latency(call, ns));
    }
    let has = |part: &str| spec.get(part).ok().flatten().is_some();
    let parts = ["storageStats", "count", "queryExecStats"];
    if let Some(part) = parts.into_iter().find(|part| has(part))
        && target.collection(view)?.is_none()
        && !target.is_oplog()
        && ns.db() != "local"
    {
        if views::exists(view, ns)? {
            let text = format!("Namespace {ns} is a view, not a collection");
            let error = QueryError::new(ErrorCode::CommandNotSupportedOnView, text);
            return Err(Failure::Query(error));
        }
        let text = format!(
            "Unable to retrieve {part} in $collStats stage :: caused by :: Collection [{ns}] not \
             found."
        );
        return Err(Failure::Query(QueryError::new(ErrorCode::NamespaceNotFound, text)));
    }
    if let Ok(Some(RawBsonRef::Document(storage))) = spec.get("storageStats") {
        let scale = storage.get("scale").ok().flatten();
        let scale = scale.and_then(|scale| match scale {
            RawBsonRef::Int32(n) => u64::try_from(n).ok(),
            RawBsonRef::Int64(n) => u64::try_from(n).ok(),
            _ => None,
        });
        let all = coll_stats::stats(call, view, target, scale.unwrap_or(1).max(1))?;
        let mut part = RawDocumentBuf::new();
        for (name, value) in all.iter().flatten().filter(|(name, _)| name.as_str() != "ns") {
            part.append(name, value);
        }
        shown.append(cstr!("storageStats"), part);
    }
    if has("count") {
        let count = match target.collection(view)? {
            Some(collection) => view.count(&collection)?,
            None => coll_stats::stats(call, view, target, 1)?
                .get_i32("count")
                .map_or(0, |count| u64::from(count.unsigned_abs())),
        };
        shown.append(cstr!("count"), super::sizes::number(count));
    }
    if has("queryExecStats") {
        let scans = call.node().index_use.scans(target.collection(view)?.map(|c| c.uuid()));
        shown.append(
            cstr!("queryExecStats"),
            rawdoc! { "collectionScans": { "total": scans, "nonTailable": scans } },
        );
    }
    Ok(shown)
}

fn latency(call: &Call, ns: &Namespace) -> RawDocumentBuf {
    let all = call.node().operations.top();
    let used = all.into_iter().find(|(name, _)| name == ns.as_str()).map(|(_, used)| used);
    let sum = |classes: &[OpClass]| {
        let (mut micros, mut ops) = (0, 0);
        for class in classes {
            let of = used.and_then(|used| used.by_class.get(class.index()).copied());
            let (time, count) = of.unwrap_or_default();
            micros += time;
            ops += count;
        }
        rawdoc! { "latency": micros, "ops": ops }
    };
    rawdoc! {
        "reads": sum(&[OpClass::Query, OpClass::GetMore]),
        "writes": sum(&[OpClass::Insert, OpClass::Update, OpClass::Delete]),
        "commands": sum(&[OpClass::Command]),
        "transactions": sum(&[]),
    }
}

fn indexes(call: &Call, collection: Option<&Collection>) -> Vec<RawDoc> {
    let Some(collection) = collection else { return Vec::new() };
    let node = call.node();
    let since = DateTime::from_millis(
        DateTime::now().timestamp_millis()
            - i64::try_from(node.started.elapsed().as_millis()).unwrap_or(0),
    );
    let id = collection.id_index().map(|spec| ("_id_".to_owned(), spec));
    let own = collection.indexes().iter().map(|index| (index.name().to_owned(), index.spec()));
    id.into_iter()
        .chain(own)
        .map(|(name, spec)| {
            let ops = node.index_use.of(collection.uuid(), &name);
            let key = spec.get_document("key").map(RawDocument::to_owned).unwrap_or_default();
            RawDoc::from(rawdoc! {
                "name": name,
                "key": key,
                "host": node.host.as_str(),
                "accesses": { "ops": ops, "since": since },
                "spec": spec.to_owned(),
            })
        })
        .collect()
}

/// Whose sessions a stage shows: those of the named users, the client's own if none are named, or everybody's.
fn whose(call: &Call, spec: &RawDocument) -> Option<Vec<Digest>> {
    let named = pipeline::users(spec);
    let all = matches!(spec.get_bool("allUsers"), Ok(true))
        || named.is_empty() && !call.who.is_restricted();
    if all {
        return None;
    }
    let users = if named.is_empty() { call.who.names() } else { named };
    Some(users.iter().map(|user| UserName::digest(Some(user))).collect())
}

fn binary(digest: &Digest) -> bson::RawBson {
    Binary { subtype: BinarySubtype::Generic, bytes: digest.to_vec() }.into()
}

fn sessions(call: &Call, users: Option<&[Digest]>) -> Vec<RawDoc> {
    let now = DateTime::now().timestamp_millis();
    let all = call.node().sessions.list(std::time::Instant::now());
    all.into_iter()
        .filter(|(session, _)| users.is_none_or(|users| users.contains(&session.user)))
        .map(|(session, idle)| {
            let id = Binary { subtype: BinarySubtype::Uuid, bytes: session.id.to_vec() };
            let last = now - i64::try_from(idle.as_millis()).unwrap_or(0);
            RawDoc::from(rawdoc! { "_id": { "id": id, "uid": binary(&session.user) }, "lastUse": DateTime::from_millis(last) })
        })
        .collect()
}
