//! What a restore will do, before it does anything.

use anyhow::{Context, Result, bail};
use bson::{Bson, Document};

use super::Restore;
use crate::past::source::{BUCKETS, Collection, Past};

/// One collection, and where it goes.
pub(super) struct Step {
    pub(super) from: Collection,
    pub(super) to: Target,
    pub(super) documents: u64,
    indexes: Vec<Document>,
}

/// A name in the cluster.
pub(super) struct Target {
    pub(super) db: String,
    pub(super) name: String,
}

/// Collections first, then views, which need them.
pub(super) fn plan(past: &Past, what: &Restore) -> Result<Vec<Step>> {
    let renames: Vec<(&str, &str)> = what
        .rename
        .iter()
        .map(|pair| pair.split_once('=').with_context(|| format!("{pair} is not FROM=TO")))
        .collect::<Result<_>>()?;
    for (from, to) in &renames {
        if from.contains('.') != to.contains('.') {
            bail!("--rename {from}={to}: name two databases or two collections");
        }
    }
    let mut steps = Vec::new();
    for from in past.chosen(&what.ns)? {
        let to = renamed(&from, &renames);
        let with_data = from.has_data();
        let documents = if with_data { past.count(&from)? } else { 0 };
        let indexes = if with_data && !from.name.starts_with(BUCKETS) {
            past.indexes(&from)?
        } else {
            Vec::new()
        };
        steps.push(Step { from, to, documents, indexes });
    }
    // A time series is made before its buckets, a view after what it is on.
    steps.sort_by_key(|step| match step.from.kind.as_str() {
        "timeseries" => 0,
        "view" => 2,
        _ => 1,
    });
    Ok(steps)
}

fn renamed(from: &Collection, renames: &[(&str, &str)]) -> Target {
    let ns = from.ns();
    for (old, new) in renames {
        if *old == ns
            && let Some((db, name)) = new.split_once('.')
        {
            return Target { db: db.to_owned(), name: name.to_owned() };
        }
        if *old == from.db {
            return Target { db: (*new).to_owned(), name: from.name.clone() };
        }
    }
    Target { db: from.db.clone(), name: from.name.clone() }
}

impl Step {
    /// `db.name` in the cluster.
    pub(super) fn ns(&self) -> String {
        format!("{}.{}", self.to.db, self.to.name)
    }

    /// Buckets come into being with their time series.
    pub(super) fn is_created(&self) -> bool {
        !self.from.name.starts_with(BUCKETS)
    }

    /// The options that `create` takes.
    pub(super) fn options(&self) -> Document {
        let mut options = self.from.options.clone();
        for own in ["uuid", "temp", "autoIndexId"] {
            options.remove(own);
        }
        options
    }

    /// The indexes to build, without the one that is there of itself.
    pub(super) fn index_specs(&self) -> Vec<Bson> {
        let of_itself = |spec: &&Document| {
            spec.get_str("name").is_ok_and(|name| name == "_id_") || spec.contains_key("clustered")
        };
        let specs = self.indexes.iter().filter(|spec| !of_itself(spec));
        specs
            .map(|spec| {
                let mut spec = spec.clone();
                spec.remove("ns");
                Bson::Document(spec)
            })
            .collect()
    }
}
