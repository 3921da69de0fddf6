//! Plans a restore before anything is written.

use anyhow::{Context, Result, bail};
use bson::{Bson, Document};

use super::Restore;
use crate::{
    past::source::{BUCKETS, Collection, Past},
    screen::count,
};

/// One collection, view or time series, with its target.
pub(super) struct Step {
    pub(super) from: Collection,
    pub(super) to: Target,
    /// The collection with the documents: for a time series its buckets, for a view none.
    pub(super) data: Option<Collection>,
    pub(super) documents: u64,
    indexes: Vec<Document>,
}

/// A name in the cluster.
pub(super) struct Target {
    pub(super) db: String,
    pub(super) name: String,
}

/// Makes the plan: collections and time series first, then the views that depend on them.
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
    let chosen = past.chosen(&what.ns)?;
    for (from, _) in &renames {
        if !chosen.iter().any(|have| have.db == *from || have.ns() == *from) {
            bail!("--rename {from}: nothing of that name is restored");
        }
    }
    let mut steps = Vec::new();
    for from in &chosen {
        let series = |name: &str| {
            chosen.iter().any(|it| it.db == from.db && it.name == name && it.kind == "timeseries")
        };
        // Buckets are restored with their time series.
        if !from.name.strip_prefix(BUCKETS).is_some_and(series) {
            steps.push(step(past, from, &chosen, &renames)?);
        }
    }
    steps.sort_by_key(|step| step.from.kind == "view");
    for (at, step) in steps.iter().enumerate() {
        if steps.iter().skip(at + 1).any(|other| other.ns() == step.ns()) {
            bail!("two collections would become {}: name others with --rename", step.ns());
        }
    }
    Ok(steps)
}

fn step(
    past: &Past,
    from: &Collection,
    chosen: &[Collection],
    renames: &[(&str, &str)],
) -> Result<Step> {
    let data = match from.kind.as_str() {
        "view" => None,
        "timeseries" => {
            let name = format!("{BUCKETS}{}", from.name);
            chosen.iter().find(|it| it.db == from.db && it.name == name).cloned()
        }
        _ => Some(from.clone()),
    };
    let documents = data.as_ref().map_or(Ok(0), |data| past.count(data))?;
    let indexes = if from.kind == "view" { Vec::new() } else { past.indexes(from)? };
    Ok(Step { from: from.clone(), to: renamed(from, renames), data, documents, indexes })
}

fn renamed(from: &Collection, renames: &[(&str, &str)]) -> Target {
    let ns = from.ns();
    for (old, new) in renames {
        if *old == ns
            && let Some((db, name)) = new.split_once('.')
        {
            return Target { db: db.to_owned(), name: name.to_owned() };
        }
    }
    let db = renames.iter().find(|(old, _)| *old == from.db).map_or(from.db.as_str(), |it| it.1);
    Target { db: db.to_owned(), name: from.name.clone() }
}

impl Step {
    /// `db.name` in the cluster.
    pub(super) fn ns(&self) -> String {
        format!("{}.{}", self.to.db, self.to.name)
    }

    /// Name of the collection in the cluster that receives the documents.
    pub(super) fn data_name(&self) -> String {
        match self.from.kind.as_str() {
            "timeseries" => format!("{BUCKETS}{}", self.to.name),
            _ => self.to.name.clone(),
        }
    }

    /// The options for `create`.
    pub(super) fn options(&self) -> Document {
        let mut options = self.from.options.clone();
        for own in ["uuid", "temp", "autoIndexId"] {
            options.remove(own);
        }
        options
    }

    /// The indexes to build, except the ones that exist automatically.
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

    /// Kind and size, as text.
    pub(super) fn amount(&self) -> String {
        match self.from.kind.as_str() {
            "view" => "a view".to_owned(),
            "timeseries" => format!("a time series of {}", count(self.documents, "bucket")),
            _ => count(self.documents, "document"),
        }
    }
}
