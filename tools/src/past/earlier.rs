//! Finds drops from before the oplog begins, using history alone.
//!
//! By default the node's oplog reaches as far back as its history. With `--oplogSize` it may begin later. Then the
//! time before it is divided into pieces. A collection that exists at the beginning of a piece and not at its end was
//! dropped in that piece, and a binary search finds the time. A collection that was both created and dropped within one
//! piece is not found.

use anyhow::Result;
use bson::{Bson, Document, doc};
use protocol::Timestamp;

use super::{
    drops::{Loss, What},
    source::{Collection, Node, Past},
};

/// Collections that were dropped after the oldest readable timestamp and before the oplog begins.
pub(super) fn dropped(node: &Node) -> Result<Vec<Loss>> {
    let (oldest, begin) = (node.oldest(), node.oplog_begin()?.unwrap_or(node.newest()));
    if oldest >= begin || begin > node.newest() {
        return Ok(Vec::new());
    }
    // The open connection keeps the oldest timestamp, and all after it, readable during the search.
    let held = node.at(oldest)?;
    held.databases()?;
    let mut from = Catalog::of(node.at(oldest)?)?;
    let mut found = Vec::new();
    for piece in 1..=PIECES {
        let ts = oldest.as_u64() + (begin.as_u64() - oldest.as_u64()) / PIECES * piece;
        let to =
            Catalog::of(node.at(if piece == PIECES { begin } else { Timestamp::from_u64(ts) })?)?;
        for collection in from.gone_in(&to) {
            let uuid = collection.uuid;
            let there = |ts: Timestamp| -> Result<bool> {
                let filter: Document = doc! { "info.uuid": uuid.map(Bson::from) };
                let list = doc! { "listCollections": 1, "filter": filter };
                Ok(!node.list_at(&collection.db, list, ts)?.is_empty())
            };
            let (before, ts) = last_there(from.past.ts, to.past.ts, there)?;
            let documents = node.at(before)?.count(collection).ok();
            let (ns, what) = (collection.ns(), What::Collection);
            found.push(Loss { what, ns, ts, until: ts, before, documents, of: None });
        }
        from = to;
    }
    Ok(found)
}

/// Number of pieces that the time before the oplog is divided into.
const PIECES: u64 = 32;

/// The collections at a timestamp.
struct Catalog {
    past: Past,
    collections: Vec<Collection>,
}

impl Catalog {
    fn of(past: Past) -> Result<Self> {
        let mut collections = past.chosen(&[])?;
        collections.retain(|it| it.has_data() && it.uuid.is_some());
        Ok(Self { past, collections })
    }

    fn gone_in<'a>(&'a self, later: &Self) -> Vec<&'a Collection> {
        let there = |uuid| later.collections.iter().any(|it| it.uuid == uuid);
        self.collections.iter().filter(|it| !there(it.uuid)).collect()
    }
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
