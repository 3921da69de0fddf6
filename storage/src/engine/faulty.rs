//! A wrapper for tests that makes an engine fail: the nth write or sync fails, and so does every later one, as on a
//! full disk.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, Ordering},
};

use super::{Batch, Engine, Frozen, Item, Keyspace, Snapshot, Sync};
use crate::StorageError;

/// A plan of failures: `left` writes succeed, all later ones fail.
#[derive(Clone)]
pub struct Faults(Arc<Plan>);

struct Plan {
    left: AtomicI64,
    /// If true, the first failing write reaches the engine, but the caller is told that it failed.
    torn: AtomicBool,
    hit: AtomicBool,
}

impl Faults {
    /// Lets `left` writes succeed and fails all later ones. With `torn`, the first failing write is executed anyway.
    pub fn after(left: i64, torn: bool) -> Self {
        Self(Arc::new(Plan {
            left: AtomicI64::new(left),
            torn: AtomicBool::new(torn),
            hit: AtomicBool::new(false),
        }))
    }

    /// True once a write has failed.
    pub fn hit(&self) -> bool {
        self.0.hit.load(Ordering::SeqCst)
    }

    /// `Ok(true)`: execute the write. `Ok(false)`: execute it, then report that it failed.
    fn pass(&self) -> Result<bool, StorageError> {
        let left = self.0.left.fetch_sub(1, Ordering::SeqCst);
        if left > 0 {
            return Ok(true);
        }
        self.0.hit.store(true, Ordering::SeqCst);
        if left == 0 && self.0.torn.load(Ordering::SeqCst) {
            return Ok(false);
        }
        Err(StorageError::Injected("no space left on device"))
    }
}

/// An engine that fails as [`Faults`] prescribes.
pub(crate) struct Faulty {
    inner: Arc<dyn Engine>,
    faults: Faults,
}

impl Faulty {
    /// Wraps an engine.
    pub(crate) fn new(inner: Arc<dyn Engine>, faults: Faults) -> Self {
        Self { inner, faults }
    }

    fn through<T>(&self, act: impl FnOnce() -> Result<T, StorageError>) -> Result<T, StorageError> {
        if self.faults.pass()? {
            return act();
        }
        act()?;
        Err(StorageError::Injected("the answer was lost"))
    }
}

impl Engine for Faulty {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        self.inner.snapshot()
    }

    fn commit(&self, batch: Batch, sync: Sync) -> Result<(), StorageError> {
        self.through(|| self.inner.commit(batch, sync))
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.through(|| self.inner.sync())
    }

    fn synced(&self) -> u64 {
        self.inner.synced()
    }

    fn tend(&self) -> Result<(), StorageError> {
        self.inner.tend()
    }

    fn damage(&self) -> Option<String> {
        self.inner.damage()
    }

    fn ingest(
        &self,
        ks: Keyspace,
        run: &mut dyn Iterator<Item = Item>,
    ) -> Result<(), StorageError> {
        self.through(|| self.inner.ingest(ks, run))
    }

    fn forget(&self, ks: Keyspace, from: &[u8], to: &[u8]) -> Result<(), StorageError> {
        self.through(|| self.inner.forget(ks, from, to))
    }

    fn recall(&self, ks: Keyspace) {
        self.inner.recall(ks);
    }

    fn settle(&self) {
        self.inner.settle();
    }

    fn freeze(&self) -> Result<Frozen, StorageError> {
        self.through(|| self.inner.freeze())
    }

    fn disk_bytes(&self, ks: Keyspace) -> u64 {
        self.inner.disk_bytes(ks)
    }
}
