//! listIndexes: the indexes of a collection.

use bson::{
    Binary, RawBsonRef, RawDocument, RawDocumentBuf, raw::CString, rawdoc, spec::BinarySubtype,
};
use protocol::{ErrorCode, Fields, Namespace, RawDoc};
use storage::{Collection, IndexState, View};

use super::{Api, Auth, Command, On, Run};
use crate::{
    auth::action::action,
    context::{Call, Outcome},
    error::Failure,
    local,
    read::{blocking, list_cursor, moment::ReadTime, target::Target, views},
};

pub(super) const COMMAND: Command = Command {
    name: "listIndexes",
    help: "Lists the indexes of a collection.",
    auth: Auth::Collection(action("listIndexes")),
    on: On::Readable,
    api: Api::V1,
    takes_concerns: true,
    newest_only: true,
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
    let mut listed = specs(&collection, build_ids);
    if call.profile().typed_index_specs {
        listed = listed.iter().map(|spec| typed(spec)).collect::<Result<_, _>>()?;
    }
    list_cursor::reply(call, collection.ns().clone(), listed)
}

/// Since 5.0 specs are shown in a fixed order with fixed types; unknown fields come last.
fn typed(spec: &RawDocument) -> Result<RawDoc, Failure> {
    let bad = |e: bson::error::Error| Failure::said(ErrorCode::InternalError, e.to_string());
    let mut out = RawDocumentBuf::new();
    for (name, kind) in SPEC_FIELDS {
        let Some(value) = spec.get(*name).map_err(bad)? else { continue };
        let name = CString::try_from(*name).map_err(bad)?;
        match (kind, number(value)) {
            (Kind::Bool, Some(number)) => out.append(name, number != 0.0),
            #[allow(clippy::cast_possible_truncation, reason = "`as` saturates, as mongod does")]
            (Kind::Int, Some(number)) => out.append(name, number as i32),
            (Kind::Double, Some(number)) => out.append(name, number),
            _ => out.append(name, value),
        }
    }
    for field in spec.iter() {
        let (name, value) = field.map_err(bad)?;
        if !SPEC_FIELDS.iter().any(|(known, _)| *known == name.as_str()) {
            out.append(name, value);
        }
    }
    Ok(out.into())
}

enum Kind {
    Any,
    Bool,
    Int,
    Double,
}

#[rustfmt::skip]
const SPEC_FIELDS: &[(&str, Kind)] = &[
    ("v", Kind::Int), ("key", Kind::Any), ("name", Kind::Any), ("ns", Kind::Any), ("background", Kind::Bool),
    ("unique", Kind::Bool), ("hidden", Kind::Bool), ("prepareUnique", Kind::Bool),
    ("partialFilterExpression", Kind::Any), ("sparse", Kind::Bool), ("expireAfterSeconds", Kind::Int),
    ("storageEngine", Kind::Any), ("weights", Kind::Any), ("default_language", Kind::Any),
    ("language_override", Kind::Any), ("textIndexVersion", Kind::Int), ("2dsphereIndexVersion", Kind::Int),
    ("bits", Kind::Int), ("min", Kind::Double), ("max", Kind::Double), ("bucketSize", Kind::Double),
    ("collation", Kind::Any), ("wildcardProjection", Kind::Any), ("coarsestIndexedLevel", Kind::Int),
    ("finestIndexedLevel", Kind::Int),
];

/// A number; booleans are not converted.
fn number(value: RawBsonRef<'_>) -> Option<f64> {
    match value {
        RawBsonRef::Int32(n) => Some(f64::from(n)),
        #[allow(clippy::cast_precision_loss, reason = "versions, seconds and bounds are small")]
        RawBsonRef::Int64(n) => Some(n as f64),
        RawBsonRef::Double(n) => Some(n),
        _ => None,
    }
}

/// The indexes of a time-series collection, converted from those of its buckets.
fn of_time_series(view: &View, ns: &Namespace) -> Result<Option<Vec<RawDoc>>, Failure> {
    let all = views::all(view, ns.db())?;
    let entry = all.iter().find(|entry| entry.name == ns.coll());
    let buckets = entry.and_then(|entry| entry.buckets(ns.db()));
    let Some(buckets) = buckets.and_then(|buckets| view.catalog().collection(&buckets)) else {
        return Ok(None);
    };
    let options = buckets.options().get_document("timeseries");
    let meta = options.ok().and_then(|options| options.get_str("metaField").ok());
    let specs = buckets.indexes().iter().filter(|index| index.usable());
    Ok(Some(specs.map(|index| of_measurements(index.spec(), meta).into()).collect()))
}

/// Converts an index on buckets to one on measurements: from the original spec, if stored, otherwise from its key.
fn of_measurements(spec: &RawDocument, meta: Option<&str>) -> RawDocumentBuf {
    let original = spec.get_document("originalSpec").ok();
    let mut key = RawDocumentBuf::new();
    for (name, value) in spec.get_document("key").into_iter().flat_map(|key| key.iter().flatten()) {
        let name = name.as_str();
        let shown = match (name.strip_prefix("meta"), name.strip_prefix("control.")) {
            (Some(below), _) => format!("{}{below}", meta.unwrap_or("meta")),
            // A field has two keys on buckets: its minimum and its maximum.
            (_, Some(bound)) => bound.split_once('.').map_or(bound, |(_, field)| field).to_owned(),
            _ => name.to_owned(),
        };
        if let Ok(shown) = CString::try_from(shown)
            && matches!(key.get(shown.as_str()), Ok(None))
        {
            key.append(shown, value);
        }
    }
    let mut listed = RawDocumentBuf::new();
    for (name, value) in spec.iter().flatten() {
        match (name.as_str(), original) {
            ("originalSpec", _) => {}
            ("key", Some(original)) => match original.get("key") {
                Ok(Some(own)) => listed.append(name, own),
                _ => listed.append(name, key.clone()),
            },
            ("key", None) => listed.append(name, key.clone()),
            _ => listed.append(name, value),
        }
    }
    listed
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

/// The entry of a clustered collection's key; buckets of time series do not show theirs.
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
