//! collStats and dataSize: the size of a collection.

use bson::{RawArrayBuf, RawBson, RawDocument, RawDocumentBuf, raw::CString, raw::cstr, rawdoc};
use protocol::{ErrorCode, Fields, Namespace};
use query::{
    source::{Direction, IndexKind, KeyRange, Source, WholeKeys},
    value::{OwnedValue, Value},
};
use storage::{Collection, IndexState, View};

use super::{Auth, Command, On, Run, sizes};
use crate::{
    auth::{action::action, requirement},
    context::{Call, Outcome},
    error::Failure,
    local,
    read::opened::Opened,
    read::{blocking, moment::ReadTime, target::Target, views},
};

pub(super) const COLL_STATS: Command = Command {
    name: "collStats",
    aliases: &["collstats"],
    help: "Returns the size of a collection and of its indexes.",
    auth: Auth::Collection(action("collStats")),
    on: On::Serving,
    takes_concerns: true,
    newest_only: true,
    run: Run::Waiting(|call| blocking::reading(call, coll_stats)),
    ..Command::DEFAULT
};

pub(super) const DATA_SIZE: Command = Command {
    name: "dataSize",
    aliases: &["datasize"],
    help: "Returns the size of a collection's documents.",
    auth: Auth::Body("`find` on the collection", requirement::data_size),
    on: On::Serving,
    takes_concerns: true,
    newest_only: true,
    run: Run::Waiting(|call| blocking::reading(call, data_size)),
    ..Command::DEFAULT
};

/// The divisor for sizes.
pub(super) fn scale(call: &Call) -> Result<u64, Failure> {
    let fields = Fields::idl(&call.name, &call.body);
    let scale = fields.optional("scale")?.map_or(Ok(1), |scale| scale.safe_i64())?;
    u64::try_from(scale).ok().filter(|scale| *scale > 0).ok_or_else(|| {
        let text = format!("BSON field 'scale' value must be >= 1, actual value '{scale}'");
        Failure::said(ErrorCode::BadValue, text)
    })
}

fn coll_stats(call: &Call, time: ReadTime) -> Outcome {
    let scale = scale(call)?;
    let target = Target::parse(call)?;
    let view = call.node().store()?.view(time.at)?;
    Ok(stats(call, &view, &target, scale)?.into())
}

/// The whole reply of collStats, of which `$collStats` shows a part.
pub(super) fn stats(
    call: &Call,
    view: &View,
    target: &Target,
    scale: u64,
) -> Result<RawDocumentBuf, Failure> {
    let scaled = |bytes: u64| sizes::number(bytes / scale);
    let Some(collection) = target.collection(view)? else {
        let ns = target.name()?;
        views::refuse(view, ns)?;
        return absent(call, ns, target, scale);
    };
    let (size, count) = (view.data_size(&collection)?, view.count(&collection)?);
    let mut body = head(call, collection.ns(), size / scale, count, size);
    body.append(cstr!("storageSize"), scaled(size));
    body.append(cstr!("freeStorageSize"), 0);
    body.append(cstr!("capped"), collection.capped().is_some());
    if let Some(capped) = collection.capped() {
        body.append(cstr!("max"), sizes::number(capped.max.unwrap_or(0)));
        body.append(cstr!("maxSize"), sizes::number(capped.size / scale));
    }
    append_indexes(&mut body, view, &collection, scale, size)?;
    body.append(cstr!("scaleFactor"), sizes::number(scale));
    Ok(body)
}

fn head(call: &Call, ns: &Namespace, scaled: u64, count: u64, size: u64) -> RawDocumentBuf {
    let mut body = rawdoc! { "ns": ns.as_str() };
    body.append(cstr!("size"), sizes::number(scaled));
    body.append(cstr!("count"), sizes::number(count));
    if let Some(average) = size.checked_div(count) {
        body.append(cstr!("avgObjSize"), sizes::number(average));
    }
    if call.profile().orphan_counts {
        body.append(cstr!("numOrphanDocs"), 0);
    }
    body
}

fn append_indexes(
    body: &mut RawDocumentBuf,
    view: &View,
    collection: &Collection,
    scale: u64,
    data: u64,
) -> Result<(), Failure> {
    let mut by_name = RawDocumentBuf::new();
    let mut builds = RawArrayBuf::new();
    let (mut total, mut count) = (0, 0);
    if collection.id_index().is_some() {
        // The documents themselves serve as the `_id` index.
        by_name.append(cstr!("_id_"), 0);
        count += 1;
    }
    for index in collection.indexes() {
        if index.state() != IndexState::Ready {
            builds.push(index.name());
        }
        let size = view.index_size(collection, index)?;
        total += size;
        count += 1;
        let name = CString::try_from(index.name())
            .map_err(|error| Failure::said(ErrorCode::InternalError, error.to_string()))?;
        by_name.append(name, sizes::number(size / scale));
    }
    body.append(cstr!("nindexes"), count);
    body.append(cstr!("indexDetails"), RawDocumentBuf::new());
    body.append(cstr!("indexBuilds"), builds);
    body.append(cstr!("totalIndexSize"), sizes::number(total / scale));
    body.append(cstr!("indexSizes"), by_name);
    body.append(cstr!("totalSize"), sizes::number((total + data) / scale));
    Ok(())
}

/// The reply for a missing collection, the oplog and node documents.
fn absent(
    call: &Call,
    ns: &Namespace,
    target: &Target,
    scale: u64,
) -> Result<RawDocumentBuf, Failure> {
    let store = call.node().store()?;
    if target.is_oplog() {
        let (size, count) = store.oplog().applied_extent()?;
        let mut body = head(call, ns, size / scale, count, size);
        body.append(cstr!("storageSize"), sizes::number(size / scale));
        body.append(cstr!("freeStorageSize"), 0);
        body.append(cstr!("capped"), true);
        body.append(cstr!("max"), 0);
        body.append(cstr!("maxSize"), sizes::number(store.oplog().max_bytes() / scale));
        for (name, value) in rawdoc! {
            "nindexes": 0, "indexDetails": {}, "indexBuilds": [], "totalIndexSize": 0, "indexSizes": {},
        }
        .iter()
        .flatten()
        {
            body.append(name, value);
        }
        body.append(cstr!("totalSize"), sizes::number(size / scale));
        body.append(cstr!("scaleFactor"), sizes::number(scale));
        return Ok(body);
    }
    let docs = match ns.db() {
        "local" => local::documents(store, ns.coll(), call.profile())?,
        _ => Vec::new(),
    };
    let size: u64 = docs.iter().map(|doc| doc.len() as u64).sum();
    let mut body = head(call, ns, size / scale, docs.len() as u64, size);
    body.append(cstr!("storageSize"), sizes::number(size / scale));
    body.append(cstr!("totalSize"), sizes::number(size / scale));
    if let Ok(max) = local::options(ns.coll()).get_i32("size")
        && ns.db() == "local"
    {
        body.append(cstr!("capped"), true);
        body.append(cstr!("max"), 0);
        body.append(cstr!("maxSize"), sizes::number(u64::from(max.unsigned_abs()) / scale));
    }
    for name in [cstr!("nindexes"), cstr!("totalIndexSize")] {
        body.append(name, 0);
    }
    body.append(cstr!("indexDetails"), RawDocumentBuf::new());
    body.append(cstr!("indexSizes"), RawDocumentBuf::new());
    body.append(cstr!("scaleFactor"), sizes::number(scale));
    Ok(body)
}

type Ends<'a> = (&'a RawDocument, &'a RawDocument);

/// Parses `min` and `max`, which must both be given or neither.
fn ends<'a>(fields: &Fields<'a>) -> Result<Option<Ends<'a>>, Failure> {
    let end = |name| {
        let found = fields.optional(name)?.map(|value| value.document()).transpose()?;
        Ok::<_, Failure>(found.filter(|doc| !doc.is_empty()))
    };
    match (end("min")?, end("max")?) {
        (None, None) => Ok(None),
        (Some(min), Some(max)) => Ok(Some((min, max))),
        (Some(_), None) => Err(wrong("Max must be set if min is set.")),
        (None, Some(_)) => Err(wrong("Min must be set if max is set.")),
    }
}

fn wrong(text: &str) -> Failure {
    Failure::said(ErrorCode::BadValue, text)
}

/// Bytes and number of the documents between two keys of an index.
fn between(
    source: &dyn Source,
    pattern: Option<&RawDocument>,
    (min, max): Ends<'_>,
) -> Result<(u64, u64), Failure> {
    let names = |doc: &RawDocument| {
        doc.iter().flatten().map(|(name, _)| name.as_str().to_owned()).collect::<Vec<_>>()
    };
    let wanted = names(pattern.unwrap_or(min));
    let index = source.indexes().iter().position(|index| {
        let key = index.spec.get_document("key").map(names).unwrap_or_default();
        index.kind == IndexKind::Ordered && !index.is_multikey() && key.starts_with(&wanted)
    });
    let Some(index) = index else {
        let text = "Couldn't find valid index containing key pattern";
        return Err(Failure::said(ErrorCode::OperationFailed, text));
    };
    let values = |end: &RawDocument| {
        let values = end.iter().flatten().filter_map(|(_, value)| Value::from_raw(value));
        Some(values.map(OwnedValue::from).collect())
    };
    let whole = WholeKeys { from: values(min), to: values(max) };
    let range = KeyRange { whole, ..KeyRange::default() };
    let (mut size, mut count) = (0, 0);
    for entry in source.index_scan(index, &range, None, Direction::Forward) {
        let entry = entry?;
        let doc = match entry.doc {
            Some(doc) => Some(doc),
            None => source.fetch(&entry.record)?,
        };
        size += doc.map_or(0, |doc| doc.len() as u64);
        count += 1;
    }
    Ok((size, count))
}

fn data_size(call: &Call, time: ReadTime) -> Outcome {
    let name = Fields::idl("dataSize", &call.body).required(&call.name)?.str()?;
    let ns = Namespace::parse(name).ok_or_else(|| {
        let text = format!("Invalid namespace specified '{name}'");
        Failure::said(ErrorCode::InvalidNamespace, text)
    })?;
    let view = call.node().store()?.view(time.at)?;
    let fields = Fields::idl("dataSize", &call.body);
    let estimate = fields.optional("estimate")?.map_or(Ok(false), |value| value.safe_bool())?;
    let ends = ends(&fields)?;
    let found = view.catalog().collection(&ns);
    let (size, count) = match (&found, ends) {
        (None, _) => {
            views::refuse(&view, &ns)?;
            (0, 0)
        }
        (Some(collection), None) => (view.data_size(collection)?, view.count(collection)?),
        (Some(collection), Some((min, max))) => {
            let pattern =
                fields.optional("keyPattern")?.map(|value| value.document()).transpose()?;
            let opened = Opened::collection(view, collection.clone())?;
            between(opened.source(), pattern, (min, max))?
        }
    };
    let millis = i64::try_from(call.started.elapsed().as_millis()).unwrap_or(i64::MAX);
    Ok(if call.profile().statistics_are_longs {
        rawdoc! {
            "size": RawBson::Int64(sizes::long(size)),
            "numObjects": RawBson::Int64(sizes::long(count)),
            "millis": millis,
            "estimate": estimate,
        }
        .into()
    } else {
        rawdoc! {
            "estimate": estimate,
            "size": sizes::number(size),
            "numObjects": sizes::number(count),
            "millis": sizes::number(millis.unsigned_abs()),
        }
        .into()
    })
}
