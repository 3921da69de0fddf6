//! Views and time-series collections, which are documents of `system.views`.

use std::ops::Bound;

use bson::{RawArrayBuf, RawDocumentBuf, raw::cstr, rawdoc};
use protocol::{ErrorCode, Namespace, RawDoc};
use storage::{Direction, View};

use crate::error::Failure;

/// One view.
#[derive(Debug)]
pub struct ViewEntry {
    /// Its name within the database.
    pub name: String,
    /// `viewOn`, `pipeline` and `collation`.
    pub definition: RawDoc,
}

impl ViewEntry {
    /// The buckets collection of a time-series collection.
    pub fn buckets(&self, db: &str) -> Option<Namespace> {
        let on = self.definition.get_str("viewOn").ok()?;
        let own = on.strip_prefix("system.buckets.")?;
        (own == self.name).then(|| Namespace::new(db, on))
    }

    /// The entry for listCollections.
    pub fn listed(&self, view: &View, db: &str) -> RawDocumentBuf {
        let buckets = self.buckets(db).and_then(|ns| view.catalog().collection(&ns));
        let mut options = RawDocumentBuf::new();
        let (kind, read_only) = match buckets {
            Some(buckets) => {
                for (name, value) in buckets.options().iter().flatten() {
                    if !matches!(name.as_str(), "validator" | "clusteredIndex") {
                        options.append(name, value);
                    }
                }
                ("timeseries", false)
            }
            None => {
                for (name, value) in self.definition.iter().flatten() {
                    if name.as_str() != "_id" {
                        options.append(name, value);
                    }
                }
                ("view", true)
            }
        };
        let mut listed = rawdoc! { "name": self.name.as_str(), "type": kind };
        listed.append(cstr!("options"), options);
        listed.append(cstr!("info"), rawdoc! { "readOnly": read_only });
        listed
    }
}

/// The views of a database.
pub fn all(view: &View, db: &str) -> Result<Vec<ViewEntry>, Failure> {
    let Some(collection) = view.catalog().collection(&Namespace::new(db, "system.views")) else {
        return Ok(Vec::new());
    };
    let mut views = Vec::new();
    for item in view.scan(&collection, Bound::Unbounded, Direction::Forward) {
        let (_, doc) = item?;
        let name = doc.get_str("_id").ok().and_then(|id| id.strip_prefix(db)?.strip_prefix('.'));
        if let Some(name) = name {
            views.push(ViewEntry { name: name.to_owned(), definition: doc.clone() });
        }
    }
    Ok(views)
}

/// True if the name is that of a view.
pub fn exists(view: &View, ns: &Namespace) -> Result<bool, Failure> {
    Ok(all(view, ns.db())?.iter().any(|entry| entry.name == ns.coll()))
}

/// Refuses a view where only a collection is allowed.
pub fn refuse(view: &View, ns: &Namespace) -> Result<(), Failure> {
    if exists(view, ns)? {
        let text = format!("Namespace {ns} is a view, not a collection");
        return Err(Failure::said(ErrorCode::CommandNotSupportedOnView, text));
    }
    Ok(())
}

/// mongod's limit of nested views.
const VIEW_DEPTH_MAX: usize = 20;

/// The result of resolving a name.
#[derive(Debug)]
pub struct Resolved {
    /// The collection, which need not exist.
    pub on: Namespace,
    /// The pipeline over it.
    pub pipeline: RawArrayBuf,
    /// The collation of the view, if it is a view: `None` is the simple one.
    pub view: Option<Option<RawDoc>>,
}

/// Resolves a view to its collection, and prepends the view's pipeline to the given one.
pub fn resolve(
    view: &View,
    ns: &Namespace,
    mut pipeline: RawArrayBuf,
) -> Result<Resolved, Failure> {
    let mut on = ns.clone();
    let mut collation = None;
    if view.catalog().collection(ns).is_some() {
        return Ok(Resolved { on, pipeline, view: None });
    }
    let all = all(view, ns.db())?;
    for _ in 0..VIEW_DEPTH_MAX {
        let Some(entry) = all.iter().find(|entry| entry.name == on.coll()) else {
            return Ok(Resolved { on, pipeline, view: collation });
        };
        collation.get_or_insert_with(|| {
            entry.definition.get_document("collation").ok().map(RawDoc::from)
        });
        let mut whole = RawArrayBuf::new();
        let own = entry.definition.get_array("pipeline").ok();
        let stages = own.into_iter().flat_map(|own| own.into_iter().flatten());
        for stage in stages.chain(pipeline.into_iter().flatten()) {
            whole.push(bson::RawBson::from(stage));
        }
        pipeline = whole;
        on = Namespace::new(ns.db(), entry.definition.get_str("viewOn").unwrap_or_default());
    }
    let text = format!("View depth too deep: {ns}");
    Err(Failure::said(ErrorCode::ViewDepthLimitExceeded, text))
}
