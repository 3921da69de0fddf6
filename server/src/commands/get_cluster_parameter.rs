//! getClusterParameter: the content of the set's `config.clusterParameters`, and the defaults of 8.2.

use bson::{
    RawArrayBuf, RawBsonRef, RawDocumentBuf, Timestamp,
    raw::{CString, cstr},
    rawdoc,
};
use protocol::{ErrorCode, Namespace, Release, fields::type_name};
use storage::{ReadAt, View};

use super::{Auth, Command, Run};
use crate::{
    auth::action::action,
    context::{Call, Outcome},
    error::Failure,
};

pub(super) const COMMAND: Command = Command {
    name: "getClusterParameter",
    help: "Returns parameters of the whole set by name, or all of them for '*'.",
    auth: Auth::Cluster(action("getClusterParameter")),
    admin_only: true,
    since: Release::V6_0,
    run: Run::Now(run),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    let known = defaults();
    let names: Vec<&str> = match call.body.get(&call.name) {
        Ok(Some(RawBsonRef::String("*"))) => known.iter().map(|(name, _)| *name).collect(),
        Ok(Some(RawBsonRef::String(name))) => vec![name],
        Ok(Some(RawBsonRef::Array(names))) => {
            names.into_iter().flatten().enumerate().map(name).collect::<Result<_, _>>()?
        }
        Ok(Some(other)) => {
            let text = format!(
                "BSON field 'getClusterParameter.getClusterParameter' is the wrong type '{}', \
                 expected types '[string]'",
                type_name(&other)
            );
            return Err(Failure::said(ErrorCode::TypeMismatch, text));
        }
        _ => return Err(Failure::missing("getClusterParameter.getClusterParameter")),
    };
    if names.is_empty() {
        let text = "Must supply at least one cluster server parameter name to getClusterParameter";
        return Err(Failure::said(ErrorCode::BadValue, text));
    }
    let view = call.node().store()?.view(ReadAt::Newest)?;
    let mut shown = RawArrayBuf::new();
    for name in names {
        let Some((_, default)) = known.iter().find(|(known, _)| *known == name) else {
            let text = format!("Unknown server parameter: {name}");
            return Err(Failure::said(ErrorCode::NoSuchKey, text));
        };
        shown.push(match set(&view, name)? {
            Some(set) => set,
            None => unset(name, default),
        });
    }
    Ok(rawdoc! { "clusterParameters": shown }.into())
}

fn name((at, value): (usize, RawBsonRef<'_>)) -> Result<&str, Failure> {
    match value {
        RawBsonRef::String(name) => Ok(name),
        other => {
            let path = format!("getClusterParameter.getClusterParameter.{at}");
            Err(Failure::wrong_type(path, other, &["string"]))
        }
    }
}

/// The document of a parameter that was set.
fn set(view: &View, name: &str) -> Result<Option<RawDocumentBuf>, Failure> {
    let ns = Namespace::new("config", "clusterParameters");
    let Some(collection) = view.catalog().collection(&ns) else { return Ok(None) };
    let found = view.get(&collection, RawBsonRef::String(name))?;
    Ok(found.map(|doc| doc.as_raw().to_owned()))
}

fn unset(name: &str, fields: &RawDocumentBuf) -> RawDocumentBuf {
    let mut doc = rawdoc! { "_id": name };
    doc.append(cstr!("clusterParameterTime"), Timestamp { time: 0, increment: 0 });
    for (name, value) in fields.iter().flatten() {
        doc.append(name, value);
    }
    doc
}

/// The parameters of 8.2 in its order.
fn defaults() -> Vec<(&'static str, RawDocumentBuf)> {
    let no = |name: &str| {
        let mut doc = RawDocumentBuf::new();
        if let Ok(name) = CString::try_from(name) {
            doc.append(name, false);
        }
        doc
    };
    vec![
        ("addOrRemoveShardInProgress", no("inProgress")),
        ("changeStreamOptions", rawdoc! { "preAndPostImages": { "expireAfterSeconds": "off" } }),
        ("changeStreams", rawdoc! { "expireAfterSeconds": 3600_i64 }),
        ("configServerReadPreferenceForCatalogQueries", no("mustAlwaysUseNearest")),
        ("defaultMaxTimeMS", rawdoc! { "readOperations": 0_i64 }),
        ("fleAllowTotalTagOverheadToExceedBSONLimit", no("shouldOverride")),
        (
            "fleCompactionOptions",
            rawdoc! {
                "maxCompactionSize": 268_435_456, "maxAnchorCompactionSize": 268_435_456,
                "maxESCEntriesPerCompactionDelete": 350_000,
            },
        ),
        ("fleDisableSubstringPreviewParameterLimits", no("shouldOverride")),
        ("internalQueryCutoffForSampleFromRandomCursor", rawdoc! { "sampleCutoff": 0.05 }),
        (
            "internalSearchOptions",
            rawdoc! { "oversubscriptionFactor": 1.064, "batchSizeGrowthFactor": 1.5 },
        ),
        ("internalVectorSearchStoredSource", no("enabled")),
        ("onlyTargetDataOwningShardsForMultiWrites", no("enabled")),
        ("pauseMigrationsDuringMultiUpdates", no("enabled")),
        ("shardedClusterCardinalityForDirectConns", no("hasTwoOrMoreShards")),
    ]
}
