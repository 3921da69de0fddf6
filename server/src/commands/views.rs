//! Views and time-series collections: documents of `system.views`.

use std::ops::Bound;

use bson::{RawDocumentBuf, raw::cstr, rawdoc};
use protocol::{ErrorCode, Namespace, RawDoc};
use storage::{Direction, View};

use crate::error::Failure;

/// One view.
pub(super) struct ViewEntry {
    /// Its name within the database.
    pub(super) name: String,
    /// `viewOn`, `pipeline` and `collation`.
    pub(super) definition: RawDoc,
}

impl ViewEntry {
    /// The collection of buckets behind a time-series collection.
    pub(super) fn buckets(&self, db: &str) -> Option<Namespace> {
        let on = self.definition.get_str("viewOn").ok()?;
        let own = on.strip_prefix("system.buckets.")?;
        (own == self.name).then(|| Namespace::new(db, on))
    }

    /// What listCollections shows.
    pub(super) fn listed(&self, view: &View, db: &str) -> RawDocumentBuf {
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
pub(super) fn all(view: &View, db: &str) -> Result<Vec<ViewEntry>, Failure> {
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

/// True if the name is a view's.
pub(super) fn exists(view: &View, ns: &Namespace) -> Result<bool, Failure> {
    Ok(all(view, ns.db())?.iter().any(|entry| entry.name == ns.coll()))
}

/// Refuses a view where only a collection makes sense.
pub(super) fn refuse(view: &View, ns: &Namespace) -> Result<(), Failure> {
    if exists(view, ns)? {
        let text = format!("Namespace {ns} is a view, not a collection");
        return Err(Failure::said(ErrorCode::CommandNotSupportedOnView, text));
    }
    Ok(())
}
