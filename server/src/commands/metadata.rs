//! Stages that stand first in a pipeline and show the server itself: `$collStats`, `$indexStats`, `$currentOp`,
//! `$listLocalSessions`, `$listSessions`, `$planCacheStats`.

use bson::{
    Binary, DateTime, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, raw::cstr, rawdoc,
    spec::BinarySubtype,
};
use protocol::{ErrorCode, Namespace, RawDoc};
use storage::{Collection, View};

use super::{OpClass, coll_stats, current_op, target::Target};
use crate::{
    auth::{
        pipeline,
        user::{Digest, UserName},
    },
    context::Call,
    error::Failure,
};

/// The documents of such a stage, if the pipeline begins with one, and the stages after it.
pub(super) fn take(
    call: &Call,
    view: &View,
    target: &Target,
    pipeline: RawArrayBuf,
) -> Result<(Option<Vec<RawDoc>>, RawArrayBuf), Failure> {
    let first = match pipeline.get(0) {
        Ok(Some(RawBsonRef::Document(stage))) => stage.iter().next().and_then(Result::ok),
        _ => None,
    };
    let Some((name, RawBsonRef::Document(spec))) = first else { return Ok((None, pipeline)) };
    let docs = match name.as_str() {
        "$collStats" => vec![stats(call, view, target, spec)?.into()],
        "$indexStats" => indexes(call, target.collection(view)?.as_deref()),
        "$currentOp" => {
            if call.db != "admin" {
                let text =
                    "$currentOp must be run against the 'admin' database with {aggregate: 1}";
                return Err(Failure::said(ErrorCode::InvalidNamespace, text));
            }
            let all_users = matches!(spec.get_bool("allUsers"), Ok(true));
            current_op::list(call, all_users)
        }
        "$listLocalSessions" => sessions(call, whose(call, spec).as_deref()),
        // Plans are chosen anew for every query: there is no cache to show.
        "$planCacheStats" => Vec::new(),
        "$listSessions" => {
            let sessions = Namespace::new("config", "system.sessions");
            if target.name()? != &sessions {
                let text = "$listSessions may only be run against config.system.sessions";
                return Err(Failure::said(ErrorCode::InvalidNamespace, text));
            }
            let filter = whose(call, spec).map(|users| {
                let users: RawArrayBuf = users.iter().map(binary).collect();
                rawdoc! { "$match": { "_id.uid": { "$in": users } } }
            });
            let filter = filter.into_iter().map(bson::RawBson::from);
            let stages = rest(&pipeline);
            let stages = stages.into_iter().flatten().map(bson::RawBson::from);
            return Ok((None, filter.chain(stages).collect()));
        }
        _ => return Ok((None, pipeline)),
    };
    let rest = rest(&pipeline);
    Ok((Some(docs), rest))
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
    if spec.get("count").ok().flatten().is_some() {
        let Some(collection) = target.collection(view)? else {
            let text = format!(
                "Unable to retrieve count in $collStats stage :: caused by :: Collection [{ns}] not found."
            );
            return Err(Failure::said(ErrorCode::NamespaceNotFound, text));
        };
        shown.append(cstr!("count"), super::sizes::number(view.count(&collection)?));
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

/// Whose sessions a stage shows: those of the users that it names, one's own if it names none, or everybody's.
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
