//! How often each index was chosen, for `$indexStats`, and how often none was, for `$collStats`.

use std::collections::HashMap;

use parking_lot::Mutex;
use query::{
    exec::{Access, IndexScan},
    source::IndexInfo,
};
use uuid::Uuid;

/// Uses of indexes since the start. No index has the empty name: there are the scans of the whole collection.
#[derive(Debug, Default)]
pub struct IndexUse(Mutex<HashMap<(Uuid, String), i64>>);

impl IndexUse {
    /// Notes what [`names`] gave.
    pub fn note(&self, collection: Uuid, names: Vec<String>) {
        let mut uses = self.0.lock();
        for name in names {
            *uses.entry((collection, name)).or_default() += 1;
        }
    }

    /// How often the whole collection was read.
    pub fn scans(&self, collection: Option<Uuid>) -> i64 {
        collection.map_or(0, |collection| self.of(collection, ""))
    }

    /// How often an index was used.
    pub fn of(&self, collection: Uuid, name: &str) -> i64 {
        self.0.lock().get(&(collection, name.to_owned())).copied().unwrap_or(0)
    }
}

/// The indexes of a plan.
pub fn names(access: &Access, indexes: &[IndexInfo]) -> Vec<String> {
    let name_of = |scan: &IndexScan| indexes.get(scan.index).map(|index| index.name.clone());
    match access {
        Access::ById(_) => vec!["_id_".to_owned()],
        Access::Indexes(scans) => scans.iter().filter_map(name_of).collect(),
        Access::Text(text) => {
            let scans = text.terms.iter().take(1).chain(&text.others);
            scans.filter_map(name_of).collect()
        }
        Access::Collection(_) => vec![String::new()],
        _ => Vec::new(),
    }
}
