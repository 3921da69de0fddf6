//! An engine in memory, the model for tests. Its sorted maps are copied on write, so a snapshot is a clone of five
//! pointers.

use std::{collections::BTreeMap, ops::Bound, path::PathBuf, sync::Arc};

use parking_lot::RwLock;

use super::{
    Batch, Engine, Frozen, Item, Iter, KEY_LEN_MAX, Keyspace, Made, Slice, Snapshot, Sync,
};
use crate::StorageError;

type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);
type Map = rpds::RedBlackTreeMapSync<Slice, Slice>;

/// An engine that keeps everything in memory.
#[derive(Default)]
pub(crate) struct Memory {
    maps: RwLock<Arc<Maps>>,
}

#[derive(Clone, Default)]
struct Maps(BTreeMap<Keyspace, Map>);

impl Memory {
    fn change(&self, change: impl FnOnce(&mut Maps)) {
        let mut guard = self.maps.write();
        let mut maps = Maps::clone(&guard);
        change(&mut maps);
        *guard = Arc::new(maps);
    }
}

impl Maps {
    fn of(&mut self, ks: Keyspace) -> &mut Map {
        self.0.entry(ks).or_default()
    }
}

impl Engine for Memory {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        Arc::clone(&*self.maps.read()) as Arc<dyn Snapshot>
    }

    fn commit(&self, batch: Batch, _sync: Sync) -> Result<(), StorageError> {
        for (_, key, _) in &batch.writes {
            assert!(key.len() <= KEY_LEN_MAX, "E5: key of {} bytes", key.len());
        }
        self.change(|maps| {
            for (ks, key, value) in batch.writes {
                match value {
                    Some(value) => maps.of(ks).insert_mut(key, value),
                    None => {
                        maps.of(ks).remove_mut(&key);
                    }
                }
            }
        });
        Ok(())
    }

    fn sync(&self) -> Result<(), StorageError> {
        Ok(())
    }

    fn synced(&self) -> u64 {
        0
    }

    fn tend(&self) -> Result<(), StorageError> {
        Ok(())
    }

    fn damage(&self) -> Option<String> {
        None
    }

    fn ingest(
        &self,
        ks: Keyspace,
        run: &mut dyn Iterator<Item = Item>,
    ) -> Result<(), StorageError> {
        let items = run.collect::<Result<Vec<_>, _>>()?;
        assert!(items.is_sorted_by(|a, b| a.0 < b.0), "ingested keys must ascend");
        self.change(|maps| {
            for (key, value) in items {
                maps.of(ks).insert_mut(key, value);
            }
        });
        Ok(())
    }

    fn forget(&self, ks: Keyspace, from: &[u8], to: &[u8]) -> Result<(), StorageError> {
        let gone: Vec<Slice> = self
            .snapshot()
            .range(ks, Bound::Included(from), Bound::Excluded(to))
            .map(|item| item.map(|(key, _)| key))
            .collect::<Result<_, _>>()?;
        self.change(|maps| {
            for key in &gone {
                maps.of(ks).remove_mut(key);
            }
        });
        Ok(())
    }

    fn recall(&self, _ks: Keyspace) {}

    fn settle(&self) {}

    fn freeze(&self) -> Result<Frozen, StorageError> {
        let why = "the memory engine has no files".to_owned();
        Err(StorageError::NotOurs { path: PathBuf::new(), why })
    }

    fn disk_bytes(&self, _ks: Keyspace) -> u64 {
        0
    }
}

impl Snapshot for Maps {
    fn get(&self, ks: Keyspace, key: &[u8]) -> Result<Option<Slice>, StorageError> {
        Ok(self.0.get(&ks).and_then(|map| map.get(key)).cloned())
    }

    fn range(&self, ks: Keyspace, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Iter {
        Box::new(Made(self.walk(ks, from, to)))
    }

    fn range_back(&self, ks: Keyspace, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Iter {
        Box::new(Made(self.walk(ks, from, to).rev()))
    }
}

impl Maps {
    fn walk(&self, ks: Keyspace, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Walk {
        let map = self.0.get(&ks).cloned().unwrap_or_default();
        let (from, to) = (from.map(<[u8]>::to_vec), to.map(<[u8]>::to_vec));
        Walk { map, from, to, done: false }
    }
}

/// An iterator that owns its map, which a borrowing iterator could not. It therefore searches for its position at
/// each step.
struct Walk {
    map: Map,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    done: bool,
}

impl Walk {
    fn bounds(&self) -> Option<Bounds<'_>> {
        let (from, to) =
            (self.from.as_ref().map(Vec::as_slice), self.to.as_ref().map(Vec::as_slice));
        let empty = match (from, to) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(a), Bound::Included(b)) => a > b,
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
                a >= b
            }
        };
        (!self.done && !empty).then_some((from, to))
    }
}

impl Iterator for Walk {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        let bounds = self.bounds()?;
        let Some((key, value)) = self.map.range::<[u8], _>(bounds).next() else {
            self.done = true;
            return None;
        };
        let (key, value) = (key.clone(), value.clone());
        self.from = Bound::Excluded(key.to_vec());
        Some(Ok((key, value)))
    }
}

impl DoubleEndedIterator for Walk {
    fn next_back(&mut self) -> Option<Item> {
        let bounds = self.bounds()?;
        let Some((key, value)) = self.map.range::<[u8], _>(bounds).next_back() else {
            self.done = true;
            return None;
        };
        let (key, value) = (key.clone(), value.clone());
        self.to = Bound::Excluded(key.to_vec());
        Some(Ok((key, value)))
    }
}
