//! Decides which stages of a pipeline are shown as part of the plan, and how the others are shown.
//!
//! mongod pushes leading stages down to the query engine: a plain `$project` becomes a projection, `$group` a stage
//! `GROUP`. Ours run directly above the plan, in the same place. mongod shows `GROUP` in the format of its second
//! execution engine (SBE); we show it in the format of the classic engine.

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, raw::CString, rawdoc};

/// The stages above the planner's.
#[derive(Debug, Default)]
pub(super) struct Above {
    /// A projection that is part of the plan.
    pub(super) projection: Option<RawDocumentBuf>,
    /// Number of groupings that are part of the plan.
    pub(super) groups: usize,
    /// Number of stages that became part of the plan.
    pub(super) pushed: usize,
    /// The other stages in mongod's format.
    pub(super) told: Vec<RawDocumentBuf>,
    /// The first of the others is shown for a stage that is part of the plan, too.
    pub(super) shared: bool,
}

impl Above {
    /// For a grouping that gets each value once: it is shown as a stage that builds documents from the values.
    pub(super) fn of_values(stages: &[&RawDocument]) -> Self {
        let mut told: Vec<_> = stages.iter().map(|stage| told(stage)).collect();
        if let Some(first) = told.first_mut() {
            let root = first.get_document("$group").map_or_else(|_| rawdoc! {}, ToOwned::to_owned);
            *first = rawdoc! { "$groupByDistinctScan": { "newRoot": root } };
        }
        Self { told, ..Self::default() }
    }

    /// `groups`: whether groupings may become part of the plan; not over a single document found by `_id`. `sorted`:
    /// after a sort only a plain projection may.
    pub(super) fn of(stages: &[&RawDocument], groups: bool, sorted: bool) -> Self {
        let mut above = Self::default();
        let mut rest = stages;
        if let [first, others @ ..] = rest
            && let Some(projection) = projection(first).or_else(|| computing(first, sorted))
        {
            above.projection = Some(projection);
            above.pushed += 1;
            rest = others;
        }
        while let [first, others @ ..] = rest
            && groups
            && is(first, "$group")
        {
            above.groups += 1;
            above.pushed += 1;
            rest = others;
        }
        if let [first, others @ ..] = rest
            && groups
            && let Ok(name) = first.get_str("$count")
            && let Ok(name) = CString::try_from(name)
        {
            let mut shown = rawdoc! {};
            shown.append(name, true);
            shown.append(bson::raw::cstr!("_id"), false);
            above.told.push(rawdoc! { "$project": shown });
            above.groups += 1;
            above.pushed += 1;
            above.shared = true;
            rest = others;
        }
        above.told.extend(rest.iter().map(|stage| told(stage)));
        above
    }
}

fn is(stage: &RawDocument, name: &str) -> bool {
    matches!(stage.iter().next(), Some(Ok((key, _))) if key.as_str() == name)
}

fn is_flag(value: RawBsonRef<'_>) -> Option<bool> {
    match value {
        RawBsonRef::Boolean(b) => Some(b),
        RawBsonRef::Int32(n) => Some(n != 0),
        RawBsonRef::Int64(n) => Some(n != 0),
        RawBsonRef::Double(n) => Some(n != 0.0),
        _ => None,
    }
}

/// A `$project` without computed fields in the format of its stage: `_id` first, paths as trees.
fn projection(stage: &RawDocument) -> Option<RawDocumentBuf> {
    let fields = stage.get_document("$project").ok()?;
    let mut flags = Vec::new();
    for field in fields {
        let (name, value) = field.ok()?;
        flags.push((name.as_str(), is_flag(value)?));
    }
    let id = flags.iter().find(|(name, _)| *name == "_id").map(|(_, kept)| *kept);
    flags.retain(|(name, _)| *name != "_id");
    // If only `_id` is excluded, the rest is kept.
    let mut tree = bson::Document::new();
    tree.insert("_id", id.unwrap_or(true));
    for (path, kept) in flags {
        insert(&mut tree, path, kept)?;
    }
    RawDocumentBuf::try_from(&tree).ok()
}

/// A `$project` that computes fields.
fn computing(stage: &RawDocument, sorted: bool) -> Option<RawDocumentBuf> {
    let computes = is(stage, "$project") && !sorted;
    computes.then(|| told(stage).get_document("$project").map(ToOwned::to_owned).ok()).flatten()
}

fn insert(tree: &mut bson::Document, path: &str, kept: bool) -> Option<()> {
    let Some((first, rest)) = path.split_once('.') else {
        tree.insert(path, kept);
        return Some(());
    };
    if !tree.contains_key(first) {
        tree.insert(first, bson::Document::new());
    }
    insert(tree.get_document_mut(first).ok()?, rest, kept)
}

/// A parsed stage in mongod's format.
fn told(stage: &RawDocument) -> RawDocumentBuf {
    let own = || stage.to_owned();
    let Some(Ok((name, value))) = stage.iter().next() else { return own() };
    match (name.as_str(), value) {
        ("$unwind", RawBsonRef::String(path)) => rawdoc! { "$unwind": { "path": path } },
        ("$addFields" | "$set", RawBsonRef::Document(fields)) => {
            let mut shown = RawDocumentBuf::new();
            shown.append(name, computed(fields));
            shown
        }
        ("$project", RawBsonRef::Document(fields)) => {
            let mut shown = RawDocumentBuf::new();
            for (name, value) in fields.iter().flatten() {
                match is_flag(value) {
                    Some(kept) => shown.append(name, kept),
                    None => shown.append(name, expression(value)),
                }
            }
            if !matches!(shown.get("_id"), Ok(Some(_))) {
                let mut first = rawdoc! { "_id": true };
                shown.iter().flatten().for_each(|(name, value)| first.append(name, value));
                shown = first;
            }
            rawdoc! { "$project": shown }
        }
        _ => own(),
    }
}

fn computed(fields: &RawDocument) -> RawDocumentBuf {
    let mut shown = RawDocumentBuf::new();
    for (name, value) in fields.iter().flatten() {
        shown.append(name, expression(value));
    }
    shown
}

/// An expression with its constants marked as such.
fn expression(value: RawBsonRef<'_>) -> bson::RawBson {
    match value {
        RawBsonRef::String(text) if text.starts_with('$') => text.into(),
        RawBsonRef::Array(items) => {
            let items: bson::RawArrayBuf = items.into_iter().flatten().map(expression).collect();
            items.into()
        }
        RawBsonRef::Document(doc) if is(doc, "$literal") => {
            let mut shown = RawDocumentBuf::new();
            for (_, value) in doc.iter().flatten() {
                shown.append(bson::raw::cstr!("$const"), value);
            }
            shown.into()
        }
        RawBsonRef::Document(doc) => computed(doc).into(),
        constant => {
            let mut shown = RawDocumentBuf::new();
            shown.append(bson::raw::cstr!("$const"), constant);
            shown.into()
        }
    }
}
