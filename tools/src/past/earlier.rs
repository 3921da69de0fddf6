//! Finds drops from before the oplog begins, using history alone.
//!
//! By default the node's oplog reaches as far back as its history. With `--oplogSize` it may begin later. Then a
//! collection that existed at the oldest readable timestamp and does not exist where the oplog begins was dropped in
//! between. A binary search finds the time. A collection that was both created and dropped in between is not found.

use anyhow::Result;
use bson::{Bson, Document, doc};
use protocol::Timestamp;

use super::{
    drops::{Loss, What},
    source::Node,
};

/// Collections that were dropped after the oldest readable timestamp and before the oplog begins.
pub(super) fn dropped(node: &Node) -> Result<Vec<Loss>> {
    let (oldest, begin) = (node.oldest(), node.oplog_begin()?.unwrap_or(node.newest()));
    if oldest >= begin || begin > node.newest() {
        return Ok(Vec::new());
    }
    // The open connection keeps the oldest timestamp readable during the search.
    let held = node.at(oldest)?;
    let mut found = Vec::new();
    for db in held.databases()? {
        for collection in held.collections(&db)?.iter().filter(|it| it.has_data()) {
            let Some(uuid) = collection.uuid else { continue };
            let there = |ts: Timestamp| -> Result<bool> {
                let filter: Document = doc! { "info.uuid": Bson::from(uuid) };
                let list = doc! { "listCollections": 1, "filter": filter };
                Ok(!node.list_at(&db, list, ts)?.is_empty())
            };
            if there(begin)? {
                continue;
            }
            let (before, ts) = last_there(oldest, begin, there)?;
            let documents = held.count(collection).ok();
            let ns = collection.ns();
            let what = What::Collection;
            found.push(Loss { what, ns, ts, until: ts, before, documents, of: None });
        }
    }
    Ok(found)
}

/// The last timestamp at which the collection existed, and the first at which it did not.
fn last_there(
    mut there: Timestamp,
    mut gone: Timestamp,
    is_there: impl Fn(Timestamp) -> Result<bool>,
) -> Result<(Timestamp, Timestamp)> {
    while gone.as_u64() - there.as_u64() > 1 {
        let middle = Timestamp::from_u64(there.as_u64().midpoint(gone.as_u64()));
        match is_there(middle)? {
            true => there = middle,
            false => gone = middle,
        }
    }
    Ok((there, gone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halving_finds_the_moment() {
        let dropped = Timestamp::new(1_795_000_123, 7);
        let (there, gone) =
            last_there(Timestamp::new(1_794_900_000, 0), Timestamp::new(1_795_008_600, 0), |ts| {
                Ok(ts < dropped)
            })
            .unwrap();
        assert_eq!(gone, dropped);
        assert_eq!(there.as_u64(), dropped.as_u64() - 1);
    }
}
