//! validateDBMetadata: lists collections, views and indexes that the stable API does not support.

use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};
use protocol::{Fields, Namespace, Release};
use storage::ReadAt;

use super::{Auth, Command, On, Run};
use crate::{
    auth::{action::action, privilege::Target},
    context::{Call, Outcome},
    error::Failure,
};

pub(super) const COMMAND: Command = Command {
    name: "validateDBMetadata",
    help: "Lists what of the catalog an API version does not have: indexes for text, and sparse ones.",
    auth: Auth::Body("`validate` on the database", check),
    on: On::Serving,
    since: Release::V5_0,
    run: Run::Now(run),
    ..Command::DEFAULT
};

fn check(call: &Call) -> Result<(), Failure> {
    let db = call.body.get_str("db").unwrap_or(&call.db);
    call.require(Target::Database(db), action("validate"))
}

fn run(call: &Call) -> Outcome {
    let fields = Fields::idl("validateDBMetadata", &call.body);
    fields.only(&["validateDBMetadata", "apiParameters", "db", "collection"])?;
    let parameters = fields.required("apiParameters")?.document()?;
    let parameters = Fields::idl("validateDBMetadata.apiParameters", parameters);
    parameters.only(&["version", "strict", "deprecationErrors"])?;
    let version = parameters.required("version")?.str()?;
    let flag = |name| -> Result<bool, Failure> {
        Ok(parameters.optional(name)?.map_or(Ok(false), |flag| flag.safe_bool())?)
    };
    let strict = flag("strict")?;
    flag("deprecationErrors")?;
    let text = |name| -> Result<Option<&str>, Failure> {
        Ok(fields.optional(name)?.map(|value| value.str()).transpose()?)
    };
    let (db, coll) = (text("db")?, text("collection")?);
    let mut errors = RawArrayBuf::new();
    if strict && version == "1" {
        let view = call.node().store()?.view(ReadAt::Newest)?;
        for collection in view.catalog().all() {
            let ns = collection.ns();
            if db.is_none_or(|db| db == ns.db()) && coll.is_none_or(|coll| coll == ns.coll()) {
                for index in collection.indexes() {
                    if let Some(fault) = fault(ns, index.name(), index.spec()) {
                        errors.push(fault);
                    }
                }
            }
        }
    }
    Ok(rawdoc! { "apiVersionErrors": errors }.into())
}

/// Indexes that version 1 does not support.
fn fault(ns: &Namespace, name: &str, spec: &bson::RawDocument) -> Option<RawDocumentBuf> {
    let kinds = ["text", "geoHaystack"];
    let key = spec.get_document("key").ok()?;
    let special = key
        .iter()
        .flatten()
        .filter_map(|(_, kind)| kind.as_str().map(str::to_owned))
        .find(|kind| kinds.contains(&kind.as_str()));
    let sparse = matches!(spec.get_bool("sparse"), Ok(true));
    (special.is_some() || sparse).then(|| {
        let text = format!("The index with name {name} is not allowed in API version 1.");
        rawdoc! { "ns": ns.as_str(), "code": 323, "codeName": "APIStrictError", "errmsg": text }
    })
}
