//! Applies a `collMod` entry to collection options and index specs.
//!
//! mongod keeps options as typed fields and writes them in a fixed order, whatever the order of the commands that set
//! them. Options are compared between members, so we keep that order, too.

use bson::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf, raw::CString};

/// The order in which mongod writes collection options. Other options come after these, in their original order.
const OPTION_ORDER: &[&str] = &[
    "capped",
    "size",
    "max",
    "autoIndexId",
    "temp",
    "recordPreImages",
    "changeStreamPreAndPostImages",
    "storageEngine",
    "indexOptionDefaults",
    "validator",
    "validationLevel",
    "validationAction",
    "viewOn",
    "pipeline",
    "collation",
    "clusteredIndex",
    "expireAfterSeconds",
    "timeseries",
    "encryptedFields",
    "recordIdsReplicated",
];

/// The fields of `create` that are not collection options.
const NOT_OPTIONS: &[&str] = &["create", "idIndex", "uuid"];

/// The options in `o` of a `create` entry.
pub(crate) fn of_create(o: &RawDocument) -> Result<RawDocumentBuf, bson::error::Error> {
    without(o, NOT_OPTIONS)
}

/// `options` without `temp`, as after a rename with `stayTemp: false`.
pub(crate) fn not_temp(options: &RawDocument) -> Result<RawDocumentBuf, bson::error::Error> {
    without(options, &["temp"])
}

/// The options after the `collMod` with this `o`.
pub(crate) fn after_coll_mod(
    old: &RawDocument,
    o: &RawDocument,
) -> Result<RawDocumentBuf, bson::error::Error> {
    let mut changes: Vec<(&str, Change<'_>)> = Vec::new();
    for field in o.iter() {
        let (name, value) = field?;
        match (name.as_str(), value) {
            ("validator", RawBsonRef::Document(doc)) if is_empty(doc) => {
                changes.push(("validator", Change::Remove));
            }
            ("validator" | "validationLevel" | "validationAction", value) => {
                changes.push((name.as_str(), Change::Set(value)));
            }
            ("recordPreImages", RawBsonRef::Boolean(false)) => {
                changes.push(("recordPreImages", Change::Remove));
            }
            ("recordPreImages", value) => changes.push(("recordPreImages", Change::Set(value))),
            ("changeStreamPreAndPostImages", RawBsonRef::Document(doc)) => {
                let on = doc.get_bool("enabled").unwrap_or(false);
                let change = if on { Change::Set(value) } else { Change::Remove };
                changes.push(("changeStreamPreAndPostImages", change));
            }
            ("expireAfterSeconds", RawBsonRef::String("off")) => {
                changes.push(("expireAfterSeconds", Change::Remove));
            }
            ("expireAfterSeconds", value) => {
                changes.push(("expireAfterSeconds", Change::Set(value)));
            }
            ("cappedSize", value) => changes.push(("size", Change::Set(narrow(value)))),
            ("cappedMax", value) => changes.push(("max", Change::Set(narrow(value)))),
            ("timeseries", RawBsonRef::Document(wanted)) => {
                if let Some(RawBsonRef::Document(now)) = old.get("timeseries")? {
                    changes.push(("timeseries", Change::Own(after_granularity(now, wanted)?)));
                }
            }
            _ => {}
        }
    }
    fill_in_validation(old, &mut changes)?;
    rewrite(old, &changes)
}

/// The entry has a long; the stored options use the smallest type that fits.
fn narrow(value: RawBsonRef<'_>) -> RawBsonRef<'_> {
    match value {
        RawBsonRef::Int64(n) => i32::try_from(n).map_or(value, RawBsonRef::Int32),
        _ => value,
    }
}

/// A `collMod` that changes one validation option also sets the defaults of the others.
fn fill_in_validation(
    old: &RawDocument,
    changes: &mut Vec<(&str, Change<'_>)>,
) -> Result<(), bson::error::Error> {
    let named = |changes: &[(&str, Change<'_>)], name: &str| {
        changes.iter().any(|(changed, _)| *changed == name)
    };
    let touched = ["validator", "validationLevel", "validationAction"];
    if !touched.iter().any(|name| named(changes, name)) {
        return Ok(());
    }
    for (name, default) in [("validationLevel", "strict"), ("validationAction", "error")] {
        if !named(changes, name) && old.get(name)?.is_none() {
            changes.push((name, Change::Set(RawBsonRef::String(default))));
        }
    }
    Ok(())
}

/// The index spec after `index` of a `collMod` entry.
pub(crate) fn index_after_coll_mod(
    spec: &RawDocument,
    index: &RawDocument,
) -> Result<RawDocumentBuf, bson::error::Error> {
    let mut changes: Vec<(&str, Change<'_>)> = Vec::new();
    for field in index.iter() {
        let (name, value) = field?;
        match (name.as_str(), value) {
            ("expireAfterSeconds", value) => {
                changes.push(("expireAfterSeconds", Change::Set(value)));
            }
            ("hidden" | "prepareUnique", RawBsonRef::Boolean(false)) => {
                changes.push((name.as_str(), Change::Remove));
            }
            ("hidden" | "prepareUnique", value) => {
                changes.push((name.as_str(), Change::Set(value)));
            }
            ("unique", value) => {
                changes.push(("unique", Change::Set(value)));
                changes.push(("prepareUnique", Change::Remove));
            }
            ("forceNonUnique", RawBsonRef::Boolean(true)) => {
                changes.push(("unique", Change::Remove));
            }
            _ => {}
        }
    }
    apply_in_place(spec, &changes)
}

enum Change<'a> {
    Set(RawBsonRef<'a>),
    Own(RawDocumentBuf),
    Remove,
}

impl Change<'_> {
    fn append(&self, name: &str, out: &mut RawDocumentBuf) -> Result<(), bson::error::Error> {
        match self {
            Self::Set(value) => append(out, name, *value),
            Self::Own(doc) => append(out, name, RawBsonRef::Document(doc)),
            Self::Remove => Ok(()),
        }
    }
}

/// The bucket span of a granularity, in seconds.
fn bucket_span(granularity: &str) -> Option<i32> {
    match granularity {
        "seconds" => Some(3_600),
        "minutes" => Some(86_400),
        "hours" => Some(2_592_000),
        _ => None,
    }
}

/// Time-series options with another granularity, or with custom bucket bounds instead.
fn after_granularity(
    now: &RawDocument,
    wanted: &RawDocument,
) -> Result<RawDocumentBuf, bson::error::Error> {
    let mut changes: Vec<(&str, Change<'_>)> = Vec::new();
    if let Some(RawBsonRef::String(granularity)) = wanted.get("granularity")? {
        changes.push(("granularity", Change::Set(RawBsonRef::String(granularity))));
        if let Some(span) = bucket_span(granularity)
            && now.get("bucketMaxSpanSeconds")?.is_some()
        {
            changes.push(("bucketMaxSpanSeconds", Change::Set(RawBsonRef::Int32(span))));
        }
        changes.push(("bucketRoundingSeconds", Change::Remove));
    }
    if let Some(span) = wanted.get("bucketMaxSpanSeconds")? {
        changes.push(("granularity", Change::Remove));
        changes.push(("bucketMaxSpanSeconds", Change::Set(span)));
        if let Some(rounding) = wanted.get("bucketRoundingSeconds")? {
            changes.retain(|(name, _)| *name != "bucketRoundingSeconds");
            changes.push(("bucketRoundingSeconds", Change::Set(rounding)));
        }
    }
    apply_in_place(now, &changes)
}

/// `old` with `changes`, in mongod's option order.
fn rewrite(
    old: &RawDocument,
    changes: &[(&str, Change<'_>)],
) -> Result<RawDocumentBuf, bson::error::Error> {
    let merged = apply_in_place(old, changes)?;
    let mut out = RawDocumentBuf::new();
    for name in OPTION_ORDER {
        if let Some(value) = merged.get(*name)? {
            append(&mut out, name, value)?;
        }
    }
    for field in merged.iter() {
        let (name, value) = field?;
        if !OPTION_ORDER.contains(&name.as_str()) {
            append(&mut out, name.as_str(), value)?;
        }
    }
    Ok(out)
}

/// `old` with each change in place, new fields at the end.
fn apply_in_place(
    old: &RawDocument,
    changes: &[(&str, Change<'_>)],
) -> Result<RawDocumentBuf, bson::error::Error> {
    let mut out = RawDocumentBuf::new();
    for field in old.iter() {
        let (name, value) = field?;
        match changes.iter().find(|(changed, _)| *changed == name.as_str()) {
            Some((name, change)) => change.append(name, &mut out)?,
            None => append(&mut out, name.as_str(), value)?,
        }
    }
    for (name, change) in changes {
        if old.get(*name)?.is_none() {
            change.append(name, &mut out)?;
        }
    }
    Ok(out)
}

fn without(doc: &RawDocument, names: &[&str]) -> Result<RawDocumentBuf, bson::error::Error> {
    let mut out = RawDocumentBuf::new();
    for field in doc.iter() {
        let (name, value) = field?;
        if !names.contains(&name.as_str()) {
            append(&mut out, name.as_str(), value)?;
        }
    }
    Ok(out)
}

fn is_empty(doc: &RawDocument) -> bool {
    doc.iter().next().is_none()
}

/// Appends a borrowed value without decoding it.
pub(crate) fn append(
    out: &mut RawDocumentBuf,
    name: &str,
    value: RawBsonRef<'_>,
) -> Result<(), bson::error::Error> {
    out.append(CString::try_from(name)?, value);
    Ok(())
}

/// The documents of an array field; other elements are an error of the sender.
pub(crate) fn documents(array: &RawArray) -> impl Iterator<Item = Result<&RawDocument, String>> {
    array.into_iter().map(|item| match item {
        Ok(RawBsonRef::Document(doc)) => Ok(doc),
        Ok(other) => Err(format!("{:?} in an array of documents", other.element_type())),
        Err(e) => Err(e.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn options_keep_the_order_of_the_server() {
        let old = rawdoc! { "clusteredIndex": true };
        let new =
            after_coll_mod(&old, &rawdoc! { "collMod": "a", "expireAfterSeconds": 5 }).unwrap();
        assert_eq!(new, rawdoc! { "clusteredIndex": true, "expireAfterSeconds": 5 });
        let images = rawdoc! { "collMod": "a", "recordPreImages": true };
        let new = after_coll_mod(&new, &images).unwrap();
        assert_eq!(
            new,
            rawdoc! { "recordPreImages": true, "clusteredIndex": true, "expireAfterSeconds": 5 }
        );
        let off = rawdoc! { "collMod": "a", "expireAfterSeconds": "off", "recordPreImages": false };
        assert_eq!(after_coll_mod(&new, &off).unwrap(), rawdoc! { "clusteredIndex": true });
    }

    #[test]
    fn limits_have_the_smallest_type() {
        let old = rawdoc! { "capped": true, "size": 70_000 };
        let limits =
            rawdoc! { "collMod": "a", "cappedSize": 3_000_000_000_i64, "cappedMax": 9_i64 };
        let new = after_coll_mod(&old, &limits).unwrap();
        assert_eq!(new, rawdoc! { "capped": true, "size": 3_000_000_000_i64, "max": 9 });
    }

    #[test]
    fn a_part_of_the_validation_brings_the_rest_of_it() {
        let none = rawdoc! {};
        let after =
            |old: &RawDocument, change: RawDocumentBuf| after_coll_mod(old, &change).unwrap();
        let set = after(&none, rawdoc! { "collMod": "a", "validator": { "x": 1 } });
        assert_eq!(
            set,
            rawdoc! { "validator": { "x": 1 }, "validationLevel": "strict", "validationAction": "error" }
        );
        assert_eq!(
            after(&set, rawdoc! { "collMod": "a", "validator": {} }),
            rawdoc! { "validationLevel": "strict", "validationAction": "error" }
        );
        assert_eq!(
            after(&none, rawdoc! { "collMod": "a", "validationLevel": "off" }),
            rawdoc! { "validationLevel": "off", "validationAction": "error" }
        );
        assert_eq!(
            after(&none, rawdoc! { "collMod": "a", "validationAction": "warn" }),
            rawdoc! { "validationLevel": "strict", "validationAction": "warn" }
        );
    }

    #[test]
    fn a_granularity_brings_its_bucket_span() {
        let old = rawdoc! { "timeseries": { "timeField": "t", "granularity": "minutes", "bucketMaxSpanSeconds": 86400 } };
        let new =
            after_coll_mod(&old, &rawdoc! { "timeseries": { "granularity": "hours" } }).unwrap();
        assert_eq!(
            new,
            rawdoc! { "timeseries": { "timeField": "t", "granularity": "hours", "bucketMaxSpanSeconds": 2592000 } }
        );
    }

    #[test]
    fn an_index_becomes_hidden_and_unique_and_shown_again() {
        let spec = rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1" };
        let hidden =
            index_after_coll_mod(&spec, &rawdoc! { "name": "a_1", "hidden": true }).unwrap();
        assert_eq!(hidden, rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1", "hidden": true });
        let shown = index_after_coll_mod(&hidden, &rawdoc! { "hidden": false }).unwrap();
        assert_eq!(shown, spec);
        let prepared = index_after_coll_mod(&spec, &rawdoc! { "prepareUnique": true }).unwrap();
        let unique = index_after_coll_mod(&prepared, &rawdoc! { "unique": true }).unwrap();
        assert_eq!(unique, rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1", "unique": true });
    }
}
