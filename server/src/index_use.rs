//! Counts how often each index was used, for `$indexStats`, and how often a collection was scanned, for `$collStats`.

use std::collections::HashMap;

use parking_lot::Mutex;
use query::{
    exec::{Access, IndexScan},
    source::IndexInfo,
};
use uuid::Uuid;

/// Usage counts since the start. The empty name counts collection scans, since no index has it.
#[derive(Debug, Default)]
pub struct IndexUse(Mutex<HashMap<(Uuid, String), i64>>);

impl IndexUse {
    /// Counts the indexes that [`names`] returned.
    pub fn note(&self, collection: Uuid, names: Vec<String>) {
        let mut uses = self.0.lock();
        for name in names {
            *uses.entry((collection, name)).or_default() += 1;
        }
    }

    /// Number of collection scans.
    pub fn scans(&self, collection: Option<Uuid>) -> i64 {
        collection.map_or(0, |collection| self.of(collection, ""))
    }

    /// Number of uses of an index.
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
