//! The collation of a read: the command's, or the collection's default.

use crate::read::views;
use std::sync::Arc;

use protocol::{ErrorCode, RawDoc};
use query::collation::{CollationSpec, Collator};
use query::stage::{Reads, StageRow};
use query::value::{Elements, Value};
use storage::{Collection, View};

use crate::error::Failure;

/// The collator for reading a collection.
pub(crate) fn of_collection(
    asked: Option<&RawDoc>,
    collection: Option<&Collection>,
) -> Result<Option<Arc<Collator>>, Failure> {
    let collator = match asked {
        Some(spec) => CollationSpec::parse(spec)?.map(Collator::new).transpose()?,
        None => collection
            .and_then(Collection::collator)
            .map(|own| Collator::new(own.spec().clone()))
            .transpose()?,
    };
    Ok(collator.map(Arc::new))
}

/// The collator for reading a view, which has its own and accepts no other.
pub(crate) fn of_view(
    asked: Option<&RawDoc>,
    own: Option<&RawDoc>,
) -> Result<Option<Arc<Collator>>, Failure> {
    let parse = |spec: Option<&RawDoc>| -> Result<Option<CollationSpec>, Failure> {
        Ok(match spec {
            Some(spec) => CollationSpec::parse(spec)?,
            None => None,
        })
    };
    let (own, other) = (parse(own)?, parse(asked)?);
    if asked.is_some() && own != other {
        let text = "Cannot override a view's default collation";
        return Err(Failure::said(ErrorCode::OptionNotSupportedOnView, text));
    }
    Ok(own.map(Collator::new).transpose()?.map(Arc::new))
}

/// Refuses a pipeline that joins a view with a different collation.
pub(crate) fn check_joined(
    view: &View,
    db: &str,
    pipeline: Value<'_>,
    collator: Option<&Collator>,
) -> Result<(), Failure> {
    let mut names = Vec::new();
    joined(pipeline, &mut names);
    if names.is_empty() {
        return Ok(());
    }
    for entry in views::all(view, db)?.iter().filter(|entry| names.contains(&entry.name)) {
        let own = match entry.definition.get_document("collation") {
            Ok(spec) => CollationSpec::parse(spec)?,
            Err(_) => None,
        };
        if own.as_ref() != collator.map(Collator::spec) {
            let name = &entry.name;
            let text = format!("Cannot override a view's default collation{db}.{name}");
            return Err(Failure::said(ErrorCode::OptionNotSupportedOnView, text));
        }
    }
    Ok(())
}

/// The collections that a pipeline's stages read, including sub-pipelines.
fn joined(pipeline: Value<'_>, names: &mut Vec<String>) {
    let stages = pipeline.elements().filter_map(|stage| stage.value().elements().next());
    for stage in stages {
        let spec = stage.value();
        let part = |name: &[u8]| spec.elements().find(name).map(|field| field.value());
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        match (StageRow::named(stage.key).map(|row| row.reads), spec) {
            (Some(Reads::Collection(_)), Value::String(name)) => names.push(text(name)),
            (Some(Reads::Collection(field)), Value::Document(_)) => {
                if let Some(Value::String(name)) = part(field) {
                    names.push(text(name));
                }
                if let Some(inner @ Value::Array(_)) = part(b"pipeline") {
                    joined(inner, names);
                }
            }
            (Some(Reads::Facets), Value::Document(facets)) => {
                Elements::of_bytes(facets).for_each(|facet| joined(facet.value(), names));
            }
            _ => {}
        }
    }
}
