//! planCacheClear, planCacheSetFilter, planCacheClearFilters and planCacheListFilters.
//!
//! Every query is planned anew, so there is nothing to clear. Index filters restrict queries of a shape to some of
//! the indexes: see [`crate::index_filters`].

use std::sync::Arc;

use bson::{RawArrayBuf, RawBsonRef, rawdoc};
use protocol::{ErrorCode, RawDoc};
use query::{
    collation::Collator,
    matcher::{Matcher, ParseContext},
    planner::{self, Request},
    projection::Projection,
    sort::SortPattern,
};
use storage::{Collection, ReadAt};

use super::{Auth, Command, On, Run};
use crate::{
    auth::action::action,
    context::{Call, Outcome, Reply},
    error::Failure,
    index_filters::IndexFilter,
    read::{collation, target::Target, views},
};

pub(super) const CLEAR: Command = Command {
    name: "planCacheClear",
    help: "Forgets cached plans.",
    auth: Auth::Collection(action("planCacheWrite")),
    on: On::Readable,
    run: Run::Now(clear),
    ..Command::DEFAULT
};

pub(super) const SET_FILTER: Command = Command {
    name: "planCacheSetFilter",
    help: "Holds queries of a shape to some of the indexes, until the server ends.",
    run: Run::Now(set_filter),
    ..LIST_FILTERS
};

pub(super) const CLEAR_FILTERS: Command = Command {
    name: "planCacheClearFilters",
    help: "Takes the index filter of a shape away, or all of a collection.",
    run: Run::Now(clear_filters),
    ..LIST_FILTERS
};

pub(super) const LIST_FILTERS: Command = Command {
    name: "planCacheListFilters",
    help: "Lists index filters.",
    auth: Auth::Collection(action("planCacheIndexFilter")),
    on: On::Readable,
    run: Run::Now(list),
    ..Command::DEFAULT
};

fn clear(call: &Call) -> Outcome {
    if let Some(collection) = collection(call)? {
        optional_shape(call, &collection)?;
    }
    Ok(Reply::empty())
}

fn set_filter(call: &Call) -> Outcome {
    let collection = collection(call)?.ok_or_else(|| bad_value("no such collection"))?;
    let indexes = match call.body.get("indexes") {
        Ok(Some(RawBsonRef::Array(indexes))) => indexes.to_owned(),
        Ok(Some(_)) => return Err(bad_value("required field indexes must be an array")),
        _ => return Err(bad_value("required field indexes missing")),
    };
    if indexes.into_iter().next().is_none() {
        return Err(bad_value("required field indexes must contain at least one index"));
    }
    for index in indexes.into_iter().flatten() {
        match index {
            RawBsonRef::String(_) => {}
            RawBsonRef::Document(pattern) if pattern.is_empty() => {
                return Err(bad_value("index specification cannot be empty"));
            }
            RawBsonRef::Document(_) => {}
            _ => return Err(bad_value("each item in indexes must be an object or string")),
        }
    }
    let query = object(call, "query")?.ok_or_else(|| bad_value("required field query missing"))?;
    let filter = filter(call, &collection, query, indexes)?;
    call.node().index_filters.set(collection.uuid(), filter);
    Ok(Reply::empty())
}

fn clear_filters(call: &Call) -> Outcome {
    if let Some(collection) = collection(call)? {
        let shape = optional_shape(call, &collection)?;
        call.node().index_filters.clear(collection.uuid(), shape.as_deref());
    }
    Ok(Reply::empty())
}

fn list(call: &Call) -> Outcome {
    let filters = match collection(call)? {
        Some(collection) => call.node().index_filters.of(collection.uuid()),
        None => Vec::new(),
    };
    let shown: RawArrayBuf = filters.iter().map(IndexFilter::shown).collect();
    Ok(rawdoc! { "filters": shown }.into())
}

/// The collection, if it exists. A view has no plans of its own.
fn collection(call: &Call) -> Result<Option<Arc<Collection>>, Failure> {
    let target = Target::parse(call)?;
    let view = call.node().store()?.view(ReadAt::Newest)?;
    let found = target.collection(&view)?;
    if found.is_none() && views::exists(&view, target.name()?)? {
        let text = format!("Namespace {} is a view, not a collection", target.name()?);
        return Err(Failure::said(ErrorCode::CommandNotSupportedOnView, text));
    }
    Ok(found)
}

fn optional_shape(call: &Call, collection: &Collection) -> Result<Option<Vec<u8>>, Failure> {
    if let Some(query) = object(call, "query")? {
        return Ok(Some(filter(call, collection, query, RawArrayBuf::new())?.shape));
    }
    let has = |name: &&str| matches!(call.body.get(name), Ok(Some(_)));
    if ["sort", "projection", "collation"].iter().any(has) {
        return Err(bad_value("sort, projection, or collation provided without query"));
    }
    Ok(None)
}

/// The filter for the shape that the command describes.
fn filter(
    call: &Call,
    collection: &Collection,
    query: RawDoc,
    indexes: RawArrayBuf,
) -> Result<IndexFilter, Failure> {
    let sort = object(call, "sort")?.filter(|sort| !sort.is_empty());
    let projection = object(call, "projection")?.filter(|projection| !projection.is_empty());
    let asked = object(call, "collation")?.filter(|collation| !collation.is_empty());
    let collator = collation::of_collection(asked.as_ref(), Some(collection))?;
    let parsing = ParseContext { collator: collator.clone() };
    let mut request = Request::new(Matcher::parse(&query, &parsing)?);
    if let Some(projection) = &projection {
        let parsed = Projection::parse_find(projection, Some(&request.filter), &parsing)?;
        request.needed = parsed.included_paths();
    }
    let parse = |sort: &RawDoc| SortPattern::parse(sort, collator.clone());
    request.sort = sort.as_ref().map(parse).transpose()?;
    let spec = collator.as_deref().map(Collator::spec);
    let none = || RawDoc::from(rawdoc! {});
    Ok(IndexFilter {
        shape: planner::shape(&request, projection.as_deref(), spec),
        query,
        sort: sort.unwrap_or_else(none),
        projection: projection.unwrap_or_else(none),
        collation: spec.map(|spec| RawDoc::from(spec.document())),
        indexes,
    })
}

fn object(call: &Call, name: &str) -> Result<Option<RawDoc>, Failure> {
    match call.body.get(name) {
        Ok(Some(RawBsonRef::Document(doc))) => Ok(Some(RawDoc::from(doc))),
        Ok(Some(_)) => {
            let kind = if name == "query" { "required" } else { "optional" };
            Err(bad_value(&format!("{kind} field {name} must be an object")))
        }
        _ => Ok(None),
    }
}

fn bad_value(text: &str) -> Failure {
    Failure::said(ErrorCode::BadValue, text)
}
