//! `$out`: fills a temporary collection, which then replaces the target and gets its options and indexes.

use std::sync::Arc;

use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, raw::cstr, rawdoc};
use protocol::{ErrorCode, Namespace, RawDoc};
use query::{QueryError, stage::prepend_id};
use storage::Collection;
use uuid::Uuid;

use super::{Writing, check_written, next_statements, primary::Primary, write_command};
use crate::{
    context::Call,
    error::Failure,
    read::{query_cursor::QueryReading, views},
};

pub(super) fn run(
    writing: &Writing<'_>,
    timeseries: Option<&RawDocument>,
    reading: &mut QueryReading,
    primary: &mut Primary<'_>,
) -> Result<(), Failure> {
    let target = writing.target();
    let old = existing(writing, timeseries, &target)?;
    let options = old.as_ref().map_or_else(RawDocumentBuf::new, |old| old.options().to_owned());
    let indexes = old.as_deref().map(specs).unwrap_or_default();
    let temporary = Namespace::new(target.db(), &format!("tmp.agg_out.{}", Uuid::new_v4()));
    let mut create = rawdoc! { "create": temporary.coll(), "temp": true };
    for (name, value) in options.iter().flatten() {
        if !matches!(name.as_str(), "uuid" | "temp") {
            create.append(name, value);
        }
    }
    primary.write(target.db(), create)?;
    let done = fill(writing.call, &temporary, &indexes, reading, primary).and_then(|()| {
        let rename = rawdoc! {
            "internalRenameIfOptionsAndIndexesMatch": 1,
            "from": temporary.as_str(),
            "to": target.as_str(),
            "collectionOptions": options,
            "indexes": indexes,
        };
        primary.write("admin", rename).map(drop)
    });
    if done.is_err() {
        let drop = rawdoc! { "drop": temporary.coll(), "writeConcern": { "w": 1 } };
        if let Err(error) = primary.tidy(target.db(), drop) {
            tracing::warn!(target: "COMMAND", ctx = writing.call.client.name(), %error,
                collection = temporary.as_str(), "A temporary collection of $out could not be dropped");
        }
    }
    done
}

/// The existing target collection, if any, after checking that it may be replaced.
fn existing(
    writing: &Writing<'_>,
    timeseries: Option<&RawDocument>,
    target: &Namespace,
) -> Result<Option<Arc<Collection>>, Failure> {
    let entry =
        views::all(writing.view, target.db())?.into_iter().find(|v| v.name == target.coll());
    if timeseries.is_some() || entry.as_ref().is_some_and(|e| e.buckets(target.db()).is_some()) {
        let text = "$out to a time-series collection is not supported by this server yet";
        return Err(Failure::said(ErrorCode::from_code(115), text));
    }
    if entry.is_some() {
        views::refuse(writing.view, target).map_err(Failure::into_query_error)?;
    }
    let old = writing.view.catalog().collection(target);
    if old.as_ref().is_some_and(|old| old.capped().is_some()) {
        let text = format!("namespace '{target}' is capped so it can't be used for $out");
        return Err(QueryError::location(17_152, text).into());
    }
    Ok(old)
}

/// The index specs of a collection.
fn specs(collection: &Collection) -> RawArrayBuf {
    let own = collection.indexes().iter().filter(|index| index.usable()).map(|index| index.spec());
    collection.id_index().into_iter().chain(own).map(RawDocument::to_owned).collect()
}

fn fill(
    call: &Call,
    temporary: &Namespace,
    indexes: &RawArrayBuf,
    reading: &mut QueryReading,
    primary: &mut Primary<'_>,
) -> Result<(), Failure> {
    if !indexes.is_empty() {
        let create = rawdoc! { "createIndexes": temporary.coll(), "indexes": indexes.clone() };
        primary.write(temporary.db(), create)?;
    }
    loop {
        let (statements, more) = next_statements(call, reading, |doc, _| with_id(doc))?;
        if statements.count > 0 {
            let command = write_command(
                call,
                (cstr!("insert"), temporary.coll()),
                (cstr!("documents"), statements),
            );
            check_written(&primary.write(temporary.db(), command)?)?;
        }
        if !more {
            return Ok(());
        }
    }
}

fn with_id(doc: &RawDoc) -> Result<RawDocumentBuf, Failure> {
    if matches!(doc.get("_id"), Ok(Some(_))) {
        return Ok(doc.as_raw().to_owned());
    }
    RawDocumentBuf::from_bytes(prepend_id(doc))
        .map_err(|error| Failure::said(ErrorCode::InternalError, error.to_string()))
}
